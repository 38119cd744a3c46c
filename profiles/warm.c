/* This file reads the optional member init of reel.run/1. The tables below say what each field
 * means; `reel format run` is made from them.
 *
 * The source may lack adapters (lora), with or without `partial`. Shapes must be the model's. Only
 * position tables (pos_t, pos_h, pos_w) may have another number of rows. They are then interpolated
 * linearly along the rows: row i of n is at (i + 1/2) m / n - 1/2 among the m rows of the source,
 * and outside of these at the nearest end. Numbers in f64, f32, f16 or bf16 are converted to the
 * run's type. The average (EMA) begins with the weights.
 *
 * The config hash covers map, partial and source_hash. It covers the source's path only as long as
 * the hash is not known.
 */
#include "profiles/warm.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "profiles/field.h"
#include "profiles/format.h"

struct warm_row { const char *from, *hash; bool partial; };
static const struct json_field warm_fields[] = {
    {"from", JSON_TEXT, offsetof(struct warm_row, from),
     .help = "a safetensors file, or the folder step-N of a checkpoint. Its position tables "
             "(pos_t, pos_h, pos_w) may have another number of rows, and are then interpolated, "
             "with a message"},
    {"source_hash", JSON_TEXT, offsetof(struct warm_row, hash), .optional = true,
     .help = "32 hex digits, of the file or of the checkpoint's manifest; left out: whatever "
             "is there at launch"},
    {"map", JSON_ANY, .optional = true,
     .help = "array: names of the source to those of the model; the first rule whose from is "
             "the whole name counts"},
    {"partial", JSON_BOOL, offsetof(struct warm_row, partial), .optional = true,
     .help = "missing tensors keep their first values and those without a parameter are "
             "ignored, both with a message; else either is an error"},
};
struct map_row { const char *from, *to; };
static const struct json_field map_fields[] = {
    {"from", JSON_TEXT, offsetof(struct map_row, from), .help = "name, with one * at most"},
    {"to", JSON_TEXT, offsetof(struct map_row, to), .help = "name, with a * where from has one"},
};

static int stars(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += *s == '*';
    return n;
}

static int map_read(const struct json_doc *doc, const cJSON *item, struct warm *w, struct err *err)
{
    struct map_row row = {0};
    char path[32];
    int rc;
    snprintf(path, sizeof path, "init.map[%lld]", (long long)w->n_maps);
    if (w->n_maps == WARM_MAPS)
        return err_set(err, ERR_INPUT, "%s: init.map is too long: give at most %d rules", doc->name,
                       WARM_MAPS);
    if ((rc = json_read(doc, item, path, map_fields, ARRAY_LEN(map_fields), NULL, &row, err)) < 0)
        return rc;
    if (stars(row.from) > 1 || stars(row.to) != stars(row.from))
        return err_set(err, ERR_INPUT,
                       "%s: %s maps '%.100s' to '%.100s': give one * in both, or in none",
                       doc->name, path, row.from, row.to);
    if ((rc = field_copy_text(w->map[w->n_maps].from, LIMIT_NAME_BYTES, row.from, doc, path, "from",
                              err)) < 0)
        return rc;
    if ((rc = field_copy_text(w->map[w->n_maps].to, LIMIT_NAME_BYTES, row.to, doc, path, "to",
                              err)) < 0)
        return rc;
    w->n_maps++;
    return 0;
}

static int maps_read(const struct json_doc *doc, const cJSON *list, struct warm *w, struct err *err)
{
    const cJSON *item;
    int rc;
    if (list && !cJSON_IsArray(list))
        return err_set(err, ERR_INPUT,
                       "%s: init.map is no array: give rules {\"from\": …, \"to\": …}", doc->name);
    cJSON_ArrayForEach(item, list)
        if ((rc = map_read(doc, item, w, err)) < 0)
            return rc;
    return 0;
}

int warm_read(const struct json_doc *doc, const cJSON *root, struct arena *arena, struct warm *out,
              struct err *err)
{
    const cJSON *obj = json_member(root, "init");
    struct warm_row row = {0};
    int rc;
    *out = (struct warm){0};
    if (!obj)
        return 0;
    if ((rc = json_read(doc, obj, "init", warm_fields, ARRAY_LEN(warm_fields), arena, &row,
                        err)) < 0)
        return rc;
    if (!*row.from)
        return err_set(err, ERR_INPUT,
                       "%s: init.from is empty: give a safetensors file or a checkpoint's folder",
                       doc->name);
    if (row.hash && (rc = field_read_hash(row.hash, doc, "init", "source_hash", &out->hash,
                                          err)) < 0)
        return rc;
    out->from = row.from;
    out->partial = row.partial;
    return maps_read(doc, json_member(obj, "map"), out, err);
}

