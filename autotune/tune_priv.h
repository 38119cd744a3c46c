/* tune_priv: the parts of a tuning that tune.c puts together: its name, earlier trials, records and
 * what it says. Events are durable when a call returns. */
#ifndef AUTOTUNE_TUNE_PRIV_H
#define AUTOTUNE_TUNE_PRIV_H

#include "autotune/tune.h"

/* Fills in program, learns, id and dir. */
int tune_identify(struct tune *t, struct err *err);
/* Lists the layouts that an earlier search for the same question has on record. *out is the
 * caller's. */
int tune_recorded(const struct tune *t, struct layout **out, size_t *n, struct err *err);
/* Takes over what an earlier search for the same question has on record. */
int tune_reuse(struct tune *t, struct err *err);
/* Writes what a trial of item i runs, and returns its samples of a step. */
int64_t tune_trial_layout(const struct tune *t, int64_t i, struct layout *out);
/* Remembers the present trial as the evidence for layout i, unless an earlier, faster trial of it
 * stands. */
void tune_trial_name(struct tune *t, int64_t i, double measured_s);

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
