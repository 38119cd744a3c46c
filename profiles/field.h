/* field: what the readers of our formats share beyond base/json: texts into fixed fields, hashes, places in words. */
#ifndef PROFILES_FIELD_H
#define PROFILES_FIELD_H

#include <stddef.h>

#include "base/hash.h"
#include "base/json.h"

/* Copy `text` into a field of `size` bytes, the rest zeroed; ERR_INPUT naming file and field when empty or too long. */
int field_copy_text(char *dst, size_t size, const char *text, const struct json_doc *doc, const char *path,
                    const char *field, struct err *err);
/* 32 lower-case hex digits. */
int field_read_hash(const char *text, const struct json_doc *doc, const char *path, const char *field,
                    struct hash128 *out, struct err *err);
/* "device" + "peak_flops" -> "device.peak_flops"; returns buf. */
const char *field_path(char *buf, size_t size, const char *path, const char *key);
/* Write the fields of a table from the struct at `from`, in the table's order; JSON_ANY and texts that are NULL are skipped. */
void field_write_table(struct json_out *o, const struct json_field *fields, size_t n, const void *from);
/* For a hash: fields that came later and stand at 0 are left out, so that what was hashed before they were there keeps its hash. */
void field_hash_table(struct json_out *o, const struct json_field *fields, size_t n, const void *from);

#endif
