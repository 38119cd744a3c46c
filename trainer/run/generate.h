/* generate: makes samples from a checkpoint. Each rank makes its share of the batches on its own; a
 * sample does not depend on the rank that makes it.
 *
 * Captions, shapes and frame rates (and first frames, if they are given) are those of draws of a
 * dataset, in the order of the run's seed, so a held-out set is sampled like a training set. Each
 * sample starts from noise that is a function of (seed, its number in the dataset). Latents are
 * written in the dataset's units as `<number, 6 digits>.npy`, float32 [C, t, h, w], for
 * `reel-curate decode`.
 *
 * generate_open comes first; it refuses if samples exist already, those of other ranks too. When
 * all ranks have opened, generate_make follows, then generate_close.
 */
#ifndef TRAINER_RUN_GENERATE_H
#define TRAINER_RUN_GENERATE_H

#include "profiles/run.h"
#include "trainer/data/sampler.h"
#include "trainer/ops/compute.h"

struct generate_conf {
    const struct run *run; /* the run that wrote the checkpoint: objective, numbers and seed */
    const char *run_path;  /* the file of that run */
    const char *ckpt, *data, *out; /* folders; data may be "synthetic:TxHxW" */
    bool average;          /* use the average of the weights, which the checkpoint must have */
    bool first_frames;     /* give the model the data's first frames */
    bool force;            /* write over samples that exist already */
    /* These are the first draw, the number of samples (fewer are made if the pass over the data
     * ends before), and how many samples to make at a time. */
    int64_t first, samples, batch;
    int64_t rank, ranks; /* every ranks-th batch, from number `rank` on, is made here */
    double guidance;     /* 1: none; g: null + g (caption - null), of clean estimates */
    uint64_t seed;
    enum sampler_kind sampler;
    int64_t steps;
    double level_max, level_min;
    struct compute_conf compute; /* the generator sets poison and dtype itself */
    void (*say)(void *ctx, const char *line); /* may be NULL */
    void *say_ctx;
};
struct generate;
/* Opens a generator; keeps conf. *out is new. ERR_EXISTS: a sample of any rank exists, and conf has
 * no force. */
int generate_open(const struct generate_conf *conf, struct generate **out, struct err *err);
/* Generates this rank's samples. *made becomes the number of samples that it has written. */
int generate_make(struct generate *g, int64_t *made, struct err *err);
void generate_close(struct generate *g); /* NULL is fine */

#endif
