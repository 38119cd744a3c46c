/* trainer_model: makes a batch of mixed shapes, and a rig that holds one rank's part of a small
 * model with random weights, which are the same in every layout. The tests of the model use it. */
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
 * captions are dropped ---- */

enum { SAMPLES = 4, MAX_CELLS = 24, BATCH_TOKENS = 24, BATCH_TEXT = 8 };
static const struct { int32_t t, h, w, text_len; double fps; } shapes[SAMPLES] = {
    {2, 4, 2, 3, 24}, {1, 2, 4, 0, 30}, {3, 4, 2, 1, 12}, {1, 4, 6, 4, 30},
};

extern int32_t text_most; /* captions are cut to this many tokens */

struct data {
    struct batch_sample samples[SAMPLES];
    float latent[SAMPLES][CHANNELS * MAX_CELLS], cond[SAMPLES][2 * MAX_CELLS],
        text[SAMPLES][4 * TEXT_WIDTH];
};

void fill_float(float *out, int n, uint64_t id);

static const struct run_level batch_level = {.mean = -0.3, .std = 0.8, .shift = 1};

void data_init(struct data *d);

/* ---- one rank's part of a model with random weights ---- */

/* The devices of ranks exchange memory by these operations; NULL: by pinned memory and messages
 * of the host. */
extern const struct coll_ops *rig_coll;

/* Rigs use this bench and leave it open and idle; NULL: each rig opens its own. */
extern const struct bench *rig_bench;

struct rig {
    struct bench b;
    bool is_lent; /* the bench belongs to rig_bench */
    struct model m;
    struct finetune finetune;
    struct layout layout;
    struct comm *self; /* a world of one rank, opened by the rig */
    struct comm *world;
    struct param_list list;
    struct shards sh;
    struct comm_grid grid;
    struct units units;
    struct optim optim;    /* zero in a rig without a run */
    void *weights, *grads; /* device */
    struct dit_config config;
    struct dit *dit;
    struct pipe pipe;
    struct data data;
};

/* Returns the number of elements of a device buffer that zero shards from level `level` on: of all
 * weights for level 3, else of the trained ones. */
int64_t rig_elements(const struct rig *r, int level);

/* Draws tensor i of the whole model. All numbers are random and not zero, because zero gates and
 * outputs would hide a broken attention. */
double *rig_tensor_draw(const struct param *p, int64_t i);

/* Returns what rig_tensor_draw returns, but draws it only once for all layouts in a process. The
 * result is borrowed until another model's tensor i is drawn. */
const double *rig_tensor(const struct rig *r, int64_t i);

/* Returns this rank's whole flat buffer of weights; the caller frees it. */
double *rig_flat(const struct rig *r);

/* Copies n flat numbers to element `at` of a device buffer. */
void rig_put_run(const struct rig *r, const double *flat, int64_t n, void *buffer,
                 enum dtype dtype, int64_t at);

/* Copies units 0 .. n-1 of the flat numbers into a buffer: all of them if `whole`, else this rank's
 * piece of each. */
void rig_put(const struct rig *r, const double *flat, int64_t n, void *buffer,
             enum dtype dtype, bool whole);

/* Sets the weights, and the master weights if there are any. */
void rig_weights(struct rig *r);

/* The partial sums over ranks of the tensor with this index are hidden from the optimizer; -1: no
 * tensor's are. */
extern int64_t rig_unsummed;

int rig_optim(struct rig *r, const struct optim_conf *c, struct err *err);
void rig_memory(struct rig *r, struct comm *world, const struct run *run);

/* Opens a rig. world NULL: the rig has a world of one rank. run: it has an optimizer, which owns
 * its weights and gradients; NULL: it has none. */
void rig_open_tuned(struct rig *r, struct comm *world, const struct model *m,
                    const struct layout *l, enum objective objective,
                    enum dtype dtype, const struct run *run,
                    const struct finetune *finetune);
void rig_open_run(struct rig *r, struct comm *world, const struct model *m,
                  const struct layout *l, enum objective objective, enum dtype dtype,
                  const struct run *run);

/* Parses an object with the members "groups" and "lora", which say what is trained. NULL gives an
 * empty one. */
struct finetune finetune_of(const char *text);
void rig_open(struct rig *r, struct comm *world, const struct model *m,
              const struct layout *l, enum objective objective, enum dtype dtype);
void rig_close(struct rig *r);

static const double INV_NORM = 1.0 / 37;

/* Computes a micro-batch with a dit of the rig, as in a pipeline of one stage. */
int step_try(const struct rig *r, struct dit *d, const struct batch *b,
             struct dit_result *out, struct err *err);

/* Computes a micro-batch of the rig. `accumulate`: it is not the first one of its step. */
struct dit_result step(struct rig *r, int first, int n, bool accumulate);

#endif
