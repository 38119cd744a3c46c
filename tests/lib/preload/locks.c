/* This library is preloaded into any of our programs, and the processes that they start inherit it.
 * It simulates a file system whose locks are missing or hold on one host only, and another host.
 *   REEL_LOCKS=enosys|enolck flock(2) and fcntl(2) locks fail with this error
 *   REEL_LOCKS=one-host      flock succeeds but locks nothing, as between hosts (fcntl locks work,
 *                            because SQLite's processes are on one host)
 *   REEL_LOCKS_ASKED=FILE    FILE gets a byte for each flock
 *   REEL_APPEND=stale        data appended to a file in a folder claims/ goes to its beginning, as
 *                            on NFS, where a client appends at the size that it remembers although
 *                            another host has written since
 *   REEL_BOOT_ID=FILE        FILE holds the kernel's boot id; processes with different boot ids
 *                            seem to be on different hosts */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns the result of a lock call; 1: the real call must be made. */
static int answer(void)
{
    const char *how = getenv("REEL_LOCKS");
    if (!how)
        return 1;
    if (strcmp(how, "one-host") == 0)
        return 0;
    errno = strcmp(how, "enolck") == 0 ? ENOLCK : ENOSYS;
    return -1;
}

int flock(int fd, int how)
{
    const char *asked = getenv("REEL_LOCKS_ASKED");
    int to = asked ? (int)syscall(SYS_openat, AT_FDCWD, asked,
                                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)
                   : -1;
    if (to >= 0) {
        syscall(SYS_write, to, "x", 1);
        syscall(SYS_close, to);
    }
    int rc = answer();
    return rc == 1 ? (int)syscall(SYS_flock, fd, how) : rc;
}

int fcntl64(int fd, int what, ...)
{
    va_list ap;
    va_start(ap, what);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    int locks = what == F_SETLK || what == F_SETLKW || what == F_OFD_SETLK || what == F_OFD_SETLKW;
    return locks && answer() < 0 ? -1 : (int)syscall(SYS_fcntl, fd, what, arg);
}

int fcntl(int fd, int what, ...)
{
    va_list ap;
    va_start(ap, what);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return fcntl64(fd, what, arg);
}

static int open_at(const char *path, int flags, mode_t mode)
{
    const char *boot = getenv("REEL_BOOT_ID");
    if (getenv("REEL_APPEND") && strstr(path, "/claims/"))
        flags &= ~O_APPEND;
    if (boot && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
        path = boot;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return open_at(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return open_at(path, flags | O_LARGEFILE, mode);
}
