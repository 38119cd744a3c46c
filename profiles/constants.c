/* This file reads and writes the format reel.constants/1. The tables below say what each field
 * means; `reel format constants` is made from them.
 *
 * If several constants of one name match, the one that names both device and stack has precedence,
 * then one that names either. A file need not have all constants: those it leaves out have their
 * priors.
 */
#include "profiles/constants.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "profiles/catalog.h"
#include "profiles/field.h"
#include "profiles/format.h"

#define CONSTANT_INFO(id, name, unit, scope, prior, sd, lo, hi, what)                              \
    {name, unit, scope, prior, sd, lo, hi, what},
const struct constant_info constant_table[CONSTANTS] = {CONSTANT_LIST(CONSTANT_INFO)};
#define CONSTANT_NAME(id, name, unit, scope, prior, sd, lo, hi, what) name,
static const char *const constant_names[] = {CONSTANT_LIST(CONSTANT_NAME) NULL};

static double constant_prior(enum constant_id id, const struct device *d)
{
    switch (id) {
    case CONSTANT_GEMM_SHARE: return d->gemm_efficiency;
    case CONSTANT_ATTENTION_FORWARD: return d->attn_fwd_efficiency;
    case CONSTANT_ATTENTION_BACKWARD: return d->attn_bwd_efficiency;
    default: return constant_table[id].prior;
    }
}

/* ---- values ---- */

/* Returns how many of device and stack a constant names: 0 to 2; -1: it names others. */
static int match(const struct constant *c, const char *device, const char *stack)
{
    int named = 0;
    if (*c->device && strcmp(c->device, device) != 0)
        return -1;
    if (*c->stack && strcmp(c->stack, stack) != 0)
        return -1;
    named += *c->device ? 1 : 0;
    return named + (*c->stack ? 1 : 0);
}

const struct constant *constants_best(const struct constants *c, enum constant_id id,
                                      const struct device *d, const struct stack *s)
{
    const struct constant *best = NULL;
    int most = -1;
    for (int64_t i = 0; i < c->n; i++) {
        const struct constant *k = &c->items[i];
        int named = k->id == id ? match(k, d->name, stack_constants(s)) : -1;
        if (named > most)
            most = named, best = k;
    }
    return best;
}

void constants_resolve(const struct constants *c, const struct device *d, const struct stack *s,
                       double v[CONSTANTS])
{
    for (int i = 0; i < CONSTANTS; i++) {
        const struct constant *k = constants_best(c, (enum constant_id)i, d, s);
        v[i] = k ? k->value : constant_prior((enum constant_id)i, d);
    }
}

static struct constant *constants_find(struct constants *c, enum constant_id id,
                                       const char *device, const char *stack)
{
    for (int64_t i = 0; i < c->n; i++) {
        struct constant *k = &c->items[i];
        if (k->id == id && strcmp(k->device, device) == 0 && strcmp(k->stack, stack) == 0)
            return k;
    }
    return NULL;
}

struct constant *constants_at(struct constants *c, enum constant_id id, const struct device *d,
                              const struct stack *s)
{
    enum constant_scope scope = constant_table[id].scope;
    const char *device = scope == SCOPE_DEVICE || scope == SCOPE_BOTH ? d->name : "";
    const char *stack = scope == SCOPE_STACK || scope == SCOPE_BOTH ? stack_constants(s) : "";
    struct constant *k = constants_find(c, id, device, stack);
    if (k && !(k->prior > 0))
        k->prior = constant_prior(id, d);
    if (k || c->n == CONSTANTS_MAX)
        return k;
    k = &c->items[c->n++];
    *k = (struct constant){.id = id, .source = "prior"};
    snprintf(k->device, sizeof k->device, "%s", device);
    snprintf(k->stack, sizeof k->stack, "%s", stack);
    k->prior = k->value = constant_prior(id, d);
    return k;
}

/* ---- the file ---- */

struct constant_text {
    int id;
    const char *unit, *device, *stack, *source;
    double prior, value, lo, hi;
};
static const struct constant_text item_defaults = {
    .device = "", .stack = "", .source = "", .unit = ""};
