/* This file reads and writes the curves of reel.gpu/1. The table below says what each field means;
 * `reel format device` is made from it. */
#include "profiles/curve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "profiles/field.h"
#include "profiles/format.h"

const char *const curve_kind_names[] = {
    "gemm_flops", "gemm_side", "attn_fwd", "attn_bwd", "attn_fwd_fill", "attn_bwd_fill",
    "norm_fwd", "norm_bwd", "unfused_fwd", "unfused_bwd", "all_reduce", NULL};

double curve_at(const struct curve *c, double size)
{
    int i = 0;
    while (i < c->n && c->size[i] < size)
        i++;
    if (i == 0)
        return c->value[0];
    if (i == c->n)
        return c->value[c->n - 1];
    double t = log(size / c->size[i - 1]) / log(c->size[i] / c->size[i - 1]);
    return c->value[i - 1] + t * (c->value[i] - c->value[i - 1]);
}

/* Returns how far a curve is from the case: the dtype counts most, then the mask, then the head
 * size. */
static double distance(const struct curve_case *a, const struct curve_case *of)
{
    double d = a->dtype == of->dtype ? 0 : a->dtype == DTYPE_BF16 ? 2e6 : 4e6;
    d += a->causal == of->causal ? 0 : 1e6;
    if (a->head_dim > 0 && of->head_dim > 0)
        d += fabs(log((double)a->head_dim / (double)of->head_dim));
    return d;
}

const struct curve *curves_find(const struct curves *all, const struct curve_case *of)
{
    const struct curve *best = NULL;
    double least = INFINITY;
    for (int i = 0; i < all->n; i++) {
        const struct curve *c = &all->items[i];
        double d = c->of.kind == of->kind ? distance(&c->of, of) : INFINITY;
        if (d < least)
            least = d, best = c;
    }
    return best;
}

/* ---- reading ---- */

struct curve_text {
    const char *source; /* borrowed from the parsed tree */
    struct curve c;
};

#define AT(field) offsetof(struct curve_text, field)
static const struct json_field fields[] = {
    {"kind", JSON_ENUM, AT(c.of.kind), .names = curve_kind_names,
     .help = "what was measured, over which size and in which unit"},
    {"dtype", JSON_ENUM, AT(c.of.dtype), .optional = true, .names = dtype_names,
     .help = "of the operands"},
    {"causal", JSON_BOOL, AT(c.of.causal), .optional = true, .help = "attention's mask"},
    {"head_dim", JSON_INT, AT(c.of.head_dim), .optional = true, .min = 0, .max = 4096,
     .help = "of attention; 0: any"},
    {"source", JSON_TEXT, AT(source), .optional = false, .help = "whose measurements these are"},
    {"points", JSON_ANY, 0, .optional = false,
     .help = "array of 1 to 12 pairs [size, value], by rising size; log-linear between them, the "
             "end points' value outside"},
};
#undef AT

static const struct curve_text defaults = {.c.of.dtype = DTYPE_BF16};

/* Returns the largest value that a curve of this kind may have. */
static double most_of(int kind) { return kind == CURVE_ALL_REDUCE ? 1e18 : 1; }

static int pair_read(const struct json_doc *doc, const cJSON *pair, const char *path, int i,
                     struct curve *c, struct err *err)
{
    const cJSON *size = cJSON_GetArrayItem(pair, 0), *value = cJSON_GetArrayItem(pair, 1);
    bool numbers = cJSON_IsArray(pair) && cJSON_GetArraySize(pair) == 2 && cJSON_IsNumber(size) &&
                   cJSON_IsNumber(value);
    double most = most_of(c->of.kind);
    if (!numbers || size->valuedouble <= 0 || value->valuedouble <= 0 || value->valuedouble > most)
        return err_set(err, ERR_INPUT,
                       "%s: %s.points[%d] is no pair: give [size, value], a size above 0 and a "
                       "value above 0 up to %g",
                       doc->name, path, i, most);
    if (i > 0 && size->valuedouble <= c->size[i - 1])
        return err_set(err, ERR_INPUT,
                       "%s: %s.points[%d] has size %g after %g: give the points by rising size",
                       doc->name, path, i, size->valuedouble, c->size[i - 1]);
    c->size[i] = size->valuedouble;
    c->value[i] = value->valuedouble;
    return 0;
}

static int points_read(const struct json_doc *doc, const cJSON *list, const char *path,
                       struct curve *c, struct err *err)
{
    int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0, rc;
    const cJSON *pair;
    if (n < 1 || n > CURVE_POINTS)
        return err_set(err, ERR_INPUT, "%s: %s.points has %d points: give an array of 1 to %d",
                       doc->name, path, n, CURVE_POINTS);
    cJSON_ArrayForEach(pair, list)
        if ((rc = pair_read(doc, pair, path, c->n++, c, err)) < 0)
            return rc;
    return 0;
}

static int curve_read(const struct json_doc *doc, const cJSON *obj, const char *path,
                      struct curve *out, struct err *err)
{
    struct curve_text t = defaults;
    int rc;
    if ((rc = json_read(doc, obj, path, fields, ARRAY_LEN(fields), NULL, &t, err)) < 0)
        return rc;
    if ((rc = field_copy_text(t.c.source, sizeof t.c.source, t.source, doc, path, "source",
                              err)) < 0)
        return rc;
    if ((rc = points_read(doc, json_member(obj, "points"), path, &t.c, err)) < 0)
        return rc;
    *out = t.c;
    return 0;
}

int curves_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct curves *out,
                struct err *err)
{
    const cJSON *list = json_member(obj, "curves"), *item;
    struct curves all = {0};
    char where[LIMIT_NAME_BYTES], one[LIMIT_NAME_BYTES + 16];
    int rc;
    field_path(where, sizeof where, path, "curves");
    if (list && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > CURVES))
        return err_set(err, ERR_INPUT, "%s: %s is no array of at most %d curves", doc->name, where,
                       CURVES);
    cJSON_ArrayForEach(item, list) {
        snprintf(one, sizeof one, "%s[%d]", where, all.n);
        if ((rc = curve_read(doc, item, one, &all.items[all.n++], err)) < 0)
            return rc;
    }
    *out = all;
    return 0;
}

/* ---- writing ---- */

static void curve_write(const struct curve *c, struct json_out *o)
{
    const struct curve_text t = {.source = c->source, .c = *c};
    json_obj_begin(o, NULL);
    field_write_table(o, fields, ARRAY_LEN(fields), &t);
    json_arr_begin(o, "points");
    for (int i = 0; i < c->n; i++) {
        json_arr_begin(o, NULL);
        json_put_num(o, NULL, c->size[i]);
        json_put_num(o, NULL, c->value[i]);
        json_arr_end(o);
    }
    json_arr_end(o);
    json_obj_end(o);
}

void curves_write(const struct curves *all, struct json_out *o)
{
    if (all->n == 0)
        return;
    json_arr_begin(o, "curves");
    for (int i = 0; i < all->n; i++)
        curve_write(&all->items[i], o);
    json_arr_end(o);
}

void curves_format(struct format_part *out)
{
    *out = (struct format_part){"curves", fields, ARRAY_LEN(fields), &defaults};
}
