#include "launcher/run/ranks_told.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

/* A process is signalled within microseconds after it was claimed; an older claim counts as
 * abandoned. */
static const double FORSAKEN_S = 2;
/* Numbered ranks that have ended count for that long. */
static const double RECENT_S = 30;

void ranks_release(struct ranks_told *told)
{
    free(told->pids);
    free(told->claims.all);
    free(told->deaf_ranks.all);
    free(told->silent.all);
    free(told->silent_before.all);
    free(told->above.all);
    free(told->launchers);
    *told = (struct ranks_told){.shared = told->shared};
}

bool told_same(struct proc_id a, struct proc_id b)
{
    return a.pid == b.pid && a.start == b.start;
}

bool told_is_noted(const struct told_noted *noted, struct proc_id pid)
{
    for (size_t i = 0; i < noted->n; i++)
        if (told_same(noted->all[i].pid, pid))
            return true;
    return false;
}

double told_noted_for_s(struct told_noted *noted, struct proc_id pid)
{
    double now_s = clock_mono_s();
    for (size_t i = 0; i < noted->n; i++)
        if (told_same(noted->all[i].pid, pid))
            return now_s - noted->all[i].mono;
    struct told_note *grown = realloc(noted->all, (noted->n + 1) * sizeof *grown);
    if (grown) {
        noted->all = grown;
        noted->all[noted->n++] = (struct told_note){pid, now_s};
    }
    return 0;
}

/* Writes the path of a process's name in the folder. */
static void name_of(const struct ranks_told *told, struct proc_id pid, const char *ending,
                    char path[LIMIT_PATH_BYTES])
{
    snprintf(path, LIMIT_PATH_BYTES, "%s/%lld.%lld%s", told->shared, (long long)pid.pid,
             (long long)pid.start, ending);
}

/* ---- silent ranks ---- */

void told_silent_begin(struct ranks_told *told)
{
    struct told_noted before = told->silent;
    told->silent = told->silent_before;
    told->silent_before = before;
    told->silent.n = 0;
}

void told_silent(struct ranks_told *told, struct proc_id rank)
{
    char path[LIMIT_PATH_BYTES] = "";
    if (told->shared)
        name_of(told, rank, ".told", path);
    if (!*path || access(path, F_OK) != 0)
        told_noted_for_s(&told->silent, rank);
}

void told_silent_end(struct ranks_told *told)
{
    const struct told_noted *now = &told->silent, *before = &told->silent_before;
    told->silent_news = false;
    for (size_t i = 0; i < now->n; i++)
        told->silent_news |= !told_is_noted(before, now->all[i].pid);
    for (size_t i = 0; i < before->n; i++)
        told->silent_news |= !told_is_noted(now, before->all[i].pid) &&
                             proc_alive(before->all[i].pid);
}

/* ---- claims ---- */

enum told_claim told_claim(struct ranks_told *told, struct proc_id pid)
{
    char path[LIMIT_PATH_BYTES];
    if (!told->shared)
        return CLAIM_OURS;
    name_of(told, pid, ".told", path);
    if (access(path, F_OK) == 0)
        return CLAIM_TOLD;
    name_of(told, pid, "", path);
    bool ours = mkdir(path, 0777) == 0 || errno != EEXIST;
    return ours || told_noted_for_s(&told->claims, pid) >= FORSAKEN_S ? CLAIM_OURS : CLAIM_OPEN;
}

void told_mark(const struct ranks_told *told, struct proc_id pid)
{
    char path[LIMIT_PATH_BYTES];
    if (!told->shared)
        return;
    name_of(told, pid, ".told", path);
    mkdir(path, 0777);
}

/* ---- numbered ranks ---- */

/* Writes the path of a marker of this node. */
static void marker_of(const struct ranks_told *told, const char *ending,
                      char path[LIMIT_PATH_BYTES])
{
    const char *node = getenv("SLURMD_NODENAME");
    snprintf(path, LIMIT_PATH_BYTES, "%s/numbered.%s%s", told->shared, node ? node : "", ending);
}

/* Sets the time of the marker that numbered ranks hear, by this host's clock. */
static void heard_mark(const struct ranks_told *told)
{
    char path[LIMIT_PATH_BYTES];
    double now_s = clock_wall_s();
    struct timespec now = {.tv_sec = (time_t)now_s}, times[2] = {now, now};
    if (!told->shared)
        return;
    marker_of(told, "", path);
    mkdir(path, 0777);
    utimensat(AT_FDCWD, path, times, 0);
}

/* Tells whether another process that shares the folder has told a numbered rank of this node, or
 * has lately seen one that hears. */
static bool others_know(const struct ranks_told *told)
{
    char path[LIMIT_PATH_BYTES];
    struct stat st;
    if (!told->shared)
        return false;
    marker_of(told, ".told", path);
    if (access(path, F_OK) == 0)
        return true;
    marker_of(told, "", path);
    return stat(path, &st) == 0 && fabs(clock_wall_s() - (double)st.st_mtime) < RECENT_S;
}

void told_heard(struct ranks_told *told, bool heard)
{
    double now_s = clock_mono_s();
    if (heard) {
        told->heard_mono = now_s;
        heard_mark(told);
    }
    told->numbered = told->rank_told ||
                     (told->heard_mono > 0 && now_s - told->heard_mono < RECENT_S) ||
                     others_know(told);
}

void told_rank(struct ranks_told *told)
{
    char path[LIMIT_PATH_BYTES];
    bool before = told->rank_told;
    told->rank_told = told->numbered = true;
    if (!told->shared || before)
        return;
    marker_of(told, ".told", path);
    mkdir(path, 0777);
}
