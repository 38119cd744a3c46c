#include "launcher/run/successor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/log.h"
#include "launcher/submit/launch.h"

static bool wanted(const struct duty *d)
{
    const char *how = getenv(LAUNCH_AGAIN_ENV);
    return d->sched && how && strcmp(how, again_names[AGAIN_SUCCESSOR]) == 0;
}

static int submit(const struct agent_conf *conf, const struct duty *d, struct run_fold *fold,
                  char id[SCHED_ID_BYTES], struct err *err)
{
    struct launch l = {.home = conf->home, .bin_dir = conf->bin_dir, .budget = d->run.budget};
    snprintf(l.run_id, sizeof l.run_id, "%s", run_fold_state(fold)->run);
    snprintf(l.run_dir, sizeof l.run_dir, "%s", conf->run_dir);
    return launch_successor(&l, d->sched, &d->self, fold, id, err);
}

void successor_prepare(const struct agent_conf *conf, const struct duty *d, struct run_fold *fold)
{
    char id[SCHED_ID_BYTES];
    struct err err = {0};
    if (!wanted(d))
        return;
    if (submit(conf, d, fold, id, &err) < 0)
        log_msg(LOG_WARN, "no successor yet, to be tried again at the end: %s", err.text);
    else
        log_msg(LOG_INFO, "job %s goes on when this one has ended", id);
}

bool successor_aside(const struct agent_conf *conf, const struct duty *d, struct run_fold *fold)
{
    char id[SCHED_ID_BYTES];
    struct err err = {0};
    if (!duty_outdated(d, conf->run_dir))
        return false;
    int rc = submit(conf, d, fold, id, &err);
    if (rc < 0)
        log_msg(LOG_WARN,
                "this job has other resources than the run asks for now, and goes on with them, "
                "for no other can be had: %s",
                err.text);
    else
        log_msg(LOG_INFO,
                "this job has other resources than the run asks for now: it leaves the run to job "
                "%s",
                id);
    return rc == 0;
}

static void bring_back(const struct agent_conf *conf, struct duty *d, struct attempt *attempt,
                       struct run_fold *fold)
{
    char id[SCHED_ID_BYTES];
    struct err err = {0};
    int rc = wanted(d) || duty_outdated(d, conf->run_dir) ? submit(conf, d, fold, id, &err)
                                                          : ERR_STATE;
    if (rc == ERR_BUSY) {
        log_msg(LOG_WARN, "%s", err.text);
    } else if (rc < 0) {
        if (err.text[0])
            log_msg(LOG_WARN, "no successor, so the job itself is requeued: %s", err.text);
        duty_requeue(d, attempt);
    } else {
        attempt_requeued(attempt, id);
    }
}

void successor_settle(const struct agent_conf *conf, struct duty *d, struct attempt *attempt,
                      struct run_fold *fold, enum run_next next)
{
    const struct run_state *state = run_fold_state(fold);
    struct err err = {0};
    if (next == RUN_NEXT_REQUEUE)
        bring_back(conf, d, attempt, fold);
    else if (next != RUN_NEXT_WAIT && wanted(d) && strcmp(state->after, d->self.token) == 0 &&
             state->after[0] && strcmp(state->job_token, state->token) == 0 &&
             sched_cancel(d->sched, state->job_id, &err) < 0)
        log_msg(LOG_WARN, "job %s will start and find nothing to do: %s", state->job_id, err.text);
}
