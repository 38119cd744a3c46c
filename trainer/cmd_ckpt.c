/* reel-train ckpt show|verify|diff|export: look at checkpoints, compare them, take the weights out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/num.h"
#include "base/safetensors.h"
#include "trainer/ckpt_diff.h"
#include "trainer/ckpt_priv.h"
#include "trainer/main.h"

enum { ROWS_SHOWN = 10 }; /* of a diff within its tolerance; those beyond are all shown */

static const struct opt opts[] = {
    {"tol", 0, OPT_NUM, "X", "diff: largest relative difference of a tensor that still counts as equal", .fallback = "0", .min = 0, .max = 1e9},
    {"floor", 0, OPT_NUM, "X", "diff: differences are relative to the larger of this (v: its square) and the tensor's greatest number",
     .fallback = "1e-12", .min = 1e-150, .max = 1e9},
    {"json", 0, OPT_BOOL, NULL, "diff: print one JSON object"},
    {"safetensors", 0, OPT_TEXT, "FILE", "export: write the weights to FILE"},
    {"ema", 0, OPT_BOOL, NULL, "export: the average of the weights instead"},
    {"merge-lora", 0, OPT_BOOL, NULL, "export: W + alpha/rank B A in place of a weight with its adapters"},
};
const struct opt_cmd train_cmd_ckpt = {
    "ckpt", "show, verify, compare or export checkpoints", "show|verify|export DIR, diff A B", opts, ARRAY_LEN(opts), 2, 3,
    "The layouts that wrote do not matter. diff covers weights, moments and average: per tensor max|a-b| / max(max|a|, floor). A missing "
    "tensor, another shape or a number that is not finite fails."};

static int show(const char *dir, struct err *err)
{
    struct ckpt_manifest m = {0};
    struct str text = STR_INIT, layout = STR_INIT;
    char bytes[32], hash[HASH_TEXT_BYTES];
    int rc = ckpt_manifest_load(dir, &m, err);
    if (rc < 0)
        return rc;
    layout_format(&m.layout, &layout);
    str_addf(&text, "%s\n  model %s, %s, %lld steps (%lld updates), next draw %llu\n  written by %s (%lld ranks)\n  config %s\n"
             "  %lld tensors, %lld files, %s%s\n",
             dir, m.model.name, dtype_names[m.run_dtype], (long long)m.meta.step, (long long)m.meta.updates, (unsigned long long)m.meta.ordinal,
             layout.p ? layout.p : "", (long long)layout_world(&m.layout), hash_format(m.meta.config_hash, hash), (long long)m.n_tensors,
             (long long)m.n_files, num_format_bytes(m.meta.bytes, bytes, sizeof bytes), m.ema ? ", with EMA" : "");
    for (int64_t i = 0; i < m.n_tensors; i++) {
        str_addf(&text, "  %-36s", m.tensors[i].name);
        for (int d = 0; d < m.tensors[i].nd; d++)
            str_addf(&text, "%s%lld", d ? " x " : " ", (long long)m.tensors[i].dim[d]);
        str_addc(&text, '\n');
    }
    rc = train_print(&text, err);
    ckpt_manifest_release(&m);
    str_release(&layout);
    str_release(&text);
    return rc;
}

static int verify(const char *dir, struct err *err)
{
    struct ckpt_manifest m = {0};
    struct str text = STR_INIT;
    int rc = ckpt_manifest_load(dir, &m, err);
    if (rc == 0)
        rc = ckpt_verify(dir, &m, 0, 1, err);
    if (rc == 0) {
        str_addf(&text, "%s: %lld files as written\n", dir, (long long)m.n_files);
        rc = train_print(&text, err);
    }
    ckpt_manifest_release(&m);
    str_release(&text);
    return rc;
}

/* ---- diff ---- */

static void diff_text(const struct ckpt_diff *d, double tol, double floor_value, struct str *text)
{
    for (int64_t i = 0; i < d->n && (d->rows[i].beyond || (i < ROWS_SHOWN && d->rows[i].difference > 0)); i++) {
        const struct ckpt_diff_row *r = &d->rows[i];
        if (i == 0)
            str_addf(text, "%-7s  %-36s  difference\n", "buffer", "tensor");
        str_addf(text, "%-7s  %-36s  ", ckpt_buffer_names[r->buffer], r->name);
        r->kind == CKPT_DIFF_VALUE ? str_addf(text, "%.3g\n", r->difference) : str_addf(text, "%s\n", ckpt_diff_kind_names[r->kind]);
    }
    str_addf(text, "%lld tensors of each buffer, %lld beyond %g, largest among the others %.3g (floor %g, of v %g)\n",
             (long long)d->n_tensors, (long long)d->n_beyond, tol, d->largest, floor_value, ckpt_diff_floor(CKPT_V, floor_value));
}

