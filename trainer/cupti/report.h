/* report: the file of a recording (reel.activity/1): one JSON object, of one rank. All times are
 * seconds of a step. */
#ifndef TRAINER_CUPTI_REPORT_H
#define TRAINER_CUPTI_REPORT_H

#include "trainer/cupti/records.h"
#include "trainer/watch/activity.h"

/* Publishes the file. The records are joined. */
int report_write(const struct records *r, const struct activity_facts *facts,
                 const struct activity_result *result, const char *path, struct err *err);

#endif
