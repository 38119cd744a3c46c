/* file: read whole files; publish files and folders atomically.
 *
 * Publishing writes to `<path>.tmp.<pid>.<n>` beside the target, syncs that, renames it over the
 * target, and syncs the folder. A reader sees the old content or the new, never a part. On any
 * failure the temporary file is removed and the old content stands. (If only the sync of the folder
 * fails, the new content stands, and the error says that it may not survive a power cut.) A link is
 * replaced, not followed; but what leads to a device or a pipe (/dev/null), and what names a
 * descriptor (/dev/stdout), is written to and stays. Of a shared file system this assumes atomic
 * rename and exclusive create only.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

/* Appends the content of a file to *out, which is as before on failure. ERR_NOT_FOUND if there is
 * none; ERR_INPUT if the path leads to something else (a pipe or a device is not waited for);
 * ERR_LIMIT above max_bytes. */
int file_read(const char *path, int64_t max_bytes, struct str *out, struct err *err);
bool file_exists(const char *path);
/* Is the path there, on a file system that is read-only? */
bool file_is_read_only(const char *path);
/* Returns the bytes that are free on the path's disk for this user, -1 if that is not known. Quotas
 * are not seen. */
int64_t file_space(const char *path);
/* Returns the bytes on disk of a file, or of a folder and all in it, as far as they can be read. */
int64_t file_tree_bytes(const char *path);
int file_mkdirs(const char *path, struct err *err);      /* like mkdir -p, mode 0777 & ~umask */
int file_remove_tree(const char *path, struct err *err); /* no error if absent; follows no link */
char *file_join(const char *dir, const char *name);      /* returns new; NULL when out of memory */

/* Publish a file whose whole content is given. A private one may be read by its owner alone. */
int file_publish(const char *path, const void *bytes, size_t n, struct err *err);
int file_publish_private(const char *path, const void *bytes, size_t n, struct err *err);

/* Publishes a file in pieces. Either file_pub_commit or file_pub_abort ends it; abort is required
 * after a failed call, and safe. */
struct file_pub {
    int fd;
    char *path, *tmp; /* tmp is NULL for a device */
    int64_t bytes; /* written so far */
};
int file_pub_open(struct file_pub *p, const char *path, struct err *err);
int file_pub_write(struct file_pub *p, const void *bytes, size_t n, struct err *err);
int file_pub_commit(struct file_pub *p, struct err *err);
void file_pub_abort(struct file_pub *p);

/* Renames a finished folder, all of whose files are synced already, to its final name and syncs the
 * parent. ERR_EXISTS if a file or a folder with content has that name. On failure the temporary
 * folder is left to the caller, unless only the sync of the parent failed: then the folder stands
 * under its final name. */
int file_publish_dir(const char *tmp_dir, const char *final_dir, struct err *err);
int file_fsync_dir(const char *path, struct err *err);
int file_fsync(int fd, const char *path, struct err *err);

/* Calls write(2) until all is written. EINTR is retried; a write of 0 bytes is an error. */
int file_write_all(int fd, const void *bytes, size_t n, const char *path, struct err *err);

/* Creates a file with its content, for one process only, such as the claim of an attempt:
 * ERR_EXISTS if somebody was first. The content is there as soon as the name is, except on a file
 * system without hard links, where a reader or a crash may meet the name before its content. */
int file_create_exclusive(const char *path, const void *bytes, size_t n, struct err *err);

#endif
