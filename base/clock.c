#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char boot_id[64], host[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_boot_id(void)
{
    ssize_t n = -1;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, boot_id, sizeof boot_id - 1);
        close(fd);
    }
    boot_id[n > 0 ? n : 0] = '\0';
    boot_id[strcspn(boot_id, "\n")] = '\0';
    if (boot_id[0] == '\0')
        memcpy(boot_id, "unknown", sizeof "unknown");
}

static void read_host(void)
{
    if (gethostname(host, sizeof host - 1) < 0)
        host[0] = '\0';
    host[strcspn(host, ".")] = '\0';
    if (host[0] == '\0')
        memcpy(host, "localhost", sizeof "localhost");
}

static void read_identity(void)
{
    read_boot_id();
    read_host();
}

double clock_wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t clock_mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double clock_mono_s(void)
{
    return 1e-9 * (double)clock_mono_ns();
}

double clock_cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void clock_sleep_s(double seconds)
{
    if (!(seconds > 0))
        return;
    double whole = floor(fmin(seconds, 1e9));
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((fmin(seconds, 1e9) - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

const char *clock_boot_id(void)
{
    pthread_once(&once, read_identity);
    return boot_id;
}

const char *clock_host(void)
{
    pthread_once(&once, read_identity);
    return host;
}

char *clock_format_utc(double wall_s, char *buf, size_t size)
{
    struct tm tm;
    time_t t = isfinite(wall_s) && fabs(wall_s) < 1e15 ? (time_t)floor(wall_s) : 0;
    if (size == 0)
        return buf;
    if ((t == 0 && wall_s != 0) || gmtime_r(&t, &tm) == NULL ||
        strftime(buf, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        snprintf(buf, size, "unknown");
    return buf;
}
