/* reel-train ckpt show|verify|diff|export|fits: shows checkpoints, verifies and compares them,
 * exports their weights, and checks whether a run can begin with given weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/num.h"
#include "base/safetensors.h"
#include "trainer/ckpt/ckpt_diff.h"
#include "trainer/ckpt/ckpt_priv.h"
#include "trainer/ckpt/warm_start.h"
#include "trainer/cmd/main.h"

enum { ROWS_SHOWN = 10 }; /* the most rows within the tolerance; rows beyond it are all shown */

static const struct opt opts[] = {
    {"tol", 0, OPT_NUM, "X",
     "diff: largest relative difference of a tensor that still counts as equal",
     .fallback = "0", .min = 0, .max = 1e9},
    {"floor", 0, OPT_NUM, "X",
     "diff: differences are relative to the larger of this (v: its square) and the tensor's "
     "greatest number", .fallback = "1e-12", .min = 1e-150, .max = 1e9},
    {"all", 0, OPT_BOOL, NULL,
     "diff of two run folders: every step that both have kept, not the newest of each"},
    {"json", 0, OPT_BOOL, NULL, "diff: print one JSON object"},
    {"safetensors", 0, OPT_TEXT, "FILE", "export: write the weights to FILE"},
    {"force", 0, OPT_BOOL, NULL, "export: write over a file that is there already"},
    {"ema", 0, OPT_BOOL, NULL, "export: the average of the weights instead"},
    {"merge-lora", 0, OPT_BOOL, NULL,
     "export: W + alpha/rank B A in place of a weight with its adapters"},
};
const struct opt_cmd train_cmd_ckpt = {
    "ckpt", "show, verify, compare or export checkpoints",
    "show|verify|export DIR, diff A B, fits RUN.json", opts, ARRAY_LEN(opts), 2, 3,
    "The layouts that wrote do not matter. The folder of a run stands for its newest checkpoint. "
    "diff covers weights, moments and average: per tensor max|a-b| / max(max|a|, floor). A missing "
    "tensor, another shape or a number that is not finite fails. fits asks whether the run's "
    "model can take its first weights from init.from, by names and shapes alone, and lists every "
    "tensor that would not be used or is missing."};

static int show(const char *dir, struct err *err)
{
    struct ckpt_manifest m = {0};
    struct str text = STR_INIT, layout = STR_INIT;
    char bytes[32], hash[HASH_TEXT_BYTES];
    int rc = ckpt_manifest_load(dir, &m, err);
    if (rc < 0)
        return rc;
    layout_format(&m.layout, &layout);
    str_addf(&text,
             "%s\n  model %s, %s, %lld steps (%lld updates), next draw %llu\n"
             "  written by %s (%lld ranks)\n  config %s\n"
             "  %lld tensors, %lld files, %s%s\n",
             dir, m.model.name, dtype_names[m.run_dtype], (long long)m.meta.step,
             (long long)m.meta.updates, (unsigned long long)m.meta.ordinal,
             layout.p ? layout.p : "", (long long)layout_world(&m.layout),
             hash_format(m.meta.config_hash, hash), (long long)m.n_tensors, (long long)m.n_files,
             num_format_bytes(m.meta.bytes, bytes, sizeof bytes), m.ema ? ", with EMA" : "");
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
    int rc;
    if ((rc = ckpt_manifest_load(dir, &m, err)) < 0)
        return rc;
    if ((rc = ckpt_verify(dir, &m, 0, 1, err)) < 0)
        goto out;
    str_addf(&text, "%s: %lld files as written\n", dir, (long long)m.n_files);
    rc = train_print(&text, err);
out:
    ckpt_manifest_release(&m);
    str_release(&text);
    return rc;
}

/* ---- diff ---- */

static void diff_text(const struct ckpt_diff *d, double tol, double floor_value, struct str *text)
{
    for (int64_t i = 0;
         i < d->n && (d->rows[i].beyond || (i < ROWS_SHOWN && d->rows[i].difference > 0)); i++) {
        const struct ckpt_diff_row *r = &d->rows[i];
        if (i == 0)
            str_addf(text, "%-7s  %-36s  difference\n", "buffer", "tensor");
        str_addf(text, "%-7s  %-36s  ", ckpt_buffer_names[r->buffer], r->name);
        r->kind == CKPT_DIFF_VALUE ? str_addf(text, "%.3g\n", r->difference)
                                   : str_addf(text, "%s\n", ckpt_diff_kind_names[r->kind]);
    }
    str_addf(text,
             "%lld tensors of each buffer, %lld beyond %g, largest among the others %.3g (floor "
             "%g, of v %g)\n",
             (long long)d->n_tensors, (long long)d->n_beyond, tol, d->largest, floor_value,
             ckpt_diff_floor(CKPT_V, floor_value));
}

