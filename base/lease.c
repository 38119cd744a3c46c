/* How a lease works
 *
 * A held lease is a folder <path> with one file in it. The file's name says who holds it and is
 * never used twice:
 *
 *     <token: 32 hex digits>.<boot id>.<pid namespace>.<pid>.<start time>.<rank>.<host>
 *
 * Its content, of fixed length, is a counter that the holder writes anew each LEASE_BEAT_S, with
 * the wall clock for people to read.
 *
 *     take     make the folder <path>.<token> with the file in it, and rename it to <path>. Where
 *              that is absent or empty this succeeds for one; where it has content it fails
 *              (rename(2): ENOTEMPTY or EEXIST). If a reply was lost on the way, the file's
 *              presence tells.
 *     drop     unlink the file, by its name; remove the folder if it is empty.
 *     evict    unlink the file of the holder judged dead, by its name; then take, as everybody else
 *              may.
 *     renew    open the file without creating it, write, close. If it is not there, the lease is
 *              lost.
 *
 * Nothing that is removed can be somebody else's: a name has one holder for ever, and rmdir removes
 * no folder with content. So it does no harm to judge late: two that evict the same holder remove
 * it once, and one of the two renames succeeds. A holder that wakes after it was evicted removes
 * nothing when it drops. One danger remains: a holder acts without knowing that it was evicted.
 * lease_check is for that.
 *
 * How silence is counted: a looker keeps what it saw and for how long that did not change, in its
 * own monotonic time. Each interval between two looks counts as a second at most, since a looker
 * that was itself stopped has not watched. Opening a file is what makes a network file system ask
 * the server (close-to-open consistency), so each look opens it anew. The file is never held open:
 * a file that is unlinked while open leaves an entry behind on NFS, and the folder would not be
 * empty.
 *
 * What is left behind: whoever is killed between making its folder and renaming it leaves
 * <path>.<token>, as a killed publisher (base/file.h) leaves its temporary file.
 */
#include "base/lease.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/process.h"

enum { NAME_BYTES = 256, BEAT_BYTES = 33 };
/* These are the pauses between two looks, in seconds: the first, the longest, and for a holder on
 * another host. */
static const double PAUSE_S = 0.005, PAUSE_MOST_S = 0.1, PAUSE_ELSEWHERE_S = 0.25;

double lease_beat_s = LEASE_BEAT_S, lease_silent_s = LEASE_SILENT_S;

struct lease {
    char *path, *file; /* the folder, and the file in it */
    char name[NAME_BYTES];
    int64_t rank, beats;
    pid_t pid; /* the process that took it */
    atomic_bool lost;
    pthread_t keeper; /* renews it until it is dropped */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool dropped;
};

static int fail(struct err *err, const char *verb, const char *path)
{
    int error = errno;
    if (error == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "cannot %s '%s': no such folder", verb, path);
    const char *advice = error == EACCES || error == EPERM
                             ? ": change its permissions or choose another folder"
                         : error == EROFS ? ": mount it for writing or choose another folder"
                         : error == ENOSPC || error == EDQUOT
                             ? ": free some space there or choose another folder"
                             : "";
    bool full = error == ENOSPC || error == EDQUOT || error == EROFS;
    int code = full ? ERR_FULL : ERR_IO;
    return err_set(err, code, "cannot %s '%s': %s%s", verb, path, strerror(error), advice);
}

/* ---- renewing ---- */

static bool is_gone(int error) { return error == ENOENT || error == ESTALE || error == ENOTDIR; }

/* Renews the lease. A renewal that cannot be written now is written the next time; a file that is
 * not there is no longer ours. */
static void renew(struct lease *l)
{
    char text[BEAT_BYTES + 1];
    int fd = open(l->file, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        if (is_gone(errno))
            atomic_store(&l->lost, true);
        return;
    }
    snprintf(text, sizeof text, "%012lld %19.3f\n", (long long)++l->beats % 1000000000000,
             fmin(clock_wall_s(), 1e14));
    ssize_t n = pwrite(fd, text, BEAT_BYTES, 0);
    (void)n;
    close(fd);
}

static struct timespec next_beat(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)lease_beat_s;
    at.tv_nsec += (long)(fmod(lease_beat_s, 1) * 1e9);
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* Renews a lease. Each lease has a thread of its own, so that a file system that does not answer
 * keeps nobody from the leases of others. */
