/* attn_dnn: which attention goes to cuDNN, and as what.
 *
 * cuDNN computes attention by plans, each for a class of calls: types, heads, strides and extents.
 * A class has one of two forms.
 *
 *     dense    all segments have as many queries, and as many keys, at equal distances
 *     packed   segments of any lengths; lengths and offsets lie in device memory. The class has the
 *              numbers of segments and tokens rounded up, so that few classes serve all packs:
 *              segments that are too many have length 0. Where lengths of keys differ from call to
 *              call (ops_attn.uneven) equal ones are packed, too: each length of a caption would
 *              else be a class
 *
 * Our own kernels (attn.cuh) compute what it does not take: whole calls, for the reasons of enum
 * ops_attn_own, and in packed form single segments. The library is then told that such a segment is
 * empty, and our kernels do those alone. These are segments in which a query or a key stands alone,
 * or which are small (attn_dnn_segment).
 *
 * In backward the numbers of a segment count, too. A kernel looks at its lse first. If one lies
 * beyond ATTN_DNN_LSE, below or above, our kernels write the segment, whatever the library made of
 * it. There are two reasons.
 *
 *     precision  the library rounds dS to bf16 before dq = dS k and dk = dSᵀ q, for tensor cores
 *                multiply nothing wider by bf16. The dS of a query add up to 0, so a part that all
 *                its keys have in common should add nothing to dq. But what rounding has changed in
 *                each dS is multiplied by that part, and stays. Large logits come from large common
 *                parts: where they are near -100 or 100, dq was 5 to 9 times as far off as with dS
 *                in f32, which our kernels have
 *     a hazard   with keys that are 64 more than a multiple of 128 the library has given NaN in dq
 *                for queries with lse < -88.7: keys that a tile does not have weigh exp(0 - lse),
 *                which is infinite there
 *
 * The host reads nothing for it.
 *
 * Keys may have much in common where logits are small, too, if queries lie across it. There dS's
 * roundings are again the most that the library does wrong, and nobody looks: k was rounded to bf16
 * before, and that is as bad. With k off by e_j k_j and dS by e'_j dS_j, dq is off by the sums over
 * j of e_j dS_j k_j and of e'_j dS_j k_j, component by component, where e and e' have one bound and
 * spread. Against a network that rounds nothing a wide dS would save a factor of about sqrt(2)
 * (test_common_keys).
 */
#ifndef TRAINER_CUDA_ATTN_DNN_H
#define TRAINER_CUDA_ATTN_DNN_H

#include "base/host_device.h"
#include "trainer/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTN_DNN_SMALL = 64, /* tokens: a segment of no more leaves most of a tile of 128 empty */
    ATTN_DNN_TILE = 128,
    ATTN_DNN_LSE = 64, /* the logits of a trained network stay far below it */
};

/* Tensors of a class. DQ_SUM is the library's own sum of dq, in f32. */
enum attn_tensor {
    ATTN_Q, ATTN_K, ATTN_V, ATTN_O, ATTN_LSE, ATTN_D_O, ATTN_DQ, ATTN_DK, ATTN_DV, ATTN_DELTA,
    ATTN_DQ_SUM, ATTN_TENSORS
};

/* A class has no padding, so that classes compare as bytes. dk and dv have the heads of q; our own
 * kernel adds those of a group. */
struct attn_class {
    int64_t n;                /* segments */
    int64_t q, k;             /* tokens of a segment, or of the longest */
    int64_t heads, kv_heads, d;
    int64_t q_step, k_step;   /* dense: rows from one segment to the next */
    int64_t ld[ATTN_TENSORS]; /* elements; 0: it has none */
    int32_t o, dq, dkv;       /* enum dtype */
    int32_t packed, backward;
    int32_t deterministic;    /* dq is summed in one order */
};

HOST_DEVICE static inline bool attn_dnn_is_of_keys(int t)
{
    return t == ATTN_K || t == ATTN_V || t == ATTN_DK || t == ATTN_DV;
}

/* Tells whether the library takes a segment, whatever its numbers are. */
HOST_DEVICE static inline bool attn_dnn_segment(int64_t queries, int64_t keys)
{
    return queries > 1 && keys > 1 && (queries > ATTN_DNN_SMALL || keys > ATTN_DNN_SMALL);
}

/* Tells whether a class has a tensor. */
bool attn_class_has(const struct attn_class *c, enum attn_tensor t);
/* Is DQ_SUM laid out as dq is, by offsets? It is known to be wrong for head dims that are no
 * multiple of 16 (cuDNN Frontend), where each segment has room for the longest. */
bool attn_class_sum_is_packed(const struct attn_class *c);

/* Says whether cuDNN is asked for a call, and writes its class. A pure function of shapes, types,
 * addresses and the segments that the host knows. */
enum ops_attn_own attn_dnn_takes(const struct ops_attn *a, bool backward, bool deterministic,
                                 struct attn_class *out);
/* Tells whether our own kernels must look at the segments of a call that it takes: in backward
 * always. */
bool attn_dnn_leaves(const struct ops_attn *a, const struct attn_class *c);
/* Do dk and dv, or dq, pass through memory of f32 from which our own kernel copies them to their
 * tensors? */
bool attn_dnn_dkv_by_way(const struct ops_attn *a);
bool attn_dnn_dq_by_way(const struct ops_attn *a);

#ifdef __cplusplus
}
#endif
#endif