/* Writes reel.ckpt-diff/1: all rows, the worst first; `difference` is null where `kind` is not
 * "value". */
static void diff_json(const struct ckpt_diff *d, double tol, double floor_value, struct json_out *j)
{
    json_put_num(j, "tol", tol);
    json_put_num(j, "floor", floor_value);
    json_put_num(j, "floor_v", ckpt_diff_floor(CKPT_V, floor_value));
    json_put_bool(j, "equal", d->n_beyond == 0);
    json_put_int(j, "beyond", d->n_beyond);
    json_put_num(j, "largest_within", d->largest);
    json_arr_begin(j, "tensors");
    for (int64_t i = 0; i < d->n; i++) {
        json_obj_begin(j, NULL);
        json_put_text(j, "name", d->rows[i].name);
        json_put_text(j, "buffer", ckpt_buffer_names[d->rows[i].buffer]);
        json_put_text(j, "kind", ckpt_diff_kind_names[d->rows[i].kind]);
        json_put_num(j, "difference", d->rows[i].difference);
        json_obj_end(j);
    }
    json_arr_end(j);
}

/* Collects the findings of one or several comparisons. */
struct diffs {
    struct str text;
    struct json_out json;
    double tol, floor_value;
    bool is_json;
    int64_t n, beyond;
};

static int pair_diff(struct diffs *s, const char *a, const char *b, bool named, struct err *err)
{
    struct ckpt_diff d;
    int rc = ckpt_diff(a, b, s->tol, s->floor_value, &d, err);
    if (rc < 0)
        return rc;
    if (s->is_json && named)
        json_put_text(&s->json, "a", a), json_put_text(&s->json, "b", b);
    else if (named)
        str_addf(&s->text, "%s and %s:\n", a, b);
    s->is_json ? diff_json(&d, s->tol, s->floor_value, &s->json)
               : diff_text(&d, s->tol, s->floor_value, &s->text);
    s->n++;
    s->beyond += d.n_beyond;
    ckpt_diff_release(&d);
    return 0;
}

static bool has_step(const struct ckpt_list *l, int64_t step)
{
    bool has = false;
    for (int64_t i = 0; i < l->n && !has; i++)
        has = l->steps[i] == step;
    return has;
}

/* Compares the two runs' checkpoints of one step; in JSON this is one element of `steps`. */
static int step_diff(struct diffs *s, const char *a, const char *b, int64_t step, struct err *err)
{
    char step_a[LIMIT_PATH_BYTES], step_b[LIMIT_PATH_BYTES];
    ckpt_dir_format(a, step, step_a), ckpt_dir_format(b, step, step_b);
    if (s->is_json)
        json_obj_begin(&s->json, NULL), json_put_int(&s->json, "step", step);
    int rc = pair_diff(s, step_a, step_b, true, err);
    if (s->is_json)
        json_obj_end(&s->json);
    return rc;
}

/* Compares every step of which both runs still have a checkpoint, the oldest first, so that the
 * output shows where the runs begin to differ. */
static int common_diff(struct diffs *s, const char *run_a, const char *run_b, struct err *err)
{
    char a[LIMIT_PATH_BYTES], b[LIMIT_PATH_BYTES];
    struct ckpt_list list_a = {0}, list_b = {0};
    int rc;
    snprintf(a, sizeof a, "%s/ckpt", run_a), snprintf(b, sizeof b, "%s/ckpt", run_b);
    if ((rc = ckpt_list_load(a, &list_a, err)) < 0)
        goto out;
    if ((rc = ckpt_list_load(b, &list_b, err)) < 0)
        goto out;
    if (s->is_json)
        json_arr_begin(&s->json, "steps");
    for (int64_t i = list_a.n - 1; i >= 0; i--)
        if (has_step(&list_b, list_a.steps[i]) &&
            (rc = step_diff(s, a, b, list_a.steps[i], err)) < 0)
            goto out;
    if (s->is_json)
        json_arr_end(&s->json);
    if (s->n == 0)
        rc = err_set(err, ERR_INPUT,
                     "'%s' and '%s' have no step's checkpoint in common: leave --all out to "
                     "compare the newest ones",
                     run_a, run_b);
out:
    free(list_a.steps), free(list_b.steps);
    return rc;
}

