/* state: computes a run's state as a fold over its event logs.
 *
 * There is no other source of truth. run_state_apply is pure and commutative: every event sets
 * fields of its own attempt or raises a maximum. So the logs of several writers may be folded in
 * any order, in part, or twice. (Three numbers are sums, and right only if each event is folded
 * once: damaged checkpoints, removed folders and suspended time.) Times are kept on the clocks of
 * the hosts that wrote them (launcher/state/told.h); run_state_settle turns them into UTC when all
 * events are folded.
 *
 * What is to be done next (run_state_next) is a pure function of the folded state. The agent and
 * the launcher do it.
 *
 *     struct run_state s;
 *     run_state_init(&s);
 *     run_state_load(run_dir, &s, err);         // folds <run_dir>/events/ *.evlog
 *     switch (run_state_next(&s, &budget, &why)) …
 *     run_state_release(&s);
 *
 * Fields hold what events said, and -1 or 0 if none has said it yet. Times are UTC seconds: those
 * named *_at of attempts, created_at and submitted_at on the run's one time (fold/clock.h), the
 * others by the wall clock of the host that wrote the event.
 */
#ifndef LAUNCHER_STATE_STATE_H
#define LAUNCHER_STATE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "base/limits.h"
#include "fold/clock.h"
#include "launcher/state/told.h"
#include "profiles/run.h"

enum attempt_cause { /* why an attempt ended */
    CAUSE_NONE,      /* it has not ended, or nobody could say so (agent killed) */
    CAUSE_DONE,
    CAUSE_PREEMPT,
    CAUSE_TIME_LIMIT,
    CAUSE_CRASH,
    CAUSE_NODE_FAIL,
    CAUSE_CANCEL,
    CAUSE_HANG,
    CAUSE_DIVERGED,  /* the trainer gave up: too many steps without a finite gradient */
    /* A wrapped trainer exited with 0 short of its steps, and nobody had asked it to stop. This
     * counts like a crash. */
    CAUSE_EARLY_EXIT,
    CAUSE_PAUSE,     /* somebody asked for it with 'reel pause' */
    CAUSE_DISK_FULL, /* there was no room for its last checkpoint */
};
extern const char *const attempt_cause_names[]; /* ended by NULL; "" for CAUSE_NONE */

/* Says what the run's owner wants. The newest wish counts: by turn, then by time, then the stronger
 * one. */
enum run_wish { WISH_RUN, WISH_PAUSE, WISH_CANCEL };

enum { STATE_JOB_BYTES = 64, STATE_TEXT_BYTES = 512, STATE_RESTS = 8 };

struct run_attempt {
    int64_t number; /* from 1 */
    /* The job and the token of its submission. Both are "" outside a job; a wrapped run has no
     * token. */
    char job_id[STATE_JOB_BYTES], token[ID_TEXT_BYTES];
    int64_t restart; /* how often its job had been requeued before */
    double started_at, trainer_started_at, first_step_at, ended_at;
    double last_event_at; /* of all its writers */
    double signal_at;    /* first notice to stop, at the agent or at the trainer; 0 none */
    char signal[16];     /* its name */
    /* The notice reached the trainer's step and not (yet) the agent, as Slurm's do within a grace
     * time. */
    bool signal_at_step;
    double stop_seen_at;    /* the trainer's ranks agreed to save and stop; 0 no */
    char node_lost[64];     /* a node of it failed; "" none */
    char told_by_srun[64];  /* nodes whose ranks had to be told through srun too; "" none */
    bool progressed;        /* a foreign trainer's sign that it came further, see wrap.h */
    bool stopped;           /* it saved and stopped because it was asked to */
    bool disk_full;         /* there was no room for its last save */
    double held_until;      /* it waits until then for disk space before it starts; 0 no */
    struct {                /* the last time that space was low; any: it was */
        int64_t step, needed_bytes, free_bytes, removed;
        bool any, enough;
    } space;
    bool done;              /* it published what was the last step then */
    bool withheld;          /* its agent did not give the job back: who stopped it is unknown */
    double suspended_s;     /* its job was suspended for so long in all */
    struct run_rest {       /* the last suspensions, in no order */
        struct fold_time end;
        double seconds;
    } rests[STATE_RESTS];
    int n_rests;
    struct { /* its agent's last request that the scheduler did not fulfil; what "": none */
        char what[32], why[STATE_TEXT_BYTES / 2];
        int64_t tries;
        double for_s;
        bool refused;
    } vain;
    double requeued_at;     /* its agent gave the job back to the scheduler to run again; 0 no */
    enum attempt_cause requeued_for; /* why it did so before the attempt's end; NONE: it did so
                                      * after it */
    double load_s, save_s;  /* checkpoint load; longest save */
    int64_t first_step, last_step; /* optimizer steps executed, -1 none */
    int64_t saved_step;     /* steps contained in the newest checkpoint it published, -1 none */
    int64_t loaded_step;    /* steps contained in the checkpoint it started from, -1 none */
    int64_t damaged;        /* checkpoints it found damaged and skipped */
    char failed[STATE_TEXT_BYTES];  /* its trainer's error at the end; "": none */
    bool refused_input; /* it refused its input before its first step, as another attempt would */
    /* Why it would not go on from any checkpoint, and ended; "" it did not refuse. */
    char refused[STATE_TEXT_BYTES];
    struct { int64_t seq; double wall; char writer[32]; } end_told; /* see fold/end.h */
    struct fold_time end_time;        /* of ended_at */
    struct told_time first_step_time; /* of first_step_at, where first_step is known */
    enum attempt_cause cause;
    int exit_code;
    char detail[STATE_TEXT_BYTES];
};

