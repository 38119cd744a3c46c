#include "trainer/ops/compute.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/dev/dev_far.h"
#include "trainer/ops/ops_far.h"

/* Says whether the tests' device is asked for, and by which seed it orders its work. */
static int far_asked(bool *far, uint64_t *seed, struct err *err)
{
    static const char prefix[] = "far:";
    const char *name = getenv("REEL_DEVICE");
    *far = name && strncmp(name, prefix, strlen(prefix)) == 0;
    if (!name || strcmp(name, "cpu") == 0 ||
        (*far && num_parse_u64(name + strlen(prefix), "REEL_DEVICE", seed, NULL) == 0))
        return 0;
    return err_set(err, ERR_USAGE, "REEL_DEVICE is '%s': give cpu, or leave it unset", name);
}

int compute_open(struct compute *d, bool poison, enum dtype dtype, enum ops_blas blas,
                struct err *err)
{
    bool far;
    uint64_t seed = 0;
    int rc;
    if ((rc = far_asked(&far, &seed, err)) < 0)
        return rc;
    if ((rc = far ? dev_far_open(seed, &d->dev, err)
                  : dev_cpu_open(poison, &d->dev, err)) < 0)
        return rc;
    if ((rc = d->dev->stream_new(d->dev, "compute", DEV_PRIORITY_NORMAL, &d->stream, err)) < 0)
        return rc;
    return far ? ops_far_open(d->dev, dtype, blas, &d->ops, err)
               : ops_cpu_open(d->dev, dtype, blas, &d->ops, err);
}

void compute_close(struct compute *d)
{
    if (d->ops)
        d->ops->close(d->ops);
    if (d->stream)
        d->dev->stream_free(d->dev, d->stream);
    if (d->dev)
        d->dev->close(d->dev);
    *d = (struct compute){0};
}
