#include "curator/content.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FRESH_S = 3 /* no file system's clock is coarser */ };

static bool may_not(int number)
{
    return number == EACCES || number == EPERM || number == ENOENT || number == ELOOP ||
           number == ENAMETOOLONG;
}

static int stamp_read(const char *path, struct content_stamp *out, struct err *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_set_errno(err, ERR_TEMP, "cannot look at '%s'", path);
    *out = (struct content_stamp){st.st_dev, st.st_ino, st.st_size,
                                   st.st_mtim, st.st_ctim,
                                   st.st_ctim.tv_sec + FRESH_S >= time(NULL)};
    return 0;
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same_stamp(const struct content_stamp *a, const struct content_stamp *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->bytes == b->bytes &&
           same_time(a->written, b->written) && same_time(a->changed, b->changed);
}

static bool same_hash(struct hash128 a, struct hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

int content_hash(const char *path, const char *name, struct hash128 *hash,
                 struct content_stamp *stamp, struct err *err)
{
    struct content_stamp after = {0};
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

int content_holds(const char *path, struct hash128 hash, const struct content_stamp *stamp,
                  struct err *err)
{
    struct content_stamp now;
    struct hash128 found;
    struct err why = {0};
    int rc;
    if ((rc = stamp_read(path, &now, err)) < 0)
        return rc;
    if (!stamp->fresh && same_stamp(&now, stamp))
        return 1;
    if (hash_file(path, &found, &why) < 0)
        return err_set(err, ERR_TEMP, "%s", why.text);
    return same_hash(hash, found);
}
