/* state: computes a run's state as a fold over its event logs.
 *
 * The logs are the only record of a run. run_state_apply is pure and commutative: every event sets
 * fields of its own attempt or raises a maximum. So the logs of several writers may be folded in
 * any order, in part, or twice. (Some numbers are sums, and right only if each event is folded
 * once: damaged checkpoints, removed folders, suspended time, and how often a trainer went back.)
 * Times are kept on the clocks of the hosts that wrote them (launcher/state/told.h);
 * run_state_settle turns them into UTC when all events are folded.
 *
 * The next action (run_state_next) is a pure function of the folded state. The agent and the
 * launcher carry it out.
 *
 *     struct run_state s;
 *     run_state_init(&s);
 *     run_state_load(run_dir, &s, err);         // folds <run_dir>/events/ *.evlog
 *     switch (run_state_next(&s, &budget, &why)) …
 *     run_state_release(&s);
 *
 * Fields hold the values that events gave, and -1 or 0 while no event has given one. Times are UTC
 * seconds: those named *_at of attempts, created_at and submitted_at on the run's one time
 * (fold/clock.h), the others by the wall clock of the host that wrote the event.
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
#include "fold/named.h"
#include "launcher/state/told.h"
#include "profiles/run.h"

enum attempt_cause { /* why an attempt ended */
    CAUSE_NONE,      /* the attempt has not ended, or its agent was killed and could not record the
                      * end */
    CAUSE_DONE,
    CAUSE_PREEMPT,
    CAUSE_TIME_LIMIT,
    CAUSE_CRASH,
    CAUSE_NODE_FAIL,
    CAUSE_CANCEL,
    CAUSE_HANG,
    CAUSE_DIVERGED,  /* the trainer gave up: too many steps had no finite gradient */
    /* A wrapped trainer exited with 0 short of its steps, without a stop notice. This counts like a
     * crash. */
    CAUSE_EARLY_EXIT,
    CAUSE_PAUSE,     /* somebody called 'reel pause' */
    CAUSE_DISK_FULL, /* the disk had no room for the attempt's last checkpoint */
};
extern const char *const attempt_cause_names[]; /* NULL-terminated; "" for CAUSE_NONE */

/* Says what the run's owner last asked for: to run, to pause or to cancel. A request has a turn,
 * which is one more than the highest turn that the requesting process knew. The request with the
 * highest turn counts; among equal turns the latest, and then the strongest. */
enum run_wish { WISH_RUN, WISH_PAUSE, WISH_CANCEL };

/* Holds what a file's name tells of an attempt, for whose events the disk had no room
 * (launcher/state/end_name.h). */
struct run_named {
    int64_t attempt;  /* 0: no name tells of it */
    int signo;        /* of the first stop notice; 0: there was none */
    bool at_node;     /* that notice came to a node agent */
    double notice_at; /* UTC s */
    /* GIVEN_BACK: its job was requeued, for this cause, before the attempt's end */
    enum named_end end;
    enum attempt_cause cause;
    int exit_code, exit_signal; /* of the trainer; AGENT_DIED: of the agent */
    double at;                  /* when this was recorded, UTC s */
};

enum { STATE_JOB_BYTES = 64, STATE_TEXT_BYTES = 512, STATE_RESTS = 8, STATE_SILENT = 8 };

