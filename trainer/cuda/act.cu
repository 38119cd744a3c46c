/* Computes elementwise activations and their gradients. */
#include "trainer/cuda/act.cuh"
#include "trainer/cuda/pack.cuh"

/* ---- derivatives ---- */

/* Returns exp(-x), but at most exp(88), which a float can hold. Below x = -88 the logistic function
 * s is less than 1e-38, and without the limit exp(-x) s would become infinity times 0. */
template <class real> __device__ static inline real exp_minus(real x)
{
    return exp_of(x < -88 ? (real)88 : -x);
}

/* Returns the derivative of SiLU. With s the logistic function and e = exp(-x), e s equals 1 - s,
 * but does not cancel near s = 1. */
template <class real> __device__ static inline real silu_slope(real x)
{
    real e = exp_minus(x), s = 1 / (1 + e);
    return s * (1 + x * (e * s));
}

template <class real> __device__ static inline real gelu_erf_slope(real x)
{
    real cdf = (real)0.5 * (1 + erf_of(x * (real)0.70710678118654752440));
    return cdf + x * (real)0.39894228040143267794 * exp_of((real)-0.5 * x * x);
}

template <class real> __device__ static inline real gelu_tanh_slope(real x)
{
    const real root = (real)0.79788456080286535588, cubic = (real)0.044715;
    real e = exp_minus(2 * root * (x + cubic * x * x * x)), s = 1 / (1 + e);
    return s + 2 * x * s * (e * s) * (root * (1 + 3 * cubic * x * x));
}

template <class real> __device__ static inline real slope_of(enum ops_act_kind kind, real x)
{
    switch (kind) {
    case OPS_ACT_SILU: return silu_slope(x);
    case OPS_ACT_GELU_ERF: return gelu_erf_slope(x);
    case OPS_ACT_GELU_TANH: return gelu_tanh_slope(x);
    default: return 1;
    }
}

/* ---- activations of one input ---- */

template <class real, int N>
static __global__ void act_fwd(enum ops_act_kind kind, struct tensor x, struct tensor y)
{
    for (int64_t e = thread_first(); e < elements(y) / N; e += thread_step()) {
        real v[N];
        get_pack(x, place_of<N>(x, e), v);
        UNROLL
        for (int i = 0; i < N; i++)
            v[i] = act_of(kind, v[i]);
        put_pack(y, place_of<N>(y, e), v);
    }
}

template <class real, int N> static __global__ void act_bwd(struct ops_act a)
{
    for (int64_t e = thread_first(); e < elements(a.dy) / N; e += thread_step()) {
        real x[N], g[N];
        get_pack(a.x, place_of<N>(a.x, e), x);
        get_pack(a.dy, place_of<N>(a.dy, e), g);
        UNROLL
        for (int i = 0; i < N; i++)
            g[i] *= slope_of(a.kind, x[i]);
        put_pack(a.dx, place_of<N>(a.dx, e), g);
    }
}

/* ---- SWIGLU: x has the gate's columns, then those of up ---- */

/* Returns the offset of pack e in half 0 or 1 of x. Each half is as wide as y. */
template <int N>
__device__ static inline int64_t half_place(const struct tensor &x, const struct tensor &y,
                                            int64_t e, int half)
{
    int64_t each = y.cols / N;
    return e / each * x.ld + e % each * N + half * y.cols;
}

template <class real, int N> static __global__ void swiglu_fwd(struct tensor x, struct tensor y)
{
    for (int64_t e = thread_first(); e < elements(y) / N; e += thread_step()) {
        real gate[N], up[N];
        get_pack(x, half_place<N>(x, y, e, 0), gate);
        get_pack(x, half_place<N>(x, y, e, 1), up);
        UNROLL
        for (int i = 0; i < N; i++)
            gate[i] = silu(gate[i]) * up[i];
        put_pack(y, place_of<N>(y, e), gate);
    }
}

template <class real, int N> static __global__ void swiglu_bwd(struct ops_act a)
{
    for (int64_t e = thread_first(); e < elements(a.dy) / N; e += thread_step()) {
        real gate[N], up[N], g[N];
        get_pack(a.x, half_place<N>(a.x, a.dy, e, 0), gate);
        get_pack(a.x, half_place<N>(a.x, a.dy, e, 1), up);
        get_pack(a.dy, place_of<N>(a.dy, e), g);
        UNROLL
        for (int i = 0; i < N; i++) {
            up[i] = g[i] * up[i] * silu_slope(gate[i]);
            g[i] = g[i] * silu(gate[i]);
        }
        put_pack(a.dx, half_place<N>(a.dx, a.dy, e, 0), up);
        put_pack(a.dx, half_place<N>(a.dx, a.dy, e, 1), g);
    }
}

/* ---- host calls ---- */

void kernel_act_fwd(struct ops_cuda *o, cudaStream_t s, const struct ops_act *a)
{
    int64_t n = a->y.rows * a->y.cols;
    bool glu = a->kind == OPS_ACT_SWIGLU, packed = packs(&a->x) && packs(&a->y);
    BUG_ON(a->x.rows != a->y.rows || a->x.cols != a->y.cols * (glu ? 2 : 1));
    if (glu)
        LAUNCH_PACKS(o, s, packed, swiglu_fwd, n, a->x, a->y);
    else
        LAUNCH_PACKS(o, s, packed, act_fwd, n, a->kind, a->x, a->y);
}

/* Queues backward, and act_fwd's own kernel if y is present, so that y has the same bits. */
void kernel_act_bwd(struct ops_cuda *o, cudaStream_t s, const struct ops_act *a)
{
    int64_t n = a->dy.rows * a->dy.cols;
    bool glu = a->kind == OPS_ACT_SWIGLU, packed = packs(&a->x) && packs(&a->dy) && packs(&a->dx);
    BUG_ON(a->x.rows != a->dy.rows || a->dx.rows != a->x.rows || a->dx.cols != a->x.cols);
    BUG_ON(a->x.cols != a->dy.cols * (glu ? 2 : 1));
    if (a->y.ptr)
        kernel_act_fwd(o, s, a);
    if (glu)
        LAUNCH_PACKS(o, s, packed, swiglu_bwd, n, *a);
    else
        LAUNCH_PACKS(o, s, packed, act_bwd, n, *a);
}
