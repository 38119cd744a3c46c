/* reel-train probe: what this machine's cores, memory and MPI do, measured by the ranks together.
 *
 * The FMA rate is that of trainer/ops/fma.h. GEMM is the table's own call at shapes of a DiT. Copy
 * goes over 64 MiB, read plus written. Each is the best of some repetitions, which is the machine's
 * rate, not its neighbours'. All ranks measure at the same time, between barriers; the slowest
 * rank's rate is given.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "trainer/cmd/device.h"
#include "trainer/cmd/main.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/compute.h"
#include "trainer/ops/fma.h"

/* They stand in the order of enum dtype. */
static const char *const probe_dtypes[] = {"f64", "f32", "bf16", NULL};
static const struct opt opts[] = {
    {"json", 0, OPT_BOOL, NULL, "print one JSON object (the only form there is)"},
    {"dtype", 0, OPT_ENUM, "TYPE", "number format", .fallback = "f32", .choices = probe_dtypes},
    {"blas", 0, OPT_ENUM, "NAME",
     "matrix products by our own kernels or OpenBLAS", .fallback = "own",
     .choices = device_products},
    {"out", 0, OPT_TEXT, "FILE", "write to this file instead of standard output"},
};
const struct opt_cmd train_cmd_probe = {
    "probe", "measure FMA, GEMM, copy and all-reduce rates of this machine", "",
    opts, ARRAY_LEN(opts), 0, 0,
    "Started directly or by mpirun; all ranks measure at the same time, and the slowest one's "
    "rates are printed (reel.probe/1)."};

enum { REPEATS = 7 };

/* ---- GEMM, copy ---- */

/* These are [m, k] x [k, n] of projections and MLP of small and middling models, with tokens in
 * m. */
static const struct shape { int64_t m, n, k; } shapes[] = {
    {256, 192, 192}, {256, 768, 192}, {512, 512, 512}, {512, 2048, 512}};
enum { SHAPES = ARRAY_LEN(shapes) };

struct probe {
    struct comm *world;
    struct compute compute;
    enum dtype dtype;
    void *a, *b, *c;
    double fma, gemm[SHAPES], copy;
    double latency_s, bus_bytes;
};
enum { COPY_BYTES = 64 << 20, REDUCE_BYTES = 8 << 20 };

static double gemm_rate(struct probe *p, const struct shape *s, struct err *err)
{
    struct ops_gemm g = {
        .a = tensor_of(p->a, p->dtype, s->m, s->k), .b = tensor_of(p->b, p->dtype, s->n, s->k),
        .c = tensor_of(p->c, p->dtype, s->m, s->n), .tb = true, .alpha = 1};
    double best = 0;
    for (int i = 0; i < REPEATS; i++) {
        double start = clock_mono_s();
        p->compute.ops->gemm(p->compute.ops, p->compute.stream, &g);
        if (p->compute.dev->stream_sync(p->compute.dev, p->compute.stream, err) < 0)
            return -1;
        best = fmax(best, 2.0 * (double)s->m * (double)s->n * (double)s->k /
                              (clock_mono_s() - start));
    }
    return best;
}

static int copy_rate(struct probe *p, struct err *err)
{
    for (int i = 0; i < REPEATS; i++) {
        double start = clock_mono_s();
        p->compute.dev->copy(p->compute.dev, p->b, p->a, COPY_BYTES, DEV_D2D, p->compute.stream);
        int rc = p->compute.dev->stream_sync(p->compute.dev, p->compute.stream, err);
        if (rc < 0)
            return rc;
        p->copy = fmax(p->copy, 2.0 * COPY_BYTES / (clock_mono_s() - start));
    }
    return 0;
}

static int rates_measure(struct probe *p, struct err *err)
{
    int rc;
    if ((rc = comm_barrier(p->world, err)) < 0)
        return rc;
    p->compute.dev->fill(p->compute.dev, p->a, 0, COPY_BYTES, p->compute.stream);
    p->compute.dev->fill(p->compute.dev, p->b, 0, COPY_BYTES, p->compute.stream);
    p->fma = fma_rate(p->dtype);
    for (int i = 0; i < SHAPES; i++)
        if ((p->gemm[i] = gemm_rate(p, &shapes[i], err)) < 0)
            return err ? err->code : ERR_IO;
    return copy_rate(p, err);
}

/* ---- MPI ---- */

static int reduce_seconds(struct probe *p, int64_t bytes, double *best, struct err *err)
{
    struct comm_op op = {.kind = COMM_ALL_REDUCE, .what = "probe", .recv = p->a, .dtype = p->dtype,
                         .n = num_max_i64(bytes / dtype_bytes(p->dtype), p->world->size)};
    int rc;
    *best = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        if ((rc = comm_barrier(p->world, err)) < 0)
            return rc;
        double start = clock_mono_s();
        if ((rc = comm_do(p->world, &op, p->compute.stream, err)) < 0)
            return rc;
        *best = fmin(*best, clock_mono_s() - start);
    }
    return 0;
}

/* Measures messages. The latency of one follows from the smallest all-reduce, which is 2 (W - 1) of
 * them. Bus bandwidth is as nccl-tests defines it: 2 (W - 1) / W times the buffer's bytes, over the
 * time. */
