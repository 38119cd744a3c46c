/* clock: one time for all hosts of a run.
 *
 * Each boot of each host has a monotonic clock, which goes on whatever is done to the host's wall
 * clock. Its offset to UTC is the median of wall - mono, in whole milliseconds, over the run's
 * events there, so a stepped wall clock moves nothing. If the clock of a host that is first met in
 * attempt n would place it before the end of attempt n - 1, or before the agent started attempt n,
 * that clock is set forward by the difference, because causes come before effects.
 *
 * An event's time is therefore known when all events were seen. Until then it is kept as it was
 * told, as a clock and what that clock showed (struct fold_time):
 *
 *     struct fold_clocks c = {0};
 *     fold_clocks_add(&c, &reading, attempt, &time, err);   // for each event
 *     fold_clocks_settle(&c);
 *     fold_clocks_utc(&c, time.clock, time.at);                      // holds until the next event
 *     fold_clocks_release(&c);
 *
 * What is kept of each clock does not grow with the number of events: how often each difference of
 * wall and monotonic time was seen (a clock that is not stepped shows one or two), and for each
 * attempt the first and last reading. Sums of counts, minima and maxima do not depend on the order
 * in which events come, so the offsets do not either; and events that are added twice alike change
 * no median.
 *
 * A host that hides its boot id has a monotonic clock that nobody can relate to its former one.
 * There the wall clock is believed (FOLD_NO_CLOCK).
 *
 * The state of a run (launcher/state/state.h) and the database (db/fold.h) both ask these
 * functions, and each stores the three lists in its own way. The views read what the database's
 * fold has stored.
 */
#ifndef FOLD_CLOCK_H
#define FOLD_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { FOLD_NO_CLOCK = -1, FOLD_HOST_BYTES = 256, FOLD_BOOT_BYTES = 64 };

struct fold_clock { /* one boot of one host */
    char host[FOLD_HOST_BYTES], boot[FOLD_BOOT_BYTES];
    double offset, was; /* UTC less what it shows; as it was loaded, NaN: it was not */
    bool settled;
};
struct fold_diff { /* how many events saw this difference of wall and mono */
    int clock;
    int64_t ms, n;
    bool changed; /* since it was loaded */
};
/* These are the readings of one clock in one attempt; +-infinity where nothing was seen. Without a
 * clock they are UTC. */
struct fold_part {
    int64_t attempt;
    int clock;
    double first_mono, last_mono, submit_mono, start_mono; /* start: of the attempt */
    double first_was; /* first_mono as it was loaded; NaN: it was not */
    bool changed;     /* since it was loaded */
};
struct fold_clocks {
    struct fold_clock *list;
    struct fold_diff *diffs; /* sorted by clock, ms */
    struct fold_part *parts; /* sorted by attempt, clock */
    size_t n, n_diffs, n_parts, cap, cap_diffs, cap_parts;
};

struct fold_reading { /* an event's kind, and its two clocks; borrowed */
    const char *kind, *host, *boot;
    double mono, wall; /* mono: NaN where it was not told */
};
struct fold_time { /* at: what the clock showed, or UTC without one */
    int clock;
    double at;
};

void fold_clocks_release(struct fold_clocks *c); /* zeroes it, too */
/* Adds an event. *out: when it was. */
int fold_clocks_add(struct fold_clocks *c, const struct fold_reading *reading, int64_t attempt,
                    struct fold_time *out, struct err *err);
/* Computes the offset of each clock from all that was added. */
void fold_clocks_settle(struct fold_clocks *c);
/* Returns the UTC s when this clock showed `at`. */
double fold_clocks_utc(const struct fold_clocks *c, int clock, double at);
/* Returns the UTC s of the first event that this clock saw in this attempt; -infinity: none, or the
 * wall clock is believed. */
double fold_clocks_first(const struct fold_clocks *c, int64_t attempt, int clock);
/* Returns when the run was first submitted; -infinity when it never was. */
double fold_clocks_submitted(const struct fold_clocks *c);
/* Returns when any host told the last event of this attempt; -infinity: none did. */
double fold_clocks_last(const struct fold_clocks *c, int64_t attempt);
/* Returns the UTC s of all first and last events. *to is -infinity where there is none. */
void fold_clocks_span(const struct fold_clocks *c, double *from, double *to);
/* Says whether a clock has another offset than it was loaded with, or an attempt that was loaded an
 * earlier first event. */
bool fold_clocks_moved(const struct fold_clocks *c);
/* Says whether attempts or a submission were seen. Tunings and curations have neither. */
bool fold_clocks_is_run(const struct fold_clocks *c);

/* Returns how long before its event something began that took least_s and that the wall clock says
 * began lag_s before. If that is too short, or longer than the room_s there is, then the wall clock
 * was stepped in between, and what began is taken to have ended just before its event. */
double fold_ago_s(double lag_s, double least_s, double room_s);

/* Returns how long of what took `seconds` and ended then the job was suspended, for rest_s until
 * rest_end. All times are of one clock, or UTC. */
double fold_rest_s(double end, double seconds, double rest_end, double rest_s);

/* ---- for those who load what they stored: these find a row, or make it ---- */
/* Find a clock, a difference or a part, and add it where there is none. clock is FOLD_NO_CLOCK
 * where the wall clock is to be believed. */
int fold_clock_get(struct fold_clocks *c, const char *host, const char *boot, int *clock,
                   struct err *err);
int fold_diff_get(struct fold_clocks *c, int clock, int64_t ms, struct fold_diff **out,
                  struct err *err);
int fold_part_get(struct fold_clocks *c, int64_t attempt, int clock, struct fold_part **out,
                  struct err *err);

#endif
