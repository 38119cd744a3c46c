#include "trainer/cuda/gemm.h"

#include "trainer/cuda/gemm_lt.h"

/* Queues the act of a product whose value before the act is in its target. */
static void act_behind(struct ops_cuda *o, cudaStream_t s, const struct ops_gemm *g)
{
    const struct ops_act act = {.kind = g->act, .x = *gemm_target(g), .y = g->c};
    if (g->aux.ptr || g->act != OPS_ACT_NONE)
        kernel_act_fwd(o, s, &act);
}

void kernel_gemm(struct ops_cuda *o, cudaStream_t s, const struct ops_gemm *g)
{
    int64_t m = g->c.rows, n = g->c.cols, k = g->ta ? g->a.rows : g->a.cols;
    BUG_ON((g->ta ? g->a.cols : g->a.rows) != m || (g->act != OPS_ACT_NONE && g->beta != 0));
    BUG_ON((g->tb ? g->b.rows : g->b.cols) != n || (g->tb ? g->b.cols : g->b.rows) != k);
    const struct gemm_key key = gemm_key_of(g);
    if (gemm_fits_lt(g) && gemm_lt_queue(o->lt, s, g))
        act_behind(o, s, g);
    else if (gemm_is_few(&key))
        gemm_few_rows(o, s, g);
    else
        gemm_own(o, s, g);
}
