/* pack: eight numbers of a row at a time, by accesses of 16 bytes.
 *
 * A kernel that works element by element is written for N numbers that follow one another in a row:
 * PACK where all tensors have whole packs at places that allow such accesses, and 1 anywhere. Both
 * give the same bits.
 *
 *     template <class real, int N> static __global__ void twice(struct tensor x)
 *     {
 *         for (int64_t e = thread_first(); e < elements(x) / N; e += thread_step()) {
 *             real v[N];
 *             int64_t at = place_of<N>(x, e);
 *             get_pack(x, at, v);
 *             ...
 *             put_pack(x, at, v);
 *     LAUNCH_PACKS(o, s, packs(&x), twice, x.rows * x.cols, x);
 */
#ifndef TRAINER_CUDA_PACK_CUH
#define TRAINER_CUDA_PACK_CUH

#include "trainer/cuda/kernel.cuh"

enum { PACK = 8, PACK_BYTES = 16 };

/* Is the tensor made of packs? One that is absent does not stand in the way. */
static inline bool packs(const struct tensor *t)
{
    return t->dtype != DTYPE_F64 && (uintptr_t)t->ptr % PACK_BYTES == 0 && t->ld % PACK == 0 &&
           t->cols % PACK == 0;
}

/* Launches a kernel over n elements of rows. The table of f64, which is for tests, has no packs. */
#define LAUNCH_PACKS(o, s, is_packed, kernel, n, ...)                                     \
    do {                                                                                  \
        if ((o)->ops.stat == DTYPE_F64)                                                   \
            launch(s, kernel<double, 1>, blocks_for(n), THREADS, 0, __VA_ARGS__);         \
        else if (is_packed)                                                               \
            launch(s, kernel<float, PACK>, blocks_for((n) / PACK), THREADS, 0, __VA_ARGS__); \
        else                                                                              \
            launch(s, kernel<float, 1>, blocks_for(n), THREADS, 0, __VA_ARGS__);          \
    } while (0)

/* Returns the place of the first number of pack e, counted along the rows. */
template <int N> __device__ static inline int64_t place_of(const struct tensor &t, int64_t e)
{
    int64_t each = t.cols / N;
    return e / each * t.ld + e % each * N;
}

/* ---- packs of bf16: two numbers a word, the first one in its low half ---- */

__device__ static inline void halves_get(unsigned word, float *x)
{
    x[0] = bf16_value((uint16_t)word);
    x[1] = bf16_value((uint16_t)(word >> 16));
}

__device__ static inline unsigned halves_of(const float *x)
{
    return to_bf16(x[0]) | (unsigned)to_bf16(x[1]) << 16;
}

__device__ static inline void bf16_pack_get(const uint16_t *from, float (&x)[PACK])
{
    uint4 v = *(const uint4 *)from;
    halves_get(v.x, x);
    halves_get(v.y, x + 2);
    halves_get(v.z, x + 4);
    halves_get(v.w, x + 6);
}

__device__ static inline void bf16_pack_put(uint16_t *to, const float (&x)[PACK])
{
    uint4 v;
    v.x = halves_of(x);
    v.y = halves_of(x + 2);
    v.z = halves_of(x + 4);
    v.w = halves_of(x + 6);
    *(uint4 *)to = v;
}

/* ---- packs of f32 ---- */

__device__ static inline void f32_pack_get(const float *from, float (&x)[PACK])
{
    float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

__device__ static inline void f32_pack_put(float *to, const float (&x)[PACK])
{
    float4 a, b;
    a.x = x[0], a.y = x[1], a.z = x[2], a.w = x[3];
    b.x = x[4], b.y = x[5], b.z = x[6], b.w = x[7];
    ((float4 *)to)[0] = a;
    ((float4 *)to)[1] = b;
}

/* ---- of any tensor ---- */

template <class real, int N>
__device__ static inline void get_pack(const struct tensor &t, int64_t place, real (&x)[N])
{
    if constexpr (N == 1)
        x[0] = get_at<real>(t, place);
    else if (t.dtype == DTYPE_BF16)
        bf16_pack_get((const uint16_t *)t.ptr + place, x);
    else
        f32_pack_get((const float *)t.ptr + place, x);
}

template <class real, int N>
__device__ static inline void put_pack(const struct tensor &t, int64_t place, const real (&x)[N])
{
    if constexpr (N == 1)
        put_at<real>(t, place, x[0]);
    else if (t.dtype == DTYPE_BF16)
        bf16_pack_put((uint16_t *)t.ptr + place, x);
    else
        f32_pack_put((float *)t.ptr + place, x);
}

#endif
