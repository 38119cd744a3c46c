/* This library is preloaded into reel-train. The process stops itself (SIGSTOP) before its first
 * rename(2) to a name that contains REEL_STOP_AT, like a process that gets no CPU time between a
 * check and the action after it. With REEL_STOP_ONE only the thread that calls rename waits, for
 * ever: the process lives, and renews its leases. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int rename(const char *from, const char *to)
{
    static int stopped;
    const char *at = getenv("REEL_STOP_AT");
    if (at && !stopped && strstr(to, at)) {
        stopped = 1;
        while (getenv("REEL_STOP_ONE"))
            pause();
        kill(getpid(), SIGSTOP);
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
