#include "base/owner.h"

#include <dirent.h>
#include <stdio.h>

#include "base/limits.h"

/* The wait is short, because a holder that is known to live rarely ends soon. */
static const double WAIT_S = 0.05;

static const char *owner_path(const char *run_dir, char path[LIMIT_PATH_BYTES])
{
    snprintf(path, LIMIT_PATH_BYTES, "%s/owner", run_dir);
    return path;
}

/* Returns the greatest number of an attempt that wrote events into the folder, 0 if none did. */
static int64_t newest_attempt(const char *run_dir)
{
    char path[LIMIT_PATH_BYTES];
    int64_t newest = 0;
    snprintf(path, sizeof path, "%s/events", run_dir);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        long long n;
        if (sscanf(d->d_name, "rank0.a%lld.", &n) == 1 && n > newest)
            newest = n;
    }
    if (dir)
        closedir(dir);
    return newest;
}

/* Reports the attempt that owns the folder now, or owned it last. */
static int refuse(const char *run_dir, int64_t attempt, int why, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct lease_holder h;
    if (why != ERR_BUSY)
        return why;
    if (!lease_look(owner_path(run_dir, path), &h))
        return err_set(err, ERR_BUSY,
                       "attempt %lld was replaced by attempt %lld, which has ended: what this one "
                       "trained since is not saved",
                       (long long)attempt, (long long)newest_attempt(run_dir));
    if (h.rank > attempt)
        return err_set(err, ERR_BUSY,
                       "attempt %lld was replaced by attempt %lld (process %lld on host %s), which "
                       "writes into '%s' now",
                       (long long)attempt, (long long)h.rank, (long long)h.pid, h.host, run_dir);
    return err_set(err, ERR_BUSY,
                   "'%s' is written by attempt %lld, process %lld on host %s: wait until it has "
                   "ended, or give another folder",
                   run_dir, (long long)h.rank, (long long)h.pid, h.host);
}

int owner_take(const char *run_dir, int64_t attempt, struct lease **out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc = lease_take_over(owner_path(run_dir, path), attempt, WAIT_S, out, err);
    return rc < 0 ? refuse(run_dir, attempt, rc, err) : 0;
}

int owner_check(const struct lease *l, const char *run_dir, int64_t attempt, struct err *err)
{
    int rc = lease_check(l, err);
    return rc < 0 ? refuse(run_dir, attempt, rc, err) : 0;
}

bool owner_lives(struct lease_watch *w, const char *run_dir, int64_t attempt, double silent_s)
{
    char path[LIMIT_PATH_BYTES];
    struct lease_holder h;
    return lease_look(owner_path(run_dir, path), &h) && h.rank == attempt &&
           lease_lives(w, path, silent_s);
}
