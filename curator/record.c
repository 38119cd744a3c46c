#include "curator/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "curator/video.h"

static const int64_t RECORD_BYTES_MAX = (int64_t)1 << 30; /* five million sources */

static void source_free(struct record_source *s)
{
    free(s->name);
    free(s->left_out);
}

void record_release(struct record *r)
{
    json_release(&r->options);
    for (int64_t i = 0; i < r->n; i++)
        source_free(&r->sources[i]);
    free(r->sources);
    free(r->by_hash);
    *r = (struct record){0};
}

void record_options(const struct curation *k, bool shards, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 0);
    json_obj_begin(&o, NULL);
    json_put_int(&o, "height", k->conf.height);
    json_put_int(&o, "width", k->conf.width);
    json_put_int(&o, "frames", k->conf.frames);
    json_put_num(&o, "fps", k->conf.fps);
    json_put_text(&o, "pictures", VIDEO_NAME);
    json_put_text(&o, "detector", SHOTS_NAME);
    json_put_num(&o, "threshold", k->conf.shots.threshold);
    json_put_int(&o, "min_shot", k->conf.shots.min_frames);
    json_put_int(&o, "text_width", k->conf.text_width);
    json_put_int(&o, "text_len", k->conf.text_len);
    json_put_text(&o, "tokenizer", k->conf.tokenizer->name);
    json_put_text(&o, "text_encoder", k->conf.encoder->name);
    if (shards)
        json_put_int(&o, "shard_bytes", k->shard_bytes);
    json_obj_end(&o);
}

static int by_name(const void *a, const void *b)
{
    const struct record_source *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->hash, y->hash);
}

static int by_hash(const void *a, const void *b)
{
    const struct record_source *const *x = a, *const *y = b;
    return strcmp((*x)->hash, (*y)->hash);
}

static int index_make(struct record *r, struct err *err)
{
    if (!(r->by_hash = calloc((size_t)r->n + 1, sizeof *r->by_hash)))
        return err_set(err, ERR_NOMEM, "out of memory for %lld sources", (long long)r->n);
    for (int64_t i = 0; i < r->n; i++)
        r->by_hash[i] = &r->sources[i];
    qsort(r->by_hash, (size_t)r->n, sizeof *r->by_hash, by_hash);
    return 0;
}

static int sources_take(const struct curation *k, struct record *r, struct err *err)
{
    if (!(r->sources = calloc((size_t)k->n + 1, sizeof *r->sources)))
        return err_set(err, ERR_NOMEM, "out of memory for %lld sources", (long long)k->n);
    for (int64_t i = 0; i < k->n; i++) {
        const struct source *s = &k->sources[i];
        struct record_source *to = &r->sources[r->n++];
        to->no_video = s->maybe; /* until it was worked on */
        hash_format(s->hash, to->hash);
        hash_format(hash_128(s->caption, strlen(s->caption)), to->caption);
        if (!(to->name = strdup(s->name)))
            return err_set(err, ERR_NOMEM, "out of memory for %lld sources", (long long)k->n);
    }
    return 0;
}

int record_make(const struct curation *k, struct record *out, struct err *err)
{
    struct record r = {0};
    struct str text = STR_INIT;
    int rc;
    record_options(k, true, &text);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if ((rc = json_parse(text.p, text.len, "options", &r.options, err)) < 0)
        goto out;
    if ((rc = sources_take(k, &r, err)) < 0)
        goto out;
    if ((rc = index_make(&r, err)) < 0)
        goto out;
    *out = r;
    r = (struct record){0};
out:
    str_release(&text);
    record_release(&r);
    return rc;
}

/* ---- the file ---- */

static void record_path(const char *root, struct hash128 fingerprint, char out[LIMIT_PATH_BYTES])
{
    char hash[HASH_TEXT_BYTES];
    snprintf(out, LIMIT_PATH_BYTES, "%.4000s/.reel/generations/%s.json", root,
             hash_format(fingerprint, hash));
}

