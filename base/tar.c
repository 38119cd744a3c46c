/* What is written
 *
 * The writer writes POSIX.1-1988 ustar (IEEE Std 1003.1, pax, "ustar Interchange Format"): one
 * header and the payload padded to 512 bytes per file, then two zero blocks, and no padding to a
 * record of 10,240. The bytes equal those of
 *
 *     tar --format=ustar -b1 --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=0444
 *
 * A name over 100 bytes is split at the first slash that leaves at most 100 bytes after it, as
 * Python's tarfile does.
 *
 * What is read
 *
 * The reader accepts archives of other programs too: pax extended headers x (path, size; Python
 * adds one per file for a fractional mtime) and g, GNU long names L and long links K, sizes in base
 * 256, header checksums over signed chars. Sparse files of pax archives are listed as not regular,
 * since their payload is not the content of the file; those of the old GNU format are refused. Any
 * other violation of the format is ERR_CORRUPT with its offset; the reader does not guess.
 */
#include "base/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/num.h"

/* An extension header may have 1 MiB, which is far more than any path needs. */
enum { NAME_BYTES = 100, PREFIX_BYTES = 155, EXTENSION_BYTES = 1 << 20 };
static const int64_t USTAR_SIZE_END = INT64_C(1) << 33; /* 11 octal digits */

struct header {
    char name[NAME_BYTES], mode[8], uid[8], gid[8], size[12], mtime[12], chksum[8], typeflag,
        linkname[100];
    char magic[6], version[2], uname[32], gname[32], devmajor[8], devminor[8], prefix[PREFIX_BYTES],
        pad[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK_BYTES, "a tar header is one block");

static int64_t padded(int64_t n)
{
    return num_round_up(n, TAR_BLOCK_BYTES);
}

/* Computes the checksum: the sum of all bytes, with the checksum field itself as spaces. Computes
 * the same sum over signed chars too, as some historic writers do. */
static void header_sums(const struct header *h, long *unsigned_sum, long *signed_sum)
{
    const unsigned char *p = (const unsigned char *)h;
    size_t from = offsetof(struct header, chksum), end = from + sizeof h->chksum;

    *unsigned_sum = *signed_sum = 0;
    for (size_t i = 0; i < sizeof *h; i++) {
        unsigned char c = i >= from && i < end ? ' ' : p[i];
        *unsigned_sum += c;
        *signed_sum += (signed char)c;
    }
}

/* ---- writing ---- */

int tar_writer_open(struct tar_writer *w, const char *path, struct err *err)
{
    *w = (struct tar_writer){.hash = hash_stream_new()};
    if (!w->hash)
        return err_set(err, ERR_NOMEM, "out of memory while opening '%s'", path);
    int rc = file_pub_open(&w->pub, path, err);
    if (rc < 0)
        hash_stream_free(w->hash);
    return rc;
}

static int put(struct tar_writer *w, const void *bytes, int64_t n, struct err *err)
{
    hash_stream_add(w->hash, bytes, (size_t)n);
    return file_pub_write(&w->pub, bytes, (size_t)n, err);
}

/* Checks that unpacking a name gives one file below the folder where the archive is unpacked. */
static int check_name(const char *name, const char *archive, struct err *err)
{
    size_t n;

    if (name[0] == '\0' || name[0] == '/')
        return err_set(err, ERR_INPUT, "'%s': file name '%s': give a relative path", archive, name);
    for (const char *p = name; *p; p += n + (p[n] == '/')) {
        n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.') ||
            (p[n] == '/' && !p[n + 1]))
            return err_set(err, ERR_INPUT,
                           "'%s': file name '%s': empty, '.' and '..' parts are not allowed",
                           archive, name);
    }
    return 0;
}

/* Splits a name over the header's two fields. It uses memcpy because a field that is full has no
 * terminator. */
