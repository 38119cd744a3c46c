#include "curator/content.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool may_not(int number)
{
    return number == EACCES || number == EPERM || number == ENOENT || number == ELOOP ||
           number == ENAMETOOLONG;
}

/* Reads the identity, size and times of a file. */
static int stamp_read(const char *path, struct stat *out, struct err *err)
{
    return stat(path, out) < 0 ? err_set_errno(err, ERR_TEMP, "cannot look at '%s'", path) : 0;
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same_stamp(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           same_time(a->st_mtim, b->st_mtim) && same_time(a->st_ctim, b->st_ctim);
}

static bool same_hash(struct hash128 a, struct hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

int content_hash(const char *path, const char *name, struct hash128 *hash, struct stat *stamp,
                 struct err *err)
{
    struct stat after;
    struct err why = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && may_not(errno))
        return err_set_errno(err, ERR_INPUT, "source '%.600s': cannot open it: make it readable, "
                                             "or leave it out", name);
    if (fd >= 0)
        close(fd);
    if (stamp_read(path, stamp, &why) < 0 || hash_file(path, hash, &why) < 0 ||
        stamp_read(path, &after, &why) < 0)
        return err_set(err, ERR_TEMP, "source '%.400s': %.600s", name, why.text);
    if (!same_stamp(stamp, &after))
        return err_set(err, ERR_BUSY, "source '%.600s' changes while it is read", name);
    return 0;
}

int content_holds(const char *path, struct hash128 hash, struct err *err)
{
    struct hash128 found;
    struct err why = {0};
    if (hash_file(path, &found, &why) < 0)
        return err_set(err, ERR_TEMP, "%s", why.text);
    return same_hash(hash, found);
}

int content_stays(const char *path, struct hash128 hash, const struct stat *stamp, struct err *err)
{
    struct stat now;
    int rc = stamp_read(path, &now, err);
    if (rc < 0)
        return rc;
    return same_stamp(stamp, &now) ? 1 : content_holds(path, hash, err);
}
