/* dit: the video diffusion transformer: forward and backward of one micro-batch over the ops table.
 *
 * Samples of different shapes and caption lengths share a micro-batch: their tokens are concatenated, attention stays
 * inside each sample, and noise, noise level, frame rate and text dropout are per sample. All random numbers are
 * functions of (seed, stream, draw ordinal), so grouping and layout do not change them; an empty or dropped caption is the one
 * learned null token. Architecture: essay at the top of dit_block.c; parameter names: profiles/params.c.
 *
 * Weights and gradients are flat buffers of the caller (flat.h); activations are planned by profiles/buffers.h and taken
 * from the device once, in dit_new. A step allocates nothing.
 *
 *     struct dit_config c = {.model = &m, .params = &list, .flat = &flat, ...};
 *     struct buffer_list plan = {0};
 *     dit_plan(&c, ops->act, ops->stat, &plan, err);              // what dit_new will take; add own buffers, print
 *     dit_new(&c, ops, stream, weights, grads, &d, err);
 *     dit_step(d, &batch, inv_norm, &result, err);                // grads (+)= d(inv_norm · result.loss_sum)
 *     dit_free(d);
 */
#ifndef TRAINER_DIT_H
#define TRAINER_DIT_H

#include "profiles/buffers.h"
#include "profiles/params.h"
#include "profiles/run.h"
#include "trainer/flat.h"
#include "trainer/ops.h"

struct dit_config {
    const struct model *model;       /* borrowed, like params and flat: must outlive the dit */
    const struct param_list *params;
    const struct flat *flat;
    enum objective objective;
    double level_mean, level_std;    /* of ln(sigma/alpha), see objective.h; add ln(shift) to the mean for a shift */
    double text_dropout;             /* probability */
    uint64_t seed;
    enum recompute recompute;        /* none or full */
    int64_t max_tokens, max_samples; /* of one micro-batch */
    int64_t max_text_tokens;         /* caption tokens of one micro-batch */
};

struct batch_sample {
    uint64_t ordinal;     /* draw ordinal: the sample's place in the global order of draws */
    const float *latent;  /* [C, t, h, w], normalised */
    const float *cond;    /* [cond_channels, t, h, w]; NULL: zeros */
    int32_t t, h, w;      /* latent cells; multiples of the patch */
    const float *text;    /* [text_len, text_width] */
    int32_t text_len;     /* true length, 0 = no caption */
    double fps;
    double loss_weight;   /* 1 for loss_norm token; 1 / (its latent elements) for loss_norm sample */
};
struct batch {
    const struct batch_sample *samples;
    int64_t n;       /* 0 is an empty micro-batch: loss 0, gradient 0 */
    bool accumulate; /* add to the gradients (second micro-batch of a step and on); false: overwrite all of them */
};

struct dit_result {
    double loss_sum;    /* sum over samples and latent elements of loss_weight · w · (F - T)² */
    double loss_x0_sum; /* the same error in the space of clean latents: loss_weight · (x0^ - x0)² */
    int64_t tokens, elements;
    double stage_s, forward_s, backward_s; /* copying and noising; the rest of forward; backward */
    const double *sample_loss;  /* [n] mean of w · (F - T)² of each sample; borrowed until the next step */
    const double *sample_level; /* [n] ln(sigma / alpha) drawn */
};

/* For validation and sampling: the network on given noised latents. */
struct dit_eval_sample {
    const double *x_t;    /* [C, t, h, w]: alpha · x0 + sigma · eps; the call applies c_in */
    double *out;          /* [C, t, h, w]: F */
    double level;         /* ln(sigma / alpha) */
    bool drop_text;       /* null token instead of the caption */
    const float *cond;
    int32_t t, h, w;
    const float *text;
    int32_t text_len;
    double fps;
};

struct dit;

/* The buffers of dit_new, before anything is allocated. */
int dit_plan(const struct dit_config *c, enum dtype act, enum dtype stat, struct buffer_list *plan, struct err *err);
/* Checks the configuration, plans, allocates. `weights` (ops->act) and `grads` (ops->stat) are borrowed device buffers of
 * flat->total elements; grads may be NULL for dit_forward alone. */
int dit_new(const struct dit_config *c, struct ops *ops, struct dev_stream *stream, void *weights, void *grads,
            struct dit **out, struct err *err);
void dit_free(struct dit *d);
/* Forward and backward; waits for the stream. ERR_INPUT for a batch past the planned bounds or of wrong shape. */
int dit_step(struct dit *d, const struct batch *b, double inv_norm, struct dit_result *out, struct err *err);
int dit_forward(struct dit *d, const struct dit_eval_sample *samples, int64_t n, struct err *err);

#endif
