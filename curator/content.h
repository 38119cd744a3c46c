/* content: hashes the content of a source file, and checks whether the file still has that content.
 *
 * Time passes between hashing a file and decoding it. A file that is written to or replaced
 * meanwhile would give clips under the hash of other content, so it is hashed again after it was
 * decoded. Its modification times prove nothing: the clock of the host, or of a file server, may
 * have been set back between two writes, and a coarse clock gives both the same time. Hashing takes
 * a small part of the time of decoding.
 */
#ifndef CURATOR_CONTENT_H
#define CURATOR_CONTENT_H

#include <sys/stat.h>

#include "base/err.h"
#include "base/hash.h"

/* Hashes the file at `path`, which errors call `name`. *stamp tells what it was then. ERR_INPUT:
 * the file may not be read, or is gone. ERR_TEMP: it cannot be read now. ERR_BUSY: it changed while
 * it was read. */
int content_hash(const char *path, const char *name, struct hash128 *hash, struct stat *stamp,
                 struct err *err);
/* Returns 1 when the file at `path` still is the one that was hashed. It is hashed again only if
 * its stamp is another. */
int content_stays(const char *path, struct hash128 hash, const struct stat *stamp, struct err *err);
/* Returns 1 when the file's content has this hash, and 0 when it has another. ERR_TEMP: the file
 * cannot be read now. */
int content_holds(const char *path, struct hash128 hash, struct err *err);

#endif
