#include "trainer/ops/compute.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/dev/dev_far.h"
#include "trainer/ops/cuda_load.h"
#include "trainer/ops/ops_far.h"

/* A device that the environment names instead of the CPU: "far:SEED" or "cuda:INDEX". */
enum kind { KIND_CPU, KIND_FAR, KIND_CUDA };

static int kind_asked(enum kind *kind, uint64_t *number, struct err *err)
{
    static const char *const prefixes[] = {[KIND_FAR] = "far:", [KIND_CUDA] = "cuda:"};
    const char *name = getenv("REEL_DEVICE");
    *kind = KIND_CPU;
    if (!name || strcmp(name, "cpu") == 0)
        return 0;
    for (int k = KIND_FAR; k <= KIND_CUDA; k++) {
        size_t n = strlen(prefixes[k]);
        *kind = (enum kind)k;
        if (strncmp(name, prefixes[k], n) == 0 &&
            num_parse_u64(name + n, "REEL_DEVICE", number, NULL) == 0)
            return 0;
    }
    return err_set(err, ERR_USAGE, "REEL_DEVICE is '%s': give cpu, or leave it unset", name);
}

static int dev_open(enum kind kind, uint64_t number, bool poison, struct dev **out,
                    struct err *err)
{
    const struct cuda_backend *cuda;
    int rc;
    switch (kind) {
    case KIND_FAR: return dev_far_open(number, out, err);
    case KIND_CUDA:
        if ((rc = cuda_load(&cuda, err)) < 0)
            return rc;
        return cuda->dev_open((int)(number < INT32_MAX ? number : INT32_MAX), poison, out, err);
    case KIND_CPU: break;
    }
    return dev_cpu_open(poison, out, err);
}

static int table_open(enum kind kind, struct dev *dev, enum dtype dtype, enum ops_blas blas,
                      struct ops **out, struct err *err)
{
    const struct cuda_backend *cuda;
    int rc;
    switch (kind) {
    case KIND_FAR: return ops_far_open(dev, dtype, blas, out, err);
    case KIND_CUDA:
        if ((rc = cuda_load(&cuda, err)) < 0)
            return rc;
        return cuda->ops_open(dev, dtype, out, err);
    case KIND_CPU: break;
    }
    return ops_cpu_open(dev, dtype, blas, out, err);
}

int compute_open(struct compute *d, bool poison, enum dtype dtype, enum ops_blas blas,
                struct err *err)
{
    enum kind kind;
    uint64_t number = 0;
    int rc;
    if ((rc = kind_asked(&kind, &number, err)) < 0)
        return rc;
    if ((rc = dev_open(kind, number, poison, &d->dev, err)) < 0)
        return rc;
    if ((rc = d->dev->stream_new(d->dev, "compute", DEV_PRIORITY_NORMAL, &d->stream, err)) < 0)
        return rc;
    return table_open(kind, d->dev, dtype, blas, &d->ops, err);
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
