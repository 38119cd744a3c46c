/* host_memory: how much memory of the host this process may take: of the machine's (/proc/meminfo),
 * what the control groups that it lies in leave it (cgroup v2's memory.max, up to the root), and
 * what its limit of addresses does (RLIMIT_AS). The least of them counts.
 *
 *     struct host_memory m;
 *     host_memory_read("", &m, err);
 */
#ifndef TRAINER_DEV_HOST_MEMORY_H
#define TRAINER_DEV_HOST_MEMORY_H

#include <stdint.h>

#include "base/err.h"

/* free_bytes: what could be taken now, without other processes' memory; caches of files count as
 * free. total_bytes: what the process could have at most, were it alone. */
struct host_memory { int64_t free_bytes, total_bytes; };

/* Reads the files below `root`; "" is this machine, and tests give a folder. ERR_ENV: the system
 * does not tell. */
int host_memory_read(const char *root, struct host_memory *out, struct err *err);

#endif
