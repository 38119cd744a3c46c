/* trainer: runs an attempt's program: reel's own trainer (reel-train), or a wrapped command, which
 * events call foreign (launcher/wrap/wrap.h).
 *
 * The differences are in two tables, struct trainer_kind, so that the agent need not know which
 * trainer it has. reel-train writes events, is signalled through its step, and holds a lease as
 * long as rank 0 lives. A wrapped command is known only by what it prints, by its checkpoint
 * folder, and by its exit status (launcher/run/foreign.h).
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
    struct duty *duty;             /* borrowed, like the other pointers up to arena */
    struct attempt *attempt;
    const struct run_state *state; /* of the run, as last folded */
    const char *home, *bin_dir;
    struct arena *arena;
    struct sched_step *step;       /* while it runs; NULL otherwise */
    struct lease_watch owner;      /* of reel-train: rank 0's lease */
    struct foreign foreign;        /* of a wrapped command; zeroed until it is started */
};

/* Says what the trainer itself shows of how it ended. */
struct trainer_end {
    bool done;      /* it has done all its steps, even if no event says so */
    bool is_short;  /* it exited with 0 before its last step, and was not asked to stop */
    bool disk_full; /* there was no room for its last save */
    bool disbelieved; /* it reported a full disk too often while the run's disks had room */
    int64_t steps;    /* number of steps that it reached; -1: not known */
};

struct trainer_kind {
    bool foreign; /* a wrapped command, which events call foreign */
    bool changes; /* its run may be changed after it was made (launcher/state/next.h) */
    bool yields;  /* it notices by itself that a newer attempt has begun, and saves nothing then */
    bool waits_by_hand;    /* started by hand, it waits for room on a disk that was full */
    bool needs_note;       /* its job is a user's script, so a note says which run the job has */
    bool stays_cancelled;  /* if its run is cancelled, that holds for every job and not only for the
                            * cancelled one */
    bool tells_divergence; /* its exit status 6 says that training diverged */
    /* Reads the settings from the run's folder. */
    int (*load)(struct duty *d, const char *run_dir, struct err *err);
    /* Finds the schedulers, and the job in which this process runs. */
    int (*job)(struct duty *d, const char *home, struct err *err);
    /* Fills in the command to start, its folder and environment, and the number of ranks. */
    int (*command)(struct trainer *t, struct sched_step_spec *spec, struct err *err);
    /* Fills in where the ranks run; the rest of spec is already filled in. For a wrapped command,
     * also begins to read its output. */
    int (*place)(struct trainer *t, struct sched_step_spec *spec, struct err *err);
    /* Signals the trainer to save and stop. shared: see ranks_told. */
    void (*tell)(struct trainer *t, const char *shared);
    /* Tells whether a process of the trainer outlives its step; told: the trainer was asked to
     * stop. */
    bool (*lives)(struct trainer *t, bool told);
    /* Reads what the trainer has printed and saved since the last call; `last`: it has ended. */
    void (*follow)(struct trainer *t, bool last);
    /* Writes into buf, and returns, the path of a file that grows as long as the trainer makes
     * progress. */
    char *(*pulse)(const struct trainer *t, char buf[LIMIT_PATH_BYTES]);
    /* Tells whether the trainer's done file says that all steps are done, though no event does. */
    bool (*is_through)(const struct trainer *t);
    /* Takes the trainer's exit status; returns whether it says that the trainer was asked to
     * stop. */
    bool (*exited)(struct trainer *t, const struct sched_step_status *exit);
    /* Fills in *end, which is zeroed before. stopped: the trainer was asked to stop. */
    void (*ended)(struct trainer *t, const struct sched_step_status *exit, bool stopped,
                  struct trainer_end *end);
};
extern const struct trainer_kind trainer_ours, trainer_foreign;

void trainer_init(struct trainer *t, struct duty *duty, struct attempt *attempt,
                  const struct run_state *state, const char *home, const char *bin_dir,
                  struct arena *arena);
/* Kills the processes left of the trainer's step, and releases *t; safe on a zeroed struct. */
void trainer_release(struct trainer *t);
/* Starts the trainer, and writes the event trainer_started. */
int trainer_start(struct trainer *t, struct err *err);
/* Kills the processes left of the trainer's step. */
void trainer_end_step(struct trainer *t);

#endif
