/* This library is preloaded into any program, whose wall clock is then REEL_CLOCK_AHEAD seconds
 * ahead (below 0: behind), like that of a host whose clock is set right later.
 * REEL_FILES_AT=SECONDS makes stat(2) report this value as the times of every file, as on a file
 * server whose clock was set back between two writes. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out)
{
    const char *ahead = getenv("REEL_CLOCK_AHEAD");
    int (*next)(clockid_t, struct timespec *);
    /* the function of the next preloaded library, if there is one */
    *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = next(clock, out);
    if (rc == 0 && clock == CLOCK_REALTIME && ahead)
        out->tv_sec += strtol(ahead, NULL, 10);
    return rc;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

int stat(const char *path, struct stat *out)
{
    const char *at = getenv("REEL_FILES_AT");
    int rc = (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0);
    if (rc == 0 && at)
        out->st_mtim = out->st_ctim = (struct timespec){strtol(at, NULL, 10), 0};
    return rc;
}
