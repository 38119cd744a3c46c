#include "launcher/run/ranks.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "launcher/run/hearing.h"
#include "launcher/run/ranks_list.h"
#include "launcher/sched/proc.h"

/* A rank that has no handler for DEAF_S after the notice, or that began AGED_S ago and has none, is
 * taken for a program that only waits for what it started; until then it may be starting up. */
static const double DEAF_S = 3, AGED_S = 10;
/* A shell whose traps are not known is signalled, unless something below it handles the signal,
 * OPAQUE_S after it began: most have none, and it would end. A command that a shell has run for
 * LASTS_S is no step of a loop; is_kept looks twice, LOOKS_APART_S apart. */
static const double OPAQUE_S = 60, LASTS_S = 2, LOOKS_APART_S = 0.02;
/* A look reads two files for each process of the machine. For EAGER_S every call looks. After that
 * the next look waits for SELDOM_PART of the time since the first look, and at most SELDOM_S. */
static const double EAGER_S = 10, SELDOM_PART = 0.1, SELDOM_S = 5;
enum { KILL_LOOKS = 50 };

/* Tells whether one of these processes is the parent of the other, or further up. */
static bool is_above(const struct rank_process *list, size_t n, pid_t above,
                     const struct rank_process *p)
{
    for (size_t depth = 0; p && p->parent != above && depth < n; depth++)
        p = ranks_find(list, n, p->parent);
    return p && p->parent == above;
}

/* Tells whether this process handles the signal, be it when its present command has ended, or
 * passes it on. */
static bool handles(pid_t pid, int signo)
{
    enum hearing hearing = hearing_of(pid, signo);
    return hearing == HANDLES || hearing == FORWARDS || hearing == DEFERS;
}

/* Tells whether a process below this one handles the signal, whatever shells do. */
static bool hears_below(const struct rank_process *list, size_t n, pid_t pid, int signo)
{
    for (size_t i = 0; i < n; i++)
        if (is_above(list, n, pid, &list[i]) && !is_starter(list[i].pid) &&
            handles(list[i].pid, signo))
            return true;
    return false;
}

/* Finds the child that was started last, now. */
static struct proc_id last_child(pid_t pid)
{
    struct proc_row *rows;
    struct proc_id last = {0};
    size_t n = proc_list(&rows);
    for (size_t i = 0; i < n; i++)
        if (rows[i].parent == pid && rows[i].start >= last.start)
            last = (struct proc_id){rows[i].pid, rows[i].start};
    free(rows);
    return last;
}

static double age_of(int64_t start) /* in clock ticks since boot, as clock_mono_s is in seconds */
{ return clock_mono_s() - (double)start / (double)sysconf(_SC_CLK_TCK); }

/* Tells whether a shell, which runs its traps between commands, waits for a command that lasts. In
 * a loop it sleeps, or starts one command after the other. waits: it has a `wait`, so that it is
 * kept only by what it runs in front. */
static bool is_kept(const struct rank_process *list, size_t n, pid_t pid, bool waits, int signo)
{
    static const char *const sleeps[] = {"sleep\n", NULL};
    bool kept = true;
    for (int look = 0; kept && look < 2; look++) {
        if (look > 0)
            clock_sleep_s(LOOKS_APART_S);
        struct proc_id last = last_child(pid);
        bool lasts = last.pid && age_of(last.start) >= LASTS_S,
             hears = last.pid && (handles((pid_t)last.pid, signo) ||
                                  hears_below(list, n, (pid_t)last.pid, signo));
        kept = (lasts || hears) && !is_program((pid_t)last.pid, sleeps) &&
               (!waits || is_in_front(pid, (pid_t)last.pid));
    }
    return kept;
}

/* Tells how a process hears the signal. Of a shell that may not handle it, or not in time, it is
 * decided here: if something below it handles the signal, that is to have it. */
