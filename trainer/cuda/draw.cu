/* Draws random numbers: initial weights, and the noise of samples. They have the same bits as on
 * the CPU, because both compile philox_impl.h without contraction. */
#include "base/philox_impl.h"
#include "trainer/cuda/samples.cuh"

/* Returns number `index` of a sequence. A block has two numbers, each made of two words. */
__device__ static double uniform_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal,
                                    uint64_t index)
{
    struct philox_block b = philox_packed(seed, stream, ordinal, index / 2);
    return index % 2 ? philox_unit(b.w[2], b.w[3]) : philox_unit(b.w[0], b.w[1]);
}

/* ---- initial weights ---- */

__device__ static double drawn(const struct ops_draw &a, uint64_t at)
{
    if (a.kind == OPS_DRAW_ONE)
        return a.scale;
    double u = uniform_at(a.seed, PHILOX_INIT, a.ordinal, at);
    return a.scale * (a.kind == OPS_DRAW_NORMAL ? philox_normal_of(u) : 2 * u - 1);
}

static __global__ void draw(struct ops_draw a)
{
    for (int64_t j = thread_first(); j < a.out.cols; j += thread_step()) {
        double x = drawn(a, a.first + (uint64_t)j);
        if (a.out.dtype == DTYPE_F64)
            put_at<double>(a.out, j, x);
        else
            put_at<float>(a.out, j, (float)x); /* bf16 is rounded from f32 */
    }
}

void kernel_draw(struct ops_cuda *o, cudaStream_t s, const struct ops_draw *a)
{
    (void)o;
    BUG_ON(a->out.rows != 1);
    launch(s, draw, blocks_for(a->out.cols), THREADS, 0, *a);
}

/* ---- noise ---- */

template <class real> static __global__ void normal(struct ops_normal a)
{
    struct share p = share_of(a.n);
    const struct ops_sample &m = a.samples[p.sample];
    int64_t n = cells_of(m) * a.channels;
    for (int64_t j = p.first; j < n; j += p.step) {
        double u = uniform_at(a.seed, a.stream, m.ordinal, (uint64_t)j);
        put_at(a.out, m.cell * a.channels + j, (real)philox_normal_of(u));
    }
}

void kernel_normal(struct ops_cuda *o, cudaStream_t s, const struct ops_normal *a)
{
    LAUNCH_REAL(o, s, normal, blocks_for_samples(a->n, a->cells * a->channels), THREADS, 0, *a);
}
