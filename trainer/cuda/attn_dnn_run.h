/* attn_dnn_run: runs attention by cuDNN, for the table of operations.
 *
 *     attn_dnn_open(ops, wish, &dnn, err);
 *     attn_dnn_plan(dnn, a, backward, err);     // for every call that will come
 *     attn_dnn_reserve(dnn, stream, err);
 *     if (attn_dnn_queue(dnn, stream, a, backward, &left) && !left)
 *         ... all is queued; else our own kernels compute all, or the segments in `left`
 *     attn_dnn_close(dnn);
 *
 * A plan takes about a second to make. Plans of announced calls are made before the first step, and
 * the workspace is allocated once. A call of another class is no error: a plan depends on the call
 * alone, and so do the bits of its result. Its plan is made when it comes, counted as late, and
 * reported; the workspace may grow. Plans are kept for the last ATTN_PLANS classes.
 *
 * In a build without cuDNN, attn_dnn_none.c replaces this file's functions; attn_dnn_open then
 * writes NULL.
 */
#ifndef TRAINER_CUDA_ATTN_DNN_RUN_H
#define TRAINER_CUDA_ATTN_DNN_RUN_H

#include "trainer/cuda/attn_dnn.h"
#include "trainer/cuda/cuda_priv.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTN_PLANS = 128 };
/* Our own kernels compute calls that need more workspace than this: a deterministic backward stores
 * dS, 2 bytes for each query, key and head. */
#define ATTN_WORKSPACE_MOST (INT64_C(8) << 30)

struct attn_dnn;

/* Opens cuDNN for a table of operations in bf16. `wish` has REEL_ATTN's syntax: "" leaves the
 * choice to the library; a number n tries its proposals from the n-th on; "plain" means our own
 * kernels. Writes NULL for "plain" and for tables of other types. ERR_ENV: the library is older
 * than the plans need, or does not open. ERR_USAGE: `wish` does not have this syntax. */
int attn_dnn_open(struct ops *ops, const char *wish, struct attn_dnn **out, struct err *err);
void attn_dnn_close(struct attn_dnn *d); /* NULL is allowed */

/* Do what ops.h says of attn_plan and attn_reserve. */
int attn_dnn_plan(struct attn_dnn *d, const struct ops_attn *a, bool backward, struct err *err);
int attn_dnn_reserve(struct attn_dnn *d, cudaStream_t s, struct err *err);

/* Queues the segments of a call that the library computes. Returns false if it computes none. If it
 * returns true, `left` is NULL, or device memory with one number per segment; our own kernels must
 * compute the segments whose number is not 0. The next stream_sync returns an error of the library.
 * If the library has no engine for a class of calls, that is reported once and our own kernels
 * compute the class. */
bool attn_dnn_queue(struct attn_dnn *d, cudaStream_t s, const struct ops_attn *a, bool backward,
                    const int32_t **left);

/* ---- kernels before and after the plan ---- */

/* Returns the distance between the offset arrays of two tensors, so that each begins at a multiple
 * of 16 bytes. */
static inline int64_t attn_offset_step(int64_t n) { return (n + 2) / 2 * 2; }

/* Holds the arguments of kernel_attn_look, which writes 1 for each segment that has an lse beyond
 * ±ATTN_DNN_LSE, or NaN. Numbers of other segments do not change. */
struct attn_look {
    const int32_t *q_start; /* [n + 1] */
    int64_t n, longest;
    struct tensor lse;
    int32_t *beyond; /* [n] */
};
void kernel_attn_look(cudaStream_t s, const struct attn_look *a);

/* Holds the arguments of kernel_attn_lay, which writes lengths [n] and, for each tensor, offsets
 * [n + 1]. */
struct attn_lay {
    const int32_t *q_start, *k_start, *k_len; /* of the call's `given` segments */
    int64_t given, n;
    bool looked; /* `left` already marks the segments that kernel_attn_look found */
    int64_t ld[ATTN_TENSORS], first[ATTN_TENSORS]; /* elements per row; row at the tensor's start */
    int64_t *offset, step;                         /* [ATTN_TENSORS, step]; n + 1 are used */
    int32_t *q_len, *k_len_out, *left;             /* [n] */
};
void kernel_attn_lay(cudaStream_t s, const struct attn_lay *a);

/* Holds the arguments of kernel_attn_home, which copies the library's f32 results to their tensors:
 * to [row, heads d] = the sum of the `group` heads of from [row - first, heads group d], plus `to`
 * if `add`. Segments marked in `left` are not changed. */
struct attn_home {
    const int32_t *start, *len; /* [n]; len NULL: up to the next start */
    const int32_t *left;        /* NULL: none is marked */
    int64_t n, longest;
    struct tensor to;
    const float *from;
    int64_t first, heads, group, d;
    bool add;
};
void kernel_attn_home(cudaStream_t s, const struct attn_home *a);

#ifdef __cplusplus
}
#endif
#endif
