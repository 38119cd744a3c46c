/* act: declares activations as functions of one number, for all kernels that apply them. So act_fwd
 * of the value that a product stored before its activation gives the bits that the product gave.
 *
 * The logistic function is 1 / (1 + e) with e = exp(-x). GELU's tanh form uses it, too: (1 +
 * tanh(u)) / 2 is the logistic function of 2u (Hendrycks and Gimpel, "Gaussian error linear units",
 * 2016, section 2). */
#ifndef TRAINER_CUDA_ACT_CUH
#define TRAINER_CUDA_ACT_CUH

#include "trainer/cuda/kernel.cuh"

__device__ static inline float erf_of(float x) { return erff(x); }
__device__ static inline double erf_of(double x) { return erf(x); }

template <class real> __device__ static inline real silu(real x) { return x / (1 + exp_of(-x)); }

template <class real> __device__ static inline real gelu_erf(real x)
{
    return (real)0.5 * x * (1 + erf_of(x * (real)0.70710678118654752440));
}

template <class real> __device__ static inline real gelu_tanh_exp(real x)
{
    real u = (real)0.79788456080286535588 * (x + (real)0.044715 * x * x * x);
    return exp_of(-2 * u);
}

template <class real> __device__ static inline real gelu_tanh(real x)
{
    return x / (1 + gelu_tanh_exp(x));
}

/* Returns the activation of x. SWIGLU needs two numbers and is not handled here. */
template <class real> __device__ static inline real act_of(enum ops_act_kind kind, real x)
{
    switch (kind) {
    case OPS_ACT_SILU: return silu(x);
    case OPS_ACT_GELU_ERF: return gelu_erf(x);
    case OPS_ACT_GELU_TANH: return gelu_tanh(x);
    default: return x;
    }
}

#endif