static int comm_measure(struct probe *p, struct err *err)
{
    double small_s, large_s, W = p->world->size;
    int rc;
    if (p->world->size < 2)
        return 0;
    if ((rc = comm_reserve(p->world, 1, REDUCE_BYTES, err)) < 0)
        return rc;
    if ((rc = reduce_seconds(p, 1, &small_s, err)) < 0)
        return rc;
    if ((rc = reduce_seconds(p, REDUCE_BYTES, &large_s, err)) < 0)
        return rc;
    p->latency_s = small_s / (2 * (W - 1));
    p->bus_bytes = 2 * (W - 1) / W * REDUCE_BYTES / large_s;
    return 0;
}

/* Takes over all ranks the least rate and the longest latency. */
static int slowest(struct probe *p, struct err *err)
{
    double v[SHAPES + 4] = {-p->fma, -p->copy, p->latency_s, -p->bus_bytes};
    for (int i = 0; i < SHAPES; i++)
        v[4 + i] = -p->gemm[i];
    int rc = comm_max(p->world, v, SHAPES + 4, err);
    p->fma = -v[0], p->copy = -v[1], p->latency_s = v[2], p->bus_bytes = fabs(v[3]);
    for (int i = 0; i < SHAPES; i++)
        p->gemm[i] = -v[4 + i];
    return rc;
}

static void shape_json(const struct shape *s, double flops, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_int(o, "m", s->m);
    json_put_int(o, "n", s->n);
    json_put_int(o, "k", s->k);
    json_put_num(o, "flops", flops);
    json_obj_end(o);
}

static void probe_json(const struct probe *p, struct str *text)
{
    struct json_out o;
    double flops = 0, seconds = 0;
    json_out_init(&o, text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.probe/1");
    json_put_int(&o, "ranks", p->world->size);
    json_put_text(&o, "dtype", dtype_names[p->dtype]);
    json_put_num(&o, "fma_flops", p->fma);
    json_arr_begin(&o, "gemm");
    for (int i = 0; i < SHAPES; i++) {
        double done = 2.0 * (double)shapes[i].m * (double)shapes[i].n * (double)shapes[i].k;
        flops += done;
        seconds += done / p->gemm[i];
        shape_json(&shapes[i], p->gemm[i], &o);
    }
    json_arr_end(&o);
    json_put_num(&o, "gemm_flops", flops / seconds); /* of all the shapes, one after the other */
    json_put_num(&o, "copy_bytes_per_s", p->copy);
    json_put_num(&o, "latency_s", p->latency_s);
    json_put_num(&o, "bus_bytes_per_s", p->bus_bytes);
    json_obj_end(&o);
    str_addc(text, '\n');
}

static int probe_print(const struct probe *p, const char *path, struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    probe_json(p, &text);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = path ? file_publish(path, text.p, text.len, err) : train_print(&text, err);
out:
    str_release(&text);
    return rc;
}

static int probe_open(struct probe *p, enum ops_blas blas, struct err *err)
{
    struct compute_conf conf = {.dtype = p->dtype, .blas = blas};
    struct dev *dev;
    int rc;
    if ((rc = compute_open(&p->compute, &conf, err)) < 0)
        return rc;
    dev = p->compute.dev;
    comm_bind(p->world, dev, NULL, NULL);
    if ((rc = dev->alloc(dev, "probe a", COPY_BYTES, &p->a, err)) < 0)
        return rc;
    if ((rc = dev->alloc(dev, "probe b", COPY_BYTES, &p->b, err)) < 0)
        return rc;
    return dev->alloc(dev, "probe c", COPY_BYTES, &p->c, err);
}

static void probe_close(struct probe *p)
{
    struct dev *dev = p->compute.dev;
    if (!dev)
        return;
    comm_bind(p->world, NULL, NULL, NULL);
    dev->free(dev, p->a);
    dev->free(dev, p->b);
    dev->free(dev, p->c);
    compute_close(&p->compute);
}

static int probe_all(struct probe *p, enum ops_blas blas, struct err *err)
{
    int rc;
    if ((rc = comm_agree(p->world, probe_open(p, blas, err), err)) < 0)
        return rc;
    if ((rc = comm_agree(p->world, rates_measure(p, err), err)) < 0)
        return rc;
    if ((rc = comm_measure(p, err)) < 0)
        return rc;
    return slowest(p, err);
}

int train_cmd_probe_run(const struct opt_values *v, int argc, char **argv, struct err *err)
{
    struct probe p = {.dtype = (enum dtype)opt_enum(v, "dtype")};
    enum ops_blas blas = opt_enum(v, "blas") == 1 ? OPS_BLAS_OPENBLAS : OPS_BLAS_OWN;
    int rc;
    if ((rc = train_world_open(&argc, &argv, &p.world, err)) < 0)
        return rc;
    if ((rc = probe_all(&p, blas, err)) < 0)
        goto out;
    if (p.world->rank == 0)
        rc = probe_print(&p, opt_text(v, "out"), err);
out:
    probe_close(&p);
    comm_close(p.world);
    return rc;
}
