/* Files: atomic publish under every failing call, short writes, folders. */
// LINK: -Wl,--wrap=write -Wl,--wrap=fsync -Wl,--wrap=rename -Wl,--wrap=close -Wl,--wrap=link
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/scratch.h"

/* ---- the n-th of these calls fails; writes may be short ---- */

static struct {
    int countdown;  /* calls until the failing one; 0: none fails */
    int error;
    bool fired;
    const char *what;
    size_t short_bytes; /* no write takes more; 0: no limit */
} fault;

static bool fails(const char *what)
{
    if (fault.countdown == 0 || --fault.countdown > 0)
        return false;
    fault.fired = true;
    fault.what = what;
    errno = fault.error;
    return true;
}

ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __real_close(int fd);
int __wrap_close(int fd);

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    if (fails("write"))
        return -1;
    return __real_write(fd, bytes,
                        fault.short_bytes && n > fault.short_bytes ? fault.short_bytes : n);
}

int __wrap_fsync(int fd)
{
    return fails("fsync") ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    return fails("rename") ? -1 : __real_rename(from, to);
}

/* no hard links here; done, and the answer says that it was there */
static enum { LINK_SOUND, LINK_NONE, LINK_REPLY_LOST } link_as;

int __wrap_link(const char *from, const char *to)
{
    int rc = link_as == LINK_NONE ? -1 : fails("link") ? -1 : __real_link(from, to);
    if (link_as == LINK_NONE)
        errno = EPERM;
    if (rc == 0 && link_as == LINK_REPLY_LOST) {
        errno = EEXIST;
        return -1;
    }
    return rc;
}

int __wrap_close(int fd)
{
    bool bad = fails("close");
    int error = errno, rc = __real_close(fd); /* Linux frees the descriptor in any case */

    errno = error;
    return bad ? -1 : rc;
}

static void arm(int nth, int error)
{
    fault.countdown = nth;
    fault.error = error;
    fault.fired = false;
}

static void disarm(void)
{
    fault.countdown = 0;
    fault.short_bytes = 0;
}

static void expect_content(const char *path, const char *text)
{
    struct str s = STR_INIT;
    struct err err;

    assert_int_equal(file_read(path, 1 << 20, &s, &err), 0);
    assert_string_equal(s.p, text);
    str_release(&s);
}

static int open_fds(void)
{
    return count_entries("/proc/self/fd");
}

/* ---- publishing ---- */

static int publish_once(const char *path, const char *text, struct err *err)
{
    return file_publish(path, text, strlen(text), err);
}

static int publish_in_pieces(const char *path, const char *text, struct err *err)
{
    struct file_pub p;
    int rc = file_pub_open(&p, path, err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && text[i]; i++)
        rc = file_pub_write(&p, text + i, 1, err);
    if (rc == 0)
        rc = file_pub_commit(&p, err);
    file_pub_abort(&p); /* safe after everything */
    return rc;
}

/* Fail call 1, 2, 3, ... until a run meets no fault. The old content stands in each failed run,
 * nothing else is left; only when the folder's fsync or close is what failed, after the rename, the
 * new content is there, whole. */
static void sweep(int (*publish)(const char *, const char *, struct err *), int error)
{
    struct err err;
    int fds = open_fds(), failures = 0, nth = 1;

    for (;; nth++) {
        disarm();
        assert_int_equal(publish_once(in_scratch("f"), "old", &err), 0);
        arm(nth, error);
        int rc = publish(in_scratch("f"), "brand new", &err);
        disarm();
        assert_int_equal(count_entries(scratch), 1);
        assert_int_equal(open_fds(), fds);
        if (!fault.fired) {
            assert_int_equal(rc, 0);
            break;
        }
        if (rc == 0) { /* the close of the folder, whose result says nothing */
            assert_string_equal(fault.what, "close");
            expect_content(in_scratch("f"), "brand new");
            continue;
        }
        failures++;
        assert_int_equal(rc, error == EIO ? ERR_IO : ERR_FULL);
        assert_non_null(strstr(err.text, strerror(error)));
        assert_non_null(strstr(err.text, scratch));
        if (strstr(err.text, "may not survive")) {
            assert_string_equal(fault.what, "fsync");
            expect_content(in_scratch("f"), "brand new");
        } else
            expect_content(in_scratch("f"), "old");
    }
    expect_content(in_scratch("f"), "brand new");
    assert_true(failures >= 5); /* write, fsync, close, rename, fsync of the folder */
}

static void publish_under_faults(void **state)
{
    (void)state;
    sweep(publish_once, EIO);
    sweep(publish_once, ENOSPC);
    sweep(publish_in_pieces, EIO);
    sweep(publish_in_pieces, EDQUOT);
}

static void publish_short_writes(void **state)
{
    struct err err;

    (void)state;
    fault.short_bytes = 2;
    assert_int_equal(publish_once(in_scratch("f"), "seventeen letters", &err), 0);
    disarm();
    expect_content(in_scratch("f"), "seventeen letters");
}

