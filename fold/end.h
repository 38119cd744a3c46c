/* end: which end of an attempt counts, when several are told.
 *
 * An agent that was taken for lost may wake after the next attempt has said how its own one ended,
 * and say it again. The end told first counts, for on that one the run was brought back. First is
 * what has the lower number in the attempt's log, not the earlier time: agents of one attempt may
 * have run on hosts whose clocks differ. An end is written into the log of the attempt's agent, or
 * by the attempt that follows into a log of its own, which holds little else: so that one counts
 * before whatever the agent may still tell. The name decides between equal numbers. Two events that
 * share even the name had two processes writing at once, or the log lost its tail and grew again:
 * the later one counts, as it does in db/ingest.h.
 *
 * The state of a run (launcher/state/state.h) and the database (db/fold.h) both ask this function.
 * The views read what the database's fold has stored.
 */
#ifndef FOLD_END_H
#define FOLD_END_H

#include <stdbool.h>
#include <stdint.h>

struct fold_end {
    const char *writer; /* borrowed */
    int64_t seq;        /* its number in the writer's log */
    double wall;        /* UTC s, by the writer's clock */
};

/* Returns whether this end of an attempt counts rather than the other one. Two that are the same do
 * not. */
bool fold_end_counts(const struct fold_end *end, const struct fold_end *other);

#endif