struct run_attempt {
    int64_t number; /* from 1 */
    /* The job and the token of its submission. Both are "" outside a job; a wrapped run has no
     * token. */
    char job_id[STATE_JOB_BYTES], token[ID_TEXT_BYTES];
    char job_handle[STATE_JOB_BYTES]; /* names the job for the scheduler's commands; "": its id */
    int64_t restart; /* how often its job had been requeued before */
    double started_at, trainer_started_at, first_step_at, ended_at;
    double last_event_at; /* of all logs of the attempt */
    double heard_at; /* of its last event, if the next agent recorded its end; else 0 */
    double signal_at;    /* first stop notice, at the agent or at the trainer; 0: none */
    char signal[16];     /* name of that notice's signal */
    /* The notice reached the trainer's step and not (yet) the agent, as Slurm's notices do within a
     * grace time. */
    bool signal_at_step;
    double stop_seen_at;    /* when the trainer's ranks agreed to save and stop; 0: they did not */
    char node_lost[64];     /* a node that failed; "": none */
    /* ranks without a handler were found; ranks that stood still; others were told */
    bool ranks_deaf, ranks_still, ranks_heard;
    /* Nodes of which some ranks have not heard the notice, and how many; silent_more: of others
     * too */
    struct run_silent {
        char node[STATE_JOB_BYTES];
        int64_t ranks;
    } silent[STATE_SILENT];
    int n_silent;
    bool silent_more;
    char told_by_srun[64];  /* nodes whose ranks also had to be signalled through srun; "": none */
    char agents_mended[STATE_TEXT_BYTES / 2]; /* "that of node n1 was replaced, that of ..." */
    bool progressed;        /* a foreign trainer showed progress, see wrap.h */
    bool stopped;           /* it saved and stopped because it was asked to */
    bool disk_full;         /* there was no room for its last save */
    double held_until;      /* it waits until this time for disk space before it starts; 0: it does
                             * not */
    /* The last event of low space; any: there was one. needed_bytes 0 and others -1: not known */
    struct {
        int64_t step, needed_bytes, free_bytes, free_files, removed;
        bool any, enough;
    } space;
    bool done;              /* its trainer published the step that was the last one then */
    bool withheld;          /* its agent did not requeue the job: who stopped it is unknown */
    double suspended_s;     /* total time that its job was suspended */
    struct run_rest {       /* the last suspensions, in no order */
        struct fold_time end;
        double seconds;
    } rests[STATE_RESTS];
    int n_rests;
    struct { /* its agent's last failed request to the scheduler; what "": none */
        char what[32], why[STATE_TEXT_BYTES / 2];
        int64_t tries;
        double for_s;
        bool refused;
    } vain;
    double requeued_at;     /* its agent requeued the job; 0: it did not */
    enum attempt_cause requeued_for; /* cause, if the job was requeued before the attempt's end;
                                      * NONE: it was requeued after it */
    double load_s, save_s;  /* load of its checkpoint; its longest save */
    int64_t first_step, last_step; /* optimizer steps executed; -1: none */
    int64_t saved_step;     /* number of steps in the newest checkpoint it published; -1: none */
    int64_t loaded_step;    /* number of steps in the checkpoint it started from; -1: none */
    int64_t damaged;        /* number of checkpoints that it found damaged and skipped */
    /* how often its foreign trainer went back by itself, and by how many steps in all */
    int64_t went_back, back_steps;
    char failed[STATE_TEXT_BYTES];  /* its trainer's error at the end; "": none */
    bool refused_input; /* its trainer refused its input before the first step; another attempt's
                         * would too */
    /* Why its trainer did not continue from any checkpoint, and ended; "": it did not refuse. */
    char refused[STATE_TEXT_BYTES];
    struct { int64_t seq; double wall; char writer[32]; } end_told; /* see fold/end.h */
    struct fold_time end_time;        /* of ended_at */
    struct told_time first_step_time; /* of first_step_at, where first_step is known */
    enum attempt_cause cause;
    int exit_code;
    char detail[STATE_TEXT_BYTES];
    struct run_named named;
    struct { /* what the scheduler said of its job, before the next attempt; at 0: nothing */
        char why[24];
        double ended_at, at;
    } job_over;
    bool notice_logged; /* an event tells of a stop notice */
    bool agent_told;    /* its agent lived when a stop notice came, and heard it */
    bool end_named;     /* no event tells of its end, but a file's name does */
};

