#include "trainer/ckpt/warm_start.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/file.h"
#include "base/num.h"
#include "base/safetensors.h"
#include "trainer/ckpt/ckpt.h"

enum { AT_ONCE = 512, SHAPE_BYTES = 96 };

/* Describes a tensor of the source, under the model's name for it. */
struct entry {
    char name[LIMIT_NAME_BYTES], own[LIMIT_NAME_BYTES];
    int nd;
    int64_t dim[LIMIT_DIMS], at; /* at: number in the source */
};

struct source {
    const struct warm *w;
    const struct param_list *params;
    struct optim *o; /* takes the numbers; NULL: only names and shapes are looked at */
    struct safetensors_reader file;
    struct ckpt_manifest m;
    struct ckpt_source *ckpt; /* NULL: a file */
    void *whole;              /* all elements of the checkpoint's tensor number whole_of */
    int64_t whole_of;
    struct entry *entries;
    int64_t n;
    int64_t *of; /* [params->n] index of the parameter's entry; -1: the source has none */
    struct warm_count count;
};

/* ---- opening ---- */

static void entry_add(struct source *s, const char *own, int nd, const int64_t *dim, int64_t at)
{
    struct entry *e = &s->entries[s->n];
    *e = (struct entry){.nd = nd, .at = at};
    if (!warm_name(s->w, own, e->name))
        e->name[0] = '\0'; /* no parameter has a name so long */
    snprintf(e->own, sizeof e->own, "%s", own);
    memcpy(e->dim, dim, sizeof *dim * (size_t)nd);
    s->n++;
}

static int file_open(struct source *s, struct err *err)
{
    int rc;
    if ((rc = safetensors_open(s->w->from, &s->file, err)) < 0)
        return rc;
    if (!(s->entries = calloc((size_t)s->file.n + 1, sizeof *s->entries)))
        return err_set(err, ERR_NOMEM, "out of memory reading '%s'", s->w->from);
    for (int64_t i = 0; i < s->file.n; i++)
        entry_add(s, s->file.tensors[i].name, s->file.tensors[i].nd, s->file.tensors[i].dim, i);
    return 0;
}

static int ckpt_open(struct source *s, struct err *err)
{
    int64_t most = 1;
    int rc;
    if ((rc = ckpt_manifest_load(s->w->from, &s->m, err)) < 0)
        return rc;
    if (s->o && (rc = ckpt_verify(s->w->from, &s->m, s->o->c.world->rank, s->o->c.world->size,
                                  err)) < 0)
        return rc;
    if ((rc = ckpt_source_open(s->w->from, &s->m, &s->ckpt, err)) < 0)
        return rc;
    for (int64_t i = 0; i < s->m.n_tensors; i++)
        most = num_max_i64(most, s->m.tensors[i].count);
    s->whole = malloc((size_t)(most * dtype_bytes(s->m.dtype)));
    s->entries = calloc((size_t)s->m.n_tensors + 1, sizeof *s->entries);
    if (!s->whole || !s->entries)
        return err_set(err, ERR_NOMEM, "out of memory reading '%s'", s->w->from);
    for (int64_t i = 0; i < s->m.n_tensors; i++)
        entry_add(s, s->m.tensors[i].name, s->m.tensors[i].nd, s->m.tensors[i].dim, i);
    return 0;
}

static int source_open(struct source *s, struct err *err)
{
    char manifest[LIMIT_PATH_BYTES];
    snprintf(manifest, sizeof manifest, "%s/manifest.json", s->w->from);
    return file_exists(manifest) ? ckpt_open(s, err) : file_open(s, err);
}

static void source_close(struct source *s)
{
    safetensors_close(&s->file);
    ckpt_source_close(s->ckpt);
    ckpt_manifest_release(&s->m);
    free(s->whole);
    free(s->entries);
    free(s->of);
}

/* ---- does it fit? ---- */

static const char *shape_text(char buf[SHAPE_BYTES], int nd, const int64_t *dim)
{
    int at = snprintf(buf, SHAPE_BYTES, "[");
    for (int i = 0; i < nd; i++)
        at += snprintf(buf + at, SHAPE_BYTES - (size_t)at, "%s%lld", i ? ", " : "",
                       (long long)dim[i]);
    snprintf(buf + at, SHAPE_BYTES - (size_t)at, "]");
    return buf;
}

static bool is_table(const struct param *p)
{
    return p->nd == 2 && strncmp(p->name, "pos_", 4) == 0;
}

static bool same_shape(const struct entry *e, const struct param *p)
{
    return e->nd == p->nd && memcmp(e->dim, p->dim, sizeof *p->dim * (size_t)p->nd) == 0;
}

/* Returns the type of an entry by its safetensors name. A checkpoint's type that safetensors does
 * not know gets a name too, by which it is refused. */
