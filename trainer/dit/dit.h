/* dit: computes the video diffusion transformer: forward and backward of one micro-batch over the
 * ops table.
 *
 * Samples of different shapes and caption lengths share a micro-batch: their tokens are
 * concatenated, attention stays inside each sample, and noise, noise level, frame rate and text
 * dropout are per sample. The noise is a function of (seed, draw ordinal), so grouping and layout
 * do not change it. An empty or dropped caption is replaced by the one learned null token. The
 * essay at the top of dit_block.c describes the architecture; profiles/params.c has the names of
 * the parameters.
 *
 * Layouts. This rank holds its shards of the weights (profiles/shard.h) and computes a part of the
 * model: with tp, its heads and columns, and the sums over tp ranks after row-parallel products;
 * with sp, its part of the tokens in the residual stream; with cp, its part of every sample, with
 * attention across ranks in dit_cp.c and dit_segments.c. The gradients are those of this rank's
 * part; shard_tensor.sums says over which ranks they still have to be summed. No layout changes
 * loss and gradients of the global batch, up to rounding.
 *
 * Calls queue work. They may wait for messages (comm.h); apart from that only two wait for the
 * device: dit_forward, and dit_begin as follows. Where device memory is not host memory, a
 * micro-batch is staged in one of two pinned buffers, so that the host can read and lay out the
 * next ones while the device computes. dit_begin waits if neither buffer has been copied to the
 * device yet. Losses stay in device memory until the step ends.
 *
 * units.h gives access to weights and gradients. profiles/buffers.h plans the activations, and
 * dit_new allocates them once. A step allocates nothing.
 *
 *     struct dit_config c = {.model = &m, .params = &list, .shards = &sh, .layout = &layout,
 *                            .grid = &grid, ...};
 *     struct buffer_list memory = {0};
 *     // lists what dit_new will allocate; add other buffers, print
 *     dit_memory(&c, ops->act, ops->stat, &memory, err);
 *     dit_new(&c, ops, stream, &units, &d, err);
 *     units_begin(&units, micros, 1);
 *     // every micro-batch, without a pipeline: grads (+)= d(inv_norm · loss of the batch)
 *     dit_begin(d, 0, 0, &batch, inv_norm, err);
 *     dit_chunk_forward(d, 0);
 *     dit_chunk_backward(d, 0);
 *     dit_failed(d, err);
 *     units_flush(&units);
 *     dit_results_queue(d);           // losses of all micro-batches since the last call
 *     dev->stream_sync(dev, stream, err);
 *     dit_results_take(d, &result);
 *     dit_free(d);
 */
#ifndef TRAINER_DIT_DIT_H
#define TRAINER_DIT_DIT_H

#include "profiles/buffers.h"
#include "profiles/params.h"
#include "profiles/run.h"
#include "profiles/finetune.h"
#include "trainer/comm/comm.h"
#include "trainer/data/batch.h"
#include "trainer/ops/ops.h"
#include "trainer/state/units.h"

struct dit_config {
    const struct model *model;   /* borrowed, like all pointers here: must outlive the dit */
    const struct finetune *finetune; /* gives the adapters; NULL: there are none */
    const struct param_list *params;
    const struct shards *shards;
    const struct layout *layout;
    const struct comm_grid *grid;
    enum objective objective;
    uint64_t seed;
    /* the most that one micro-batch holds, over all context-parallel ranks */
    int64_t max_tokens, max_samples;
    int64_t max_text_tokens; /* the most caption tokens of one micro-batch */
    /* the largest seq_longest_segment() of a sample; 0: not known, and then stdit under cp needs
     * more memory */
    int64_t max_segment;
    /* how many chunks of micro-batches have their activations in memory at a time; 0 means 1 */
    int64_t slots;
    bool residual_wide; /* the residual stream and its gradient have the table's stat type */
    /* the most micro-batches whose losses are held until dit_results_take; 0 means 1 */
    int64_t most_micros;
    /* Device memory is not host memory: batches are staged. (dit_forward does not stage.) */
    bool apart;
    bool bare; /* allocate no device memory: only for dit_attn_plan */
};

/* Holds the result of some micro-batches, for the tokens in this rank's residual stream. It must be
 * summed over cp ranks, and with sp over tp ranks too. */
