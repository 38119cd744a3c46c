/* Tests of the model share small models, a batch of mixed shapes, and a rig that holds
 * one rank's part of a model with random weights, the same whatever the layout. */
#ifndef TESTS_TRAINER_MODEL_H
#define TESTS_TRAINER_MODEL_H

#include "tests/lib/trainer_fixture.h"

#include "profiles/shard.h"
#include "trainer/data/objective.h"
#include "trainer/dit/dit.h"
#include "trainer/run/pipe.h"
#include "trainer/state/init.h"
#include "trainer/state/optim.h"

enum { CHANNELS = 3, TEXT_WIDTH = 5, SEED = 1 };

/* ---- samples: mixed shapes, captions of 0 to 4 tokens; with seed 1 and probability 0.5 some
 * captions drop ---- */

enum { SAMPLES = 4, MAX_CELLS = 24, BATCH_TOKENS = 24, BATCH_TEXT = 8 };
static const struct { int32_t t, h, w, text_len; double fps; } shapes[SAMPLES] = {
    {2, 4, 2, 3, 24}, {1, 2, 4, 0, 30}, {3, 4, 2, 1, 12}, {1, 4, 6, 4, 30},
};

extern int32_t text_most; /* captions are cut to so many tokens */

struct data {
    struct batch_sample samples[SAMPLES];
    float latent[SAMPLES][CHANNELS * MAX_CELLS], cond[SAMPLES][2 * MAX_CELLS],
        text[SAMPLES][4 * TEXT_WIDTH];
};

void fill_float(float *out, int n, uint64_t id);

static const struct run_level batch_level = {.mean = -0.3, .std = 0.8, .shift = 1};

void data_init(struct data *d);

/* ---- one rank's part of a model with random weights ---- */

/* The devices of ranks exchange memory by this; NULL: by pinned memory and messages of the host. */
extern const struct coll_ops *rig_coll;

/* Rigs stand on this bench, which they leave open and as it was; NULL: each opens one of its own. */
extern const struct bench *rig_bench;

struct rig {
    struct bench b;
    bool is_lent; /* the bench */
    struct model m;
    struct finetune finetune;
    struct layout layout;
    struct comm *self; /* opened here: a world of one */
    struct comm *world;
    struct param_list list;
    struct shards sh;
    struct comm_grid grid;
    struct units units;
    struct optim optim;    /* zeroed without a run */
    void *weights, *grads; /* device */
    struct dit_config config;
    struct dit *dit;
    struct pipe pipe;
    struct data data;
};

/* Returns the elements of a device buffer that zero shards from `level` on: of the weights with 3,
 * else of what is trained. */
int64_t rig_elements(const struct rig *r, int level);

/* Draws tensor i of the whole model. All numbers are random and not zero, because gates and outputs
 * of zero would hide a broken attention. */
double *rig_tensor_draw(const struct param *p, int64_t i);

/* Returns the same, drawn once for all the layouts of a process. It belongs to this function until
 * another model's tensor i takes its place. */
const double *rig_tensor(const struct rig *r, int64_t i);

/* Returns this rank's whole flat buffer of weights, new. */
double *rig_flat(const struct rig *r);

/* Puts n flat numbers at element `at` of a device buffer. */
void rig_put_run(const struct rig *r, const double *flat, int64_t n, void *buffer,
                 enum dtype dtype, int64_t at);

/* Puts units 0 .. n-1 of the flat numbers into a buffer of this rank's pieces, or into a buffer of
 * everything. */
void rig_put(const struct rig *r, const double *flat, int64_t n, void *buffer,
             enum dtype dtype, bool whole);

/* Sets the weights, and the masters where there are any. */
void rig_weights(struct rig *r);

/* The optimizer is not told that the sums of this tensor are partial ones over ranks; -1: it is
 * told of all. */
extern int64_t rig_unsummed;

int rig_optim(struct rig *r, const struct optim_conf *c, struct err *err);
void rig_memory(struct rig *r, struct comm *world, const struct run *run);

/* Opens a rig. world NULL: it is alone. run: it has an optimizer, and its weights and gradients are
 * the optimizer's. */
void rig_open_tuned(struct rig *r, struct comm *world, const struct model *m,
                    const struct layout *l, enum objective objective,
                    enum dtype dtype, const struct run *run,
                    const struct finetune *finetune);
void rig_open_run(struct rig *r, struct comm *world, const struct model *m,
                  const struct layout *l, enum objective objective, enum dtype dtype,
                  const struct run *run);

/* Returns what an object with the members "groups" and "lora" says is trained; of NULL, an empty
 * one. */
struct finetune finetune_of(const char *text);
void rig_open(struct rig *r, struct comm *world, const struct model *m,
              const struct layout *l, enum objective objective, enum dtype dtype);
void rig_close(struct rig *r);

static const double INV_NORM = 1.0 / 37;

/* Computes a micro-batch with a dit of the rig, as a pipeline of one stage does. */
int step_try(const struct rig *r, struct dit *d, const struct batch *b,
             struct dit_result *out, struct err *err);

/* Computes a micro-batch of the rig. `accumulate`: it is not the first of its step. */
struct dit_result step(struct rig *r, int first, int n, bool accumulate);

#endif
