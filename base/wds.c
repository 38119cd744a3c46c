/* The index, `<shard>.tar.idx`
 *
 * The index is N+1 unsigned 64-bit little-endian integers without a header. Entry i is the offset
 * of the first tar header of sample i (of its pax header, if it has one). Entry N is the offset of
 * the first zero block, which is not the file's size if the writer pads. Entry 0 counts as 0
 * whatever its value is (as in Megatron-Energon). Members before the first sample thus lie in its
 * range and are ignored, as members between two samples lie in the range of the first of them.
 *
 * Which files make a sample (webdataset, Energon and DALI agree on this)
 *
 * Only regular files belong to samples. The key is the path up to the first dot of the last
 * component, and the part is the text after that dot. Names without a dot, names with a component
 * `__x__`, and hidden files are ignored. (A hidden file has an empty base name: DALI drops it,
 * webdataset would use its folder as the key.) The files of a sample are adjacent; an ignored file
 * does not separate them.
 */
#include "base/wds.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/num.h"

enum { OFFSET_BYTES = 8, INDEX_BYTES_MAX = 1 << 30 };

/* Holds a growing list of offsets: the first header of each sample, then the end. */
struct offsets {
    int64_t *at;
    size_t n, cap;
};

static int offsets_add(struct offsets *o, int64_t value, struct err *err)
{
    if (o->n == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 64;
        int64_t *at = realloc(o->at, cap * sizeof *at);
        if (!at)
            return err_set(err, ERR_NOMEM, "out of memory for a shard index of %zu samples", o->n);
        o->at = at;
        o->cap = cap;
    }
    o->at[o->n++] = value;
    return 0;
}

static char *index_path(const char *tar_path)
{
    char *path;

    return asprintf(&path, "%s.idx", tar_path) < 0 ? NULL : path;
}

static int index_save(const char *tar_path, const struct offsets *o, struct err *err)
{
    char *path = index_path(tar_path);
    struct str bytes = STR_INIT;
    int rc;

    for (size_t i = 0; i < o->n; i++)
        for (int k = 0; k < OFFSET_BYTES; k++)
            str_addc(&bytes, (char)((uint64_t)o->at[i] >> (8 * k)));
    if (!path) {
        rc = err_set(err, ERR_NOMEM, "out of memory while writing the index of '%s'", tar_path);
        goto out;
    }
    if ((rc = str_check(&bytes, err)) < 0)
        goto out;
    rc = file_publish(path, bytes.p, bytes.len, err);
out:
    str_release(&bytes);
    free(path);
    return rc;
}

/* ---- names ---- */

/* Splits a member's name into key and part. Returns false for a member that belongs to no sample.
 * *key_bytes is the key's length. */
static bool split_member(const struct tar_entry *e, size_t *key_bytes, const char **part)
{
    const char *base = strrchr(e->name, '/'), *dot;

    base = base ? base + 1 : e->name;
    dot = strchr(base, '.');
    if (!e->regular || !dot || dot == base)
        return false;
    for (const char *p = e->name; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
        size_t n = strcspn(p, "/");
        if (n > 4 && memcmp(p, "__", 2) == 0 && memcmp(p + n - 2, "__", 2) == 0)
            return false;
    }
    *key_bytes = (size_t)(dot - e->name);
    *part = dot + 1;
    return true;
}

/* Checks that a key is printable ASCII without blanks and dots. Slashes make folders; a component
 * that begins with "__" is refused, since readers would skip `__x__`. */
