/* attn_dnn: decides which attention cuDNN computes, and by which class of plan.
 *
 * cuDNN, which is called the library below, computes attention by plans, one for each class of
 * calls: types, heads, strides and extents. A class has one of two forms.
 *
 *     dense    all segments have the same number of queries, and of keys, at equal distances
 *     packed   segments have any lengths; lengths and offsets are in device memory. The class has
 *              the numbers of segments and tokens rounded up, so that few classes serve all packs;
 *              surplus segments have length 0. If lengths of keys differ from call to call
 *              (ops_attn.uneven), equal segments are packed, too: else each length of a caption
 *              would be a class of its own
 *
 * Our own kernels (attn.cuh) compute what cuDNN does not: whole calls, for the reasons in enum
 * ops_attn_own, and in packed form also single segments. The library is then given length 0 for
 * such a segment, and our kernels compute only these segments. They are segments with a single
 * query or key, and small ones (attn_dnn_segment).
 *
 * In backward the values of a segment matter, too. A kernel reads the lse of its queries first. If
 * one is below -ATTN_DNN_LSE or above ATTN_DNN_LSE, our kernels compute the segment again and
 * overwrite the library's result. There are two reasons.
 *
 *     precision  the library rounds dS to bf16 before dq = dS k and dk = dSᵀ q, because tensor
 *                cores multiply bf16 only by bf16. The dS of a query sum to 0, so a component that
 *                all its keys have in common should add nothing to dq. But the rounding errors of
 *                dS are multiplied by that component and do not cancel. Large logits come from
 *                large common components: with logits near -100 or 100, the error of dq was 5 to 9
 *                times that with dS in f32, which our kernels use
 *     a hazard   when the number of keys is 64 more than a multiple of 128, the library has
 *                returned NaN in dq for queries with lse < -88.7: missing keys of its last tile get
 *                the weight exp(0 - lse), which is infinite then
 *
 * The host reads no device memory for this.
 *
 * Keys may have a large common component although logits are small, if queries are orthogonal to
 * it. The rounding of dS is then again the library's largest error, but nothing detects this case:
 * k itself was rounded to bf16, which is as bad. With a relative error e_j of k_j and e'_j of dS_j,
 * the error of dq is the sum over j of e_j dS_j k_j plus that of e'_j dS_j k_j, component by
 * component, and e and e' have the same bound and spread. Compared with a network that rounds
 * nothing, dS in f32 would reduce the error by a factor of about sqrt(2) (test_common_keys).
 */
#ifndef TRAINER_CUDA_ATTN_DNN_H
#define TRAINER_CUDA_ATTN_DNN_H

#include "base/host_device.h"
#include "trainer/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTN_DNN_SMALL = 64, /* tokens: smaller segments leave most of a tile of 128 empty */
    ATTN_DNN_TILE = 128,
    ATTN_DNN_LSE = 64, /* logits of a trained network are much smaller */
};

/* Names the tensors of a class. DQ_SUM is the library's workspace in which it sums dq in f32. */
enum attn_tensor {
    ATTN_Q, ATTN_K, ATTN_V, ATTN_O, ATTN_LSE, ATTN_D_O, ATTN_DQ, ATTN_DK, ATTN_DV, ATTN_DELTA,
    ATTN_DQ_SUM, ATTN_TENSORS
};

/* Describes a class of calls. It has no padding, so that classes compare as bytes. dk and dv have
 * as many heads as q; our own kernel sums them over the heads of a group. */
struct attn_class {
    int64_t n;                /* segments */
    int64_t q, k;             /* tokens of a segment; packed: of the longest, rounded up */
    int64_t heads, kv_heads, d;
    int64_t q_step, k_step;   /* dense: rows from one segment to the next */
    int64_t ld[ATTN_TENSORS]; /* elements between rows; 0: the class does not have this tensor */
    int32_t o, dq, dkv;       /* enum dtype */
    int32_t packed, backward;
    int32_t deterministic;    /* dq is summed in one order */
};

HOST_DEVICE static inline bool attn_dnn_is_of_keys(int t)
{
    return t == ATTN_K || t == ATTN_V || t == ATTN_DK || t == ATTN_DV;
}

/* Returns whether the library can compute a segment of this size. */
HOST_DEVICE static inline bool attn_dnn_segment(int64_t queries, int64_t keys)
{
    return queries > 1 && keys > 1 && (queries > ATTN_DNN_SMALL || keys > ATTN_DNN_SMALL);
}

/* Returns whether a class has a tensor. */
bool attn_class_has(const struct attn_class *c, enum attn_tensor t);
/* Returns whether DQ_SUM is laid out by offsets, like dq. By cuDNN Frontend's documentation that is
 * wrong for head dims that are no multiple of 16; there each segment has room for the longest. */
bool attn_class_sum_is_packed(const struct attn_class *c);

/* Returns OPS_ATTN_TAKEN if cuDNN computes a call, and writes its class; else returns the reason.
 * The result depends only on shapes, types, addresses and the host's segment arrays. */
enum ops_attn_own attn_dnn_takes(const struct ops_attn *a, bool backward, bool deterministic,
                                 struct attn_class *out);
/* Returns whether our own kernels must follow a call that cuDNN computes, for segments that are
 * left to them. In backward they always must, because only the device knows whether there are
 * any. */
bool attn_dnn_leaves(const struct ops_attn *a, const struct attn_class *c);
/* Return whether the library writes dk and dv, or dq, to f32 workspace, from which our own kernel
 * copies or adds them to their tensors. */
bool attn_dnn_dkv_by_way(const struct ops_attn *a);
bool attn_dnn_dq_by_way(const struct ops_attn *a);

#ifdef __cplusplus
}
#endif
#endif