void warm_write(const struct warm *w, struct json_out *o, bool for_hash)
{
    char hex[HASH_TEXT_BYTES];
    if (!w->from)
        return;
    json_obj_begin(o, "init");
    if (!for_hash || !warm_hash_known(w))
        json_put_text(o, "from", w->from);
    if (warm_hash_known(w))
        json_put_text(o, "source_hash", hash_format(w->hash, hex));
    json_arr_begin(o, "map");
    for (int64_t i = 0; i < w->n_maps; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "from", w->map[i].from);
        json_put_text(o, "to", w->map[i].to);
        json_obj_end(o);
    }
    json_arr_end(o);
    json_put_bool(o, "partial", w->partial);
    json_obj_end(o);
}

/* Refuses a folder that is no checkpoint, and names the newest checkpoint of a run's folder. That
 * is not taken by itself: the run would begin elsewhere once its source has trained on. */
static int folder_refuse(const char *from, struct err *err)
{
    char pattern[LIMIT_PATH_BYTES];
    glob_t found = {0};
    int rc;
    snprintf(pattern, sizeof pattern, "%.4000s/ckpt/step-[0-9]*[0-9]", from);
    if (glob(pattern, 0, NULL, &found) == 0)
        rc = err_set(err, ERR_INPUT,
                     "'%s' is the folder of a run, which may train on: give one of its "
                     "checkpoints, the newest is '%s'",
                     from, found.gl_pathv[found.gl_pathc - 1]);
    else
        rc = err_set(err, ERR_INPUT,
                     "'%s' is a folder without a checkpoint: give a safetensors file, or a folder "
                     "<run>/ckpt/step-… that holds manifest.json",
                     from);
    globfree(&found);
    return rc;
}

int warm_check(const char *from, struct err *err)
{
    char manifest[LIMIT_PATH_BYTES];
    struct stat st;
    snprintf(manifest, sizeof manifest, "%s/manifest.json", from);
    return stat(from, &st) == 0 && S_ISDIR(st.st_mode) && !file_exists(manifest)
               ? folder_refuse(from, err)
               : 0;
}

int warm_hash(const char *from, struct hash128 *out, struct err *err)
{
    char manifest[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = warm_check(from, err)) < 0)
        return rc;
    snprintf(manifest, sizeof manifest, "%s/manifest.json", from);
    return hash_file(file_exists(manifest) ? manifest : from, out, err);
}

int warm_bind(struct warm *w, struct err *err)
{
    int rc = w->from && !warm_hash_known(w) ? warm_hash(w->from, &w->hash, err) : 0;
    return rc < 0 ? err_context(err, "init.from") : 0;
}

bool warm_name(const struct warm *w, const char *name, char out[LIMIT_NAME_BYTES])
{
    for (int64_t i = 0; i < w->n_maps; i++) {
        const char *from = w->map[i].from, *to = w->map[i].to, *star = strchr(from, '*');
        size_t before = star ? (size_t)(star - from) : strlen(from),
               after = star ? strlen(star + 1) : 0, n = strlen(name);
        if (!star && strcmp(from, name) == 0)
            return snprintf(out, LIMIT_NAME_BYTES, "%s", to) < LIMIT_NAME_BYTES;
        if (!star || n < before + after || strncmp(name, from, before) != 0 ||
            strcmp(name + n - after, star + 1) != 0)
            continue;
        const char *hole = strchr(to, '*');
        return snprintf(out, LIMIT_NAME_BYTES, "%.*s%.*s%s", (int)(hole - to), to,
                        (int)(n - before - after), name + before, hole + 1) < LIMIT_NAME_BYTES;
    }
    return snprintf(out, LIMIT_NAME_BYTES, "%s", name) < LIMIT_NAME_BYTES;
}

size_t warm_format(struct format_part *out)
{
    static const struct warm_row row;
    out[0] = (struct format_part){"init", warm_fields, ARRAY_LEN(warm_fields), &row};
    out[1] = (struct format_part){"init.map[]", map_fields, ARRAY_LEN(map_fields), NULL};
    return 2;
}