static int sources_read(const cJSON *list, struct record *r, struct err *err)
{
    int64_t n = cJSON_GetArraySize(list);
    const cJSON *at;
    if (!(r->sources = calloc((size_t)n + 1, sizeof *r->sources)))
        return err_set(err, ERR_NOMEM, "out of memory for %lld sources", (long long)n);
    cJSON_ArrayForEach(at, list)
    {
        struct record_source *s = &r->sources[r->n++];
        snprintf(s->hash, sizeof s->hash, "%s", json_text(at, "hash", ""));
        snprintf(s->caption, sizeof s->caption, "%s", json_text(at, "caption", ""));
        s->no_video = cJSON_IsTrue(json_member(at, "no_video"));
        const char *left_out = json_text(at, "left_out", NULL);
        s->left_out = left_out ? strdup(left_out) : NULL;
        if (!(s->name = strdup(json_text(at, "name", ""))) || (left_out && !s->left_out))
            return err_set(err, ERR_NOMEM, "out of memory for %lld sources", (long long)n);
    }
    return 0;
}

/* Appends the record in the form of its file; checksum NULL: without its checksum. */
static void record_format(const struct record *r, const char *checksum, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 1);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.curation/2");
    json_put_tree(&o, "options", r->options.root);
    json_arr_begin(&o, "sources");
    for (int64_t i = 0; i < r->n; i++) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "name", r->sources[i].name);
        json_put_text(&o, "hash", r->sources[i].hash);
        json_put_text(&o, "caption", r->sources[i].caption);
        if (r->sources[i].left_out)
            json_put_text(&o, "left_out", r->sources[i].left_out);
        if (r->sources[i].no_video)
            json_put_bool(&o, "no_video", true);
        json_obj_end(&o);
    }
    json_arr_end(&o);
    if (checksum)
        json_put_text(&o, "checksum", checksum);
    json_obj_end(&o);
    str_addc(out, '\n');
}

/* Computes the checksum of a record: the hash of its text without the checksum. */
static int record_checksum(const struct record *r, char out[HASH_TEXT_BYTES], struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    record_format(r, NULL, &text);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    hash_format(hash_128(text.p, text.len), out);
out:
    str_release(&text);
    return rc;
}

/* Compares a record with the checksum in its file. Records from before checksums existed have
 * none. */
static int checksum_check(const struct record *r, const char *stored, const char *path,
                          struct err *err)
{
    char found[HASH_TEXT_BYTES];
    int rc;
    if (!stored)
        return 0;
    if ((rc = record_checksum(r, found, err)) < 0)
        return rc;
    if (strcmp(found, stored) != 0)
        return err_set(err, ERR_CORRUPT, "%s is damaged: its checksum does not fit its content",
                       path);
    return 0;
}

int record_load(const char *root, struct hash128 fingerprint, struct record *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct json_doc doc = {0};
    struct record r = {0};
    int rc;
    record_path(root, fingerprint, path);
    if ((rc = file_read(path, RECORD_BYTES_MAX, &text, err)) < 0 ||
        (rc = json_parse(text.p, text.len, path, &doc, err)) < 0 ||
        (rc = json_check_schema(&doc, "reel.curation/2", err)) < 0)
        goto out;
    if (!(r.options.root = cJSON_DetachItemFromObject(doc.root, "options"))) {
        rc = err_set(err, ERR_INPUT, "%s: options are missing", path);
        goto out;
    }
    if ((rc = sources_read(json_member(doc.root, "sources"), &r, err)) < 0 ||
        (rc = checksum_check(&r, json_text(doc.root, "checksum", NULL), path, err)) < 0 ||
        (rc = index_make(&r, err)) < 0)
        goto out;
    *out = r;
    r = (struct record){0};
out:
    str_release(&text);
    json_release(&doc);
    record_release(&r);
    return rc;
}

