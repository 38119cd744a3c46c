/* process: identifies a process within one boot of one machine.
 *
 * A pid alone identifies a process only until the pid is reused; pid and start time together
 * identify it until the machine is booted again. Both are read from /proc, in the pid namespace of
 * the reader.
 */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_id {
    int64_t pid;   /* 0: none */
    int64_t start; /* clock ticks since boot */
};

struct proc_id proc_identify(pid_t pid); /* returns {0} for a zombie and for no process */
bool proc_alive(struct proc_id id);      /* returns false for a zombie */

struct proc_stat {
    char state; /* 'R', 'S', ...; a process in 'Z' or 'X' has ended */
    pid_t parent;
    int64_t start;
};
/* Reads the state of a process. Returns false if there is no such process or /proc hides it from
 * us. */
bool proc_stat_read(pid_t pid, struct proc_stat *out);

/* Returns the inode of this process's pid namespace, 0 if it is not known. Pids are comparable only
 * within one namespace. */
int64_t proc_namespace(void);

/* Returns how many processors this process may use; at least 1. */
int64_t proc_cpus(void);

#endif
