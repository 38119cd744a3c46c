/* pack: reads and writes eight numbers of a row at a time, by accesses of 16 bytes. There are two
 * ways to use it.
 *
 * An elementwise kernel is a template over N, the numbers of a row that a thread handles at once: N
 * is PACK if all tensors consist of whole, aligned packs, else 1. Both give the same bits.
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
 *
 * A kernel whose threads keep the same columns in several tensors uses `eight`. A thread has eight
 * neighbouring columns, and the next thread has the next eight. If is_even holds for all tensors of
 * a call (`even`), they are accessed as packs; otherwise one by one, with zeros past the row's end.
 *
 *     for (int64_t col = PACK * threadIdx.x; col < cols; col += PACK * blockDim.x) {
 *         eight<real> x = get_eight<real>(t, row, col, even);
 *         UNROLL for (int i = 0; i < PACK; i++)
 *             x.at[i] *= 2;
 *         put_eight(t, row, col, even, x);
 *     }
 */
#ifndef TRAINER_CUDA_PACK_CUH
#define TRAINER_CUDA_PACK_CUH

#include "trainer/cuda/kernel.cuh"

enum { PACK = 8, PACK_BYTES = 16 };

/* Returns whether the tensor consists of whole, aligned packs. An absent tensor counts as one that
 * does. */
static inline bool packs(const struct tensor *t)
{
    return t->dtype != DTYPE_F64 && (uintptr_t)t->ptr % PACK_BYTES == 0 && t->ld % PACK == 0 &&
           t->cols % PACK == 0;
}

/* Launches a kernel over n elements of rows. The f64 table, which is for tests, does not use
 * packs. */
#define LAUNCH_PACKS(o, s, is_packed, kernel, n, ...)                                     \
    do {                                                                                  \
        if ((o)->ops.stat == DTYPE_F64)                                                   \
            launch(s, kernel<double, 1>, blocks_for(n), THREADS, 0, __VA_ARGS__);         \
        else if (is_packed)                                                               \
            launch(s, kernel<float, PACK>, blocks_for((n) / PACK), THREADS, 0, __VA_ARGS__); \
        else                                                                              \
            launch(s, kernel<float, 1>, blocks_for(n), THREADS, 0, __VA_ARGS__);          \
    } while (0)

/* Returns the offset of the first number of pack e, where packs are numbered row by row. */
template <int N> __device__ static inline int64_t place_of(const struct tensor &t, int64_t e)
{
    int64_t each = t.cols / N;
    return e / each * t.ld + e % each * N;
}

/* ---- packs at addresses that are multiples of 16 bytes ---- */

template <class real> __device__ static inline void load_pack(const double *from, real (&x)[PACK])
{
    UNROLL for (int i = 0; i < PACK / 2; i++) {
        double2 two = ((const double2 *)from)[i];
        x[2 * i] = (real)two.x, x[2 * i + 1] = (real)two.y;
    }
}

template <class real> __device__ static inline void load_pack(const float *from, real (&x)[PACK])
{
    UNROLL for (int i = 0; i < PACK / 4; i++) {
        float4 four = ((const float4 *)from)[i];
        x[4 * i] = (real)four.x, x[4 * i + 1] = (real)four.y;
        x[4 * i + 2] = (real)four.z, x[4 * i + 3] = (real)four.w;
    }
}

/* Loads a pack of bf16. A word holds two numbers, the first one in its low half. */
template <class real>
__device__ static inline void load_pack(const uint16_t *from, real (&x)[PACK])
{
    uint4 all = *(const uint4 *)from;
    unsigned words[PACK / 2] = {all.x, all.y, all.z, all.w};
    UNROLL for (int i = 0; i < PACK / 2; i++) {
        x[2 * i] = (real)bf16_value((uint16_t)words[i]);
        x[2 * i + 1] = (real)bf16_value((uint16_t)(words[i] >> 16));
    }
}

