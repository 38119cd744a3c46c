/* Error sentences: codes, truncation, context, text that is its own argument; bugs abort. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/str.h"

static void test_codes(void **state)
{
    (void)state;
    static const struct {
        int code, exit_code;
        const char *name;
    } table[] = {
        {0, 0, "ERR_OK"},
        {ERR_NO, 1, "ERR_NO"},
        {ERR_USAGE, 2, "ERR_USAGE"},
        {ERR_INPUT, 3, "ERR_INPUT"},
        {ERR_ENV, 4, "ERR_ENV"},
        {ERR_IO, 5, "ERR_IO"},
        {ERR_BUSY, 75, "ERR_BUSY"},
        {ERR_TEMP, 75, "ERR_TEMP"},
        {-999, 5, "ERR_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_int_equal(err_exit_code(table[i].code), table[i].exit_code);
        assert_string_equal(err_name(table[i].code), table[i].name);
    }
}

static void test_set(void **state)
{
    (void)state;
    struct err err;
    memset(&err, 0x5a, sizeof err); /* nothing is assumed of the struct */
    assert_int_equal(err_set(&err, ERR_INPUT, "%s is %d", "n", 3), ERR_INPUT);
    assert_int_equal(err.code, ERR_INPUT);
    assert_string_equal(err.text, "n is 3");
    assert_int_equal(err_set(&err, ERR_IO, "<%s>", err.text), ERR_IO);
    assert_string_equal(err.text, "<n is 3>");
    assert_int_equal(err_set(NULL, ERR_IO, "x"), ERR_IO);
    errno = EACCES;
    assert_int_equal(err_set_errno(&err, ERR_IO, "open %s", "f"), ERR_IO);
    assert_string_equal(err.text, "open f: Permission denied");
    err_set(&err, ERR_INPUT, "'%s'", "two\nlines \x1b[2J \x7f \xc3\xa9");
    assert_string_equal(err.text, "'two?lines ?[2J ? \xc3\xa9'");
    errno = ENOMEM;
    assert_int_equal(err_set_errno(&err, ERR_IO, "map"), ERR_NOMEM);
    errno = ENOMEM;
    assert_int_equal(err_set_errno(NULL, ERR_IO, "map"), ERR_NOMEM);
}

/* Texts around the buffer's end: whole while they fit, then cut with dots. */
static void test_cut(void **state)
{
    (void)state;
    char text[ERR_TEXT_BYTES + 10];
    for (size_t n = ERR_TEXT_BYTES - 3; n < ERR_TEXT_BYTES + 3; n++) {
        struct err err;
        memset(text, 'x', n);
        text[n] = '\0';
        err_set(&err, ERR_INPUT, "%s", text);
        size_t len = strlen(err.text);
        assert_int_equal(len, n < ERR_TEXT_BYTES ? n : ERR_TEXT_BYTES - 1);
        assert_int_equal(str_ends(err.text, "..."), n >= ERR_TEXT_BYTES);
    }
}

static void test_context(void **state)
{
    (void)state;
    struct err err;
    err_set(&err, ERR_CORRUPT, "bad checksum");
    assert_int_equal(err_context(&err, "shard %d", 7), ERR_CORRUPT);
    assert_string_equal(err.text, "shard 7: bad checksum");
    for (int i = 0; i < 2000; i++)
        err_context(&err, "in %d", i);
    assert_int_equal(err.code, ERR_CORRUPT);
    assert_int_equal(strlen(err.text), ERR_TEXT_BYTES - 1);
    assert_true(str_starts(err.text, "in 1999: in 1998: "));
    assert_true(str_ends(err.text, "..."));
    char big[ERR_TEXT_BYTES * 2];
    memset(big, 'y', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    err_context(&err, "%s", big); /* the context alone is too long */
    assert_int_equal(strlen(err.text), ERR_TEXT_BYTES - 1);
    assert_true(str_ends(err.text, "y..."));
    errno = EIO;
    err_set_errno(&err, ERR_IO, "%s", big);
    assert_true(str_ends(err.text, "..."));
    assert_true(err_context(NULL, "x") < 0);
}

static void test_bug_aborts(void **state)
{
    (void)state;
    int fd[2], status;
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        BUG_ON(1 + 1 == 2);
        _exit(0);
    }
    close(fd[1]);
    char text[256] = "";
    for (ssize_t at = 0, n = 1; n > 0; at += n)
        n = read(fd[0], text + at, sizeof text - 1 - (size_t)at);
    close(fd[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_base_err.c:"));
    assert_non_null(strstr(text, "broken: 1 + 1 == 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),      cmocka_unit_test(test_set),
        cmocka_unit_test(test_cut),        cmocka_unit_test(test_context),
        cmocka_unit_test(test_bug_aborts),
    };
    return cmocka_run_group_tests_name("base_err", tests, NULL, NULL);
}