static void *keeper_main(void *arg)
{
    struct lease *l = arg;
    struct timespec at = next_beat();
    pthread_mutex_lock(&l->lock);
    while (!l->dropped && !atomic_load(&l->lost))
        if (pthread_cond_timedwait(&l->changed, &l->lock, &at) == ETIMEDOUT) {
            pthread_mutex_unlock(&l->lock);
            renew(l);
            at = next_beat();
            pthread_mutex_lock(&l->lock);
        }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static int keeper_start(struct lease *l, struct err *err)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the other threads */
    int failed = pthread_create(&l->keeper, NULL, keeper_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? err_set(err, ERR_ENV, "cannot start the thread that renews leases: %s",
                            strerror(failed))
                  : 0;
}

/* Ends the thread, after a renewal that has begun: on NFS a file that is unlinked while it is open
 * leaves an entry in the folder. */
static void keeper_end(struct lease *l)
{
    pthread_mutex_lock(&l->lock);
    l->dropped = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->keeper, NULL);
}

/* ---- holders ---- */

static bool name_parse(const char *name, struct lease_holder *out)
{
    struct lease_holder h = {.rank = 0};
    long long pids, pid, start, rank;
    if (sscanf(name, "%32[0-9a-f].%63[^.].%lld.%lld.%lld.%lld.%63s", h.token, h.boot, &pids, &pid,
               &start, &rank, h.host) != 7)
        return false;
    h.pids = pids, h.pid = pid, h.start = start, h.rank = rank;
    snprintf(h.name, sizeof h.name, "%s", name);
    *out = h;
    return true;
}

/* Finds the holder's file. Returns false if there is none. */
static bool name_find(const char *path, char name[NAME_BYTES])
{
    DIR *dir = opendir(path);
    bool found = false;
    for (struct dirent *d; dir && !found && (d = readdir(dir));) {
        found = strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
        if (found)
            snprintf(name, NAME_BYTES, "%s", d->d_name);
    }
    if (dir)
        closedir(dir);
    return found;
}

bool lease_look(const char *path, struct lease_holder *out)
{
    char name[NAME_BYTES];
    return name_find(path, name) && name_parse(name, out);
}

enum life { LIFE_UNKNOWN, LIFE_YES, LIFE_OVER };

/* Tells whether a process of this host lives. One that /proc hides from us exists as long as it can
 * be signalled, or signalling it is forbidden. */
static enum life process_life(const struct lease_holder *h)
{
    struct proc_stat s;
    if (strcmp(h->boot, clock_boot_id()) != 0 || strcmp(h->boot, "unknown") == 0 || h->pids == 0 ||
        h->pids != proc_namespace() || h->pid <= 0)
        return LIFE_UNKNOWN;
    if (kill((pid_t)h->pid, 0) < 0 && errno == ESRCH)
        return LIFE_OVER;
    if (!proc_stat_read((pid_t)h->pid, &s))
        return LIFE_YES;
    return s.state == 'Z' || s.state == 'X' || s.start != h->start ? LIFE_OVER : LIFE_YES;
}

/* Reads what the holder said last. Returns false if the file cannot be read, which says nothing. */
static bool beat_read(const char *path, const char *name, char beat[64])
{
    char file[2 * LIMIT_PATH_BYTES];
    snprintf(file, sizeof file, "%s/%s", path, name);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, beat, 63) : -1;
    if (fd >= 0)
        close(fd);
    if (n >= 0)
        beat[n] = '\0';
    return n >= 0;
}

/* Notes what the holder of this name says now. A look counts for a second at most. */
static void watch_note(struct lease_watch *w, const char *path, const char *name)
{
    char beat[64];
    double now_s = clock_mono_s(), since_s = fmin(now_s - w->looked_s, 1);
    bool same_holder = strcmp(w->name, name) == 0, read = beat_read(path, name, beat);
    w->looked_s = now_s;
    w->unread_s = same_holder && !read ? w->unread_s + since_s : 0;
    if (same_holder && read && strcmp(beat, w->beat) == 0) {
        w->quiet_s += since_s;
        return;
    }
    w->renewed = same_holder && (w->renewed || read);
    w->quiet_s = 0;
    snprintf(w->name, sizeof w->name, "%s", name);
    if (read)
        snprintf(w->beat, sizeof w->beat, "%s", beat);
}

