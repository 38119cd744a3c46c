/* ranks_told: what is remembered of a trainer's ranks from one look to the next: which were
 * signalled, and whether there were numbered ones.
 *
 * Several processes of a host may signal the same ranks. They share a folder, in which this is of a
 * process with <pid>.<start> (base/process.h):
 *   <pid>.<start>         it was claimed by one of them, who is about to signal it
 *   <pid>.<start>.told    it was signalled
 * and this of a node:
 *   numbered.<node>       its time: a numbered rank that handles the signal was seen
 *   numbered.<node>.told  a numbered rank was signalled
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
    double heard_mono; /* when a look last found a numbered rank that handles the signal */
    bool rank_told; /* a numbered rank was signalled */
    bool numbered;  /* the ranks are numbered: see told_heard */
    bool bare;      /* ranks without the trainer's id were found and are looked for again */
    int64_t deaf;   /* number of ranks without a handler, at the last call */
    int64_t still;  /* number of ranks that stand still, so that it is not known, likewise */
    pid_t deaf_pid, still_pid; /* one of each */
    struct proc_id *pids; /* the ranks signalled so far */
    size_t n_pids, n_below; /* n_below: how many of them were signalled in place of the ranks above
                             * them, which have no handler */
    /* Ranks that another process has claimed and not signalled yet, and ranks without a handler. */
    struct told_noted claims, deaf_ranks;
    /* Ranks that the last look found without a handler or standing still, and what the look before
     * it found. silent_news: they differ, not only by ranks that have ended. */
    struct told_noted silent, silent_before;
    bool silent_news;
    struct told_noted above; /* launchers of ranks that were signalled: they are not, not even when
                              * their ranks have ended and they look like ranks themselves */
    struct proc_id *launchers; /* processes that have started ranks of several numbers */
    size_t n_launchers;
};
void ranks_release(struct ranks_told *told);

bool told_same(struct proc_id a, struct proc_id b);

bool told_is_noted(const struct told_noted *noted, struct proc_id pid);
/* Returns how long ago the process was noted, s; notes one that was not. */
double told_noted_for_s(struct told_noted *noted, struct proc_id pid);

/* Collect the silent ranks of a look, and decide after it whether they are news. A rank that has
 * lost its handler since another process signalled it is not silent. */
void told_silent_begin(struct ranks_told *told);
void told_silent(struct ranks_told *told, struct proc_id rank);
void told_silent_end(struct ranks_told *told);

/* Decides told->numbered after a look, which has found a numbered rank that handles the signal, or
 * has not (heard). It holds for half a minute after such a rank was last seen, and for ever after
 * one was signalled, by this process or one that shares the folder. Numbers alone decide nothing:
 * a step that measures, or one that has ended, has them too, and so has what Slurm runs before a
 * task. */
void told_heard(struct ranks_told *told, bool heard);
void told_rank(struct ranks_told *told); /* records that a numbered rank was signalled */

enum told_claim { CLAIM_OURS, CLAIM_TOLD, CLAIM_OPEN };
/* Decides who signals a process: of those who share the folder, the one that claims it. If the
 * folder cannot be written the caller signals: twice is better than never. After the signal the
 * caller calls told_mark. CLAIM_OPEN: another has claimed it and not signalled it yet. */
enum told_claim told_claim(struct ranks_told *told, struct proc_id pid);
void told_mark(const struct ranks_told *told, struct proc_id pid);

#endif