static enum hearing hearing_in(const struct rank_process *list, size_t n,
                               const struct rank_process *p, int signo)
{
    enum hearing hearing = hearing_of(p->pid, signo);
    if (hearing != UNSURE && hearing != OPAQUE && hearing != DEFERS && hearing != FORWARDS)
        return hearing;
    bool below = hears_below(list, n, p->pid, signo);
    if (hearing == DEFERS || hearing == FORWARDS)
        return below && is_kept(list, n, p->pid, hearing == FORWARDS, signo) ? DEAF : HANDLES;
    return below || (hearing == OPAQUE && age_of(p->start) < OPAQUE_S) ? DEAF : HANDLES;
}

/* Tells whether a process handles the signal, and is no srun or similar program. */
static bool hears(const struct rank_process *list, size_t n, const struct rank_process *p,
                  int signo)
{
    return hearing_in(list, n, p, signo) == HANDLES && !is_starter(p->pid);
}

/* Tells whether this process is to be signalled though no launcher numbered it: it handles the
 * signal, and no process above it does, apart from srun and similar programs. */
static bool hears_first(const struct rank_process *list, size_t n,
                        const struct rank_process *p, int signo)
{
    const struct rank_process *above = ranks_find(list, n, p->parent);
    if (!hears(list, n, p, signo))
        return false;
    for (size_t depth = 0; above && depth < n; depth++, above = ranks_find(list, n, above->parent))
        if (hears(list, n, above, signo))
            return false;
    return true;
}

/* Signals a listed process, once. If its pid is that of another process by now, no signal is sent.
 * Returns whether the process has been signalled, now or before. */
static bool tell(const struct rank_process *list, size_t n, const struct rank_process *p, int signo,
                 struct ranks_told *told)
{
    struct proc_id pid = {p->pid, p->start};
    for (size_t i = 0; i < told->n_pids; i++)
        if (told_same(told->pids[i], pid))
            return true;
    enum hearing hearing = hearing_in(list, n, p, signo);
    if (hearing == DEAF) {
        told->deaf++;
        told->deaf_pid = p->pid;
    } else if (hearing == STANDS_STILL) {
        told->still++;
        told->still_pid = p->pid;
    }
    if (hearing != HANDLES)
        return false;
    struct proc_id *grown = realloc(told->pids, (told->n_pids + 1) * sizeof *grown);
    told->pids = grown ? grown : told->pids;
    if (!grown) /* out of memory to remember the process: the next call signals it */
        return false;
    enum told_claim whose = told_claim(told, pid);
    if (whose == CLAIM_OPEN || (whose == CLAIM_OURS && proc_signal(pid, signo, NULL) < 0))
        return false;
    if (whose == CLAIM_OURS)
        told_mark(told, pid);
    told->pids[told->n_pids++] = pid;
    return true;
}

/* Tells whether this process is to be signalled in place of the rank, which has no handler: it
 * handles the signal and none between does. Before `any` all of those, and the rank, are to be
 * shells. */
static bool hears_for(const struct rank_process *list, size_t n, const struct rank_process *p,
                      const struct rank_process *rank, bool any, int signo)
{
    const struct rank_process *above = ranks_find(list, n, p->parent);
    for (size_t depth = 0; above && depth < n && (any || is_shell(above->pid)); depth++) {
        if (above == rank)
            return hears(list, n, p, signo);
        if (hears(list, n, above, signo))
            return false;
        above = ranks_find(list, n, above->parent);
    }
    return false;
}

/* Tells whether a rank without a handler is taken for a program that waits. */
static bool is_waiting(const struct rank_process *rank, struct ranks_told *told)
{
    double deaf_s = told_noted_for_s(&told->deaf_ranks,
                                     (struct proc_id){rank->pid, rank->start});
    return deaf_s >= DEAF_S || age_of(rank->start) >= AGED_S;
}

/* Signals a rank. A shell that has no handler waits for the trainer that it started, which then is
 * signalled in its place, and so may another program (flock, a parent of spawned workers); but that
 * may also be a rank that starts up. One that has a handler later is signalled too. */
