/* proc: reads trees of processes from /proc, and signals them. base/process.h defines the identity
 * of a process. A process that called proc_adopt() becomes the parent of every orphan below it, so
 * it finds descendants in spite of setsid and double forks. */
#ifndef LAUNCHER_SCHED_PROC_H
#define LAUNCHER_SCHED_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/process.h"
#include "base/str.h"

/* Describes a process of the list that proc_list makes. */
struct proc_row {
    pid_t pid, parent;
    int64_t start; /* as in proc_id */
    bool marked;   /* for the caller's use */
};
/* Lists every process of this machine (of this pid namespace): *out is new, to be freed; returns
 * the number of them. */
size_t proc_list(struct proc_row **out);

/* Appends /proc/PID/<name>, up to 8 MiB; returns false if it cannot be read (the process is gone,
 * or belongs to another user). */
bool proc_read(pid_t pid, const char *name, struct str *out);

/* Signals exactly this process. ERR_NOT_FOUND: it is gone, even if another process has its number
 * now. */
int proc_signal(struct proc_id id, int signo, struct err *err);

/* Tells whether a kill spares this process and all below it. */
typedef bool proc_spare_fn(pid_t pid, void *ctx);

void proc_adopt(void); /* becomes the subreaper of its descendants */

/* Sends signo to every descendant of root that is not spared; returns the number of these
 * descendants. */
size_t proc_signal_below(pid_t root, int signo, proc_spare_fn *spare, void *ctx);

/* Kills (SIGKILL) all descendants of this process that are not spared, and reaps them, until none
 * is left. Waits for a process in uninterruptible sleep as long as that lasts. */
void proc_kill_below(proc_spare_fn *spare, void *ctx);

/* Kills (SIGKILL) every process of this user with `entry` ("K=V") in its environment, until none is
 * left; returns false if some are left after max_s seconds. */
bool proc_kill_marked(const char *entry, double max_s);

/* Tells whether the argument vector of pid begins with these n words. */
bool proc_argv_is(pid_t pid, const char *const *words, size_t n);

/* Starts argv as a detached process in its own session, by executing this program again (its path
 * need not exist any more). stderr is appended to log_path; stdin and stdout are /dev/null. */
int proc_detach_self(const char *const *argv, const char *const *env, const char *log_path,
                     struct err *err);

#endif
