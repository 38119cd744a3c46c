#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_priv.h"
#include "base/num.h"

static const double exact_max = 0x1p53 - 1; /* 2^53 stands for 2^53 + 1 too */

/* ---- duplicate keys ---- */

/* A step is one element of the path from the root to a value. The path is a chain of stack
 * frames. */
struct step {
    const struct step *up;
    const char *key; /* NULL: an array's element */
    int index;
};

static void add_path(struct str *s, const struct step *step)
{
    if (step == NULL)
        return;
    add_path(s, step->up);
    if (step->key == NULL)
        str_addf(s, "[%d]", step->index);
    else
        str_addf(s, "%s%s", s->len > 0 ? "." : "", step->key);
}

/* Returns the slot of this key in a hash table that is not full: the slot that holds it, or a free
 * one. */
static const char **key_place(const char **table, size_t slots, const char *key)
{
    size_t at = hash_64(key, strlen(key)) & (slots - 1);
    while (table[at] != NULL && strcmp(table[at], key) != 0)
        at = (at + 1) & (slots - 1);
    return &table[at];
}

/* Sets *dup to a key that obj has twice, NULL if there is none. */
static int find_duplicate(const cJSON *obj, const char **dup, struct err *err)
{
    *dup = NULL;
    size_t n = (size_t)cJSON_GetArraySize(obj), slots = 2;
    if (n < 2)
        return 0;
    while (slots < 2 * n)
        slots *= 2;
    const char **table = calloc(slots, sizeof *table);
    if (table == NULL)
        return err_set(err, ERR_NOMEM, "out of memory while reading an object of %zu keys", n);
    for (const cJSON *c = obj->child; c != NULL && *dup == NULL; c = c->next) {
        const char **place = key_place(table, slots, c->string);
        *dup = *place;
        *place = c->string;
    }
    free(table);
    return 0;
}

static int duplicate_error(const char *name, const struct step *here, const char *key,
                           struct err *err)
{
    struct str path = STR_INIT;
    add_path(&path, &(struct step){.up = here, .key = key});
    int rc = err_set(err, ERR_INPUT, "%s: %.300s is given twice: keep one", name, path.p);
    str_release(&path);
    return rc;
}

static int check_duplicates(const char *name, const cJSON *value, const struct step *here,
                            struct err *err)
{
    const char *dup = NULL;
    int rc, index = 0;
    if (cJSON_IsObject(value) && (rc = find_duplicate(value, &dup, err)) < 0)
        return rc;
    if (dup != NULL)
        return duplicate_error(name, here, dup, err);
    for (const cJSON *c = value->child; c != NULL; c = c->next) {
        struct step step = {
            .up = here, .key = cJSON_IsObject(value) ? c->string : NULL, .index = index++};
        if ((rc = check_duplicates(name, c, &step, err)) < 0)
            return rc;
    }
    return 0;
}

/* ---- parsing ---- */

static int no_memory(const char *name, struct err *err)
{
    return err_set(err, ERR_NOMEM, "%s: out of memory while reading JSON", name);
}

int json_parse(const char *text, size_t len, const char *name, struct json_doc *out,
               struct err *err)
{
    if (len > LIMIT_JSON_BYTES)
        return err_set(err, ERR_LIMIT, "%s: %zu bytes of JSON: at most %d are read", name, len,
                       LIMIT_JSON_BYTES);
    int rc = json_scan(text, len, name, err);
    if (rc < 0)
        return rc;
    struct json_doc doc = {.name = strdup(name), .root = cJSON_ParseWithLength(text, len)};
    if (doc.name == NULL || doc.root == NULL)
        rc = no_memory(name, err); /* json_scan has accepted the text */
    else
        rc = check_duplicates(name, doc.root, NULL, err);
    if (rc < 0)
        json_release(&doc);
    else
        *out = doc;
    return rc;
}

int json_load(const char *path, struct json_doc *out, struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    if ((rc = file_read(path, LIMIT_JSON_BYTES, &text, err)) < 0)
        goto out;
    rc = json_parse(text.p, text.len, path, out, err);
out:
    str_release(&text);
    return rc;
}

