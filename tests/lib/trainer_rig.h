/* trainer_rig: holds a rank's part of a model with all that its optimizer needs, for the tests of
 * the optimizer and of checkpoints. Each test opens a rig in its own way; all close it with
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
/* Returns a bench for a rig, which optim_rig_close takes back. It stays open for later rigs,
 * because filling the workspace of a new one takes longer than a step of a small model. */
struct bench rig_bench_take(enum dtype dtype);

/* Closes everything that the rig has opened, checks that its device has no other memory in use, and
 * unbinds it from the world. */
void optim_rig_close(struct rig *r);

#endif