static const char *entry_dtype(const struct source *s, const struct entry *e)
{
    static const char *const words[] = {
        [DTYPE_F64] = "F64", [DTYPE_F32] = "F32",
        [DTYPE_BF16] = "BF16", [DTYPE_FP8] = "FP8"
    };
    return s->ckpt ? words[s->m.dtype] : s->file.tensors[e->at].dtype;
}

static int entry_check(const struct source *s, const struct entry *e, const struct param *p,
                       struct err *err)
{
    char have[SHAPE_BYTES], want[SHAPE_BYTES];
    const char *dtype = entry_dtype(s, e);
    if (strcmp(dtype, "F64") && strcmp(dtype, "F32") && strcmp(dtype, "F16") &&
        strcmp(dtype, "BF16"))
        return err_set(err, ERR_INPUT,
                       "%s: tensor '%s' holds %s numbers: give F64, F32, F16 or BF16", s->w->from,
                       e->own, dtype);
    if (same_shape(e, p) || (is_table(p) && e->nd == 2 && e->dim[0] > 0 && e->dim[1] == p->dim[1]))
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: tensor '%s' has shape %s, the model's '%s' %s: map it to another name "
                   "(init.map) or change the model",
                   s->w->from, e->own, shape_text(have, e->nd, e->dim), p->name,
                   shape_text(want, p->nd, p->dim));
}

static int entry_find(struct source *s, int64_t i, struct err *err)
{
    const struct param *p = &s->params->items[i];
    s->of[i] = -1;
    for (int64_t k = 0; k < s->n; k++) {
        if (strcmp(s->entries[k].name, p->name) != 0)
            continue;
        if (s->of[i] >= 0)
            return err_set(err, ERR_INPUT,
                           "%s: '%s' and '%s' are both mapped to '%s': correct init.map",
                           s->w->from, s->entries[s->of[i]].own, s->entries[k].own, p->name);
        s->of[i] = k;
    }
    return s->of[i] < 0 ? 0 : entry_check(s, &s->entries[s->of[i]], p, err);
}

/* ---- tensors that only one side has ---- */

/* Collects as many names as there is room for: "'a', 'b' and 7 more (…)". */
enum { NAMES_BYTES = 220 }; /* two lists and a path of as many fit into an error */
struct names { char text[NAMES_BYTES + 80]; int64_t n, told; };

static void names_add(struct names *l, const char *name)
{
    size_t len = strlen(l->text);
    bool told = l->told == l->n++ && len + strlen(name) + 4 < NAMES_BYTES;
    if (told)
        snprintf(l->text + len, sizeof l->text - len, "%s'%s'", len ? ", " : "", name);
    l->told += told;
}

static void names_end(struct names *l)
{
    size_t len = strlen(l->text);
    if (l->told < l->n)
        snprintf(l->text + len, sizeof l->text - len,
                 "%s%lld more ('reel-train ckpt fits RUN.json' lists them all)",
                 l->told ? " and " : "", (long long)(l->n - l->told));
}

static bool is_used(const struct source *s, int64_t entry)
{
    bool used = false;
    for (int64_t i = 0; i < s->params->n && !used; i++)
        used = s->of[i] == entry;
    return used;
}

/* Holds the tensors of the source whose name no parameter has, and the parameters that the source
 * lacks. */
struct lists { struct names unused, missing; bool adapters_only; };

static void lists_make(struct source *s, struct lists *l)
{
    const struct param_list *params = s->params;
    *l = (struct lists){.adapters_only = true};
    for (int64_t k = 0; k < s->n; k++)
        if (!is_used(s, k))
            names_add(&l->unused, s->entries[k].own);
    for (int64_t i = 0; i < params->n; i++)
        if (s->of[i] < 0) {
            names_add(&l->missing, params->items[i].name);
            l->adapters_only = l->adapters_only && params->items[i].lora != PARAM_LORA_NONE;
        }
    names_end(&l->unused);
    names_end(&l->missing);
    s->count =
        (struct warm_count){params->n, params->n - l->missing.n, l->missing.n, l->unused.n};
}

/* Says which position tables have another number of rows than the source's. */
static void tables_say(const struct source *s, const char *before, warm_say_fn *say, void *ctx)
{
    char line[LIMIT_NAME_BYTES + 96];
    for (int64_t i = 0; i < s->params->n; i++) {
        const struct param *p = &s->params->items[i];
        const struct entry *e = s->of[i] < 0 ? NULL : &s->entries[s->of[i]];
        if (!e || same_shape(e, p))
            continue;
        snprintf(line, sizeof line, "%sinterpolated: %s, %lld rows of the source for %lld", before,
                 p->name, (long long)e->dim[0], (long long)p->dim[0]);
        say(ctx, line);
    }
}

