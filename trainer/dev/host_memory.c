#include "trainer/dev/host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"

enum { FILE_BYTES = 1 << 16, PATH_BYTES = LIMIT_PATH_BYTES };

/* Returns the number that follows `name` at the beginning of a line of a file, or the file's first
 * number if name is ""; -1 if there is none. */
static int64_t number_of(const char *path, const char *name)
{
    struct str text = STR_INIT;
    int64_t found = -1;
    if (file_read(path, FILE_BYTES, &text, NULL) < 0)
        return -1;
    for (const char *line = text.p; line && found < 0; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = line + strlen(name);
        if (strncmp(line, name, strlen(name)) == 0 && at[strspn(at, " ")] >= '0' &&
            at[strspn(at, " ")] <= '9')
            found = strtoll(at, NULL, 10);
    }
    str_release(&text);
    return found;
}

static void lower(struct host_memory *m, int64_t total, int64_t used)
{
    m->total_bytes = num_min_i64(m->total_bytes, total);
    m->free_bytes = num_min_i64(m->free_bytes, num_max_i64(0, total - used));
}

/* Lowers *m to what one control group allows. File caches that it could drop count as free. */
static void group_apply(const char *folder, struct host_memory *m)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/memory.max", folder);
    int64_t most = number_of(path, "");
    if (most < 0)
        return; /* "max", or no such file: it has no limit */
    snprintf(path, sizeof path, "%s/memory.current", folder);
    int64_t used = num_max_i64(0, number_of(path, ""));
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    lower(m, most, used - num_max_i64(0, number_of(path, "inactive_file ")));
}

/* Applies the limits of this process's control group and of all groups above it, up to the root. In
 * a container the path may be the host's, and then only the root exists. */
static void groups_apply(const char *root, struct host_memory *m)
{
    char path[PATH_BYTES], folder[PATH_BYTES];
    struct str text = STR_INIT;
    int base = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup", root);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    const char *own = file_read(path, FILE_BYTES, &text, NULL) < 0 ? NULL : strstr(text.p, "0::/");
    if (own)
        snprintf(folder + base, sizeof folder - (size_t)base, "%.*s",
                 (int)strcspn(own + 3, "\n"), own + 3);
    str_release(&text);
    for (char *end = folder + strlen(folder); end && end >= folder + base;
         end = strrchr(folder, '/')) {
        *end = 0;
        group_apply(folder, m);
    }
}

static void addresses_apply(const char *root, struct host_memory *m)
{
    char path[PATH_BYTES];
    struct rlimit limit;
    snprintf(path, sizeof path, "%s/proc/self/statm", root);
    int64_t pages = num_max_i64(0, number_of(path, ""));
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < INT64_MAX)
        lower(m, (int64_t)limit.rlim_cur, pages * sysconf(_SC_PAGESIZE));
}

int host_memory_read(const char *root, struct host_memory *out, struct err *err)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    int64_t total = number_of(path, "MemTotal:"), free_kib = number_of(path, "MemAvailable:");
    if (total < 0 || free_kib < 0)
        return err_set(err, ERR_ENV,
                       "'%s' does not tell MemTotal and MemAvailable: mount /proc of Linux 3.14 or "
                       "newer", path);
    struct host_memory m = {.free_bytes = free_kib * 1024, .total_bytes = total * 1024};
    groups_apply(root, &m);
    addresses_apply(root, &m);
    *out = m;
    return 0;
}
