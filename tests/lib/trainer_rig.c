#include "tests/lib/trainer_rig.h"

void optim_rig_close(struct rig *r)
{
    optim_close(&r->o);
    comm_grid_close(&r->grid);
    comm_bind(world, NULL, NULL, NULL);
    shards_release(&r->sh);
    params_release(&r->params);
    run_release(&r->run);
    bench_close(&r->b);
}
