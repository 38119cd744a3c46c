/* Computes the operations between latents and tokens: patchify with input scaling, its inverse, and
 * the loss. */
#include "trainer/cuda/samples.cuh"

__host__ __device__ static inline int64_t patch_of(const struct ops_latents &a)
{
    return a.patch_t * a.patch_h * a.patch_w;
}

/* ---- the position of a token's element in its latent ---- */

/* Holds the position of one element of a token: its channel, and its cell in the sample. */
struct spot { int64_t channel, t, h, w; };

/* Returns the position of column `col` of row `row` of the sample's rows. The columns of a token
 * are ordered by channel, then by t, h, w within the patch. */
__device__ static struct spot spot_of(const struct ops_latents &a, const struct ops_sample &m,
                                      int64_t row, int64_t col)
{
    int64_t across = m.w / a.patch_w, down = m.h / a.patch_h, token = m.first + row;
    struct spot p;
    p.w = token % across * a.patch_w + col % a.patch_w;
    col /= a.patch_w;
    p.h = token / across % down * a.patch_h + col % a.patch_h;
    col /= a.patch_h;
    p.t = token / across / down * a.patch_t + col % a.patch_t;
    p.channel = col / a.patch_t;
    return p;
}

/* Returns the offset of a position's cell, in `channel`, in a buffer of `channels` channels. */
__device__ static int64_t place_in(const struct ops_sample &m, const struct spot &p,
                                   int64_t channels, int64_t channel)
{
    return m.cell * channels + ((channel * m.t + p.t) * m.h + p.h) * m.w + p.w;
}

/* Returns of_data · latent + of_noise · noise. The noise is not read if of_noise is 0. */
template <class real>
__device__ static real mixed(const struct ops_latents &a, const struct ops_sample &m,
                             const struct spot &p, double of_data, double of_noise)
{
    int64_t place = place_in(m, p, a.channels, p.channel);
    real x = (real)of_data * get_at<real>(a.latent, place);
    return of_noise == 0 ? x : (real)of_noise * get_at<real>(a.noise, place) + x;
}

/* ---- patches ---- */

template <class real>
__device__ static real condition(const struct ops_latents &a, const struct ops_sample &m,
                                 const struct spot &p)
{
    if (!a.cond.ptr)
        return 0;
    return get_at<real>(a.cond, place_in(m, p, a.cond_channels, p.channel - a.channels));
}

template <class real> static __global__ void patchify(struct ops_latents a)
{
    struct share part = share_of(a.n);
    const struct ops_sample &m = a.samples[part.sample];
    int64_t cols = a.tokens.cols;
    for (int64_t e = part.first; e < m.n_tokens * cols; e += part.step) {
        int64_t row = e / cols, col = e % cols;
        struct spot p = spot_of(a, m, row, col);
        put(a.tokens, m.token + row, col,
            p.channel < a.channels ? mixed<real>(a, m, p, m.in_data, m.in_noise)
                                   : condition<real>(a, m, p));
    }
}

void kernel_patchify(struct ops_cuda *o, cudaStream_t s, const struct ops_latents *a)
{
    int64_t channels = a->channels + a->cond_channels;
    BUG_ON(a->tokens.cols != channels * patch_of(*a));
    LAUNCH_REAL(o, s, patchify, blocks_for_samples(a->n, a->cells * channels), THREADS, 0, *a);
}

template <class real> static __global__ void unpatchify(struct ops_latents a)
{
    struct share part = share_of(a.n);
    const struct ops_sample &m = a.samples[part.sample];
    int64_t cols = a.channels * patch_of(a);
    for (int64_t e = part.first; e < m.n_tokens * cols; e += part.step) {
        int64_t row = e / cols, col = e % cols;
        struct spot p = spot_of(a, m, row, col);
        put_at(a.out, place_in(m, p, a.channels, p.channel),
               get<real>(a.tokens, m.token + row, col));
    }
}

void kernel_unpatchify(struct ops_cuda *o, cudaStream_t s, const struct ops_latents *a)
{
    BUG_ON(a->tokens.cols != a->channels * patch_of(*a));
    LAUNCH_REAL(o, s, unpatchify, blocks_for_samples(a->n, a->cells * a->channels), THREADS, 0,
                *a);
}

/* ---- the loss ---- */

/* The squares of a sample are summed in parts, one by each block. There is a part for every
 * PART_ELEMENTS elements of the sample, and at most PARTS_MAX parts. So the sum of a sample does
 * not depend on other samples. */
enum { PART_ELEMENTS = 4 * THREADS, PARTS_MAX = 256 };

__host__ __device__ static inline int64_t parts_for(int64_t n)
{
    int64_t parts = (n + PART_ELEMENTS - 1) / PART_ELEMENTS;
    return parts < PARTS_MAX ? parts : (int64_t)PARTS_MAX;
}

__device__ static inline bool is_padding(const struct ops_sample &m, const struct spot &p)
{
    return p.t >= m.valid_t || p.h >= m.valid_h || p.w >= m.valid_w;
}

/* Writes the gradient of an element and returns its squared error. */
template <class real>
__device__ static double loss_element(const struct ops_latents &a, const struct ops_sample &m,
                                      int64_t row, int64_t col)
{
    struct spot p = spot_of(a, m, row, col);
    real e = 0;
    if (!is_padding(m, p))
        e = get<real>(a.tokens, m.token + row, col) -
            mixed<real>(a, m, p, m.out_data, m.out_noise);
    put(a.dtokens, m.token + row, col, (real)(2 * m.weight * m.inv_norm) * e);
    return (double)e * (double)e;
}

/* Sums the squares of one part of a sample: block b computes part b / n of sample b % n. */
template <class real> static __global__ void loss_part(struct ops_latents a, double *sums)
{
    int64_t part = blockIdx.x / a.n, cols = a.channels * patch_of(a);
    const struct ops_sample &m = a.samples[blockIdx.x % a.n];
    int64_t n = m.n_tokens * cols, parts = parts_for(n);
    double sum = 0;
    if (part >= parts)
        return;
    for (int64_t e = part * THREADS + threadIdx.x; e < n; e += parts * THREADS)
        sum += loss_element<real>(a, m, e / cols, e % cols);
    sum = block_sum(sum, (double *)block_memory);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

/* Adds the parts of each sample in order. */
static __global__ void loss_add(struct ops_latents a, const double *sums)
{
    for (int64_t i = thread_first(); i < a.n; i += thread_step()) {
        int64_t parts = parts_for(a.samples[i].n_tokens * a.channels * patch_of(a));
        double sum = 0;
        for (int64_t p = 0; p < parts; p++)
            sum += sums[p * a.n + i];
        a.loss[i] = sum;
    }
}

void kernel_loss(struct ops_cuda *o, cudaStream_t s, const struct ops_latents *a)
{
    int64_t blocks = a->n * parts_for(a->cells * a->channels);
    double *sums = (double *)o->parts;
    BUG_ON(a->tokens.cols != a->channels * patch_of(*a) || a->dtokens.cols != a->tokens.cols);
    BUG_ON(blocks > (int64_t)CUDA_PARTS * OPS_ROW_MAX);
    LAUNCH_REAL(o, s, loss_part, blocks, THREADS, THREADS / WARP * 8, *a, sums);
    launch(s, loss_add, blocks_for(a->n), THREADS, 0, *a, (const double *)sums);
}
