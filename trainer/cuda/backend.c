/* Defines the one function that libreel-cuda.so exports (trainer/ops/cuda_load.h). */
#include "trainer/cuda/cuda_priv.h"

const struct cuda_backend *reel_cuda_backend(void);

const struct cuda_backend *reel_cuda_backend(void)
{
    static const struct cuda_backend backend = {
        .dev_bytes = sizeof(struct dev), .ops_bytes = sizeof(struct ops),
        .coll_bytes = sizeof(struct coll_ops),
        .count = dev_cuda_count, .describe = dev_cuda_describe,
        .dev_open = dev_cuda_open, .ops_open = ops_cuda_open, .gemm_search = gemm_search,
        .coll = &coll_nccl,
    };
    return &backend;
}
