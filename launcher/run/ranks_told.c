#include "launcher/run/ranks_told.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

/* A process is signalled within microseconds after it was claimed; an older claim counts as
 * abandoned. */
static const double FORSAKEN_S = 2;
/* A process that has a rank's numbers for less than that may be a script that runs before one. */
static const double LASTED_S = 0.2;

void ranks_release(struct ranks_told *told)
{
    free(told->pids);
    free(told->claims.all);
    free(told->deaf_ranks.all);
    free(told->numbered_ranks.all);
    free(told->launchers);
    *told = (struct ranks_told){.shared = told->shared};
}

bool told_same(struct proc_id a, struct proc_id b)
{
    return a.pid == b.pid && a.start == b.start;
}

/* Returns what is noted of the process; adds it if nothing is. NULL: out of memory. */
static struct told_note *note_of(struct told_noted *noted, struct proc_id pid)
{
    for (size_t i = 0; i < noted->n; i++)
        if (told_same(noted->all[i].pid, pid))
            return &noted->all[i];
    struct told_note *grown = realloc(noted->all, (noted->n + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    noted->all = grown;
    noted->all[noted->n] = (struct told_note){.pid = pid, .mono = clock_mono_s()};
    return &noted->all[noted->n++];
}

double told_noted_for_s(struct told_noted *noted, struct proc_id pid)
{
    const struct told_note *note = note_of(noted, pid);
    return note ? clock_mono_s() - note->mono : 0;
}

/* Writes the path of a process's name in the folder. */
static void name_of(const struct ranks_told *told, struct proc_id pid, const char *ending,
                    char path[LIMIT_PATH_BYTES])
{
    snprintf(path, LIMIT_PATH_BYTES, "%s/%lld.%lld%s", told->shared, (long long)pid.pid,
             (long long)pid.start, ending);
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

static const char NUMBERED[] = ".numbered";

static void numbered_keep(struct ranks_told *told, struct proc_id pid)
{
    char path[LIMIT_PATH_BYTES];
    struct told_note *note = note_of(&told->numbered_ranks, pid);
    if (!note || note->lasted || clock_mono_s() - note->mono < LASTED_S)
        return;
    note->lasted = true;
    if (!told->shared)
        return;
    name_of(told, pid, NUMBERED, path);
    mkdir(path, 0777);
}

/* Notes the numbered ranks that others have found. */
static void numbered_read(struct ranks_told *told)
{
    DIR *d = told->shared ? opendir(told->shared) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char *end;
        struct proc_id id = {.pid = strtoll(e->d_name, &end, 10)};
        if (*end == '.')
            id.start = strtoll(end + 1, &end, 10);
        struct told_note *note = id.pid > 0 && strcmp(end, NUMBERED) == 0
                                     ? note_of(&told->numbered_ranks, id)
                                     : NULL;
        if (note)
            note->lasted = true;
    }
    if (d)
        closedir(d);
}

static void numbered_forget(struct ranks_told *told, size_t i)
{
    char path[LIMIT_PATH_BYTES];
    if (told->shared) {
        name_of(told, told->numbered_ranks.all[i].pid, NUMBERED, path);
        rmdir(path);
    }
    told->numbered_ranks.all[i] = told->numbered_ranks.all[--told->numbered_ranks.n];
}

static bool is_among(const struct proc_id *found, size_t n, struct proc_id id)
{
    for (size_t i = 0; i < n; i++)
        if (told_same(found[i], id))
            return true;
    return false;
}

void told_numbered(struct ranks_told *told, const struct proc_id *found, size_t n)
{
    struct told_noted *all = &told->numbered_ranks;
    for (size_t i = 0; i < n; i++)
        numbered_keep(told, found[i]);
    numbered_read(told);
    told->lasted = false;
    for (size_t i = all->n; i-- > 0;) {
        const struct told_note *note = &all->all[i];
        bool there = is_among(found, n, note->pid);
        if (!there && (!note->lasted || proc_alive(note->pid)))
            numbered_forget(told, i);
        else
            told->lasted |= note->lasted;
    }
    told->numbered = all->n > 0;
}
