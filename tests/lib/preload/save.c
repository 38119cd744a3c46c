/* This library is preloaded into reel-train. Each rank of a run's first attempt that writes its
 * file of the checkpoint after step REEL_SAVE_STEP waits in the middle of it until a file
 * REEL_SAVE_GO exists. It shows that it waits by a file REEL_SAVE_HELD.<pid>. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_that_save(int fd)
{
    char link[64], path[4096], part[64];
    const char *step = getenv("REEL_SAVE_STEP");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (!step || n <= 0)
        return 0;
    path[n] = '\0';
    snprintf(part, sizeof part, "/ckpt/.tmp-step-%08d.a1.", atoi(step));
    return strstr(path, part) != NULL;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    const char *go = getenv("REEL_SAVE_GO"), *held = getenv("REEL_SAVE_HELD");
    char said[4096];
    if (n < 2 || !go || !held || access(go, F_OK) == 0 || !is_that_save(fd))
        return syscall(SYS_write, fd, bytes, n);
    ssize_t half = syscall(SYS_write, fd, bytes, n / 2);
    snprintf(said, sizeof said, "%s.%ld", held, (long)getpid());
    close(open(said, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    while (access(go, F_OK) < 0)
        poll(NULL, 0, 10);
    return half;
}
