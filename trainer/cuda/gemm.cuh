/* gemm: declares the last step of our own product kernels (gemm.cu, gemm_few.cu). */
#ifndef TRAINER_CUDA_GEMM_CUH
#define TRAINER_CUDA_GEMM_CUH

#include "trainer/cuda/act.cuh"

/* Stores an element from its sum. act is applied to the number as aux stores it, so that backward,
 * which reads aux, computes the same activation. */
template <class real>
__device__ static inline void element_put(const struct ops_gemm &g, int64_t row, int64_t col,
                                          real sum)
{
    real x = (real)g.alpha * sum;
    if (g.beta != 0)
        x += (real)g.beta * get<real>(g.c, row, col);
    if (g.aux.ptr) {
        put(g.aux, row, col, x);
        x = get<real>(g.aux, row, col);
    }
    put(g.c, row, col, act_of(g.act, x));
}

#endif
