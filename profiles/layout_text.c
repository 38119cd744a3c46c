/* This file reads and writes the text of a layout, "tp=2,dp=4,...", which command lines, events,
 * checkpoints and plans use. Older plans have an object, which is still read. One table of keys
 * serves both. Only ranges of values are checked here; layout.c checks legality. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "profiles/format.h"
#include "profiles/layout.h"

#define RANKS .min = 1, .max = LIMIT_RANKS
#define AT(field) offsetof(struct layout, field)
static const struct json_field fields[] = {
    {"tp", JSON_INT, AT(tp), .optional = true, RANKS, .help = "ranks of tensor parallelism"},
    {"sp", JSON_INT, AT(sp), .optional = true, .min = 0, .max = 1,
     .help = "1: sequence parallelism beside it"},
    {"cp", JSON_INT, AT(cp), .optional = true, RANKS, .help = "ranks of context parallelism"},
    {"cp_kind", JSON_ENUM, AT(cp_kind), .optional = true, .names = cp_kind_names,
     .help = "how these share keys and values"},
    {"pp", JSON_INT, AT(pp), .optional = true, RANKS, .help = "stages of the pipeline"},
    {"vpp", JSON_INT, AT(vpp), .optional = true, RANKS,
     .help = "chunks of layers that a stage has"},
    {"dp", JSON_INT, AT(dp), .optional = true, RANKS, .help = "ranks of data parallelism"},
    {"zero", JSON_INT, AT(zero), .optional = true, .min = 0, .max = 3,
     .help = "what they shard: 0 nothing, 1 optimizer, 2 gradients too, 3 weights too"},
    {"fsdp", JSON_INT, AT(fsdp), .optional = true, .min = 0, .max = LIMIT_RANKS,
     .help = "ranks of a group that shards so; 0: dp"},
    {"mbs", JSON_INT, AT(mbs), .optional = true, RANKS, .help = "samples of a micro-batch"},
    {"recompute", JSON_ENUM, AT(recompute), .optional = true, .names = recompute_names,
     .help = "activations that backward computes again"},
    {"recompute_layers", JSON_INT, AT(recompute_layers), .optional = true, .min = 0, .max = 4096,
     .help = "in so many layers of a virtual stage; 0: in all"},
    {"order", JSON_ENUM, AT(order), .optional = true, .names = layout_order_names,
     .help = "which ranks are neighbours: those of the axis named first, then of the next"},
};

int layout_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct layout *out,
                struct err *err)
{
    struct layout l = layout_default();
    int rc;
    if (cJSON_IsString(obj)) {
        if (layout_parse(obj->valuestring, &l, err) < 0)
            return err_context(err, "%s", doc->name);
    } else if ((rc = json_read(doc, obj, path, fields, ARRAY_LEN(fields), NULL, &l, err)) < 0) {
        return rc;
    }
    *out = l;
    out->order = layout_order_plain(out);
    return 0;
}

void layout_write(const struct layout *l, struct json_out *o, const char *key)
{
    struct str text = STR_INIT;
    layout_format(l, &text);
    json_put_text(o, key, text.p);
    o->s->failed |= text.failed;
    str_release(&text);
}

static int64_t field_value(const struct layout *l, const struct json_field *field)
{
    const void *at = (const char *)l + field->offset;
    return field->type == JSON_ENUM ? *(const int *)at : *(const int64_t *)at;
}

static void field_add(const struct layout *l, const struct json_field *field, const char *before,
                      struct str *out)
{
    str_addf(out, "%s%s=", before, field->name);
    if (field->type == JSON_ENUM)
        str_add(out, field->names[field_value(l, field)]);
    else
        str_addf(out, "%lld", (long long)field_value(l, field));
}

void layout_format(const struct layout *l, struct str *out)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (l->order || fields[i].offset != AT(order))
            field_add(l, &fields[i], i ? "," : "", out);
}

/* Says whether a field is written even if it has its default. */
static bool always_named(const char *name)
{
    static const char *const always[] = {"dp", "zero", "mbs", "recompute"};
    for (size_t i = 0; i < ARRAY_LEN(always); i++)
        if (strcmp(always[i], name) == 0)
            return true;
    return false;
}

