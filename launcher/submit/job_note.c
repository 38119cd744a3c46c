#include "launcher/submit/job_note.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "launcher/sched/sched.h"

static const double PAUSE_S = 1, PAUSE_MOST_S = 30;

struct note {
    char kind[16], home[LIMIT_PATH_BYTES], job_id[SCHED_ID_BYTES], run[ID_TEXT_BYTES];
};

/* Warns if the job may not be requeued, so that its user learns it in good time. */
static void once_warn(struct sched *s, const char *job_id)
{
    struct sched_jobs jobs = {0};
    const struct sched_job *job;
    if (sched_look(s, job_id, &jobs, NULL) == 0 && (job = sched_jobs_find(&jobs, job_id)) &&
        job->once)
        log_msg(LOG_WARN,
                "job %s may not be requeued: nothing starts it again when it is stopped; submit it "
                "with --requeue", job_id);
    sched_jobs_release(&jobs);
}

static int leave(const char *kind, const char *home, const char *job_id, const char *run,
                 struct err *err)
{
    struct sched *s = NULL;
    int rc = sched_open(kind, home, &s, err);
    if (rc < 0)
        return rc;
    if ((rc = sched_note(s, job_id, run, err)) == 0 && *run)
        once_warn(s, job_id);
    sched_close(s);
    return rc;
}

int job_note_try(const char *kind, const char *home, const char *job_id, struct err *err)
{
    return leave(kind, home, job_id, "", err);
}

static void *note_main(void *arg)
{
    struct note *n = arg;
    struct err err = {0};
    double pause_s = PAUSE_S;
    int rc;
    while ((rc = leave(n->kind, n->home, n->job_id, n->run, &err)) == ERR_TEMP || rc == ERR_BUSY) {
        clock_sleep_s(pause_s);
        pause_s = fmin(2 * pause_s, PAUSE_MOST_S);
    }
    if (rc < 0)
        log_msg(LOG_WARN, "job %s does not note which run it has: %s", n->job_id, err.text);
    free(n);
    return NULL;
}

void job_note_leave(const char *kind, const char *home, const char *job_id, const char *run_id)
{
    struct note *n = calloc(1, sizeof *n);
    sigset_t all, before;
    pthread_t thread;
    if (!n)
        return;
    snprintf(n->kind, sizeof n->kind, "%s", kind);
    snprintf(n->home, sizeof n->home, "%s", home);
    snprintf(n->job_id, sizeof n->job_id, "%s", job_id);
    snprintf(n->run, sizeof n->run, "%s", run_id);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the caller's thread */
    int failed = pthread_create(&thread, NULL, note_main, n);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        free(n);
    else
        pthread_detach(thread);
}

int job_note_read(const char *kind, const char *home, const char *job_id, char run[ID_TEXT_BYTES],
                  struct err *err)
{
    struct sched *s = NULL;
    struct sched_jobs jobs = {0};
    run[0] = '\0';
    int rc = sched_open(kind, home, &s, err);
    if (rc == ERR_ENV)
        return 0;
    if (rc < 0 || (rc = sched_look(s, job_id, &jobs, err)) < 0)
        goto out;
    const struct sched_job *job = sched_jobs_find(&jobs, job_id);
    snprintf(run, ID_TEXT_BYTES, "%s", job ? job->run : "");
out:
    sched_jobs_release(&jobs);
    sched_close(s);
    return rc;
}