static int split_name(struct header *h, const char *name, const char *archive, struct err *err)
{
    size_t n = strlen(name);

    if (n <= NAME_BYTES) {
        memcpy(h->name, name, n);
        return 0;
    }
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t head = (size_t)(slash - name), rest = n - head - 1;
        if (head > PREFIX_BYTES)
            break;
        if (rest > NAME_BYTES)
            continue;
        memcpy(h->prefix, name, head);
        memcpy(h->name, slash + 1, rest);
        return 0;
    }
    return err_set(err, ERR_LIMIT,
                   "'%s': file name '%s' does not fit a ustar header: at most 100 bytes after a "
                   "slash and 155 before it",
                   archive, name);
}

static int fill_header(struct header *h, const char *name, int64_t n, const char *archive,
                       struct err *err)
{
    long sum, unused;
    int rc;

    memset(h, 0, sizeof *h);
    if ((rc = check_name(name, archive, err)) < 0)
        return rc;
    if ((rc = split_name(h, name, archive, err)) < 0)
        return rc;
    if (n < 0 || n >= USTAR_SIZE_END)
        return err_set(err, ERR_LIMIT,
                       "'%s': file '%s' has %lld bytes: a ustar header holds less than 8 GiB",
                       archive, name, (long long)n);
    memcpy(h->mode, "0000444", 8);
    memcpy(h->uid, "0000000", 8);
    memcpy(h->gid, "0000000", 8);
    snprintf(h->size, sizeof h->size, "%011llo", (unsigned long long)n);
    memcpy(h->mtime, "00000000000", 12);
    h->typeflag = '0';
    memcpy(h->magic, "ustar", 6);
    memcpy(h->version, "00", 2);
    memcpy(h->devmajor, "0000000", 8);
    memcpy(h->devminor, "0000000", 8);
    header_sums(h, &sum, &unused);
    /* 512 * 255 has 6 digits. */
    snprintf(h->chksum, sizeof h->chksum, "%06o", (unsigned)sum & 0777777);
    h->chksum[7] = ' ';
    return 0;
}

int tar_writer_add(struct tar_writer *w, const char *name, const void *bytes, int64_t n,
                   struct err *err)
{
    static const char zeros[TAR_BLOCK_BYTES];
    struct header h;
    int rc;

    if ((rc = fill_header(&h, name, n, w->pub.path, err)) < 0)
        return rc;
    if ((rc = put(w, &h, sizeof h, err)) < 0)
        return rc;
    if ((rc = put(w, bytes, n, err)) < 0)
        return rc;
    return put(w, zeros, padded(n) - n, err);
}

int64_t tar_writer_offset(const struct tar_writer *w)
{
    return w->pub.bytes;
}

int tar_writer_commit(struct tar_writer *w, struct tar_written *out, struct err *err)
{
    static const char end[2 * TAR_BLOCK_BYTES];
    int rc = put(w, end, sizeof end, err);

    if (rc < 0) {
        tar_writer_abort(w);
        return rc;
    }
    if (out)
        *out = (struct tar_written){w->pub.bytes, hash_stream_128(w->hash)};
    hash_stream_free(w->hash);
    w->hash = NULL;
    return file_pub_commit(&w->pub, err);
}

void tar_writer_abort(struct tar_writer *w)
{
    hash_stream_free(w->hash);
    w->hash = NULL;
    file_pub_abort(&w->pub);
}

/* ---- reading ---- */

struct tar_reader {
    char *path;
    int fd;
    /* next is the offset of the next header. end is the offset of the first zero block, -1 before
     * the reader has seen it. */
    int64_t file_bytes, next, end;
    char *name;                    /* name of the last entry returned */
    char *global_path;             /* path from a pax g header; NULL if there was none */
};

/* An extension holds the values that extension headers give for the next file. */
struct extension {
    char *path;   /* NULL: not given */
    int64_t size; /* -1: not given */
    bool sparse;
    int64_t first_header; /* -1: none seen */
};