int record_save(const char *root, struct hash128 fingerprint, const struct record *r,
                struct err *err)
{
    char path[LIMIT_PATH_BYTES], dir[LIMIT_PATH_BYTES + 32], checksum[HASH_TEXT_BYTES];
    struct str text = STR_INIT;
    int rc;
    if ((rc = record_checksum(r, checksum, err)) < 0)
        return rc;
    record_format(r, checksum, &text);
    record_path(root, fingerprint, path);
    snprintf(dir, sizeof dir, "%s/.reel/generations", root);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if ((rc = file_mkdirs(dir, err)) < 0)
        goto out;
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

/* ---- comparing ---- */

bool record_equal(const struct record *a, const struct record *b)
{
    bool equal = a->n == b->n && cJSON_Compare(a->options.root, b->options.root, true);
    for (int64_t i = 0; equal && i < a->n; i++)
        equal = by_name(&a->sources[i], &b->sources[i]) == 0 &&
            strcmp(a->sources[i].caption, b->sources[i].caption) == 0;
    return equal;
}

/* Reports that a dataset was made with another option. The values in own[] are fixed by the version
 * of the program, so for them the error names the version. */
static int option_differs(const char *root, const char *name, const char *was, const char *now,
                          struct err *err)
{
    static const char *const own[] = {"pictures", "detector", "tokenizer", "text_encoder"};
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (strcmp(name, own[i]) == 0)
            return err_set(err, ERR_EXISTS, "'%s' was made by another version of reel-curate (%s "
                                            "%s, now %s): give another --out", root, name, was,
                           now);
    return err_set(err, ERR_EXISTS, "'%s' was made with %s %s, now it is %s: give the options that "
                                    "it was made with, or another --out", root, name, was, now);
}

int record_options_check(const struct record *was, const struct record *now, const char *root,
                         struct err *err)
{
    const cJSON *at;
    cJSON_ArrayForEach(at, now->options.root)
    {
        const cJSON *old = json_member(was->options.root, at->string);
        char *a = old ? cJSON_PrintUnformatted(old) : NULL, *b = cJSON_PrintUnformatted(at);
        bool same = cJSON_Compare(old, at, true);
        if (!same)
            option_differs(root, at->string, a ? a : "not said", b ? b : "?", err);
        cJSON_free(a);
        cJSON_free(b);
        if (!same)
            return ERR_EXISTS;
    }
    return 0;
}

static int name_order(const void *name, const void *source)
{
    return strcmp(name, ((const struct record_source *)source)->name);
}

bool record_has_name(const struct record *r, const char *name)
{
    return bsearch(name, r->sources, (size_t)r->n, sizeof *r->sources, name_order) != NULL;
}

int64_t record_left_out(const struct record *r, const struct record_source **first)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n; i++)
        if (r->sources[i].left_out && n++ == 0)
            *first = &r->sources[i];
    return n;
}

static int hash_order(const void *hash, const void *source)
{
    return strcmp(hash, (*(const struct record_source *const *)source)->hash);
}

const struct record_source *record_find(const struct record *r, const char *hash)
{
    const struct record_source **found =
        bsearch(hash, r->by_hash, (size_t)r->n, sizeof *r->by_hash, hash_order);
    return found ? *found : NULL;
}

int record_mark(struct record *r, const struct curation *k, struct err *err)
{
    for (int64_t i = 0; i < k->n; i++) {
        char hash[HASH_TEXT_BYTES];
        struct record_source *s =
            &r->sources[record_find(r, hash_format(k->sources[i].hash, hash)) - r->sources];
        s->no_video = !k->results[i].ok && k->sources[i].maybe;
        if (!curation_is_bad(k, i))
            continue;
        free(s->left_out);
        if (!(s->left_out = strdup(k->results[i].reason)))
            return err_set(err, ERR_NOMEM, "out of memory for source '%s'", s->name);
    }
    return 0;
}

static int source_copy(struct record_source *to, const struct record_source *from, struct err *err)
{
    *to = *from;
    to->name = strdup(from->name);
    to->left_out = from->left_out ? strdup(from->left_out) : NULL;
    return to->name && (to->left_out || !from->left_out) ? 0
        : err_set(err, ERR_NOMEM, "out of memory for source '%s'", from->name);
}

bool record_is_open(const struct record_source *old, bool maybe)
{
    return old->left_out || (old->no_video && !maybe);
}

int record_merge(struct record *r, const struct record *more, struct err *err)
{
    struct record_source *all = calloc((size_t)(r->n + more->n + 1), sizeof *all);
    int64_t n = 0;
    int rc = 0;
    if (!all)
        return err_set(err, ERR_NOMEM, "out of memory for %lld sources",
                       (long long)(r->n + more->n));
    for (int64_t i = 0; i < more->n; i++) {
        const struct record_source *old = record_find(r, more->sources[i].hash);
        if (old && !record_is_open(old, more->sources[i].no_video))
            continue;
        if ((rc = source_copy(&all[n++], &more->sources[i], err)) < 0)
            goto out;
    }
    for (int64_t i = 0; i < r->n; i++) {
        const struct record_source *now = record_find(more, r->sources[i].hash);
        if (record_is_open(&r->sources[i], !now || now->no_video))
            source_free(&r->sources[i]);
        else
            all[n++] = r->sources[i];
    }
    free(r->sources);
    free(r->by_hash);
    qsort(all, (size_t)n, sizeof *all, by_name);
    r->sources = all;
    r->n = n;
    r->by_hash = NULL;
    all = NULL;
out:
    for (int64_t i = 0; all && i < n; i++)
        source_free(&all[i]);
    free(all);
    return rc;
}
