/* trainer_rig: a rank's part of a model with all that its optimizer needs, for the tests of the
 * optimizer and of checkpoints. Each test opens a rig in its own way; all close it with
 * optim_rig_close. */
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
/* Closes everything that the rig has opened, and unbinds its device from the world. */
void optim_rig_close(struct rig *r);

#endif
