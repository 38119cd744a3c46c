/* report: writes the file of a recording (reel.activity/1): one JSON object, for one rank. All
 * times are seconds per step. */
#ifndef TRAINER_CUPTI_REPORT_H
#define TRAINER_CUPTI_REPORT_H

#include "trainer/cupti/records.h"
#include "trainer/watch/activity.h"

/* Writes and publishes the file. records_join must have been called. */
int report_write(const struct records *r, const struct activity_facts *facts,
                 const struct activity_result *result, const char *path, struct err *err);

#endif
