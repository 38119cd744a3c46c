/* attempt: decides which agent may run a run's next attempt, and why an attempt ended.
 *
 * An attempt belongs to the agent that created claims/attempt-<n>, where n is the attempt's number.
 * The agent does so under claims/lock, a lease (base/lease.h) that it holds to its end. The lease
 * shows that no other agent of the run lives, as far as that can be seen from another host. The
 * token of the agent's job shows whether the job comes from the run's newest submission. If an
 * agent could not record the end of its attempt, its guard (launcher/run/guard.h) or the next
 * attempt records it.
 *
 *     struct attempt a;
 *     attempt_init(&a, run_dir, &self);
 *     attempt_lock(&a, err);                // ERR_BUSY: step aside
 *     run_state_load(run_dir, &state, err); // what is left to do, how the attempt before ended
 *     attempt_before(&a, &state, sched, &before);
 *     attempt_claim(&a, &state, &before, err); // ERR_BUSY: step aside
 *     …  attempt_event(&a, &e)  …  attempt_end(&a, cause, …)
 *     attempt_release(&a);
 */
#ifndef LAUNCHER_STATE_ATTEMPT_H
#define LAUNCHER_STATE_ATTEMPT_H

#include "base/err.h"
#include "base/evlog.h"
#include "base/lease.h"
#include "launcher/sched/sched.h"
#include "launcher/state/state.h"
#include "launcher/wrap/last_words.h"

struct attempt {
    const char *run_dir;           /* borrowed */
    const struct sched_self *self; /* borrowed; zeroed outside a job */
    struct sched *sched; /* borrowed; it is asked whether another job is over; NULL: there is
                          * none */
    int64_t number;                /* 0: none is claimed */
    /* cause for which the job was requeued before the attempt's end; NONE: it was not */
    enum attempt_cause given_back;
    struct run_named named; /* what a file's name tells of it, because the disk had no room */
    struct evlog *log;
    struct lease *lock;
    double evicted_mono; /* when the lease was taken from an agent that may still run; 0: from
                          * none */
    double gone_mono;    /* since when the run's folder is missing; 0: it exists */
};

void attempt_init(struct attempt *a, const char *run_dir, const struct sched_self *self);
void attempt_release(struct attempt *a);

/* Checks that the run's folder exists, because files made in its place would be lost. ERR_FULL: it
 * is missing, and may come back; ERR_NOT_FOUND: it has been missing for too long (home.h). */
int attempt_folder_check(struct attempt *a, struct err *err);
/* Takes the lease. Waits half a minute for the agent of the attempt before; if that agent was on
 * another host, waits until its lease has been silent for a minute. Does not wait for an earlier
 * execution of this job, nor for a job that is over, because the scheduler has ended these. Sets
 * evicted_mono if the agent that lost the lease may still run unseen. */
int attempt_lock(struct attempt *a, struct err *err);
/* Holds what the scheduler says about the end of an attempt whose end is not recorded. */
struct attempt_ending {
    enum sched_end why; /* NONE: the scheduler did not end it; UNKNOWN: the scheduler does not
                         * say */
    bool other_job; /* another job goes on with the run: the job of the attempt was not requeued */
    char node_lost[SCHED_ID_BYTES]; /* a node of its job that the scheduler lost; "": none */
    bool nodes_told;                /* the scheduler has answered about its nodes */
    bool host_is_up; /* it ran outside of any job, on this host, which was not booted since */
};
/* Asks the scheduler about the attempt before, if its end is not recorded. It asks for the reason
 * of the job's end only if the attempt ran in another job than this one, because the scheduler does
 * not remember the reason for a requeued job. If the scheduler has forgotten the job, what it said
 * when the run was brought back counts. */
void attempt_before(const struct attempt *a, const struct run_state *s, struct sched *sched,
                    struct attempt_ending *out);
/* Records how the attempt before ended unless that is recorded, claims the next number and opens
 * its log. The caller holds the lock and has renewed the fold since it took it. before: see
 * attempt_before. */
int attempt_claim(struct attempt *a, const struct run_state *state,
                  const struct attempt_ending *before, struct err *err);

/* Writes the event that this job will run the run's next attempt. */
void attempt_requeued(struct attempt *a, const char *job_id);

/* Tells whether no newer attempt is claimed. If one is, this attempt may neither end the run nor
 * requeue it. */
