/* field: adds to base/json what our formats need: texts of fixed size, hashes, writing by a table
 * of fields, and names for places in a file. */
#ifndef PROFILES_FIELD_H
#define PROFILES_FIELD_H

#include <stddef.h>

#include "base/hash.h"
#include "base/json.h"

/* Copies `text` into a field of `size` bytes and zeroes the rest. When it is empty or too long,
 * ERR_INPUT names file and field. */
int field_copy_text(char *dst, size_t size, const char *text, const struct json_doc *doc,
                    const char *path, const char *field, struct err *err);
/* Reads a hash of 32 lower-case hex digits. */
int field_read_hash(const char *text, const struct json_doc *doc, const char *path,
                    const char *field, struct hash128 *out, struct err *err);
/* Joins "device" and "peak_flops" to "device.peak_flops"; returns buf. */
const char *field_path(char *buf, size_t size, const char *path, const char *key);
/* Writes the fields of a table from the struct at `from`, in the table's order. Skips JSON_ANY and
 * texts that are NULL. */
void field_write_table(struct json_out *o, const struct json_field *fields, size_t n,
                       const void *from);
/* Writes what field_write_table writes, for a hash: it leaves out fields that were added later
 * (`later`) and have the value 0. So a file that was hashed before those fields existed keeps its
 * hash. */
void field_hash_table(struct json_out *o, const struct json_field *fields, size_t n,
                      const void *from);

#endif
