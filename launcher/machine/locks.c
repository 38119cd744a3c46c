#include "launcher/machine/locks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lease.h"
#include "base/limits.h"
#include "base/spawn.h"

enum { SRUN_S = 120 }; /* how long to wait for a free node */

static bool leases_hold(const char *path)
{
    struct lease *first = NULL, *second = NULL;
    bool hold = lease_take(path, 0, &first, NULL) == 0 &&
                lease_take(path, 0, &second, NULL) == ERR_BUSY && lease_check(first, NULL) == 0;
    lease_drop(first);
    lease_drop(second);
    hold = hold && lease_take(path, 0, &first, NULL) == 0;
    if (hold)
        lease_drop(first);
    return hold;
}

static void file_locks_try(const char *path, struct locks_facts *f)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int a = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), b = open(path, O_RDWR | O_CLOEXEC);
    if (a >= 0 && b >= 0) {
        f->flock_error = flock(a, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        f->flock_excludes = f->flock_error == 0 && flock(b, LOCK_EX | LOCK_NB) < 0;
        f->fcntl_error = fcntl(a, F_SETLK, &lock) == 0 ? 0 : errno;
    }
    if (a >= 0)
        close(a);
    if (b >= 0)
        close(b);
}

/* Makes the folder <dir>/.check-site.<pid>. */
static int scratch_make(const char *dir, char scratch[LIMIT_PATH_BYTES], struct err *err)
{
    snprintf(scratch, LIMIT_PATH_BYTES, "%s/.check-site.%ld", dir, (long)getpid());
    return file_mkdirs(scratch, err);
}

int locks_probe(const char *dir, struct locks_facts *out, struct err *err)
{
    char scratch[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES + 16];
    struct locks_facts f = {.tried = file_exists(dir)};
    int rc;
    if (f.tried) {
        if ((rc = scratch_make(dir, scratch, err)) < 0)
            return rc;
        snprintf(path, sizeof path, "%s/lease", scratch);
        f.leases = leases_hold(path);
        snprintf(path, sizeof path, "%s/file", scratch);
        f.exclusive = file_create_exclusive(path, "", 0, NULL) == 0 &&
                      file_create_exclusive(path, "", 0, NULL) == ERR_EXISTS;
        file_locks_try(path, &f);
        if ((rc = file_remove_tree(scratch, err)) < 0)
            return rc;
    }
    *out = f;
    return 0;
}

/* Lets a task on another node look at the lease. The task prints its host's name, and ends with 0
 * if it sees the lease. */
static int task_look(const char *reel, const char *partition, const char *lease,
                     struct locks_facts *f, struct err *err)
{
    const char *argv[] = {"srun", "--quiet", "-N1", "-n1",
                          partition ? "-p" : reel,
                          partition ? partition : "check-site",
                          partition ? reel : "--lease",
                          partition ? "check-site" : lease,
                          partition ? "--lease" : NULL,
                          lease,
                          NULL};
    struct spawn s = SPAWN_INIT;
    struct spawn_exit end = {0};
    struct str out = STR_INIT, said = STR_INIT;
    s.argv = argv;
    int rc;
    if ((rc = spawn_run(&s, NULL, SRUN_S, &out, &said, &end, err)) < 0)
        goto out;
    if (!out.len || end.signal) {
        rc = err_set(err, ERR_TEMP, "srun started nothing on another node: %.300s",
                     said.len ? said.p : "it said nothing");
        goto out;
    }
    snprintf(f->node, sizeof f->node, "%.*s", (int)strcspn(out.p, "\n"), out.p);
    f->elsewhere = end.code == 0 ? LOCKS_SEEN : LOCKS_UNSEEN;
out:
    str_release(&out);
    str_release(&said);
    return rc;
}

int locks_probe_elsewhere(const char *dir, const char *reel, const char *partition,
                          struct locks_facts *f, struct err *err)
{
    char scratch[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES + 16];
    struct lease *held = NULL;
    int rc;
    if ((rc = scratch_make(dir, scratch, err)) < 0)
        return rc;
    snprintf(path, sizeof path, "%s/lease", scratch);
    if ((rc = lease_take(path, 0, &held, err)) < 0)
        goto out;
    rc = task_look(reel, partition, path, f, err);
out:
    lease_drop(held);
    file_remove_tree(scratch, NULL);
    return rc;
}
