/* optim_step: sums the gradients and updates the weights in one call. */
#ifndef TESTS_OPTIM_STEP_H
#define TESTS_OPTIM_STEP_H

#include "trainer/state/optim.h"

int optim_step(struct optim *o, int64_t step, double norm_limit,
               struct optim_result *out, struct err *err);

#endif
