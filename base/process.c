#include "base/process.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads /proc/PID/stat, see proc(5). The name in parentheses may contain any character, so parsing
 * starts after the last ')'. state is field 3, ppid 4, starttime 22. */
bool proc_stat_read(pid_t pid, struct proc_stat *out)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *p = strrchr(text, ')');
    long parent;
    long long start;
    if (!p || sscanf(p,
                     ") %c %ld %*d %*d %*d %*d %*u %*u %*u %*u "
                     "%*u %*u %*u %*d %*d %*d %*d %*d %*d %lld",
                     &out->state, &parent, &start) != 3)
        return false;
    out->parent = (pid_t)parent;
    out->start = start;
    return true;
}

struct proc_id proc_identify(pid_t pid)
{
    struct proc_stat s;
    if (!proc_stat_read(pid, &s) || s.state == 'Z' || s.state == 'X')
        return (struct proc_id){0};
    return (struct proc_id){pid, s.start};
}

bool proc_alive(struct proc_id id)
{
    if (id.pid <= 0)
        return false;
    struct proc_id now = proc_identify((pid_t)id.pid);
    return now.pid == id.pid && now.start == id.start;
}

int64_t proc_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (int64_t)st.st_ino : 0;
}

int64_t proc_cpus(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                        : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : 1;
}
