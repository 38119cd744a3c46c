#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"

enum { BLOCK_BYTES = 32 << 10 };

/* Reports "cannot <verb> '<path>': <reason>", and adds what to do for the values of errno where
 * that is known. */
static int fail(struct err *err, const char *verb, const char *path)
{
    switch (errno) {
    case ENOENT:
        return err_set(err, ERR_NOT_FOUND, "cannot %s '%s': no such file or folder", verb, path);
    case ENOSPC:
    case EDQUOT:
        return err_set(err, ERR_FULL,
                       "cannot %s '%s': %s: free some space there or choose another folder", verb,
                       path, strerror(errno));
    case EROFS:
        return err_set(err, ERR_FULL,
                       "cannot %s '%s': %s: mount it for writing or choose another folder", verb,
                       path, strerror(errno));
    case EACCES:
    case EPERM:
        return err_set(err, ERR_IO,
                       "cannot %s '%s': %s: change its permissions or choose another folder", verb,
                       path, strerror(errno));
    case EFBIG:
        return err_set(err, ERR_IO,
                       "cannot %s '%s': %s: raise the limit of file sizes (ulimit -f)", verb, path,
                       strerror(errno));
    default:
        return err_set_errno(err, ERR_IO, "cannot %s '%s'", verb, path);
    }
}

/* Does what fail() does, for a path that is to be read. A path that cannot be that of a file, such
 * as a folder's, is ERR_INPUT; a missing file is ERR_NOT_FOUND. */
static int fail_read(struct err *err, const char *verb, const char *path)
{
    bool wrong = errno == EISDIR || errno == ENOTDIR || errno == ELOOP || errno == ENAMETOOLONG;

    return wrong ? err_set_errno(err, ERR_INPUT, "cannot %s '%.600s': give a file", verb, path)
                 : fail(err, verb, path);
}

static int read_fd(int fd, const char *path, int64_t max_bytes, struct str *out, struct err *err)
{
    char block[BLOCK_BYTES];
    int64_t total = 0;

    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_read(err, "read", path);
        if (n == 0)
            return str_check(out, err);
        total += n;
        if (total > max_bytes)
            return err_set(err, ERR_LIMIT,
                           "'%s' has more than the %lld bytes allowed: is it the right file?", path,
                           (long long)max_bytes);
        str_addn(out, block, (size_t)n);
    }
}

/* Tells whether this is /dev/null, which by convention is an empty file. */
static bool is_null(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

/* Reads the descriptor, unless it refers to a pipe or a device. */
static int read_plain(int fd, const char *path, int64_t max_bytes, struct str *out, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return fail(err, "look at", path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !is_null(&st))
        return err_set(err, ERR_INPUT, "'%.600s' is a pipe or a device: give a file", path);
    return read_fd(fd, path, max_bytes, out, err);
}

int file_read(const char *path, int64_t max_bytes, struct str *out, struct err *err)
{
    size_t before = out->len;
    /* O_NONBLOCK: open must not wait for a pipe's writer */
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return fail_read(err, "open", path);
    rc = read_plain(fd, path, max_bytes, out, err);
    close(fd);
    if (rc < 0 && out->len > before) {
        out->len = before;
        out->p[before] = '\0';
    }
    return rc;
}

int64_t file_space(const char *path)
{
    struct statvfs st;
    return statvfs(path, &st) == 0 ? (int64_t)(st.f_bavail * st.f_frsize) : -1;
}

int64_t file_inodes(const char *path)
{
    struct statvfs st;
    return statvfs(path, &st) == 0 && st.f_files > 0 ? (int64_t)st.f_favail : -1;
}

bool file_exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

bool file_is_read_only(const char *path) { return access(path, W_OK) < 0 && errno == EROFS; }

static int in_the_way(const char *path, struct err *err)
{
    return err_set(err, ERR_EXISTS,
                   "cannot make folder '%s': a file of that name exists: remove it or choose "
                   "another folder", path);
}

static int make_dir(const char *path, struct err *err)
{
    struct stat st;

    if (mkdir(path, 0777) == 0)
        return 0;
    if (errno != EEXIST && errno != EISDIR)
        return fail(err, "make folder", path);
    if (stat(path, &st) < 0)
        return fail(err, "look at", path);
    return S_ISDIR(st.st_mode) ? 0 : in_the_way(path, err);
}

/* Cuts the last name off the path; returns false for "/" and for a path of one name. */
static bool parent_take(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || !path[1])
        return false;
    slash[slash == path] = '\0'; /* the root folder keeps its slash */
    return true;
}

