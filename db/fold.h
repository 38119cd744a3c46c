/* fold: what follows from all of one run's events together: its clocks and where its time went (tables run_clock, span).
 *
 * Time. Each (host, boot) has a monotonic clock; its offset to UTC is the median of wall - mono, in whole milliseconds, over the
 * run's events there, so a stepped wall clock moves nothing. A host first met in attempt n whose clock would place it before the end
 * of attempt n-1 is set forward by the difference: causes come before effects.
 *
 * Spans. Every activity is an interval with a cause; where several hold, the first of this order counts: train, replay,
 * save, load, start, queue, down (of its reasons the first by alphabet). What none covers is `other`. So spans cannot overlap, none is negative, and they add
 * up to (last event - first submission) by construction.
 */
#ifndef DB_FOLD_H
#define DB_FOLD_H

#include "db/store.h"

struct fold_news {
    int64_t first_id, last_id; /* of the events that are new; others may lie between */
    bool whole;                /* events were taken back: the run is folded from its first */
};
/* Brings the run's rows in run_clock and span up to the events in the database. Inside the caller's transaction. */
int fold_run(struct store *db, const char *run, const struct fold_news *news, struct err *err);

/* ---- the pure part, for tests ---- */
struct fold_interval { double from, to; int cause; }; /* cause: index, smaller counts first */
struct fold_span { double from, to; int cause; };
/* Cut [from, to] into spans: out holds up to 2 * n + 1; returns the count. Intervals outside are cut, empty ones ignored.
 * `none` is the cause where no interval holds. *edges is scratch for 2 * n. */
struct fold_edge { double at; int cause, delta; };
size_t fold_sweep(const struct fold_interval *in, size_t n, double from, double to, int none, struct fold_edge *edges,
                  struct fold_span *out);

#endif
