/* Writes the sidecar files of a WebDataset folder, `<root>/.nv-meta/`, as Megatron-Energon 7 reads
 * them:
 *
 *     .info.json    {"energon_version": "…", "shard_counts": {"<path>": samples, …}}: no other key
 *                   is allowed, and the order of the shards is their number
 *     split.yaml    split_parts: train, val, test: lists of shards; exclude: []. Every shard is put
 *                   into train.
 *     dataset.yaml  CrudeWebdataset: Energon does not decode the parts
 *     index.uuid    identifies the content, in the form of a random uuid: a hash of .info.json and
 *                   all .tar.idx files. It changes with names, counts and offsets, but not with a
 *                   payload that keeps its size.
 *
 * split.yaml is published last, so that the other files already have the shards that it lists.
 * index.sqlite is left to `energon prepare`.
 */
#include "base/wds.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"

enum { INDEX_BYTES_MAX = 1 << 30 };
#define ENERGON_VERSION "7.1.0" /* the version whose formats these are */

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
    for (size_t i = 1; i < n; i++)
        if (strcmp(sorted[i]->path, sorted[i - 1]->path) == 0) {
            rc = err_set(err, ERR_INPUT, "shard '%s' is listed twice", sorted[i]->path);
            break;
        }
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

/* Writes split.yaml. A JSON string is also a valid YAML string. */
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

static int index_hash(struct hash_stream *h, const char *root, const struct wds_shard *shard,
                      struct err *err)
{
    struct str idx = STR_INIT, path = STR_INIT;
    int rc;

    str_addf(&path, "%s/%s.idx", root, shard->path);
    if ((rc = str_check(&path, err)) < 0)
        goto out;
    if ((rc = file_read(path.p, INDEX_BYTES_MAX, &idx, err)) < 0)
        goto out;
    hash_stream_add(h, idx.p, idx.len);
out:
    str_release(&idx);
    str_release(&path);
    return rc;
}

static int content_hash(const char *root, const struct wds_shard *shards, size_t n,
                        const struct str *info, struct hash128 *out, struct err *err)
{
    struct hash_stream *h = hash_stream_new();
    int rc = 0;

    if (!h)
        return err_set(err, ERR_NOMEM, "out of memory while writing the index of '%s'", root);
    hash_stream_add(h, info->p, info->len);
    for (size_t i = 0; i < n; i++)
        if ((rc = index_hash(h, root, &shards[i], err)) < 0)
            goto out;
    *out = hash_stream_128(h);
out:
    hash_stream_free(h);
    return rc;
}

/* Formats the hash as a random uuid (RFC 4122, version 4, variant 1). */
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
    char *path;
    int rc;

    if ((rc = str_check(text, err)) < 0)
        return rc;
    if (!(path = file_join(dir, name)))
        return err_set(err, ERR_NOMEM, "out of memory writing '%s'", name);
    rc = file_publish(path, text->p, text->len, err);
    free(path);
    return rc;
}

int wds_meta_save(const char *root, const struct wds_shard *shards, size_t n, struct err *err)
{
    /* The count of a shard is published before split.yaml lists the shard, for readers of a dataset
     * that still grows. */
    enum { DATASET, UUID, INFO, SPLIT, FILES };
    static const char *const names[FILES] = {"dataset.yaml", "index.uuid", ".info.json",
                                             "split.yaml"};
    struct str text[FILES] = {STR_INIT, STR_INIT, STR_INIT, STR_INIT};
    struct hash128 hash;
    char *dir = file_join(root, ".nv-meta");
    int rc;

    if (!dir)
        return err_set(err, ERR_NOMEM, "out of memory while writing '%s'", root);
    if ((rc = check_shards(shards, n, err)) < 0)
        goto out;
    format_info(shards, n, &text[INFO]);
    if ((rc = content_hash(root, shards, n, &text[INFO], &hash, err)) < 0)
        goto out;
    format_split(shards, n, &text[SPLIT]);
    str_add(&text[DATASET], "__module__: megatron.energon\n__class__: CrudeWebdataset\n");
    format_uuid(hash, &text[UUID]);
    if ((rc = file_mkdirs(dir, err)) < 0)
        goto out;
    for (int i = 0; i < FILES; i++)
        if ((rc = publish_in(dir, names[i], &text[i], err)) < 0)
            goto out;
out:
    for (int i = 0; i < FILES; i++)
        str_release(&text[i]);
    free(dir);
    return rc;
}
