/* reel-train ckpt show|verify|diff: look at checkpoints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/num.h"
#include "trainer/ckpt_priv.h"
#include "trainer/main.h"

static const struct opt opts[] = {
    {"tol", 0, OPT_NUM, "X", "diff: largest relative difference of a tensor that still counts as equal", .fallback = "0", .min = 0, .max = 1e9},
    {"floor", 0, OPT_NUM, "X", "diff: differences are relative to the larger of this and the tensor's greatest number", .fallback = "1e-12",
     .min = 1e-300, .max = 1e9},
};
const struct opt_cmd train_cmd_ckpt = {
    "ckpt", "show, verify or compare checkpoints", "show|verify DIR, diff A B", opts, ARRAY_LEN(opts), 2, 3,
    "diff covers weights, moments and average: per tensor max|a-b| / max(max|a|, floor). A missing tensor or a number that is not finite fails."};

static int show(const char *dir, struct err *err)
{
    struct ckpt_manifest m = {0};
    struct str text = STR_INIT;
    char bytes[32], hash[HASH_TEXT_BYTES];
    int rc = ckpt_manifest_load(dir, &m, err);
    if (rc < 0)
        return rc;
    str_addf(&text, "%s\n  model %s, %s, %lld steps (%lld updates), next draw %llu\n  written by %s\n  config %s\n  %lld tensors, %lld files, %s%s\n",
             dir, m.model, dtype_names[m.dtype], (long long)m.meta.step, (long long)m.meta.updates, (unsigned long long)m.meta.ordinal,
             m.layout, hash_format(m.meta.config_hash, hash), (long long)m.n_tensors, (long long)m.n_files,
             num_format_bytes(m.meta.bytes, bytes, sizeof bytes), m.ema ? ", with EMA" : "");
    for (int64_t i = 0; i < m.n_tensors; i++) {
        str_addf(&text, "  %-36s", m.tensors[i].name);
        for (int d = 0; d < m.tensors[i].nd; d++)
            str_addf(&text, "%s%lld", d ? " x " : " ", (long long)m.tensors[i].dim[d]);
        str_addc(&text, '\n');
    }
    rc = train_print(&text, err);
    ckpt_manifest_release(&m);
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

struct side { const char *dir; struct ckpt_manifest m; void *raw; };

static double value_at(const struct side *s, int64_t i)
{
    return s->m.dtype == DTYPE_F64 ? ((double *)s->raw)[i] : (double)((float *)s->raw)[i];
}

/* Relative difference of one tensor of one buffer; NaN when a number is not finite. */
static int tensor_diff(struct side *a, struct side *b, enum ckpt_buffer buffer, int64_t ta, int64_t tb, double floor_value, double *out,
                       struct err *err)
{
    int64_t n = a->m.tensors[ta].count;
    double most = 0, scale = floor_value;
    int rc = ckpt_read(a->dir, &a->m, buffer, ta, 0, n, a->raw, err);
    if (rc == 0)
        rc = ckpt_read(b->dir, &b->m, buffer, tb, 0, n, b->raw, err);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        double x = value_at(a, i), y = value_at(b, i);
        if (!isfinite(x) || !isfinite(y)) {
            *out = NAN;
            return 0;
        }
        most = fmax(most, fabs(x - y));
        scale = fmax(scale, fabs(x));
    }
    *out = most / scale;
    return rc;
}

static int side_open(struct side *s, struct err *err)
{
    int64_t most = 1;
    int rc = ckpt_manifest_load(s->dir, &s->m, err);
    if (rc == 0)
        rc = ckpt_verify(s->dir, &s->m, 0, 1, err);
    for (int64_t i = 0; i < s->m.n_tensors; i++)
        most = num_max_i64(most, s->m.tensors[i].count);
    if (rc == 0 && !(s->raw = malloc((size_t)(most * dtype_bytes(s->m.dtype)))))
        rc = err_set(err, ERR_NOMEM, "out of memory");
    return rc;
}

static int diff_all(struct side *a, struct side *b, double tol, double floor_value, struct str *text, int64_t *worse, struct err *err)
{
    double worst = 0;
    for (int buffer = 0; buffer < CKPT_BUFFERS; buffer++) {
        if (buffer == CKPT_EMA && !a->m.ema)
            continue;
        for (int64_t i = 0; i < a->m.n_tensors; i++) {
            double d;
            int64_t j = ckpt_tensor_find(&b->m, a->m.tensors[i].name);
            bool there = j >= 0 && b->m.tensors[j].count == a->m.tensors[i].count;
            int rc = there ? tensor_diff(a, b, (enum ckpt_buffer)buffer, i, j, floor_value, &d, err) : 0;
            if (rc < 0)
                return rc;
            if (there && d <= tol) {
                worst = fmax(worst, d);
                continue;
            }
            ++*worse;
            str_addf(text, "%s %s: ", ckpt_buffer_names[buffer], a->m.tensors[i].name);
            there ? str_addf(text, "%.3g\n", d) : str_addf(text, "missing or of another shape in %s\n", b->dir);
        }
    }
    str_addf(text, "%lld tensors of each buffer, %lld beyond %g, largest among the others %.3g (floor %g)\n",
             (long long)a->m.n_tensors, (long long)*worse, tol, worst, floor_value);
    return 0;
}

static int diff(const char *dir_a, const char *dir_b, double tol, double floor_value, struct err *err)
{
    struct side a = {.dir = dir_a}, b = {.dir = dir_b};
    struct str text = STR_INIT;
    int64_t worse = 0;
    int rc = side_open(&a, err);
    if (rc == 0)
        rc = side_open(&b, err);
    if (rc == 0 && (a.m.ema != b.m.ema || a.m.n_tensors != b.m.n_tensors))
        rc = err_set(err, ERR_NO, "%s and %s do not hold the same tensors", dir_a, dir_b);
    if (rc == 0 && (rc = diff_all(&a, &b, tol, floor_value, &text, &worse, err)) == 0 && (rc = train_print(&text, err)) == 0 && worse)
        rc = err_set(err, ERR_NO, "%lld tensors differ by more than %g", (long long)worse, tol);
    free(a.raw);
    free(b.raw);
    ckpt_manifest_release(&a.m);
    ckpt_manifest_release(&b.m);
    str_release(&text);
    return rc;
}

int train_cmd_ckpt_run(const struct opt_values *v, int argc, char **argv, struct err *err)
{
    const char *const *w;
    size_t n = opt_operands(v, &w);
    (void)argc, (void)argv;
    if (strcmp(w[0], "show") == 0 && n == 2)
        return show(w[1], err);
    if (strcmp(w[0], "verify") == 0 && n == 2)
        return verify(w[1], err);
    if (strcmp(w[0], "diff") == 0 && n == 3)
        return diff(w[1], w[2], opt_num(v, "tol"), opt_num(v, "floor"), err);
    return err_set(err, ERR_USAGE, "reel-train ckpt: give 'show DIR', 'verify DIR' or 'diff A B'");
}
