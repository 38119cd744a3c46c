#include "launcher/state/wish_name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/str.h"

enum { TRIES = 10 };
static const char prefix[] = "wish.", spare[] = "wish.none";

bool wish_name_is(const char *name) { return str_starts(name, prefix); }

/* Lists the words that stand for a request in the file's name. */
static const struct {
    const char *word;
    enum run_wish wish;
    bool at_scheduler;
} kinds[] = {{"cancel", WISH_CANCEL, false}, {"pause", WISH_PAUSE, false},
             {"scancel", WISH_CANCEL, true}};

static const char *word_of(const struct wish_name *m)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].wish == m->wish && kinds[i].at_scheduler == m->at_scheduler)
            return kinds[i].word;
    BUG_ON(true);
    return "";
}

bool wish_name_parse(const char *name, struct wish_name *out)
{
    char word[16];
    long long turn, met, at_ms;
    if (sscanf(name, "wish.%15[a-z].%lld.%lld.%lld", word, &turn, &met, &at_ms) != 4)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].word, word) == 0) {
            *out = (struct wish_name){kinds[i].wish, kinds[i].at_scheduler, turn, met,
                                 (double)at_ms / 1e3};
            return true;
        }
    return false;
}

struct wish_name wish_name_make(const struct run_state *s, enum run_wish wish, bool at_scheduler)
{
    int64_t met = s->n_attempts ? s->attempts[s->n_attempts - 1].number : 0;
    return (struct wish_name){wish, at_scheduler, s->wish_turn + 1, met, clock_wall_s()};
}

void wish_name_apply(const struct wish_name *m, struct run_state *s)
{
    const char *by = m->at_scheduler ? "its job was cancelled at the scheduler" : "";
    run_state_wish(s, m->wish, m->turn, m->met_attempt, m->at, by);
    s->last_event_at = fmax(s->last_event_at, m->at);
}

/* Finds the file among the logs in this folder; returns false if there is none. */
static bool file_find(const char *events_dir, char name[LIMIT_NAME_BYTES])
{
    DIR *dir = opendir(events_dir);
    bool found = false;
    for (struct dirent *d; dir && !found && (d = readdir(dir));)
        if ((found = wish_name_is(d->d_name)))
            snprintf(name, LIMIT_NAME_BYTES, "%.*s", LIMIT_NAME_BYTES - 1, d->d_name);
    if (dir)
        closedir(dir);
    return found;
}

static int file_make(const char *path, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_set_errno(err, ERR_IO, "cannot make '%s'", path);
    close(fd);
    return 0;
}

void wish_name_reserve(const char *events_dir)
{
    char name[LIMIT_NAME_BYTES], path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%.4000s/%s", events_dir, spare);
    if (!file_find(events_dir, name))
        file_make(path, NULL);
}

static bool is_older(const char *name, const struct wish_name *m)
{
    struct wish_name kept;
    return !wish_name_parse(name, &kept) || kept.turn < m->turn;
}

int wish_name_put(const char *run_dir, const struct wish_name *m, struct err *err)
{
    char events[LIMIT_PATH_BYTES], name[LIMIT_NAME_BYTES];
    char from[LIMIT_PATH_BYTES], to[LIMIT_PATH_BYTES];
    snprintf(events, sizeof events, "%.3800s/events", run_dir);
    snprintf(to, sizeof to, "%.3900s/%s%s.%lld.%lld.%lld", events, prefix, word_of(m),
             (long long)m->turn, (long long)m->met_attempt, (long long)(m->at * 1e3));
    for (int tries = 0; tries < TRIES && file_find(events, name); tries++) {
        snprintf(from, sizeof from, "%.3900s/%.150s", events, name);
        if (!is_older(name, m))
            return err_set(err, ERR_BUSY,
                           "somebody else has just said what is to become of the run ('%s'): give "
                           "the command again", name);
        if (rename(from, to) == 0)
            return file_fsync_dir(events, err);
        if (errno != ENOENT) /* ENOENT: another process renamed it, so try again */
            return err_set_errno(err, ERR_IO, "cannot rename '%s'", from);
    }
    int rc;
    if ((rc = file_make(to, err)) < 0)
        return rc;
    return file_fsync_dir(events, err);
}
