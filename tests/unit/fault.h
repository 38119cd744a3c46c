/* fault: the n-th call of one kind fails, for every n.
 *
 * A test that includes this has the lines
 *     // LINK: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=strndup
 *     // LINK: -Wl,--wrap=asprintf,--wrap=write,--wrap=fsync,--wrap=fdatasync,--wrap=rename
 *     // LINK: -Wl,--wrap=mkdir,--wrap=link,--wrap=read,--wrap=pread
 * Calls inside shared libraries (SQLite, libc) are not seen.
 *
 *     do {
 *         fault_arm(FAULT_WRITE, n);
 *         rc = save(…);
 *         met = fault_disarm();
 *         … look at what is left …
 *         n += fault_step(1);
 *     } while (met);
 *
 * FAULT_STEP=k in the environment takes every k-th n only (tests choose their own step;
 * check-faults takes all).
 */
#ifndef TESTS_UNIT_FAULT_H
#define TESTS_UNIT_FAULT_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

enum fault_kind {
    FAULT_NONE, FAULT_ALLOC, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME, FAULT_MKDIR, FAULT_LINK,
    FAULT_READ, FAULT_KINDS
};
static const char *const fault_names[] = {"none",   "allocation", "write", "sync",
                                          "rename", "mkdir",      "link",  "read"};

static struct {
    enum fault_kind kind;
    long at, calls; /* the call that fails, from 1; calls of the kind so far */
} fault;

static inline bool fault_hits(enum fault_kind kind, int error)
{
    if (fault.kind != kind || ++fault.calls != fault.at)
        return false;
    errno = error;
    return true;
}

static inline void fault_arm(enum fault_kind kind, long n)
{
    fault.at = n;
    fault.calls = 0;
    fault.kind = kind;
}

/* Ends it; true if the n-th call was made, and failed. */
static inline bool fault_disarm(void)
{
    fault.kind = FAULT_NONE;
    return fault.calls >= fault.at;
}

/* Returns the code of a call of ours that fails for this fault: writes and folders fail for want of
 * space, the rest by EIO. */
static inline int fault_code(enum fault_kind kind)
{
    return kind == FAULT_ALLOC                          ? ERR_NOMEM
           : kind == FAULT_WRITE || kind == FAULT_MKDIR ? ERR_FULL
                                                        : ERR_IO;
}

/* Returns what is to be added to n: `step`, or what FAULT_STEP says. */
static inline long fault_step(long step)
{
    const char *given = getenv("FAULT_STEP");
    return given && atol(given) > 0 ? atol(given) : step;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_rename(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t mode);
int __real_link(const char *from, const char *to);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_link(const char *from, const char *to);

void *__wrap_malloc(size_t n) { return fault_hits(FAULT_ALLOC, ENOMEM) ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t count, size_t n)
{
    return fault_hits(FAULT_ALLOC, ENOMEM) ? NULL : __real_calloc(count, n);
}
void *__wrap_realloc(void *p, size_t n)
{
    return fault_hits(FAULT_ALLOC, ENOMEM) ? NULL : __real_realloc(p, n);
}
char *__wrap_strdup(const char *s)
{
    return fault_hits(FAULT_ALLOC, ENOMEM) ? NULL : __real_strdup(s);
}
char *__wrap_strndup(const char *s, size_t n)
{
    return fault_hits(FAULT_ALLOC, ENOMEM) ? NULL : __real_strndup(s, n);
}
ssize_t __wrap_read(int fd, void *p, size_t n)
{
    return fault_hits(FAULT_READ, EIO) ? -1 : __real_read(fd, p, n);
}
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    return fault_hits(FAULT_READ, EIO) ? -1 : __real_pread(fd, p, n, at);
}
int __wrap_fsync(int fd) { return fault_hits(FAULT_SYNC, EIO) ? -1 : __real_fsync(fd); }
int __wrap_fdatasync(int fd) { return fault_hits(FAULT_SYNC, EIO) ? -1 : __real_fdatasync(fd); }
int __wrap_rename(const char *from, const char *to)
{
    return fault_hits(FAULT_RENAME, EIO) ? -1 : __real_rename(from, to);
}
int __wrap_mkdir(const char *path, mode_t mode)
{
    return fault_hits(FAULT_MKDIR, ENOSPC) ? -1 : __real_mkdir(path, mode);
}
int __wrap_link(const char *from, const char *to)
{
    return fault_hits(FAULT_LINK, EIO) ? -1 : __real_link(from, to);
}

/* Writes half of what it is given where the disk is full, and then nothing. */
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    if (!fault_hits(FAULT_WRITE, ENOSPC))
        return __real_write(fd, p, n);
    (void)!__real_write(fd, p, n / 2);
    errno = ENOSPC;
    return -1;
}

int __wrap_asprintf(char **out, const char *fmt, ...)
{
    va_list ap;
    if (fault_hits(FAULT_ALLOC, ENOMEM))
        return -1;
    va_start(ap, fmt);
    int n = vasprintf(out, fmt, ap);
    va_end(ap);
    return n;
}

#endif