struct dit_result {
    double loss_sum;    /* sum over samples and latent elements of loss_weight · w · (F - T)² */
    double loss_x0_sum; /* the same for clean latents: loss_weight · (x0^ - x0)² */
    /* [n] mean of w · (F - T)² of each sample of the first micro-batch; borrowed until the next
     * dit_begin */
    const double *sample_loss;
};

/* Describes a sample for dit_forward, which generation uses: it runs the network on given noised
 * latents. */
struct dit_eval_sample {
    const double *x_t;    /* [C, t, h, w]: alpha · x0 + sigma · eps; the call applies c_in */
    double *out;          /* [C, t, h, w]: F */
    double level;         /* ln(sigma / alpha) */
    bool drop_text;       /* the null token replaces the caption */
    const float *cond;
    int32_t t, h, w;
    const float *text;
    int32_t text_len;
    double fps;
};

struct dit;

/* Describes the micro-batches for profiles/buffers.h. */
struct buffer_spec dit_spec(const struct dit_config *c, enum dtype act, enum dtype stat);
/* Returns the most bytes that the sums over tp have in flight at a time, over all ranks. */
int64_t dit_tp_sum_bytes(const struct dit_config *c, enum dtype act, enum dtype stat);
/* Lists the buffers that dit_new will allocate. Allocates none of them. */
int dit_memory(const struct dit_config *c, enum dtype act, enum dtype stat,
               struct buffer_list *memory, struct err *err);
/* Checks the configuration, plans and allocates. */
int dit_new(const struct dit_config *c, struct ops *ops, struct dev_stream *stream,
            struct units *units, struct dit **out, struct err *err);
void dit_free(struct dit *d);
/* Do forward and backward of a micro-batch in parts: chunk `chunk` (of all pp·vpp), in slot `slot`.
 * The batch is borrowed for the call of dit_begin. dit_begin returns ERR_INPUT if the batch is past
 * the planned bounds or of a wrong shape.
 *     dit_begin(d, slot, chunk, &batch, inv_norm, err); // lays the inputs out
 *     receive into dit_boundary_in(d, slot)         // unless it is the first chunk: [rows, D]
 *     dit_chunk_forward(d, slot);
 *     send dit_boundary_out(d, slot)                // unless it is the last chunk; the next
 *                                                   // forward in the slot writes its memory
 *     ...
 *     receive into dit_gradient_in(d, slot)         // unless it is the last chunk
 *     dit_chunk_backward(d, slot);
 *     send dit_gradient_out(d, slot)                // unless it is the first chunk; the next
 *                                                   // backward writes its memory
 */
int dit_begin(struct dit *d, int64_t slot, int64_t chunk, const struct batch *b, double inv_norm,
              struct err *err);
void dit_chunk_forward(struct dit *d, int64_t slot);
void dit_chunk_backward(struct dit *d, int64_t slot);
struct tensor dit_boundary_in(struct dit *d, int64_t slot);
struct tensor dit_boundary_out(struct dit *d, int64_t slot);
struct tensor dit_gradient_in(struct dit *d, int64_t slot);
struct tensor dit_gradient_out(struct dit *d, int64_t slot);
/* Returns the first error that units or communication have met, if there was one. An error of the
 * device is returned by the stream's next sync. */
int dit_failed(struct dit *d, struct err *err);
/* Queues the copy of the losses of all last chunks since the last dit_results_take. */
void dit_results_queue(struct dit *d);
/* Sums up these losses, after a sync of the stream. */
void dit_results_take(struct dit *d, struct dit_result *out);
/* Tells the table of operations, which must have attn_plan (ops.h), which attention calls a future
 * micro-batch will make: those of the forward and, if `backward`, of the backward. Shapes and
 * random choices of the batch are read. Returns ERR_INPUT as dit_begin does. */
int dit_attn_plan(struct dit *d, const struct batch *b, bool backward, struct err *err);
/* Runs the network on given noised latents, and waits for it with a sync. The layout must have no
 * sp, cp or pp, because otherwise a rank knows the output of its own tokens only. */
int dit_forward(struct dit *d, const struct dit_eval_sample *samples, int64_t n, struct err *err);

#endif
