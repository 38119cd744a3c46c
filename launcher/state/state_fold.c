/* This file folds a run's log files: each event is read once, from the offset that a snapshot
 * (launcher/state/snapshot.h) or the last update reached. */
#include "launcher/state/state.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/evlog.h"
#include "base/file.h"
#include "base/str.h"
#include "launcher/state/end_name.h"
#include "launcher/state/snapshot.h"
#include "launcher/state/wish_name.h"

enum { SNAPSHOT_EVENTS = 2000 }; /* reading this many takes longer than writing a snapshot */

struct fold_log {
    char *name;
    struct evlog_reader *reader;
};
struct run_fold {
    char *run_dir, *events_dir;
    struct run_state state;
    struct fold_log *logs;
    size_t n_logs;
    struct snapshot_logs notes; /* how far the logs were read; list NULL: the offsets are unknown */
    int64_t events; /* number that this fold has read since it last wrote a snapshot */
    bool begun;     /* it has been renewed before */
    bool spoilt;    /* an event may have been read but not folded, or run_fold_suppose gave the
                     * state away */
};

/* ---- the snapshot ---- */

static void logs_close(struct run_fold *f)
{
    for (size_t i = 0; i < f->n_logs; i++) {
        evlog_reader_close(f->logs[i].reader);
        free(f->logs[i].name);
    }
    f->n_logs = 0;
}

static int log_add(struct run_fold *f, const char *name, struct err *err)
{
    for (size_t i = 0; i < f->n_logs; i++)
        if (strcmp(f->logs[i].name, name) == 0)
            return 0;
    struct fold_log *grown = realloc(f->logs, (f->n_logs + 1) * sizeof *grown);
    if (grown)
        f->logs = grown;
    char *path = file_join(f->events_dir, name), *copy = strdup(name);
    int rc;
    if (!grown || !path || !copy) {
        rc = err_set(err, ERR_NOMEM, "out of memory reading '%s'", f->events_dir);
        goto out;
    }
    f->logs[f->n_logs] = (struct fold_log){.name = copy};
    if ((rc = evlog_reader_open(path, &f->logs[f->n_logs].reader, err)) < 0)
        goto out;
    f->n_logs++;
    copy = NULL;
out:
    free(copy);
    free(path);
    return rc;
}

static int readers_resume(struct run_fold *f, const struct snapshot_logs *logs)
{
    const struct evlog_damage *damage = logs->damage;
    int rc;
    for (size_t i = 0; i < logs->n; i++) {
        const struct snapshot_log *log = &logs->list[i];
        size_t n = (size_t)log->n_damage;
        if ((rc = log_add(f, log->name, NULL)) < 0)
            return rc;
        if ((rc = evlog_reader_resume(f->logs[i].reader, log->offset, log->seq, damage, n,
                                      NULL)) < 0)
            return rc;
        damage += n;
    }
    return 0;
}

/* Opens the logs at the offsets where reading stopped. If that fails, the state is cleared. */
static void logs_resume(struct run_fold *f, const struct snapshot_logs *logs)
{
    if (readers_resume(f, logs) == 0)
        return;
    logs_close(f);
    run_state_release(&f->state);
}

/* Loads the snapshot, if there is one that can be used; otherwise the state stays empty. */
static void snapshot_take(struct run_fold *f)
{
    struct snapshot_logs logs = {0};
    if (snapshot_load(f->run_dir, &f->state, &logs))
        logs_resume(f, &logs);
    snapshot_logs_release(&logs);
}

/* Adds the unreadable places before the offset that was read up to. An unfinished record after it
 * may be an append in progress. Returns false when out of memory, or if the log was cut while it
 * was read. */
static bool damage_note(const struct evlog_damage *list, size_t n, struct snapshot_log *log,
                        struct snapshot_logs *out)
{
    struct evlog_damage *grown = realloc(out->damage, (out->n_damage + n + 1) * sizeof *grown);
    if (!grown)
        return false;
    out->damage = grown;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i].reason, "file truncated") == 0)
            return false;
        if (list[i].offset < log->offset) {
            out->damage[out->n_damage++] = list[i];
            log->n_damage++;
        }
    }
    return true;
}

/* Records how far a log was read. Returns false if a snapshot cannot rely on this log. */
static bool log_note(const struct fold_log *log, struct snapshot_logs *out)
{
    const struct evlog_damage *list;
    struct snapshot_log *note = &out->list[out->n++];
    size_t n = evlog_reader_damage(log->reader, &list);
    *note = (struct snapshot_log){.offset = evlog_reader_offset(log->reader),
                                  .seq = evlog_reader_seq(log->reader)};
    return (size_t)snprintf(note->name, sizeof note->name, "%s", log->name) < sizeof note->name &&
           damage_note(list, n, note, out);
}

/* Records how far the logs were read; notes.list is NULL if some log cannot be resumed there. */
static void logs_note(struct run_fold *f)
{
    snapshot_logs_release(&f->notes);
    f->notes.list = calloc(f->n_logs + 1, sizeof *f->notes.list);
    bool good = f->notes.list && !f->spoilt;
    for (size_t i = 0; i < f->n_logs && good; i++)
        good = log_note(&f->logs[i], &f->notes);
    if (!good || !snapshot_logs_hash(f->run_dir, &f->notes))
        snapshot_logs_release(&f->notes);
}

/* Writes a snapshot for the next process, if many events were read. */
static void snapshot_keep(struct run_fold *f)
{
    if (f->spoilt || f->events < SNAPSHOT_EVENTS)
        return;
    logs_note(f);
    if (f->notes.list)
        snapshot_save(f->run_dir, &f->state, &f->notes);
    f->events = 0;
}

