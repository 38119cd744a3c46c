#include "tests/lib/trainer_rig.h"

/* These are the benches of rigs. A bench that is free is given to the next rig of its type. */
static struct { struct bench b; enum dtype dtype; bool used; } kept[8];
static int n_kept;

struct bench rig_bench_take(enum dtype dtype)
{
    int i = 0;
    while (i < n_kept && (kept[i].used || kept[i].dtype != dtype))
        i++;
    if (i == n_kept) {
        assert_true(i < LEN(kept));
        kept[n_kept++].b = bench_open(dtype);
    }
    kept[i].dtype = dtype, kept[i].used = true;
    return kept[i].b;
}

static void bench_give_back(const struct bench *b)
{
    bench_is_idle(b);
    for (int i = 0; i < n_kept; i++)
        kept[i].used &= kept[i].b.dev != b->dev;
}

void optim_rig_close(struct rig *r)
{
    optim_close(&r->o);
    comm_grid_close(&r->grid);
    comm_bind(world, NULL, NULL, NULL);
    shards_release(&r->sh);
    params_release(&r->params);
    run_release(&r->run);
    bench_give_back(&r->b);
}