static void interrupted_calls_are_retried(void **state)
{
    struct err err;

    (void)state;
    arm(1, EINTR); /* the write */
    assert_int_equal(publish_once(in_scratch("f"), "text", &err), 0);
    arm(2, EINTR); /* the fsync */
    assert_int_equal(publish_once(in_scratch("f"), "text2", &err), 0);
    assert_true(fault.fired);
    disarm();
    expect_content(in_scratch("f"), "text2");
}

static void full_disk_says_what_to_do(void **state)
{
    struct err err;

    (void)state;
    arm(1, ENOSPC);
    assert_int_equal(publish_once(in_scratch("f"), "text", &err), ERR_FULL);
    disarm();
    assert_non_null(strstr(err.text, "No space left on device: free some space"));
    assert_int_equal(count_entries(scratch), 0);
}

static void publish_bad_targets(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(publish_once(in_scratch("no/such/folder/f"), "x", &err), ERR_NOT_FOUND);
    assert_int_equal(mkdir(in_scratch("dir"), 0777), 0);
    assert_int_equal(publish_once(in_scratch("dir"), "x", &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "it is a folder: give a file"));
    assert_int_equal(publish_in_pieces(in_scratch("dir"), "x", &err), ERR_INPUT);
    assert_int_equal(count_entries(scratch), 1);
    assert_int_equal(symlink("elsewhere", in_scratch("link")), 0);
    assert_int_equal(publish_once(in_scratch("link"), "x", &err), 0);
    expect_content(in_scratch("link"), "x");
    assert_false(file_exists(in_scratch("elsewhere")));
}

static void temporary_of_somebody_else(void **state)
{
    char name[64];
    struct err err;

    (void)state;
    for (int i = 0; i < 40; i++) { /* names that our counter will soon reach */
        snprintf(name, sizeof name, "f.tmp.%ld.%d", (long)getpid(), i);
        close(open(in_scratch(name), O_CREAT | O_WRONLY, 0666));
    }
    assert_int_equal(publish_once(in_scratch("f"), "x", &err), 0);
    expect_content(in_scratch("f"), "x");
    assert_int_equal(count_entries(scratch), 41);
}

/* ---- folders ---- */

static void publish_folder(void **state)
{
    struct err err;

    (void)state;
    for (int nth = 1;; nth++) {
        disarm();
        assert_int_equal(file_remove_tree(in_scratch("final"), &err), 0);
        assert_int_equal(file_mkdirs(in_scratch("tmp"), &err), 0);
        assert_int_equal(publish_once(in_scratch("tmp/f"), "x", &err), 0);
        arm(nth, EIO);
        int rc = file_publish_dir(in_scratch("tmp"), in_scratch("final"), &err);
        disarm();
        assert_true(file_exists(in_scratch("tmp/f")) != file_exists(in_scratch("final/f")));
        if (!fault.fired) {
            assert_int_equal(rc, 0);
            break;
        }
    }
    expect_content(in_scratch("final/f"), "x");
    assert_int_equal(file_mkdirs(in_scratch("tmp"), &err), 0);
    assert_int_equal(file_publish_dir(in_scratch("tmp"), in_scratch("final"), &err), ERR_EXISTS);
    expect_content(in_scratch("final/f"), "x");
    assert_true(file_exists(in_scratch("tmp")));
}

static void make_folders(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(file_mkdirs(in_scratch("a/b//c/"), &err), 0);
    assert_int_equal(file_mkdirs(in_scratch("a/b/c"), &err), 0);
    assert_true(file_exists(in_scratch("a/b/c")));
    assert_int_equal(publish_once(in_scratch("a/file"), "x", &err), 0);
    assert_int_equal(file_mkdirs(in_scratch("a/file"), &err), ERR_EXISTS);
    assert_true(file_mkdirs(in_scratch("a/file/b"), &err) < 0);
    assert_int_equal(file_mkdirs("", &err), ERR_INPUT);
}

static void remove_tree_keeps_link_targets(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(file_mkdirs(in_scratch("keep"), &err), 0);
    assert_int_equal(publish_once(in_scratch("keep/f"), "x", &err), 0);
    assert_int_equal(file_mkdirs(in_scratch("go/a/b"), &err), 0);
    assert_int_equal(publish_once(in_scratch("go/a/f"), "x", &err), 0);
    assert_int_equal(symlink("../keep", in_scratch("go/link")), 0);
    assert_int_equal(file_remove_tree(in_scratch("go"), &err), 0);
    assert_false(file_exists(in_scratch("go")));
    assert_true(file_exists(in_scratch("keep/f")));
    assert_int_equal(file_remove_tree(in_scratch("go"), &err), 0);
    assert_int_equal(symlink("keep", in_scratch("direct")), 0);
    assert_int_equal(file_remove_tree(in_scratch("direct"), &err), 0);
    assert_true(file_exists(in_scratch("keep/f")));
}

/* ---- reading, joining, claims, locks ---- */

