/* Kernels around cuDNN's attention (attn_dnn_run.h): lengths and offsets of segments in the form
 * that it reads, and sums of what it gives. */
#include "trainer/cuda/attn_dnn_run.h"
#include "trainer/cuda/kernel.cuh"

/* ---- lengths and offsets ---- */

enum { LOOK_ROWS = 64 }; /* of a block */

/* Marks a segment; whoever finds a number in it writes the same. */
static __global__ void attn_look(struct attn_look a, int64_t tiles)
{
    int64_t segment = blockIdx.x / tiles, at = blockIdx.x % tiles * LOOK_ROWS,
            first = a.q_start[segment] + at, heads = a.lse.cols,
            n = lesser(LOOK_ROWS, a.q_start[segment + 1] - first) * heads;
    for (int64_t e = threadIdx.x; e < n; e += THREADS) {
        float lse = get<float>(a.lse, first + e / heads, e % heads);
        if (!(lse >= -ATTN_DNN_LSE && lse <= ATTN_DNN_LSE))
            a.beyond[segment] = 1;
    }
}

void kernel_attn_look(cudaStream_t s, const struct attn_look *a)
{
    int64_t tiles = (a->longest + LOOK_ROWS - 1) / LOOK_ROWS;
    launch(s, attn_look, a->n * tiles, THREADS, 0, *a, tiles);
}

__device__ static bool is_taken(const struct attn_lay &a, int64_t segment)
{
    return attn_dnn_segment(a.q_start[segment + 1] - a.q_start[segment], a.k_len[segment]);
}

/* Returns the row at which the keys of a segment begin for the library. One that it does not take,
 * and the end of all, has the place behind the last one before that it takes, or that of the first
 * one: such keys may stand anywhere, and the library wants offsets that do not go back. */
__device__ static int64_t keys_first(const struct attn_lay &a, int64_t segment)
{
    int64_t i = lesser(segment, a.given); /* classes have more segments than calls */
    if (i < a.given && is_taken(a, i))
        return a.k_start[i];
    while (i > 0 && !is_taken(a, i - 1))
        i--;
    if (i > 0)
        return a.k_start[i - 1] + a.k_len[i - 1];
    while (i < a.given && !is_taken(a, i))
        i++;
    return i < a.given ? a.k_start[i] : 0;
}

/* Does one segment a block, and the end of all with the last. */
static __global__ void attn_lay(struct attn_lay a)
{
    int64_t i = blockIdx.x;
    bool taken = i < a.given && is_taken(a, i) && !(a.looked && a.left[i]);
    for (int t = (int)threadIdx.x; t < ATTN_TENSORS; t += THREADS) {
        int64_t row = attn_dnn_is_of_keys(t) ? keys_first(a, i) : a.q_start[lesser(i, a.given)];
        a.offset[t * a.step + i] = (row - a.first[t]) * a.ld[t];
    }
    if (i < a.n && threadIdx.x == 0) {
        a.q_len[i] = taken ? a.q_start[i + 1] - a.q_start[i] : 0;
        a.k_len_out[i] = taken ? a.k_len[i] : 0;
        a.left[i] = !taken;
    }
}

void kernel_attn_lay(cudaStream_t s, const struct attn_lay *a)
{
    launch(s, attn_lay, a->n + 1, THREADS, 0, *a);
}

/* ---- sums ---- */

enum { HOME_ROWS = 32 }; /* of a block */

static __global__ void attn_home(struct attn_home a, int64_t tiles)
{
    int64_t segment = blockIdx.x / tiles, at = blockIdx.x % tiles * HOME_ROWS,
            start = a.start[segment], cols = a.heads * a.d,
            len = a.len ? a.len[segment] : a.start[segment + 1] - start;
    if (a.left && a.left[segment])
        return;
    for (int64_t e = threadIdx.x; e < lesser(HOME_ROWS, len - at) * cols; e += THREADS) {
        int64_t row = start + at + e / cols, col = e % cols;
        const float *from = a.from + ((row - a.first) * a.heads + col / a.d) * a.group * a.d;
        float sum = a.add ? get<float>(a.to, row, col) : 0;
        for (int64_t g = 0; g < a.group; g++)
            sum += from[g * a.d + col % a.d];
        put<float>(a.to, row, col, sum);
    }
}

void kernel_attn_home(cudaStream_t s, const struct attn_home *a)
{
    int64_t tiles = (a->longest + HOME_ROWS - 1) / HOME_ROWS;
    launch(s, attn_home, a->n * tiles, THREADS, 0, *a, tiles);
}
