/* host_memory: reads how much host memory this process may allocate. Three limits apply, and the
 * least counts: the machine's memory (/proc/meminfo), the limits of the control groups that contain
 * the process (cgroup v2's memory.max, up to the root), and the limit of its addresses (RLIMIT_AS).
 *
 *     struct host_memory m;
 *     host_memory_read("", &m, err);
 */
#ifndef TRAINER_DEV_HOST_MEMORY_H
#define TRAINER_DEV_HOST_MEMORY_H

#include <stdint.h>

#include "base/err.h"

/* Holds free_bytes, which the process could allocate now without taking them from others (file
 * caches count as free), and total_bytes, the most that it could have if it were alone. */
struct host_memory { int64_t free_bytes, total_bytes; };

/* Reads the files below `root`: "" for this machine; tests give a folder. ERR_ENV: the files do not
 * say how much memory there is. */
int host_memory_read(const char *root, struct host_memory *out, struct err *err);

#endif