int file_mkdirs_check(const char *path, struct err *err)
{
    char at[LIMIT_PATH_BYTES];
    struct stat st;
    if ((size_t)snprintf(at, sizeof at, "%s", path) >= sizeof at) {
        errno = ENAMETOOLONG;
        return fail(err, "make folder", path);
    }
    while (lstat(at, &st) < 0) /* a link to nothing is in the way too */
        if ((errno != ENOENT && errno != ENOTDIR) || !parent_take(at))
            return errno == ENOENT ? 0 : fail(err, "make folder", path);
    if (stat(at, &st) < 0 && errno == ENOENT)
        return err_set(err, ERR_EXISTS,
                       "cannot make folder '%s': it is a link to nothing: make what it leads to, "
                       "or choose another folder", at);
    if (!S_ISDIR(st.st_mode))
        return in_the_way(at, err);
    return access(at, W_OK | X_OK) < 0 ? fail(err, "make folder", path) : 0;
}

int file_mkdirs(const char *path, struct err *err)
{
    char *copy;
    int rc = 0;

    if (path[0] == '\0')
        return err_set(err, ERR_INPUT, "cannot make a folder: its name is empty");
    copy = strdup(path);
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory while making folder '%s'", path);
    for (char *p = copy + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if ((rc = make_dir(copy, err)) < 0)
            goto out;
        *p = '/';
    }
    rc = make_dir(copy, err);
out:
    free(copy);
    return rc;
}

static int remove_entry(const FTSENT *e, struct err *err)
{
    switch (e->fts_info) {
    case FTS_D: /* the folder comes again as FTS_DP after its content */
        return 0;
    case FTS_DP:
        return rmdir(e->fts_path) == 0 || errno == ENOENT ? 0 : fail(err, "remove", e->fts_path);
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        if (e->fts_errno == ENOENT)
            return 0;
        errno = e->fts_errno;
        return fail(err, "remove", e->fts_path);
    default:
        return unlink(e->fts_path) == 0 || errno == ENOENT ? 0 : fail(err, "remove", e->fts_path);
    }
}

int file_remove_tree(const char *path, struct err *err)
{
    char *copy = strdup(path), *roots[] = {copy, NULL};
    FTS *fts;
    FTSENT *e;
    int rc = 0;

    fts = copy ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
    if (!fts) {
        free(copy);
        return fail(err, "remove", path);
    }
    while ((e = fts_read(fts)))
        if ((rc = remove_entry(e, err)) < 0)
            break;
    fts_close(fts);
    free(copy);
    return rc;
}

int64_t file_tree_bytes(const char *path)
{
    char *copy = strdup(path), *roots[] = {copy, NULL};
    FTS *fts = copy ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
    int64_t bytes = 0;

    for (FTSENT *e; fts && (e = fts_read(fts));)
        if (e->fts_info == FTS_F)
            bytes += 512 * (int64_t)e->fts_statp->st_blocks;
    if (fts)
        fts_close(fts);
    free(copy);
    return bytes;
}

char *file_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    const char *sep = n == 0 || dir[n - 1] == '/' ? "" : "/";
    char *out;

    return asprintf(&out, "%s%s%s", dir, sep, name) < 0 ? NULL : out;
}

