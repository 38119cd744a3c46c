/* content: the hash of what a source holds, and whether it still holds that.
 *
 * Time passes between hashing a file and decoding it. A file that was written to or replaced meanwhile would give clips under the
 * hash of something else, so it is looked at again after it was decoded: while place, size and times are as they were, the content is;
 * else, and where it was written so shortly before that the clock of the file system cannot tell, it is hashed again.
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

/* name: what errors call it. ERR_INPUT: it may not be read. ERR_TEMP: it cannot be read now. ERR_BUSY: it changed while it was read. */
int content_hash(const char *path, const char *name, struct hash128 *hash, struct content_stamp *stamp, struct err *err);
/* 1: it is as it was. 0: it holds something else. ERR_TEMP: it cannot be looked at now. */
int content_holds(const char *path, struct hash128 hash, const struct content_stamp *stamp, struct err *err);

#endif