struct set_text { const char *name, *because; };
static const struct set_text set_defaults = {.because = ""};
static const struct json_field set_fields[] = {
    {"schema", JSON_ANY, 0, .help = "\"reel.constants/1\""},
    {"name", JSON_TEXT, offsetof(struct set_text, name), .help = "of the set, which plans name"},
    {"held_out", JSON_ANY, 0, .optional = true,
     .help = "object: how far off predictions were on rows that such a fit had not seen; null, or "
             "left out: that is not known"},
    {"held_out_because", JSON_TEXT, offsetof(struct set_text, because), .optional = true,
     .help = "why it is not known"},
    {"constants", JSON_ANY, 0, .help = "array of objects: the constants"},
};
struct held_out_text { const char *rule, *of, *devices, *hash; struct held_out h; };
static const struct held_out_text held_out_defaults = {
    .devices = "", .hash = "",
    .h = {.mape_pct = NAN, .spearman_mean = NAN, .spearman_worst = NAN, .oom_caught_pct = NAN,
          .good_rejected_pct = NAN}};
#define COUNT(field, text)                                                                         \
    {#field, JSON_INT, offsetof(struct held_out_text, h.field), .optional = true, .min = 0,        \
     .max = 1e12, .help = text}
#define FIGURE(field, least, most, text)                                                           \
    {#field, JSON_NUM, offsetof(struct held_out_text, h.field), .optional = true, .min = (least),  \
     .max = (most), .help = text}
static const struct json_field held_out_fields[] = {
    {"rule", JSON_TEXT, offsetof(struct held_out_text, rule),
     .help = "what was held out of which fit"},
    {"of", JSON_TEXT, offsetof(struct held_out_text, of),
     .help = "the tables whose rows were judged, each once, by a fit that had not seen it"},
    {"devices", JSON_TEXT, offsetof(struct held_out_text, devices), .optional = true,
     .help = "of these rows, separated by commas"},
    {"hash", JSON_TEXT, offsetof(struct held_out_text, hash), .optional = true,
     .help = "of the constants that were judged; where those of the file have another, or this is "
             "left out, the error is not known"},
    COUNT(rows, "how many these are"),
    FIGURE(mape_pct, 0, 1e12, "mean error of their times, in percent; left out: they have none"),
    COUNT(sweeps, "sweeps of 8 measured rows or more among them"),
    FIGURE(spearman_mean, -1, 1, "rank correlation inside these, on average; left out: none"),
    FIGURE(spearman_worst, -1, 1, "in the worst of them; left out: none"),
    COUNT(oom_rows, "rows that ran out of memory"),
    FIGURE(oom_caught_pct, 0, 100, "percent of these that were predicted to; left out: none"),
    FIGURE(good_rejected_pct, 0, 100,
           "percent of those that ran which were predicted not to fit; left out: none"),
};
#undef COUNT
#undef FIGURE
#define AT(field) offsetof(struct constant_text, field)
static const struct json_field item_fields[] = {
    {"name", JSON_ANY, 0, .help = "which constant; 'reel calibrate --list' tells them"},
    {"unit", JSON_TEXT, AT(unit), .optional = true,
     .help = "that of 'reel calibrate --list'; left out: the same"},
    {"device", JSON_TEXT, AT(device), .optional = true, .help = "left out: of any device"},
    {"stack", JSON_TEXT, AT(stack), .optional = true, .help = "left out: of any stack"},
    {"prior", JSON_NUM, AT(prior), .optional = true, .help = "its value before any fit"},
    {"source", JSON_TEXT, AT(source), .optional = true, .help = "what it was fitted on"},
    {"value", JSON_NUM, AT(value), .help = "what predictions use"},
    {"lo", JSON_NUM, AT(lo), .optional = true, .help = "nine of ten lie between it and hi"},
    {"hi", JSON_NUM, AT(hi), .optional = true, .help = "likewise"},
};
#undef AT

static int id_read(const struct json_doc *doc, const cJSON *obj, const char *path, int *out,
                   struct err *err)
{
    const char *name = json_text(obj, "name", "");
    for (int i = 0; i < CONSTANTS; i++)
        if (strcmp(name, constant_names[i]) == 0) {
            *out = i;
            return 0;
        }
    const char *near = str_nearest(name, constant_names);
    return err_set(err, ERR_INPUT, "%s: %s.name is '%.40s': there is no such constant%s%s%s%s",
                   doc->name, path, name, near ? " (did you mean '" : "", near ? near : "",
                   near ? "'?)" : "", near ? "" : ", 'reel calibrate --list' tells them");
}