struct run_state {
    char run[ID_TEXT_BYTES], name[LIMIT_NAME_BYTES], model[LIMIT_NAME_BYTES];
    /* These describe the newest submission, which is the one with the highest order: orders count
     * submissions, because the clocks of submitting hosts differ. If token differs from job_token,
     * the intent has no known outcome yet. after, after_job: token and job of this run whose end
     * the newest submission waits for, because that job may still run; "": none. */
    char token[ID_TEXT_BYTES], after[ID_TEXT_BYTES], after_job[STATE_JOB_BYTES], sched[16];
    char job_id[STATE_JOB_BYTES], job_token[ID_TEXT_BYTES];
    char cancel_by[STATE_TEXT_BYTES]; /* how the run was cancelled, if not by `reel cancel`;
                                       * otherwise "" */
    int64_t intent_order, submitted_order;
    int64_t refused_order; /* order of the newest submission that the scheduler refused; 0: none */
    /* The revision of the newest change (launcher/state/next.h), and the revision with which the
     * newest submission was made. */
    int64_t revision, job_revision;
    double created_at, submitted_at;
    double intent_wall, submitted_wall; /* by the clocks of their writers */
    struct fold_time submitted_time;    /* of submitted_at */
    enum run_wish wish;
    int64_t wish_turn;              /* number of the owner's requests so far */
    double wish_at;
    int64_t stopped_attempt;        /* newest attempt that the owner paused or cancelled; 0: none */
    enum run_wish stopped_by;       /* whether that was a pause or a cancel */
    int64_t retried_after; /* the ends of attempts up to this one do not fail the run; 0: none */
    int64_t budget_from;            /* only attempts after this one count against the budgets */
    int64_t total_steps, max_step;  /* max_step: highest step ever executed; -1: none */
    int64_t saved_step; /* number of steps in the newest published checkpoint; -1: none */
    struct { /* how often to save, as the trainer last chose; steps 0: it did not choose */
        int64_t attempt, step, steps;
        double step_s, save_s, mtbf_s;
        bool save_measured, mtbf_measured;
    } every;
    int64_t done_steps;             /* number of steps of the run when its trainer last reported
                                     * that it was done; -1: never */
    bool done;                      /* the run is done and was not extended since */
    double last_event_at;
    struct { /* about the highest step, when it was last executed */
        int64_t step, covers;       /* covers: number of steps in its event */
        double step_s, mfu, tokens; /* without time during which the job was suspended */
        struct fold_time end;
        double told_s, told_mfu;    /* as the event gave them, with the suspended time */
    } last;
    int64_t last_attempt_of_step;
    struct { /* the loss of the highest step that has one; a foreign trainer may not print each */
        int64_t step, attempt; /* -1: there is none yet */
        double value;          /* NaN: it was not finite */
    } loss;
    /* of the newest attempt whose trainer began, and that attempt */
    char layout[STATE_TEXT_BYTES], device[LIMIT_NAME_BYTES];
    int64_t layout_attempt;
    /* Snapshots store the bytes of this struct and of what the pointers in it point to:
     * launcher/state/snapshot.c lists them. */
    struct run_attempt *attempts; /* sorted by number */
    int64_t n_attempts;
    struct fold_clocks clocks;
    struct told_list told;
    int64_t claimed; /* newest attempt that is claimed in the run's folder; 0: none */
    int64_t damaged_records;        /* number of them in the logs, see evlog */
};

void run_state_init(struct run_state *s);
void run_state_release(struct run_state *s);
/* Folds one event; unknown kinds are ignored. Fails only for lack of memory. */
int run_state_apply(struct run_state *s, const cJSON *event, struct err *err);
/* Computes the times from all events that were applied. */
void run_state_settle(struct run_state *s);
/* Folds a request of the owner for which the disk had no room as an event
 * (launcher/state/wish_name.h). by: how it was made, if not by a reel command. */
void run_state_wish(struct run_state *s, enum run_wish wish, int64_t turn, int64_t met_attempt,
                    double at, const char *by);
/* Folds the end of an attempt for whose event the disk may have no room. Fails only for lack of
 * memory. */
int run_state_end(struct run_state *s, int64_t attempt, enum attempt_cause cause,
                  const char *detail, struct err *err);
/* Folds what a file's name tells of an attempt. Fails only for lack of memory. */
int run_state_named(struct run_state *s, const struct run_named *n, struct err *err);
/* Folds every log under <run_dir>/events into *s (initialised). A missing folder gives an empty
 * state. */
int run_state_load(const char *run_dir, struct run_state *s, struct err *err);

/* Returns the number of the newest attempt that is claimed in the run's folder; 0: none. */
int64_t run_state_claimed(const char *run_dir);

/* Keeps the logs open to follow a run: each run_fold_update reads only new records and new logs. */
struct run_fold;
int run_fold_open(const char *run_dir, struct run_fold **out, struct err *err);
int run_fold_update(struct run_fold *f, struct err *err);
/* Updates the fold before a decision, so that it equals what run_state_load would give now. It
 * reopens the logs, because a shared file system may only then show what other hosts have written.
 * If a log has changed before the offset reached, it starts again from the snapshot or from the
 * first event. */