static int newest_diff(struct diffs *s, const char *a, const char *b, struct err *err)
{
    char dir_a[LIMIT_PATH_BYTES], dir_b[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = ckpt_dir_find(a, dir_a, err)) < 0)
        return rc;
    if ((rc = ckpt_dir_find(b, dir_b, err)) < 0)
        return rc;
    return pair_diff(s, dir_a, dir_b, ckpt_is_run(a) || ckpt_is_run(b), err);
}

static int diff(const char *a, const char *b, const struct opt_values *v, struct err *err)
{
    struct diffs s = {
        .text = STR_INIT, .tol = opt_num(v, "tol"), .floor_value = opt_num(v, "floor"),
        .is_json = opt_bool(v, "json")};
    bool all = opt_bool(v, "all");
    int rc;
    if (all && !(ckpt_is_run(a) && ckpt_is_run(b)))
        return err_set(err, ERR_USAGE, "--all compares runs: give two folders that hold ckpt/");
    json_out_init(&s.json, &s.text, 0);
    if (s.is_json)
        json_obj_begin(&s.json, NULL), json_put_text(&s.json, "schema", "reel.ckpt-diff/1");
    if ((rc = all ? common_diff(&s, a, b, err) : newest_diff(&s, a, b, err)) < 0)
        goto out;
    if (s.is_json)
        json_obj_end(&s.json), str_addc(&s.text, '\n');
    if ((rc = train_print(&s.text, err)) < 0)
        goto out;
    if (s.beyond > 0)
        rc = err_set(err, ERR_NO, "%lld tensors differ by more than %g", (long long)s.beyond,
                     s.tol);
out:
    str_release(&s.text);
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

/* Tells whether tensor t is a LoRA adapter. The adapters A and B of a weight follow it directly. */
static bool is_adapter(const struct ckpt_manifest *m, int64_t t)
{
    return m->finetune.lora.rank &&
           (str_ends(m->tensors[t].name, ".lora_a") || str_ends(m->tensors[t].name, ".lora_b"));
}

/* Adds scale · b a to w. Shapes: w [out, in], b [out, rank], a [rank, in]. */
#define MERGE(REAL)                                                                          \
    static void merge_##REAL(REAL *w, const REAL *a, const REAL *b, int64_t out, int64_t in, \
                             int64_t rank, double scale)                                     \
    {                                                                                        \
        for (int64_t i = 0; i < out; i++)                                                    \
            for (int64_t k = 0; k < rank; k++)                                               \
                for (int64_t j = 0; j < in; j++)                                             \
                    w[i * in + j] += (REAL)scale * b[i * rank + k] * a[k * in + j];          \
    }
MERGE(double)
MERGE(float)

/* Merges the adapters of tensor t into it. `raw` holds the tensor; `spare` has room for both
 * adapters. */
static int adapters_merge(struct ckpt_source *source, const struct ckpt_manifest *m,
                          enum ckpt_buffer buffer, int64_t t, void *raw, char *spare,
                          struct err *err)
{
    const struct ckpt_tensor *w = &m->tensors[t];
    int64_t rank = m->finetune.lora.rank;
    char *b = spare + rank * w->dim[1] * dtype_bytes(m->dtype);
    double scale = finetune_lora_scale(&m->finetune);
    int rc;
    if ((rc = ckpt_source_read(source, buffer, t + 1, spare, err)) < 0)
        return rc;
    if ((rc = ckpt_source_read(source, buffer, t + 2, b, err)) < 0)
        return rc;
    if (m->dtype == DTYPE_F64)
        merge_double(raw, (double *)spare, (double *)b, w->dim[0], w->dim[1], rank, scale);
    else
        merge_float(raw, (float *)spare, (float *)b, w->dim[0], w->dim[1], rank, scale);
    return 0;
}

/* Describes an export: its source, its file, and how tensors are written. */
struct export {
    const char *dir, *path;
    const struct ckpt_manifest *m;
    enum ckpt_buffer buffer;
    bool merge;
};

/* Writes tensor t, with its adapters merged in if that is asked for. `raw` and `spare` are room for
 * the tensor and its adapters. */
