/* dump: named float64 tensors and texts in one file of the safetensors format, for a reference in
 * another language to read.
 *
 * The format is eight bytes of header length, a JSON header {"name": {"dtype", "shape",
 * "data_offsets"}, "__metadata__": {text: text}}, and the data (huggingface.co/docs/safetensors).
 * Names and texts are plain: no quotes, no backslashes. What a case takes is named "in/...", what
 * the trainer made of it "out/...".
 *
 *     struct dump d = {0};
 *     dump_text(&d, "heads", "%d", 2);
 *     dump_tensor(&d, "in/q", q, 2, (int64_t[]){5, 8});  // copied
 *     dump_save(&d, dir, "case"); // DIR/case.safetensors; also releases; no file is a failed run
 */
#ifndef TESTS_PEERS_DUMP_H
#define TESTS_PEERS_DUMP_H

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DUMP_TENSORS = 512, DUMP_TEXTS = 64, DUMP_NAME_BYTES = 160, DUMP_TEXT_BYTES = 256, DUMP_DIMS = 4
};

struct dump_item {
    char name[DUMP_NAME_BYTES];
    int nd;
    int64_t dim[DUMP_DIMS], n;
    double *data;
};
struct dump {
    struct dump_item items[DUMP_TENSORS];
    struct { char key[DUMP_NAME_BYTES], value[DUMP_TEXT_BYTES]; } texts[DUMP_TEXTS];
    int n, n_texts;
};

static inline void dump_fail(const char *what, const char *name)
{
    fprintf(stderr, "dump: %s: %s\n", what, name);
    exit(1);
}

__attribute__((format(printf, 3, 4))) static inline void dump_text(struct dump *d, const char *key,
                                                                   const char *fmt, ...)
{
    va_list ap;
    if (d->n_texts == DUMP_TEXTS)
        dump_fail("too many texts", key);
    snprintf(d->texts[d->n_texts].key, DUMP_NAME_BYTES, "%s", key);
    va_start(ap, fmt);
    int bytes = vsnprintf(d->texts[d->n_texts++].value, DUMP_TEXT_BYTES, fmt, ap);
    va_end(ap);
    if (bytes < 0 || bytes >= DUMP_TEXT_BYTES)
        dump_fail("too long a text", key);
}

static inline void dump_tensor(struct dump *d, const char *name, const double *data, int nd,
                               const int64_t *dim)
{
    if (d->n == DUMP_TENSORS || nd > DUMP_DIMS)
        dump_fail("too many tensors or dimensions", name);
    struct dump_item *x = &d->items[d->n++];
    snprintf(x->name, sizeof x->name, "%s", name);
    x->nd = nd;
    x->n = 1;
    for (int i = 0; i < nd; i++)
        x->n *= x->dim[i] = dim[i];
    x->data = malloc((size_t)(x->n ? x->n : 1) * sizeof *x->data);
    if (!x->data)
        dump_fail("no memory", name);
    memcpy(x->data, data, (size_t)x->n * sizeof *x->data);
}

static inline void dump_matrix(struct dump *d, const char *name, const double *data, int64_t rows,
                               int64_t cols)
{
    dump_tensor(d, name, data, 2, (int64_t[]){rows, cols});
}

static inline void dump_vector(struct dump *d, const char *name, const double *data, int64_t n)
{
    dump_tensor(d, name, data, 1, &n);
}

static inline void dump_number(struct dump *d, const char *name, double value)
{
    dump_tensor(d, name, &value, 0, NULL);
}

static inline void dump_i32(struct dump *d, const char *name, const int32_t *data, int64_t n)
{
    double *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    if (!x)
        dump_fail("no memory", name);
    for (int64_t i = 0; i < n; i++)
        x[i] = data[i];
    dump_vector(d, name, x, n);
    free(x);
}

static inline void dump_header(const struct dump *d, FILE *f)
{
    int64_t at = 0;
    fprintf(f, "{\"__metadata__\":{");
    for (int i = 0; i < d->n_texts; i++)
        fprintf(f, "%s\"%s\":\"%s\"", i ? "," : "", d->texts[i].key, d->texts[i].value);
    fputc('}', f);
    for (int i = 0; i < d->n; i++) {
        const struct dump_item *x = &d->items[i];
        fprintf(f, ",\"%s\":{\"dtype\":\"F64\",\"shape\":[", x->name);
        for (int k = 0; k < x->nd; k++)
            fprintf(f, "%s%" PRId64, k ? "," : "", x->dim[k]);
        fprintf(f, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, at + 8 * x->n);
        at += 8 * x->n;
    }
    fputc('}', f);
}

static inline void dump_save(struct dump *d, const char *dir, const char *name)
{
    char path[4096], *header = NULL;
    size_t bytes = 0;
    FILE *text = open_memstream(&header, &bytes);
    if (!text)
        dump_fail("no memory", name);
    dump_header(d, text);
    fclose(text);
    snprintf(path, sizeof path, "%s/%s.safetensors", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f)
        dump_fail(strerror(errno), path);
    uint64_t length = bytes;
    fwrite(&length, sizeof length, 1, f);
    fwrite(header, 1, bytes, f);
    for (int i = 0; i < d->n; i++) {
        fwrite(d->items[i].data, sizeof(double), (size_t)d->items[i].n, f);
        free(d->items[i].data);
    }
    if (fflush(f) != 0 || ferror(f) || fclose(f) != 0)
        dump_fail("write failed", path);
    free(header);
    d->n = d->n_texts = 0;
}

#endif
