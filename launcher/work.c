#include "launcher/work.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"

int work_load(struct work *w, const char *run_dir, const char *home, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    const char *kind = getenv("REEL_JOB_SCHED");
    bool by_hand = !kind || !*kind;
    snprintf(path, sizeof path, "%s/run.json", run_dir);
    int rc = run_load(path, &w->run, err);
    snprintf(path, sizeof path, "%s/plan.json", run_dir);
    if (rc < 0 || (rc = plan_load(path, &w->plan, err)) < 0)
        return rc;
    if ((rc = sched_open(by_hand ? "local" : kind, home, &w->steps, err)) < 0 || by_hand)
        return rc;
    w->sched = w->steps;
    return sched_self(w->sched, &w->self, err);
}

void work_release(struct work *w)
{
    sched_close(w->steps);
    run_release(&w->run);
    *w = (struct work){0};
}

void work_requeue(struct work *w, struct attempt *attempt)
{
    struct err err = {0};
    struct evlog_event e;
    if (!w->sched)
        return;
    if (sched_requeue(w->sched, w->self.id, &err) < 0) {
        log_msg(LOG_WARN, "cannot requeue job %s: %s", w->self.id, err.text);
        return;
    }
    evlog_begin(attempt->log, &e, "requeue");
    json_put_text(&e.out, "job_id", w->self.id);
    attempt_event(attempt, &e);
}