static void read_limits(void **state)
{
    struct str s = STR_INIT;
    struct err err;

    (void)state;
    str_add(&s, "before ");
    assert_int_equal(publish_once(in_scratch("f"), "12345", &err), 0);
    assert_int_equal(file_read(in_scratch("f"), 4, &s, &err), ERR_LIMIT);
    assert_int_equal(file_read(in_scratch("absent"), 4, &s, &err), ERR_NOT_FOUND);
    assert_int_equal(file_read(scratch, 4, &s, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "give a file"));
    assert_int_equal(file_read(in_scratch("f/below"), 4, &s, &err), ERR_INPUT);
    assert_string_equal(s.p, "before ");
    assert_int_equal(file_read(in_scratch("f"), 5, &s, &err), 0);
    assert_string_equal(s.p, "before 12345");
    str_release(&s);
}

static void joining(void **state)
{
    static const struct { const char *dir, *name, *out; } rows[] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *got = file_join(rows[i].dir, rows[i].name);
        assert_string_equal(got, rows[i].out);
        free(got);
    }
}

static void claims(void **state)
{
    struct err err;

    (void)state;
    for (int nth = 1;; nth++) { /* a failed claim leaves no claim */
        disarm();
        unlink(in_scratch("claim"));
        arm(nth, EIO);
        int rc = file_create_exclusive(in_scratch("claim"), "mine", 4, &err);
        disarm();
        if (rc < 0)
            assert_false(file_exists(in_scratch("claim")));
        if (!fault.fired)
            break;
    }
    assert_int_equal(file_create_exclusive(in_scratch("claim"), "yours", 5, &err), ERR_EXISTS);
    expect_content(in_scratch("claim"), "mine");
    for (link_as = LINK_NONE; link_as <= LINK_REPLY_LOST; link_as++) {
        unlink(in_scratch("claim"));
        assert_int_equal(file_create_exclusive(in_scratch("claim"), "mine", 4, &err), 0);
        expect_content(in_scratch("claim"), "mine");
        if (link_as == LINK_NONE)
            assert_int_equal(file_create_exclusive(in_scratch("claim"), "yours", 5, &err),
                             ERR_EXISTS);
    }
    link_as = LINK_SOUND;
}

/* As root a rename would put a plain file in the place of /dev/null, for everybody. */
static void devices_stay(void **state)
{
    const char *pipe_path = in_scratch("pipe"), *link_path = in_scratch("link");
    char got[16] = "";
    struct err err = {0};
    struct stat st;
    (void)state;
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(symlink("pipe", link_path), 0);
    int fd = open(pipe_path, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(file_publish(pipe_path, "one", 3, &err), 0);
    assert_int_equal(file_publish(link_path, "two", 3, &err), 0);
    assert_int_equal(file_publish_private(pipe_path, "!", 1, &err), 0);
    assert_int_equal(read(fd, got, sizeof got), 7);
    assert_memory_equal(got, "onetwo!", 7);
    close(fd);
    assert_true(lstat(pipe_path, &st) == 0 && S_ISFIFO(st.st_mode) && (st.st_mode & 0777) == 0600);
    assert_true(lstat(link_path, &st) == 0 && S_ISLNK(st.st_mode));
}

/* A pipe without a reader is not waited for, which could last for ever. */
static void pipe_without_reader(void **state)
{
    const char *path = in_scratch("pipe");
    struct err err = {0};
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(file_publish(path, "one", 3, &err), ERR_IO);
    assert_non_null(strstr(err.text, "nobody reads from it"));
    assert_int_equal(count_entries(scratch), 1);
}

/* Standard output may lead to a plain file: as root a rename would put another in the place of the
 * link /dev/stdout. */
static void own_descriptors_stay(void **state)
{
    char path[64];
    struct str text = STR_INIT;
    struct err err = {0};
    (void)state;
    int fd = open(in_scratch("out"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(write(fd, "first ", 6), 6);
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    assert_int_equal(file_publish(path, "second", 6, &err), 0);
    assert_int_equal(write(fd, " third", 6), 6);
    assert_int_equal(close(fd), 0);
    assert_int_equal(file_read(in_scratch("out"), 64, &text, &err), 0);
    assert_string_equal(text.p, "first second third");
    assert_int_equal(file_publish("/dev/fd/12345", "none", 4, &err), ERR_IO);
    assert_int_equal(count_entries(scratch), 1);
    str_release(&text);
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(publish_under_faults),
        IN_SCRATCH(publish_short_writes),
        IN_SCRATCH(interrupted_calls_are_retried),
        IN_SCRATCH(full_disk_says_what_to_do),
        IN_SCRATCH(publish_bad_targets),
        IN_SCRATCH(temporary_of_somebody_else),
        IN_SCRATCH(devices_stay),
        IN_SCRATCH(pipe_without_reader),
        IN_SCRATCH(own_descriptors_stay),
        IN_SCRATCH(publish_folder),
        IN_SCRATCH(make_folders),
        IN_SCRATCH(remove_tree_keeps_link_targets),
        IN_SCRATCH(read_limits),
        cmocka_unit_test(joining),
        IN_SCRATCH(claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
