#include "trainer/ops/compute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/dev/dev_far.h"
#include "trainer/ops/cuda_load.h"
#include "trainer/ops/ops_far.h"

enum kind { KIND_CPU, KIND_CUDA, KIND_FAR };
/* Describes the device to open: its kind, and a GPU's index or the far device's seed. */
struct wish { enum kind kind; uint64_t number; };

/* Parses REEL_DEVICE ("cpu", "far:SEED" or "cuda:INDEX") into w. Leaves w alone if it is unset. */
static int wish_take(struct wish *w, struct err *err)
{
    static const char *const prefixes[] = {[KIND_CUDA] = "cuda:", [KIND_FAR] = "far:"};
    const char *name = getenv("REEL_DEVICE");
    if (!name)
        return 0;
    if (strcmp(name, "cpu") == 0) {
        w->kind = KIND_CPU;
        return 0;
    }
    for (int k = KIND_CUDA; k <= KIND_FAR; k++) {
        size_t n = strlen(prefixes[k]);
        w->kind = (enum kind)k;
        if (strncmp(name, prefixes[k], n) == 0 &&
            num_parse_u64(name + n, "REEL_DEVICE", &w->number, NULL) == 0)
            return 0;
    }
    return err_set(err, ERR_USAGE,
                   "REEL_DEVICE is '%s': leave it unset, it is for tests (--device chooses)", name);
}

static int dev_open(struct wish w, bool poison, struct dev **out, struct err *err)
{
    const struct cuda_backend *cuda;
    int rc;
    switch (w.kind) {
    case KIND_FAR: return dev_far_open(w.number, out, err);
    case KIND_CUDA:
        if ((rc = cuda_load(&cuda, err)) < 0)
            return rc;
        return cuda->dev_open((int)(w.number < INT32_MAX ? w.number : INT32_MAX), poison, out, err);
    case KIND_CPU: break;
    }
    return dev_cpu_open(poison, out, err);
}

/* Returns `choice`, or the value of the environment's variable if choice is NULL, or "". */
static const char *chosen(const char *choice, const char *variable)
{
    const char *given = choice ? choice : getenv(variable);
    return given ? given : "";
}

static int table_open(struct wish w, const struct compute_conf *conf, struct dev *dev,
                      struct ops **out, struct err *err)
{
    const struct cuda_backend *cuda;
    int rc;
    switch (w.kind) {
    case KIND_FAR: return ops_far_open(dev, conf->dtype, conf->blas, out, err);
    case KIND_CUDA:
        if ((rc = cuda_load(&cuda, err)) < 0)
            return rc;
        return cuda->ops_open(dev, conf->dtype, chosen(conf->gemm_table, "REEL_GEMM_TABLE"),
                              chosen(conf->attn, "REEL_ATTN"), out, err);
    case KIND_CPU: break;
    }
    return ops_cpu_open(dev, conf->dtype, conf->blas, out, err);
}

int compute_open(struct compute *d, const struct compute_conf *conf, struct err *err)
{
    struct wish w = {conf->device == COMPUTE_CUDA ? KIND_CUDA : KIND_CPU, (uint64_t)conf->gpu};
    int rc;
    if ((rc = wish_take(&w, err)) < 0)
        return rc;
    if ((rc = dev_open(w, conf->poison, &d->dev, err)) < 0)
        return rc;
    if ((rc = d->dev->stream_new(d->dev, "compute", DEV_PRIORITY_NORMAL, &d->stream, err)) < 0)
        return rc;
    if ((rc = table_open(w, conf, d->dev, &d->ops, err)) < 0)
        return rc;
    d->ops->deterministic = conf->deterministic;
    return 0;
}

bool compute_attn_format(const struct compute *d, char *line, size_t n)
{
    const struct ops_attn_plans *p = &d->ops->attn_plans;
    snprintf(line, n,
             "attention by cuDNN: %lld plans were made beforehand, %lld when a call came; %lld of "
             "them were used",
             (long long)p->made, (long long)p->late, (long long)p->used);
    return d->ops->attn_plan != NULL;
}

bool compute_own_attn_format(const struct compute *d, char *line, size_t n)
{
    static const char *const why[OPS_ATTN_REASONS] = {
        [OPS_ATTN_TYPES] = "for types", [OPS_ATTN_HEAD_DIM] = "for the size of heads",
        [OPS_ATTN_ALIGNMENT] = "for rows that are not aligned",
        [OPS_ATTN_SEGMENTS] = "with short segments alone",
        [OPS_ATTN_ORDER] = "for the order of keys",
        [OPS_ATTN_ORDER_OF_DQ] = "for the order of sums",
        [OPS_ATTN_ENGINE] = "without an engine", [OPS_ATTN_ROOM] = "for too large a workspace"};
    int used = snprintf(line, n, "attention by kernels of our own");
    const char *between = ":";
    for (int i = OPS_ATTN_TAKEN + 1; i < OPS_ATTN_REASONS; i++) {
        int64_t calls = d->ops->attn_plans.own[i];
        if (calls == 0)
            continue;
        used += snprintf(line + used, n - (size_t)used, "%s %lld call%s %s", between,
                         (long long)calls, calls == 1 ? "" : "s", why[i]);
        BUG_ON(used >= (int)n);
        between = ",";
    }
    return *between == ',';
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