static int corrupt(const struct tar_reader *r, int64_t offset, const char *what, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "'%s': at byte %lld: %s: make or copy the archive again",
                   r->path, (long long)offset, what);
}

static int no_memory(const struct tar_reader *r, struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while reading '%s'", r->path);
}

/* Reads n bytes at `offset`. ERR_CORRUPT if the file has fewer. */
static int read_at(const struct tar_reader *r, int64_t offset, void *out, int64_t n,
                   struct err *err)
{
    char *p = out;

    while (n > 0) {
        ssize_t k = pread(r->fd, p, (size_t)n, offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_set_errno(err, ERR_IO, "cannot read '%s'", r->path);
        if (k == 0)
            return corrupt(r, offset, "the archive ends too early", err);
        p += k;
        n -= k;
        offset += k;
    }
    return 0;
}

int tar_reader_open(const char *path, struct tar_reader **out, struct err *err)
{
    struct tar_reader *r = calloc(1, sizeof *r);
    struct stat st;
    int rc = 0;

    if (!r)
        return err_set(err, ERR_NOMEM, "out of memory while opening '%s'", path);
    r->end = -1;
    r->path = strdup(path);
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0 || fstat(r->fd, &st) < 0)
        rc = err_set_errno(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO,
                           "cannot open archive '%s'", path);
    else if (!r->path)
        rc = err_set(err, ERR_NOMEM, "out of memory while opening '%s'", path);
    if (rc < 0) {
        tar_reader_close(r);
        return rc;
    }
    r->file_bytes = st.st_size;
    *out = r;
    return 0;
}

void tar_reader_close(struct tar_reader *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->name);
    free(r->global_path);
    free(r->path);
    free(r);
}

/* Parses a number: octal digits with leading blanks, ended by a blank, a zero byte or the field's
 * end; or base 256 (first byte 0x80). */
static bool parse_number(const char *field, size_t size, int64_t *out)
{
    const unsigned char *p = (const unsigned char *)field;
    uint64_t value = 0;
    size_t i = 0;

    if (p[0] & 0x80) {
        for (i = 0; i < size; i++) {
            unsigned char c = i ? p[i] : p[0] & 0x7f;
            if (value >> 55 != 0 || (i == 0 && c != 0))
                return false;
            value = value << 8 | c;
        }
        *out = (int64_t)value;
        return true;
    }
    while (i < size && p[i] == ' ')
        i++;
    if (i == size || p[i] < '0' || p[i] > '7')
        return false;
    for (; i < size && p[i] >= '0' && p[i] <= '7'; i++)
        value = value << 3 | (p[i] - '0'); /* at most 12 digits, 36 bits */
    *out = (int64_t)value;
    return i == size || p[i] == ' ' || p[i] == '\0';
}

static bool is_zero(const struct header *h)
{
    const char *p = (const char *)h;

    return p[0] == 0 && memcmp(p, p + 1, sizeof *h - 1) == 0;
}

/* Reads a header. Returns 1 if it is valid, 0 if it is the zero block that ends the archive. */
static int read_header(struct tar_reader *r, struct header *h, struct err *err)
{
    long unsigned_sum, signed_sum;
    int64_t stored;
    int rc;

    if (r->next >= r->file_bytes)
        return corrupt(r, r->next, "the archive ends without its closing zero blocks", err);
    rc = read_at(r, r->next, h, sizeof *h, err);
    if (rc < 0)
        return rc;
    if (is_zero(h)) {
        r->end = r->next;
        return 0;
    }
    header_sums(h, &unsigned_sum, &signed_sum);
    if (!parse_number(h->chksum, sizeof h->chksum, &stored) ||
        (stored != unsigned_sum && stored != signed_sum))
        return corrupt(r, r->next, "bad header checksum", err);
    return 1;
}

/* Reads the payload of an extension header as a string of *n bytes and a terminator. The caller
 * frees *text. */
