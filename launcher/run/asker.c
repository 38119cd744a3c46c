#include "launcher/run/asker.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"

enum step { STEP_IDLE, STEP_ASKED, STEP_ANSWERED };

struct asker {
    char kind[16], home[LIMIT_PATH_BYTES], job_id[SCHED_ID_BYTES];
    atomic_int step; /* who may use the fields below: the thread while STEP_ASKED, else the owner */
    atomic_int holders; /* number of users: the owner, and the thread while a request runs */
    int rc;
    struct sched_ending ending;
};

int asker_new(const char *kind, const char *home, const char *job_id, struct asker **out,
              struct err *err)
{
    struct asker *q = calloc(1, sizeof *q);
    if (!q)
        return err_set(err, ERR_NOMEM, "out of memory for a question to the scheduler");
    snprintf(q->kind, sizeof q->kind, "%s", kind);
    snprintf(q->home, sizeof q->home, "%s", home);
    snprintf(q->job_id, sizeof q->job_id, "%s", job_id);
    atomic_store(&q->holders, 1);
    *out = q;
    return 0;
}

void asker_free(struct asker *q)
{
    if (q && atomic_fetch_sub(&q->holders, 1) == 1)
        free(q);
}

static int ask(struct asker *q, struct err *err)
{
    struct sched *s = NULL;
    int rc = sched_open(q->kind, q->home, &s, err);
    if (rc < 0)
        return rc;
    rc = sched_ending(s, q->job_id, &q->ending, err);
    sched_close(s);
    return rc;
}

static void *asker_main(void *arg)
{
    struct asker *q = arg;
    struct err err = {0};
    q->ending = (struct sched_ending){.why = SCHED_END_UNKNOWN};
    if ((q->rc = ask(q, &err)) < 0)
        log_msg(LOG_WARN, "why job %s ends, or when, is not known: %s", q->job_id, err.text);
    atomic_store(&q->step, STEP_ANSWERED);
    asker_free(q);
    return NULL;
}

bool asker_put(struct asker *q)
{
    sigset_t all, before;
    pthread_t thread;
    if (atomic_load(&q->step) == STEP_ASKED)
        return false;
    atomic_store(&q->step, STEP_ASKED);
    atomic_fetch_add(&q->holders, 1);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the owner's thread */
    int failed = pthread_create(&thread, NULL, asker_main, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        asker_main(q); /* no thread can be made, so the caller waits for the answer here */
    else
        pthread_detach(thread);
    return true;
}

bool asker_take(struct asker *q, int *rc, struct sched_ending *out)
{
    if (atomic_load(&q->step) != STEP_ANSWERED)
        return false;
    *rc = q->rc;
    *out = q->ending;
    atomic_store(&q->step, STEP_IDLE);
    return true;
}
