/* Computes sines and cosines of positions and noise levels, in f64.
 *
 * The runtime's sin and cos use a table in local memory for huge arguments. Our functions subtract
 * multiples of pi/2 in three parts and evaluate Taylor's series on [-pi/4, pi/4]; the omitted terms
 * are below 1e-17. The first two parts have 33 bits each (Cody and Waite, "Software manual for the
 * elementary functions", 1980, chapter 8), so that their products with n are exact for n up to
 * 2^20. For an angle of up to 1.6 million the error of this reduction is below 2e-16. */
#include "trainer/cuda/kernel.cuh"

struct turn { double cosine, sine; };

/* Return sin(r) / r (sine_series) and cos(r) (cosine_series), as functions of z = r². */
__device__ static double sine_series(double z)
{
    double p = 1.0 / 355687428096000;
    p = p * z - 1.0 / 1307674368000;
    p = p * z + 1.0 / 6227020800;
    p = p * z - 1.0 / 39916800;
    p = p * z + 1.0 / 362880;
    p = p * z - 1.0 / 5040;
    p = p * z + 1.0 / 120;
    p = p * z - 1.0 / 6;
    return 1 + p * z;
}

__device__ static double cosine_series(double z)
{
    double p = 1.0 / 20922789888000;
    p = p * z - 1.0 / 87178291200;
    p = p * z + 1.0 / 479001600;
    p = p * z - 1.0 / 3628800;
    p = p * z + 1.0 / 40320;
    p = p * z - 1.0 / 720;
    p = p * z + 1.0 / 24;
    p = p * z - 0.5;
    return 1 + p * z;
}

/* Returns the angle minus a multiple of pi/2, and writes that multiple modulo 4 to `quarter`. */
__device__ static double angle_reduce(double angle, int *quarter)
{
    const double first = 0x1.921fb544p+0, second = 0x1.0b4611a6p-34, third = 0x1.3198a2e037073p-69;
    double n = rint(angle * 0.63661977236758134308); /* 2 / pi */
    *quarter = (int)((int64_t)n & 3);
    return angle - n * first - n * second - n * third;
}

__device__ static struct turn turn_of(double angle)
{
    int quarter;
    double r = angle_reduce(angle, &quarter), z = r * r;
    double sine = r * sine_series(z), cosine = cosine_series(z);
    struct turn t;
    t.cosine = quarter == 0 ? cosine : quarter == 1 ? -sine : quarter == 2 ? -cosine : sine;
    t.sine = quarter == 0 ? sine : quarter == 1 ? cosine : quarter == 2 ? -sine : -cosine;
    return t;
}

/* ---- the sinusoid of a number ---- */

template <class real> static __global__ void sinusoid(struct ops_sinusoid a, double log_base)
{
    int64_t half = a.out.cols / 2, each = half + a.out.cols % 2;
    for (int64_t e = thread_first(); e < a.out.rows * each; e += thread_step()) {
        int64_t row = e / each, j = e % each;
        if (j == half) { /* the odd last column */
            put<real>(a.out, row, 2 * half, 0);
            continue;
        }
        struct turn t = turn_of(a.values[row] * exp(-log_base * (double)j / (double)half));
        put(a.out, row, j, (real)t.cosine);
        put(a.out, row, half + j, (real)t.sine);
    }
}

void kernel_sinusoid(struct ops_cuda *o, cudaStream_t s, const struct ops_sinusoid *a)
{
    int64_t n = a->out.rows * (a->out.cols - a->out.cols / 2);
    LAUNCH_REAL(o, s, sinusoid, blocks_for(n), THREADS, 0, *a, log(10000.0));
}

/* ---- rotary positions ---- */

/* Returns the angle of pair j of a token. The pairs are ordered by axis: t, h, w. */
__device__ static double rope_angle(const struct ops_rope &a, double log_theta, int64_t row,
                                    int64_t j)
{
    const int32_t *pos = a.pos + 3 * row;
    double place = pos[0] * 24.0 / a.fps[a.sample[row]];
    int64_t pairs = a.pairs_t;
    if (j >= a.pairs_t + a.pairs_h) {
        j -= a.pairs_t + a.pairs_h;
        place = pos[2];
        pairs = a.pairs_w;
    } else if (j >= a.pairs_t) {
        j -= a.pairs_t;
        place = pos[1];
        pairs = a.pairs_h;
    }
    return place * exp(-log_theta * (double)j / (double)pairs);
}

template <class real> static __global__ void rope(struct ops_rope a, double log_theta)
{
    for (int64_t e = thread_first(); e < elements(a.cos); e += thread_step()) {
        int64_t row = e / a.cos.cols, j = e % a.cos.cols;
        struct turn t = turn_of(rope_angle(a, log_theta, row, j));
        put(a.cos, row, j, (real)t.cosine);
        put(a.sin, row, j, (real)t.sine);
    }
}

void kernel_rope(struct ops_cuda *o, cudaStream_t s, const struct ops_rope *a)
{
    BUG_ON(a->cos.cols != a->pairs_t + a->pairs_h + a->pairs_w);
    BUG_ON(a->sin.cols != a->cos.cols || a->sin.rows != a->cos.rows);
    LAUNCH_REAL(o, s, rope, blocks_for(a->cos.rows * a->cos.cols), THREADS, 0, *a, log(a->theta));
}
