/* file: read whole files; publish files and folders atomically.
 *
 * Publishing: write to `<path>.tmp.<pid>.<n>` beside the target, fsync it, rename over the target, fsync the folder.
 * A reader sees the old content or the new, never a part; on any failure the temporary is removed and the old
 * content stands. (If only the fsync of the folder fails, the new content stands, and the error says that it may not
 * survive a power cut.) A link is replaced, not followed; what
 * leads to a device or a pipe (/dev/null), and what names a descriptor (/dev/stdout), is written to and stays. The only things assumed of a shared file system are atomic rename and exclusive create.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

/* Appends the content. ERR_NOT_FOUND if there is none, ERR_INPUT if the path leads to no file (a pipe or a device is none, and is not waited for), ERR_LIMIT above max_bytes; *out is as before on failure. */
int file_read(const char *path, int64_t max_bytes, struct str *out, struct err *err);
bool file_exists(const char *path);
int64_t file_space(const char *path); /* bytes free on its disk for this user; -1: not known (quotas are not) */
int64_t file_tree_bytes(const char *path); /* bytes on disk of a file, or of a folder and all in it, as far as they can be read */
int file_mkdirs(const char *path, struct err *err);             /* like mkdir -p, mode 0777 & ~umask */
int file_remove_tree(const char *path, struct err *err);        /* no error if absent; does not follow links */
char *file_join(const char *dir, const char *name);             /* returns new; NULL when out of memory */

/* Whole content at once. */
int file_publish(const char *path, const void *bytes, size_t n, struct err *err);
int file_publish_private(const char *path, const void *bytes, size_t n, struct err *err); /* its owner alone may read it */

/* In pieces. Either file_pub_commit or file_pub_abort ends it; abort after a failed call is required and safe. */
struct file_pub {
    int fd;
    char *path, *tmp; /* tmp: NULL for a device */
    int64_t bytes; /* written so far */
};
int file_pub_open(struct file_pub *p, const char *path, struct err *err);
int file_pub_write(struct file_pub *p, const void *bytes, size_t n, struct err *err);
int file_pub_commit(struct file_pub *p, struct err *err);
void file_pub_abort(struct file_pub *p);

/* Rename a finished folder (all its files already fsynced) to its final name and fsync the parent. ERR_EXISTS if a file
 * or a folder with content has that name. On failure the temporary folder is left to the caller,
 * unless only the parent's fsync failed: then the folder stands under its final name. */
int file_publish_dir(const char *tmp_dir, const char *final_dir, struct err *err);
int file_fsync_dir(const char *path, struct err *err);
int file_fsync(int fd, const char *path, struct err *err);

/* write(2) until done; EINTR is retried, a short write of 0 is an error. */
int file_write_all(int fd, const void *bytes, size_t n, const char *path, struct err *err);

/* Create with content, for one: ERR_EXISTS if somebody was first. The claim of an attempt, a name. The content is there when the
 * name is, except on a file system without hard links: there a reader or a crash may meet the name before its content. */
int file_create_exclusive(const char *path, const void *bytes, size_t n, struct err *err);

#endif
