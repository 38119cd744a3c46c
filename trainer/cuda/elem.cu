/* Computes elementwise operations: copies, sums of two tensors, permutations of rows. */
#include "trainer/cuda/kernel.cuh"

/* Copies through double, which represents every type exactly, so each number is rounded once. */
static __global__ void copy(struct tensor src, struct tensor dst)
{
    for (int64_t e = thread_first(); e < elements(dst); e += thread_step()) {
        int64_t row = e / dst.cols, col = e % dst.cols;
        put<double>(dst, row, col, get<double>(src, src.rows == 1 ? 0 : row, col));
    }
}

void kernel_copy(struct ops_cuda *o, cudaStream_t s, const struct ops_copy *a)
{
    (void)o;
    BUG_ON(a->src.cols != a->dst.cols || (a->src.rows != a->dst.rows && a->src.rows != 1));
    launch(s, copy, blocks_for(a->dst.rows * a->dst.cols), THREADS, 0, a->src, a->dst);
}

template <class real>
static __global__ void axpy(struct tensor x, struct tensor y, double alpha)
{
    for (int64_t e = thread_first(); e < elements(y); e += thread_step()) {
        int64_t row = e / y.cols, col = e % y.cols;
        put<real>(y, row, col, get<real>(y, row, col) + (real)alpha * get<real>(x, row, col));
    }
}

/* Returns whether the tensor has one of the two types of these operations (ops.h). */
static bool is_ours(const struct ops_cuda *o, const struct tensor *t)
{
    return t->dtype == o->ops.act || t->dtype == o->ops.stat;
}

void kernel_axpy(struct ops_cuda *o, cudaStream_t s, const struct ops_axpy *a)
{
    int64_t blocks = blocks_for(a->y.rows * a->y.cols);
    BUG_ON(a->x.cols != a->y.cols || a->x.rows != a->y.rows);
    if (is_ours(o, &a->x) && is_ours(o, &a->y))
        LAUNCH_REAL(o, s, axpy, blocks, THREADS, 0, a->x, a->y, a->alpha);
    else
        launch(s, axpy<double>, blocks, THREADS, 0, a->x, a->y, a->alpha);
}

/* Copies rows unchanged: a bf16 or f32 number does not change in a conversion to double and
 * back. */
static __global__ void permute(struct tensor src, struct tensor dst, const int32_t *index,
                               bool back)
{
    for (int64_t e = thread_first(); e < elements(dst); e += thread_step()) {
        int64_t row = e / dst.cols, col = e % dst.cols, other = index[row];
        put<double>(dst, back ? other : row, col, get<double>(src, back ? row : other, col));
    }
}

void kernel_permute(struct ops_cuda *o, cudaStream_t s, const struct ops_permute *a)
{
    (void)o;
    BUG_ON(a->src.cols != a->dst.cols || a->src.rows != a->dst.rows ||
           a->src.dtype != a->dst.dtype);
    launch(s, permute, blocks_for(a->dst.rows * a->dst.cols), THREADS, 0, a->src, a->dst, a->index,
           a->back);
}
