#include "autotune/tune_story.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "autotune/search.h"
#include "base/events.h"
#include "base/clock.h"
#include "base/lease.h"
#include "base/num.h"

const char *const tune_state_names[] = {"running", "ended", "stopped", "died", NULL};
static const char died[] = "its process died";

static void log_path(const char *dir, char out[LIMIT_PATH_BYTES + 32])
{ snprintf(out, LIMIT_PATH_BYTES + 32, "%s/events/tune.a0.evlog", dir); }

static void lease_path(const char *dir, char out[LIMIT_PATH_BYTES + 32])
{ snprintf(out, LIMIT_PATH_BYTES + 32, "%s/tuning", dir); }

/* ---- the process ---- */

/* Returns for how many seconds a file was not written; 0 where that cannot be known. It uses the
 * clock of the file system, which dates a new file beside it. */
static double age_of(const char *dir, const char *path)
{
    char probe[LIMIT_PATH_BYTES + 32];
    struct stat then, now;
    double age_s = 0;
    snprintf(probe, sizeof probe, "%s/.now-%lld", dir, (long long)getpid());
    int fd = open(probe, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return 0;
    if (fstat(fd, &now) == 0 && stat(path, &then) == 0)
        age_s = (double)(now.st_mtim.tv_sec - then.st_mtim.tv_sec);
    close(fd);
    unlink(probe);
    return age_s;
}

/* Says whether a tuning's process lives. On this host that is known at once; on another host it
 * depends on how long its lease was not renewed. */
static bool is_held(const char *dir, struct lease_holder *holder)
{
    char lock[LIMIT_PATH_BYTES + 32], file[LIMIT_PATH_BYTES + 320];
    struct lease_watch watch = {.quiet_s = 0};
    lease_path(dir, lock);
    if (!lease_look(lock, holder) || !lease_lives(&watch, lock, lease_silent_s))
        return false;
    if (strcmp(holder->host, clock_host()) == 0)
        return true;
    snprintf(file, sizeof file, "%s/%s", lock, holder->name);
    return age_of(dir, file) <= 2 * lease_silent_s;
}

/* ---- the log ---- */

static void event_take(const cJSON *event, struct tune_story *s)
{
    const char *kind = json_text(event, "ev", "");
    s->last_at = json_num(event, "wall", s->last_at);
    if (strcmp(kind, "tune_started") == 0) {
        snprintf(s->model, sizeof s->model, "%s", json_text(event, "model", ""));
        s->reason[0] = '\0', s->state = TUNE_STOPPED;
    } else if (strcmp(kind, "trial_predicted") == 0) {
        snprintf(s->layout, sizeof s->layout, "%s", json_text(event, "layout", ""));
        snprintf(s->trial, sizeof s->trial, "%s", json_text(event, "trial", ""));
    } else if (strcmp(kind, "trial_started") == 0) {
        s->in_trial = true;
    } else if (strcmp(kind, "trial_ended") == 0) {
        s->in_trial = false, s->trials++;
        s->measured += strcmp(json_text(event, "state", ""), "ok") == 0;
    } else if (strcmp(kind, "tune_ended") == 0) {
        snprintf(s->reason, sizeof s->reason, "%s", json_text(event, "reason", ""));
        s->state = strcmp(s->reason, died) == 0 ? TUNE_DIED : TUNE_ENDED;
    }
}

static int log_read(const char *dir, struct tune_story *s, tune_trial_fn *fn, void *ctx,
                    struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct evlog_reader *reader;
    const cJSON *event;
    int rc;
    log_path(dir, path);
    if ((rc = evlog_reader_open(path, &reader, err)) < 0)
        return rc;
    while ((rc = evlog_reader_next(reader, &event, err)) == 1) {
        event_take(event, s);
        if (fn && strcmp(json_text(event, "ev", ""), "trial_ended") == 0)
            fn(ctx, s->layout, event);
    }
    evlog_reader_close(reader);
    return rc;
}

int tune_story_trials(const char *dir, tune_trial_fn *fn, void *ctx, struct err *err)
{
    struct tune_story s = {.state = TUNE_STOPPED};
    return log_read(dir, &s, fn, ctx, err);
}

/* Reads the story of a tuning. A tuning that no process runs and that recorded no end has died if
 * its lease still exists or a trial is unfinished; otherwise it was stopped. */
static int story_read(const char *dir, const char *id, struct tune_story *s, struct err *err)
{
    struct lease_holder holder;
    char lock[LIMIT_PATH_BYTES + 32];
    *s = (struct tune_story){.state = TUNE_STOPPED};
    snprintf(s->id, sizeof s->id, "%.39s", id);
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    int rc = log_read(dir, s, NULL, NULL, err);
    lease_path(dir, lock);
    if (is_held(dir, &holder))
        s->state = TUNE_RUNS;
    else if (s->state == TUNE_STOPPED && (s->in_trial || lease_look(lock, &holder)))
        s->state = TUNE_DIED;
    return rc;
}

/* Says whether the tuning's lease exists, held by a living or a dead process. A tuning that ends in
 * order drops it. */
static bool has_lease(const char *dir)
{
    char lock[LIMIT_PATH_BYTES + 32];
    struct lease_holder holder;
    lease_path(dir, lock);
    return lease_look(lock, &holder);
}

/* Does the work of tunes_each; with_lease: only for tunings whose lease exists. */
static int each(const char *home, bool with_lease, tune_story_fn *fn, void *ctx, struct err *err)
{
    char tunes[LIMIT_PATH_BYTES], dir[LIMIT_PATH_BYTES];
    struct tune_story s;
    int rc = 0;
    snprintf(tunes, sizeof tunes, "%.3500s/tunes", home);
    DIR *d = opendir(tunes);
    for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
        snprintf(dir, sizeof dir, "%.3600s/%s", tunes, e->d_name);
        if (e->d_name[0] != '.' && (!with_lease || has_lease(dir)) &&
            story_read(dir, e->d_name, &s, NULL) == 0)
            rc = fn(ctx, &s, err);
    }
    if (d)
        closedir(d);
    return rc;
}

