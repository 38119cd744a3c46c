/* oom: asks the kernel whether it killed processes for memory while a trial ran.
 *
 * A killed process alone proves nothing, because a user or a scheduler can kill it too. So a trial
 * counts as out of memory only if the kernel says so. The first of these that can be read decides:
 *
 *     memory.events            of our cgroup, v2: "oom_kill N" (cgroup-v2.rst)
 *     memory.oom_control       of our cgroup, v1: "oom_kill N" (cgroup-v1/memory.rst)
 *     /dev/kmsg                "Killed process 7 (reel-train)", of any cgroup
 *     /proc/vmstat             "oom_kill N", of the whole machine
 *
 * The first two count our cgroup alone. On Slurm a job step may have its own cgroup; then Slurm
 * writes into the step's log that memory was short (trial.c).
 *
 *     oom_watch_begin(&w, "", "reel-train");   // in /dev/kmsg, only this program counts; NULL: any
 *     ... the trial runs ...
 *     if (oom_watch_end(&w, evidence)) ...     // memory was short, and evidence names the source
 */
#ifndef AUTOTUNE_OOM_H
#define AUTOTUNE_OOM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

enum { OOM_EVIDENCE_BYTES = 256 };
struct oom_watch {
    char counter[LIMIT_PATH_BYTES]; /* the file with "oom_kill N"; "": none can be read */
    const char *program;            /* borrowed */
    bool own;                       /* the file counts our cgroup alone */
    int64_t before;
    int messages;                   /* descriptor of /dev/kmsg, or -1 */
};
/* Begins the watch. root is put before each path; it is "" except in tests. */
void oom_watch_begin(struct oom_watch *w, const char *root, const char *program);
/* Ends the watch. Tells whether the kernel killed processes for memory meanwhile, and writes the
 * line that says so to `evidence`. */
bool oom_watch_end(struct oom_watch *w, char evidence[OOM_EVIDENCE_BYTES]);

#endif