/* Says every name, each in a line of its own. */
static void all_say(const struct source *s, warm_say_fn *say, void *ctx)
{
    char line[LIMIT_NAME_BYTES + 32];
    for (int64_t k = 0; k < s->n; k++) {
        snprintf(line, sizeof line, "not used: %s", s->entries[k].own);
        if (!is_used(s, k))
            say(ctx, line);
    }
    for (int64_t i = 0; i < s->params->n; i++) {
        snprintf(line, sizeof line, "missing: %s", s->params->items[i].name);
        if (s->of[i] < 0)
            say(ctx, line);
    }
    tables_say(s, "", say, ctx);
}

static void lists_say(const struct source *s, const struct lists *l, warm_say_fn *say, void *ctx)
{
    char line[LIMIT_PATH_BYTES];
    snprintf(line, sizeof line, "init: %lld of %lld tensors from %.2000s",
             (long long)s->count.taken, (long long)s->count.tensors, s->w->from);
    say(ctx, line);
    snprintf(line, sizeof line, "init: %lld tensors of the source are not used: %s",
             (long long)l->unused.n, l->unused.text);
    if (l->unused.n)
        say(ctx, line);
    snprintf(line, sizeof line,
             "init: %lld tensors that the source has not keep their first values: %s",
             (long long)l->missing.n, l->missing.text);
    if (l->missing.n)
        say(ctx, line);
    tables_say(s, "init: ", say, ctx);
}

/* Checks that every tensor of the source is used and that every parameter but adapters is found,
 * unless the run allows a partial match. */
static int lists_check(const struct source *s, const struct lists *l, struct err *err)
{
    char lacks[600] = "", spare[700] = "";
    if (s->count.taken == 0)
        return err_set(err, ERR_INPUT,
                       "%s: none of its %lld tensors is one of the model's: give init.map",
                       s->w->from, (long long)s->n);
    if (!l->adapters_only)
        snprintf(lacks, sizeof lacks, "has no tensor %s", l->missing.text);
    if (l->unused.n)
        snprintf(spare, sizeof spare,
                 "%sholds %lld that the model has no place for, and would not be itself without: "
                 "%s",
                 *lacks ? ", and " : "", (long long)l->unused.n, l->unused.text);
    if (!s->w->partial && (*lacks || *spare))
        return err_set(err, ERR_INPUT,
                       "%s: %s%s: give their names in the model's words (init.map), or take what "
                       "fits (\"partial\": true)",
                       s->w->from, lacks, spare);
    return 0;
}

static int entries_match(struct source *s, struct lists *l, struct err *err)
{
    const struct param_list *params = s->params;
    int rc;
    if (!(s->of = calloc((size_t)params->n, sizeof *s->of)))
        return err_set(err, ERR_NOMEM, "out of memory reading '%s'", s->w->from);
    for (int64_t i = 0; i < params->n; i++)
        if ((rc = entry_find(s, i, err)) < 0)
            return rc;
    lists_make(s, l);
    return 0;
}

/* ---- numbers ---- */

static double from_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent == 31 ? (fraction ? NAN : INFINITY)
               : exponent     ? ldexp(1024 + fraction, exponent - 25)
                              : ldexp(fraction, -24);
    return h & 0x8000 ? -v : v;
}

static void widen(const char *dtype, const void *raw, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        if (strcmp(dtype, "F64") == 0)
            out[i] = ((const double *)raw)[i];
        else if (strcmp(dtype, "F32") == 0)
            out[i] = ((const float *)raw)[i];
        else
            out[i] = strcmp(dtype, "F16") == 0 ? from_f16(((const uint16_t *)raw)[i])
                                               : (double)bf16_value(((const uint16_t *)raw)[i]);
    }
}

/* Reads a tensor of a checkpoint into s->whole, unless it is there already. */
static int whole_read(struct source *s, const struct entry *e, struct err *err)
{
    int rc;
    if (s->whole_of == e->at)
        return 0;
    s->whole_of = -1;
    if ((rc = ckpt_source_read(s->ckpt, CKPT_WEIGHTS, e->at, s->whole, err)) < 0)
        return rc;
    s->whole_of = e->at;
    return 0;
}

/* Reads elements first .. first+n-1 of a tensor of the source; n is at most AT_ONCE. */
static int elements_read(struct source *s, const struct entry *e, int64_t first, int64_t n,
                         double *out, struct err *err)
{
    int rc;
    if (s->ckpt) {
        if ((rc = whole_read(s, e, err)) < 0)
            return rc;
        widen(entry_dtype(s, e), (char *)s->whole + first * dtype_bytes(s->m.dtype), n, out);
        return 0;
    }
    const struct safetensors_tensor *t = &s->file.tensors[e->at];
    int64_t bytes = safetensors_dtype_bytes(t->dtype);
    double raw[AT_ONCE];
    if ((rc = safetensors_read(&s->file, t, first * bytes, n * bytes, raw, err)) < 0)
        return rc;
    widen(t->dtype, raw, n, out);
    return 0;
}

