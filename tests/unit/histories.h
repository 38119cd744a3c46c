/* histories: what may happen to a run, as events, and the state that must follow from each. Every
 * fold of a run's events is held against this table: the state's (test_launcher_state.c), and the
 * database's (test_launcher_folds.c).
 */
#ifndef TESTS_UNIT_HISTORIES_H
#define TESTS_UNIT_HISTORIES_H

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
static const struct fold_case {
    const char *what;
    struct ev events[MAX_EVENTS];
    enum run_next next;
    const char *word;
    int64_t max_step, saved, attempts, without;
    struct host_clocks clocks[MAX_CLOCKS];
} cases[] = {
    {"done by its agent's word, that of its trainer lost",
     {CREATED, INTENT, SUBMITTED, STARTED(1, 110), STEP(1, 111, 9), SAVED(1, 112, 10),
      ENDED(1, 113, "done")},
     RUN_NEXT_DONE, "done", 9, 10, 1, 0},
    {"nothing but made", {CREATED}, RUN_NEXT_SUBMIT, "created", -1, -1, 0, 0},
    {"intent without an answer", {CREATED, INTENT}, RUN_NEXT_SUBMIT, "created", -1, -1, 0, 0},
    {"a job whose submitter died before it could say so",
     {CREATED, INTENT, STARTED(1, 110), ENDED(1, 113, "preempt")}, RUN_NEXT_REQUEUE, "waiting", -1,
     -1, 1, 1},
    {"and given back",
     {CREATED, INTENT, STARTED(1, 110), ENDED(1, 113, "preempt"), REQUEUE(1, 113)}, RUN_NEXT_WAIT,
     "waiting", -1, -1, 1, 1},
    {"submitted by a host whose clock is ahead",
     {CREATED, INTENT, {0, "submitted", 500, "\"job_id\":\"7\",\"token\":\"aa\""},
      {1, "attempt_started", 110, "\"job_id\":\"7\",\"token\":\"aa\""}, ENDED(1, 113, "preempt")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 1, 1},
    {"submitted again by one whose clock is behind",
     {CREATED, {0, "submitted", 102, "\"job_id\":\"8\",\"token\":\"bb\",\"order\":2"},
      {1, "attempt_started", 110, "\"job_id\":\"7\",\"token\":\"aa\""}, ENDED(1, 113, "crash")},
     RUN_NEXT_WAIT, "waiting", -1, -1, 1, 1},
    {"its successor waits",
     {CREATED, {0, "submit_intent", 111, "\"token\":\"bb\",\"after\":\"aa\",\"order\":2"},
      {0, "submitted", 112, "\"job_id\":\"8\",\"token\":\"bb\",\"order\":2"},
      {1, "attempt_started", 110, "\"job_id\":\"7\",\"token\":\"aa\""}, ENDED(1, 113, "preempt")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 1, 1},
    {"an end told twice: the first counts",
     {CREATED, SUBMITTED, STARTED(1, 110), ENDED(1, 113, "preempt"), ENDED(1, 120, "crash"),
      ENDED(2, 121, "crash"), ENDED(3, 122, "crash")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 3, 2},
    {"an end told twice, first on a host whose clock is ahead",
     {CREATED, SUBMITTED, STARTED(1, 110), ENDED(1, 500, "preempt"), ENDED(1, 120, "crash"),
      ENDED(2, 521, "crash"), ENDED(3, 522, "crash")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 3, 2},
    {"done, and longer since",
     {CREATED, INTENT, SUBMITTED, STARTED(1, 110), STEP(1, 111, 9), SAVED(1, 112, 10),
      {1, "train_ended", 113, "\"reason\":\"done\",\"next_step\":10"}, ENDED(1, 113, "done"),
      {0, "extended", 120, "\"total_steps\":15"}},
     RUN_NEXT_REQUEUE, "waiting", 9, 10, 1, 0},
    {"longer, and done",
     {CREATED, INTENT, SUBMITTED, STARTED(1, 110), STEP(1, 111, 14), SAVED(1, 112, 15),
      {1, "train_ended", 113, "\"reason\":\"done\",\"next_step\":15"}, ENDED(1, 113, "done"),
      {0, "extended", 105, "\"total_steps\":15"}},
     RUN_NEXT_DONE, "done", 14, 15, 1, 0},
    {"submitted", {CREATED, INTENT, SUBMITTED}, RUN_NEXT_WAIT, "queued", -1, -1, 0, 0},
    {"started", {CREATED, INTENT, SUBMITTED, STARTED(1, 110)}, RUN_NEXT_WAIT, "starting", -1, -1,
     1, 0},
    {"training", {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 0), STEP(1, 112, 1)},
     RUN_NEXT_WAIT, "training", 1, -1, 1, 0},
    {"notice", {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 0), NOTICE(1, 112)},
     RUN_NEXT_WAIT, "stopping", 0, -1, 1, 0},
    {"notice at the trainer alone",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 0),
      {1, "stop_seen", 112, "\"signal\":\"SIGTERM\",\"heard_at\":111.5,\"seen_at\":112"}},
     RUN_NEXT_WAIT, "stopping", 0, -1, 1, 0},
    {"a notice that a node agent heard first, and wrote down after rank 0",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 0),
      {1, "stop_heard", 112.5, "\"signal\":\"SIGUSR1\",\"heard_at\":112.25,\"phase\":\"step\""},
      {1, "signal", 113, "\"signal\":\"SIGTERM\",\"node\":\"n1\",\"heard_at\":112"}},
     RUN_NEXT_WAIT, "stopping", 0, -1, 1, 0},
    {"another rank heard it",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 0),
      {1, "stop_seen", 112, "\"seen_at\":112"}},
     RUN_NEXT_WAIT, "training", 0, -1, 1, 0},
    {"preempted, not given back",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 0), NOTICE(1, 112), SAVED(1, 112, 1),
      ENDED(1, 113, "preempt")},
     RUN_NEXT_REQUEUE, "waiting", 0, 1, 1, 0},
    {"preempted and given back",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 0), ENDED(1, 113, "preempt"),
      REQUEUE(1, 113)},
     RUN_NEXT_WAIT, "waiting", 0, -1, 1, 0},
    {"submitted again after its end",
     {CREATED, SUBMITTED, STARTED(1, 110), ENDED(1, 113, "node_fail"),
      {0, "submitted", 120, "\"job_id\":\"8\""}},
     RUN_NEXT_WAIT, "waiting", -1, -1, 1, 1},
    {"preemptions have their own budget",
     {CREATED, SUBMITTED, ENDED(1, 111, "preempt"), ENDED(2, 112, "preempt"),
      ENDED(3, 113, "preempt"), ENDED(4, 114, "preempt"), ENDED(5, 115, "preempt")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 5, 5},
    {"and with progress none is spent",
     {CREATED, SUBMITTED, ENDED(1, 111, "preempt"), STEP(2, 112, 0), ENDED(2, 112, "preempt"),
      STEP(3, 113, 1), ENDED(3, 113, "preempt")},
     RUN_NEXT_REQUEUE, "waiting", 1, -1, 3, 0},
    {"two time limits without a step",
     {CREATED, SUBMITTED, ENDED(1, 111, "time_limit"), ENDED(2, 112, "time_limit")},
     RUN_NEXT_FAILED, "failed", -1, -1, 2, 2},
    {"a time limit with steps each",
     {CREATED, SUBMITTED, STEP(1, 110, 0), ENDED(1, 111, "time_limit"), STEP(2, 112, 1),
      ENDED(2, 113, "time_limit")},
     RUN_NEXT_REQUEUE, "waiting", 1, -1, 2, 0},
    {"four lost nodes",
     {CREATED, SUBMITTED, ENDED(1, 111, "node_fail"), ENDED(2, 112, "node_fail"),
      ENDED(3, 113, "crash"), ENDED(4, 114, "node_fail"), ENDED(5, 115, "node_fail")},
     RUN_NEXT_FAILED, "failed", -1, -1, 5, 4},
    {"a foreign trainer came further each time",
     {CREATED, SUBMITTED, {1, "progress", 110, "\"step\":3"}, ENDED(1, 111, "crash"),
      {2, "progress", 112, "\"step\":4"}, ENDED(2, 113, "crash"),
      {3, "progress", 114, "\"step\":5"}, ENDED(3, 115, "crash")},
     RUN_NEXT_REQUEUE, "waiting", 4, -1, 3, 1},
    {"three crashes without a step",
     {CREATED, SUBMITTED, ENDED(1, 111, "crash"), ENDED(2, 112, "crash"), ENDED(3, 113, "crash")},
     RUN_NEXT_FAILED, "failed", -1, -1, 3, 3},
    {"input refused before the first step",
     {CREATED, SUBMITTED, REFUSED(1, 110), ENDED(1, 111, "crash")}, RUN_NEXT_FAILED, "failed", -1,
     -1, 1, 1},
    {"and tried again at its owner's word",
     {CREATED, SUBMITTED, REFUSED(1, 110), ENDED(1, 111, "crash"), RETRY(1, 1, 114, "false")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 1, 1},
    {"refused in an attempt that was preempted",
     {CREATED, SUBMITTED, REFUSED(1, 110), ENDED(1, 111, "preempt")}, RUN_NEXT_REQUEUE, "waiting",
     -1, -1, 1, 1},
    {"any other error", {CREATED, SUBMITTED, TRAINED(1, 110, "error"), ENDED(1, 111, "crash")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 1, 1},
    {"a hang counts as a crash",
     {CREATED, SUBMITTED, ENDED(1, 111, "crash"), ENDED(2, 112, "hang"), ENDED(3, 113, "crash")},
     RUN_NEXT_FAILED, "failed", -1, -1, 3, 3},
    {"so does an early exit",
     {CREATED, SUBMITTED, ENDED(1, 111, "crash"), ENDED(2, 112, "early_exit"),
      ENDED(3, 113, "early_exit")},
     RUN_NEXT_FAILED, "failed", -1, -1, 3, 3},
    {"an early exit alone comes back",
     {CREATED, SUBMITTED, STARTED(1, 110), ENDED(1, 111, "early_exit")}, RUN_NEXT_REQUEUE,
     "waiting", -1, -1, 1, 1},
    {"who diverged once would diverge again",
     {CREATED, SUBMITTED, STEP(1, 110, 3), ENDED(1, 111, "diverged")}, RUN_NEXT_FAILED, "failed", 3,
     -1, 1, 0},
    {"progress between crashes restores the budget",
     {CREATED, SUBMITTED, ENDED(1, 111, "crash"), ENDED(2, 112, "crash"), STEP(3, 113, 0),
      ENDED(3, 114, "crash"), STEP(4, 115, 1), ENDED(4, 116, "crash")},
     RUN_NEXT_REQUEUE, "waiting", 1, -1, 4, 1},
    {"the same step again is no progress",
     {CREATED, SUBMITTED, STEP(1, 111, 3), ENDED(1, 112, "crash"), STEP(2, 113, 3),
      ENDED(2, 114, "crash"), STEP(3, 115, 3), ENDED(3, 116, "crash")},
     RUN_NEXT_FAILED, "failed", 3, -1, 3, 3},
    {"preemption between crashes",
     {CREATED, SUBMITTED, ENDED(1, 111, "crash"), ENDED(2, 112, "preempt"), ENDED(3, 113, "crash"),
      ENDED(4, 114, "preempt")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 4, 2},
    {"done",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 9), SAVED(1, 112, 10),
      TRAINED(1, 112, "done"), ENDED(1, 113, "done")},
     RUN_NEXT_DONE, "done", 9, 10, 1, 0},
    {"done though the agent died before it said so",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 9), TRAINED(1, 112, "done")}, RUN_NEXT_DONE,
     "done", 9, -1, 1, 0},
    {"stopped is not done",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 4), TRAINED(1, 112, "stop")}, RUN_NEXT_WAIT,
     "training", 4, -1, 1, 0},
    {"cancelled", {CREATED, SUBMITTED, STARTED(1, 110), {0, "cancel_requested", 111, "\"x\":1"}},
     RUN_NEXT_CANCELLED, "cancelled",
     -1, -1, 1, 0},
    {"done before the cancel came",
     {CREATED, SUBMITTED, TRAINED(1, 110, "done"), {0, "cancel_requested", 111, "\"x\":1"}},
     RUN_NEXT_DONE, "done", -1, -1, 1, 0},
    {"cancelled, and retried: it waits for somebody to submit it",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 3), CANCEL(1, 1, 112),
      ENDED(1, 113, "cancel"), RETRY(2, 1, 114, "false")},
     RUN_NEXT_REQUEUE, "waiting", 3, -1, 1, 0},
    {"and submitted",
     {CREATED, SUBMITTED, STARTED(1, 110), CANCEL(1, 1, 112), ENDED(1, 113, "cancel"),
      RETRY(2, 1, 114, "false"), {0, "submitted", 115, "\"job_id\":\"8\""}},
     RUN_NEXT_WAIT, "waiting", -1, -1, 1, 0},
    {"cancelled before it was submitted, and retried",
     {CREATED, CANCEL(1, 0, 103), RETRY(2, 0, 104, "false")}, RUN_NEXT_SUBMIT, "created", -1, -1, 0,
     0},
    {"cancelled again after that",
     {CREATED, SUBMITTED, CANCEL(1, 0, 103), RETRY(2, 0, 104, "false"), CANCEL(3, 0, 105)},
     RUN_NEXT_CANCELLED, "cancelled",
     -1, -1, 0, 0},
    {"the turn counts, not the clock",
     {CREATED, SUBMITTED, CANCEL(1, 0, 500), RETRY(2, 0, 104, "false")}, RUN_NEXT_WAIT, "queued",
     -1, -1, 0, 0},
    {"of two at once the stronger", {CREATED, SUBMITTED, CANCEL(1, 0, 500), PAUSE(1, 0, 500)},
     RUN_NEXT_CANCELLED, "cancelled",
     -1, -1, 0, 0},
    {"failed and retried",
     {CREATED, SUBMITTED, ENDED(1, 111, "crash"), ENDED(2, 112, "crash"), ENDED(3, 113, "crash"),
      RETRY(1, 3, 114, "false")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 3, 3},
    {"and failed again: one attempt was what it had",
     {CREATED, SUBMITTED, ENDED(1, 111, "crash"), ENDED(2, 112, "crash"), ENDED(3, 113, "crash"),
      RETRY(1, 3, 114, "false"), ENDED(4, 115, "crash")},
     RUN_NEXT_FAILED, "failed", -1, -1, 4, 4},
    {"with its budget anew it has as many as at first",
     {CREATED, SUBMITTED, ENDED(1, 111, "crash"), ENDED(2, 112, "crash"), ENDED(3, 113, "crash"),
      RETRY(1, 3, 114, "true"), ENDED(4, 115, "crash"), ENDED(5, 116, "crash")},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 5, 2},
    {"and no more",
     {CREATED, SUBMITTED, ENDED(1, 111, "crash"), ENDED(2, 112, "crash"), ENDED(3, 113, "crash"),
      RETRY(1, 3, 114, "true"), ENDED(4, 115, "crash"), ENDED(5, 116, "crash"),
      ENDED(6, 117, "crash")},
     RUN_NEXT_FAILED, "failed", -1, -1, 6, 3},
    {"diverged and retried",
     {CREATED, SUBMITTED, STEP(1, 110, 3), ENDED(1, 111, "diverged"), RETRY(1, 1, 112, "false")},
     RUN_NEXT_REQUEUE, "waiting", 3, -1, 1, 0},
    {"paused while it trains",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 3), PAUSE(1, 1, 112)}, RUN_NEXT_PAUSED,
     "stopping", 3, -1, 1, 0},
    {"and when it has stopped",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 3), PAUSE(1, 1, 112), SAVED(1, 113, 4),
      ENDED(1, 114, "pause")},
     RUN_NEXT_PAUSED, "paused", 3, 4, 1, 0},
    {"paused while it waits", {CREATED, SUBMITTED, PAUSE(1, 0, 103)}, RUN_NEXT_PAUSED, "paused",
     -1, -1, 0, 0},
    {"resumed",
     {CREATED, SUBMITTED, STARTED(1, 110), PAUSE(1, 1, 112), ENDED(1, 114, "pause"),
      RESUME(2, 115)},
     RUN_NEXT_REQUEUE, "waiting", -1, -1, 1, 0},
    {"paused runs can be cancelled", {CREATED, SUBMITTED, PAUSE(1, 0, 103), CANCEL(2, 0, 104)},
     RUN_NEXT_CANCELLED, "cancelled",
     -1, -1, 0, 0},
    {"who comes to its end all the same is done",
     {CREATED, SUBMITTED, STARTED(1, 110), STEP(1, 111, 9), PAUSE(1, 1, 112),
      TRAINED(1, 113, "done"), ENDED(1, 114, "done")},
     RUN_NEXT_DONE, "done", 9, -1, 1, 0},
    {"unknown kinds are ignored", {CREATED, {0, "of_the_future", 101, "\"x\":1"}, SUBMITTED},
     RUN_NEXT_WAIT, "queued", -1, -1, 0, 0},