static void rank_tell(const struct rank_process *list, size_t n,
                      const struct rank_process *rank, int signo, struct ranks_told *told)
{
    int64_t deaf = told->deaf, silent = told->deaf + told->still;
    bool heard = false;
    tell(list, n, rank, signo, told);
    size_t before = told->n_pids;
    bool any = told->deaf > deaf && is_waiting(rank, told);
    for (size_t i = 0; told->deaf > deaf && i < n; i++)
        if (hears_for(list, n, &list[i], rank, any, signo))
            heard |= tell(list, n, &list[i], signo, told);
    told->n_below += told->n_pids - before;
    told->deaf = heard ? deaf : told->deaf;
    if (told->deaf + told->still > silent)
        told_silent(told, (struct proc_id){rank->pid, rank->start});
}

/* Tells whether the rank, or what would be signalled in its place, handles the signal. */
static bool is_rank_heard(const struct rank_process *list, size_t n,
                          const struct rank_process *rank, int signo)
{
    bool heard = hears(list, n, rank, signo);
    for (size_t i = 0; i < n && !heard; i++)
        heard = hears_for(list, n, &list[i], rank, true, signo);
    return heard;
}

/* Reads the trainer's processes, finds the ranks among them, and decides whether they are
 * numbered. */
static int ranks_read(const char *trainer_id, int signo, struct ranks_told *told,
                      struct rank_process **list, size_t *n, struct err *err)
{
    bool heard = false;
    int rc = ranks_list_read(RANKS_TRAINER, trainer_id, told, list, n, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < *n && !heard; i++)
        heard = ranks_is_rank(&(*list)[i]) && is_rank_heard(*list, *n, &(*list)[i], signo);
    told_heard(told, heard);
    return 0;
}

void ranks_look(const char *trainer_id, int signo, struct ranks_told *told)
{
    struct rank_process *list;
    size_t n;
    if (ranks_read(trainer_id, signo, told, &list, &n, NULL) == 0)
        ranks_list_free(list, n);
}

/* Tells whether it is time to look for ranks again. Looks get rarer, since most ranks are found by
 * the first one. */
static bool is_due(struct ranks_told *told)
{
    double now_s = clock_mono_s();
    if (told->begun_mono == 0)
        told->begun_mono = now_s;
    double since_s = now_s - told->begun_mono, pause_s = SELDOM_PART * since_s;
    if (since_s > EAGER_S && now_s - told->looked_mono < (pause_s < SELDOM_S ? pause_s : SELDOM_S))
        return false;
    told->looked_mono = now_s;
    return true;
}

/* Tells whether ranks without the trainer's id may be in other steps: none of its processes is on
 * this node, or among them is an srun or similar program. *since is when the first of them
 * began. */
static bool may_be_bare(const struct rank_process *list, size_t n, int64_t *since)
{
    bool starts = false;
    *since = n ? INT64_MAX : 0;
    for (size_t i = 0; i < n; i++) {
        starts |= is_starter(list[i].pid);
        *since = list[i].start < *since ? list[i].start : *since;
    }
    return starts || !n;
}

/* Signals the ranks whose environment was not passed on, as by srun --export and some containers.
 * One that began before `since` is of a step that the trainer did not start. */