/* Interpolates n elements of one row of table p between the nearest two rows of the source's table,
 * which has another number of rows. */
static int row_between(struct source *s, const struct entry *e, const struct param *p,
                       int64_t global, int64_t n, double *out, struct err *err)
{
    int64_t cols = p->dim[1], col = global % cols, last = e->dim[0] - 1;
    double place = ((double)(global / cols) + 0.5) * (double)e->dim[0] / (double)p->dim[0] - 0.5,
           next[AT_ONCE];
    place = fmin(fmax(place, 0), (double)last);
    int64_t low = (int64_t)place, high = num_min_i64(low + 1, last);
    double share = place - (double)low;
    int rc;
    if ((rc = elements_read(s, e, low * cols + col, n, out, err)) < 0)
        return rc;
    if ((rc = elements_read(s, e, high * cols + col, n, next, err)) < 0)
        return rc;
    for (int64_t j = 0; j < n; j++)
        out[j] += share * (next[j] - out[j]);
    return 0;
}

static int values_of(void *ctx, int64_t tensor, int64_t global, int64_t n, double *out,
                     struct err *err)
{
    struct source *s = ctx;
    const struct param *p = &s->params->items[tensor];
    const struct entry *e = s->of[tensor] < 0 ? NULL : &s->entries[s->of[tensor]];
    int rc;
    if (!e)
        return 1; /* optim_fill draws the values */
    if (same_shape(e, p))
        return elements_read(s, e, global, n, out, err);
    for (int64_t done = 0, k; done < n; done += k) {
        k = num_min_i64(n - done, p->dim[1] - (global + done) % p->dim[1]);
        if ((rc = row_between(s, e, p, global + done, k, out + done, err)) < 0)
            return rc;
    }
    return 0;
}

/* ---- the whole warm start, and its check alone ---- */

/* Checks that the source's content still has the hash that the run names. One rank calls it for
 * all. */
static int hash_check(const struct warm *w, struct err *err)
{
    struct hash128 now;
    char want[HASH_TEXT_BYTES], found[HASH_TEXT_BYTES];
    int rc;
    if (!warm_hash_known(w))
        return 0;
    if ((rc = warm_hash(w->from, &now, err)) < 0)
        return rc;
    if (memcmp(&now, &w->hash, sizeof now) == 0)
        return 0;
    return err_set(err, ERR_INPUT,
                   "init.from '%s' has hash %s, the run was made for %s: give what it was made "
                   "for, or take source_hash out for a new run",
                   w->from, hash_format(now, found), hash_format(w->hash, want));
}

int warm_start(struct optim *o, warm_say_fn *say, void *ctx, struct warm_count *count,
               struct err *err)
{
    struct comm *world = o->c.world;
    struct source s = {
        .w = &o->c.run->warm, .params = o->c.params, .o = o,
        .file = {.fd = -1}, .whole_of = -1
    };
    struct lists lists;
    int rc;
    if ((rc = comm_agree(world, world->rank == 0 ? hash_check(s.w, err) : 0, err)) < 0)
        goto out;
    if ((rc = comm_agree(world, source_open(&s, err), err)) < 0)
        goto out;
    if ((rc = comm_agree(world, entries_match(&s, &lists, err), err)) < 0)
        goto out;
    if ((rc = comm_agree(world, lists_check(&s, &lists, err), err)) < 0)
        goto out;
    if (say)
        lists_say(&s, &lists, say, ctx);
    if ((rc = comm_agree(world, optim_fill(o, values_of, &s, err), err)) < 0)
        goto out;
    if (count)
        *count = s.count;
out:
    source_close(&s);
    return rc;
}

int warm_fits(const struct run *run, warm_say_fn *say, void *ctx, struct warm_count *count,
              struct err *err)
{
    struct lists lists;
    struct param_list params = {0};
    struct source s = {
        .w = &run->warm, .params = &params,
        .file = {.fd = -1}, .whole_of = -1
    };
    int rc;
    if ((rc = finetune_params(&run->model, &run->finetune, &params, err)) < 0)
        goto out;
    if ((rc = warm_check(s.w->from, err)) < 0)
        goto out;
    if ((rc = hash_check(s.w, err)) < 0)
        goto out;
    if ((rc = source_open(&s, err)) < 0)
        goto out;
    if ((rc = entries_match(&s, &lists, err)) < 0)
        goto out;
    all_say(&s, say, ctx);
    if ((rc = lists_check(&s, &lists, err)) < 0)
        goto out;
    *count = s.count;
out:
    source_close(&s);
    params_release(&params);
    return rc;
}