void json_release(struct json_doc *doc)
{
    free(doc->name);
    cJSON_Delete(doc->root);
    *doc = (struct json_doc){0};
}

/* ---- reading through a table ---- */

struct reading {
    const struct json_doc *doc;
    const char *path;
    const struct json_field *fields;
    size_t n_fields;
    struct arena *arena;
    struct err *err;
};

/* Formats a value for an error of the form "x is …": the value itself when it is short, else its
 * type. */
static const char *show(const cJSON *v, char *buf, size_t size)
{
    char num[JSON_NUM_BYTES];
    if (cJSON_IsString(v))
        snprintf(buf, size, strlen(v->valuestring) > 60 ? "\"%.57s...\"" : "\"%s\"",
                 v->valuestring);
    else if (cJSON_IsNumber(v))
        snprintf(buf, size, "%s", json_format_num(v->valuedouble, num));
    else if (cJSON_IsBool(v))
        snprintf(buf, size, "%s", cJSON_IsTrue(v) ? "true" : "false");
    else
        snprintf(buf, size, "%s",
                 cJSON_IsNull(v)     ? "null"
                 : cJSON_IsObject(v) ? "an object"
                                     : "an array");
    return buf;
}

static void add_names(struct str *s, const char *const *names)
{
    for (size_t i = 0; names[i] != NULL; i++)
        str_addf(s, "%s%s", i == 0 ? "" : ", ", names[i]);
}

/* Adds what a field accepts: "an integer from 1 to 1024". */
static void add_allowed(struct str *s, const struct json_field *f)
{
    static const char *const kinds[] = {
        [JSON_INT] = "an integer",
        [JSON_NUM] = "a number",
        [JSON_BOOL] = "true or false",
        [JSON_TEXT] = "a text",
        [JSON_ENUM] = "one of ",
        [JSON_U64TEXT] = "a whole number below 2^64 written as a text, such as \"17\" or \"0x11\"",
        [JSON_ANY] = "a value",
    };
    char a[JSON_NUM_BYTES], b[JSON_NUM_BYTES];
    str_add(s, kinds[f->type]);
    if (f->type == JSON_ENUM)
        add_names(s, f->names);
    if ((f->type == JSON_INT || f->type == JSON_NUM) && f->max > f->min)
        str_addf(s, " from %s to %s", json_format_num(f->min, a), json_format_num(f->max, b));
    for (size_t i = 0; f->type == JSON_INT && f->names && f->names[i]; i++)
        str_addf(s, " or \"%s\"", f->names[i]);
}

/* Adds "model.layers", or "layers" at the root. */
static void add_place(struct str *s, const struct reading *r, const char *key)
{
    str_addf(s, "%s%s%s", r->path, r->path[0] != '\0' ? "." : "", key);
}

static int send(struct reading *r, struct str *text)
{
    int rc;
    if ((rc = str_check(text, r->err)) < 0)
        goto out;
    rc = err_set(r->err, ERR_INPUT, "%s: %s", r->doc->name, text->p);
out:
    str_release(text);
    return rc;
}

/* Tells whether the field accepts numbers that must be written as a string. */
static bool text_helps(const struct json_field *f)
{
    return f->max <= f->min || f->max > exact_max || f->min < -exact_max;
}

static int refuse(struct reading *r, const struct json_field *f, const cJSON *v)
{
    char value[128];
    struct str s = STR_INIT;
    add_place(&s, r, f->name);
    if (f->type == JSON_INT && cJSON_IsNumber(v) && fabs(v->valuedouble) > exact_max &&
        v->valuedouble == floor(v->valuedouble)) {
        str_add(&s, " is a number beyond 2^53 - 1, where JSON loses digits: ");
        str_add(&s, text_helps(f) ? "write it as a text, in quotes" : "give ");
        if (!text_helps(f))
            add_allowed(&s, f);
        return send(r, &s);
    }
    str_addf(&s, " is %s: give ", show(v, value, sizeof value));
    const char *near = f->type == JSON_ENUM && cJSON_IsString(v)
                           ? str_nearest(v->valuestring, f->names)
                           : NULL;
    add_allowed(&s, f);
    if (near != NULL)
        str_addf(&s, " (did you mean %s?)", near);
    return send(r, &s);
}

