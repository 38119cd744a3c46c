#include "base/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/num.h"

enum { LENGTH_BYTES = 8, ALIGN_BYTES = 8 };

static const struct { const char *name; int64_t bytes; } dtypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},
    {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

int64_t safetensors_dtype_bytes(const char *dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
        if (strcmp(dtypes[i].name, dtype) == 0)
            return dtypes[i].bytes;
    return 0;
}

/* Returns the number of bytes that a tensor's dtype and shape need, -1 if that exceeds 2^63 - 1. */
static int64_t shape_bytes(const struct safetensors_tensor *t)
{
    int64_t bytes = safetensors_dtype_bytes(t->dtype);
    for (int i = 0; i < t->nd; i++)
        if (!num_mul_i64(bytes, t->dim[i], &bytes))
            return -1;
    return bytes;
}

/* ---- writing ---- */

struct safetensors_writer {
    struct file_pub pub;
    int64_t left; /* bytes of data not yet added */
};

static void tensor_write(struct json_out *j, const struct safetensors_tensor *t)
{
    json_obj_begin(j, t->name);
    json_put_text(j, "dtype", t->dtype);
    json_arr_begin(j, "shape");
    for (int i = 0; i < t->nd; i++)
        json_put_int(j, NULL, t->dim[i]);
    json_arr_end(j);
    json_arr_begin(j, "data_offsets");
    json_put_int(j, NULL, t->first);
    json_put_int(j, NULL, t->first + t->bytes);
    json_arr_end(j);
    json_obj_end(j);
}

static void header_write(const struct safetensors_tensor *tensors, int64_t n,
                         const struct safetensors_meta *meta, int64_t n_meta, struct str *out)
{
    struct json_out j;
    json_out_init(&j, out, 0);
    json_obj_begin(&j, NULL);
    if (n_meta > 0) {
        json_obj_begin(&j, "__metadata__");
        for (int64_t i = 0; i < n_meta; i++)
            json_put_text(&j, meta[i].key, meta[i].value);
        json_obj_end(&j);
    }
    for (int64_t i = 0; i < n; i++)
        tensor_write(&j, &tensors[i]);
    json_obj_end(&j);
    for (size_t pad = -out->len % ALIGN_BYTES; pad > 0; pad--)
        str_addc(out, ' ');
}

static int places_set(struct safetensors_tensor *tensors, int64_t n, int64_t *total,
                      struct err *err)
{
    *total = 0;
    for (int64_t i = 0; i < n; i++) {
        tensors[i].first = *total;
        tensors[i].bytes = shape_bytes(&tensors[i]);
        if (safetensors_dtype_bytes(tensors[i].dtype) == 0)
            return err_set(err, ERR_INPUT, "tensor '%s': '%s' is no dtype of safetensors",
                           tensors[i].name, tensors[i].dtype);
        if (tensors[i].bytes < 0 || !num_add_i64(*total, tensors[i].bytes, total))
            return err_set(err, ERR_LIMIT, "tensor '%s' is too large for a file", tensors[i].name);
    }
    return 0;
}

static void length_format(uint64_t n, unsigned char out[LENGTH_BYTES])
{
    for (int i = 0; i < LENGTH_BYTES; i++)
        out[i] = (unsigned char)(n >> 8 * i);
}

/* Opens the temporary file that safetensors_commit publishes, and writes its header. */
static int header_publish(struct safetensors_writer *w, const char *path, const struct str *header,
                          struct err *err)
{
    unsigned char length[LENGTH_BYTES];
    int rc;
    length_format(header->len, length);
    if ((rc = file_pub_open(&w->pub, path, err)) < 0)
        return rc;
    if ((rc = file_pub_write(&w->pub, length, sizeof length, err)) < 0)
        goto out;
    rc = file_pub_write(&w->pub, header->p, header->len, err);
out:
    if (rc < 0)
        file_pub_abort(&w->pub);
    return rc;
}

int safetensors_create(const char *path, struct safetensors_tensor *tensors, int64_t n,
                       const struct safetensors_meta *meta, int64_t n_meta,
                       struct safetensors_writer **out, struct err *err)
{
    struct safetensors_writer *w = calloc(1, sizeof *w);
    struct str header = STR_INIT;
    int rc;
    if (!w)
        return err_set(err, ERR_NOMEM, "out of memory writing '%s'", path);
    if ((rc = places_set(tensors, n, &w->left, err)) < 0)
        goto out;
    header_write(tensors, n, meta, n_meta, &header);
    if ((rc = str_check(&header, err)) < 0)
        goto out;
    if ((rc = header_publish(w, path, &header, err)) < 0)
        goto out;
    *out = w;
    w = NULL; /* the caller owns it now */
out:
    free(w);
    str_release(&header);
    return rc;
}

int safetensors_add(struct safetensors_writer *w, const void *data, int64_t bytes, struct err *err)
{
    BUG_ON(bytes > w->left);
    w->left -= bytes;
    return file_pub_write(&w->pub, data, (size_t)bytes, err);
}

int safetensors_commit(struct safetensors_writer *w, struct err *err)
{
    if (w->left > 0) {
        int rc = err_set(err, ERR_STATE, "'%s' lacks %lld bytes of its tensors", w->pub.path,
                         (long long)w->left);
        safetensors_abort(w);
        return rc;
    }
    int rc = file_pub_commit(&w->pub, err);
    if (rc < 0)
        file_pub_abort(&w->pub);
    free(w);
    return rc;
}

void safetensors_abort(struct safetensors_writer *w)
{
    file_pub_abort(&w->pub);
    free(w);
}

/* ---- reading ---- */

static int bytes_read(int fd, const char *path, int64_t offset, int64_t bytes, void *out,
                      struct err *err)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)out + done, (size_t)(bytes - done), offset + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? err_set_errno(err, ERR_IO, "cannot read '%s'", path)
                         : err_set(err, ERR_CORRUPT, "'%s' is too short", path);
        done += n;
    }
    return 0;
}