struct run_state {
    char run[ID_TEXT_BYTES], name[LIMIT_NAME_BYTES], model[LIMIT_NAME_BYTES];
    /* These are of the newest submission. Its order decides which that is: orders count
     * submissions, because the clocks of submitting hosts differ. A token that is not job_token's
     * is an intent whose outcome is not known. after, after_job: token and job whose end the newest
     * submission waits for, a job of this run that may still live; "": none. */
    char token[ID_TEXT_BYTES], after[ID_TEXT_BYTES], after_job[STATE_JOB_BYTES], sched[16];
    char job_id[STATE_JOB_BYTES], job_token[ID_TEXT_BYTES];
    char cancel_by[STATE_TEXT_BYTES]; /* how the run was cancelled, if not by `reel cancel`; ""
                                       * else */
    int64_t intent_order, submitted_order;
    int64_t refused_order;          /* newest submission that the scheduler refused, 0: none */
    /* The revision of the newest change (launcher/state/next.h), and the one that the newest
     * submission knew. */
    int64_t revision, job_revision;
    double created_at, submitted_at;
    double intent_wall, submitted_wall; /* by the clocks of their writers */
    struct fold_time submitted_time;    /* of submitted_at */
    enum run_wish wish;
    int64_t wish_turn;              /* number of the owner's wishes */
    double wish_at;
    int64_t stopped_attempt;        /* newest attempt that a pause or a cancel met; 0 none */
    enum run_wish stopped_by;       /* which of the two it was */
    int64_t retried_after;          /* attempts up to this one fail the run no more, 0: none */
    int64_t budget_from;            /* attempts after this one count against the budgets */
    int64_t total_steps, max_step;  /* max_step: highest step ever executed, -1 none */
    int64_t saved_step;             /* steps in the newest published checkpoint, -1 none */
    struct { /* how often to save, as the trainer chose last; steps 0: it did not */
        int64_t attempt, step, steps;
        double step_s, save_s, mtbf_s;
        bool save_measured, mtbf_measured;
    } every;
    int64_t done_steps;             /* steps of the run when its trainer said last that it was done;
                                     * -1: never */
    bool done;                      /* the run is done and was not extended since */
    double last_event_at;
    struct { /* of the highest step, in its newest execution */
        int64_t step, covers;       /* covers: number of steps of its event */
        double step_s, loss, mfu, tokens; /* without the time that the job was suspended */
        struct fold_time end;
        double told_s, told_mfu;    /* as its event says them */
    } last;
    int64_t last_attempt_of_step;
    char layout[STATE_TEXT_BYTES], device[LIMIT_NAME_BYTES];
    /* Snapshots store the bytes of this struct and of what the pointers in it point to:
     * launcher/state/snapshot.c lists them. */
    struct run_attempt *attempts; /* sorted by number */
    int64_t n_attempts;
    struct fold_clocks clocks;
    struct told_list told;
    int64_t claimed;                /* newest attempt that the run's folder knows of; 0 none */
    int64_t damaged_records;        /* of the logs, see evlog */
};

