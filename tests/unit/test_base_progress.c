/* Progress: plain lines in a pipe, a live line on a pseudo-terminal, nothing when quiet. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/progress.h"
#include "base/str.h"

static int saved = -1;

static void redirect(int fd)
{
    saved = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

static void restore(void)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
}

/* What lies in fd now. */
static void drain(int fd, struct str *s)
{
    char buf[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 0) == 1 && (p.revents & POLLIN)) {
        ssize_t n = read(fd, buf, sizeof buf);
        if (n <= 0)
            break;
        str_addn(s, buf, (size_t)n);
    }
}

static size_t count(const char *text, char c)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += *text == c;
    return n;
}

static void test_plain(void **state)
{
    (void)state;
    int fd[2];
    struct str s = STR_INIT;
    struct progress p;
    assert_int_equal(pipe(fd), 0);
    redirect(fd[1]);
    progress_start(&p, "curate", 200, false);
    progress_step(&p, 1, "early"); /* less than five seconds after the start: nothing */
    p.started_s -= 36060; /* shown in minutes: a moment more changes nothing */
    p.shown_s -= 6;
    progress_step(&p, 50, "clip 7");
    progress_step(&p, 51, NULL); /* again too soon */
    progress_end(&p, NULL);
    restore();
    drain(fd[0], &s);
    close(fd[0]);
    assert_int_equal(count(s.p, '\n'), 2);
    assert_int_equal(count(s.p, '\r'), 0);
    assert_true(str_starts(s.p, "curate: 50/200 (25%), "));
    assert_non_null(strstr(s.p, "/s, "));
    assert_non_null(strstr(s.p, ", 1 d 06 h left, clip 7\ncurate: 51/200 (25%), "));
    assert_non_null(strstr(s.p, ", took 10 h 01 m\n"));
    assert_null(strstr(s.p, "early"));
    str_release(&s);
}

/* What was done before it was met counts neither in the rate nor in the time left; one step alone
 * tells no rate. */
static void test_attached(void **state)
{
    (void)state;
    int fd[2];
    struct str s = STR_INIT;
    struct progress p;
    assert_int_equal(pipe(fd), 0);
    redirect(fd[1]);
    progress_start(&p, "train", 200, false);
    progress_from(&p, 100);
    p.started_s -= 10;
    p.shown_s -= 6;
    progress_step(&p, 101, NULL);
    p.started_s -= 3590; /* an hour in all: a moment more changes nothing */
    p.shown_s -= 6;
    progress_step(&p, 150, NULL);
    restore();
    drain(fd[0], &s);
    close(fd[0]);
    assert_string_equal(s.p, "train: 101/200 (50%)\ntrain: 150/200 (75%), 0.01/s, 1 h 00 m left\n");
    str_release(&s);
}

static void test_quiet_and_unknown_total(void **state)
{
    (void)state;
    int fd[2];
    struct str s = STR_INIT;
    struct progress p;
    char note[600];
    memset(note, 'n', sizeof note - 1);
    note[sizeof note - 1] = '\0';
    assert_int_equal(pipe(fd), 0);
    redirect(fd[1]);
    progress_start(&p, "silent", 10, true);
    p.shown_s -= 100;
    progress_step(&p, 5, NULL);
    progress_end(&p, NULL);
    progress_start(&p, "read", 0, false);
    progress_step(&p, 3, NULL);
    progress_end(&p, note); /* far too long: cut, and still one line */
    restore();
    drain(fd[0], &s);
    close(fd[0]);
    assert_int_equal(p.done, 3);
    assert_true(str_starts(s.p, "read: 3, "));
    assert_int_equal(count(s.p, '\n'), 1);
    assert_true(s.len < 260 && str_ends(s.p, "nnn\n"));
    str_release(&s);
}

static void test_live(void **state)
{
    (void)state;
    struct str s = STR_INIT;
    struct progress p;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0) {
        print_message("no pseudo-terminals on this machine\n");
        skip();
    }
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct winsize w = {.ws_col = 60};
    assert_true(slave >= 0);
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &w), 0);
    redirect(slave);
    progress_start(&p, "tune", 4, false);
    progress_step(&p, 1,
                  "a note that makes this line wider than the sixty columns of this terminal");
    p.shown_s -= 1;
    progress_step(&p, 2, NULL);
    progress_step(&p, 3, NULL); /* sooner than a tenth of a second: shown by the end */
    progress_end(&p, "d\xc3\xb6ne");
    restore();
    drain(master, &s);
    close(master);
    size_t lines = count(s.p, '\r') - count(s.p, '\n'); /* the terminal writes \r\n for \n */
    /* 4 when more than a tenth of a second passed between two steps */
    assert_in_range(lines, 3, 4);
    assert_int_equal(count(s.p, '\n'), 1);
    assert_true(str_starts(s.p, "\rtune: 1/4 (25%)"));
    assert_int_equal(strcspn(s.p + 1, "\r"), 59); /* fits: one column stays free */
    assert_non_null(strstr(s.p, "\rtune: 2/4 (50%)"));
    assert_non_null(strstr(s.p, "d\xc3\xb6ne"));
    str_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain), cmocka_unit_test(test_attached),
        cmocka_unit_test(test_quiet_and_unknown_total), cmocka_unit_test(test_live),
    };
    return cmocka_run_group_tests_name("base_progress", tests, NULL, NULL);
}
