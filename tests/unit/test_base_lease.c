/* Leases: one holder at a time whatever dies, on this host and on others, which are played by names
 * of another boot. */
// LINK: -Wl,--wrap=rename -Wl,--wrap=mkdir -Wl,--wrap=open -Wl,--wrap=flock
// LINK: -Wl,--wrap=clock_mono_s -Wl,--wrap=clock_sleep_s
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/lease.h"
#include "base/log.h"
#include "base/limits.h"
#include "base/process.h"
#include "tests/lib/scratch.h"

/* ---- what a file system may do to us ---- */

static enum { FS_SOUND, FS_REPLY_LOST, FS_NOT_OVER_EMPTY, FS_FAILS, FS_UNREADABLE } fs_as;
static int fs_countdown; /* with FS_FAILS: calls until the one that fails */
static int locks_asked;
static atomic_int hangs; /* opens of files below "away" wait while this is 1, and make it 2 */

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, ...);
int __wrap_flock(int fd, int how);

/* ---- time that passes as fast as somebody waits for it ---- */

static double ahead_s;
static bool time_flies;
double __real_clock_mono_s(void);
double __wrap_clock_mono_s(void);
void __real_clock_sleep_s(double seconds);
void __wrap_clock_sleep_s(double seconds);

double __wrap_clock_mono_s(void) { return __real_clock_mono_s() + ahead_s; }

void __wrap_clock_sleep_s(double seconds)
{
    if (time_flies)
        ahead_s += seconds;
    else
        __real_clock_sleep_s(seconds);
}

static bool fs_fails(void)
{
    if (fs_as != FS_FAILS || fs_countdown == 0 || --fs_countdown > 0)
        return false;
    errno = EIO;
    return true;
}

int __wrap_rename(const char *from, const char *to)
{
    if (fs_fails())
        return -1;
    if (fs_as == FS_NOT_OVER_EMPTY && access(to, F_OK) == 0) {
        errno = EEXIST;
        return -1;
    }
    int rc = __real_rename(from, to);
    if (rc == 0 && fs_as == FS_REPLY_LOST) {
        errno = ENOENT; /* asked again, the server finds nothing to rename */
        return -1;
    }
    return rc;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return fs_fails() ? -1 : __real_mkdir(path, mode);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (strstr(path, "/away/") && atomic_load(&hangs))
        for (atomic_store(&hangs, 2); atomic_load(&hangs);)
            __real_clock_sleep_s(0.01);
    if (fs_as == FS_UNREADABLE && (flags & O_ACCMODE) == O_RDONLY && strstr(path, "/lock/")) {
        errno = EACCES;
        return -1;
    }
    return flags & O_CREAT && fs_fails() ? -1 : __real_open(path, flags, mode);
}

int __wrap_flock(int fd, int how)
{
    (void)fd, (void)how;
    locks_asked++;
    errno = ENOSYS;
    return -1;
}

/* ---- helpers ---- */

static const char *path(void) { return in_scratch("lock"); }

static struct lease *taken(double wait_s)
{
    struct lease *l = NULL;
    struct err err = {0};
    int rc = lease_take(path(), wait_s, &l, &err);
    if (rc < 0)
        print_error("%s\n", err.text);
    assert_int_equal(rc, 0);
    return l;
}

static void is_busy(double wait_s, const char *says)
{
    struct lease *l = NULL;
    struct err err = {0};
    assert_int_equal(lease_take(path(), wait_s, &l, &err), ERR_BUSY);
    assert_null(l);
    assert_non_null(strstr(err.text, says));
}

/* The file of a holder that does not exist, on a host of this boot id. */
static int64_t pids_of_strangers; /* besides those of this namespace; 0: of this one */