static int tensor_export(const struct export *e, struct ckpt_source *source, int64_t t, void *raw,
                         void *spare, struct safetensors_writer *w, struct err *err)
{
    const struct ckpt_manifest *m = e->m;
    bool adapted = e->merge && t + 1 < m->n_tensors && is_adapter(m, t + 1);
    int rc;
    if ((rc = ckpt_source_read(source, e->buffer, t, raw, err)) < 0)
        return rc;
    if (adapted && (rc = adapters_merge(source, m, e->buffer, t, raw, spare, err)) < 0)
        return rc;
    return safetensors_add(w, raw, m->tensors[t].count * dtype_bytes(m->dtype), err);
}

/* Exports one tensor at a time, with room for the largest tensor and its adapters. */
static int tensors_export(const struct export *e, struct ckpt_source *source,
                          struct safetensors_writer *w, struct err *err)
{
    const struct ckpt_manifest *m = e->m;
    int64_t most = 1, adapters = 1, bytes = dtype_bytes(m->dtype);
    for (int64_t i = 0; i < m->n_tensors; i++) {
        most = num_max_i64(most, m->tensors[i].count * bytes);
        adapters = num_max_i64(adapters, (m->tensors[i].dim[0] + m->tensors[i].dim[1]) *
                                             m->finetune.lora.rank * bytes);
    }
    void *raw = malloc((size_t)most), *spare = malloc((size_t)adapters);
    int rc = 0;
    if (!raw || !spare) {
        rc = err_set(err, ERR_NOMEM, "out of memory exporting");
        goto out;
    }
    for (int64_t i = 0; i < m->n_tensors; i++)
        if ((!e->merge || !is_adapter(m, i)) &&
            (rc = tensor_export(e, source, i, raw, spare, w, err)) < 0)
            goto out;
out:
    free(raw);
    free(spare);
    return rc;
}

/* Writes the file with these tensors. After a failure there is no file. */
static int file_export(const struct export *e, struct ckpt_source *source,
                       struct safetensors_tensor *list, int64_t n, struct err *err)
{
    const struct ckpt_manifest *m = e->m;
    struct safetensors_writer *w = NULL;
    char step[32], hash[HASH_TEXT_BYTES];
    int rc;
    snprintf(step, sizeof step, "%lld", (long long)m->meta.step);
    const struct safetensors_meta meta[] = {
        {"source", "reel.ckpt/1"}, {"model", m->model.name},
        {"step", step}, {"buffer", ckpt_buffer_names[e->buffer]},
        {"config_hash", hash_format(m->meta.config_hash, hash)}};
    if ((rc = safetensors_create(e->path, list, n, meta, (int64_t)ARRAY_LEN(meta), &w, err)) < 0)
        return rc;
    if ((rc = tensors_export(e, source, w, err)) < 0) {
        safetensors_abort(w);
        return rc;
    }
    return safetensors_commit(w, err);
}

static int manifest_export(const struct export *e, struct err *err)
{
    const struct ckpt_manifest *m = e->m;
    struct safetensors_tensor *list = calloc((size_t)m->n_tensors + 1, sizeof *list);
    struct ckpt_source *source = NULL;
    int64_t n = 0;
    int rc;
    if (!list)
        return err_set(err, ERR_NOMEM, "out of memory exporting");
    if ((rc = ckpt_source_open(e->dir, m, &source, err)) < 0)
        goto out;
    for (int64_t i = 0; i < m->n_tensors; i++)
        if (!e->merge || !is_adapter(m, i))
            list[n++] = exported(&m->tensors[i], m->dtype);
    rc = file_export(e, source, list, n, err);
out:
    ckpt_source_close(source);
    free(list);
    return rc;
}

static int export(const char *dir, const struct opt_values *v, struct err *err)
{
    struct ckpt_manifest m = {0};
    struct export e = {
        dir, opt_text(v, "safetensors"), &m,
        opt_bool(v, "ema") ? CKPT_EMA : CKPT_WEIGHTS, opt_bool(v, "merge-lora")};
    int rc;
    if (!e.path)
        return err_set(err, ERR_USAGE, "reel-train ckpt export: give --safetensors FILE");
    if (!opt_bool(v, "force") && file_exists(e.path))
        return err_set(err, ERR_EXISTS,
                       "'%s' exists already: give --safetensors another FILE, or --force to write "
                       "over what is there",
                       e.path);
    if ((rc = ckpt_manifest_load(dir, &m, err)) < 0)
        return rc;
    if (e.buffer == CKPT_EMA && !m.ema) {
        rc = err_set(err, ERR_INPUT, "%s: holds no average (EMA): export without --ema", dir);
        goto out;
    }
    if ((rc = ckpt_verify(dir, &m, 0, 1, err)) < 0)
        goto out;
    if (e.merge && !m.finetune.lora.rank) {
        rc = err_set(err, ERR_INPUT, "%s: has no adapters: export without --merge-lora", dir);
        goto out;
    }
    rc = manifest_export(&e, err);
out:
    ckpt_manifest_release(&m);
    return rc;
}

