/* Tests of the optimizer and of checkpoints stand on a rig: a rank's part of a model with all that
 * its optimizer needs. Each test opens one in its own way; they close alike. */
#ifndef TESTS_TRAINER_RIG_H
#define TESTS_TRAINER_RIG_H

#include "tests/lib/trainer_run.h"

#include "trainer/state/optim.h"

struct rig {
    struct bench b;
    struct run run;
    struct param_list params;
    struct layout layout;
    struct shards sh;
    struct comm_grid grid;
    struct optim o;
};
/* Closes what the rig has open, and takes its device from the world. */
void optim_rig_close(struct rig *r);

#endif
