/* content: the hash of what a source file holds, and whether the file still holds that.
 *
 * Time passes between hashing a file and decoding it. A file that is written to or replaced
 * meanwhile would give clips under the hash of something else, so it is looked at again after it
 * was decoded. While its place, size and times are as they were, its content is taken to be the
 * same. Otherwise, and where it was written so shortly before hashing that the file system's clock
 * cannot tell, it is hashed again.
 */
#ifndef CURATOR_CONTENT_H
#define CURATOR_CONTENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "base/hash.h"

/* Says where a file lay and when it was last written to, as it was hashed. */
struct content_stamp {
    dev_t dev;
    ino_t ino;
    int64_t bytes;
    struct timespec written, changed;
    bool fresh; /* written when it was hashed, or shortly before */
};

/* Hashes the file at `path`, which errors call `name`, and fills *stamp. ERR_INPUT: the file may
 * not be read. ERR_TEMP: it cannot be read now. ERR_BUSY: it changed while it was read. */
int content_hash(const char *path, const char *name, struct hash128 *hash,
                 struct content_stamp *stamp, struct err *err);
/* Returns 1 when the file's content is what was hashed, and 0 when it is something else. ERR_TEMP:
 * the file cannot be looked at now. */
int content_holds(const char *path, struct hash128 hash, const struct content_stamp *stamp,
                  struct err *err);

#endif