/* ---- fits ---- */

/* Adds a line. The names of tensors in it may have any bytes. */
static void line_add(void *text, const char *line)
{
    struct str *to = text;
    size_t before = to->len;
    str_addf(to, "%s\n", line);
    if (to->len > before)
        str_disarm(to->p + before, to->len - 1 - before, "");
}

/* Prints the names of all tensors that are not used or missing, also where that is an error. */
static int fits_print(const struct run *run, struct err *err)
{
    struct warm_count c;
    struct str text = STR_INIT;
    struct err why = {0};
    int fit = warm_fits(run, line_add, &text, &c, &why);
    if (fit == 0)
        str_addf(&text,
                 "%s: %lld of the model's %lld tensors are there, %lld others are not used\n",
                 run->warm.from, (long long)c.taken, (long long)c.tensors, (long long)c.unused);
    int rc = train_print(&text, err);
    str_release(&text);
    return rc < 0 || fit == 0 ? rc : err_set(err, fit, "%s", why.text);
}

static int fits(const char *run_path, struct err *err)
{
    struct run run = {0};
    int rc;
    if ((rc = run_load(run_path, &run, err)) < 0)
        goto out;
    if (!run.warm.from) {
        rc = err_set(err, ERR_INPUT, "%s: begins with no weights of others: give init.from",
                     run_path);
        goto out;
    }
    rc = fits_print(&run, err);
out:
    run_release(&run);
    return rc;
}

/* ---- the command ---- */

static int options_check(const struct opt_values *v, const char *verb, struct err *err)
{
    static const struct { const char *option, *verb; } only[] = {
        {"tol", "diff"}, {"floor", "diff"}, {"json", "diff"}, {"all", "diff"},
        {"safetensors", "export"}, {"force", "export"}, {"ema", "export"},
        {"merge-lora", "export"}};
    for (size_t i = 0; i < ARRAY_LEN(only); i++)
        if (opt_given(v, only[i].option) && strcmp(verb, only[i].verb) != 0)
            return err_set(err, ERR_USAGE, "reel-train ckpt %s: --%s is for %s", verb,
                           only[i].option, only[i].verb);
    return 0;
}

/* Runs a verb that takes one checkpoint. For a run's folder this is the newest one, which a line of
 * the log then names. */
static int one_run(const char *verb, const char *word, const struct opt_values *v, struct err *err)
{
    char dir[LIMIT_PATH_BYTES];
    int rc = ckpt_dir_find(word, dir, err);
    if (rc < 0)
        return rc;
    if (ckpt_is_run(word))
        log_msg(LOG_INFO, "the newest checkpoint of '%s' is taken: %s", word, dir);
    return strcmp(verb, "show") == 0     ? show(dir, err)
           : strcmp(verb, "verify") == 0 ? verify(dir, err)
                                         : export(dir, v, err);
}

int train_cmd_ckpt_run(const struct opt_values *v, int argc, char **argv, struct err *err)
{
    const char *const *w;
    size_t n = opt_operands(v, &w);
    (void)argc, (void)argv;
    int rc = options_check(v, w[0], err);
    if (rc < 0)
        return rc;
    for (const char *const *verb = (const char *const[]){"show", "verify", "export", NULL}; *verb;
         verb++)
        if (strcmp(w[0], *verb) == 0 && n == 2)
            return one_run(w[0], w[1], v, err);
    if (strcmp(w[0], "diff") == 0 && n == 3)
        return diff(w[1], w[2], v, err);
    if (strcmp(w[0], "fits") == 0 && n == 2)
        return fits(w[1], err);
    return err_set(err, ERR_USAGE, "reel-train ckpt: give 'show DIR', 'verify DIR', "
                   "'export DIR --safetensors FILE', 'diff A B' or 'fits RUN.json'");
}