/* Reads an array of at most `most` whole numbers from 0 to 2^53, which JSON represents exactly.
 * Returns its length, or -1. */
static int numbers_read(const cJSON *list, int most, int64_t *out)
{
    const cJSON *item;
    int n = 0;
    if (!cJSON_IsArray(list))
        return -1;
    cJSON_ArrayForEach(item, list) {
        double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (n == most || v < 0 || v > 0x1p53 || v != floor(v))
            return -1;
        out[n++] = (int64_t)v;
    }
    return n;
}

static int tensor_read(const struct json_doc *doc, const cJSON *item, struct safetensors_tensor *t,
                       struct err *err)
{
    const char *dtype = json_text(item, "dtype", "");
    int64_t range[2];
    if (strlen(item->string) >= sizeof t->name || cJSON_GetArraySize(item) != 3)
        return err_set(err, ERR_CORRUPT,
                       "%s: '%.40s' is no tensor of dtype, shape and data_offsets", doc->name,
                       item->string);
    snprintf(t->name, sizeof t->name, "%s", item->string);
    if (safetensors_dtype_bytes(dtype) == 0)
        return err_set(err, ERR_CORRUPT, "%s: %s.dtype '%.20s' is none that is known", doc->name,
                       t->name, dtype);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    if ((t->nd = numbers_read(json_member(item, "shape"), LIMIT_DIMS, t->dim)) < 0)
        return err_set(err, ERR_CORRUPT, "%s: %s.shape is not one of up to %d dimensions",
                       doc->name, t->name, LIMIT_DIMS);
    if (numbers_read(json_member(item, "data_offsets"), 2, range) != 2 || range[1] < range[0])
        return err_set(err, ERR_CORRUPT, "%s: %s.data_offsets is not a first and an end", doc->name,
                       t->name);
    t->first = range[0], t->bytes = range[1] - range[0];
    if (t->bytes != shape_bytes(t))
        return err_set(err, ERR_CORRUPT, "%s: %s has %lld bytes, its shape asks for %lld",
                       doc->name, t->name, (long long)t->bytes, (long long)shape_bytes(t));
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    /* An empty tensor sorts before the tensor that begins at the same offset. */
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int places_check(const struct json_doc *doc, const struct safetensors_reader *r,
                        int64_t data_bytes, struct err *err)
{
    int64_t next = 0;
    for (int64_t i = 0; i < r->n; next += r->tensors[i++].bytes)
        if (r->tensors[i].first != next)
            return err_set(err, ERR_CORRUPT,
                           "%s: %s begins at byte %lld of the data, the tensor before it ends at "
                           "%lld",
                           doc->name, r->tensors[i].name, (long long)r->tensors[i].first,
                           (long long)next);
    if (next != data_bytes)
        return err_set(err, ERR_CORRUPT, "%s: the tensors have %lld bytes, the file %lld",
                       doc->name, (long long)next, (long long)data_bytes);
    return 0;
}

static int meta_check(const struct json_doc *doc, const cJSON *meta, struct err *err)
{
    const cJSON *item;
    bool texts = cJSON_IsObject(meta);
    cJSON_ArrayForEach(item, meta)
        texts = texts && cJSON_IsString(item);
    return texts
               ? 0
               : err_set(err, ERR_CORRUPT, "%s: __metadata__ is not an object of texts", doc->name);
}

static int header_read(const struct json_doc *doc, struct safetensors_reader *r, struct err *err)
{
    const cJSON *item;
    int rc = 0;
    if (!(r->tensors = calloc((size_t)cJSON_GetArraySize(doc->root) + 1, sizeof *r->tensors)))
        return err_set(err, ERR_NOMEM, "out of memory reading '%s'", doc->name);
    cJSON_ArrayForEach(item, doc->root) {
        rc = strcmp(item->string, "__metadata__") == 0
                 ? meta_check(doc, item, err)
                 : tensor_read(doc, item, &r->tensors[r->n++], err);
        if (rc < 0)
            return rc;
    }
    qsort(r->tensors, (size_t)r->n, sizeof *r->tensors, by_place);
    return 0;
}

/* Reads the header's length. */
static int header_length(struct safetensors_reader *r, int64_t file_bytes, int64_t *out,
                         struct err *err)
{
    unsigned char raw[LENGTH_BYTES];
    uint64_t n = 0;
    int rc;
    if ((rc = bytes_read(r->fd, r->path, 0, LENGTH_BYTES, raw, err)) < 0)
        return rc;
    for (int i = 0; i < LENGTH_BYTES; i++)
        n |= (uint64_t)raw[i] << 8 * i;
    if (n < 2 || n > SAFETENSORS_HEADER_BYTES || (int64_t)n > file_bytes - LENGTH_BYTES)
        return err_set(err, ERR_CORRUPT,
                       "'%s': a header of %llu bytes does not fit (file of %lld bytes, at most "
                       "%d)",
                       r->path, (unsigned long long)n, (long long)file_bytes,
                       SAFETENSORS_HEADER_BYTES);
    *out = (int64_t)n;
    return 0;
}

/* Loads the header's text, and sets r->data_first. */
static int header_load(struct safetensors_reader *r, int64_t file_bytes, struct str *text,
                       struct err *err)
{
    int64_t n = 0;
    int rc;
    if ((rc = header_length(r, file_bytes, &n, err)) < 0)
        return rc;
    char *buf = malloc((size_t)n);
    if (!buf)
        return err_set(err, ERR_NOMEM, "out of memory reading '%s'", r->path);
    if ((rc = bytes_read(r->fd, r->path, LENGTH_BYTES, n, buf, err)) < 0)
        goto out;
    str_addn(text, buf, (size_t)n), r->data_first = LENGTH_BYTES + n;
    if ((rc = str_check(text, err)) < 0)
        goto out;
    if (buf[0] != '{')
        rc = err_set(err, ERR_CORRUPT,
                     "'%s': its header does not begin with '{': it is not a safetensors file",
                     r->path);
out:
    free(buf);
    return rc;
}

static int text_parse(struct safetensors_reader *r, const struct str *text, int64_t file_bytes,
                      struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = json_parse(text->p, text->len, r->path, &doc, err)) < 0)
        return rc == ERR_INPUT ? (err->code = ERR_CORRUPT) : rc;
    if ((rc = header_read(&doc, r, err)) < 0)
        goto out;
    rc = places_check(&doc, r, file_bytes - r->data_first, err);
