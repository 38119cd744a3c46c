/* This file counts what two published trainers of Wan do besides what work.c counts. Their sources
 * were read, and nothing was fitted. Letters are those of work.h; besides, n is the number of
 * sub-blocks, M that of modulated ones, and N that of ranks of the ring.
 *
 * *Eager* is diffusers' WanTransformerBlock without a compiler (version 0.35.1, as NeMo Automodel
 * trains it, with PyTorch 2.9). Weights and activations are bf16; a number that is read or written
 * has 2 bytes, or 4 where it is f32. These are the bytes for each number, forward and backward:
 *
 *     modulated norm     36, 52    x.float(), norm, times 1 + scale, plus shift, to bf16: 6 8 8 8
 *                                  6. Backward: 6, norm 12, product 8, the scale's gradient 16,
 *                                  the shift's 4, and 6
 *     other norm         20, 32    6 8 6; backward 6, 12 and 8 for its own weights, 6
 *     gated residual     30, 40    x.float(), y times gate, sum, to bf16: 6 6 12 6. Backward: 6,
 *                                  6, 14 for y, 14 for the gate's gradient
 *     the MLP's           8, 2     more, because y.float() is an operation too
 *     other residual      6, 0
 *     norm of q and k     4, 10    backward 6, and 4 for its own weights
 *     rotation           24, 39    of even and odd numbers apart, in bf16, because FSDP casts what
 *                                  a block is given. Where every other number is read or written,
 *                                  all of the memory is moved. Forward, twice: two products 6,
 *                                  their sum or difference 3, a copy to every other place 3.
 *                                  Backward: copies, and zeros in both halves' places, 12; four
 *                                  products 12, a sign 3, two sums 6, and 6 to interleave them
 *     GELU                4, 6     of the F numbers; where the MLP is gated, with the product of
 *                                  its two parts 10, 18
 *     gradients           -, 6     of x are added up once more in each sub-block, and twice behind
 *                                  the three products that make queries, keys and values
 *     biases              -, 2     of all products' results: their gradients are sums of their own
 *
 * *Gathered heads* is the attention of DFM's Wan on Megatron-Core (dit_attention.py at commit
 * 174bb7b). Queries and keys have norms over all heads, but a tensor-parallel rank has D/t of D
 * numbers. So they are gathered, every rank computes the norm of all, and keeps its part: an all-
 * gather of T D w bytes for each of them, and backward of their gradients. Around these stand
 * copies, each of which reads and writes every number. Forward, of the part: one that makes it
 * contiguous before the gather, and two after the cut. Of the whole: one that puts the parts side
 * by side, and one that puts heads in front again. Backward, of the part: one before the gather,
 * and one after the cut. Of the whole: the same two as forward. The norm is of the whole, 2 and 3
 * numbers, and what work.c counts for that of a part, 2 and 4, is taken off.
 *
 * *Merges* are what Transformer Engine's ring does between its steps (context_parallel.py of 2.7 to
 * 2.9), counted in numbers for T/t tokens. Forward: keys and values are copied into one message, 4
 * r, and the result of each step is added to the sum, 3 N D. Backward: gradients of queries are
 * added likewise, and in each step those of keys and values are put side by side, 4 r, and added to
 * those that came, 6 r. Cross-attention, if captions go round the ring too, has the 3 N D both
 * times; its keys are few.
 */
#include "profiles/work_video.h"

/* Holds what is moved for each token: of the residual stream or of whole queries and keys, and of
 * what tensor parallelism divides. */
struct moves { double stream, inner; };

static double selfs_of(const struct model *m) { return (double)model_self_attentions(m); }

/* Returns the width of the queries and keys of a layer's self-attentions. */
static double rotated(const struct model *m)
{
    double D = (double)m->hidden;
    return selfs_of(m) * (D + D * (double)m->kv_heads / (double)m->heads);
}

double work_video_normed(const struct model *m)
{ return rotated(m) + (model_has_cross(m) ? (double)m->hidden : 0); }

bool work_video_gathers(const struct work_video *v)
{ return v->stack->gathers_heads && model_is_video(v->model) && v->tp > 1; }

static double sub_blocks(const struct model *m) { return selfs_of(m) + model_has_cross(m) + 1; }

static struct moves eager_forward(const struct model *m)
{
    double n = sub_blocks(m), M = (double)model_modulations(m), gates = M > 0 ? 30 * M + 8 : 0;
    return (struct moves){
        .stream = (36 * M + 20 * (n - M) + gates + 6 * (n - M)) * (double)m->hidden,
        .inner = 4 * work_video_normed(m) + 24 * rotated(m) +
                 (m->gated_mlp ? 10 : 4) * (double)m->ffn};
}

static struct moves eager_backward(const struct model *m)
{
    double D = (double)m->hidden, F = (double)m->ffn, n = sub_blocks(m),
           M = (double)model_modulations(m), gates = M > 0 ? 40 * M + 2 : 0;
    double values = rotated(m) - selfs_of(m) * D; /* they are as wide as the keys */
    double results = work_video_normed(m) + values + (m->gated_mlp ? 2 : 1) * F;
    return (struct moves){
        .stream = (52 * M + 32 * (n - M) + gates + 6 * n + 12 * selfs_of(m) + 2 * n) * D,
        .inner = 10 * work_video_normed(m) + 39 * rotated(m) + (m->gated_mlp ? 18 : 6) * F +
                 2 * results};
}

static void gathered_add(const struct work_video *v, struct work_part *f, struct work_part *b)
{
    double numbers = v->act_bytes * v->tokens * work_video_normed(v->model);
    f->bytes += numbers * (2 + 2 + 2 + (2 + 2 + 2 - 2) / v->tp);
    b->bytes += numbers * (2 + 2 + 3 + (2 + 2 - 4) / v->tp);
}

static void merges_add(const struct work_video *v, struct work_part *f, struct work_part *b)
{
    double D = (double)v->model->hidden, N = v->ring, numbers = v->act_bytes * v->tokens / v->tp;
    double queries = selfs_of(v->model) * D, keys = rotated(v->model) - queries;
    if (v->stack->ring_text && model_has_cross(v->model))
        queries += D;
    f->bytes += numbers * (3 * N * queries + 4 * keys);
    b->bytes += numbers * (3 * N * queries + (4 + 6) * N * keys);
}

void work_video_bytes(const struct work_video *v, struct work_part *forward,
                      struct work_part *backward)
{
    if (!model_is_video(v->model))
        return;
    if (v->stack->eager) {
        struct moves f = eager_forward(v->model), b = eager_backward(v->model);
        forward->bytes = v->stream_tokens * f.stream + v->tokens * f.inner / v->tp;
        backward->bytes = v->stream_tokens * b.stream + v->tokens * b.inner / v->tp;
        forward->norm_bytes = backward->norm_bytes = 0;
    }
    if (work_video_gathers(v))
        gathered_add(v, forward, backward);
    if (v->stack->ring_merges && v->ring > 1)
        merges_add(v, forward, backward);
}
