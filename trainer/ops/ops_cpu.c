#include "trainer/ops/ops.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/ops/fma.h"
#include "trainer/ops/ops_cpu_priv.h"
#include "trainer/ops/simd.h"

static void cpu_close(struct ops *o)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    if (!o)
        return;
    o->dev->free(o->dev, c->pack_a);
    o->dev->free(o->dev, c->pack_b);
    o->dev->free(o->dev, c->tiles);
    o->dev->free(o->dev, c->rows);
    o->dev->free(o->dev, c->widened);
    o->dev->free(o->dev, c->block);
    if (c->blas)
        dlclose(c->blas);
    free(c);
}

/* Holds what was compiled for one kind of processor. */
static const struct variant {
    const struct ops_cpu_kind *kinds[3];
    double (*fma_rate)(enum dtype t);
} variants[SIMD_COUNT] = {
#define VARIANT(simd) \
    {{&ops_cpu_f64_##simd, &ops_cpu_f32_##simd, &ops_cpu_bf16_##simd}, fma_rate_##simd}
    [SIMD_GENERIC] = VARIANT(generic),
#ifdef __x86_64__
    [SIMD_V3] = VARIANT(v3),
    [SIMD_V4] = VARIANT(v4),
#endif
};

static const struct ops_cpu_kind *kind_of(const struct variant *v, enum dtype dtype)
{
    for (size_t i = 0; i < sizeof v->kinds / sizeof v->kinds[0]; i++)
        if (v->kinds[i]->act == dtype)
            return v->kinds[i];
    return NULL;
}

double fma_rate(enum dtype t)
{
    enum simd simd = SIMD_GENERIC;
    simd_choose(&simd, NULL); /* cannot fail: a wrong REEL_SIMD was refused when the world opened */
    return variants[simd].fma_rate(t);
}

static int take_workspace(struct ops_cpu *c, const struct ops_cpu_kind *kind, struct err *err)
{
    void **to[OPS_CPU_PARTS] = {&c->pack_a, &c->pack_b,  &c->tiles,
                                &c->rows,   &c->widened, &c->block};
    static const char *const names[OPS_CPU_PARTS] = {"GEMM rows", "GEMM columns", "attention tiles",
                                                     "row sums",  "rows as f32",  "GEMM sums"};
    int64_t parts[OPS_CPU_PARTS];
    struct dev *dev = c->ops.dev;
    int rc;
    c->ops.workspace_bytes = kind->workspace(parts);
    for (int i = 0; i < OPS_CPU_PARTS; i++)
        if (parts[i] > 0 && (rc = dev->alloc(dev, names[i], parts[i], to[i], err)) < 0)
            return rc;
    return 0;
}

/* Writes the address of a function to `out`. Returns whether it exists. ISO C has no conversion
 * from dlsym's object pointer to a function pointer; POSIX promises that the bits are the same. */
static bool symbol(void *handle, const char *name, void *out)
{
    void *p = dlsym(handle, name);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}

static int load_openblas(struct ops_cpu *c, struct err *err)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    void (*set_threads)(int) = NULL;
    for (int i = 0; i < 2 && !c->blas; i++)
        c->blas = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!c->blas)
        return err_set(err, ERR_ENV,
                       "BLAS 'openblas': no libopenblas.so.0 on this machine: install it (Debian: "
                       "libopenblas0-serial) or give --blas own");
    if (!symbol(c->blas, "cblas_dgemm", &c->dgemm) || !symbol(c->blas, "cblas_sgemm", &c->sgemm))
        return err_set(err, ERR_ENV,
                       "BLAS 'openblas': libopenblas.so.0 has no cblas_dgemm or cblas_sgemm: "
                       "install a build with the C interface (Debian: libopenblas0-serial) or give "
                       "--blas own");
    if (symbol(c->blas, "openblas_set_num_threads", &set_threads))
        set_threads(1);
    return 0;
}

/* Finds the table of a dtype for this processor. ERR_INPUT: there is none, or `blas` has no product
 * of this dtype. */
static int kind_find(enum dtype dtype, enum ops_blas blas, const struct ops_cpu_kind **out,
                     struct err *err)
{
    enum simd simd;
    int rc;
    if ((rc = simd_choose(&simd, err)) < 0)
        return rc;
    if (!(*out = kind_of(&variants[simd], dtype)))
        return err_set(err, ERR_INPUT,
                       "dtype '%s': the CPU computes in f64, f32 and bf16: give one of them",
                       dtype_names[dtype]);
    if (dtype == DTYPE_BF16 && blas == OPS_BLAS_OPENBLAS)
        return err_set(err, ERR_INPUT,
                       "BLAS 'openblas': it has no product of bf16 that is summed in f32 and "
                       "rounded once: give --blas own");
    return 0;
}

int ops_cpu_open(struct dev *dev, enum dtype dtype, enum ops_blas blas, struct ops **out,
                 struct err *err)
{
    const struct ops_cpu_kind *kind;
    int rc;
    if ((rc = kind_find(dtype, blas, &kind, err)) < 0)
        return rc;
    struct ops_cpu *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, ERR_NOMEM, "CPU operations: no memory for the table");
    c->ops.name = kind->name;
    c->ops.dev = dev;
    c->ops.act = kind->act;
    c->ops.stat = kind->stat;
    c->ops.self = c;
    c->ops.close = cpu_close;
    kind->fill(&c->ops);
    if ((rc = take_workspace(c, kind, err)) < 0)
        goto out;
    if (blas == OPS_BLAS_OPENBLAS && (rc = load_openblas(c, err)) < 0)
        goto out;
    *out = &c->ops;
    c = NULL; /* the caller owns it now */
out:
    if (c)
        cpu_close(&c->ops);
    return rc;
}