/* Tells whether the holder `name`, which is there now, lives. LIFE_OVER means that it may be
 * evicted. One whose file cannot be read for silent_s is taken to live. */
static enum life holder_life(struct lease_watch *w, const char *path, const char *name,
                             double silent_s)
{
    struct lease_holder h;
    enum life life = name_parse(name, &h) ? process_life(&h) : LIFE_UNKNOWN;
    if (life != LIFE_UNKNOWN)
        return life;
    watch_note(w, path, name);
    return w->quiet_s >= silent_s                  ? LIFE_OVER
           : w->renewed || w->unread_s >= silent_s ? LIFE_YES
                                                   : LIFE_UNKNOWN;
}

bool lease_lives(struct lease_watch *w, const char *path, double silent_s)
{
    char name[NAME_BYTES];
    return name_find(path, name) && holder_life(w, path, name, silent_s) != LIFE_OVER;
}

/* ---- taking ---- */

static int name_make(struct lease *l, struct err *err)
{
    struct id id;
    char token[ID_TEXT_BYTES];
    int rc = id_random(&id, err);
    if (rc < 0)
        return rc;
    l->pid = getpid();
    snprintf(l->name, sizeof l->name, "%s.%.40s.%lld.%lld.%lld.%lld.%.60s", id_format(id, token),
             clock_boot_id(), (long long)proc_namespace(), (long long)l->pid,
             (long long)proc_identify(l->pid).start, (long long)l->rank, clock_host());
    return 0;
}

static void lease_free(struct lease *l)
{
    free(l->path);
    free(l->file);
    free(l);
}

static int names_make(struct lease *l, const char *path, struct err *err)
{
    int rc;
    if ((rc = name_make(l, err)) < 0)
        return rc;
    l->path = strdup(path);
    if (!l->path || asprintf(&l->file, "%s/%s", path, l->name) < 0) {
        l->file = NULL;
        return err_set(err, ERR_NOMEM, "out of memory taking '%s'", path);
    }
    return 0;
}

static int lease_new(const char *path, int64_t rank, struct lease **out, struct err *err)
{
    struct lease *l = calloc(1, sizeof *l);
    int rc;
    if (!l)
        return err_set(err, ERR_NOMEM, "out of memory taking '%s'", path);
    l->rank = rank;
    if ((rc = names_make(l, path, err)) < 0)
        lease_free(l);
    else
        *out = l;
    return rc;
}

/* Gives folder and file the rights of the folder around them: whoever may write there may take the
 * lease over, and read whether its holder lives. */
static void share_with_parent(const char *path, const char *dir, const char *file)
{
    char parent[LIMIT_PATH_BYTES];
    struct stat st;
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    if (stat(parent, &st) < 0)
        return;
    chmod(dir, st.st_mode & 0777);
    chmod(file, st.st_mode & 0666);
}

/* Makes the folder that is to be renamed, with the file in it. */
static int folder_make(const struct lease *l, const char *dir, const char *file, struct err *err)
{
    if (mkdir(dir, 0777) < 0)
        return fail(err, "make lease", l->path);
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(err, "make lease", l->path);
    /* On a full disk the file is empty, and has its name all the same. */
    ssize_t n = write(fd, "000000000000                    \n", BEAT_BYTES);
    (void)n;
    close(fd);
    share_with_parent(l->path, dir, file);
    return 0;
}

static void folder_remove(const char *dir, const char *file)
{
    unlink(file);
    rmdir(dir);
}

/* Renames the folder to the lease's name. 0: the lease is ours. ERR_EXISTS: it is somebody's. */
static int rename_over(const struct lease *l, const char *dir, struct err *err)
{
    for (int tries = 0; rename(dir, l->path) < 0; tries++) {
        int error = errno;
        if (access(l->file, F_OK) == 0)
            return 0; /* it was done, and the answer was lost */
        if (error == ENOTDIR && tries == 0 && unlink(l->path) == 0)
            continue; /* it was the lock file of an older version */
        if ((error == EEXIST || error == ENOTEMPTY) && tries == 0 && rmdir(l->path) == 0)
            continue; /* this file system renames over no folder at all */
        errno = error;
        return error == EEXIST || error == ENOTEMPTY ? ERR_EXISTS
                                                     : fail(err, "take lease", l->path);
    }
    return 0;
}

