/* Preloaded into reel-curate by tests/cli.
 *
 * REEL_HOLD_DIR: a worker that has opened its frame spool makes DIR/<pid> and waits until somebody removes it: a point in the middle of the work
 * where a test can kill it. REEL_KILL_AT=N: the main process kills itself right before its N-th rename, by which all of its files come to
 * their names. REEL_UNREADABLE=NAME: in workers, reading a file whose path ends so fails with EIO. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pid_t first;
static int renames;

__attribute__((constructor)) static void begin(void)
{
    first = getpid();
}

static int ends(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
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
    if (at && getpid() == first && ++renames == atoi(at))
        kill(first, SIGKILL);
    return (int)syscall(SYS_rename, from, to);
}

ssize_t read(int fd, void *to, size_t n)
{
    const char *name = getenv("REEL_UNREADABLE");
    char link[64], path[4096];
    if (name && getpid() != first) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length > 0 ? length : 0] = 0;
        if (ends(path, name)) {
            errno = EIO;
            return -1;
        }
    }
    return syscall(SYS_read, fd, to, n);
}