static int read_extension(struct tar_reader *r, const struct header *h, char **text, int64_t *n,
                          struct err *err)
{
    int rc;

    if (!parse_number(h->size, sizeof h->size, n) || *n > EXTENSION_BYTES)
        return corrupt(r, r->next, "bad size of an extension header", err);
    *text = malloc((size_t)*n + 1);
    if (!*text)
        return no_memory(r, err);
    rc = read_at(r, r->next + TAR_BLOCK_BYTES, *text, *n, err);
    if (rc < 0)
        free(*text);
    else
        (*text)[*n] = '\0';
    return rc;
}

static int set_text(const struct tar_reader *r, char **to, const char *text, size_t n,
                    struct err *err)
{
    char *copy = strndup(text, n);

    if (!copy)
        return no_memory(r, err);
    free(*to);
    *to = copy;
    return 0;
}

static int apply_pax(struct tar_reader *r, const char *key, const char *value, size_t n,
                     struct extension *x, struct err *err)
{
    if (strcmp(key, "path") == 0)
        return set_text(r, &x->path, value, n, err);
    if (strcmp(key, "size") == 0) {
        char *end;
        errno = 0;
        x->size = strtoll(value, &end, 10);
        if (errno || end != value + n || end == value || x->size < 0)
            return corrupt(r, r->next, "bad size in a pax header", err);
    }
    if (strncmp(key, "GNU.sparse.", 11) == 0)
        x->sparse = true;
    return 0;
}

/* Parses records "<length> <key>=<value>\n", where the length counts the whole record. Modifies the
 * text. */
static int parse_pax(struct tar_reader *r, char *text, int64_t n, struct extension *x,
                     struct err *err)
{
    char *p = text, *end = text + n;

    while (p < end) {
        char *after, *equals;
        long len = strtol(p, &after, 10);
        if (after == p || *after != ' ' || len <= after + 1 - p || len > end - p ||
            p[len - 1] != '\n')
            return corrupt(r, r->next, "bad record in a pax header", err);
        equals = memchr(after + 1, '=', (size_t)(p + len - after - 1));
        if (!equals)
            return corrupt(r, r->next, "bad record in a pax header", err);
        *equals = p[len - 1] = '\0';
        int rc = apply_pax(r, after + 1, equals + 1, (size_t)(p + len - 1 - (equals + 1)), x, err);
        if (rc < 0)
            return rc;
        p += len;
    }
    return 0;
}

/* Applies an x, g, L or K header and moves past it. A g header does not belong to the file after
 * it, so it is not that file's first header (as in Python's tarfile). */
static int take_extension(struct tar_reader *r, const struct header *h, struct extension *x,
                          struct err *err)
{
    struct extension global = {.size = -1};
    char *text;
    int64_t n;
    int rc = read_extension(r, h, &text, &n, err);

    if (rc < 0)
        return rc;
    if (h->typeflag == 'x' || h->typeflag == 'X')
        rc = parse_pax(r, text, n, x, err);
    else if (h->typeflag == 'g')
        rc = parse_pax(r, text, n, &global, err);
    else if (h->typeflag == 'L')
        rc = set_text(r, &x->path, text, (size_t)n, err);
    free(text);
    if (rc < 0 || !global.path)
        goto out;
    rc = set_text(r, &r->global_path, global.path, strlen(global.path), err);
out:
    free(global.path);
    if (h->typeflag != 'g' && x->first_header < 0)
        x->first_header = r->next;
    r->next += TAR_BLOCK_BYTES + padded(n);
    return rc;
}

/* Reads the name in the header itself. Only ustar headers have a prefix field; old GNU headers
 * store other values there. */
static int header_name(const struct tar_reader *r, const struct header *h, char **out,
                       struct err *err)
{
    bool has_prefix = memcmp(h->magic, "ustar", 6) == 0 && h->prefix[0];