static int bare_tell(const char *trainer_id, int signo, int64_t since, struct ranks_told *told,
                     struct err *err)
{
    struct rank_process *list;
    size_t n;
    if (!getenv("SLURM_JOB_ID"))
        return 0;
    int rc = ranks_list_read(RANKS_BARE, trainer_id, told, &list, &n, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        if (ranks_is_rank(&list[i]) && list[i].start >= since)
            rank_tell(list, n, &list[i], signo, told);
    told->bare |= told->n_pids > 0 || told->deaf > 0 || told->still > 0;
    ranks_list_free(list, n);
    return 0;
}

/* Notes the launchers above a rank that was signalled. To those who share the folder they count as
 * signalled. */
static void above_note(const struct rank_process *list, size_t n, const struct rank_process *rank,
                       struct ranks_told *told)
{
    const struct rank_process *above = ranks_find(list, n, rank->parent);
    for (size_t depth = 0; above && depth < n; depth++) {
        struct proc_id id = {above->pid, above->start};
        if (above->launcher && !told_is_noted(&told->above, id)) {
            told_noted_for_s(&told->above, id);
            told_mark(told, id);
        }
        above = ranks_find(list, n, above->parent);
    }
}

/* Signals a numbered rank. Returns false if it has no handler, and may still get one, or stands
 * still. */
static bool numbered_tell(const struct rank_process *list, size_t n,
                          const struct rank_process *rank, int signo,
                          struct ranks_told *told)
{
    int64_t silent = told->deaf + told->still;
    size_t before = told->n_pids;
    rank_tell(list, n, rank, signo, told);
    if (told->n_pids > before) {
        told_rank(told);
        above_note(list, n, rank, told);
    }
    return told->deaf + told->still == silent || is_waiting(rank, told);
}

/* Signals those that no launcher has numbered, and the ranks without an id. */
static int others_tell(const struct rank_process *list, size_t n, const char *trainer_id, int signo,
                       struct ranks_told *told, struct err *err)
{
    int64_t since;
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        if ((!list[i].numbers.len || list[i].launcher) && hears_first(list, n, &list[i], signo))
            tell(list, n, &list[i], signo, told);
    if (may_be_bare(list, n, &since) || told->bare)
        rc = bare_tell(trainer_id, signo, since, told, err);
    for (size_t i = 0; i < n && !told->n_pids && !told->deaf && !told->still; i++)
        if (!ranks_find(list, n, list[i].parent) && !is_starter(list[i].pid))
            /* No process handles the signal: the topmost one counts as deaf. */
            tell(list, n, &list[i], signo, told);
    return rc;
}

int ranks_tell(const char *trainer_id, int signo, struct ranks_told *told, struct err *err)
{
    struct rank_process *list;
    size_t n;
    told->silent_news = false;
    if (!is_due(told))
        return 0;
    int rc = ranks_read(trainer_id, signo, told, &list, &n, err);
    if (rc < 0)
        return rc;
    told->deaf = told->still = 0;
    told_silent_begin(told);
    bool young = false;
    for (size_t i = 0; i < n; i++)
        if (ranks_is_rank(&list[i]) &&
            !told_is_noted(&told->above, (struct proc_id){list[i].pid, list[i].start}))
            young |= !numbered_tell(list, n, &list[i], signo, told);
    if (!told->numbered && !young)
        rc = others_tell(list, n, trainer_id, signo, told, err);
    told_silent_end(told);
    ranks_list_free(list, n);
    return rc;
}

int64_t ranks_count(const char *trainer_id)
{
    struct rank_process *list;
    size_t n;
    int64_t ranks = 0;
    if (ranks_list_read(RANKS_TRAINER, trainer_id, NULL, &list, &n, NULL) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        ranks += ranks_is_rank(&list[i]);
    ranks_list_free(list, n);
    return ranks;
}

static int64_t kill_listed(const char *trainer_id)
{
    struct rank_process *list;
    size_t n;
    if (ranks_list_read(RANKS_TRAINER, trainer_id, NULL, &list, &n, NULL) < 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        proc_signal((struct proc_id){list[i].pid, list[i].start}, SIGKILL, NULL);
    ranks_list_free(list, n);
    return (int64_t)n;
}

int64_t ranks_kill(const char *trainer_id)
{
    int64_t first = kill_listed(trainer_id);
    for (int look = 1; look < KILL_LOOKS && kill_listed(trainer_id) > 0; look++)
        clock_sleep_s(LOOKS_APART_S); /* one may have started another meanwhile */
    return first;
}
