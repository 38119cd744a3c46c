/* eight: the numbers of a row, eight columns at a time.
 *
 * A thread takes eight neighbouring columns, threads beside it the next ones. Where is_even holds
 * for all tensors of a call (`even`) they move 16 bytes at a time; else one by one, and those past
 * the end of the row are 0.
 *
 *     for (int64_t col = 8 * threadIdx.x; col < cols; col += 8 * blockDim.x) {
 *         eight<real> x = get_eight<real>(t, row, col, even);
 *         UNROLL for (int i = 0; i < 8; i++)
 *             x.at[i] *= 2;
 *         put_eight(t, row, col, even, x);
 *     }
 */
#ifndef TRAINER_CUDA_EIGHT_CUH
#define TRAINER_CUDA_EIGHT_CUH

#include "trainer/cuda/kernel.cuh"

template <class real> struct eight { real at[8]; };

/* Does each row have pieces of eight columns that begin at multiples of 16 bytes? An absent tensor
 * has. */
static inline bool is_even(const struct tensor &t)
{
    return !t.ptr || ((uintptr_t)t.ptr % 16 == 0 && t.ld * dtype_bytes(t.dtype) % 16 == 0 &&
                      t.cols % 8 == 0);
}

template <class real> __device__ static inline eight<real> eight_of(real x)
{
    return {{x, x, x, x, x, x, x, x}};
}

/* Return eight numbers from 16-byte places. */
template <class real> __device__ static inline eight<real> load_eight(const double *from)
{
    eight<real> x;
    UNROLL for (int i = 0; i < 4; i++) {
        double2 two = ((const double2 *)from)[i];
        x.at[2 * i] = (real)two.x, x.at[2 * i + 1] = (real)two.y;
    }
    return x;
}

template <class real> __device__ static inline eight<real> load_eight(const float *from)
{
    float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];
    return {{(real)a.x, (real)a.y, (real)a.z, (real)a.w,
             (real)b.x, (real)b.y, (real)b.z, (real)b.w}};
}

template <class real> __device__ static inline eight<real> load_eight(const uint16_t *from)
{
    uint4 all = *(const uint4 *)from;
    unsigned words[4] = {all.x, all.y, all.z, all.w};
    eight<real> x;
    UNROLL for (int i = 0; i < 4; i++) {
        x.at[2 * i] = (real)bf16_value((uint16_t)words[i]);
        x.at[2 * i + 1] = (real)bf16_value((uint16_t)(words[i] >> 16));
    }
    return x;
}

template <class real>
__device__ static inline void store_eight(double *to, const struct eight<real> &x)
{
    UNROLL for (int i = 0; i < 4; i++) {
        double2 two = {(double)x.at[2 * i], (double)x.at[2 * i + 1]};
        ((double2 *)to)[i] = two;
    }
}

template <class real>
__device__ static inline void store_eight(float *to, const struct eight<real> &x)
{
    UNROLL for (int i = 0; i < 8; i += 4) {
        float4 four = {(float)x.at[i], (float)x.at[i + 1], (float)x.at[i + 2], (float)x.at[i + 3]};
        *(float4 *)(to + i) = four;
    }
}

template <class real>
__device__ static inline void store_eight(uint16_t *to, const struct eight<real> &x)
{
    unsigned words[4];
    UNROLL for (int i = 0; i < 4; i++)
        words[i] = to_bf16(x.at[2 * i]) | (unsigned)to_bf16(x.at[2 * i + 1]) << 16;
    uint4 all = {words[0], words[1], words[2], words[3]};
    *(uint4 *)to = all;
}

/* Returns columns col .. col+7 of a row, of which those from `end` on are 0. */
template <class real>
__device__ static inline eight<real> get_eight(const struct tensor &t, int64_t row, int64_t col,
                                               int64_t end, bool even)
{
    int64_t place = row * t.ld + col;
    eight<real> x;
    if (!even) {
        UNROLL for (int i = 0; i < 8; i++)
            x.at[i] = col + i < end ? get_at<real>(t, place + i) : (real)0;
        return x;
    }
    switch (t.dtype) {
    case DTYPE_F64: return load_eight<real>((const double *)t.ptr + place);
    case DTYPE_F32: return load_eight<real>((const float *)t.ptr + place);
    default: return load_eight<real>((const uint16_t *)t.ptr + place);
    }
}

/* Stores columns col .. col+7, without those from `end` on. */
template <class real>
__device__ static inline void put_eight(const struct tensor &t, int64_t row, int64_t col,
                                        int64_t end, bool even, const struct eight<real> &x)
{
    int64_t place = row * t.ld + col;
    if (!even) {
        UNROLL for (int i = 0; i < 8; i++)
            if (col + i < end)
                put_at<real>(t, place + i, x.at[i]);
        return;
    }
    switch (t.dtype) {
    case DTYPE_F64: store_eight((double *)t.ptr + place, x); break;
    case DTYPE_F32: store_eight((float *)t.ptr + place, x); break;
    default: store_eight((uint16_t *)t.ptr + place, x);
    }
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
