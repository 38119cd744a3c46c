/* reel-train probe: measures how fast this machine's cores and MPI are for a model.
 *
 * The FMA rate is that of trainer/ops/fma.h. The model's own operations are measured class by class
 * (probe_model.h). All ranks measure at the same time, between barriers; the figures of the slowest
 * rank are given.
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
#include "trainer/cmd/probe_model.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/compute.h"
#include "trainer/ops/fma.h"

/* The names are in the order of enum dtype. */
static const char *const probe_dtypes[] = {"f64", "f32", "bf16", NULL};
static const struct opt opts[] = {
    {"json", 0, OPT_BOOL, NULL, "print one JSON object (the only form there is)"},
    {"model", 0, OPT_TEXT, "MODEL|FILE", "whose operations are measured", .fallback = "dit-s"},
    {"seq", 0, OPT_TEXT, "TxHxW", "tokens of a sample", .fallback = "1x16x16"},
    {"dtype", 0, OPT_ENUM, "TYPE", "number format", .fallback = "f32", .choices = probe_dtypes},
    {"blas", 0, OPT_ENUM, "NAME",
     "matrix products by our own kernels or OpenBLAS", .fallback = "own",
     .choices = device_products},
    {"messages", 0, OPT_BOOL, NULL, "measure messages alone"},
    {"out", 0, OPT_TEXT, "FILE", "write to this file instead of standard output"},
};
const struct opt_cmd train_cmd_probe = {
    "probe", "measure what this machine's cores and messages do for a model", "",
    opts, ARRAY_LEN(opts), 0, 0,
    "Started directly or by mpirun; all ranks measure at the same time, and the slowest one's "
    "figures are printed (reel.probe/3): CPU time of a layer of the model by class, for "
    "micro-batches of several sizes; of the update; messages. A size that would take more than 8 s "
    "by the next smaller one is left out, and so are those after 20 s: the rates of the largest "
    "measured hold for them."};

enum { REPEATS = 7, TOLD = 4 /* the most sizes that are printed: the largest measured */ };

struct probe {
    struct comm *world;
    struct compute compute;
    struct probe_model_spec spec;
    struct probe_views views;
    bool messages_only;
    void *buffer;
    double fma, latency_s, bus_bytes;
};
enum { REDUCE_BYTES = 8 << 20 };

static int rates_measure(struct probe *p, struct err *err)
{
    int rc;
    if ((rc = comm_barrier(p->world, err)) < 0)
        return rc;
    p->compute.dev->fill(p->compute.dev, p->buffer, 0, REDUCE_BYTES, p->compute.stream);
    p->fma = fma_rate(p->spec.dtype);
    if (p->messages_only)
        return 0;
    /* The model is measured in a world that has only this rank; p->world has no device then. */
    comm_bind(p->world, NULL, NULL, NULL);
    rc = probe_model_views(&p->compute, &p->spec, &p->views, err);
    comm_bind(p->world, p->compute.dev, NULL, NULL);
    return rc;
}

static int update_measure(struct probe *p, struct err *err)
{
    if (p->messages_only)
        return 0;
    comm_bind(p->world, NULL, NULL, NULL);
    int rc = probe_model_update(&p->compute, &p->spec, p->world, &p->views, err);
    comm_bind(p->world, p->compute.dev, NULL, NULL);
    return rc;
}

/* ---- MPI ---- */

