/* Tests of the optimizer share a rank's part of a small model with its optimizer, and gradients
 * that add up, over the ranks that hold parts of them, to numbers that no layout knows of.
 * Each rank's device is the world's, so that groups exchange its memory; a test reads and writes it
 * by copies.
 */
#ifndef TESTS_TRAINER_OPTIM_H
#define TESTS_TRAINER_OPTIM_H

#include "tests/lib/trainer_rig.h"

#include "tests/lib/optim_step.h"

/* The conditioning's 70 000 elements are most of a small model, and slow to check one by one: only
 * some tests have them. */
extern bool conditioned;
extern enum run_moments rig_moments;
extern enum dtype number; /* DTYPE_F64 until a test sets another */

/* Makes a run of a model with two heads of k and v, so that tp 4 copies them. */
void run_make_wide(struct run *run);

/* Opens a rig under `layout`, which is without its zero. */
void optim_rig_open_layout(struct rig *r, const char *layout, int zero);
void optim_rig_open(struct rig *r, int zero);

/* ---- gradients: what adds up, over the ranks that hold parts of it, to a number that no layout
 * knows of ---- */

/* Returns any number from -1 to 1, small in odd steps, of so few digits that sums of them are
 * exact. */
double grad_number(uint64_t seed, int64_t step, int64_t id, int64_t global);
double grad_whole(int64_t step, int64_t t, int64_t global);

/* Returns part i of n: random ones, and a last one that makes the sum right. */
double grad_part(int64_t step, int64_t t, int64_t global, int64_t i, int64_t n);

/* Returns what the model on data rank `data` of our tp and pp place leaves for local element j. */
double grad_local(const struct rig *r, int64_t step, int64_t t, int64_t j, int64_t data);
void grad_add(const struct rig *r, void *grads, int64_t at, double g);

/* Fills the gradients as the model leaves them: whole buffers hold this rank's; own pieces (zero 2,
 * 3) the sum over the shard group; gaps zero. */
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
