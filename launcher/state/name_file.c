#include "launcher/state/name_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/str.h"

enum { TRIES = 10 };

/* Finds the file among the logs in this folder; returns false if there is none. */
static bool file_find(const char *events_dir, const char *prefix, char name[LIMIT_NAME_BYTES])
{
    DIR *dir = opendir(events_dir);
    bool found = false;
    for (struct dirent *d; dir && !found && (d = readdir(dir));)
        if ((found = str_starts(d->d_name, prefix)))
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

void name_file_reserve(const char *events_dir, const char *prefix)
{
    char name[LIMIT_NAME_BYTES], path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%.3900s/%.100snone", events_dir, prefix);
    if (!file_find(events_dir, prefix, name))
        file_make(path, NULL);
}

int name_file_put(const char *run_dir, const char *prefix, const char *name,
                  name_file_older_fn *is_older, const void *ctx, struct err *err)
{
    char events[LIMIT_PATH_BYTES], old[LIMIT_NAME_BYTES];
    char from[LIMIT_PATH_BYTES], to[LIMIT_PATH_BYTES];
    snprintf(events, sizeof events, "%.3800s/events", run_dir);
    snprintf(to, sizeof to, "%.3900s/%.150s", events, name);
    for (int tries = 0; tries < TRIES && file_find(events, prefix, old); tries++) {
        snprintf(from, sizeof from, "%.3900s/%.150s", events, old);
        if (!is_older(old, ctx))
            return err_set(err, ERR_BUSY, "'%s' has newer words", from);
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