static int try_once(const struct lease *l, struct err *err)
{
    char dir[2 * LIMIT_PATH_BYTES], file[2 * LIMIT_PATH_BYTES + NAME_BYTES];
    int rc;
    snprintf(dir, sizeof dir, "%s.%.32s", l->path, l->name);
    snprintf(file, sizeof file, "%s/%s", dir, l->name);
    if ((rc = folder_make(l, dir, file, err)) < 0)
        goto out;
    rc = rename_over(l, dir, err);
out:
    if (rc < 0)
        folder_remove(dir, file);
    return rc;
}

static int evict(const char *path, const char *name, struct err *err)
{
    char file[2 * LIMIT_PATH_BYTES];
    snprintf(file, sizeof file, "%s/%s", path, name);
    return unlink(file) == 0 || is_gone(errno) ? 0 : fail(err, "take over lease", path);
}

int lease_evict(const char *path, const struct lease_holder *h, struct err *err)
{
    return evict(path, h->name, err);
}

static int busy(const char *path, const char *name, struct err *err)
{
    struct lease_holder h;
    if (!name_parse(name, &h))
        return err_set(err, ERR_BUSY, "'%s' is held by another process: wait until it has ended",
                       path);
    return err_set(err, ERR_BUSY,
                   "'%s' is held by process %lld on host %s: wait until it has ended", path,
                   (long long)h.pid, h.host);
}

/* Looks once. 0: try to take it now; 1: look again later; ERR_BUSY: somebody else has it, and the
 * wait is over. */
static int look(const struct lease *l, struct lease_watch *w, bool waited, bool once,
                enum life *life, struct err *err)
{
    char name[NAME_BYTES];
    struct lease_holder h;
    if (!name_find(l->path, name))
        return 0;
    bool lower = name_parse(name, &h) && h.rank < l->rank;
    *life = lower ? LIFE_OVER : holder_life(w, l->path, name, lease_silent_s);
    if (*life == LIFE_OVER)
        return evict(l->path, name, err);
    return once || (waited && *life == LIFE_YES) ? busy(l->path, name, err) : 1;
}

static int take(const struct lease *l, double wait_s, struct err *err)
{
    double end_s = clock_mono_s() + wait_s, pause_s = PAUSE_S;
    struct lease_watch w = {.quiet_s = 0};
    enum life life = LIFE_YES;
    for (;;) {
        bool waited = wait_s >= 0 && clock_mono_s() >= end_s;
        int rc = look(l, &w, waited, wait_s == 0, &life, err);
        if (rc == 0 && (rc = try_once(l, err)) == ERR_EXISTS) /* somebody was quicker */
            rc = waited ? busy(l->path, "", err) : 1;
        if (rc <= 0)
            return rc;
        clock_sleep_s(pause_s);
        pause_s = fmin(2 * pause_s, life == LIFE_YES ? PAUSE_MOST_S : PAUSE_ELSEWHERE_S);
    }
}

int lease_take_over(const char *path, int64_t rank, double wait_s, struct lease **out,
                    struct err *err)
{
    struct lease *l = NULL;
    int rc;
    if ((rc = lease_new(path, rank, &l, err)) < 0)
        return rc;
    if ((rc = take(l, wait_s, err)) < 0)
        goto out;
    if ((rc = keeper_start(l, err)) < 0) {
        folder_remove(l->path, l->file);
        goto out;
    }
    *out = l;
    l = NULL; /* the caller's */
out:
    if (l)
        lease_free(l);
    return rc;
}

int lease_take(const char *path, double wait_s, struct lease **out, struct err *err)
{
    return lease_take_over(path, 0, wait_s, out, err);
}

void lease_drop(struct lease *l)
{
    if (!l)
        return;
    if (l->pid == getpid()) {
        keeper_end(l);
        folder_remove(l->path, l->file);
    }
    lease_free(l);
}

const char *lease_token(const struct lease *l) { return l->name; }

bool lease_is_lost(const struct lease *l) { return atomic_load(&l->lost); }

int lease_check(const struct lease *l, struct err *err)
{
    char name[NAME_BYTES];
    int fd = open(l->file, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        return close(fd), 0;
    if (!is_gone(errno))
        return fail(err, "look at lease", l->path);
    if (name_find(l->path, name))
        return busy(l->path, name, err);
    return err_set(err, ERR_BUSY, "'%s' was taken over by another process: wait until it has ended",
                   l->path);
}
