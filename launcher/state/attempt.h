/* attempt: who may run a run now, and what is known of how an attempt ended.
 *
 * An attempt belongs to the agent that created claims/attempt-<n>. The agent does so under
 * claims/lock, a lease (base/lease.h) that it holds to its end. The lease says that no other agent
 * of the run lives, as far as one can tell across hosts. The token says that its submission is the
 * one that counts, and the number which attempt it is. An attempt that ended without a word gets
 * its end from whoever comes next: the guard of its agent (launcher/run/guard.h), or the next
 * attempt.
 *
 *     struct attempt a;
 *     attempt_init(&a, run_dir, &self);
 *     attempt_lock(&a, err);                // ERR_BUSY: step aside
 *     run_state_load(run_dir, &state, err); // what is left to do, how the attempt before ended
 *     attempt_claim(&a, &state, err);       // ERR_BUSY: step aside
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
    struct sched *sched; /* borrowed; whom to ask whether another job is over, NULL: nobody */
    int64_t number;                /* 0: none is claimed */
    /* Its job is given back before its end, which comes of this; NONE: it is not. */
    enum attempt_cause given_back;
    struct evlog *log;
    struct lease *lock;
    double evicted_mono; /* the lease was taken from an agent that may live; 0: it was not */
    double gone_mono;    /* since when the run's folder is gone; 0: it is there */
};

void attempt_init(struct attempt *a, const char *run_dir, const struct sched_self *self);
void attempt_release(struct attempt *a);

/* Checks that the run's folder is there: what is made in its place would be lost. ERR_FULL: it is
 * gone, and may be brought back; ERR_NOT_FOUND: it has been gone for too long (home.h). */
int attempt_folder_check(struct attempt *a, struct err *err);
/* Takes the lease. Waits half a minute for the agent of the attempt before; when that one lived on
 * another host, waits until it has been silent for a minute. Does not wait for an earlier life of
 * this very job, nor for a job that is over, because the scheduler has ended these; where it took
 * one for lost that may live unseen for a while, see evicted_mono. */
int attempt_lock(struct attempt *a, struct err *err);
/* Holds what the scheduler says of the end of an attempt whose end nobody told. */
struct attempt_ending {
    enum sched_end why; /* NONE: for no reason of the scheduler's; UNKNOWN: it does not say */
    char node_lost[SCHED_ID_BYTES]; /* a node of its job that was given up for lost; "" none */
    bool nodes_told;                /* the scheduler has answered about its nodes */
};
/* Asks about the attempt before ours, if nobody told its end. Why its job ended is asked when that
 * was another job; one that runs again does not remember it. */
void attempt_before(const struct attempt *a, const struct run_state *s, struct sched *sched,
                    struct attempt_ending *out);
/* Says how the attempt before ended if that is open, takes the next number and opens its log. The
 * caller holds the lock and has folded the state since. before: see attempt_before.
 *
 * attempt_lock, attempt_claim and attempt_mourn return ERR_FULL when the disk has no room for a
 * word. The same call, once there is some, goes on from there. Nor is there room where the run's
 * folder is gone, as while its disk is being repaired; they make none. After half an hour of that
 * they return ERR_NOT_FOUND. */
int attempt_claim(struct attempt *a, const struct run_state *state,
                  const struct attempt_ending *before, struct err *err);

/* Says that the run has this job for its next attempt. */
void attempt_requeued(struct attempt *a, const char *job_id);

/* Is no newer attempt claimed? Else the run is no longer this one's to end or to bring back. */
bool attempt_is_newest(const struct attempt *a);
/* Was this attempt taken for lost, and has a newer one begun? This may be told LEASE_BEAT_S late,
 * and costs nothing as long as the lease is ours. */
bool attempt_is_followed(const struct attempt *a);

/* Opens, for the guard, the log of the newest attempt, whose agent died of this signal, and ends
 * the attempt if its end is open. Waits for what the agent left behind to let go of the lock, and
 * renews the fold under it. why: as the scheduler has it. */
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

/* Writes, as a refusal and in its name, the end and the sentence of a trainer of ours that did not
 * understand what it was told (exit status 2). Such a trainer ends before it has a log. It is a
 * refusal because every other attempt would be told the same. */
void attempt_misunderstood_note(struct attempt *a, int exit_code);

/* Write into buf, and return, the path of rank 0's event log and of what the trainer prints. */
char *attempt_rank0_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES]);
char *attempt_output_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES]);

/* Returns the state's attempt of this number; NULL if it knows none. */
const struct run_attempt *attempt_told(const struct run_state *s, int64_t number);

/* This is what is known of an attempt when its trainer is gone. */
struct attempt_evidence {
    bool done;              /* the trainer published the last step */
    /* A notice came, here or at the trainer's step alone, so it saved and stopped by itself. */
    bool stop_requested;
    bool cancel_requested;  /* by event */
    bool pause_requested;   /* by event */
    enum sched_end ending;  /* as the scheduler has it */
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
 * what was asked, what the scheduler told, what the exit tells. */
enum attempt_cause attempt_cause_of(const struct attempt_evidence *e);

#endif
