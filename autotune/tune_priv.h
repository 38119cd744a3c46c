/* tune_priv: the events that a tuning records, for tune.c. They are durable when a call returns. */
#ifndef AUTOTUNE_TUNE_PRIV_H
#define AUTOTUNE_TUNE_PRIV_H

#include "autotune/tune.h"

int tune_event_started(struct tune *t, struct err *err);
/* Records the prediction of item i's trial, whose plan this is, and that the trial starts. */
int tune_event_predicted(struct tune *t, int64_t i, const struct plan *p, struct err *err);
int tune_event_trial_ended(struct tune *t, const struct plan *p, const struct trial_result *r,
                           bool disturbed, struct err *err);
int tune_event_ended(struct tune *t, struct err *err);

#endif
