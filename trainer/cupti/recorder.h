/* recorder: one recording of this process's GPU by CUPTI's activity API.
 *
 * CUPTI fills buffers that it asks for and gives back, on a thread of its own. They come from a
 * pool of a fixed number; when none is free CUPTI drops records and counts them. */
#ifndef TRAINER_CUPTI_RECORDER_H
#define TRAINER_CUPTI_RECORDER_H

#include "trainer/watch/activity.h"

/* Begin and end a recording, as activity.h says of the library. Without
 * ranges, and with facts of no steps, all that was recorded is one. */
int recorder_begin(struct err *err);
int recorder_end(const struct activity_facts *facts, const char *path, struct activity_result *out,
                 struct err *err);

#endif
