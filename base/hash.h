/* hash: computes XXH3 checksums and content hashes (xxHash library). They detect accidental damage,
 * not malicious changes. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { HASH_TEXT_BYTES = 33 };
struct hash128 { uint64_t hi, lo; };

uint64_t hash_64(const void *bytes, size_t n);
struct hash128 hash_128(const void *bytes, size_t n);
char *hash_format(struct hash128 h, char buf[HASH_TEXT_BYTES]);
int hash_file(const char *path, struct hash128 *out, struct err *err);

/* Computes a hash of data that is added in pieces. */
struct hash_stream;
struct hash_stream *hash_stream_new(void); /* NULL when out of memory */
void hash_stream_free(struct hash_stream *h);
void hash_stream_add(struct hash_stream *h, const void *bytes, size_t n);
struct hash128 hash_stream_128(const struct hash_stream *h);

#endif