static int check_key(const char *shard, const char *key, struct err *err)
{
    bool ok = key[0] != '\0' && key[0] != '/';

    for (const char *p = key; *p; p++)
        ok = ok && *p > ' ' && *p < 0x7f && *p != '.' &&
             !(p[0] == '/' && (p[1] == '/' || p[1] == '\0'));
    for (const char *p = key; ok && p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
        ok = strncmp(p, "__", 2) != 0;
    if (!ok)
        return err_set(err, ERR_INPUT,
                       "'%s': sample key '%s': use printable ASCII without blanks and dots, not "
                       "starting with '__' or '/'",
                       shard, key);
    return 0;
}

static int check_part(const char *shard, const char *key, const char *part, struct err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_-.";
    size_t n = strlen(part);

    if (n == 0 || strspn(part, allowed) != n || part[0] == '.' || part[n - 1] == '.')
        return err_set(err, ERR_INPUT,
                       "'%s': sample '%s': part name '%s': use lower-case letters, digits, '_', "
                       "'-' and inner dots",
                       shard, key, part);
    return 0;
}

/* ---- writing ---- */

struct wds_writer {
    struct tar_writer tar;
    struct offsets offsets;
    char *path;
    bool broken; /* a sample was written to the tar only in part */
    /* This tsearch tree holds the keys so far, because readers refuse a data set with a duplicate
     * key. */
    void *keys;
};

static int compare_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int compare_parts(const void *a, const void *b)
{
    const struct wds_part *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static void writer_free(struct wds_writer *w)
{
    tdestroy(w->keys, free);
    free(w->offsets.at);
    free(w->path);
    free(w);
}

int wds_writer_open(const char *tar_path, struct wds_writer **out, struct err *err)
{
    struct wds_writer *w;
    int rc;

    if (!str_ends(tar_path, ".tar"))
        return err_set(err, ERR_INPUT,
                       "shard '%s': its name must end in .tar, or readers pass over it", tar_path);
    if (!(w = calloc(1, sizeof *w)))
        return err_set(err, ERR_NOMEM, "out of memory opening '%s'", tar_path);
    if (!(w->path = strdup(tar_path))) {
        rc = err_set(err, ERR_NOMEM, "out of memory opening '%s'", tar_path);
        goto out;
    }
    rc = tar_writer_open(&w->tar, tar_path, err);
out:
    if (rc < 0)
        writer_free(w);
    else
        *out = w;
    return rc;
}

/* Adds the key to the set; ERR_EXISTS if the shard has it already. */
static int add_key(struct wds_writer *w, const char *key, struct err *err)
{
    char *copy = strdup(key), **node = copy ? tsearch(copy, &w->keys, compare_text) : NULL;

    if (!node) {
        free(copy);
        return err_set(err, ERR_NOMEM, "out of memory while writing '%s'", w->path);
    }
    if (*node == copy)
        return 0;
    free(copy);
    return err_set(err, ERR_EXISTS,
                   "'%s': sample key '%s' is used twice: keys must be unique over the data set",
                   w->path, key);
}

static int check_sample(struct wds_writer *w, const char *key, const struct wds_part *sorted,
                        size_t n, struct err *err)
{
    int rc;

    if ((rc = check_key(w->path, key, err)) < 0)
        return rc;
    if (n == 0)
        return err_set(err, ERR_INPUT, "'%s': sample '%s' has no parts: give one or more", w->path,
                       key);
    for (size_t i = 0; i < n; i++) {
        if ((rc = check_part(w->path, key, sorted[i].name, err)) < 0)
            return rc;
        if (i > 0 && strcmp(sorted[i].name, sorted[i - 1].name) == 0)
            return err_set(err, ERR_INPUT, "'%s': sample '%s' has part '%s' twice", w->path, key,
                           sorted[i].name);
    }
    return add_key(w, key, err);
}

static int add_part(struct wds_writer *w, const char *key, struct wds_part *part, struct err *err)
{
    char *name;
    int rc;

    if (asprintf(&name, "%s.%s", key, part->name) < 0)
        return err_set(err, ERR_NOMEM, "out of memory while writing '%s'", w->path);
    rc = tar_writer_add(&w->tar, name, part->bytes, part->n, err);
    part->data_offset = tar_writer_offset(&w->tar) - num_round_up(part->n, TAR_BLOCK_BYTES);
    free(name);
    return rc;
}

int wds_writer_add(struct wds_writer *w, const char *key, struct wds_part *parts, size_t n_parts,
                   struct err *err)
{
    int rc;

    if (n_parts > 0)
        qsort(parts, n_parts, sizeof *parts, compare_parts);
    if ((rc = check_sample(w, key, parts, n_parts, err)) < 0)
        return rc;
    if ((rc = offsets_add(&w->offsets, tar_writer_offset(&w->tar), err)) < 0)
        return rc;
    for (size_t i = 0; i < n_parts; i++)
        if ((rc = add_part(w, key, &parts[i], err)) < 0) {
            w->broken = true;
            return rc;
        }
    return 0;
}

int64_t wds_writer_bytes(const struct wds_writer *w)
{
    return tar_writer_offset(&w->tar);
}

/* Removes an old index before the tar is published: an old index beside a new tar would be wrong,
 * but a tar without index is valid. */
static int remove_index(const char *tar_path, struct err *err)
{
    char *path = index_path(tar_path);
    int rc = 0;

    if (!path)
        return err_set(err, ERR_NOMEM, "out of memory while writing '%s'", tar_path);
    if (unlink(path) < 0 && errno != ENOENT)
        rc = err_set_errno(err, ERR_IO, "cannot remove the old index '%s'", path);
    free(path);
    return rc;
}

/* Checks that the shard can be published, adds the last offset and removes an old index. */
static int check_shard(struct wds_writer *w, struct err *err)
{
    int rc;

    if (w->broken)
        return err_set(err, ERR_STATE,
                       "shard '%s' is not published: writing one of its samples failed", w->path);
    if (w->offsets.n == 0)
        return err_set(err, ERR_STATE, "shard '%s' has no samples: readers refuse an empty shard",
                       w->path);
    if ((rc = offsets_add(&w->offsets, tar_writer_offset(&w->tar), err)) < 0)
        return rc;
    return remove_index(w->path, err);
}

int wds_writer_close(struct wds_writer *w, struct wds_written *out, struct err *err)
{
    struct wds_written done = {.samples = (int64_t)w->offsets.n};
    int rc;

    if ((rc = check_shard(w, err)) < 0) {
        tar_writer_abort(&w->tar);
        goto out;
    }
    if ((rc = tar_writer_commit(&w->tar, &done.tar, err)) < 0)
        goto out;
    if ((rc = index_save(w->path, &w->offsets, err)) < 0)
        goto out;
    if (out)
        *out = done;
out:
    writer_free(w);
    return rc;
}

void wds_writer_abort(struct wds_writer *w)
{
    if (!w)
        return;
    tar_writer_abort(&w->tar);
    writer_free(w);
}

/* ---- index of a shard ---- */

/* Finds the offsets of all samples by reading every header. */
static int scan(struct tar_reader *tar, const char *tar_path, struct offsets *out, struct err *err)
{
    struct str key = STR_INIT;
    struct tar_entry e;
    int rc;

    while ((rc = tar_reader_next(tar, &e, err)) == 1) {
        const char *part;
        size_t n;
        if (!split_member(&e, &n, &part) || (n == key.len && memcmp(e.name, key.p, n) == 0))
            continue;
        str_clear(&key);
        str_addn(&key, e.name, n);
        if ((rc = str_check(&key, err)) < 0)
            goto out;
        if ((rc = offsets_add(out, out->n ? e.header_offset : 0, err)) < 0)
            goto out;
    }
    if (rc < 0)
        goto out;
    if (out->n == 0) {
        rc = err_set(err, ERR_INPUT,
                     "'%s' holds no sample: no regular file in it has a name like KEY.PART",
                     tar_path);
        goto out;
    }
    rc = offsets_add(out, tar_reader_end(tar), err);
out:
    str_release(&key);
    return rc;
}

static int index_wrong(const char *path, const char *what, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "'%s' %s: remove it, and the shard is read without it",
                   path, what);
}

/* Reads the offsets and checks that they are multiples of the block size, lie inside the shard and
 * increase. */
static int offsets_read(const char *path, const struct str *bytes, int64_t tar_bytes,
                        struct offsets *out, struct err *err)
{
    int rc;

    if (bytes->len % OFFSET_BYTES != 0 || bytes->len < 2 * OFFSET_BYTES)
        return index_wrong(path, "is not a whole index: its size is not 8 bytes a sample and 8 "
                                 "more", err);
    for (size_t i = 0; i < bytes->len; i += OFFSET_BYTES) {
        uint64_t v = 0;
        for (int k = OFFSET_BYTES - 1; k >= 0; k--)
            v = v << 8 | (unsigned char)bytes->p[i + (size_t)k];
        v = i ? v : 0;
        if (v % TAR_BLOCK_BYTES != 0 || v >= (uint64_t)tar_bytes ||
            (i && (int64_t)v <= out->at[out->n - 1]))
            return index_wrong(path, "does not fit its shard: offsets must grow and stay inside",
                               err);
        if ((rc = offsets_add(out, (int64_t)v, err)) < 0)
            return rc;
    }
    return 0;
}

/* Loads an index. Reading a sample checks later that it is where the index says. */
static int index_load(const char *path, int64_t tar_bytes, struct offsets *out, struct err *err)
{
    struct str bytes = STR_INIT;
    int rc;

    if ((rc = file_read(path, INDEX_BYTES_MAX, &bytes, err)) < 0)
        goto out;
    rc = offsets_read(path, &bytes, tar_bytes, out, err);
out:
    str_release(&bytes);
    return rc;
}

/* ---- reading ---- */

struct wds_reader {
    char *path, *idx_path;
    struct tar_reader *tar;
    struct offsets offsets;
    struct arena sample; /* memory of the last sample that wds_reader_sample returned */
};

static int load_offsets(struct wds_reader *r, struct err *err)
{
    struct stat st;

    if (!file_exists(r->idx_path))
        return scan(r->tar, r->path, &r->offsets, err);
    if (stat(r->path, &st) < 0)
        return err_set_errno(err, ERR_IO, "cannot look at '%s'", r->path);
    return index_load(r->idx_path, st.st_size, &r->offsets, err);
}

int wds_reader_open(const char *tar_path, struct wds_reader **out, struct err *err)
{
    struct wds_reader *r = calloc(1, sizeof *r);
    int rc;

    if (!r)
        return err_set(err, ERR_NOMEM, "out of memory while opening '%s'", tar_path);
    arena_init(&r->sample, 0);
    r->path = strdup(tar_path);
    r->idx_path = index_path(tar_path);
    if (!r->path || !r->idx_path) {
        rc = err_set(err, ERR_NOMEM, "out of memory while opening '%s'", tar_path);
        goto out;
    }
    if ((rc = tar_reader_open(tar_path, &r->tar, err)) < 0)
        goto out;
    if ((rc = load_offsets(r, err)) < 0)
        goto out;
    *out = r;
    r = NULL; /* the caller owns it now */
out:
    wds_reader_close(r);
    return rc;
}

void wds_reader_close(struct wds_reader *r)
{
    if (!r)
        return;
    tar_reader_close(r->tar);
    arena_release(&r->sample);
    free(r->offsets.at);
    free(r->idx_path);
    free(r->path);
    free(r);
}

int64_t wds_reader_count(const struct wds_reader *r)
{
    return (int64_t)r->offsets.n - 1;
}

static int sample_wrong(const struct wds_reader *r, int64_t i, const char *what, struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "'%s': sample %lld: %s: remove '%s', and the shard is read without it",
                   r->path, (long long)i, what, r->idx_path);
}

