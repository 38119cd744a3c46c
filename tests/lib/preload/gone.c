/* This library is preloaded into reel. The process whose id is in the file REEL_GONE ends, and its
 * parent reaps it, right before its state is read from /proc. So it existed when processes were
 * listed. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long doomed(void)
{
    const char *file = getenv("REEL_GONE");
    FILE *f = file ? fopen(file, "re") : NULL;
    long pid = 0;
    if (f && fscanf(f, "%ld", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid;
}

int open(const char *path, int flags, ...)
{
    char status[64];
    va_list ap;
    va_start(ap, flags);
    int mode = va_arg(ap, int);
    va_end(ap);
    if (strncmp(path, "/proc/", 6) == 0 && strstr(path, "/status")) {
        long pid = doomed();
        snprintf(status, sizeof status, "/proc/%ld/status", pid);
        if (pid > 1 && strcmp(path, status) == 0) {
            kill((pid_t)pid, SIGKILL);
            while (access(status, F_OK) == 0)
                usleep(1000);
        }
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
