/* trace: writes the spans of all ranks into one file, for Perfetto and chrome://tracing. Rank 0
 * writes it. The essay at the top of trace.c gives the format.
 *
 *     trace_align(world, &clock, err);                // by all ranks, when the groups are open
 *     ...
 *     trace_write(path, &meter, &clock, world, err);  // by all ranks, at the end
 */
#ifndef TRAINER_WATCH_TRACE_H
#define TRAINER_WATCH_TRACE_H

#include "trainer/watch/meter.h"

struct trace_clock {
    double zero_s;   /* rank 0's clock_mono_s when the trace began */
    double offset_s; /* what to subtract from this rank's clock_mono_s to get rank 0's */
};
int trace_align(struct comm *world, struct trace_clock *out, struct err *err);
/* Writes the file. If rank 0 cannot write it, all ranks return its error. The call allocates
 * memory, so it comes after the last step. */
int trace_write(const char *path, const struct meter *m, const struct trace_clock *clock,
                struct comm *world, struct err *err);

#endif
