#include "trainer/run/notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "trainer/run/record.h"

enum { STACK_BYTES = 256 << 10 };

static int log_write(struct notice *n, struct err *err)
{
    struct evlog *log = NULL;
    struct evlog_event e;
    char name[SIGNAL_NAME_BYTES];
    int rc;
    if ((rc = record_log_open(n->run_dir, n->attempt, "rank0-notice", &log, err)) < 0)
        return rc;
    event_begin(log, &e, stop_heard);
    event_text(&e, stop_heard, signal, signal_name(n->signo, name));
    event_num(&e, stop_heard, heard_at,
              (double)n->heard.tv_sec + 1e-9 * (double)n->heard.tv_nsec);
    event_text(&e, stop_heard, phase, n->heard_in);
    rc = evlog_commit(log, &e, true, err);
    evlog_close(log);
    return rc;
}

static void write_event(struct notice *n)
{
    struct err err = {0};
    n->written = true;
    if (log_write(n, &err) < 0)
        log_msg(LOG_WARN, "event lost: %s", err.text);
}

/* Makes the set of the signals that ask to stop. SIGINT is left out if the process was started with
 * SIGINT ignored, as a shell's background job is. */
static void signals_set(sigset_t *set)
{
    struct sigaction interrupt;
    sigemptyset(set);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGTERM);
    if (sigaction(SIGINT, NULL, &interrupt) == 0 && interrupt.sa_handler != SIG_IGN)
        sigaddset(set, SIGINT);
}

/* Ends the process by a signal, as it would end if nobody waited for the signal. */
static void die_of(int signo)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signo);
    signal(signo, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(signo);
}

static void *listen_main(void *arg)
{
    struct notice *n = arg;
    sigset_t set;
    int signo;
    signals_set(&set);
    for (;;) {
        if (sigwait(&set, &signo) != 0)
            continue;
        if (n->signo == SIGINT && signo == SIGINT)
            die_of(SIGINT);
        if (n->signo)
            continue;
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        pthread_mutex_lock(&n->lock);
        n->heard = now;
        n->heard_in = n->phase;
        n->signo = signo;
        if (n->run_dir)
            write_event(n);
        pthread_mutex_unlock(&n->lock);
        if (signo == SIGINT)
            log_msg(LOG_INFO, "it saves and stops after this step; Ctrl-C again ends it at once");
    }
    return NULL;
}

int notice_listen(struct notice *n, struct err *err)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t set;
    *n = (struct notice){.phase = "start", .lock = PTHREAD_MUTEX_INITIALIZER};
    signals_set(&set);
    int no = pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (no == 0)
        no = pthread_create(&thread, &attr, listen_main, n);
    pthread_attr_destroy(&attr);
    if (no == 0)
        return 0;
    return err_set(err, ERR_ENV, "cannot start the thread that hears the request to stop: %s",
                   strerror(no));
}

void notice_record(struct notice *n, const char *run_dir, int64_t attempt)
{
    pthread_mutex_lock(&n->lock);
    n->run_dir = run_dir;
    n->attempt = attempt;
    if (n->signo && !n->written)
        write_event(n);
    pthread_mutex_unlock(&n->lock);
}
