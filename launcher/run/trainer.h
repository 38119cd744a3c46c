/* trainer: the program that an attempt keeps alive: reel's own, or somebody else's
 * (launcher/wrap/wrap.h).
 *
 * What is different between the two stands in a table of two, struct trainer_kind; the agent asks
 * it and never which one it has. Ours writes events, is told by its step, and holds a lease as long
 * as rank 0 lives. Of another one is known what it prints, what lies in its checkpoint folder, and
 * how it exits (launcher/run/foreign.h).
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
    bool done;      /* it is through, and has not said so in an event */
    bool is_short;  /* it exited with 0 and is not through, and nobody had asked it to stop */
    bool disk_full; /* there was no room for its last save */
    bool disbelieved; /* it says so, and the disks of the run have had room too often */
    int64_t steps;    /* that it came to, if it is short of them */
};

struct trainer_kind {
    bool foreign; /* the record calls it so */
    bool changes; /* its run may be changed after it was made (launcher/state/next.h) */
    bool yields;  /* it sees by itself that a newer attempt has begun, and saves nothing then */
    bool waits_by_hand;    /* started by hand, it waits for room on a disk that was full */
    bool needs_note;       /* its job is somebody's script, and a note says which run that has */
    bool stays_cancelled;  /* a cancelled run of it is over for every job, not for its own alone */
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
    /* Takes what it has shown of itself since; `last`: it has ended. */
    void (*follow)(struct trainer *t, bool last);
    /* Returns the file that grows as long as it comes further; buf. */
    char *(*pulse)(const struct trainer *t, char buf[LIMIT_PATH_BYTES]);
    /* Returns whether it has left word that all is done, though no event says so. */
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
/* Starts it, with event trainer_started. */
int trainer_start(struct trainer *t, struct err *err);
/* Kills what is left of its step. */
void trainer_end_step(struct trainer *t);

#endif
