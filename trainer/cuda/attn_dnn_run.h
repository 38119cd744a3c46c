/* attn_dnn_run: attention by cuDNN, for the table of operations.
 *
 *     attn_dnn_open(ops, &dnn, err);
 *     attn_dnn_plan(dnn, a, backward, err);     // of all calls that will come
 *     attn_dnn_reserve(dnn, stream, err);
 *     if (attn_dnn_queue(dnn, stream, a, backward, &left) && !left)
 *         ... all is queued; else our own kernels do all, or the segments of `left`
 *     attn_dnn_close(dnn);
 *
 * A plan takes about a second to make. Those of the calls that were told of are made before them,
 * and the workspace is taken once. A call of a class that was not among them is no error, for the
 * plan follows from the call alone and so do its bits: it is made then, counted as late, and told;
 * the workspace may grow with it. Plans are kept for the last ATTN_PLANS classes.
 *
 * Where no cuDNN was found when this was built, attn_dnn_none.c stands in its place: attn_dnn_open
 * gives NULL.
 */
#ifndef TRAINER_CUDA_ATTN_DNN_RUN_H
#define TRAINER_CUDA_ATTN_DNN_RUN_H

#include "trainer/cuda/attn_dnn.h"
#include "trainer/cuda/cuda_priv.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTN_PLANS = 128 };
/* Calls that want more are left to our own kernels: a deterministic backward holds dS, of 2 bytes a
 * query, key and head. */
#define ATTN_WORKSPACE_MOST (INT64_C(8) << 30)

struct attn_dnn;

/* Opens the library on the device of a table of bf16. ERR_ENV: it is older than what the plans
 * need, or does not open. The wish is as REEL_ATTN has it: NULL comes back for other tables, and
 * for plain. ERR_USAGE: it is another word. */
int attn_dnn_open(struct ops *ops, const char *wish, struct attn_dnn **out, struct err *err);
void attn_dnn_close(struct attn_dnn *d); /* NULL is fine */

/* Do what ops.h says of attn_plan and attn_reserve. */
int attn_dnn_plan(struct attn_dnn *d, const struct ops_attn *a, bool backward, struct err *err);
int attn_dnn_reserve(struct attn_dnn *d, cudaStream_t s, struct err *err);

/* Queues what the library takes of a call, and returns whether that is anything. `left` is then
 * NULL, or memory of the device with a number a segment, which is not 0 where our own kernels must
 * do it. An error of the library is kept for the next stream_sync. A class of calls for which it
 * has no engine is told once, and is our own kernels'. */
bool attn_dnn_queue(struct attn_dnn *d, cudaStream_t s, const struct ops_attn *a, bool backward,
                    const int32_t **left);

/* ---- kernels around it ---- */

/* Returns the numbers from one tensor's offsets to the next's. All begin at multiples of 16
 * bytes. */
static inline int64_t attn_offset_step(int64_t n) { return (n + 2) / 2 * 2; }

/* Writes 1 for each segment that has an lse beyond ATTN_DNN_LSE, or NaN. The others are as they
 * were. */
struct attn_look {
    const int32_t *q_start; /* [n + 1] */
    int64_t n, longest;
    struct tensor lse;
    int32_t *beyond; /* [n] */
};
void kernel_attn_look(cudaStream_t s, const struct attn_look *a);

/* The library reads segments in this form: [n] lengths, [n + 1] offsets of each tensor. */
struct attn_lay {
    const int32_t *q_start, *k_start, *k_len; /* of the call's `given` segments */
    int64_t given, n;
    bool looked; /* `left` tells which segments are left for their numbers */
    int64_t ld[ATTN_TENSORS], first[ATTN_TENSORS]; /* elements a row; the row at the pointer */
    int64_t *offset, step;                         /* [ATTN_TENSORS, step], of which n + 1 */
    int32_t *q_len, *k_len_out, *left;             /* [n] */
};
void kernel_attn_lay(cudaStream_t s, const struct attn_lay *a);

/* Brings home what the library made in f32: to [row, heads d] = the sum of the `group` heads of
 * from [row - first, heads group d], + to. Segments that are left stay as they are. */
struct attn_home {
    const int32_t *start, *len; /* [n]; len NULL: up to the next start */
    const int32_t *left;        /* NULL: none is left */
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
