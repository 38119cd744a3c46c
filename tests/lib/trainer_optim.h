/* trainer_optim: makes a rank's part of a small model with its optimizer, and gradients whose sum
 * over the ranks does not depend on the layout, for the tests of the optimizer. Each rank's device
 * is bound to the world, so that groups can exchange its memory; tests read and write it by copies.
 */
#ifndef TESTS_TRAINER_OPTIM_H
#define TESTS_TRAINER_OPTIM_H

#include "tests/lib/trainer_rig.h"

#include "tests/lib/optim_step.h"

/* The conditioning has most of a small model's elements (70 000), which are slow to check one by
 * one; so only some tests use it. */
extern bool conditioned;
extern enum run_moments rig_moments;
extern enum dtype number; /* DTYPE_F64 until a test sets another */

/* Makes a run of a model with two heads of k and v, so that tp 4 copies them. */
void run_make_wide(struct run *run);

/* Opens a rig with `layout` and this level of zero, which `layout` does not give. */
void optim_rig_open_layout(struct rig *r, const char *layout, int zero);
void optim_rig_open(struct rig *r, int zero);

/* ---- gradients: the parts of the ranks sum to a number that does not depend on the layout ---- */

/* Returns a pseudo-random number from -1 to 1 (in odd steps 2^10 times smaller) with so few digits
 * that sums of such numbers are exact. */
double grad_number(uint64_t seed, int64_t step, int64_t id, int64_t global);
double grad_whole(int64_t step, int64_t t, int64_t global);

/* Returns part i of n. All parts are random but the last one, which makes their sum equal to
 * grad_whole. */
double grad_part(int64_t step, int64_t t, int64_t global, int64_t i, int64_t n);

/* Returns the gradient of local element j that the model on data rank `data`, at our tp and pp
 * place, computes. */
double grad_local(const struct rig *r, int64_t step, int64_t t, int64_t j, int64_t data);
void grad_add(const struct rig *r, void *grads, int64_t at, double g);

/* Fills the gradients as the model leaves them. Whole buffers hold this rank's gradients; with zero
 * 2 and 3, own pieces hold the sum over the shard group. Gaps are zero. */
void grads_fill(const struct rig *r, int64_t step);
bool fits(const char *layout);

static const char *const layouts[] = {"dp=1",
                                      "dp=2", "cp=2,fsdp=2", "cp=2", "tp=2", "tp=2,sp=1", "pp=2",
                                      "pp=2,vpp=2", "dp=3", "dp=4", "dp=4,fsdp=2", "dp=4,fsdp=1",
                                      "cp=2,dp=2", "cp=2,dp=2,fsdp=4", "tp=2,dp=2",
                                      "tp=2,sp=1,cp=2", "tp=4", "tp=4,sp=1", "pp=2,dp=2", "pp=4",
                                      "tp=2,pp=2", "tp=2,pp=2,dp=2", "tp=4,dp=2", "tp=4,pp=2,vpp=2",
                                      "tp=2,sp=1,cp=2,dp=2,fsdp=2"};

#endif
