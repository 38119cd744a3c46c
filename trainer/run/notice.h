/* notice: awaits the request to save and stop (SIGUSR1, SIGTERM, Ctrl-C) in a thread of its own. A
 * second Ctrl-C ends the process at once.
 *
 * Loading, saving and a long step do not delay it: the thread notes when and in which phase the
 * request came, and rank 0 of a run writes the event `stop_heard` at once, into a log of its own
 * (rank0-notice). The training acts on it at the next step boundary, where the ranks agree (event
 * `stop_seen`). v_notice of the database says how long that took.
 */
#ifndef TRAINER_RUN_NOTICE_H
#define TRAINER_RUN_NOTICE_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"

struct notice {
    volatile sig_atomic_t signo;    /* signal of the first request; 0 until then */
    volatile struct timespec heard; /* CLOCK_REALTIME; set before signo */
    const char *volatile phase;     /* what this process does, a literal; the training updates it */
    const char *heard_in;           /* the phase in which the request was heard */
    const char *run_dir;            /* where the event goes; NULL: none is written (yet) */
    int64_t attempt;
    bool written;
    pthread_mutex_t lock;
};

/* Starts to listen. It must be called before any other thread is made, because new threads inherit
 * the blocked signals. *n must live as long as the process. */
int notice_listen(struct notice *n, struct err *err);
/* Writes the event from now on, also for a request that has come already. run_dir is kept. */
void notice_record(struct notice *n, const char *run_dir, int64_t attempt);

#endif