void layout_brief(const struct layout *l, struct str *out)
{
    struct layout plain = layout_default();
    const char *before = "";
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        if (!always_named(fields[i].name) &&
            field_value(l, &fields[i]) == field_value(&plain, &fields[i]))
            continue;
        field_add(l, &fields[i], before, out);
        before = " ";
    }
}

/* ---- parsing ---- */

static int enum_set(const struct json_field *field, const char *value, int *out, struct err *err)
{
    struct str allowed = STR_INIT;
    for (int i = 0; field->names[i]; i++) {
        if (strcmp(value, field->names[i]) == 0) {
            *out = i;
            str_release(&allowed);
            return 0;
        }
        str_addf(&allowed, "%s%s", i ? ", " : "", field->names[i]);
    }
    int rc = err_set(err, ERR_INPUT, "layout: %s is '%s': give one of %s", field->name, value,
                     allowed.p);
    str_release(&allowed);
    return rc;
}

static int value_set(const struct json_field *field, const char *value, struct layout *l,
                     struct err *err)
{
    void *at = (char *)l + field->offset;
    char what[64];
    int64_t n;
    if (field->type == JSON_ENUM)
        return enum_set(field, value, at, err);
    snprintf(what, sizeof what, "layout: %s", field->name);
    int rc = num_parse_i64(value, what, &n, err);
    if (rc < 0)
        return rc;
    if ((double)n < field->min || (double)n > field->max)
        return err_set(err, ERR_INPUT, "%s is %s: give %.0f to %.0f", what, value, field->min,
                       field->max);
    *(int64_t *)at = n;
    return 0;
}

static const struct json_field *field_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

static int unknown_key(const char *key, struct err *err)
{
    const char *names[ARRAY_LEN(fields) + 1] = {0};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        names[i] = fields[i].name;
    const char *near = str_nearest(key, names);
    return err_set(err, ERR_INPUT,
                   "layout: '%s' is no key%s%s: give tp, sp, cp, cp_kind, pp, vpp, dp, zero, fsdp, "
                   "mbs, recompute, recompute_layers or order as key=value, separated by commas",
                   key, near ? ", did you mean " : "", near ? near : "");
}

/* Sets one "key=value". Bit i of `seen` says that fields[i] was given. */
static int pair_set(char *pair, struct layout *l, unsigned *seen, struct err *err)
{
    char *equals = strchr(pair, '=');
    if (equals)
        *equals = '\0';
    const struct json_field *field = field_find(pair);
    if (!field)
        return unknown_key(pair, err);
    if (!equals)
        return err_set(err, ERR_INPUT, "layout: %s has no value: give %s=VALUE", pair, pair);
    unsigned bit = 1u << (field - fields);
    if (*seen & bit)
        return err_set(err, ERR_INPUT, "layout: %s is given twice: give it once", pair);
    *seen |= bit;
    return value_set(field, equals + 1, l, err);
}

int layout_parse(const char *text, struct layout *out, struct err *err)
{
    struct layout l = layout_default();
    unsigned seen = 0;
    char *copy = *text ? strdup(text) : NULL;
    int rc = 0;
    if (*text && !copy)
        return err_set(err, ERR_NOMEM, "layout: no memory to read '%.40s'", text);
    for (char *rest = copy, *pair; (pair = strsep(&rest, ","));)
        if ((rc = pair_set(pair, &l, &seen, err)) < 0)
            goto out;
    *out = l;
    out->order = layout_order_plain(out);
out:
    free(copy);
    return rc;
}

int layout_compare(const struct layout *a, const struct layout *b)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        int64_t x = field_value(a, &fields[i]), y = field_value(b, &fields[i]);
        if (x != y)
            return (x > y) - (x < y);
    }
    return 0;
}

bool layout_equal(const struct layout *a, const struct layout *b)
{ return layout_compare(a, b) == 0; }

size_t layout_format_part(struct format_part *out)
{
    static struct layout defaults;
    defaults = layout_default();
    *out = (struct format_part){"layout", fields, ARRAY_LEN(fields), &defaults};
    return 1;
}
