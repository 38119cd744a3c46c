/* process: which process is meant, for one boot of one machine. A pid alone names a process only until it is reused; pid and start time
 * together name it until the machine is booted again. All of it is read from /proc, in the reader's own pid namespace. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_id {
    int64_t pid;   /* 0: none */
    int64_t start; /* clock ticks since boot */
};

struct proc_id proc_identify(pid_t pid); /* {0} if there is no such process or it is a zombie */
bool proc_alive(struct proc_id id);      /* false for a zombie */

struct proc_stat {
    char state; /* 'R', 'S', ...; 'Z' and 'X' have ended */
    pid_t parent;
    int64_t start;
};
bool proc_stat_read(pid_t pid, struct proc_stat *out); /* false: no such process, or it is hidden from us */

/* Inode of the pid namespace this process lives in: pids are comparable where it is the same. 0 unknown. */
int64_t proc_namespace(void);

#endif
