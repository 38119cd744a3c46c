/* file: reads whole files, and publishes files and folders atomically.
 *
 * Publishing writes to `<path>.tmp.<pid>.<n>` beside the target, syncs that, renames it over the
 * target, and syncs the folder. A reader sees the old content or the new, never a part. On any
 * failure the temporary file is removed and the old content remains. (If only the sync of the
 * folder fails, the new content is in place, and the error says that it may not survive a power
 * cut.) A symbolic link is replaced, not followed. Two kinds of path are written to directly and
 * never replaced: one that leads to a device or a pipe (/dev/null), and one that names a descriptor
 * (/dev/stdout). A pipe that nobody reads from is an error, and not waited for. A shared file
 * system must provide atomic rename and exclusive create, and no more.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

/* Appends the content of a file to *out; on failure *out keeps its former content. ERR_NOT_FOUND if
 * there is no file; ERR_INPUT if the path leads to a folder, a pipe or a device other than
 * /dev/null (the call does not wait for a pipe's writer); ERR_LIMIT if the file has more than
 * max_bytes. */
int file_read(const char *path, int64_t max_bytes, struct str *out, struct err *err);
bool file_exists(const char *path);
/* Tells whether the path names a descriptor of this process (/dev/stdout, /dev/fd/3), which may
 * lead to a plain file. */
bool file_is_descriptor(const char *path);
/* Tells whether the path exists on a read-only file system. */
bool file_is_read_only(const char *path);
/* Returns the number of bytes that are free for an ordinary user on the path's disk, -1 if that is
 * not known. Quotas are not taken into account. */
int64_t file_space(const char *path);
/* Returns the number of files that can still be made on the path's disk (its free inodes), -1 if
 * that is not known or the disk has no bound on them. */
int64_t file_inodes(const char *path);
/* Returns the number of bytes that a file, or all files below a folder, take on disk. Folders
 * themselves, and parts that cannot be read, are not counted. */
int64_t file_tree_bytes(const char *path);
int file_mkdirs(const char *path, struct err *err);      /* like mkdir -p, mode 0777 & ~umask */
/* Checks, without making anything, whether a folder could be made there, or files in it if it is
 * there already: what lies on its path is a folder, and the last that exists may be written to. */
int file_mkdirs_check(const char *path, struct err *err);
int file_remove_tree(const char *path, struct err *err); /* no error if absent; follows no link */
char *file_join(const char *dir, const char *name);      /* returns new; NULL when out of memory */

/* Publish a file whose whole content is given. Only its owner may read a private file. */
int file_publish(const char *path, const void *bytes, size_t n, struct err *err);
int file_publish_private(const char *path, const void *bytes, size_t n, struct err *err);

/* Publishes a file that is written in pieces. Either file_pub_commit or file_pub_abort ends it.
 * After a failed file_pub_write the caller must call file_pub_abort, which is safe also after a
 * failed file_pub_open or file_pub_commit. */
struct file_pub {
    int fd;
    char *path, *tmp; /* tmp is NULL for a device */
    int64_t bytes; /* written so far */
};
int file_pub_open(struct file_pub *p, const char *path, struct err *err);
int file_pub_write(struct file_pub *p, const void *bytes, size_t n, struct err *err);
int file_pub_commit(struct file_pub *p, struct err *err);
void file_pub_abort(struct file_pub *p);

/* Renames a finished folder, whose files the caller has synced, to its final name and syncs the
 * parent. ERR_EXISTS if a file, or a folder that is not empty, has that name. On failure the caller
 * still owns the temporary folder, unless only the sync of the parent failed: then the folder
 * already has its final name. */
int file_publish_dir(const char *tmp_dir, const char *final_dir, struct err *err);
int file_fsync_dir(const char *path, struct err *err);
int file_fsync(int fd, const char *path, struct err *err);

/* Calls write(2) until all is written. EINTR is retried; a write of 0 bytes is an error. */
int file_write_all(int fd, const void *bytes, size_t n, const char *path, struct err *err);

/* Creates a file with its content. If several processes try, only one succeeds (as in claiming
 * an attempt), and the others get ERR_EXISTS. The content is there as soon as the name is,
 * except on a file system without hard links, where a reader or a crash may find the name before
 * its content. */
int file_create_exclusive(const char *path, const void *bytes, size_t n, struct err *err);

#endif
