/* dit: the video diffusion transformer: forward and backward of one micro-batch over the ops table.
 *
 * Samples of different shapes and caption lengths share a micro-batch: their tokens are concatenated, attention stays
 * inside each sample, and noise, noise level, frame rate and text dropout are per sample. The noise is a function of
 * (seed, draw ordinal), so grouping and layout do not change it; an empty or dropped caption is the one
 * learned null token. Architecture: essay at the top of dit_block.c; parameter names: profiles/params.c.
 *
 * Layouts. This rank holds its shards of the weights (profiles/shard.h) and computes: with tp, its heads and columns, the sums
 * over tp ranks where a row-parallel product ends; with sp, its part of the tokens in the residual stream; with cp, its run of
 * every sample, attention in dit_cp.c and dit_segments.c. Gradients are those of this rank's part: shard_tensor.sums says where they remain to be summed.
 * What a layout may not change: loss and gradients of the global batch, up to rounding.
 *
 * Weights and gradients are reached by units.h; activations are planned by profiles/buffers.h and taken from the device once, in
 * dit_new. A step allocates nothing.
 *
 *     struct dit_config c = {.model = &m, .params = &list, .shards = &sh, .layout = &layout, .grid = &grid, ...};
 *     struct buffer_list memory = {0};
 *     dit_memory(&c, ops->act, ops->stat, &memory, err);          // what dit_new will take; add own buffers, print
 *     dit_new(&c, ops, stream, &units, &d, err);
 *     units_begin(&units, micros, 1);
 *     dit_step(d, &batch, inv_norm, &result, err);                // grads (+)= d(inv_norm · loss of the batch); every micro-batch
 *     units_flush(&units);
 *     dit_free(d);
 */
#ifndef TRAINER_DIT_DIT_H
#define TRAINER_DIT_DIT_H

#include "profiles/buffers.h"
#include "profiles/params.h"
#include "profiles/run.h"
#include "profiles/tuning.h"
#include "trainer/comm/comm.h"
#include "trainer/data/batch.h"
#include "trainer/ops/ops.h"
#include "trainer/state/units.h"

struct dit_config {
    const struct model *model;       /* borrowed, like all pointers here: must outlive the dit */
    const struct tuning *tuning;     /* its adapters; NULL: none */
    const struct param_list *params;
    const struct shards *shards;
    const struct layout *layout;
    const struct comm_grid *grid;
    enum objective objective;
    uint64_t seed;
    int64_t max_tokens, max_samples; /* of one micro-batch, over all context-parallel ranks */
    int64_t max_text_tokens;         /* caption tokens of one micro-batch */
    int64_t max_segment;             /* seq_longest_segment() of a sample; 0: not known, more memory for stdit under cp */
    int64_t slots;                   /* chunks of micro-batches whose activations are held at a time; 0: 1 */
    bool residual_wide;              /* the residual stream and its gradient are of the table's stat */
};

/* Of the tokens in this rank's residual stream: to be summed over cp ranks, and with sp over tp ranks. */
struct dit_result {
    double loss_sum;    /* sum over samples and latent elements of loss_weight · w · (F - T)² */
    double loss_x0_sum; /* the same error in the space of clean latents: loss_weight · (x0^ - x0)² */
    int64_t tokens;
    double stage_s, forward_s, backward_s; /* copying and noising; the rest of forward; backward */
    const double *sample_loss;  /* [n] mean of w · (F - T)² of each sample; borrowed until the next step */
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
/* Most of all ranks that its sums over tp have on the way at a time. */
int64_t dit_tp_sum_bytes(const struct dit_config *c, enum dtype act, enum dtype stat);
int dit_memory(const struct dit_config *c, enum dtype act, enum dtype stat, struct buffer_list *memory, struct err *err);
/* Checks the configuration, plans, allocates. */
int dit_new(const struct dit_config *c, struct ops *ops, struct dev_stream *stream, struct units *units, struct dit **out,
            struct err *err);
void dit_free(struct dit *d);
/* Forward and backward; waits for the stream. ERR_INPUT for a batch past the planned bounds or of wrong shape. pp is 1. */
int dit_step(struct dit *d, const struct batch *b, double inv_norm, struct dit_result *out, struct err *err);
/* The same in parts, for pipelines: chunk `chunk` (of all pp·vpp) of a micro-batch, in slot `slot`.
 *     dit_begin(d, slot, chunk, &batch, err);       // inputs laid out
 *     receive into dit_boundary_in(d, slot)         // unless it is the first chunk: [rows, D]
 *     dit_chunk_forward(d, slot, inv_norm);
 *     send dit_boundary_out(d, slot)                // unless it is the last chunk; its memory is written by the next forward in the slot
 *     ...
 *     receive into dit_gradient_in(d, slot)         // unless the last chunk
 *     dit_chunk_backward(d, slot);
 *     send dit_gradient_out(d, slot)                // unless the first chunk; its memory is written by the next backward
 *     dit_chunk_result(d, slot, &batch, &result)    // of the last chunk, right after its forward
 */
int dit_begin(struct dit *d, int64_t slot, int64_t chunk, const struct batch *b, struct err *err);
void dit_chunk_forward(struct dit *d, int64_t slot, double inv_norm);
void dit_chunk_backward(struct dit *d, int64_t slot);
struct tensor dit_boundary_in(struct dit *d, int64_t slot);
struct tensor dit_boundary_out(struct dit *d, int64_t slot);
struct tensor dit_gradient_in(struct dit *d, int64_t slot);
struct tensor dit_gradient_out(struct dit *d, int64_t slot);
void dit_chunk_result(struct dit *d, int64_t slot, const struct batch *b, struct dit_result *out);
/* What went wrong on the way: of communication, of the units', of the device; waits for the stream. */
int dit_failed(struct dit *d, struct err *err);
/* Wants a layout without sp, cp and pp: a rank knows its own tokens' output only. */
int dit_forward(struct dit *d, const struct dit_eval_sample *samples, int64_t n, struct err *err);

#endif