void run_state_init(struct run_state *s);
void run_state_release(struct run_state *s);
/* Folds one event. Kinds that it does not know are ignored. Fails only for lack of memory. */
int run_state_apply(struct run_state *s, const cJSON *event, struct err *err);
/* Brings the times up to date with all that was applied. */
void run_state_settle(struct run_state *s);
/* Folds a wish of the owner for which there was no room as an event (launcher/state/wish_name.h).
 * by: how it was made, if not by a command of reel's. */
void run_state_wish(struct run_state *s, enum run_wish wish, int64_t turn, int64_t met_attempt,
                    double at, const char *by);
/* Folds the end of an attempt that its log could not take (a full disk). Fails only for lack of
 * memory. */
int run_state_end(struct run_state *s, int64_t attempt, enum attempt_cause cause,
                  const char *detail, struct err *err);
/* Folds every log under <run_dir>/events into *s (initialised). A missing folder is an empty
 * state. */
int run_state_load(const char *run_dir, struct run_state *s, struct err *err);

/* Returns the newest attempt that an agent has claimed in the run's folder, 0 if there is none. */
int64_t run_state_claimed(const char *run_dir);

/* This is the same fold kept open, for those who follow a run: each update reads only what was
 * appended since, and finds new logs. */
struct run_fold;
int run_fold_open(const char *run_dir, struct run_fold **out, struct err *err);
int run_fold_update(struct run_fold *f, struct err *err);
/* Updates the fold before a decision: it then holds what run_state_load would give now. The logs
 * are opened again, because a shared file system may show only then what other hosts have written.
 * All are read from their beginning if one does not just go on where it was left. */
int run_fold_renew(struct run_fold *f, struct err *err);
/* Returns the state, so that the caller can add what no log could take. What is added holds until
 * the fold is renewed. */
struct run_state *run_fold_suppose(struct run_fold *f);
const struct run_state *run_fold_state(const struct run_fold *f);
/* Returns how many events it has read itself, and not taken from a snapshot. */
int64_t run_fold_events(const struct run_fold *f);
void run_fold_close(struct run_fold *f);

enum run_next {
    RUN_NEXT_SUBMIT,   /* neither submitted nor begun: it is to be submitted */
    RUN_NEXT_WAIT,     /* submitted, running, or given back to the scheduler */
    /* An attempt ended, the budget allows another, and nobody has brought it back yet. */
    RUN_NEXT_REQUEUE,
    RUN_NEXT_DONE,
    RUN_NEXT_FAILED,   /* a budget is spent, or the next attempt would end alike; why says which */
    RUN_NEXT_CANCELLED,
    RUN_NEXT_PAUSED,   /* until its owner resumes it */
};
/* Returns what is to be done with the run next. `why` (may be NULL) takes one clause for people. */
enum run_next run_state_next(const struct run_state *s, const struct run_budget *budget,
                             char why[STATE_TEXT_BYTES]);

/* Returns how many attempts after budget_from ended like the newest one (crash, hang and early exit
 * count as one) since the last that brought a step or a checkpoint more than those before it. If
 * that last one crashed it counts itself; if it was preempted it does not. */
int64_t run_state_without_progress(const struct run_state *s);

/* Returns how many attempts since the last new step ended for want of disk space while, by their
 * own figures, the run's disks had room. */
int64_t run_state_full_with_room(const struct run_state *s);
/* Returns the time (UTC s) before which the next attempt should not start; 0: at once. After
 * attempts that ended for want of disk space, without a new step between them, that is 1, 2, 4 …
 * 30 minutes after the end of the last of them, or from now where the clock has been set back
 * behind that end since. */
double run_state_not_before(const struct run_state *s, double now);

/* Returns one word for tables: created, queued, starting, training, stopping, waiting, paused,
 * done, failed, cancelled. */
const char *run_state_word(const struct run_state *s, const struct run_budget *budget);

#endif
