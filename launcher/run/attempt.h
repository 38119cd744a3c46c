/* attempt: who may run a run now, and what is known of how an attempt ended.
 *
 * An attempt belongs to the agent that created claims/attempt-<n>, which it does under claims/lock, a lease (base/lease.h) that it holds
 * to its end. The lease says that no other agent of the run lives, as far as one can tell across hosts, the token that its submission is the one that counts, the
 * number which attempt it is. An attempt that ended without a word gets its end from whoever comes next: the guard of its agent
 * (launcher/run/guard.h), or the next attempt.
 *
 *     struct attempt a;
 *     attempt_init(&a, run_dir, &self);
 *     attempt_lock(&a, err);                // ERR_BUSY: step aside
 *     run_state_load(run_dir, &state, err); // what is not done yet, and how the attempt before ended
 *     attempt_claim(&a, &state, err);       // ERR_BUSY: step aside
 *     …  attempt_event(&a, &e)  …  attempt_end(&a, cause, …)
 *     attempt_release(&a);
 */
#ifndef LAUNCHER_RUN_ATTEMPT_H
#define LAUNCHER_RUN_ATTEMPT_H

#include "base/err.h"
#include "base/evlog.h"
#include "base/lease.h"
#include "launcher/run/last_words.h"
#include "launcher/run/state.h"
#include "launcher/sched/sched.h"

struct attempt {
    const char *run_dir;           /* borrowed */
    const struct sched_self *self; /* borrowed; zeroed outside a job */
    int64_t number;                /* 0: none is claimed */
    struct evlog *log;
    struct lease *lock;
};

void attempt_init(struct attempt *a, const char *run_dir, const struct sched_self *self);
void attempt_release(struct attempt *a);

/* Waits half a minute for the agent of the attempt before, and until it has been silent for a minute when it lived on another host; but not
 * for an earlier life of this very job, which the scheduler has ended. */
int attempt_lock(struct attempt *a, struct err *err);
/* Of the attempt before ours whose end nobody told: why did its job end, if that was another one? UNKNOWN when nobody says. */
enum sched_end attempt_before(const struct attempt *a, const struct run_state *s, struct sched *sched);
/* Of the lock, the claim and the mourning: ERR_FULL when the disk has no room for a word; the same call, once there is some, goes on from there.
 * Under the lock, with the state folded since: takes the next number and opens its log, having said how the one before ended if that is
 * open. before: why its job ended, as the scheduler has it; SCHED_END_NONE: it says for no reason of its own; SCHED_END_UNKNOWN: not known. */
int attempt_claim(struct attempt *a, const struct run_state *state, enum sched_end before, struct err *err);

/* False: a newer attempt was claimed, and the run is no longer this one's to end or to bring back. */
bool attempt_is_newest(const struct attempt *a);

/* For the guard: opens the log of the newest attempt, whose agent died of this signal, and ends the
 * attempt if its end is open. Waits for what the agent left behind to let go of the lock, and
 * renews the fold under it. why: as the scheduler has it. */
int attempt_mourn(struct attempt *a, struct run_fold *fold, int signo, enum sched_end why,
                  struct err *err);

/* A full disk must not end the training it reports on: events wait in memory for room, and a lost one is a warning. */
void attempt_event(struct attempt *a, struct evlog_event *e);
/* The same without waiting for the disk: for steps, of which there are many. */
void attempt_event_soon(struct attempt *a, struct evlog_event *e);
/* ERR_FULL: it waits for room, and attempt_flush is to be asked for it. */
int attempt_end(struct attempt *a, enum attempt_cause cause, int exit_code, int exit_signal, const char *detail);
int attempt_flush(struct attempt *a); /* ERR_FULL: events still wait for room */

/* ", the job was being ended (preempted)", for people; the brackets hold what the scheduler tells, and are not there when that is nothing. */
void attempt_ending_format(enum sched_end why, char *out, size_t size);
/* The same of what its trainer told (NULL: nothing), else of what it printed, if it failed. */
enum { ATTEMPT_ENDING_BYTES = LAST_WORDS_BYTES + 8 };
void attempt_told_format(const struct attempt *a, const struct run_attempt *told, bool failed, char out[ATTEMPT_ENDING_BYTES]);

/* A trainer of ours that does not understand what it is told (exit status 2) ends before it has a log: its end and its sentence are told in
 * its name, as a refusal, for every other attempt would be told the same. */
void attempt_misunderstood_note(struct attempt *a, int exit_code);

/* Rank 0's event log; what the trainer prints. Each returns buf. */
char *attempt_rank0_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES]);
char *attempt_output_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES]);

/* NULL if the state knows no such attempt. */
const struct run_attempt *attempt_told(const struct run_state *s, int64_t number);

/* Why an attempt ended, from what is known when the trainer is gone; pure. In order of certainty: what was published, what was asked, what
 * the scheduler told, what the exit tells. */
struct attempt_evidence {
    bool done;              /* the trainer published the last step */
    bool stop_requested;    /* a notice came, here or at the trainer's step alone: it saved and stopped by itself */
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
enum attempt_cause attempt_cause_of(const struct attempt_evidence *e);

#endif
