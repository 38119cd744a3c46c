/* trainer: runs the program that an attempt keeps alive: reel's own, or somebody else's
 * (launcher/wrap/wrap.h).
 *
 * Their differences are in two tables, struct trainer_kind, so that the agent need not know which
 * trainer it has. Ours writes events, is signalled through its step, and holds a lease as long as
 * rank 0 lives. Another one is known by what it prints, by what lies in its checkpoint folder, and
 * by how it exits (launcher/run/foreign.h).
 *
 *     struct trainer t;
 *     trainer_init(&t, &duty, &attempt, state, home, bin_dir, &arena);
 *     trainer_start(&t, err);            // then t.step is its step
 *     … t.kind->tell(&t, shared) … t.kind->follow(&t, false) …
 *     t.kind->follow(&t, true);
 *     trainer_end_step(&t);
 *     t.kind->ended(&t, &exit, told_to_stop, &end);
 *     trainer_release(&t);
 */
#ifndef LAUNCHER_RUN_TRAINER_H
#define LAUNCHER_RUN_TRAINER_H

#include "base/arena.h"
#include "base/lease.h"
#include "launcher/run/duty.h"
#include "launcher/run/foreign.h"
#include "launcher/state/attempt.h"

struct trainer {
    const struct trainer_kind *kind;
    struct duty *duty;             /* borrowed, like all up to arena */
    struct attempt *attempt;
    const struct run_state *state; /* of the run, as folded last */
    const char *home, *bin_dir;
    struct arena *arena;
    struct sched_step *step;       /* while it runs; NULL otherwise */
    struct lease_watch owner;      /* ours: rank 0's lease */
    struct foreign foreign;        /* another: zeroed until it is started, and always for ours */
};

/* This is what a trainer itself shows of its end. */
struct trainer_end {
    bool done;      /* it has done all its steps, though no event says so */
    bool is_short;  /* it exited with 0 before its last step, and nobody had asked it to stop */
    bool disk_full; /* there was no room for its last save */
    bool disbelieved; /* it reported a full disk, but the run's disks have had room too often */
    int64_t steps;    /* the steps that it came to; -1: not known */
};

struct trainer_kind {
    bool foreign; /* events call it foreign */
    bool changes; /* its run may be changed after it was made (launcher/state/next.h) */
    bool yields;  /* it notices by itself that a newer attempt has begun, and saves nothing then */
    bool waits_by_hand;    /* started by hand, it waits for room on a disk that was full */
    bool needs_note;       /* its job is a user's script, so a note says which run the job has */
    bool stays_cancelled;  /* if its run is cancelled, that holds for every job, not only for that
                            * job */
    bool tells_divergence; /* its exit status 6 says that training diverged */
    /* Reads the settings from the run's folder. */
    int (*load)(struct duty *d, const char *run_dir, struct err *err);
    /* Finds the schedulers, and the job that this process is. */
    int (*job)(struct duty *d, const char *home, struct err *err);
    /* Fills in what to start, where, and on how many ranks. */
    int (*command)(struct trainer *t, struct sched_step_spec *spec, struct err *err);
    /* Says where its ranks go, and begins to follow it. The rest of spec is filled in. */
    int (*place)(struct trainer *t, struct sched_step_spec *spec, struct err *err);
    /* Tells it to save and stop. shared: see ranks_told. */
    void (*tell)(struct trainer *t, const char *shared);
    /* Returns whether some of it lives on when its step has ended; told: it was asked to stop. */
    bool (*lives)(struct trainer *t, bool told);
    /* Reads what it has printed and saved since the last call; `last`: it has ended. */
    void (*follow)(struct trainer *t, bool last);
    /* Writes into buf, and returns, the path of a file that grows as long as the trainer makes
     * progress. */
    char *(*pulse)(const struct trainer *t, char buf[LIMIT_PATH_BYTES]);
    /* Returns whether its done file says that all is done, though no event does. */
    bool (*is_through)(const struct trainer *t);
    /* Takes its exit status; returns whether that says that it was told to stop. */
    bool (*exited)(struct trainer *t, const struct sched_step_status *exit);
    /* Fills in *end, zeroed before. stopped: it was asked to stop. */
    void (*ended)(struct trainer *t, const struct sched_step_status *exit, bool stopped,
                  struct trainer_end *end);
};
extern const struct trainer_kind trainer_ours, trainer_foreign;

void trainer_init(struct trainer *t, struct duty *duty, struct attempt *attempt,
                  const struct run_state *state, const char *home, const char *bin_dir,
                  struct arena *arena);
/* Kills what is left of its step, and releases it; safe on a zeroed struct. */
void trainer_release(struct trainer *t);
/* Starts the trainer, with event trainer_started. */
int trainer_start(struct trainer *t, struct err *err);
/* Kills what is left of its step. */
void trainer_end_step(struct trainer *t);

#endif
