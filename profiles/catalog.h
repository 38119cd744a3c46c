/* catalog: holds the profiles that are compiled into the program, and turns an operand into a
 * parsed profile.
 *
 * contrib/embed-profiles generates the tables from the profiles' JSON files. An operand with a
 * slash, or ending in .json, is a path; anything else is a name in the catalog. Outside profiles/,
 * profiles are loaded by model_load, device_load, cluster_load and the like; only lists of names,
 * and whether an operand is a path and to where, are taken from here.
 */
#ifndef PROFILES_CATALOG_H
#define PROFILES_CATALOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

struct catalog_entry {
    const char *name; /* "models/dit-7b" */
    const char *text;
    size_t bytes;
};
extern const struct catalog_entry catalog_table[]; /* ended by a NULL name */
extern const char *const catalog_model_names[], *const catalog_gpu_names[],
                                                    *const catalog_cluster_names[],
                                                    *const catalog_stack_names[],
                                                    *const catalog_constants_names[],
                                                    *const catalog_adapter_names[];

/* Gives a profile a second name. */
struct catalog_alias { const char *alias, *name; };
struct catalog_kind {
    const char *word;         /* "model", for errors */
    const char *folder;       /* "models" */
    const char *schema;       /* "reel.model/1" */
    const char *const *names; /* ended by NULL */
    const struct catalog_alias *aliases; /* ended by a NULL alias; NULL: there are none */
};
extern const struct catalog_kind catalog_models, catalog_gpus, catalog_clusters,
    catalog_stacks, catalog_constants, catalog_adapters;

bool catalog_is_path(const char *operand);
/* Writes what names the same profile from any folder: a name as it is, or a path made absolute.
 * Returns ERR_INPUT where there is no such file, or no room for its path. */
int catalog_place(const char *operand, char *out, size_t size, struct err *err);
/* Parses the profile and checks its schema. ERR_NOT_FOUND lists the names with their aliases, and
 * the nearest of both. The caller
 * releases the doc. */
int catalog_open(const struct catalog_kind *kind, const char *name_or_path, struct json_doc *doc,
                 struct err *err);
size_t catalog_count(const struct catalog_kind *kind);

/* Checks the member "schema" of an object inside another file. It may be left out there; if it is
 * given, it must be kind->schema. */
int catalog_check_inner_schema(const struct catalog_kind *kind, const struct json_doc *doc,
                               const cJSON *obj, const char *path, struct err *err);

#endif
