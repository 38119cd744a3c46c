/* trainer_train: trains runs in scratch folders, and reads their checkpoints and events, for the
 * tests of training. */
#ifndef TESTS_TRAINER_TRAIN_H
#define TESTS_TRAINER_TRAIN_H

#include "tests/lib/trainer_run.h"

#include <signal.h>

#include "base/evlog.h"
#include "trainer/ckpt/ckpt_diff.h"
#include "trainer/ckpt/ckpt_priv.h"
#include "trainer/run/train.h"

/* ---- training into <scratch>/<name>, by the first ranks of the world ---- */

extern volatile sig_atomic_t stop;
extern const char *volatile phase; /* phase of this rank's training */

struct job {
    const char *name, *layout;
    int64_t attempt, max_steps, memory_limit_bytes;
    bool trial, profile;
    struct plan *plan; /* used instead of layout */
    const char *layouts[LIMIT_STAGES]; /* layout of each stage, used instead of layout */
    const struct coll_ops *coll;
};

int try_train(struct run *run, const struct job *j, struct train_report *report,
              struct err *err);
struct train_report train(struct run *run, const struct job *j);

/* ---- comparing ---- */

void ckpt_open(const char *name, int64_t step, char dir[600], struct ckpt_manifest *m);

/* Returns the largest relative difference over the tensors of weights, moments and average. Only
 * rank 0 compares; the others get 0. */
double difference(const char *name_a, const char *name_b, int64_t step);

enum { STEPS_MAX = 100 };
struct told_steps {
    double loss[STEPS_MAX], loss_x0[STEPS_MAX], norm[STEPS_MAX];
    int64_t bad_rank[STEPS_MAX];
    bool was_skipped[STEPS_MAX];
    char spike[STEPS_MAX][16], bad_in[STEPS_MAX][40], bad_op[STEPS_MAX][80];
    int64_t n, skipped, loaded, saved;
    char end[16];
};

/* Checks that the phases of a step are not negative and add up to its duration. */
void phases_check(const cJSON *e);

/* Reads rank 0's log of one attempt. */
struct told_steps told(const char *name, int64_t attempt);
/* ---- each test in a folder of its own, with a dataset ---- */

int train_setup(void **state);

#define CASE(f) cmocka_unit_test_setup_teardown(f, train_setup, shared_teardown)

#endif