static int sample_add_part(struct wds_reader *r, struct wds_sample *s, size_t *cap,
                           const char *part, const struct tar_entry *e, struct err *err)
{
    if (s->n_parts == *cap) {
        size_t more = *cap ? 2 * *cap : 8;
        struct wds_sample_part *p = arena_array(&r->sample, more, sizeof *p);
        if (!p)
            return err_set(err, ERR_NOMEM, "out of memory while reading '%s'", r->path);
        if (s->n_parts > 0)
            memcpy(p, s->parts, s->n_parts * sizeof *p);
        s->parts = p;
        *cap = more;
    }
    for (size_t k = 0; k < s->n_parts; k++)
        if (strcmp(s->parts[k].name, part) == 0)
            return err_set(err, ERR_CORRUPT,
                           "'%s': sample '%s' has part '%s' twice: make the shard again", r->path,
                           s->key, part);
    struct wds_sample_part *to = &s->parts[s->n_parts++];
    *to = (struct wds_sample_part){arena_strdup(&r->sample, part), e->data_offset, e->bytes};
    return to->name ? 0 : err_set(err, ERR_NOMEM, "out of memory while reading '%s'", r->path);
}

/* Adds one member of sample i, whose header lies inside the sample's range. */
static int sample_add_member(struct wds_reader *r, int64_t i, struct wds_sample *s, size_t *cap,
                             const struct tar_entry *e, struct err *err)
{
    const char *part;
    size_t n;

    if (!split_member(e, &n, &part))
        return 0;
    if (!s->key) {
        if (i > 0 && e->header_offset != s->offset)
            return sample_wrong(r, i, "the index does not point at its first file", err);
        s->key = arena_strndup(&r->sample, e->name, n);
        if (!s->key)
            return err_set(err, ERR_NOMEM, "out of memory while reading '%s'", r->path);
    }
    if (strlen(s->key) != n || memcmp(s->key, e->name, n) != 0)
        return sample_wrong(r, i, "the index puts files of two keys into it", err);
    return sample_add_part(r, s, cap, part, e, err);
}