static int value_check(const struct json_doc *doc, const char *path, const struct constant *k,
                       struct err *err)
{
    const struct constant_info *info = &constant_table[k->id];
    bool interval = k->lo != 0 || k->hi != 0;
    if (!(k->value >= info->lo && k->value <= info->hi))
        return err_set(err, ERR_INPUT, "%s: %s.value is %g: %s lies between %g and %g%s%s",
                       doc->name, path, k->value, info->name, info->lo, info->hi,
                       strcmp(info->unit, "1") == 0 ? "" : " ",
                       strcmp(info->unit, "1") == 0 ? "" : info->unit);
    if (interval && !(k->lo <= k->value && k->value <= k->hi))
        return err_set(err, ERR_INPUT,
                       "%s: %s.value is %g, which does not lie between lo, %g, and hi, %g: change "
                       "them, or leave both out",
                       doc->name, path, k->value, k->lo, k->hi);
    return 0;
}

/* Checks that the unit, where it is given, is that of the constant. */
static int unit_check(const struct json_doc *doc, const char *path, const char *unit,
                      const struct constant_info *info, struct err *err)
{
    if (!*unit || strcmp(unit, info->unit) == 0)
        return 0;
    return err_set(err, ERR_INPUT, "%s: %s.unit is '%.40s': %s has the unit '%s': give it in that",
                   doc->name, path, unit, info->name, info->unit);
}

static int text_keep(char *dst, size_t size, const char *text, const struct json_doc *doc,
                     const char *path, const char *field, struct err *err)
{
    return *text ? field_copy_text(dst, size, text, doc, path, field, err) : 0;
}

static int item_read(const struct json_doc *doc, const cJSON *obj, const char *path,
                     struct constant *out, struct err *err)
{
    struct constant_text t = item_defaults;
    struct constant k = {0};
    int rc;
    if ((rc = json_read(doc, obj, path, item_fields, ARRAY_LEN(item_fields), NULL, &t, err)) < 0)
        return rc;
    if ((rc = id_read(doc, obj, path, &t.id, err)) < 0)
        return rc;
    if ((rc = text_keep(k.device, sizeof k.device, t.device, doc, path, "device", err)) < 0)
        return rc;
    if ((rc = text_keep(k.stack, sizeof k.stack, t.stack, doc, path, "stack", err)) < 0)
        return rc;
    if ((rc = text_keep(k.source, sizeof k.source, t.source, doc, path, "source", err)) < 0)
        return rc;
    k.id = (enum constant_id)t.id;
    k.prior = t.prior, k.value = t.value, k.lo = t.lo, k.hi = t.hi;
    if ((rc = unit_check(doc, path, t.unit, &constant_table[k.id], err)) < 0 ||
        (rc = value_check(doc, path, &k, err)) < 0)
        return rc;
    *out = k;
    return 0;
}

/* ---- the constants that an error is of ---- */

/* Returns the hash of a constant: of its text, so that reading and writing it changes nothing. */
static uint64_t item_hash(const struct constant *k)
{
    char value[JSON_NUM_BYTES], lo[JSON_NUM_BYTES], hi[JSON_NUM_BYTES];
    char text[3 * LIMIT_NAME_BYTES + 3 * JSON_NUM_BYTES];
    int n = snprintf(text, sizeof text, "%s|%s|%s|%s|%s|%s", constant_table[k->id].name, k->device,
                     k->stack, json_format_num(k->value, value), json_format_num(k->lo, lo),
                     json_format_num(k->hi, hi));
    return hash_64(text, (size_t)n);
}

/* Formats the hash of all constants, which does not depend on their order. */
static void items_hash(const struct constants *c, char out[HASH_TEXT_BYTES])
{
    struct hash128 h = {.lo = (uint64_t)c->n};
    for (int64_t i = 0; i < c->n; i++)
        h.hi += item_hash(&c->items[i]);
    hash_format(h, out);
}

void constants_seal(struct constants *c) { items_hash(c, c->held_out.hash); }

/* Drops the held-out error of a set whose constants are no longer those that it is of. */
static void seal_check(struct constants *c)
{
    struct held_out *h = &c->held_out;
    char now[HASH_TEXT_BYTES];
    items_hash(c, now);
    if (!*h->rule || strcmp(now, h->hash) == 0)
        return;
    const char *why = *h->hash ? "the constants were changed since"
                               : "the file does not say of which constants it is";
    *h = (struct held_out){0};
    snprintf(h->because, sizeof h->because, "%s", why);
}

/* Reads the held-out error. It is not known where the file has null, or was written before sets
 * carried it. */
