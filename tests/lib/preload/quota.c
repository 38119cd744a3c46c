/* This library is preloaded into any of our programs, and the processes that they start inherit it.
 * While a file REEL_QUOTA_DIR.full exists, the user's quota of REEL_QUOTA_DIR is used up, in bytes
 * and in files: nothing can be written or created below that folder (EDQUOT), except logs (logs/);
 * renaming and removing still work. While a file REEL_QUOTA_DIR.read-only exists, they fail too:
 * the file system is then read-only (EROFS), also for files that were opened before, as after a
 * disk error on this host or on the server of a shared file system. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_flagged(const char *dir, const char *ending)
{
    char flag[4096];
    snprintf(flag, sizeof flag, "%s.%s", dir, ending);
    return syscall(SYS_faccessat, AT_FDCWD, flag, F_OK) == 0;
}

/* Returns the errno with which writing below this path fails, 0 if it does not fail. */
static int refusal(const char *path)
{
    const char *dir = getenv("REEL_QUOTA_DIR");
    size_t n = dir ? strlen(dir) : 0;
    if (!n || strncmp(path, dir, n) != 0 || path[n] != '/' || strstr(path, "/logs/"))
        return 0;
    return is_flagged(dir, "read-only") ? EROFS : is_flagged(dir, "full") ? EDQUOT : 0;
}

static int fd_refusal(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return 0;
    path[n] = '\0';
    return refusal(path);
}

static long refuse(int with)
{
    errno = with;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    int no = fd_refusal(fd);
    return no ? refuse(no) : syscall(SYS_write, fd, bytes, n);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at)
{
    int no = fd_refusal(fd);
    return no ? refuse(no) : syscall(SYS_pwrite64, fd, bytes, n, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return pwrite64(fd, bytes, n, at); }

int mkdir(const char *path, mode_t mode)
{
    struct stat st;
    int no = refusal(path);
    if (no && stat(path, &st) < 0)
        return (int)refuse(no);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rename(const char *from, const char *to)
{
    if (refusal(to) == EROFS)
        return (int)refuse(EROFS);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path)
{
    if (refusal(path) == EROFS)
        return (int)refuse(EROFS);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int access(const char *path, int mode)
{
    if ((mode & W_OK) && refusal(path) == EROFS)
        return (int)refuse(EROFS);
    return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

static int open_at(const char *path, int flags, mode_t mode)
{
    struct stat st;
    int no = refusal(path);
    if (no == EROFS && (flags & O_ACCMODE) != O_RDONLY)
        return (int)refuse(no);
    if (no && (flags & O_CREAT) && stat(path, &st) < 0)
        return (int)refuse(no);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#define MODE_OF(flags)                        \
    mode_t mode = 0;                          \
    if ((flags) & (O_CREAT | O_TMPFILE)) {    \
        va_list ap;                           \
        va_start(ap, flags);                  \
        mode = va_arg(ap, mode_t);            \
        va_end(ap);                           \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(path, flags, mode);
}