/* reel.ckpt-diff/1: all rows, the worst first; `difference` null where `kind` is not "value". */
static void diff_json(const struct ckpt_diff *d, double tol, double floor_value, struct str *text)
{
    struct json_out j;
    json_out_init(&j, text, 0);
    json_obj_begin(&j, NULL);
    json_put_text(&j, "schema", "reel.ckpt-diff/1");
    json_put_num(&j, "tol", tol);
    json_put_num(&j, "floor", floor_value);
    json_put_num(&j, "floor_v", ckpt_diff_floor(CKPT_V, floor_value));
    json_put_bool(&j, "equal", d->n_beyond == 0);
    json_put_int(&j, "beyond", d->n_beyond);
    json_put_num(&j, "largest_within", d->largest);
    json_arr_begin(&j, "tensors");
    for (int64_t i = 0; i < d->n; i++) {
        json_obj_begin(&j, NULL);
        json_put_text(&j, "name", d->rows[i].name);
        json_put_text(&j, "buffer", ckpt_buffer_names[d->rows[i].buffer]);
        json_put_text(&j, "kind", ckpt_diff_kind_names[d->rows[i].kind]);
        json_put_num(&j, "difference", d->rows[i].difference);
        json_obj_end(&j);
    }
    json_arr_end(&j);
    json_obj_end(&j);
    str_addc(text, '\n');
}

static int diff(const char *dir_a, const char *dir_b, const struct opt_values *v, struct err *err)
{
    double tol = opt_num(v, "tol"), floor_value = opt_num(v, "floor");
    struct ckpt_diff d;
    struct str text = STR_INIT;
    int rc = ckpt_diff(dir_a, dir_b, tol, floor_value, &d, err);
    if (rc < 0)
        return rc;
    opt_bool(v, "json") ? diff_json(&d, tol, floor_value, &text) : diff_text(&d, tol, floor_value, &text);
    if ((rc = train_print(&text, err)) == 0 && d.n_beyond > 0)
        rc = err_set(err, ERR_NO, "%lld tensors differ by more than %g", (long long)d.n_beyond, tol);
    ckpt_diff_release(&d);
    str_release(&text);
    return rc;
}

/* ---- export ---- */

static struct safetensors_tensor exported(const struct ckpt_tensor *t, enum dtype dtype)
{
    struct safetensors_tensor out = {.nd = t->nd};
    snprintf(out.name, sizeof out.name, "%s", t->name);
    snprintf(out.dtype, sizeof out.dtype, "%s", dtype == DTYPE_F64 ? "F64" : "F32");
    memcpy(out.dim, t->dim, sizeof t->dim);
    return out;
}

/* Is tensor t an adapter of the one before it, or before that? */
static bool is_adapter(const struct ckpt_manifest *m, int64_t t)
{
    return m->tuning.lora.rank && (str_ends(m->tensors[t].name, ".lora_a") || str_ends(m->tensors[t].name, ".lora_b"));
}

/* w [out, in] += scale · b [out, rank] a [rank, in]. */
#define MERGE(REAL)                                                                                      \
    static void merge_##REAL(REAL *w, const REAL *a, const REAL *b, int64_t out, int64_t in, int64_t rank, double scale) \
    {                                                                                                    \
        for (int64_t i = 0; i < out; i++)                                                                \
            for (int64_t k = 0; k < rank; k++)                                                           \
                for (int64_t j = 0; j < in; j++)                                                         \
                    w[i * in + j] += (REAL)scale * b[i * rank + k] * a[k * in + j];                      \
    }
MERGE(double)
MERGE(float)

/* `raw`: tensor t, of which `spare` has room for both adapters. */
static int adapters_merge(struct ckpt_source *source, const struct ckpt_manifest *m, enum ckpt_buffer buffer, int64_t t, void *raw, char *spare,
                          struct err *err)
{
    const struct ckpt_tensor *w = &m->tensors[t];
    int64_t rank = m->tuning.lora.rank;
    char *b = spare + rank * w->dim[1] * dtype_bytes(m->dtype);
    double scale = tuning_lora_scale(&m->tuning);
    int rc = ckpt_source_read(source, buffer, t + 1, spare, err);
    if (rc == 0)
        rc = ckpt_source_read(source, buffer, t + 2, b, err);
    if (rc < 0)
        return rc;
    if (m->dtype == DTYPE_F64)
        merge_double(raw, (double *)spare, (double *)b, w->dim[0], w->dim[1], rank, scale);
    else
        merge_float(raw, (float *)spare, (float *)b, w->dim[0], w->dim[1], rank, scale);
    return 0;
}

/* What is exported, and how. */
struct export { const char *dir, *path; const struct ckpt_manifest *m; enum ckpt_buffer buffer; bool merge; };

