#include "tests/lib/optim_step.h"

int optim_step(struct optim *o, int64_t step, double norm_limit,
               struct optim_result *out, struct err *err)
{
    struct dev *dev = o->c.ops->dev;
    int rc;
    if ((rc = optim_sum(o, err)) < 0)
        return rc;
    if ((rc = dev->stream_sync(dev, o->c.stream, err)) < 0)
        return rc;
    return optim_update(o, step, norm_limit, out, err);
}