out:
    json_release(&doc);
    return rc;
}

static int file_read_in(struct safetensors_reader *r, const char *path, struct err *err)
{
    struct str text = STR_INIT;
    struct stat st;
    int rc;
    /* O_NONBLOCK: open must not wait for a pipe's writer. */
    if ((r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0 || fstat(r->fd, &st) < 0)
        return err_set_errno(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "cannot read '%s'",
                             path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return err_set(err, ERR_INPUT, "'%s' is a pipe or a device: give a file", path);
    if ((rc = header_load(r, st.st_size, &text, err)) < 0)
        goto out;
    rc = text_parse(r, &text, st.st_size, err);
out:
    str_release(&text);
    return rc;
}

int safetensors_open(const char *path, struct safetensors_reader *out, struct err *err)
{
    struct safetensors_reader r = {.path = strdup(path), .fd = -1};
    int rc;
    if (!r.path)
        return err_set(err, ERR_NOMEM, "out of memory reading '%s'", path);
    if ((rc = file_read_in(&r, path, err)) < 0)
        safetensors_close(&r);
    else
        *out = r;
    return rc;
}

void safetensors_close(struct safetensors_reader *r)
{
    if (r->path && r->fd >= 0)
        close(r->fd);
    free(r->path);
    free(r->tensors);
    *r = (struct safetensors_reader){0};
}

int safetensors_read(const struct safetensors_reader *r, const struct safetensors_tensor *t,
                     int64_t first, int64_t bytes, void *out, struct err *err)
{
    BUG_ON(first < 0 || bytes < 0 || bytes > t->bytes - first);
    return bytes_read(r->fd, r->path, r->data_first + t->first + first, bytes, out, err);
}