static int reduce_seconds(struct probe *p, int64_t bytes, double *best, struct err *err)
{
    struct comm_op op = {.kind = COMM_ALL_REDUCE, .what = "probe", .recv = p->buffer,
                         .dtype = p->spec.dtype,
                         .n = num_max_i64(bytes / dtype_bytes(p->spec.dtype), p->world->size)};
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

/* Measures messages. The latency is the time of the smallest all-reduce divided by 2 (W - 1), the
 * number of messages that it takes. Bus bandwidth is defined as in nccl-tests: 2 (W - 1) / W times
 * the buffer's bytes, divided by the time. */
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

/* Keeps the TOLD largest of the sizes that all ranks have measured. */
static int views_agree(struct probe *p, struct err *err)
{
    double fewer = -p->views.n;
    int rc = comm_max(p->world, &fewer, 1, err);
    if (rc < 0)
        return rc;
    int n = (int)-fewer, told = (int)num_min_i64(n, TOLD);
    memmove(p->views.view, p->views.view + n - told, (size_t)told * sizeof p->views.view[0]);
    p->views.n = told;
    return 0;
}

/* Replaces each rate by the lowest and each time by the longest over all ranks. */
static int slowest(struct probe *p, struct err *err)
{
    double v[] = {-p->fma,           p->latency_s,    -p->bus_bytes,
                  p->views.update_s, p->views.norm_s, p->views.clear_s,
                  p->views.move_s};
    int rc;
    if ((rc = views_agree(p, err)) < 0)
        return rc;
    if ((rc = comm_max(p->world, v, ARRAY_LEN(v), err)) < 0)
        return rc;
    for (int i = 0; i < p->views.n; i++)
        if ((rc = comm_max(p->world, p->views.view[i].seconds, PROBE_CLASSES, err)) < 0)
            return rc;
    p->fma = -v[0], p->latency_s = v[1], p->bus_bytes = fabs(v[2]);
    p->views.update_s = v[3], p->views.norm_s = v[4], p->views.clear_s = v[5];
    p->views.move_s = v[6];
    return 0;
}

static void view_json(const struct probe_view *v, struct json_out *o)
{
    char seq[64];
    snprintf(seq, sizeof seq, "%lldx%lldx%lld", (long long)v->size.seq.t, (long long)v->size.seq.h,
             (long long)v->size.seq.w);
    json_obj_begin(o, NULL);
    json_put_text(o, "seq", seq);
    json_put_int(o, "samples", v->size.samples);
    for (int c = 0; c < PROBE_CLASSES; c++)
        json_put_num(o, probe_class_names[c], v->seconds[c]);
    json_obj_end(o);
}

static void probe_json(const struct probe *p, struct str *text)
{
    struct json_out o;
    json_out_init(&o, text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.probe/3");
    json_put_int(&o, "ranks", p->world->size);
    json_put_text(&o, "dtype", dtype_names[p->spec.dtype]);
    json_put_text(&o, "model", p->spec.model.name);
    json_put_num(&o, "fma_flops", p->fma);
    json_arr_begin(&o, "layer");
    for (int i = 0; i < p->views.n; i++)
        view_json(&p->views.view[i], &o);
    json_arr_end(&o);
    json_put_int(&o, "update_elements", p->views.update_elements);
    json_put_num(&o, "update_s", p->views.update_s);
    json_put_num(&o, "norm_s", p->views.norm_s);
    json_put_num(&o, "clear_s", p->views.clear_s);
    json_put_num(&o, "move_s", p->views.move_s);
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
    struct compute_conf conf = {.dtype = p->spec.dtype, .blas = blas};
    int rc;
    if ((rc = compute_open(&p->compute, &conf, err)) < 0)
        return rc;
    comm_bind(p->world, p->compute.dev, NULL, NULL);
    return p->compute.dev->alloc(p->compute.dev, "probe", REDUCE_BYTES, &p->buffer, err);
}

static void probe_close(struct probe *p)
{
    struct dev *dev = p->compute.dev;
    if (!dev)
        return;
    comm_bind(p->world, NULL, NULL, NULL);
    dev->free(dev, p->buffer);
    compute_close(&p->compute);
}

static int probe_all(struct probe *p, enum ops_blas blas, struct err *err)
{
    int rc;
    if ((rc = comm_agree(p->world, probe_open(p, blas, err), err)) < 0)
        return rc;
    if ((rc = comm_agree(p->world, rates_measure(p, err), err)) < 0)
        return rc;
    if ((rc = comm_agree(p->world, update_measure(p, err), err)) < 0)
        return rc;
    if ((rc = comm_measure(p, err)) < 0)
        return rc;
    return slowest(p, err);
}

int train_cmd_probe_run(const struct opt_values *v, int argc, char **argv, struct err *err)
{
    struct probe p = {.spec.dtype = (enum dtype)opt_enum(v, "dtype")};
    enum ops_blas blas = opt_enum(v, "blas") == 1 ? OPS_BLAS_OPENBLAS : OPS_BLAS_OWN;
    struct err why = {0};
    int rc;
    p.messages_only = opt_bool(v, "messages");
    if (seq_parse(opt_text(v, "seq"), "--seq", &p.spec.seq, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    if ((rc = model_load(opt_text(v, "model"), &p.spec.model, err)) < 0)
        return rc;
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
