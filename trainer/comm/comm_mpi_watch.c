#include "trainer/comm/comm_mpi_watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "trainer/comm/comm_priv.h"

/* An MPI that reports the lost connections does so at once, and the rank then waits up to a second
 * for the end of the peer's process (comm_mpi.c). */
enum { HELD_MS = 5000, STACK_BYTES = 256 << 10 };

/* Each beginning and each end of a call adds one to `calls`, so its low bit says whether the rank
 * is inside one. The watch sets ENDING only where it finds the number that it saw before, and a
 * call that finds ENDING at its end leaves the rank's end to the watch. */
#define ENDING (UINT64_C(1) << 63)

struct comm_watch {
    struct comm *world;
    struct pollfd *fds; /* [n] the peers, and then `closes` */
    int n, closes;
    _Atomic uint64_t calls;
    _Atomic int exit_code; /* 0: the rank has not said that it ends */
    pthread_t thread;
};

void comm_watch_enter(struct comm_watch *w)
{
    if (w)
        atomic_fetch_add(&w->calls, 1);
}

void comm_watch_leave(struct comm_watch *w)
{
    if (w && (atomic_fetch_add(&w->calls, 1) & ENDING))
        for (;;)
            pause();
}

void comm_watch_ending(struct comm_watch *w, int exit_code)
{
    if (w) {
        atomic_store(&w->exit_code, exit_code);
        comm_watch_enter(w);
    }
}

/* Says why the rank ends, in its log and by the world's `lost`, and ends it. */
static void rank_end(const struct comm_watch *w, const struct comm_gone *gone)
{
    const struct comm_conf *conf = w->world->conf;
    struct err err = {0};
    int said = atomic_load(&w->exit_code);
    if (!said) {
        err_set(&err, ERR_TEMP,
                COMM_GONE "MPI did not return on rank %d since then: run it again from what was "
                          "saved",
                COMM_GONE_ARGS(*gone), w->world->rank);
        log_msg(LOG_ERROR, "%s", err.text);
        if (conf->lost)
            conf->lost(conf->lost_ctx, &err);
    }
    comm_peers_leave(w->world->world->peers, w->world->rank);
    _exit(said ? said : err_exit_code(ERR_TEMP));
}

/* Tells whether the rank is to be ended: it is inside the call in which it was HELD_MS before.
 * Returns early when the watch is to close. */
static bool is_held(struct comm_watch *w)
{
    uint64_t seen = atomic_load(&w->calls);
    return poll(&w->fds[w->n], 1, HELD_MS) == 0 && (seen & 1) &&
           atomic_compare_exchange_strong(&w->calls, &seen, seen | ENDING);
}

static bool is_closing(const struct comm_watch *w) { return w->fds[w->n].revents != 0; }

static void *watch_main(void *arg)
{
    struct comm_watch *w = arg;
    struct comm_gone gone;
    while (poll(w->fds, (nfds_t)w->n + 1, -1) < 0 || !is_closing(w))
        if (comm_peers_ended(w->world->world->peers, w->fds, &gone) && is_held(w))
            rank_end(w, &gone);
    return NULL;
}

/* Starts the thread with a small stack. */
static int thread_start(struct comm_watch *w)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int failed = pthread_create(&w->thread, &attr, watch_main, w);
    pthread_attr_destroy(&attr);
    return failed;
}

static void watch_free(struct comm_watch *w)
{
    if (w->closes >= 0)
        close(w->closes);
    free(w->fds);
    free(w);
}

struct comm_watch *comm_watch_open(struct comm *world)
{
    struct comm_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->world = world;
    w->closes = eventfd(0, EFD_CLOEXEC);
    w->fds = comm_peers_fds(world->world->peers, &w->n);
    if (w->closes >= 0 && w->fds) {
        w->fds[w->n] = (struct pollfd){.fd = w->closes, .events = POLLIN};
        if (thread_start(w) == 0)
            return w;
    }
    watch_free(w);
    return NULL;
}

void comm_watch_close(struct comm_watch *w)
{
    if (!w)
        return;
    eventfd_write(w->closes, 1);
    pthread_join(w->thread, NULL);
    watch_free(w);
}