int run_fold_renew(struct run_fold *f, struct err *err);
/* Returns the state, to which the caller may add what could not be written to a log. The addition
 * lasts until the fold is renewed. */
struct run_state *run_fold_suppose(struct run_fold *f);
const struct run_state *run_fold_state(const struct run_fold *f);
/* Returns the number of events that the fold read itself since it last wrote a snapshot. */
int64_t run_fold_events(const struct run_fold *f);
void run_fold_close(struct run_fold *f);

enum run_next {
    RUN_NEXT_SUBMIT,   /* neither submitted nor begun: submit it */
    RUN_NEXT_WAIT,     /* submitted, running or requeued */
    /* The last attempt ended, the budget allows another, and nobody has brought the run back
     * yet. */
    RUN_NEXT_REQUEUE,
    RUN_NEXT_DONE,
    RUN_NEXT_FAILED,   /* a budget is spent, or the next attempt would end in the same way; `why`
                        * says which */
    RUN_NEXT_CANCELLED,
    RUN_NEXT_PAUSED,   /* until the owner resumes it */
};
/* Returns the next action for the run. `why` (may be NULL) gets one clause for people. */
enum run_next run_state_next(const struct run_state *s, const struct run_budget *budget,
                             char why[STATE_TEXT_BYTES]);

/* Returns how many attempts after budget_from ended with the newest one's cause (crash, hang and
 * early exit count as one cause) since the last attempt that reached a new step or checkpoint.
 * That last attempt counts too if it crashed, but not if it was preempted. Returns 0 if no budget
 * limits the newest one's cause. */
int64_t run_state_without_progress(const struct run_state *s);

/* Returns how many attempts since the last new step ended for lack of disk space although their
 * events say that the run's disks had room. */
int64_t run_state_full_with_room(const struct run_state *s);
/* Returns the time (UTC s) before which the next attempt should not start; 0: at once. Attempts in
 * a row that ended for lack of disk space, without a new step, delay the next one by 1, 2, 4 … and
 * at most 30 minutes after the end of the last. If the clock was set back before that end, now is
 * taken instead of the end. */
double run_state_not_before(const struct run_state *s, double now);

/* Returns the number of steps that the run had reached in this attempt, executed or saved. */
static inline int64_t run_attempt_reach(const struct run_attempt *a)
{ return a->last_step + 1 > a->saved_step ? a->last_step + 1 : a->saved_step; }
/* Tells whether a stop notice came and no rank handled it, so that none of them saves. Ranks that
 * the scheduler itself signalled may have handled that, and lose their handlers as they end. */
static inline bool run_attempt_unheard(const struct run_attempt *a)
{
    return a->signal_at > 0 && !a->signal_at_step && a->ranks_deaf && !a->ranks_still &&
           !a->ranks_heard;
}
/* Tells whether a stop notice came and no rank has answered, but some stood still, as stopped ones
 * do: what they will do is not known. */
static inline bool run_attempt_still(const struct run_attempt *a)
{ return a->signal_at > 0 && !a->signal_at_step && a->ranks_still && !a->ranks_heard; }
/* Returns how many ranks have not heard a stop notice that others have, at least; 0 too if none
 * has heard it. */
int64_t run_attempt_silent(const struct run_attempt *a);
/* Tell whether an attempt that found no space had too few free bytes, or too few files that could
 * still be made: for a checkpoint, or, where its size is not known, for anything at all. */
enum { STATE_LEAST_BYTES = 64 << 10, STATE_LEAST_FILES = 16 };
static inline bool run_attempt_low_bytes(const struct run_attempt *a)
{
    int64_t needed = a->space.needed_bytes;
    return a->space.any && a->space.free_bytes >= 0 &&
           a->space.free_bytes < (needed > STATE_LEAST_BYTES ? needed : STATE_LEAST_BYTES);
}
static inline bool run_attempt_low_files(const struct run_attempt *a)
{ return a->space.any && a->space.free_files >= 0 && a->space.free_files < STATE_LEAST_FILES; }
/* Returns one word for tables: created, queued, starting, training, stopping, waiting, paused,
 * done, failed, cancelled. */
const char *run_state_word(const struct run_state *s, const struct run_budget *budget);

#endif