static int held_out_read(const struct json_doc *doc, const char *because, struct held_out *out,
                         struct err *err)
{
    const cJSON *obj = json_member(doc->root, "held_out");
    struct held_out_text t = held_out_defaults;
    int rc;
    if (!obj || cJSON_IsNull(obj))
        return text_keep(out->because, sizeof out->because, because, doc, "", "held_out_because",
                         err);
    if ((rc = json_read(doc, obj, "held_out", held_out_fields, ARRAY_LEN(held_out_fields), NULL, &t,
                        err)) < 0)
        return rc;
    if ((rc = field_copy_text(t.h.rule, sizeof t.h.rule, t.rule, doc, "held_out", "rule", err)) < 0)
        return rc;
    if ((rc = field_copy_text(t.h.of, sizeof t.h.of, t.of, doc, "held_out", "of", err)) < 0)
        return rc;
    if ((rc = text_keep(t.h.devices, sizeof t.h.devices, t.devices, doc, "held_out", "devices",
                        err)) < 0)
        return rc;
    if ((rc = text_keep(t.h.hash, sizeof t.h.hash, t.hash, doc, "held_out", "hash", err)) < 0)
        return rc;
    *out = t.h;
    return 0;
}

static int items_read(const struct json_doc *doc, struct constants *out, struct err *err)
{
    const cJSON *list = json_member(doc->root, "constants"), *item;
    int rc;
    out->n = 0;
    cJSON_ArrayForEach(item, list)
    {
        char path[64];
        snprintf(path, sizeof path, "constants[%lld]", (long long)out->n);
        if (out->n == CONSTANTS_MAX)
            return err_set(err, ERR_LIMIT, "%s: constants has more than %d items: give fewer",
                           doc->name, CONSTANTS_MAX);
        struct constant *k = &out->items[out->n];
        if ((rc = item_read(doc, item, path, k, err)) < 0)
            return rc;
        if (constants_find(out, k->id, k->device, k->stack))
            return err_set(err, ERR_INPUT,
                           "%s: %s is %s of the same device and stack as one before: give it once",
                           doc->name, path, constant_table[k->id].name);
        out->n++;
    }
    return 0;
}

static int set_read(const struct json_doc *doc, struct constants *out, struct err *err)
{
    struct set_text t = set_defaults;
    int rc = json_read(doc, doc->root, "", set_fields, ARRAY_LEN(set_fields), NULL, &t, err);
    if (rc < 0)
        return rc;
    if ((rc = field_copy_text(out->name, sizeof out->name, t.name, doc, "", "name", err)) < 0)
        return rc;
    out->held_out = (struct held_out){0};
    if ((rc = held_out_read(doc, t.because, &out->held_out, err)) < 0)
        return rc;
    if ((rc = items_read(doc, out, err)) < 0)
        return rc;
    seal_check(out);
    return 0;
}

int constants_load(const char *name_or_path, struct constants *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = catalog_open(&catalog_constants, name_or_path ? name_or_path : "published", &doc,
                           err)) < 0)
        return rc;
    rc = set_read(&doc, out, err);
    json_release(&doc);
    return rc;
}

static void item_format(const struct constant *k, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "name", constant_table[k->id].name);
    json_put_text(&o, "unit", constant_table[k->id].unit);
    if (*k->device)
        json_put_text(&o, "device", k->device);
    if (*k->stack)
        json_put_text(&o, "stack", k->stack);
    json_put_num(&o, "prior", k->prior);
    if (*k->source)
        json_put_text(&o, "source", k->source);
    json_put_num(&o, "value", k->value);
    json_put_num(&o, "lo", k->lo);
    json_put_num(&o, "hi", k->hi);
    json_obj_end(&o);
}

static double figure_of(const struct held_out_text *t, const struct json_field *f)
{ return *(const double *)(const void *)((const char *)t + f->offset); }

/* Writes the object of a known error. A figure that no row contributes to is null, or in a file of
 * constants left out. */
static void figures_write(const struct held_out *h, bool nulls, struct json_out *o,
                          const char *key)
{
    const struct held_out_text t = {h->rule, h->of, h->devices, h->hash, *h};
    json_obj_begin(o, key);
    for (size_t i = 0; i < ARRAY_LEN(held_out_fields); i++)
        if (nulls || held_out_fields[i].type != JSON_NUM ||
            isfinite(figure_of(&t, &held_out_fields[i])))
            field_write_table(o, &held_out_fields[i], 1, &t);
    json_obj_end(o);
}

/* Adds the held-out error to a file of constants: nothing if it was loaded from one that does not
 * say. */
