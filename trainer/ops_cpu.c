#include "trainer/ops.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/ops_cpu_priv.h"

static void cpu_close(struct ops *o)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    if (!o)
        return;
    o->dev->free(o->dev, c->pack_a);
    o->dev->free(o->dev, c->pack_b);
    o->dev->free(o->dev, c->tiles);
    o->dev->free(o->dev, c->rows);
    if (c->blas)
        dlclose(c->blas);
    free(c);
}

static int take_workspace(struct ops_cpu *c, struct err *err)
{
    void **to[4] = {&c->pack_a, &c->pack_b, &c->tiles, &c->rows};
    static const char *const names[4] = {"GEMM rows", "GEMM columns", "attention tiles", "row sums"};
    int64_t parts[4];
    int rc = 0;
    c->ops.workspace_bytes =
        c->ops.act == DTYPE_F64 ? ops_cpu_workspace_f64(parts) : ops_cpu_workspace_f32(parts);
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = c->ops.dev->alloc(c->ops.dev, names[i], parts[i], to[i], err);
    return rc;
}

/* ISO C has no conversion from dlsym's object pointer to a function pointer; POSIX promises the bits. */
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
                       "BLAS 'openblas': no libopenblas.so.0 on this machine: install it (Debian: libopenblas0-serial) or "
                       "give --blas own");
    if (!symbol(c->blas, "cblas_dgemm", &c->dgemm) || !symbol(c->blas, "cblas_sgemm", &c->sgemm))
        return err_set(err, ERR_ENV,
                       "BLAS 'openblas': libopenblas.so.0 has no cblas_dgemm or cblas_sgemm: install a build with the C "
                       "interface (Debian: libopenblas0-serial) or give --blas own");
    if (symbol(c->blas, "openblas_set_num_threads", &set_threads))
        set_threads(1);
    return 0;
}

int ops_cpu_open(struct dev *dev, enum dtype dtype, enum ops_blas blas, struct ops **out, struct err *err)
{
    if (dtype != DTYPE_F64 && dtype != DTYPE_F32)
        return err_set(err, ERR_INPUT, "dtype '%s': the CPU computes in f64 and f32: give one of them", dtype_names[dtype]);
    struct ops_cpu *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, ERR_NOMEM, "CPU operations: no memory for the table");
    c->ops.name = dtype == DTYPE_F64 ? "cpu-f64" : "cpu-f32";
    c->ops.dev = dev;
    c->ops.act = c->ops.stat = dtype;
    c->ops.self = c;
    c->ops.close = cpu_close;
    if (dtype == DTYPE_F64)
        ops_cpu_fill_f64(c);
    else
        ops_cpu_fill_f32(c);
    int rc = take_workspace(c, err);
    if (rc == 0 && blas == OPS_BLAS_OPENBLAS)
        rc = load_openblas(c, err);
    if (rc < 0)
        cpu_close(&c->ops);
    else
        *out = &c->ops;
    return rc;
}