/* ---- one value of each type: true when v is legal; the result goes to *out only then ---- */

static bool int_from_text(const char *text, int64_t *out)
{
    int64_t n = 0;
    if (num_parse_i64(text, "", &n, NULL) < 0 ||
        (n >= -(int64_t)exact_max && n <= (int64_t)exact_max))
        return false;
    *out = n;
    return true;
}

static bool int_from_value(const cJSON *v, int64_t *out)
{
    if (cJSON_IsString(v))
        return int_from_text(v->valuestring, out);
    if (!cJSON_IsNumber(v) || v->valuedouble != floor(v->valuedouble) ||
        fabs(v->valuedouble) > exact_max)
        return false;
    *out = (int64_t)v->valuedouble;
    return true;
}

static bool in_bounds(const struct json_field *f, double v)
{
    return !(f->max > f->min) || (v >= f->min && v <= f->max);
}

static int enum_index(const cJSON *v, const char *const *names)
{
    for (int i = 0; cJSON_IsString(v) && names[i] != NULL; i++)
        if (strcmp(v->valuestring, names[i]) == 0)
            return i;
    return -1;
}

static bool word_from_value(const struct json_field *f, const cJSON *v, int64_t *out)
{
    int at = f->names ? enum_index(v, f->names) : -1;
    *out = -1 - (int64_t)at;
    return at >= 0;
}

union value {
    int64_t i;
    double d;
    uint64_t u;
    int e;
    bool b;
};

static bool value_from(const struct json_field *f, const cJSON *v, union value *out)
{
    switch (f->type) {
    case JSON_INT:
        return word_from_value(f, v, &out->i) ||
               (int_from_value(v, &out->i) && in_bounds(f, (double)out->i));
    case JSON_NUM:
        out->d = v->valuedouble;
        return cJSON_IsNumber(v) && in_bounds(f, v->valuedouble);
    case JSON_BOOL: out->b = cJSON_IsTrue(v); return cJSON_IsBool(v);
    case JSON_TEXT: return cJSON_IsString(v);
    case JSON_ENUM: out->e = enum_index(v, f->names); return out->e >= 0;
    case JSON_U64TEXT:
        return cJSON_IsString(v) && num_parse_u64(v->valuestring, "", &out->u, NULL) == 0;
    case JSON_ANY: return true;
    }
    return false;
}

static int store(struct reading *r, const struct json_field *f, const cJSON *v, void *out)
{
    char *at = (char *)out + f->offset;
    union value value = {0};
    BUG_ON(!value_from(f, v, &value));
    switch (f->type) {
    case JSON_INT: memcpy(at, &value.i, sizeof value.i); break;
    case JSON_NUM: memcpy(at, &value.d, sizeof value.d); break;
    case JSON_BOOL: memcpy(at, &value.b, sizeof value.b); break;
    case JSON_ENUM: memcpy(at, &value.e, sizeof value.e); break;
    case JSON_U64TEXT: memcpy(at, &value.u, sizeof value.u); break;
    case JSON_TEXT: {
        const char *text = r->arena != NULL ? arena_strdup(r->arena, v->valuestring)
                                            : v->valuestring;
        if (text == NULL)
            return no_memory(r->doc->name, r->err);
        memcpy(at, &text, sizeof text);
        break;
    }
    case JSON_ANY: break;
    }
    return 0;
}

static const struct json_field *find_field(const struct reading *r, const char *key)
{
    for (size_t i = 0; i < r->n_fields; i++)
        if (strcmp(r->fields[i].name, key) == 0)
            return &r->fields[i];
    return NULL;
}

