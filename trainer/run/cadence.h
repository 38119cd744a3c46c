/* cadence: decides how often to save if the run file leaves it open (checkpoint.every_steps 0).
 *
 * Saves cost time, and steps since the last save are lost in a failure. With the time C for which a
 * save stops the training and the mean time M between failures, the interval that loses least is
 * about sqrt(2 C M) (J. W. Young, "A first order approximation to the optimum checkpoint interval",
 * Communications of the ACM 17(9), 1974, p. 530). The higher-order estimate used here is more exact
 * (J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
 * Future Generation Computer Systems 22, 2006, p. 303, equation 37).
 *
 * C is the time of this attempt's last save, or what is known from earlier attempts, or one second
 * if nothing is known: the first save should come too early rather than too late. M comes from the
 * run's record; before a failure was measured it is a prior, see CADENCE_NODE_DAYS. Each rank
 * measures its times, and all decide by the longest, so that they save at the same steps. The
 * interval changes no number of the training.
 *
 *     struct cadence c;
 *     cadence_init(&c, mtbf_s, save_s, nodes);
 *     cadence_step(&c, step_s);   // after each step
 *     if (cadence_is_due(&c))     // after the first steps, and after each save
 *         cadence_decide(&c, world, &changed, err);   // collective
 *     c.every_steps               // 0: not decided yet
 */
#ifndef TRAINER_RUN_CADENCE_H
#define TRAINER_RUN_CADENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/comm/comm.h"

/* This many node-days between failures are assumed before any is measured: 419 unplanned
 * interruptions in 54 days on 16,384 GPUs, eight to a node ("The Llama 3 Herd of Models", 2024,
 * section 3.3.4): 2048 · 54 / 419. */
#define CADENCE_NODE_DAYS 264.0

struct cadence {
    double mtbf_s, save_s; /* M and C above */
    bool mtbf_measured, save_measured;
    /* steps_s is the time of n_steps - 1 steps: the first step of an attempt or leg, which is
     * slower, is left out. */
    double steps_s;
    int64_t n_steps;
    int64_t every_steps; /* 0: not decided yet */
    double step_s;       /* the time of a step by which that was decided */
    bool due;            /* a decision is due */
};

/* Initialises *c for an attempt. mtbf_s or save_s 0 means that it was not measured. */
void cadence_init(struct cadence *c, double mtbf_s, double save_s, int64_t nodes);
void cadence_step(struct cadence *c, double step_s);
void cadence_saved(struct cadence *c, double save_s); /* Notes how long a save stopped training. */
/* Begins to count steps anew for another layout, whose steps take other times. After its first
 * steps the interval is decided again. */
void cadence_next(struct cadence *c);
bool cadence_is_due(const struct cadence *c);
/* Decides the interval; all ranks call it. *changed: it was decided for the first time, or changed
 * by more than a tenth. */
int cadence_decide(struct cadence *c, struct comm *world, bool *changed, struct err *err);

/* Returns Daly's interval between saves, in seconds; it is at least as long as a save. */
double cadence_interval_s(double save_s, double mtbf_s);

#endif
