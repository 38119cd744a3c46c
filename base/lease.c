/* How a lease works
 *
 * A held lease is a folder <path> with one file in it. The file's name says who holds it and is
 * never used twice:
 *
 *     <token: 32 hex digits>.<boot id>.<pid namespace>.<pid>.<start time>.<rank>.<host>
 *
 * Its content, of fixed length, is a counter that the holder writes anew each LEASE_BEAT_S, with
 * the wall clock for people to read. On a full disk there may be no room for it; then the holder
 * sets the file's time instead, which needs none. An observer compares both.
 *
 *     take     make the folder <path>.<token> with the file in it, and rename it to <path>. If
 *              <path> is absent or an empty folder, this succeeds for one process; if it has
 *              content, it fails (rename(2): ENOTEMPTY or EEXIST). If a reply was lost on the way,
 *              the presence of the file shows that the rename succeeded.
 *     drop     unlink the file, by its name; remove the folder if it is empty.
 *     evict    unlink the file of a holder that is judged dead or has a lower rank, by its name;
 *              then take the lease, in competition with all others.
 *     renew    open the file without creating it, write, close. If it is not there, the lease is
 *              lost.
 *
 * A process never removes the file of another holder by mistake: a name belongs to one holder for
 * ever, and rmdir fails on a folder with content. So a late judgement does no harm: if two
 * processes evict the same holder, its file is removed once, and one of the two renames succeeds. A
 * holder that resumes after it was evicted removes nothing when it drops. One danger remains: a
 * holder may act without knowing that it was evicted. lease_check is for that.
 *
 * How silence is counted: an observer remembers the file's content and how long it has not changed,
 * in its own monotonic time. Each interval between two looks counts as a second at most, since an
 * observer that was itself stopped has not watched. A network file system asks its server when a
 * file is opened (close-to-open consistency), so each look opens the file anew. The file is never
 * held open: a file that is unlinked while open leaves an entry behind on NFS, and the folder would
 * not be empty.
 *
 * Leftovers: a process that is killed between making its folder and renaming it leaves
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
#include "base/log.h"
#include "base/process.h"

enum { NAME_BYTES = 256, BEAT_BYTES = 33 };
/* These are the pauses between two looks, in seconds: the first pause, the longest, and the longest
 * until a holder on another host is seen to live. */
static const double PAUSE_S = 0.005, PAUSE_MOST_S = 0.1, PAUSE_ELSEWHERE_S = 0.25;

double lease_beat_s = LEASE_BEAT_S, lease_silent_s = LEASE_SILENT_S, lease_tell_s = LEASE_TELL_S;

struct lease {
    char *path, *file; /* the lease's folder, and the holder's file in it */
    char name[NAME_BYTES];
    int64_t rank, beats;
    pid_t pid; /* the process that took the lease */
    atomic_bool lost;
    pthread_t keeper; /* the thread that renews the lease until it is dropped */
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

/* Renews the lease. If a renewal cannot be written now, the next one is written LEASE_BEAT_S later.
 * If the file is gone, the lease is lost. */
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
    bool written = pwrite(fd, text, BEAT_BYTES, 0) == BEAT_BYTES;
    if (close(fd) < 0 || !written) /* NFS tells of a full disk when the file is closed */
        utimensat(AT_FDCWD, l->file, NULL, 0);
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

/* Renews a lease periodically. Each lease has a thread of its own, so that a file system that does
 * not answer delays only the leases on it. */
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
    pthread_sigmask(SIG_SETMASK, &all, &before); /* other threads handle the signals */
    int failed = pthread_create(&l->keeper, NULL, keeper_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? err_set(err, ERR_ENV, "cannot start the thread that renews leases: %s",
                            strerror(failed))
                  : 0;
}

/* Ends the thread and waits until it has finished a renewal that it has begun, because on NFS a
 * file that is unlinked while it is open leaves an entry in the folder. */
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

/* Tells whether a holder's process on this host lives. If /proc hides the process from us, it lives
 * as long as kill(2) does not fail with ESRCH. */
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

/* Reads the content of the holder's file, and behind it the file's time. Returns false if the file
 * cannot be read, which proves nothing about the holder. */
static bool beat_read(const char *path, const char *name, char beat[64])
{
    char file[2 * LIMIT_PATH_BYTES], text[BEAT_BYTES];
    struct stat st = {0};
    snprintf(file, sizeof file, "%s/%s", path, name);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 && fstat(fd, &st) == 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0)
        close(fd);
    if (n >= 0)
        snprintf(beat, 64, "%.*s %lld.%09ld", (int)n, text, (long long)st.st_mtim.tv_sec,
                 st.st_mtim.tv_nsec);
    return n >= 0;
}

