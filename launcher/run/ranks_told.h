/* ranks_told: what is remembered of a trainer's ranks from one look to the next: which were
 * signalled, and whether there were numbered ones.
 *
 * Several processes of a host may signal the same ranks. They share a folder, in which this is of a
 * process with <pid>.<start> (base/process.h):
 *   <pid>.<start>           it was claimed by one of them, who is about to signal it
 *   <pid>.<start>.told      it was signalled
 *   <pid>.<start>.numbered  it was found to be a numbered rank, by two looks
 */
#ifndef LAUNCHER_RUN_RANKS_TOLD_H
#define LAUNCHER_RUN_RANKS_TOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "base/process.h"

/* Processes, each with the time of the first look that found it so, monotonic s. */
struct told_noted {
    struct told_note {
        struct proc_id pid;
        double mono;
        bool lasted; /* of a numbered rank: looks LASTED_S apart found it */
    } *all;
    size_t n;
};

/* Remembers from call to call which ranks were signalled; zeroed before the first call. A rank is
 * signalled once, because its handler may do more than set a flag. A rank that has no handler yet,
 * because it starts up, is signalled when it has one. */
struct ranks_told {
    /* Borrowed: the folder of those who signal the same ranks, so that each rank gets one signal;
     * NULL: no other process signals them. */
    const char *shared;
    double begun_mono, looked_mono; /* when ranks_tell looked first and last */
    bool numbered;  /* there are numbered ranks here, or there were and they have ended */
    bool lasted;    /* this stays known when they end: looks for that need not go on */
    bool bare;      /* ranks without the trainer's id were found and are looked for again */
    int64_t deaf;   /* number of ranks without a handler, at the last call */
    pid_t deaf_pid; /* one of them */
    struct proc_id *pids; /* the ranks signalled so far */
    size_t n_pids, n_below; /* n_below: how many of them were signalled in place of the ranks above
                             * them, which have no handler */
    /* Ranks that another process has claimed and not signalled yet, ranks without a handler, and
     * numbered ranks. */
    struct told_noted claims, deaf_ranks, numbered_ranks;
    struct proc_id *launchers; /* processes that have started ranks of several numbers */
    size_t n_launchers;
};
void ranks_release(struct ranks_told *told);

bool told_same(struct proc_id a, struct proc_id b);

/* Returns how long ago the process was noted, s; notes one that was not. */
double told_noted_for_s(struct told_noted *noted, struct proc_id pid);

/* Decides told->numbered by the numbered ranks that a look has found, and by those found before,
 * also by others who share the folder. Of these one counts if it has ended, and if it was found by
 * two looks a fifth of a second apart. One that ends sooner was no rank. One that lives and is no
 * longer numbered has executed another program since: a rank that env -i starts has the trainer's
 * numbers for that moment. */
void told_numbered(struct ranks_told *told, const struct proc_id *found, size_t n);

enum told_claim { CLAIM_OURS, CLAIM_TOLD, CLAIM_OPEN };
/* Decides who signals a process: of those who share the folder, the one that claims it. If the
 * folder cannot be written the caller signals: twice is better than never. After the signal the
 * caller calls told_mark. CLAIM_OPEN: another has claimed it and not signalled it yet. */
enum told_claim told_claim(struct ranks_told *told, struct proc_id pid);
void told_mark(const struct ranks_told *told, struct proc_id pid);

#endif
