/* trace: the spans of all ranks as one picture, for Perfetto and chrome://tracing. Format: essay at the top of trace.c.
 *
 *     trace_align(world, &clock, err);                  // collective, when the groups are open
 *     ...
 *     trace_write(path, &meter, &clock, world, err);    // collective, at the end; the file is rank 0's
 */
#ifndef TRAINER_WATCH_TRACE_H
#define TRAINER_WATCH_TRACE_H

#include "trainer/watch/meter.h"

struct trace_clock {
    double zero_s;   /* rank 0's clock_mono_s when the trace began */
    double offset_s; /* to be taken from this rank's clock_mono_s to get rank 0's */
};
int trace_align(struct comm *world, struct trace_clock *out, struct err *err);
/* ERR_IO on all ranks when rank 0 cannot write. Allocates: after the last step. */
int trace_write(const char *path, const struct meter *m, const struct trace_clock *clock, struct comm *world, struct err *err);

#endif