int file_write_all(int fd, const void *bytes, size_t n, const char *path, struct err *err)
{
    const char *p = bytes;

    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail(err, "write", path);
        if (done == 0)
            return err_set(err, ERR_IO, "cannot write '%s': the device takes no more bytes", path);
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

int file_fsync(int fd, const char *path, struct err *err)
{
    while (fsync(fd) < 0)
        if (errno != EINTR)
            return fail(err, "write to disk", path);
    return 0;
}

/* Syncs a folder. Some file systems refuse that (EINVAL, ENOTSUP); this is no error, because they
 * offer nothing else. */
int file_fsync_dir(const char *path, struct err *err)
{
    int rc = 0, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return fail(err, "open folder", path);
    while (rc == 0 && fsync(fd) < 0)
        if (errno == EINVAL || errno == ENOTSUP)
            break;
        else if (errno != EINTR)
            rc = fail(err, "write to disk folder", path);
    close(fd);
    return rc;
}

/* Syncs the folder that holds `path`. */
static int fsync_parent(const char *path, struct err *err)
{
    const char *last = strrchr(path, '/');
    char *dir = !last ? strdup(".") : strndup(path, last == path ? 1 : (size_t)(last - path));
    int rc = dir ? file_fsync_dir(dir, err)
                 : err_set(err, ERR_NOMEM, "out of memory while publishing '%s'", path);

    free(dir);
    return rc;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Creates a temporary file beside the target under a name that nobody uses. Exclusive create
 * detects a clash, for instance with a process of the same pid on another host. */
static int open_temporary(struct file_pub *p, struct err *err)
{
    static atomic_uint counter;

    for (int tries = 0; tries < 100; tries++) {
        if (asprintf(&p->tmp, "%s.tmp.%ld.%u", p->path, (long)getpid(),
                     atomic_fetch_add(&counter, 1)) < 0) {
            p->tmp = NULL;
            return err_set(err, ERR_NOMEM, "out of memory while opening '%s'", p->path);
        }
        p->fd = open(p->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (p->fd >= 0)
            return 0;
        free(p->tmp);
        p->tmp = NULL;
        if (errno != EEXIST)
            return fail(err, "create", p->path);
    }
    return err_set(err, ERR_EXISTS,
                   "cannot create a temporary beside '%s': remove stale '%s.tmp.*' files", p->path,
                   p->path);
}

/* Returns the descriptor of this process that a path names, which may refer to a plain file;
 * -1: it names none. */
static int descriptor_named(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0)
        return strcmp(path, "/dev/stdout") == 0 ? STDOUT_FILENO : STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) != 0 || !path[n] ||
            path[n + strspn(path + n, "0123456789")])
            continue;
        long fd = strtol(path + n, NULL, 10);
        return fd > INT_MAX ? INT_MAX : (int)fd;
    }
    return -1;
}

bool file_is_descriptor(const char *path) { return descriptor_named(path) >= 0; }

/* Tells whether the path leads to something that must be written to and not replaced: /dev/null,
 * /dev/stdout, a pipe. */
