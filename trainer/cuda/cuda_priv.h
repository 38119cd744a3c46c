/* cuda_priv: declares what the files of the CUDA backend share.
 *
 * Sources in C (device, table, libraries) include the runtime's C interface only. They reach the
 * kernels in .cu files through the functions kernel_NAME, one for each operation, which queue work
 * on a stream. Where there is no CUDA toolkit, tests compile the same sources against tests/shim,
 * whose threads run on the CPU.
 */
#ifndef TRAINER_CUDA_CUDA_PRIV_H
#define TRAINER_CUDA_CUDA_PRIV_H

#include <cuda_runtime_api.h>

#include "trainer/ops/cuda_load.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This is a stream of the device. Only files of the CUDA backend see its members. */
struct dev_stream {
    struct dev *dev;
    cudaStream_t cuda;
};

int dev_cuda_count(int *gpus, struct err *err);
int dev_cuda_describe(int index, struct cuda_gpu *out, struct err *err);
int dev_cuda_open(int index, bool poison, struct dev **out, struct err *err);
/* Returns the GPU's name as the driver gives it, borrowed from the device. */
const char *dev_cuda_name(const struct dev *d);
/* Keeps a runtime error, unless an earlier one is kept. Every later stream_sync returns the kept
 * error. `what` is a string literal. */
void dev_cuda_fail(struct dev *d, cudaError_t e, const char *what);

struct ranges;
struct ranges *dev_cuda_ranges(struct dev *d);

enum {
    /* Sums over rows are computed in parts, one by each block of threads, and the parts are then
     * added in a fixed order. There is room for this many parts of OPS_ROW_MAX columns, or for more
     * parts with fewer columns. */
    CUDA_PARTS = 64,
};
struct gemm_lt;
struct attn_dnn;
struct ops_cuda {
    struct ops ops; /* first member */
    /* This memory is for partial sums: CUDA_PARTS x OPS_ROW_MAX elements of 8 bytes. Only one
     * stream may use it at a time. */
    void *parts;
    struct gemm_lt *lt;   /* gemm_lt.h */
    struct attn_dnn *dnn; /* attn_dnn_run.h; NULL: our own kernels compute all attention */
};

int ops_cuda_open(struct dev *dev, enum dtype dtype, const char *gemm_table, const char *attn,
                  struct ops **out, struct err *err);

int gemm_search(struct ops *o, struct dev_stream *s, const char *product, double round_s,
                struct gemm_found *out, struct err *err); /* see cuda_load.h */

/* Queue the kernels of each operation. */
#define CUDA_KERNEL(name, args) \
    void kernel_##name(struct ops_cuda *o, cudaStream_t s, const struct args *a);
OPS_LIST(CUDA_KERNEL)
#undef CUDA_KERNEL
/* Holds the arguments of kernel_sum_parts, which adds the parts of several ranks: see coll.h. */
struct sum_parts {
    const void *parts, *mine;
    void *out;
    enum dtype dtype;
    int64_t stride, n; /* elements */
    int n_parts, own;
};
void kernel_sum_parts(cudaStream_t s, const struct sum_parts *a);
extern const struct coll_ops coll_nccl; /* nccl.c, or nccl_none.c */

/* Queue a product and its act by our own kernels: gemm_own for all shapes, gemm_few_rows for
 * results with few rows (gemm_is_few). Both accept all types. */
void gemm_own(struct ops_cuda *o, cudaStream_t s, const struct ops_gemm *g);
void gemm_few_rows(struct ops_cuda *o, cudaStream_t s, const struct ops_gemm *g);

#ifdef __cplusplus
}
#endif
#endif
