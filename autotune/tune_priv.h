/* tune_priv: declares the parts of a tuning that tune.c puts together: its id, earlier trials,
 * events and progress lines. Events are durable when a call returns. */
#ifndef AUTOTUNE_TUNE_PRIV_H
#define AUTOTUNE_TUNE_PRIV_H

#include "autotune/tune.h"

/* Fills in program, learns, id and dir. */
int tune_identify(struct tune *t, struct err *err);
/* Lists the layouts of the trials that earlier tunings with the same id (tune.h: the question)
 * recorded. The caller frees *out. */
int tune_recorded(const struct tune *t, struct layout **out, size_t *n, struct err *err);
/* Takes over the trials that earlier tunings with the same id recorded. */
int tune_reuse(struct tune *t, struct err *err);
/* Writes the layout that a trial of item i runs, and returns the samples of its step. */
int64_t tune_trial_layout(const struct tune *t, int64_t i, struct layout *out);
/* Remembers the present trial as the evidence for layout i, unless a faster trial of it is
 * recorded. */
void tune_trial_name(struct tune *t, int64_t i, double measured_s);

int tune_event_started(struct tune *t, struct err *err);
/* Records the prediction of item i's trial, whose plan is *p, and that the trial starts. */
int tune_event_predicted(struct tune *t, int64_t i, const struct plan *p, struct err *err);
int tune_event_trial_ended(struct tune *t, const struct plan *p, const struct trial_result *r,
                           bool disturbed, struct err *err);
/* Reads the CPU seconds of each class from a trial_ended event, by price's terms; 0: not known. */
void tune_event_classes_read(const cJSON *event, double class_s[PRICE_TERMS]);
/* Records that the tuning ended while its last trial was still running, so that this trial says
 * nothing about its layout. A tuning that was killed could not record it; the next one with the
 * same id does. */
int tune_event_trial_left(struct tune *t, struct err *err);
/* Tells whether a trial is running after this event, given whether one was running before it. */
bool tune_event_runs(const cJSON *event, bool before);
int tune_event_ended(struct tune *t, struct err *err);
/* Tells conf.say, if there is one, how this plan's trial went. */
void tune_say_trial(const struct tune *t, const struct plan *p, const struct trial_result *r);

#endif