static bool leads_to_device(const char *path)
{
    struct stat st;
    return file_is_descriptor(path) ||
           (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

/* Opens what is written to directly. A descriptor is duplicated, so that what is written to it
 * before and afterwards stays beside. O_NONBLOCK keeps open from waiting for a pipe's reader, and
 * counts for nothing else. */
static int open_device(struct file_pub *p, struct err *err)
{
    int flags, own = descriptor_named(p->path);
    if (own >= 0) {
        p->fd = fcntl(own, F_DUPFD_CLOEXEC, 0);
        return p->fd < 0 ? fail(err, "open", p->path) : 0;
    }
    p->fd = open(p->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    if (p->fd < 0 && errno == ENXIO)
        return err_set(err, ERR_IO, "cannot open '%s': nobody reads from it", p->path);
    if (p->fd < 0)
        return fail(err, "open", p->path);
    if ((flags = fcntl(p->fd, F_GETFL)) < 0 || fcntl(p->fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return fail(err, "open", p->path);
    return 0;
}

int file_pub_open(struct file_pub *p, const char *path, struct err *err)
{
    int rc;

    *p = (struct file_pub){.fd = -1};
    if (is_folder(path))
        return err_set(err, ERR_INPUT, "cannot write '%s': it is a folder: give a file", path);
    if (!(p->path = strdup(path)))
        return err_set(err, ERR_NOMEM, "out of memory while opening '%s'", path);
    rc = leads_to_device(path) ? open_device(p, err) : open_temporary(p, err);
    if (rc < 0)
        file_pub_abort(p);
    return rc;
}

int file_pub_write(struct file_pub *p, const void *bytes, size_t n, struct err *err)
{
    int rc;

    if ((rc = file_write_all(p->fd, bytes, n, p->path, err)) < 0)
        return rc;
    p->bytes += (int64_t)n;
    return 0;
}

/* Syncs and closes the file and renames it to its final name. On failure the caller removes the
 * temporary file. */
static int install(struct file_pub *p, struct err *err)
{
    int rc, fd = p->fd;

    if (p->tmp && (rc = file_fsync(fd, p->path, err)) < 0)
        return rc;
    p->fd = -1;
    if (close(fd) < 0)
        return fail(err, "close", p->path);
    if (p->tmp && rename(p->tmp, p->path) < 0)
        return fail(err, "publish", p->path);
    return 0;
}

int file_pub_commit(struct file_pub *p, struct err *err)
{
    int rc;

    if ((rc = install(p, err)) < 0 || !p->tmp)
        goto out;
    free(p->tmp); /* it was renamed, so there is nothing left to remove */
    p->tmp = NULL;
    if ((rc = fsync_parent(p->path, err)) < 0)
        err_context(err, "'%s' is published but may not survive a power cut", p->path);
out:
    file_pub_abort(p);
    return rc;
}

void file_pub_abort(struct file_pub *p)
{
    if (p->path && p->fd >= 0)
        close(p->fd);
    if (p->tmp)
        unlink(p->tmp);
    free(p->tmp);
    free(p->path);
    *p = (struct file_pub){.fd = -1};
}

static int publish(const char *path, const void *bytes, size_t n, bool private, struct err *err)
{
    struct file_pub p;
    int rc;

    if ((rc = file_pub_open(&p, path, err)) < 0)
        return rc;
    if (private && p.tmp && fchmod(p.fd, 0600) < 0) {
        rc = fail(err, "make private", path);
        goto out;
    }
    if ((rc = file_pub_write(&p, bytes, n, err)) < 0)
        goto out;
    return file_pub_commit(&p, err);
out:
    file_pub_abort(&p);
    return rc;
}

int file_publish(const char *path, const void *bytes, size_t n, struct err *err)
{
    return publish(path, bytes, n, false, err);
}

int file_publish_private(const char *path, const void *bytes, size_t n, struct err *err)
{
    return publish(path, bytes, n, true, err);
}

int file_publish_dir(const char *tmp_dir, const char *final_dir, struct err *err)
{
    int rc = file_fsync_dir(tmp_dir, err);

    if (rc < 0)
        return rc;
    if (rename(tmp_dir, final_dir) < 0) {
        if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
            return err_set(err, ERR_EXISTS,
                           "cannot publish '%s': it exists already: remove it or choose another "
                           "name",
                           final_dir);
        return fail(err, "publish", final_dir);
    }
    return fsync_parent(final_dir, err);
}

/* Creates the file on a file system without hard links. A crash between creating and writing leaves
 * the name without its content. */
static int create_then_write(const char *path, const void *bytes, size_t n, struct err *err)
{
    int rc, fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0 && errno == EEXIST)
        return err_set(err, ERR_EXISTS, "'%s' exists already: somebody else made it first", path);
    if (fd < 0)
        return fail(err, "create", path);
    if ((rc = file_write_all(fd, bytes, n, path, err)) < 0)
        goto out;
    rc = file_fsync(fd, path, err);
out:
    close(fd);
    if (rc < 0)
        unlink(path);
    return rc;
}

/* Links the finished file to its final name, unless that name is taken. On a network file system
 * link(2) may fail although it succeeded, because the reply was lost; a link count of 2 shows
 * that. */
static int link_exclusive(struct file_pub *p, const void *bytes, size_t n, struct err *err)
{
    struct stat st;
    int why;

    if (link(p->tmp, p->path) == 0 || (why = errno, fstat(p->fd, &st) == 0 && st.st_nlink == 2))
        return 0;
    if (why == EEXIST)
        return err_set(err, ERR_EXISTS, "'%s' exists already: somebody else made it first",
                       p->path);
    if (why == EPERM || why == EOPNOTSUPP || why == ENOSYS)
        return create_then_write(p->path, bytes, n, err);
    errno = why;
    return fail(err, "create", p->path);
}

int file_create_exclusive(const char *path, const void *bytes, size_t n, struct err *err)
{
    struct file_pub p;
    int rc;

    if ((rc = file_pub_open(&p, path, err)) < 0)
        return rc;
    if ((rc = file_pub_write(&p, bytes, n, err)) < 0)
        goto out;
    if ((rc = file_fsync(p.fd, path, err)) < 0)
        goto out;
    if ((rc = link_exclusive(&p, bytes, n, err)) < 0)
        goto out;
    if ((rc = fsync_parent(path, err)) < 0)
        unlink(path);
out:
    file_pub_abort(&p);
    return rc;
}
