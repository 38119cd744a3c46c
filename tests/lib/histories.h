/* histories: holds what may happen to a run, as events, and the state that must follow from each.
 * Every fold of a run's events is held against this table: the state's (test_launcher_state.c), and
 * the database's (test_launcher_folds.c).
 */
#ifndef TESTS_HISTORIES_H
#define TESTS_HISTORIES_H

#include <stddef.h>
#include <stdint.h>

#include "launcher/state/state.h"

enum { MAX_EVENTS = 32, MAX_CLOCKS = 8 };

/* Shorthand of an event: attempt, kind, seconds, and the kind's own fields as JSON members. */
struct ev {
    int attempt;
    const char *kind;
    double wall;
    const char *fields;
};
#define CREATED {0, "run_created", 100, "\"name\":\"n\",\"model\":\"m\",\"total_steps\":10"}
#define INTENT {0, "submit_intent", 101, "\"sched\":\"local\",\"token\":\"aa\""}
#define SUBMITTED {0, "submitted", 102, "\"job_id\":\"7\""}
#define STARTED(n, t) {n, "attempt_started", t, "\"job_id\":\"7\""}
#define STEP(n, t, s) \
    {n, "step", t, "\"step\":" #s ",\"started_at\":" #t ",\"step_s\":1,\"loss\":0.5"}
/* This step is told at t, by a wall clock that had shown `began` when the step began. */
#define BEGUN(n, t, began, s) \
    {n, "step", t, "\"step\":" #s ",\"started_at\":" #began ",\"step_s\":1,\"loss\":0.5"}
/* This step took so many seconds, in which the job may have been suspended: for s, until t. */
#define LONG(n, t, took, s) \
    {n, "step", t, "\"step\":" #s ",\"started_at\":" #t ",\"step_s\":" #took ",\"mfu\":0.1"}
#define RESTED(n, t, s) {n, "suspended", t, "\"seconds\":" #s}
#define SAVED(n, t, s) {n, "ckpt_saved", t, "\"step\":" #s ",\"seconds\":0.1"}
#define NOTICE(n, t) {n, "signal", t, "\"signal\":\"SIGUSR1\""}
#define ENDED(n, t, cause) \
    {n, "attempt_ended", t, "\"cause\":\"" cause "\",\"exit_code\":5,\"detail\":\"why\""}
#define REQUEUE(n, t) {n, "requeue", t, "\"job_id\":\"7\""}
#define TRAINED(n, t, reason) {n, "train_ended", t, "\"reason\":\"" reason "\""}
#define REFUSED(n, t) {n, "train_ended", t, "\"reason\":\"refused\",\"detail\":\"no such tensor\""}
#define CANCEL(turn, met, t) {0, "cancel_requested", t, "\"turn\":" #turn ",\"met_attempt\":" #met}
#define PAUSE(turn, met, t) {0, "pause_requested", t, "\"turn\":" #turn ",\"met_attempt\":" #met}
#define RESUME(turn, t) {0, "resume_requested", t, "\"turn\":" #turn}
#define RETRY(turn, after, t, reset) \
    {0, "retry_requested", t, \
     "\"turn\":" #turn ",\"after_attempt\":" #after ",\"reset_budget\":" reset}

/* This host tells event number `from` and those behind it. Of its clocks it says how far the wall
 * clock is ahead of the true time, which the events have, and what the monotonic one showed at the
 * true time 0. */
struct host_clocks {
    size_t from;
    const char *host, *boot;
    double ahead_s, mono_s;
};
#define HOST(from, host, ahead, mono) {from, host, host "-boot", ahead, mono}

/* Until `clocks` names another host, events are told by one that has the true time. */
struct fold_case {
    const char *what;
    struct ev events[MAX_EVENTS];
    enum run_next next;
    const char *word;
    int64_t max_step, saved, attempts, without;
    struct host_clocks clocks[MAX_CLOCKS];
};
extern const struct fold_case histories[];
extern const size_t n_histories;

/* Returns the clocks that tell event k of a history. */
struct host_clocks clocks_of(const struct fold_case *c, size_t k);

/* Returns how many events a history has. */
size_t count_events(const struct fold_case *c);

#endif
