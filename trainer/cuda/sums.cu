/* Sums over rows, in a fixed order and in two stages: each block adds the rows of its part, and a
 * second kernel adds the parts in order. It also sums parts that several ranks have sent. */
#include "trainer/cuda/parts.cuh"

/* Sums the columns over a band of rows: block p computes band p. */
template <class real>
static __global__ void colsum_part(struct tensor x, int64_t rows_each, real *parts)
{
    int64_t first = (int64_t)blockIdx.x * rows_each;
    int64_t end = first + rows_each < x.rows ? first + rows_each : x.rows;
    for (int64_t col = threadIdx.x; col < x.cols; col += blockDim.x) {
        real sum = 0;
        for (int64_t row = first; row < end; row++)
            sum += get<real>(x, row, col);
        parts[(int64_t)blockIdx.x * x.cols + col] = sum;
    }
}

template <class real>
static void colsum(struct ops_cuda *o, cudaStream_t s, const struct ops_colsum *a)
{
    int64_t rows_each = (a->x.rows + CUDA_PARTS - 1) / CUDA_PARTS;
    int64_t parts = rows_each ? (a->x.rows + rows_each - 1) / rows_each : 0;
    launch(s, colsum_part<real>, parts, THREADS, 0, a->x, rows_each, (real *)o->parts);
    parts_add<real>(o, s, parts, a->x.cols, a->out, a->beta);
}

void kernel_colsum(struct ops_cuda *o, cudaStream_t s, const struct ops_colsum *a)
{
    BUG_ON(a->out.cols != a->x.cols || a->x.cols > OPS_ROW_MAX);
    if (o->ops.stat == DTYPE_F64)
        colsum<double>(o, s, a);
    else
        colsum<float>(o, s, a);
}

/* ---- sums over ranks ---- */

/* Returns element i of part p; the rank's own part is in `mine`. */
template <class real>
static __device__ real of_part(const struct sum_parts &a, int p, int64_t i)
{
    const void *from = p == a.own ? a.mine : a.parts;
    int64_t at = p == a.own ? i : p * a.stride + i;
    switch (a.dtype) {
    case DTYPE_F64: return (real)((const double *)from)[at];
    case DTYPE_F32: return (real)((const float *)from)[at];
    default: return (real)bf16_value(((const uint16_t *)from)[at]);
    }
}

template <class real> static __global__ void sum_parts(struct sum_parts a)
{
    struct tensor out = {a.out, a.dtype, 1, a.n, a.n};
    for (int64_t i = thread_first(); i < a.n; i += thread_step()) {
        real sum = of_part<real>(a, 0, i);
        for (int p = 1; p < a.n_parts; p++)
            sum += of_part<real>(a, p, i);
        put_at<real>(out, i, sum);
    }
}

void kernel_sum_parts(cudaStream_t s, const struct sum_parts *a)
{
    BUG_ON(a->n_parts < 1 || a->dtype > DTYPE_BF16);
    if (a->dtype == DTYPE_F64)
        launch(s, sum_parts<double>, blocks_for(a->n), THREADS, 0, *a);
    else
        launch(s, sum_parts<float>, blocks_for(a->n), THREADS, 0, *a);
}
