#include "profiles/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/str.h"

enum { CATALOG_NEAR = 128 }; /* names among which the nearest is looked for */

const struct catalog_kind catalog_models = {"model", "models", "reel.model/1", catalog_model_names};
const struct catalog_kind catalog_gpus = {"device", "gpus", "reel.gpu/1", catalog_gpu_names};
const struct catalog_kind catalog_clusters = {"cluster", "clusters", "reel.cluster/1",
                                              catalog_cluster_names};
const struct catalog_kind catalog_stacks = {"stack", "stacks", "reel.stack/1", catalog_stack_names};
const struct catalog_kind catalog_constants = {"set of constants", "constants",
                                               "reel.constants/1", catalog_constants_names};
static const struct catalog_alias adapter_aliases[] = {{"megatron", "megatron-lm"}, {NULL, NULL}};
const struct catalog_kind catalog_adapters = {"adapter", "adapters", "reel.adapter/1",
                                              catalog_adapter_names, adapter_aliases};

bool catalog_is_path(const char *operand)
{
    return strchr(operand, '/') || str_ends(operand, ".json");
}

int catalog_place(const char *operand, char *out, size_t size, struct err *err)
{
    char *real = catalog_is_path(operand) ? realpath(operand, NULL) : strdup(operand);
    bool fits = real && strlen(real) < size;
    if (fits)
        memcpy(out, real, strlen(real) + 1);
    free(real);
    return fits ? 0
                : err_set(err, ERR_INPUT, "the place of %s cannot be told: give a path that exists "
                          "and has fewer than %zu bytes", operand, size);
}

size_t catalog_count(const struct catalog_kind *kind)
{
    size_t n = 0;
    while (kind->names[n])
        n++;
    return n;
}

static const struct catalog_alias no_alias[] = {{NULL, NULL}};

static const struct catalog_alias *aliases_of(const struct catalog_kind *kind)
{ return kind->aliases ? kind->aliases : no_alias; }

static const struct catalog_entry *entry_find(const struct catalog_kind *kind, const char *name)
{
    size_t folder = strlen(kind->folder);
    for (const struct catalog_alias *a = aliases_of(kind); a->alias; a++)
        name = strcmp(a->alias, name) == 0 ? a->name : name;
    for (const struct catalog_entry *e = catalog_table; e->name; e++)
        if (strncmp(e->name, kind->folder, folder) == 0 && e->name[folder] == '/' &&
            strcmp(e->name + folder + 1, name) == 0)
            return e;
    return NULL;
}

/* Adds the names with their aliases, "a, b (or c), d". */
static void names_add(const struct catalog_kind *kind, struct str *out)
{
    for (const char *const *n = kind->names; *n; n++) {
        str_addf(out, "%s%s", n == kind->names ? "" : ", ", *n);
        for (const struct catalog_alias *a = aliases_of(kind); a->alias; a++)
            if (strcmp(a->name, *n) == 0)
                str_addf(out, " (or %s)", a->alias);
    }
}

/* Returns the nearest of names and aliases, or NULL. */
static const char *nearest_of(const struct catalog_kind *kind, const char *name)
{
    const char *all[CATALOG_NEAR + 1];
    size_t n = 0;
    for (const struct catalog_alias *a = aliases_of(kind); a->alias && n < CATALOG_NEAR; a++)
        all[n++] = a->alias;
    for (const char *const *k = kind->names; *k && n < CATALOG_NEAR; k++)
        all[n++] = *k;
    all[n] = NULL;
    return str_nearest(name, all);
}

static int not_found(const struct catalog_kind *kind, const char *name, struct err *err)
{
    const char *near = nearest_of(kind, name);
    struct str known = STR_INIT;
    names_add(kind, &known);
    int rc = err_set(err, ERR_NOT_FOUND,
                     "there is no %s '%s'%s%s%s: give one of %s, or a .json file", kind->word, name,
                     near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", known.p);
    str_release(&known);
    return rc;
}

static int text_find(const struct catalog_kind *kind, const char *name_or_path,
                     struct json_doc *doc, struct err *err)
{
    if (catalog_is_path(name_or_path))
        return json_load(name_or_path, doc, err);
    const struct catalog_entry *e = entry_find(kind, name_or_path);
    if (!e)
        return not_found(kind, name_or_path, err);
    return json_parse(e->text, e->bytes, e->name, doc, err);
}

int catalog_open(const struct catalog_kind *kind, const char *name_or_path, struct json_doc *doc,
                 struct err *err)
{
    struct json_doc got = {0};
    int rc;
    if ((rc = text_find(kind, name_or_path, &got, err)) < 0)
        goto out;
    if ((rc = json_check_schema(&got, kind->schema, err)) < 0)
        goto out;
    *doc = got;
    got = (struct json_doc){0}; /* the caller owns it now */
out:
    json_release(&got);
    return rc;
}

int catalog_check_inner_schema(const struct catalog_kind *kind, const struct json_doc *doc,
                               const cJSON *obj, const char *path, struct err *err)
{
    const char *schema = json_text(obj, "schema", NULL);
    if (!json_member(obj, "schema") || (schema && strcmp(schema, kind->schema) == 0))
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: %s%sschema is %s: this object is a %s, give \"%s\" or leave it out",
                   doc->name, path, *path ? "." : "", schema ? schema : "not a text", kind->word,
                   kind->schema);
}