/* Adds the sample to an error of the tar reader inside an indexed range. */
static int in_sample(const struct wds_reader *r, int64_t i, int rc, struct err *err)
{
    if (rc == ERR_CORRUPT)
        return err_context(err,
                           "sample %lld of '%s' (if the shard is whole, its index is wrong: remove "
                           "'%s')",
                           (long long)i, r->path, r->idx_path);
    return rc;
}

/* Checks that the member after sample i does not belong to it, and that the shard ends after the
 * last sample. */
static int check_boundary(struct wds_reader *r, int64_t i, const struct wds_sample *s,
                          struct err *err)
{
    bool last = i + 1 == wds_reader_count(r);
    struct tar_entry e;
    const char *part;
    size_t n;
    int rc = tar_reader_next(r->tar, &e, last ? err : NULL);

    if (last)
        return rc == 1 ? sample_wrong(r, i, "the shard goes on after the index's end", err)
                       : in_sample(r, i, rc, err);
    if (rc == 1 && split_member(&e, &n, &part) && strlen(s->key) == n &&
        memcmp(s->key, e.name, n) == 0)
        return sample_wrong(r, i, "the index splits its files between two samples", err);
    return 0; /* damage in the next sample is reported when that one is read */
}

static int read_sample(struct wds_reader *r, int64_t i, struct wds_sample *s, struct err *err)
{
    int64_t end = r->offsets.at[i + 1], at = s->offset;
    struct tar_entry e;
    size_t cap = 0;
    int rc;

    if ((rc = tar_reader_seek(r->tar, s->offset, err)) < 0)
        return rc;
    while (at < end) {
        if ((rc = tar_reader_next(r->tar, &e, err)) < 0)
            return in_sample(r, i, rc, err);
        if (rc == 0)
            return sample_wrong(r, i, "the shard ends before the index says so", err);
        at = e.data_offset + num_round_up(e.bytes, TAR_BLOCK_BYTES);
        if ((rc = sample_add_member(r, i, s, &cap, &e, err)) < 0)
            return rc;
    }
    if (at != end)
        return sample_wrong(r, i, "the index cuts through one of its files", err);
    if (!s->key)
        return sample_wrong(r, i, "the index points at no file of a sample", err);
    return check_boundary(r, i, s, err);
}

