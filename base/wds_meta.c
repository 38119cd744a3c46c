/* The sidecars of a WebDataset folder, `<root>/.nv-meta/`, as Megatron-Energon 7 reads them
 *
 *     .info.json    {"energon_version": "…", "shard_counts": {"<path>": samples, …}}: no other key
 *                   is allowed, and the order of the shards is their number
 *     split.yaml    split_parts: train, val, test: lists of shards; exclude: []. Every shard is put
 *                   into train.
 *     dataset.yaml  CrudeWebdataset: the parts as they are
 *     index.uuid    a name for the content, in the form of a random uuid: from a hash of .info.json
 *                   and all .tar.idx files, so it tells layouts apart, not payloads of equal sizes
 *
 * split.yaml is published last, so that the others know what it lists. index.sqlite is left to
 * `energon prepare`.
 */
#include "base/wds.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"

enum { INDEX_BYTES_MAX = 1 << 30 };
#define ENERGON_VERSION "7.1.0" /* these formats are of this version */

static int compare_paths(const void *a, const void *b)
{
    const struct wds_shard *const *x = a, *const *y = b;

    return strcmp((*x)->path, (*y)->path);
}

static int check_unique(const struct wds_shard *shards, size_t n, struct err *err)
{
    const struct wds_shard **sorted = calloc(n, sizeof *sorted);
    int rc = 0;

    if (!sorted)
        return err_set(err, ERR_NOMEM, "out of memory for a list of %zu shards", n);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &shards[i];
    qsort(sorted, n, sizeof *sorted, compare_paths);
    for (size_t i = 1; rc == 0 && i < n; i++)
        if (strcmp(sorted[i]->path, sorted[i - 1]->path) == 0)
            rc = err_set(err, ERR_INPUT, "shard '%s' is listed twice", sorted[i]->path);
    free(sorted);
    return rc;
}

static int check_shards(const struct wds_shard *shards, size_t n, struct err *err)
{
    if (n == 0)
        return err_set(err, ERR_STATE, "a data set needs at least one shard");
    for (size_t i = 0; i < n; i++) {
        const char *p = shards[i].path;
        if (p[0] == '/' || strncmp(p, "../", 3) == 0 || strstr(p, "/../") || !str_ends(p, ".tar"))
            return err_set(err, ERR_INPUT,
                           "shard '%s': give a path below the data set's folder that ends in .tar",
                           p);
        if (shards[i].samples < 1)
            return err_set(err, ERR_STATE,
                           "shard '%s' has %lld samples: readers refuse an empty shard", p,
                           (long long)shards[i].samples);
    }
    return check_unique(shards, n, err);
}

static void format_info(const struct wds_shard *shards, size_t n, struct str *out)
{
    struct json_out o;

    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "energon_version", ENERGON_VERSION);
    json_obj_begin(&o, "shard_counts");
    for (size_t i = 0; i < n; i++)
        json_put_int(&o, shards[i].path, shards[i].samples);
    json_obj_end(&o);
    json_obj_end(&o);
    str_addc(out, '\n');
}

/* Writes split.yaml. YAML takes JSON's strings as they are. */
static void format_split(const struct wds_shard *shards, size_t n, struct str *out)
{
    str_add(out, "exclude: []\nsplit_parts:\n  train:\n");
    for (size_t i = 0; i < n; i++) {
        struct json_out o;
        str_add(out, "  - ");
        json_out_init(&o, out, 0);
        json_put_text(&o, NULL, shards[i].path);
        str_addc(out, '\n');
    }
    str_add(out, "  val: []\n  test: []\n");
}

static int content_hash(const char *root, const struct wds_shard *shards, size_t n,
                        const struct str *info, struct hash128 *out, struct err *err)
{
    struct hash_stream *h = hash_stream_new();
    int rc = h ? 0 : err_set(err, ERR_NOMEM, "out of memory while writing the index of '%s'", root);

    if (h)
        hash_stream_add(h, info->p, info->len);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct str idx = STR_INIT, path = STR_INIT;
        str_addf(&path, "%s/%s.idx", root, shards[i].path);
        rc = str_check(&path, err);
        if (rc == 0)
            rc = file_read(path.p, INDEX_BYTES_MAX, &idx, err);
        if (rc == 0)
            hash_stream_add(h, idx.p, idx.len);
        str_release(&idx);
        str_release(&path);
    }
    if (rc == 0)
        *out = hash_stream_128(h);
    hash_stream_free(h);
    return rc;
}

/* Writes the hash in the form of a random uuid (RFC 4122, version 4, variant 1). */
static void format_uuid(struct hash128 h, struct str *out)
{
    uint64_t hi = (h.hi & ~UINT64_C(0xf000)) | 0x4000,
             lo = (h.lo & ~(UINT64_C(3) << 62)) | UINT64_C(1) << 63;

    str_addf(out, "%08llx-%04llx-%04llx-%04llx-%012llx", (unsigned long long)(hi >> 32),
             (unsigned long long)(hi >> 16 & 0xffff), (unsigned long long)(hi & 0xffff),
             (unsigned long long)(lo >> 48), (unsigned long long)(lo & 0xffffffffffff));
}

static int publish_in(const char *dir, const char *name, const struct str *text, struct err *err)
{
    char *path = file_join(dir, name);
    int rc = str_check(text, err);

    if (rc == 0)
        rc = path ? file_publish(path, text->p, text->len, err)
                  : err_set(err, ERR_NOMEM, "out of memory writing '%s'", name);
    free(path);
    return rc;
}

int wds_meta_save(const char *root, const struct wds_shard *shards, size_t n, struct err *err)
{
    /* A shard's count is there before the shard is listed, for those who read while a dataset
     * grows. */
    enum { DATASET, UUID, INFO, SPLIT, FILES };
    static const char *const names[FILES] = {"dataset.yaml", "index.uuid", ".info.json",
                                             "split.yaml"};
    struct str text[FILES] = {STR_INIT, STR_INIT, STR_INIT, STR_INIT};
    struct hash128 hash;
    char *dir = file_join(root, ".nv-meta");
    int rc = dir ? check_shards(shards, n, err)
                 : err_set(err, ERR_NOMEM, "out of memory while writing '%s'", root);

    if (rc == 0) {
        format_info(shards, n, &text[INFO]);
        rc = content_hash(root, shards, n, &text[INFO], &hash, err);
    }
    if (rc == 0) {
        format_split(shards, n, &text[SPLIT]);
        str_add(&text[DATASET], "__module__: megatron.energon\n__class__: CrudeWebdataset\n");
        format_uuid(hash, &text[UUID]);
        rc = file_mkdirs(dir, err);
    }
    for (int i = 0; rc == 0 && i < FILES; i++)
        rc = publish_in(dir, names[i], &text[i], err);
    for (int i = 0; i < FILES; i++)
        str_release(&text[i]);
    free(dir);
    return rc;
}
