/* fold: computes what follows from all of one run's events together: its clocks and where its time
 * went (tables run_clock and span).
 *
 * Times are on the run's clock, which fold/clock.h computes from the hosts' clocks.
 *
 * Spans. Every activity is an interval with a cause. Where several intervals overlap, the first in
 * this order counts: suspended, train, replay, save, load, start, queue, down (of several reasons
 * for being down, the first in the alphabet). Time that no interval covers is `other`. So by
 * construction spans cannot overlap, none is negative, and they add up to (last event - first
 * submission), or if no submission is recorded, (last event - first event).
 */
#ifndef DB_FOLD_H
#define DB_FOLD_H

#include "db/store.h"

struct fold_news {
    int64_t first_id, last_id; /* of the new events; other events may lie between them */
    /* Events were removed, so the run must be folded from its first event. */
    bool whole;
};
/* Brings the run's rows in run_clock and span up to date with the events in the database. It runs
 * inside the caller's transaction. */
int fold_run(struct store *db, const char *run, const struct fold_news *news, struct err *err);

/* ---- the pure part, for tests ---- */
struct fold_interval { double from, to; int cause; }; /* smaller causes count first */
struct fold_span { double from, to; int cause; };
/* Cuts [from, to] into spans and returns how many there are. `out` must hold 2 * n + 1. Intervals
 * are clipped to [from, to], and empty ones are ignored. `none` is the cause of time that no
 * interval covers. `edges` is scratch space for 2 * n. */
struct fold_edge { double at; int cause, delta; };
size_t fold_sweep(const struct fold_interval *in, size_t n, double from, double to, int none,
                  struct fold_edge *edges, struct fold_span *out);

#endif
