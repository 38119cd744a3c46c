/* attempt: decides which agent may run a run now, and why an attempt ended.
 *
 * An attempt belongs to the agent that created claims/attempt-<n>. The agent does so under
 * claims/lock, a lease (base/lease.h) that it holds to its end. The lease says that no other agent
 * of the run lives, as far as one can tell across hosts. The token says that its submission is the
 * one that counts, and the number says which attempt it is. If an agent could not record the end of
 * its attempt, whoever comes next does: the guard of the agent (launcher/run/guard.h), or the next
 * attempt.
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
    struct sched *sched; /* borrowed; it tells whether another job is over; NULL: it is not asked */
    int64_t number;                /* 0: none is claimed */
    /* why its job was given back before the attempt's end; NONE: it was not */
    enum attempt_cause given_back;
    struct evlog *log;
    struct lease *lock;
    double evicted_mono; /* when the lease was taken from an agent that may live; 0: it was not */
    double gone_mono;    /* since when the run's folder is gone; 0: it is there */
};

void attempt_init(struct attempt *a, const char *run_dir, const struct sched_self *self);
void attempt_release(struct attempt *a);

/* Checks that the run's folder is there, because files made in its place would be lost. ERR_FULL:
 * it is gone, and may be brought back; ERR_NOT_FOUND: it has been gone for too long (home.h). */
int attempt_folder_check(struct attempt *a, struct err *err);
/* Takes the lease. Waits half a minute for the agent of the attempt before; if that one lived on
 * another host, waits until it has been silent for a minute. Does not wait for an earlier execution
 * of this very job, nor for a job that is over, because the scheduler has ended these. If the agent
 * that lost the lease may still live unseen, evicted_mono is set. */
int attempt_lock(struct attempt *a, struct err *err);
/* Holds what the scheduler says about the end of an attempt whose end is not recorded. */
struct attempt_ending {
    enum sched_end why; /* NONE: for no reason of the scheduler's; UNKNOWN: it does not say */
    char node_lost[SCHED_ID_BYTES]; /* a node of its job that was given up for lost; "" none */
    bool nodes_told;                /* the scheduler has answered about its nodes */
};
/* Asks the scheduler about the attempt before ours, if its end is not recorded. It is asked why the
 * job ended only if that was another job, because it does not remember this of a job that runs
 * again. */
void attempt_before(const struct attempt *a, const struct run_state *s, struct sched *sched,
                    struct attempt_ending *out);
/* Records how the attempt before ended if that is not recorded, takes the next number and opens its
 * log. The caller holds the lock and has folded the state since. before: see attempt_before.
 *
 * attempt_lock, attempt_claim and attempt_mourn return ERR_FULL if the disk has no room for what
 * they write. The same call, once there is room, goes on from there. They also return ERR_FULL if
 * the run's folder is gone, as while its disk is being repaired, and do not make it; after half an
 * hour of that they return ERR_NOT_FOUND. */
int attempt_claim(struct attempt *a, const struct run_state *state,
                  const struct attempt_ending *before, struct err *err);

/* Writes the event that this job will run the run's next attempt. */
void attempt_requeued(struct attempt *a, const char *job_id);

/* Is no newer attempt claimed? If one is, this attempt may neither end the run nor bring it
 * back. */
bool attempt_is_newest(const struct attempt *a);
/* Was this attempt taken for lost, and has a newer one begun? The answer may be LEASE_BEAT_S late,
 * and costs nothing as long as the lease is ours. */
bool attempt_is_followed(const struct attempt *a);

/* Ends, for the guard, the newest attempt, whose agent died of the signal `signo`: opens the
 * attempt's log, and records the end if it is not recorded. Waits until the lease is free, and
 * renews the fold under it. why: the scheduler's reason. */
int attempt_mourn(struct attempt *a, struct run_fold *fold, int signo, enum sched_end why,
                  struct err *err);

/* Writes an event. A full disk must not end the training that it reports on: events wait in memory
 * for room, and the loss of one is a warning. */
void attempt_event(struct attempt *a, struct evlog_event *e);
/* Writes an event without waiting for the disk. This is for steps, of which there are many. */
void attempt_event_soon(struct attempt *a, struct evlog_event *e);
/* Writes the attempt's end. ERR_FULL: it waits for room, and attempt_flush is to be called until
 * it has been written. */
int attempt_end(struct attempt *a, enum attempt_cause cause, int exit_code, int exit_signal,
                const char *detail);
int attempt_flush(struct attempt *a); /* ERR_FULL: events still wait for room */

/* Formats for people ", the job was being ended (preempted)". The brackets hold what the scheduler
 * tells, and are left out when that is nothing. */
void attempt_ending_format(enum sched_end why, char *out, size_t size);
/* Formats what the trainer told of its end (told NULL: nothing), else what it printed last, if it
 * failed. */
enum { ATTEMPT_ENDING_BYTES = LAST_WORDS_BYTES + 8 };
void attempt_told_format(const struct attempt *a, const struct run_attempt *told, bool failed,
                         char out[ATTEMPT_ENDING_BYTES]);

/* Writes the event of its end for a trainer of ours that did not understand its arguments (exit
 * status 2), because it ends before it has a log. The event is a refusal with the trainer's
 * sentence: every other attempt would have the same arguments. */
void attempt_misunderstood_note(struct attempt *a, int exit_code);

/* Write into buf, and return, the path of rank 0's event log and of what the trainer prints. */
char *attempt_rank0_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES]);
char *attempt_output_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES]);

/* Returns the state's attempt of this number; NULL if it knows none. */
const struct run_attempt *attempt_told(const struct run_state *s, int64_t number);

/* Holds what is known of an attempt after its trainer has ended. */
struct attempt_evidence {
    bool done;              /* the trainer published the last step */
    /* A notice came, here or at the trainer's step alone, so it saved and stopped by itself. */
    bool stop_requested;
    bool cancel_requested;  /* by event */
    bool pause_requested;   /* by event */
    enum sched_end ending;  /* the scheduler's reason */
    bool time_limit_near;   /* the notice came at the end of the job's time limit */
    bool hung;              /* ended by the agent because nothing moved */
    bool node_lost;         /* the scheduler said that a node of the step failed */
    bool disk_full;         /* there was no room for the last save, or none for a word about it */
    bool ours;              /* reel-train, whose exit status 6 says that training diverged */
    bool is_short;          /* a wrapped trainer exited with 0 and was not through */
    int exit_code;          /* of the trainer; -1 killed */
    int exit_signal;
};
/* Returns why the attempt ended; pure. It judges in the order of certainty: what was published,
 * what was asked for, what the scheduler says, what the exit status says. */
enum attempt_cause attempt_cause_of(const struct attempt_evidence *e);

#endif
