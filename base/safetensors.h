/* safetensors: writes named tensors to one file in pieces, and reads them strictly
 * (huggingface.co/docs/safetensors, "Format").
 *
 * A file is 8 bytes of little-endian length n; n bytes of JSON,
 *
 *     {"__metadata__": {"key": "text"},
 *      "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [first, end]}, …}
 *
 * padded with spaces so that the data begins at a multiple of 8; then the data. Offsets count from
 * the beginning of the data. Numbers are little-endian, row major, without gaps.
 *
 *     struct safetensors_tensor t[] = {{"a.weight", "F32", 2, {2, 3}}, ...};
 *     // safetensors_create fills t[i].first and t[i].bytes
 *     safetensors_create("w.safetensors", t, n, meta, 1, &w, err);
 *     safetensors_add(w, data, bytes, err);  // data in the order of t, in pieces of any size
 *     safetensors_commit(w, err);            // publishes the whole file, or nothing
 *
 *     safetensors_open("w.safetensors", &r, err);
 *     safetensors_read(r, &r->tensors[i], first_byte, n_bytes, out, err);
 *
 * The reader refuses with ERR_CORRUPT whatever the format forbids: a header that is longer than the
 * limit or the file, or does not begin with '{'; an unknown dtype; a shape that does not match the
 * number of bytes; a duplicate name; gaps, overlaps, and bytes after the last tensor.
 */
#ifndef BASE_SAFETENSORS_H
#define BASE_SAFETENSORS_H

#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"

/* This is the longest header that the reader accepts; the format allows 100 MB. */
enum { SAFETENSORS_HEADER_BYTES = 64 << 20 };

struct safetensors_tensor {
    char name[LIMIT_NAME_BYTES];
    char dtype[8]; /* "F64" "F32" "F16" "BF16" "I64" "I32" "I16" "I8" "U64" "U32" "U16" "U8" "BOOL"
                    * "F8_E4M3" "F8_E5M2" */
    int nd;
    int64_t dim[LIMIT_DIMS];
    int64_t first, bytes; /* range of the tensor in the data */
};
struct safetensors_meta { const char *key, *value; };

int64_t safetensors_dtype_bytes(const char *dtype); /* returns 0 if the format has no such dtype */

struct safetensors_writer;
int safetensors_create(const char *path, struct safetensors_tensor *tensors, int64_t n,
                       const struct safetensors_meta *meta, int64_t n_meta,
                       struct safetensors_writer **out, struct err *err);
int safetensors_add(struct safetensors_writer *w, const void *data, int64_t bytes, struct err *err);
/* End writing: commit publishes the file, abort removes it. After a failed call of safetensors_add,
 * abort is required. Commit returns ERR_STATE if not all bytes were added; it frees the writer in
 * any case. */
int safetensors_commit(struct safetensors_writer *w, struct err *err);
void safetensors_abort(struct safetensors_writer *w);

struct safetensors_reader {
    char *path;
    int fd;
    int64_t n, data_first; /* number of tensors; offset in the file where the data begins */
    struct safetensors_tensor *tensors; /* in the order of their data */
};
int safetensors_open(const char *path, struct safetensors_reader *out, struct err *err);
void safetensors_close(struct safetensors_reader *r); /* safe on a zeroed struct */
int safetensors_read(const struct safetensors_reader *r, const struct safetensors_tensor *t,
                     int64_t first, int64_t bytes, void *out, struct err *err);

#endif