template <class real> __device__ static inline void store_pack(double *to, const real (&x)[PACK])
{
    UNROLL for (int i = 0; i < PACK / 2; i++) {
        double2 two = {(double)x[2 * i], (double)x[2 * i + 1]};
        ((double2 *)to)[i] = two;
    }
}

template <class real> __device__ static inline void store_pack(float *to, const real (&x)[PACK])
{
    UNROLL for (int i = 0; i < PACK; i += 4) {
        float4 four = {(float)x[i], (float)x[i + 1], (float)x[i + 2], (float)x[i + 3]};
        *(float4 *)(to + i) = four;
    }
}

template <class real> __device__ static inline void store_pack(uint16_t *to, const real (&x)[PACK])
{
    unsigned words[PACK / 2];
    UNROLL for (int i = 0; i < PACK / 2; i++)
        words[i] = to_bf16(x[2 * i]) | (unsigned)to_bf16(x[2 * i + 1]) << 16;
    uint4 all = {words[0], words[1], words[2], words[3]};
    *(uint4 *)to = all;
}

/* ---- packs of any tensor ---- */

template <class real, int N>
__device__ static inline void get_pack(const struct tensor &t, int64_t place, real (&x)[N])
{
    if constexpr (N == 1) {
        x[0] = get_at<real>(t, place);
    } else {
        switch (t.dtype) {
        case DTYPE_F64: load_pack((const double *)t.ptr + place, x); break;
        case DTYPE_F32: load_pack((const float *)t.ptr + place, x); break;
        default: load_pack((const uint16_t *)t.ptr + place, x);
        }
    }
}

template <class real, int N>
__device__ static inline void put_pack(const struct tensor &t, int64_t place, const real (&x)[N])
{
    if constexpr (N == 1) {
        put_at<real>(t, place, x[0]);
    } else {
        switch (t.dtype) {
        case DTYPE_F64: store_pack((double *)t.ptr + place, x); break;
        case DTYPE_F32: store_pack((float *)t.ptr + place, x); break;
        default: store_pack((uint16_t *)t.ptr + place, x);
        }
    }
}

/* ---- eights ---- */

template <class real> struct eight { real at[PACK]; };

/* Returns whether each row consists of packs and begins at a multiple of 16 bytes. An absent tensor
 * counts as one whose rows do. */
static inline bool is_even(const struct tensor &t)
{
    return !t.ptr || ((uintptr_t)t.ptr % PACK_BYTES == 0 &&
                      t.ld * dtype_bytes(t.dtype) % PACK_BYTES == 0 && t.cols % PACK == 0);
}

template <class real> __device__ static inline eight<real> eight_of(real x)
{
    return {{x, x, x, x, x, x, x, x}};
}

/* Returns columns col .. col+7 of a row, with zeros from `end` on. */
template <class real>
__device__ static inline eight<real> get_eight(const struct tensor &t, int64_t row, int64_t col,
                                               int64_t end, bool even)
{
    int64_t place = row * t.ld + col;
    eight<real> x;
    if (even)
        get_pack(t, place, x.at);
    else
        UNROLL for (int i = 0; i < PACK; i++)
            x.at[i] = col + i < end ? get_at<real>(t, place + i) : (real)0;
    return x;
}

/* Stores columns col .. col+7 of a row, except those from `end` on. */
template <class real>
__device__ static inline void put_eight(const struct tensor &t, int64_t row, int64_t col,
                                        int64_t end, bool even, const struct eight<real> &x)
{
    int64_t place = row * t.ld + col;
    if (even)
        put_pack(t, place, x.at);
    else
        UNROLL for (int i = 0; i < PACK; i++)
            if (col + i < end)
                put_at<real>(t, place + i, x.at[i]);
}

template <class real>
__device__ static inline eight<real> get_eight(const struct tensor &t, int64_t row, int64_t col,
                                               bool even)
{
    return get_eight<real>(t, row, col, t.cols, even);
}

template <class real>
__device__ static inline void put_eight(const struct tensor &t, int64_t row, int64_t col,
                                        bool even, const struct eight<real> &x)
{
    put_eight(t, row, col, t.cols, even, x);
}

#endif
