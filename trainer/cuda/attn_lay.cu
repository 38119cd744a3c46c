/* Prepares and ends cuDNN's attention (attn_dnn_run.h): these kernels write lengths and offsets of
 * segments in cuDNN's form, and copy or add its results. */
#include "trainer/cuda/attn_dnn_run.h"
#include "trainer/cuda/kernel.cuh"

/* ---- lengths and offsets ---- */

enum { LOOK_ROWS = 64 }; /* rows per block */

/* Marks segments with a large lse. All threads that find one in a segment write the same value. */
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

/* Returns the row at which the library reads the keys of a segment. For a segment that it does not
 * compute, and for the end of the last one, this is the end of the previous segment that it
 * computes, or the start of the first one. The keys of such segments may be anywhere, but the
 * library requires offsets that do not decrease. */
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

/* Computes one segment in each block; the last block writes the end offsets. */
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

/* ---- results ---- */

enum { HOME_ROWS = 32 }; /* rows per block */

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