static const char *stranger(const char *boot, int64_t pid, int64_t start, int64_t rank)
{
    static char file[1024];
    snprintf(file, sizeof file, "%s/%032x.%s.%lld.%lld.%lld.%lld.elsewhere", path(), 0xabc, boot,
             (long long)(proc_namespace() + pids_of_strangers), (long long)pid, (long long)start,
             (long long)rank);
    assert_int_equal(file_mkdirs(path(), NULL), 0);
    assert_int_equal(file_publish(file, "000000000001\n", 13, NULL), 0);
    return file;
}

static pid_t child_holding(void)
{
    int ready[2];
    char c;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct lease *l = NULL;
        if (lease_take(path(), 0, &l, NULL) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

/* ---- on this host ---- */

static void one_holder(void **state)
{
    (void)state;
    char pid[64];
    snprintf(pid, sizeof pid, "held by process %ld on host %s", (long)getpid(), clock_host());
    struct lease *l = taken(0);
    is_busy(0, pid);
    is_busy(0.02, path());
    assert_int_equal(lease_check(l, NULL), 0);
    lease_drop(l);
    assert_int_equal(count_entries(scratch), 0); /* nothing is left behind */
    lease_drop(taken(0));
    struct err err = {0};
    assert_int_equal(lease_take(in_scratch("no/lock"), 0, &l, &err), ERR_NOT_FOUND);
    assert_int_equal(locks_asked, 0);
}

static void a_dead_holder_is_followed_at_once(void **state)
{
    (void)state;
    pid_t pid = child_holding();
    is_busy(0, "held by process");
    kill(pid, SIGSTOP); /* alive, if silent */
    is_busy(0, "held by process");
    kill(pid, SIGKILL);
    struct lease *l = taken(120);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    lease_drop(l);
    assert_int_equal(count_entries(scratch), 0);
    /* the number of this process, when it was another's */
    stranger(clock_boot_id(), getpid(), proc_identify(getpid()).start + 1, 0);
    lease_drop(taken(0));
}

/* In a container on this host: what process has its number here says nothing of it. */
static void a_holder_in_another_namespace(void **state)
{
    (void)state;
    pids_of_strangers = 1;
    stranger(clock_boot_id(), 1 << 29, 1, 0);
    is_busy(0, "held by process");
    pids_of_strangers = 0;
}

static void a_lease_that_is_dropped_is_taken(void **state)
{
    int go[2];
    char c;
    (void)state;
    assert_int_equal(pipe(go), 0);
    struct lease *l = taken(0);
    pid_t pid = fork();
    if (pid == 0) {
        struct lease *mine = NULL;
        lease_drop(l); /* a child holds nothing: the parent's stays */
        bool held = access(path(), F_OK) == 0 && lease_take(path(), 0, &mine, NULL) == ERR_BUSY;
        if (write(go[1], "x", 1) != 1)
            _exit(1);
        _exit(!held || lease_take(path(), 120, &mine, NULL) < 0);
    }
    assert_int_equal(read(go[0], &c, 1), 1);
    lease_drop(l);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(go[0]), close(go[1]);
}

static void an_older_version_s_lock_file(void **state)
{
    (void)state;
    assert_int_equal(file_publish(path(), "", 0, NULL), 0);
    lease_drop(taken(0));
    assert_int_equal(count_entries(scratch), 0);
}

/* ---- on other hosts ---- */

static void a_silent_holder_elsewhere(void **state)
{
    (void)state;
    lease_silent_s = 0.3;
    const char *boots[] = {"11111111-2222", "unknown"};
    for (int i = 0; i < 2; i++) {
        stranger(boots[i], getpid(), proc_identify(getpid()).start, 0);
        is_busy(0, "held by process"); /* asked once, nothing is known of it */
        lease_drop(taken(0.01));       /* it is watched, however short the wait */
        assert_int_equal(count_entries(scratch), 0);
    }
    assert_int_equal(file_mkdirs(in_scratch("lock/what nobody made"), NULL), 0);
    rmdir(in_scratch("lock/what nobody made"));
    assert_int_equal(file_publish(in_scratch("lock/what nobody made"), "", 0, NULL), 0);
    lease_drop(taken(0.01));
    lease_silent_s = LEASE_SILENT_S;
}

static struct { int lines; char text[1024]; } heard;
static void hear(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    assert_int_equal(level, LOG_WARN);
    heard.lines++;
    snprintf(heard.text, sizeof heard.text, "%s", text);
}

static void who_is_waited_for(void **state)
{
    struct err err = {0};
    struct lease *l;
    (void)state;
    log_set_sink(hear, NULL);
    lease_silent_s = 0.4, lease_tell_s = 0.05;
    stranger("11111111-2222", 77, 1, 0);
    lease_drop(taken(0.01));
    assert_int_equal(heard.lines, 1);
    assert_non_null(strstr(heard.text, "/lock' is held by process 77 on host elsewhere: waiting for "
                                      "a sign of it until 20"));
    assert_non_null(strstr(heard.text, "Z, then taking it over"));
    /* One that nobody can read is not taken over. */
    stranger("11111111-2222", 77, 1, 0);
    fs_as = FS_UNREADABLE;
    assert_int_equal(lease_take(path(), 0.01, &l, &err), ERR_BUSY);
    fs_as = FS_SOUND;
    assert_int_equal(heard.lines, 2);
    assert_null(strstr(heard.text, "taking it over"));
    assert_int_equal(file_remove_tree(path(), NULL), 0);
    /* A process of this host lives, and its end is seen. */
    stranger(clock_boot_id(), getpid(), proc_identify(getpid()).start, 0);
    assert_int_equal(lease_take(path(), 0.2, &l, &err), ERR_BUSY);
    assert_int_equal(heard.lines, 2);
    lease_silent_s = LEASE_SILENT_S, lease_tell_s = LEASE_TELL_S;
    log_set_sink(NULL, NULL);
}

/* The patience that is promised, before any test has changed it, of a looker whose naps take no
 * time. */
static void after_a_minute_of_silence(void **state)
{
    (void)state;
    stranger("11111111-2222", 1, 1, 0);
    time_flies = true;
    double begun_s = clock_mono_s();
    lease_drop(taken(0.01));
    double took_s = clock_mono_s() - begun_s;
    time_flies = false;
    assert_true(took_s >= 60 && LEASE_SILENT_S == 60);
    /* many renewals may be late before a holder is taken for dead */
    assert_true(LEASE_SILENT_S >= 10 * LEASE_BEAT_S);
}

/* Between two looks the looker itself stood still, and the holder may have renewed its lease all
 * the while. */
static void who_did_not_look_has_not_watched(void **state)
{
    struct lease_watch w = {.quiet_s = 0};
    (void)state;
    stranger("11111111-2222", 1, 1, 0);
    for (int looks = 0; looks < 50; looks++) {
        assert_true(lease_lives(&w, path(), LEASE_SILENT_S));
        ahead_s += 1000;
    }
    ahead_s = 0;
}

static atomic_bool beats;

static void *beat_main(void *file)
{
    for (int i = 0; atomic_load(&beats); i++) {
        char text[16];
        int fd = __real_open(file, O_WRONLY | O_CLOEXEC, 0);
        snprintf(text, sizeof text, "%012d\n", i);
        if (fd >= 0 && pwrite(fd, text, 13, 0) == 13)
            close(fd);
        clock_sleep_s(0.02);
    }
    return NULL;
}

static void a_holder_elsewhere_that_renews(void **state)
{
    char file[1024];
    pthread_t thread;
    (void)state;
    snprintf(file, sizeof file, "%s", stranger("11111111-2222", 1, 1, 0));
    atomic_store(&beats, true);
    assert_int_equal(pthread_create(&thread, NULL, beat_main, file), 0);
    /* LEASE_SILENT_S is far: what ends the wait is that it was seen to live */
    is_busy(0.1, "on host elsewhere");
    atomic_store(&beats, false);
    pthread_join(thread, NULL);
    lease_silent_s = 0.3;
    lease_drop(taken(0.01));
    lease_silent_s = LEASE_SILENT_S;
}

static void a_watch(void **state)
{
    struct lease_watch w = {.quiet_s = 0}, other = {.quiet_s = 0};
    (void)state;
    assert_false(lease_lives(&w, path(), 0.2));
    struct lease *l = taken(0);
    assert_true(lease_lives(&w, path(), 0));
    lease_drop(l);
    assert_false(lease_lives(&w, path(), 0.2));
    stranger("11111111-2222", 1, 1, 7);
    struct lease_holder h;
    assert_true(lease_look(path(), &h) && h.rank == 7 && h.pid == 1 &&
                strcmp(h.host, "elsewhere") == 0);
    assert_true(lease_lives(&other, path(), 0.2));
    while (lease_lives(&other, path(), 0.2))
        clock_sleep_s(0.02);
    assert_true(lease_lives(&w, path(), 0.2)); /* its own look is the first one */
}

/* ---- who was evicted ---- */

static void a_higher_rank_takes_over(void **state)
{
    struct lease *first = NULL, *second = NULL, *third = NULL;
    struct err err = {0};
    (void)state;
    lease_beat_s = 0.05;
    assert_int_equal(lease_take_over(path(), 1, 0, &first, &err), 0);
    assert_int_equal(lease_take_over(path(), 1, 0.01, &second, &err), ERR_BUSY);
    assert_int_equal(lease_take_over(path(), 2, 0, &second, &err), 0);
    assert_int_equal(lease_take_over(path(), 1, 0.01, &third, &err), ERR_BUSY);
    assert_int_equal(lease_check(second, &err), 0);
    assert_int_equal(lease_check(first, &err), ERR_BUSY);
    while (!lease_is_lost(first)) /* its thread finds out */
        clock_sleep_s(0.01);
    assert_false(lease_is_lost(second));
    lease_drop(first); /* takes nothing from the second */
    assert_int_equal(lease_check(second, &err), 0);
    lease_drop(second);
    assert_int_equal(count_entries(scratch), 0);
    lease_beat_s = LEASE_BEAT_S;
}

/* What the lease's file says now: its renewals are counted there. */
static void said(const char *file, char out[64])
{
    struct str text = STR_INIT;
    assert_int_equal(file_read(file, 64, &text, NULL), 0);
    snprintf(out, 64, "%s", text.p);
    str_release(&text);
}

static void find_file(char *file, size_t size)
{
    struct lease_holder h;
    assert_true(lease_look(path(), &h));
    snprintf(file, size, "%s/%s", path(), h.name);
}

static void it_is_renewed(void **state)
{
    char file[LIMIT_PATH_BYTES], before[64], now[64];
    (void)state;
    lease_beat_s = 0.05;
    struct lease *l = taken(0);
    find_file(file, sizeof file);
    said(file, before);
    do {
        clock_sleep_s(0.01);
        said(file, now);
    } while (strcmp(before, now) == 0);
    assert_int_equal(strlen(now), strlen(before));
    lease_drop(l);
    lease_beat_s = LEASE_BEAT_S;
}

/* A file that cannot be given its content is renewed all the same, as seen from another host, where
 * the same file has another name. */
static void a_holder_on_a_full_disk(void **state)
{
    const struct rlimit full = {0, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    char file[LIMIT_PATH_BYTES], there[LIMIT_PATH_BYTES], now[64];
    struct lease_watch w = {.quiet_s = 0};
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    lease_beat_s = 0.05;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    struct lease *l = taken(0);
    find_file(file, sizeof file);
    snprintf(there, sizeof there, "%s/%032x.11111111-2222.1.1.1.0.elsewhere", in_scratch("there"),
             0xabc);
    assert_int_equal(file_mkdirs(in_scratch("there"), NULL), 0);
    assert_int_equal(link(file, there), 0);
    for (int looks = 0; looks < 6000 && !w.renewed; looks++) {
        assert_true(lease_lives(&w, in_scratch("there"), LEASE_SILENT_S));
        clock_sleep_s(0.01);
    }
    said(file, now);
    assert_true(w.renewed && !now[0]);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    lease_drop(l);
    lease_beat_s = LEASE_BEAT_S;
}

/* The agent and the tuner hold one lease for hours and take others each second. */
static void others_do_not_put_it_off(void **state)
{
    char file[LIMIT_PATH_BYTES], before[64], now[64], other[LIMIT_PATH_BYTES];
    (void)state;
    lease_beat_s = 0.2;
    struct lease *l = taken(0), *brief = NULL;
    find_file(file, sizeof file);
    said(file, before);
    snprintf(other, sizeof other, "%s-other", path());
    for (int i = 0; i < 100; i++) {
        assert_int_equal(lease_take(other, 0, &brief, NULL), 0);
        clock_sleep_s(0.02);
        lease_drop(brief);
    }
    said(file, now);
    assert_string_not_equal(now, before);
    lease_drop(l);
    lease_beat_s = LEASE_BEAT_S;
}

/* The server of one file system is away: the leases of another are renewed, dropped and taken, and
 * the first is found to be ours still. */
static void a_file_system_that_hangs(void **state)
{
    char file[LIMIT_PATH_BYTES], before[64], now[64];
    struct lease *away = NULL, *other = NULL;
    (void)state;
    lease_beat_s = 0.05;
    assert_int_equal(file_mkdirs(in_scratch("away"), NULL), 0);
    assert_int_equal(lease_take(in_scratch("away/lock"), 0, &away, NULL), 0);
    struct lease *l = taken(0);
    find_file(file, sizeof file);
    atomic_store(&hangs, 1);
    while (atomic_load(&hangs) != 2)
        __real_clock_sleep_s(0.01);
    alarm(120); /* who waits for the file system waits for ever */
    said(file, before);
    do {
        clock_sleep_s(0.01);
        said(file, now);
    } while (strcmp(before, now) == 0);
    assert_int_equal(lease_take(in_scratch("other"), 0, &other, NULL), 0);
    lease_drop(other);
    lease_drop(l);
    assert_false(lease_is_lost(away));
    alarm(0);
    atomic_store(&hangs, 0);
    lease_drop(away);
    lease_beat_s = LEASE_BEAT_S;
}

/* ---- several users ---- */

/* Its beat cannot be read: whether it lives nobody can say, and the wait has an end. */
static void a_holder_that_cannot_be_read(void **state)
{
    struct lease_watch w = {.quiet_s = 0};
    int status;
    (void)state;
    lease_silent_s = 0.3;
    stranger("11111111-2222", 1, 1, 0);
    fs_as = FS_UNREADABLE;
    pid_t pid = fork();
    if (pid == 0) {
        struct lease *l = NULL;
        alarm(120);
        _exit(lease_take(path(), 0.01, &l, NULL) == ERR_BUSY ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(lease_lives(&w, path(), 0.2));
    fs_as = FS_SOUND;
    lease_silent_s = LEASE_SILENT_S;
}

/* In a folder that a group writes to, whoever may take a lease over may read whether its holder
 * lives. */
static void a_group_reads_it(void **state)
{
    struct lease_holder h;
    struct stat st;
    char file[1024];
    (void)state;
    assert_int_equal(chmod(scratch, 0770), 0);
    mode_t before = umask(077);
    struct lease *l = taken(0);
    umask(before);
    assert_true(lease_look(path(), &h));
    snprintf(file, sizeof file, "%s/%s", path(), h.name);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    lease_drop(l);
}

/* ---- file systems ---- */

static void file_systems_that_differ(void **state)
{
    (void)state;
    fs_as = FS_REPLY_LOST;
    struct lease *l = taken(0);
    fs_as = FS_SOUND;
    is_busy(0, "held by process");
    lease_drop(l);
    assert_int_equal(mkdir(path(), 0777), 0); /* its holder was killed between file and folder */
    fs_as = FS_NOT_OVER_EMPTY;
    lease_drop(taken(0));
    fs_as = FS_SOUND;
    assert_int_equal(count_entries(scratch), 0);
}

static void a_failed_call_leaves_nothing(void **state)
{
    struct lease *l = NULL;
    struct err err = {0};
    int failed = 0;
    (void)state;
    for (int n = 1;; n++, failed++) {
        fs_as = FS_FAILS, fs_countdown = n;
        int rc = lease_take(path(), 0, &l, &err);
        bool fired = fs_countdown == 0;
        fs_as = FS_SOUND;
        if (rc == 0 && !fired)
            break;
        assert_int_equal(rc, ERR_IO);
        assert_int_equal(count_entries(scratch), 0);
    }
    assert_int_equal(failed, 3); /* mkdir, open, rename */
    lease_drop(l);
}

/* ---- everybody at once ---- */

enum { CONTENDERS = 6, ENTRIES = 40 };

/* Takes the lease ENTRIES times; dies in it now and then, as its parent counts on. Exit 3: met
 * another inside. */
static void contend(unsigned seed)
{
    char inside[64];
    for (int i = 0; i < ENTRIES; i++) {
        struct lease *l = NULL;
        if (lease_take(path(), 300, &l, NULL) < 0)
            _exit(4);
        snprintf(inside, sizeof inside, "%ld", (long)getpid());
        int fd = __real_open(in_scratch("inside"), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (fd < 0) { /* who was killed in there has left it */
            struct str text = STR_INIT;
            if (file_read(in_scratch("inside"), 64, &text, NULL) == 0 && text.len &&
                proc_identify((pid_t)atol(text.p)).pid)
                _exit(3);
            str_release(&text);
            unlink(in_scratch("inside"));
        } else {
            if (write(fd, inside, strlen(inside)) < 0)
                _exit(5);
            close(fd);
        }
        if (rand_r(&seed) % 20 == 0)
            kill(getpid(), SIGKILL);
        unlink(in_scratch("inside"));
        lease_drop(l);
    }
    _exit(0);
}

static void never_two_inside(void **state)
{
    unsigned seed = (unsigned)getpid();
    int done = 0, killed = 0;
    (void)state;
    print_message("# seed %u\n", seed);
    for (int i = 0; i < CONTENDERS; i++)
        if (fork() == 0)
            contend(seed + (unsigned)i);
    while (done < CONTENDERS) {
        int status;
        assert_true(wait(&status) > 0);
        if (WIFSIGNALED(status)) {
            killed++;
            if (killed > 40)
                done++; /* not replaced any more */
            else if (fork() == 0)
                contend(seed + 100 + (unsigned)killed);
        } else {
            assert_int_equal(WEXITSTATUS(status), 0);
            done++;
        }
    }
    print_message("# %d killed inside\n", killed);
    lease_drop(taken(0));
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(after_a_minute_of_silence),
        IN_SCRATCH(one_holder),
        IN_SCRATCH(a_dead_holder_is_followed_at_once),
        IN_SCRATCH(a_lease_that_is_dropped_is_taken),
        IN_SCRATCH(an_older_version_s_lock_file),
        IN_SCRATCH(a_silent_holder_elsewhere),
        IN_SCRATCH(who_is_waited_for),
        IN_SCRATCH(a_holder_in_another_namespace),
        IN_SCRATCH(who_did_not_look_has_not_watched),
        IN_SCRATCH(a_holder_elsewhere_that_renews),
        IN_SCRATCH(a_watch),
        IN_SCRATCH(a_higher_rank_takes_over),
        IN_SCRATCH(it_is_renewed),
        IN_SCRATCH(others_do_not_put_it_off),
        IN_SCRATCH(a_file_system_that_hangs),
        IN_SCRATCH(a_holder_that_cannot_be_read),
        IN_SCRATCH(a_group_reads_it),
        IN_SCRATCH(file_systems_that_differ),
        IN_SCRATCH(a_failed_call_leaves_nothing),
        IN_SCRATCH(a_holder_on_a_full_disk),
        IN_SCRATCH(never_two_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