static int unknown_key(struct reading *r, const char *key)
{
    struct str s = STR_INIT;
    const char **names = calloc(r->n_fields + 1, sizeof *names);
    if (names == NULL)
        return no_memory(r->doc->name, r->err);
    for (size_t i = 0; i < r->n_fields; i++)
        names[i] = r->fields[i].name;
    add_place(&s, r, key);
    str_add(&s, " is not a known key: ");
    const char *near = str_nearest(key, names);
    if (near != NULL) {
        str_addf(&s, "did you mean '%s'?", near);
    } else {
        str_add(&s, "known here are ");
        add_names(&s, names);
    }
    free(names);
    return send(r, &s);
}

static int missing_key(struct reading *r, const struct json_field *f)
{
    struct str s = STR_INIT;
    add_place(&s, r, f->name);
    str_add(&s, " is missing: give ");
    add_allowed(&s, f);
    return send(r, &s);
}

static int check_object(struct reading *r, const cJSON *obj)
{
    char value[128];
    if (cJSON_IsObject(obj))
        return 0;
    struct str s = STR_INIT;
    str_addf(&s, "%s is %s: give an object", r->path[0] != '\0' ? r->path : "the top level",
             obj != NULL ? show(obj, value, sizeof value) : "missing");
    return send(r, &s);
}

static int check_keys(struct reading *r, const cJSON *obj)
{
    int rc;
    if ((rc = check_object(r, obj)) < 0)
        return rc;
    for (const cJSON *c = obj->child; c != NULL; c = c->next) {
        const struct json_field *f = find_field(r, c->string);
        union value ignored;
        if (f == NULL)
            return unknown_key(r, c->string);
        if (!value_from(f, c, &ignored))
            return refuse(r, f, c);
    }
    for (size_t i = 0; i < r->n_fields; i++)
        if (!r->fields[i].optional && json_member(obj, r->fields[i].name) == NULL)
            return missing_key(r, &r->fields[i]);
    return 0;
}

int json_read(const struct json_doc *doc, const cJSON *obj, const char *path,
              const struct json_field *fields, size_t n_fields, struct arena *arena, void *out,
              struct err *err)
{
    struct reading r = {doc, path, fields, n_fields, arena, err};
    int rc;
    if ((rc = check_keys(&r, obj)) < 0)
        return rc;
    for (const cJSON *c = obj->child; c != NULL; c = c->next)
        if ((rc = store(&r, find_field(&r, c->string), c, out)) < 0)
            return rc;
    return 0;
}

int json_check_schema(const struct json_doc *doc, const char *schema, struct err *err)
{
    if (!cJSON_IsObject(doc->root))
        return err_set(err, ERR_INPUT, "%s: the top level is not an object: a %s file is wanted",
                       doc->name, schema);
    const char *found = json_text(doc->root, "schema", NULL);
    if (found == NULL)
        return err_set(err, ERR_INPUT,
                       "%s: no text 'schema': a %s file is wanted, which says so in its first key",
                       doc->name, schema);
    if (strcmp(found, schema) != 0)
        return err_set(err, ERR_INPUT, "%s: schema is '%.60s': give a file of schema '%s'",
                       doc->name, found, schema);
    return 0;
}

/* ---- access ---- */

const cJSON *json_member(const cJSON *obj, const char *key)
{
    const cJSON *c = obj != NULL ? obj->child : NULL;
    /* Most keys differ in their first letter, and an array's elements have none. */
    while (c != NULL && (c->string == NULL || *c->string != *key || strcmp(c->string, key) != 0))
        c = c->next;
    return c;
}

const char *json_text(const cJSON *obj, const char *key, const char *fallback)
{
    const cJSON *v = json_member(obj, key);
    return cJSON_IsString(v) ? v->valuestring : fallback;
}

double json_num(const cJSON *obj, const char *key, double fallback)
{
    const cJSON *v = json_member(obj, key);
    return cJSON_IsNumber(v) ? v->valuedouble : fallback;
}

int64_t json_int(const cJSON *obj, const char *key, int64_t fallback)
{
    const cJSON *v = json_member(obj, key);
    int64_t n = 0;
    return v != NULL && int_from_value(v, &n) ? n : fallback;
}
