/* told: stores when things happened in a run's attempts, by the clocks of the hosts that wrote the
 * events. */
#ifndef LAUNCHER_STATE_TOLD_H
#define LAUNCHER_STATE_TOLD_H

#include "fold/clock.h"

/* Names what happened at a time. The order matters: of two notices with the same time, the one
 * whose kind comes first counts. */
enum told_kind {
    TOLD_CREATED,      /* the run was created; in attempt 0 */
    TOLD_STARTED,
    TOLD_TRAINER_STARTED,
    TOLD_MOVING,       /* a foreign trainer makes progress */
    TOLD_REQUEUED,
    TOLD_STOP_SEEN,
    TOLD_NOTICE_AGENT, /* a stop notice came to the agent */
    TOLD_NOTICE_NODE,  /* a stop notice came to a node agent */
    TOLD_NOTICE_HEARD, /* a stop notice came to the trainer, which reported it at once */
    TOLD_NOTICE_SEEN,  /* a stop notice came to the trainer, which reported it at its step's end */
};

/* Holds the time of something that an event reports later. ago_s: how long before the event it was,
 * by the wall clock. least_s: it was at least this long before the event. exact: ago_s is from the
 * host's monotonic clock, so it needs no check. */
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
/* Returns the time in UTC s. fold_clocks_settle must have been called. */
double told_utc(const struct fold_clocks *c, int64_t attempt, const struct told_time *t);

#endif
