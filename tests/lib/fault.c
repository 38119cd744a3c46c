// LINK: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=strndup
// LINK: -Wl,--wrap=asprintf,--wrap=write,--wrap=fsync,--wrap=fdatasync,--wrap=rename,--wrap=mkdir
// LINK: -Wl,--wrap=link,--wrap=read,--wrap=pread
#include "tests/lib/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

const char *const fault_names[FAULT_KINDS] = {"none",   "allocation", "write", "sync",
                                              "rename", "mkdir",      "link",  "read"};

struct fault fault;

bool fault_hits(enum fault_kind kind, int error)
{
    if (fault.kind != kind || ++fault.calls != fault.at)
        return false;
    errno = error;
    return true;
}

void fault_arm(enum fault_kind kind, long n)
{
    fault.at = n;
    fault.calls = 0;
    fault.kind = kind;
}

bool fault_disarm(void)
{
    fault.kind = FAULT_NONE;
    return fault.calls >= fault.at;
}

int fault_code(enum fault_kind kind)
{
    return kind == FAULT_ALLOC                          ? ERR_NOMEM
           : kind == FAULT_WRITE || kind == FAULT_MKDIR ? ERR_FULL
                                                        : ERR_IO;
}

long fault_step(long step)
{
    const char *given = getenv("FAULT_STEP");
    return given && atol(given) > 0 ? atol(given) : step;
}

/* ---- the calls that --wrap names ---- */

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
