/* The one function that the library shows. */
#include <stdio.h>

#include "trainer/cuda/cuda_priv.h"

const struct cuda_backend *reel_cuda_backend(void);

const struct cuda_backend *reel_cuda_backend(void)
{
    static char version[16];
    static const struct cuda_backend backend = {
        .dev_bytes = sizeof(struct dev), .ops_bytes = sizeof(struct ops),
        .coll_bytes = sizeof(struct coll_ops), .version = version,
        .count = dev_cuda_count, .describe = dev_cuda_describe,
        .dev_open = dev_cuda_open, .ops_open = ops_cuda_open, .coll = &coll_nccl,
    };
    /* 13000 is CUDA 13.0 */
    snprintf(version, sizeof version, "CUDA %d.%d", CUDART_VERSION / 1000,
             CUDART_VERSION % 1000 / 10);
    return &backend;
}