    if (asprintf(out, "%.*s%s%.*s", has_prefix ? PREFIX_BYTES : 0, h->prefix, has_prefix ? "/" : "",
                 NAME_BYTES, h->name) < 0)
        return no_memory(r, err);
    return 0;
}

static int fill_entry(struct tar_reader *r, const struct header *h, struct extension *x,
                      struct tar_entry *out, struct err *err)
{
    bool file = h->typeflag == '0' || h->typeflag == '\0' || h->typeflag == '7';
    const char *path = x->path ? x->path : r->global_path;
    int64_t bytes, data = r->next + TAR_BLOCK_BYTES;
    char *name;
    size_t len;
    int rc;

    if (h->typeflag == 'S') /* its payload begins with a map that only GNU tar reads */
        return err_set(err, ERR_INPUT,
                       "'%s': at byte %lld: an old GNU sparse file: make the archive without "
                       "--sparse",
                       r->path, (long long)r->next);
    if (!parse_number(h->size, sizeof h->size, &bytes))
        return corrupt(r, r->next, "bad file size", err);
    bytes = x->size >= 0 ? x->size : bytes;
    if (!file && h->typeflag >= '1' && h->typeflag <= '6')
        bytes = 0; /* links, devices and folders have no payload, even if the size field is not 0 */
    if (bytes > r->file_bytes - data || padded(bytes) > r->file_bytes - data)
        return corrupt(r, r->next, "a file's payload reaches beyond the end of the archive", err);
    rc = path ? set_text(r, &r->name, path, strlen(path), err) : header_name(r, h, &name, err);
    if (rc < 0)
        return rc;
    if (!path) {
        free(r->name);
        r->name = name;
    }
    len = strlen(r->name);
    *out = (struct tar_entry){.name = r->name,
                              .header_offset = x->first_header >= 0 ? x->first_header : r->next,
                              .data_offset = data,
                              .bytes = bytes,
                              .regular = file && !x->sparse && len > 0 && r->name[len - 1] != '/'};
    r->next = data + padded(bytes);
    return 0;
}

int tar_reader_next(struct tar_reader *r, struct tar_entry *out, struct err *err)
{
    struct extension x = {.size = -1, .first_header = -1};
    struct header h;
    int rc;

    if (r->end >= 0)
        return 0;
    while ((rc = read_header(r, &h, err)) == 1) {
        if (strchr("xXgLK", h.typeflag) == NULL || h.typeflag == '\0') {
            rc = fill_entry(r, &h, &x, out, err);
            rc = rc < 0 ? rc : 1;
            break;
        }
        rc = take_extension(r, &h, &x, err);
        if (rc < 0)
            break;
    }
    if (rc == 0 && x.first_header >= 0) /* the archive has ended */
        rc = corrupt(r, x.first_header, "an extension header with no file after it", err);
    free(x.path);
    return rc;
}

int tar_reader_seek(struct tar_reader *r, int64_t header_offset, struct err *err)
{
    if (header_offset < 0 || header_offset % TAR_BLOCK_BYTES != 0 || header_offset >= r->file_bytes)
        return err_set(err, ERR_INPUT, "'%s' has no header at byte %lld", r->path,
                       (long long)header_offset);
    r->next = header_offset;
    r->end = -1;
    return 0;
}

int tar_reader_read(struct tar_reader *r, const struct tar_entry *e, int64_t from, int64_t n,
                    void *out, struct err *err)
{
    if (from < 0 || n < 0 || from > e->bytes || n > e->bytes - from)
        return err_set(err, ERR_INPUT, "'%s': bytes %lld..%lld asked of a file of %lld bytes",
                       r->path, (long long)from, (long long)from + (long long)n,
                       (long long)e->bytes);
    return read_at(r, e->data_offset + from, out, n, err);
}

int64_t tar_reader_end(const struct tar_reader *r)
{
    return r->end;
}