/* Compares the content of the holder's file with the last look and updates the times in w. The
 * interval since the last look counts for a second at most. */
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

/* Tells whether the present holder `name` lives. LIFE_OVER means that it may be evicted. A holder
 * whose file cannot be read for silent_s is assumed to live. */
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

/* Gives the folder and the file the permissions of the parent folder: a process that may write
 * there may take the lease over, and read whether its holder lives. */
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

/* Makes the temporary folder with the holder's file in it. */
static int folder_make(const struct lease *l, const char *dir, const char *file, struct err *err)
{
    if (mkdir(dir, 0777) < 0)
        return fail(err, "make lease", l->path);
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(err, "make lease", l->path);
    /* On a full disk the file stays empty, but it exists, and its name is what matters. */
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

/* Renames the folder to the lease's name. 0: this process holds the lease; ERR_EXISTS: another one
 * holds it. */
static int rename_over(const struct lease *l, const char *dir, struct err *err)
{
    for (int tries = 0; rename(dir, l->path) < 0; tries++) {
        int error = errno;
        if (access(l->file, F_OK) == 0)
            return 0; /* the rename succeeded, but its reply was lost */
        if (error == ENOTDIR && tries == 0 && unlink(l->path) == 0)
            continue; /* <path> was the lock file of an older version */
        if ((error == EEXIST || error == ENOTEMPTY) && tries == 0 && rmdir(l->path) == 0)
            continue; /* this file system cannot rename over an empty folder */
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

/* Looks at the lease once. 0: the caller may try to take it now; 1: the caller should look again
 * later; ERR_BUSY: another process holds it, and the wait is over. */
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

/* Names the holder, unless it is a process of this host: then, and when there is none, returns
 * false. */
static bool stranger_name(const char *path, char who[2 * NAME_BYTES])
{
    char name[NAME_BYTES];
    struct lease_holder h;
    if (!name_find(path, name))
        return false;
    if (!name_parse(name, &h))
        return snprintf(who, 2 * NAME_BYTES, "another process") > 0;
    snprintf(who, 2 * NAME_BYTES, "process %lld on host %s", (long long)h.pid, h.host);
    return process_life(&h) == LIFE_UNKNOWN;
}

/* Warns that a holder that is no process of this host is waited for, and until when. Says nothing
 * of another holder, and returns false. */
static bool wait_tell(const char *path, const struct lease_watch *w, enum life life, double end_s)
{
    char who[2 * NAME_BYTES], until[32];
    double now_s = clock_mono_s(), silent_s = now_s + lease_silent_s - w->quiet_s - w->unread_s;
    bool unknown = life == LIFE_UNKNOWN, timed = unknown || isfinite(end_s);
    if (!stranger_name(path, who))
        return false;
    clock_format_utc(clock_wall_s() + (unknown ? silent_s : end_s) - now_s, until, sizeof until);
    log_msg(LOG_WARN, "'%s' is held by %s: waiting for %s%s%s%s", path, who,
            unknown ? "a sign of it" : "its end", timed ? " until " : "", timed ? until : "",
            !unknown         ? ""
            : w->unread_s > 0 ? ", since its file cannot be read"
                              : ", then taking it over");
    return true;
}

static int take(const struct lease *l, double wait_s, struct err *err)
{
    double begun_s = clock_mono_s(), pause_s = PAUSE_S,
           end_s = wait_s < 0 ? INFINITY : begun_s + wait_s;
    struct lease_watch w = {.quiet_s = 0};
    enum life life = LIFE_YES;
    for (bool told = false;;) {
        bool waited = clock_mono_s() >= end_s;
        int rc = look(l, &w, waited, wait_s == 0, &life, err);
        if (rc == 0 && (rc = try_once(l, err)) == ERR_EXISTS) /* another process was faster */
            rc = waited ? busy(l->path, "", err) : 1;
        if (rc <= 0)
            return rc;
        if (life == LIFE_UNKNOWN && wait_s >= 0)
            end_s = clock_mono_s() + wait_s; /* the wait is for one that lives */
        if (!told && clock_mono_s() - begun_s >= lease_tell_s)
            told = wait_tell(l->path, &w, life, end_s);
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
    l = NULL; /* the caller owns it now */
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