/* ---- folding files ---- */

int run_fold_open(const char *run_dir, struct run_fold **out, struct err *err)
{
    struct run_fold *f = calloc(1, sizeof *f);
    if (f)
        run_state_init(&f->state);
    if (!f || !(f->events_dir = file_join(run_dir, "events")) || !(f->run_dir = strdup(run_dir))) {
        run_fold_close(f);
        return err_set(err, ERR_NOMEM, "out of memory reading run '%s'", run_dir);
    }
    snapshot_take(f);
    *out = f;
    return 0;
}

void run_fold_close(struct run_fold *f)
{
    if (!f)
        return;
    snapshot_keep(f);
    logs_close(f);
    free(f->logs);
    snapshot_logs_release(&f->notes);
    free(f->events_dir);
    free(f->run_dir);
    run_state_release(&f->state);
    free(f);
}

const struct run_state *run_fold_state(const struct run_fold *f)
{
    return &f->state;
}

static int log_select(const struct dirent *d)
{
    return str_ends(d->d_name, ".evlog") || wish_name_is(d->d_name) || end_name_is(d->d_name);
}

/* Folds what this file holds: a log, or a name. The names are read at each update. */
static int file_add(struct run_fold *f, const char *name, struct err *err)
{
    struct wish_name m;
    struct run_named n;
    if (str_ends(name, ".evlog"))
        return log_add(f, name, err);
    if (wish_name_parse(name, &m))
        wish_name_apply(&m, &f->state);
    return end_name_parse(name, &n) ? run_state_named(&f->state, &n, err) : 0;
}

static int logs_find(struct run_fold *f, struct err *err)
{
    struct dirent **names = NULL;
    int n = scandir(f->events_dir, &names, log_select, alphasort), rc = 0;
    if (n < 0)
        return errno == ENOENT ? 0 : err_set_errno(err, ERR_IO, "cannot list '%s'", f->events_dir);
    for (int i = 0; i < n; i++) {
        if (rc == 0) /* the loop goes on, to free all names */
            rc = file_add(f, names[i]->d_name, err);
        free(names[i]);
    }
    free(names);
    return rc;
}

int64_t run_state_claimed(const char *run_dir)
{
    char path[LIMIT_PATH_BYTES];
    int64_t highest = 0;
    snprintf(path, sizeof path, "%s/claims", run_dir);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        long long n;
        if (sscanf(d->d_name, "attempt-%lld", &n) == 1 && n > highest)
            highest = n;
    }
    if (dir)
        closedir(dir);
    return highest;
}

int64_t run_fold_events(const struct run_fold *f)
{
    return f->events;
}

/* Says whether an event was written into a log of this name. A copy of a log that lies beside it
 * tells nothing anew. */
static bool is_own(const char *name, const cJSON *event)
{
    char own[2 * LIMIT_NAME_BYTES];
    snprintf(own, sizeof own, "%s.a%lld.evlog", json_text(event, "writer", ""),
             (long long)json_int(event, "attempt", 0));
    return strcmp(own, name) == 0;
}

static int log_fold(struct run_fold *f, struct fold_log *log, struct err *err)
{
    const cJSON *event;
    int rc;
    while ((rc = evlog_reader_next(log->reader, &event, err)) == 1) {
        f->events++;
        if (is_own(log->name, event) && (rc = run_state_apply(&f->state, event, err)) < 0)
            break;
    }
    return rc;
}

int run_fold_update(struct run_fold *f, struct err *err)
{
    int rc = logs_find(f, err);
    f->state.damaged_records = 0;
    f->state.claimed = run_state_claimed(f->run_dir);
    for (size_t i = 0; i < f->n_logs && rc >= 0; i++) {
        const struct evlog_damage *list;
        rc = log_fold(f, &f->logs[i], err);
        f->state.damaged_records += (int64_t)evlog_reader_damage(f->logs[i].reader, &list);
    }
    run_state_settle(&f->state);
    f->spoilt = f->spoilt || rc < 0;
    return rc;
}

/* Reopens the logs at the offsets reached. If a log has changed before its offset, starts from the
 * snapshot or from the first event. */
static void fold_reopen(struct run_fold *f)
{
    bool goes_on = f->notes.list && !f->spoilt && snapshot_logs_go_on(f->run_dir, &f->notes);
    logs_close(f);
    if (goes_on) {
        logs_resume(f, &f->notes);
        return;
    }
    run_state_release(&f->state);
    f->spoilt = false;
    snapshot_take(f);
}

int run_fold_renew(struct run_fold *f, struct err *err)
{
    if (f->begun)
        fold_reopen(f);
    f->begun = true;
    int rc = run_fold_update(f, err);
    if (rc == 0)
        snapshot_keep(f);
    logs_note(f);
    return rc;
}

struct run_state *run_fold_suppose(struct run_fold *f)
{
    f->spoilt = true;
    return &f->state;
}

int run_state_load(const char *run_dir, struct run_state *s, struct err *err)
{
    struct run_fold *f = NULL;
    int rc;
    if ((rc = run_fold_open(run_dir, &f, err)) < 0)
        return rc;
    if ((rc = run_fold_update(f, err)) < 0)
        goto out;
    snapshot_keep(f);
    run_state_release(s);
    *s = f->state;
    run_state_init(&f->state);
out:
    run_fold_close(f);
    return rc;
}
