/* catalog: the profiles compiled into the program, and the one way to turn an operand into a parsed profile.
 *
 * The tables are generated from the profiles' JSON files by contrib/embed-profiles. An operand with a slash, or ending
 * in .json, is a path; anything else is a name in the catalog. For the other files of profiles/; users of the module
 * call model_load, device_load and cluster_load.
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
extern const char *const catalog_model_names[], *const catalog_gpu_names[], *const catalog_cluster_names[];

struct catalog_kind {
    const char *word;         /* "model", for errors */
    const char *folder;       /* "models" */
    const char *schema;       /* "reel.model/1" */
    const char *const *names; /* ended by NULL */
};
extern const struct catalog_kind catalog_models, catalog_gpus, catalog_clusters;

bool catalog_is_path(const char *operand);
/* Parse the profile and check its schema. ERR_NOT_FOUND names the nearest known name. The doc is released by the caller. */
int catalog_open(const struct catalog_kind *kind, const char *name_or_path, struct json_doc *doc, struct err *err);
size_t catalog_count(const struct catalog_kind *kind);

/* "reel.model/1" inside an object is optional; if there, it must be the right one. */
int catalog_check_inner_schema(const struct catalog_kind *kind, const struct json_doc *doc, const cJSON *obj,
                               const char *path, struct err *err);

#endif
