/* This library is preloaded into reel-curate in tests/cli, and into reel-train with REEL_OPENED.
 *
 * REEL_HOLD_DIR: a worker that has opened its frame spool makes DIR/<pid> and waits until
 * somebody removes it, so that a test can kill it in the middle of its work. REEL_KILL_AT=N: the
 * main process kills itself right before its N-th rename, by which it publishes all its files;
 * N+: right after it. REEL_UNREADABLE=NAME: in workers, reading a file whose path ends in NAME
 * fails with EIO. REEL_UNOPENABLE=ERRNO:TIMES:NAME: in workers, the first TIMES openings of a
 * file whose path ends in NAME fail with ERRNO. REEL_GROWS=NAME: in the main process, each read
 * of a file whose path ends in NAME makes the file longer by as much as was read, up to 64 MiB.
 * REEL_OPENED=FILE: a line is added to FILE for each file opened or, by the main process,
 * renamed, each socket made and each attempt to connect. REEL_STILL=1: for the main thread of
 * the main process time passes only in its sleeps, which return at once and add a line to
 * REEL_OPENED. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pid_t first;
static int renames;
static atomic_int *openings; /* failed openings of all workers */

__attribute__((constructor)) static void begin(void)
{
    first = getpid();
    openings = mmap(NULL, sizeof *openings, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                    0);
}

static int ends(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

/* Appends a line to REEL_OPENED. */
static void trace(const char *what, const char *path)
{
    const char *to = getenv("REEL_OPENED");
    char line[4200];
    int fd = to ? (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    int n = snprintf(line, sizeof line, "%s %.4096s\n", what, path);
    if (fd >= 0) {
        syscall(SYS_write, fd, line, n);
        syscall(SYS_close, fd);
    }
}

static int open_any(const char *path, int flags, mode_t mode)
{
    const char *plan = getenv("REEL_UNOPENABLE");
    int number = 0, times = 0, n = 0;
    if (plan && getpid() != first && sscanf(plan, "%d:%d:%n", &number, &times, &n) == 2 &&
        ends(path, plan + n) && atomic_fetch_add(openings, 1) < times) {
        errno = number;
        return -1;
    }
    trace("open", path);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = mode_of(flags, ap);
    va_end(ap);
    return open_any(path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int socket(int domain, int type, int protocol)
{
    trace("socket", "");
    return (int)syscall(SYS_socket, domain, type, protocol);
}

int connect(int fd, const struct sockaddr *to, socklen_t n)
{
    trace("connect", "");
    return (int)syscall(SYS_connect, fd, to, n);
}

int unlink(const char *path)
{
    const char *dir = getenv("REEL_HOLD_DIR");
    char mark[4096];
    if (dir && getpid() != first && ends(path, ".frames")) {
        snprintf(mark, sizeof mark, "%s/%d", dir, (int)getpid());
        close(open(mark, O_CREAT | O_WRONLY, 0600));
        while (access(mark, F_OK) == 0)
            poll(NULL, 0, 10);
    }
    return (int)syscall(SYS_unlink, path);
}

int rename(const char *from, const char *to)
{
    const char *at = getenv("REEL_KILL_AT");
    if (getpid() == first)
        trace("rename", to);
    int here = at && getpid() == first && ++renames == atoi(at);
    if (here && !ends(at, "+"))
        kill(first, SIGKILL);
    int rc = (int)syscall(SYS_rename, from, to);
    if (here)
        kill(first, SIGKILL);
    return rc;
}

/* ---- time ---- */

static double paused_s;

static int is_still(clockid_t clock)
{
    return clock != CLOCK_REALTIME && getenv("REEL_STILL") && syscall(SYS_gettid) == first &&
           getpid() == first;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    static struct timespec begun[CLOCK_TAI + 1];
    if (clock < 0 || clock > CLOCK_TAI || !is_still(clock))
        return (int)syscall(SYS_clock_gettime, clock, out);
    if (!begun[clock].tv_sec && !begun[clock].tv_nsec)
        syscall(SYS_clock_gettime, clock, &begun[clock]);
    *out = begun[clock];
    out->tv_sec += (time_t)paused_s;
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    struct timespec now;
    char text[32];
    if (!(flags & TIMER_ABSTIME) || !is_still(clock))
        return syscall(SYS_clock_nanosleep, clock, flags, until, left) < 0 ? errno : 0;
    clock_gettime(clock, &now);
    snprintf(text, sizeof text, "%.0f",
             (double)(until->tv_sec - now.tv_sec) + 1e-9 * (double)(until->tv_nsec - now.tv_nsec));
    paused_s += atoi(text);
    trace("pause", text);
    return 0;
}

static int is_of(int fd, const char *name, char path[4096])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = name ? readlink(link, path, 4095) : 0;
    path[length > 0 ? length : 0] = 0;
    return name && ends(path, name);
}

ssize_t read(int fd, void *to, size_t n)
{
    char path[4096];
    if (getpid() != first && is_of(fd, getenv("REEL_UNREADABLE"), path)) {
        errno = EIO;
        return -1;
    }
    ssize_t got = syscall(SYS_read, fd, to, n);
    if (got > 0 && getpid() == first && is_of(fd, getenv("REEL_GROWS"), path)) {
        int more = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND, 0);
        if (syscall(SYS_lseek, more, 0, SEEK_END) < 64 << 20)
            syscall(SYS_write, more, to, got);
        syscall(SYS_close, more);
    }
    return got;
}