int wds_reader_sample(struct wds_reader *r, int64_t i, struct wds_sample *out, struct err *err)
{
    struct wds_sample s = {0};
    int rc;

    if (i < 0 || i >= wds_reader_count(r))
        return err_set(err, ERR_INPUT, "'%s' has samples 0 to %lld, not %lld", r->path,
                       (long long)wds_reader_count(r) - 1, (long long)i);
    arena_reset(&r->sample);
    s.offset = r->offsets.at[i];
    s.bytes = r->offsets.at[i + 1] - s.offset;
    if ((rc = read_sample(r, i, &s, err)) < 0)
        return rc;
    *out = s;
    return 0;
}

int wds_reader_part(struct wds_reader *r, const struct wds_sample *s, const char *part,
                    struct str *out, struct err *err)
{
    char block[32 << 10];

    for (size_t k = 0; k < s->n_parts; k++) {
        const struct wds_sample_part *p = &s->parts[k];
        struct tar_entry e = {.data_offset = p->data_offset, .bytes = p->bytes};
        if (strcmp(p->name, part) != 0)
            continue;
        for (int64_t at = 0; at < p->bytes; at += (int64_t)sizeof block) {
            int64_t n = num_min_i64(p->bytes - at, (int64_t)sizeof block);
            int rc = tar_reader_read(r->tar, &e, at, n, block, err);
            if (rc < 0)
                return rc;
            str_addn(out, block, (size_t)n);
        }
        return str_check(out, err);
    }
    return err_set(err, ERR_NOT_FOUND, "'%s': sample '%s' has no part '%s'", r->path, s->key, part);
}
