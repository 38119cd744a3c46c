/* told: when things happened in a run's attempts, as their writers told it.
 *
 * A time is kept on the clock of the host that told it, for clocks are related to each other only
 * when all events are known (fold/clock.h). Of each kind the earliest counts; it is kept once for
 * an attempt and a clock, so the list grows with these, not with events, and adding does not depend
 * on the order.
 */
#ifndef LAUNCHER_STATE_TOLD_H
#define LAUNCHER_STATE_TOLD_H

#include "fold/clock.h"

/* The order matters: of two notices that were heard at one time, the one of the lesser kind
 * counts. */
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

/* Something that an event tells of after it was. ago_s: how long before the event, by the wall
 * clock. least_s: so long at least. exact: by the host's monotonic clock, so it needs no check. */
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
/* Adds this, unless an earlier one of its kind is known. */
int told_add(struct told_list *l, const struct told *t, struct err *err);
/* Returns when it was, UTC s. The clocks are settled. */
double told_utc(const struct fold_clocks *c, int64_t attempt, const struct told_time *t);

#endif