/* One tensor at a time, through memory for the largest and its adapters. */
static int tensors_export(const struct export *e, struct ckpt_source *source, struct safetensors_writer *w, struct err *err)
{
    const struct ckpt_manifest *m = e->m;
    int64_t most = 1, adapters = 1, bytes = dtype_bytes(m->dtype);
    for (int64_t i = 0; i < m->n_tensors; i++) {
        most = num_max_i64(most, m->tensors[i].count * bytes);
        adapters = num_max_i64(adapters, (m->tensors[i].dim[0] + m->tensors[i].dim[1]) * m->tuning.lora.rank * bytes);
    }
    void *raw = malloc((size_t)most), *spare = malloc((size_t)adapters);
    int rc = raw && spare ? 0 : err_set(err, ERR_NOMEM, "out of memory exporting");
    for (int64_t i = 0; i < m->n_tensors && rc == 0; i++) {
        if (e->merge && is_adapter(m, i))
            continue;
        rc = ckpt_source_read(source, e->buffer, i, raw, err);
        if (rc == 0 && e->merge && i + 1 < m->n_tensors && is_adapter(m, i + 1))
            rc = adapters_merge(source, m, e->buffer, i, raw, spare, err);
        if (rc == 0)
            rc = safetensors_add(w, raw, m->tensors[i].count * bytes, err);
    }
    free(raw);
    free(spare);
    return rc;
}

static int manifest_export(const struct export *e, struct err *err)
{
    const struct ckpt_manifest *m = e->m;
    int64_t n = 0;
    struct safetensors_tensor *list = calloc((size_t)m->n_tensors + 1, sizeof *list);
    struct safetensors_writer *w = NULL;
    struct ckpt_source *source = NULL;
    char step[32], hash[HASH_TEXT_BYTES];
    snprintf(step, sizeof step, "%lld", (long long)m->meta.step);
    const struct safetensors_meta meta[] = {{"source", "reel.ckpt/1"}, {"model", m->model.name}, {"step", step},
                                            {"buffer", ckpt_buffer_names[e->buffer]}, {"config_hash", hash_format(m->meta.config_hash, hash)}};
    int rc = list ? ckpt_source_open(e->dir, m, &source, err) : err_set(err, ERR_NOMEM, "out of memory exporting");
    for (int64_t i = 0; i < m->n_tensors && rc == 0; i++)
        if (!e->merge || !is_adapter(m, i))
            list[n++] = exported(&m->tensors[i], m->dtype);
    if (rc == 0)
        rc = safetensors_create(e->path, list, n, meta, (int64_t)ARRAY_LEN(meta), &w, err);
    if (rc == 0) {
        rc = tensors_export(e, source, w, err);
        rc < 0 ? safetensors_abort(w) : (void)(rc = safetensors_commit(w, err));
    }
    ckpt_source_close(source);
    free(list);
    return rc;
}

static int export(const char *dir, const struct opt_values *v, struct err *err)
{
    const char *path = opt_text(v, "safetensors");
    enum ckpt_buffer buffer = opt_bool(v, "ema") ? CKPT_EMA : CKPT_WEIGHTS;
    struct ckpt_manifest m = {0};
    if (!path)
        return err_set(err, ERR_USAGE, "reel-train ckpt export: give --safetensors FILE");
    int rc = ckpt_manifest_load(dir, &m, err);
    if (rc == 0 && buffer == CKPT_EMA && !m.ema)
        rc = err_set(err, ERR_INPUT, "%s: holds no average (EMA): export without --ema", dir);
    if (rc == 0)
        rc = ckpt_verify(dir, &m, 0, 1, err);
    if (rc == 0 && opt_bool(v, "merge-lora") && !m.tuning.lora.rank)
        rc = err_set(err, ERR_INPUT, "%s: has no adapters: export without --merge-lora", dir);
    if (rc == 0)
        rc = manifest_export(&(struct export){dir, path, &m, buffer, opt_bool(v, "merge-lora")}, err);
    ckpt_manifest_release(&m);
    return rc;
}

/* ---- */

static int options_check(const struct opt_values *v, const char *verb, struct err *err)
{
    static const struct { const char *option, *verb; } only[] = {
        {"tol", "diff"}, {"floor", "diff"}, {"json", "diff"}, {"safetensors", "export"}, {"ema", "export"}, {"merge-lora", "export"}};
    for (size_t i = 0; i < ARRAY_LEN(only); i++)
        if (opt_given(v, only[i].option) && strcmp(verb, only[i].verb) != 0)
            return err_set(err, ERR_USAGE, "reel-train ckpt %s: --%s is for %s", verb, only[i].option, only[i].verb);
    return 0;
}

int train_cmd_ckpt_run(const struct opt_values *v, int argc, char **argv, struct err *err)
{
    const char *const *w;
    size_t n = opt_operands(v, &w);
    (void)argc, (void)argv;
    int rc = options_check(v, w[0], err);
    if (rc < 0)
        return rc;
    if (strcmp(w[0], "show") == 0 && n == 2)
        return show(w[1], err);
    if (strcmp(w[0], "verify") == 0 && n == 2)
        return verify(w[1], err);
    if (strcmp(w[0], "diff") == 0 && n == 3)
        return diff(w[1], w[2], v, err);
    if (strcmp(w[0], "export") == 0 && n == 2)
        return export(w[1], v, err);
    return err_set(err, ERR_USAGE, "reel-train ckpt: give 'show DIR', 'verify DIR', 'export DIR --safetensors FILE' or 'diff A B'");
}