int tunes_each(const char *home, tune_story_fn *fn, void *ctx, struct err *err)
{ return each(home, false, fn, ctx, err); }

/* ---- recording an end ---- */

int tune_story_left(struct evlog *log, const char *trial, struct err *err)
{
    struct evlog_event e;
    event_begin(log, &e, trial_ended);
    event_text(&e, trial_ended, trial, trial);
    event_text(&e, trial_ended, state, trial_state_names[TRIAL_PREEMPTED]);
    event_text(&e, trial_ended, cause, "the tuning ended before the trial did");
    return evlog_commit(log, &e, true, err);
}

static int ends_write(const struct tune_story *s, struct err *err)
{
    char events[LIMIT_PATH_BYTES + 32];
    struct evlog_ids ids = {s->id, 0, "tune", NULL};
    struct evlog_event e;
    struct evlog *log;
    int rc;
    snprintf(events, sizeof events, "%s/events", s->dir);
    if ((rc = evlog_open(events, &ids, &log, err)) < 0)
        return rc;
    if (s->in_trial && (rc = tune_story_left(log, s->trial, err)) < 0)
        goto out;
    event_begin(log, &e, tune_ended);
    event_text(&e, tune_ended, winner, NULL);
    event_text(&e, tune_ended, reason, died);
    rc = evlog_commit(log, &e, true, err);
out:
    evlog_close(log);
    return rc;
}

/* Records the end of a tuning whose process died. It does so under the tuning's lease. */
static int close_one(void *ctx, const struct tune_story *s, struct err *err)
{
    char lock[LIMIT_PATH_BYTES + 32];
    struct lease_holder holder;
    struct lease *lease = NULL;
    (void)ctx;
    if (s->state != TUNE_DIED || s->reason[0])
        return 0;
    lease_path(s->dir, lock);
    if (lease_look(lock, &holder))
        lease_evict(lock, &holder, NULL);
    if (lease_take(lock, 0, &lease, NULL) == 0)
        ends_write(s, err);
    lease_drop(lease);
    return 0;
}

void tunes_close(const char *home)
{
    struct err ignored;
    each(home, true, close_one, NULL, &ignored);
}
