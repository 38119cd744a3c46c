/* This library is preloaded into reel-train. The first attempt of a run waits before it writes the
 * event of step REEL_HOLD_AT (20) until it has received a notice to stop. So it cannot end before
 * the notice comes, however fast it is or however slow the scheduler. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char log_name[] = "/rank0.a1.evlog";

ssize_t write(int fd, const void *bytes, size_t n)
{
    const char *at = getenv("REEL_HOLD_AT");
    char step[64], link[64], path[4096], heard[4096 + 16];
    snprintf(step, sizeof step, "\"step\": %s,", at ? at : "20");
    if (memmem(bytes, n, "\"ev\": \"step\"", 12) && memmem(bytes, n, step, strlen(step))) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1),
                dir = length - (ssize_t)sizeof log_name + 1;
        if (dir > 0 && memcmp(path + dir, log_name, sizeof log_name - 1) == 0) {
            snprintf(heard, sizeof heard, "%.*s/rank0-notice.a1.evlog", (int)dir, path);
            while (access(heard, F_OK) < 0)
                poll(NULL, 0, 10);
        }
    }
    return syscall(SYS_write, fd, bytes, n);
}
