/* recorder: makes one recording of this process's GPU by CUPTI's activity API.
 *
 * CUPTI asks for buffers, fills them and gives them back, on a thread of its own. They come from a
 * pool of fixed size; when none is free CUPTI drops records and counts them. */
#ifndef TRAINER_CUPTI_RECORDER_H
#define TRAINER_CUPTI_RECORDER_H

#include "trainer/watch/activity.h"

/* Begin and end a recording, as described in activity.h. Without ranges named "step…", and with
 * facts->steps 0, the whole recording counts as one step. */
int recorder_begin(struct err *err);
int recorder_end(const struct activity_facts *facts, const char *path, struct activity_result *out,
                 struct err *err);

#endif