bool attempt_is_newest(const struct attempt *a);
/* Tells whether this attempt was taken for lost and a newer one has begun. The answer may be
 * LEASE_BEAT_S late, and costs no file access while the lease is held. */
bool attempt_is_followed(const struct attempt *a);

/* Records, for the guard, the end of the newest attempt, whose agent died of the signal `signo`, in
 * that attempt's log, unless it is recorded. Waits until the lease is free, and renews the fold
 * while it holds the lease. why: the scheduler's reason. */
int attempt_mourn(struct attempt *a, struct run_fold *fold, int signo, enum sched_end why,
                  struct err *err);

/* Lets a file's name tell that end, where attempt_mourn finds no room and the guard waits no
 * longer, if the attempt was of this execution of the job. */
void attempt_mourn_name(struct attempt *a, struct run_fold *fold, int signo, enum sched_end why);

/* Writes an event. A full disk must not end the training: events wait in memory for room, and a
 * lost event is only a warning. */
void attempt_event(struct attempt *a, struct evlog_event *e);
/* Writes an event without waiting for the disk; it is meant for steps, which are many. */
void attempt_event_soon(struct attempt *a, struct evlog_event *e);
/* Writes the event of a stop notice, the first with this signal, at this time (UTC s). If there is
 * no room for it, a file's name tells of it too (launcher/state/end_name.h). */
void attempt_notice(struct attempt *a, struct evlog_event *e, int signo, double heard_at);
/* Lets a file's name tell of a notice whose event a node agent wrote, perhaps in vain. */
void attempt_notice_at_node(struct attempt *a, int signo);
/* Writes the event of the attempt's end. ERR_FULL: the event waits for room, a file's name tells
 * the cause, and attempt_flush must be called until the event is written. */
int attempt_end(struct attempt *a, enum attempt_cause cause, int exit_code, int exit_signal,
                const char *detail);
int attempt_flush(struct attempt *a); /* ERR_FULL: events still wait for room */

/* Formats for people ", the job was being ended (preempted)". The parenthesis has the scheduler's
 * reason, and is left out if there is none. */
void attempt_ending_format(enum sched_end why, char *out, size_t size);
/* Formats what the trainer's events say of its end (told NULL: nothing); if they say nothing and
 * the trainer failed, formats the last lines that it printed. ours: it is reel-train, whose rank 0
 * writes those events: when rank 0 itself was killed, or another one on another host, the words of
 * the other ranks or of their launcher name it. */
enum { ATTEMPT_ENDING_BYTES = LAST_WORDS_BYTES + 8 };
void attempt_told_format(const struct attempt *a, const struct run_attempt *told, bool failed,
                         bool ours, char out[ATTEMPT_ENDING_BYTES]);

/* Writes, for a reel-train that did not understand its arguments (exit status 2), the event of its
 * end, because it ends before it has a log. The event is a refusal with the trainer's error: every
 * other attempt would have the same arguments. */
void attempt_misunderstood_note(struct attempt *a, int exit_code);

/* Write into buf, and return, the path of rank 0's event log and of the trainer's output. */
char *attempt_rank0_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES]);
char *attempt_output_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES]);

/* Returns the attempt with this number in the folded state; NULL if there is none. */
const struct run_attempt *attempt_told(const struct run_state *s, int64_t number);

/* Holds what is known about an attempt when its trainer has ended. */
struct attempt_evidence {
    bool done;              /* the last step was published */
    /* A stop notice came, to the agent or only to the trainer's step, so the trainer saved and
     * stopped by itself. */
    bool stop_requested;
    bool cancel_requested;  /* `reel cancel` was called */
    bool pause_requested;   /* `reel pause` was called */
    enum sched_end ending;  /* the scheduler's reason */
    bool time_limit_near;   /* the notice came at the end of the job's time limit */
    bool hung;              /* the agent ended it because it made no progress */
    bool node_lost;         /* a node of the job was lost */
    bool disk_full;         /* the disk had no room for the last save, or for an event about it */
    bool ours;              /* reel-train, whose exit status 6 says that training diverged */
    bool is_short;          /* a wrapped trainer exited with 0 before its last step */
    int exit_code;          /* of the trainer; -1 killed */
    int exit_signal;
};
/* Returns why the attempt ended. The strongest evidence decides: what was published, then what the
 * owner asked for, the scheduler's reason, and the exit status. */
enum attempt_cause attempt_cause_of(const struct attempt_evidence *e);

#endif