#define TWO_ATTEMPTS                                                                            \
    {CREATED, INTENT, SUBMITTED, STARTED(1, 110), BEGUN(1, 112, 111, 0), BEGUN(1, 114, 113, 1), \
     NOTICE(1, 115), SAVED(1, 116, 2), ENDED(1, 117, "preempt"), STARTED(2, 130),               \
     BEGUN(2, 133, 132, 2), BEGUN(2, 135, 134, 3), TRAINED(2, 136, "done"),                     \
     ENDED(2, 137, "done")},                                                                    \
        RUN_NEXT_DONE, "done", 3, 2, 2, 0
    {"one host, and its clock is right", TWO_ATTEMPTS},
    {"the clock is set forward by 2 h between two steps", TWO_ATTEMPTS,
     {HOST(0, "a", 0, 9), HOST(5, "a", 7200, 9)}},
    {"it is set back by 2 h", TWO_ATTEMPTS, {HOST(0, "a", 0, 9), HOST(5, "a", -7200, 9)}},
    {"it is set forward and back again", TWO_ATTEMPTS,
     {HOST(0, "a", 0, 9), HOST(7, "a", 7200, 9), HOST(10, "a", 0, 9)}},
    {"it is set back while nothing runs", TWO_ATTEMPTS,
     {HOST(0, "a", 0, 9), HOST(9, "a", -7200, 9)}},
    {"the next attempt runs on a host that is 90 s behind", TWO_ATTEMPTS,
     {HOST(0, "a", 0, 9), HOST(9, "b", -90, 50)}},
    {"on one that is 2 h ahead", TWO_ATTEMPTS, {HOST(0, "a", 0, 9), HOST(9, "b", 7200, 50)}},
    {"both are 90 s behind the host that submits", TWO_ATTEMPTS,
     {HOST(0, "a", 0, 9), HOST(3, "b", -90, 50)}},
    {"rank 0 is on a host 90 s behind its agent's", TWO_ATTEMPTS,
     {HOST(0, "a", 0, 9), HOST(4, "b", -90, 50), HOST(8, "a", 0, 9), HOST(10, "b", -90, 50),
      HOST(13, "a", 0, 9)}},
    {"the host is booted between the attempts", TWO_ATTEMPTS,
     {HOST(0, "a", 0, 9), {9, "a", "another boot", 0, -120}}},
    {"and its clock is an hour behind then", TWO_ATTEMPTS,
     {HOST(0, "a", 0, 9), {9, "a", "another boot", -3600, -120}}},
    {"and it hides its boot id", TWO_ATTEMPTS,
     {{0, "a", "unknown", 0, 9}, {9, "a", "unknown", 0, -120}}},
    {"a laptop sleeps 8 h between two steps", {CREATED, INTENT, SUBMITTED, STARTED(1, 110),
     BEGUN(1, 112, 111, 0), BEGUN(1, 28914, 28913, 1), ENDED(1, 28915, "preempt")},
     RUN_NEXT_REQUEUE, "waiting", 1, -1, 1, 0},
    {"and its wall clock has stood still meanwhile", {CREATED, INTENT, SUBMITTED, STARTED(1, 110),
     BEGUN(1, 112, 111, 0), BEGUN(1, 28914, 28913, 1), ENDED(1, 28915, "preempt")},
     RUN_NEXT_REQUEUE, "waiting", 1, -1, 1, 0, {HOST(0, "a", 0, 9), HOST(5, "a", -28800, 9)}},
    {"the clock is set forward between a notice and its event", {CREATED, INTENT, SUBMITTED,
     STARTED(1, 110), BEGUN(1, 112, 111, 0), {1, "stop_heard", 113,
     "\"signal\":\"SIGTERM\",\"heard_at\":-7088,\"phase\":\"step\""},
     ENDED(1, 114, "preempt")}, RUN_NEXT_REQUEUE, "waiting", 0, -1, 1, 0,
     {HOST(0, "a", 0, 9), HOST(5, "a", 7200, 9)}},
    {"it is set back", {CREATED, INTENT, SUBMITTED, STARTED(1, 110), BEGUN(1, 112, 111, 0), {1,
     "stop_heard", 113, "\"signal\":\"SIGTERM\",\"heard_at\":7312,\"phase\":\"step\""},
     ENDED(1, 114, "preempt")}, RUN_NEXT_REQUEUE, "waiting", 0, -1, 1, 0,
     {HOST(0, "a", 0, 9), HOST(5, "a", -7200, 9)}},
    {"suspended within a step, from before it, and after the last", {CREATED, INTENT, SUBMITTED,
     STARTED(1, 110), LONG(1, 125, 13, 0), RESTED(1, 124, 10), RESTED(1, 132, 4),
     LONG(1, 135, 5, 1), RESTED(1, 150, 10)}, RUN_NEXT_WAIT, "training", 1, -1, 1, 0},
    {"the last of three steps was", {CREATED, INTENT, SUBMITTED, STARTED(1, 110),
     LONG(1, 112, 1, 0), RESTED(1, 124, 10), LONG(1, 125, 13, 1)}, RUN_NEXT_WAIT, "training", 1,
     -1, 1, 0},
    {"and its clock is set forward by 2 h meanwhile", {CREATED, INTENT, SUBMITTED,
     STARTED(1, 110), LONG(1, 112, 1, 0), RESTED(1, 124, 10), LONG(1, 125, 13, 1)},
     RUN_NEXT_WAIT, "training", 1, -1, 1, 0, {HOST(0, "a", 0, 9), HOST(5, "a", 7200, 9)}},
    {"rank 0 is on a host 90 s behind", {CREATED, INTENT, SUBMITTED, STARTED(1, 110),
     LONG(1, 112, 1, 0), RESTED(1, 124, 10), LONG(1, 125, 13, 1)}, RUN_NEXT_WAIT, "training", 1,
     -1, 1, 0, {HOST(0, "a", 0, 9), HOST(4, "b", 0, 50), HOST(5, "a", 0, 9), HOST(6, "b", 0, 50)}},
    {"the clock is set forward during the first step", {CREATED, INTENT, SUBMITTED,
     STARTED(1, 110), BEGUN(1, 113, -7088, 0), BEGUN(1, 114, 113, 1), ENDED(1, 115, "preempt")},
     RUN_NEXT_REQUEUE, "waiting", 1, -1, 1, 0, {HOST(0, "a", 0, 9), HOST(4, "a", 7200, 9)}},
};

/* Returns the clocks that tell event k. */
static inline struct host_clocks clocks_of(const struct fold_case *c, size_t k)
{
    struct host_clocks now = HOST(0, "node1", 0, 0);
    for (size_t i = 0; i < MAX_CLOCKS && c->clocks[i].host; i++)
        if (c->clocks[i].from <= k)
            now = c->clocks[i];
    return now;
}

static inline size_t count_events(const struct fold_case *c)
{
    size_t n = 0;
    while (n < MAX_EVENTS && c->events[n].kind)
        n++;
    return n;
}

#endif
