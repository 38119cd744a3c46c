/* Operations that have no kernel yet: a call ends the program. */
#include "trainer/cuda/cuda_priv.h"

#define MISSING(op, args)                                                            \
    void kernel_##op(struct ops_cuda *o, cudaStream_t s, const struct args *a)       \
    {                                                                                \
        (void)o, (void)s, (void)a;                                                   \
        err_bug(__FILE__, __LINE__, "the CUDA table has no kernel for " #op);        \
    }
MISSING(adamw, ops_adamw)
