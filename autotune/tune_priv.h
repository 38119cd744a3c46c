/* tune_priv: what a tuning records and says, for tune.c. Events are durable when a call returns. */
#ifndef AUTOTUNE_TUNE_PRIV_H
#define AUTOTUNE_TUNE_PRIV_H

#include "autotune/tune.h"

int tune_event_started(struct tune *t, struct err *err);
/* Records the prediction of item i's trial, whose plan this is, and that the trial starts. */
int tune_event_predicted(struct tune *t, int64_t i, const struct plan *p, struct err *err);
int tune_event_trial_ended(struct tune *t, const struct plan *p, const struct trial_result *r,
                           bool disturbed, struct err *err);
/* Reads from the end of a trial what its classes took on CPUs, by price's terms; 0: not known. */
void tune_event_classes_read(const cJSON *event, double class_s[PRICE_TERMS]);
/* Records of the trial that started last that the tuning ended before it: it says nothing about its
 * layout. A tuning that was killed could not; the next one of the same question does. */
int tune_event_trial_left(struct tune *t, struct err *err);
/* Tells whether a trial runs after this event, when before it one did or not. */
bool tune_event_runs(const cJSON *event, bool before);
int tune_event_ended(struct tune *t, struct err *err);
/* Says how the trial of this plan went, where somebody listens. */
void tune_say_trial(const struct tune *t, const struct plan *p, const struct trial_result *r);

#endif
