/* told: keeps when things happened in a run's attempts, by the clocks of their writers.
 *
 * A time is kept on the clock of the host that wrote it, because clocks are related to each other
 * only when all events are known (fold/clock.h). Of each kind the earliest counts; it is kept once
 * for an attempt and a clock, so the list grows with these, not with events, and adding does not
 * depend on the order.
 */
#ifndef LAUNCHER_STATE_TOLD_H
#define LAUNCHER_STATE_TOLD_H

#include "fold/clock.h"

/* Names what a time is of. The order matters: of two notices with the same time, the one whose kind
 * comes first counts. */
enum told_kind {
    TOLD_CREATED,      /* the run, in attempt 0 */
    TOLD_STARTED,
    TOLD_TRAINER_STARTED,
    TOLD_MOVING,       /* a foreign trainer moves */
    TOLD_REQUEUED,
    TOLD_STOP_SEEN,
    TOLD_NOTICE_AGENT, /* notices to stop: at the agent, */
    TOLD_NOTICE_NODE,  /* at a node agent, */
    TOLD_NOTICE_HEARD, /* at the trainer, as it said at once, */
    TOLD_NOTICE_SEEN,  /* and as it said at its step's end */
};

/* Holds the time of something that an event reports afterwards. ago_s: how long before the event it
 * was, by the wall clock. least_s: it was at least so long before. exact: ago_s is by the host's
 * monotonic clock, so it needs no check. */
struct told_time {
    struct fold_time event;
    double ago_s, least_s;
    bool exact;
};
struct told {
    int64_t attempt;
    enum told_kind kind;
    struct told_time time;
    char text[16]; /* of a notice: the signal's name */
};
struct told_list {
    struct told *list; /* sorted by attempt, kind, clock */
    size_t n, cap;
};

void told_release(struct told_list *l); /* zeroes it, too */
/* Adds a time, unless an earlier one of the same kind, attempt and clock is known. */
int told_add(struct told_list *l, const struct told *t, struct err *err);
/* Returns the time in UTC s. The clocks are settled. */
double told_utc(const struct fold_clocks *c, int64_t attempt, const struct told_time *t);

#endif
