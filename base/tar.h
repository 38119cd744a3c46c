/* tar: writes archives whose bytes depend on names and content only, and reads archives of other
 * programs.
 *
 * The writer writes POSIX ustar with integer mtime 0, uid/gid 0, mode 0444 and plain headers, and
 * ends with two zero blocks. A name that ustar cannot hold (over 100 bytes and without a slash at
 * which it can be split, or over 256 in all) and a size of 8 GiB or more are errors. The reader
 * reads ustar, pax x/g (path, size), GNU L/K and base-256 sizes, and checks the header checksums.
 */
#ifndef BASE_TAR_H
#define BASE_TAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"

enum { TAR_BLOCK_BYTES = 512 };

struct tar_writer {
    struct file_pub pub;      /* published atomically by tar_writer_commit */
    struct hash_stream *hash; /* hash of the bytes written so far */
};
int tar_writer_open(struct tar_writer *w, const char *path, struct err *err);
int tar_writer_add(struct tar_writer *w, const char *name, const void *bytes, int64_t n,
                   struct err *err);
int64_t tar_writer_offset(const struct tar_writer *w); /* the offset of the next header */
/* Holds the size and the hash of a whole archive; hash is what hash_file() would return. */
struct tar_written { int64_t bytes; struct hash128 hash; };
/* Publishes the archive; out may be NULL. */
int tar_writer_commit(struct tar_writer *w, struct tar_written *out, struct err *err);
void tar_writer_abort(struct tar_writer *w);

struct tar_entry {
    char *name; /* full path in the archive; borrowed from the reader until the next call */
    int64_t header_offset; /* offset of the first header, which may be an extension header */
    int64_t data_offset, bytes;
    bool regular;
};
struct tar_reader;
int tar_reader_open(const char *path, struct tar_reader **out, struct err *err);
/* Reads the next entry. Returns 1, 0 at the end of the archive, <0 on failure. */
int tar_reader_next(struct tar_reader *r, struct tar_entry *out, struct err *err);
/* Continues at the offset of a header, taken from an entry or an index. pax g headers that are
 * skipped by this have no effect. */
int tar_reader_seek(struct tar_reader *r, int64_t header_offset, struct err *err);
/* Reads payload bytes [from, from+n) of an entry. */
int tar_reader_read(struct tar_reader *r, const struct tar_entry *e, int64_t from, int64_t n,
                    void *out, struct err *err);
/* Returns the offset of the first zero block; -1 before the reader has reached the end. */
int64_t tar_reader_end(const struct tar_reader *r);
void tar_reader_close(struct tar_reader *r);

#endif