static void held_out_format(const struct held_out *h, struct str *out)
{
    struct json_out o;
    if (!*h->rule && !*h->because)
        return;
    str_add(out, ",\n \"held_out\": ");
    json_out_init(&o, out, 0);
    if (*h->rule) {
        figures_write(h, false, &o, NULL);
        return;
    }
    str_add(out, "null,\n \"held_out_because\": ");
    json_put_text(&o, NULL, h->because);
}

static void set_format(const struct constants *c, bool held_out, struct str *out)
{
    struct json_out o;
    str_addf(out, "{\"schema\": \"%s\",\n \"name\": ", catalog_constants.schema);
    json_out_init(&o, out, 0);
    json_put_text(&o, NULL, c->name);
    if (held_out)
        held_out_format(&c->held_out, out);
    str_add(out, ",\n \"constants\": [");
    for (int64_t i = 0; i < c->n; i++) {
        str_add(out, i ? ",\n  " : "\n  ");
        item_format(&c->items[i], out);
    }
    str_add(out, "]}\n");
}

void constants_format(const struct constants *c, struct str *out) { set_format(c, true, out); }

void constants_format_values(const struct constants *c, struct str *out)
{ set_format(c, false, out); }

/* ---- the held-out error in results ---- */

static const char *because_of(const struct held_out *h)
{ return *h->because ? h->because : "the file of constants does not say it"; }

bool held_out_has(const char *list, const char *name)
{
    for (; *list; list += *list == ',') {
        list += strspn(list, " \t");
        size_t item = strcspn(list, ","), n = item;
        while (n > 0 && strchr(" \t", list[n - 1]))
            n--;
        if (n == strlen(name) && strncmp(list, name, n) == 0)
            return true;
        list += item;
    }
    return false;
}

/* Adds that no row of a known error is of this device, or that this is not known. */
static void elsewhere_say(const struct held_out *h, const struct device *d, struct str *out)
{
    if (!d || !*h->rule || held_out_has(h->devices, d->name))
        return;
    if (*h->devices)
        str_addf(out, "none of these rows is of %s, but of %s", d->name, h->devices);
    else
        str_addf(out, "whether any of these rows is of %s is not said", d->name);
}

static void elsewhere_write(const struct held_out *h, const struct device *d, struct json_out *o)
{
    struct str text = STR_INIT;
    elsewhere_say(h, d, &text);
    if (d && text.len)
        json_put_text(o, "held_out_elsewhere", text.p);
    else if (d)
        json_put_null(o, "held_out_elsewhere");
    str_release(&text);
}

void held_out_write(const struct held_out *h, const struct device *d, struct json_out *o)
{
    if (*h->rule) {
        figures_write(h, true, o, "held_out");
    } else {
        json_put_null(o, "held_out");
        json_put_text(o, "held_out_because", because_of(h));
    }
    elsewhere_write(h, d, o);
}

/* Adds a figure that is known, after *next, which is a comma from then on. */
static void figure_say(const char **next, const char *format, double figure, struct str *out)
{
    if (!isfinite(figure))
        return;
    str_add(out, *next);
    str_addf(out, format, figure);
    *next = ", ";
}

void held_out_say(const struct held_out *h, const struct device *d, struct str *out)
{
    if (!*h->rule) {
        str_addf(out, "held-out error not known: %s", because_of(h));
        return;
    }
    const char *next = ": ";
    str_addf(out, "held out, %s (%lld row%s of %s)", h->rule, (long long)h->rows,
             h->rows == 1 ? "" : "s", h->of);
    figure_say(&next, "times %.3g %% off", h->mape_pct, out);
    figure_say(&next, "ranks %.3f", h->spearman_mean, out);
    figure_say(&next, "worst %.3f", h->spearman_worst, out);
    figure_say(&next, "%.3g %% of those out of memory caught", h->oom_caught_pct, out);
    figure_say(&next, "%.3g %% of the others rejected", h->good_rejected_pct, out);
    str_add(out, d && !held_out_has(h->devices, d->name) ? "; " : "");
    elsewhere_say(h, d, out);
}

/* ---- its page ---- */

size_t constants_format_parts(struct format_part *out)
{
    out[0] = (struct format_part){"", set_fields, ARRAY_LEN(set_fields), &set_defaults};
    out[1] = (struct format_part){"held_out", held_out_fields, ARRAY_LEN(held_out_fields),
                                  &held_out_defaults};
    out[2] = (struct format_part){"constants[]", item_fields, ARRAY_LEN(item_fields),
                                  &item_defaults};
    return 3;
}
