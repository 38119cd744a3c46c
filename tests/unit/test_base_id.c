/* id, clock, log: what other formats rely on. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"

static void test_id(void **state)
{
    (void)state;
    static const struct { const char *text; int rc; struct id id; } table[] = {
        {"00000000000000000000000000000000", 0, {0, 0}},
        {"0123456789abcdef00000000000000ff", 0, {0x0123456789abcdef, 0xff}},
        {"ffffffffffffffffffffffffffffffff", 0, {UINT64_MAX, UINT64_MAX}},
        {"0123456789ABCDEF00000000000000ff", ERR_INPUT, {0, 0}},
        {"0123456789abcdef00000000000000f", ERR_INPUT, {0, 0}},
        {"0123456789abcdef00000000000000fff", ERR_INPUT, {0, 0}},
        {"0123456789abcdef-0000000000000ff", ERR_INPUT, {0, 0}},
        {"", ERR_INPUT, {0, 0}},
    };
    char buf[ID_TEXT_BYTES];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct err err = {0};
        struct id id = {1, 2};
        assert_int_equal(id_parse(table[i].text, &id, &err), table[i].rc);
        if (table[i].rc == 0) {
            assert_memory_equal(&id, &table[i].id, sizeof id);
            assert_string_equal(id_format(id, buf), table[i].text);
        } else {
            assert_true(id.hi == 1 && id.lo == 2);
            assert_non_null(strstr(err.text, "32 lower-case hex digits"));
        }
    }
    struct id a, b;
    assert_int_equal(id_random(&a, NULL), 0);
    assert_int_equal(id_random(&b, NULL), 0);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_true(a.hi != a.lo);
}

static void test_utc(void **state)
{
    (void)state;
    static const struct {
        double t;
        const char *text;
    } table[] = {
        {0, "1970-01-01T00:00:00Z"},
        {1772366400.999, "2026-03-01T12:00:00Z"},
        {-0.5, "1969-12-31T23:59:59Z"},
        {951782399, "2000-02-28T23:59:59Z"},
        {253402300799, "9999-12-31T23:59:59Z"},
        {NAN, "unknown"},
        {INFINITY, "unknown"},
        {1e300, "unknown"},
    };
    char buf[64];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_string_equal(clock_format_utc(table[i].t, buf, sizeof buf), table[i].text);
    assert_string_equal(clock_format_utc(0, buf, 5), "unkn");
}

static void test_identity(void **state)
{
    (void)state;
    const char *boot = clock_boot_id();
    assert_ptr_equal(boot, clock_boot_id());
    assert_true(strcmp(boot, "unknown") == 0 || (strlen(boot) == 36 && boot[8] == '-'));
    assert_true(strlen(clock_host()) > 0 && strchr(clock_host(), '.') == NULL);
    assert_true(clock_wall_s() > 1.7e9);
}

static void on_alarm(int sig)
{
    (void)sig;
}

/* A sleep interrupted by signals every 5 ms still lasts its whole time. */
static void test_sleep(void **state)
{
    (void)state;
    struct sigaction act = {.sa_handler = on_alarm}, old;
    struct itimerval every = {{0, 5000}, {0, 5000}}, off = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &act, &old);
    setitimer(ITIMER_REAL, &every, NULL);
    int64_t from = clock_mono_ns();
    clock_sleep_s(0.05);
    int64_t took = clock_mono_ns() - from;
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &old, NULL);
    assert_true(took >= 50000000);
    clock_sleep_s(-1);
    clock_sleep_s(NAN);
}

static void collect(void *ctx, enum log_level level, const char *text)
{
    str_addf(ctx, "%d:%s\n", (int)level, text);
}

static void test_log(void **state)
{
    (void)state;
    struct str got = STR_INIT;
    log_msg(LOG_ERROR, "nobody listens"); /* no sink: dropped */
    log_set_sink(collect, &got);
    log_msg(LOG_WARN, "a %d", 1);
    log_msg(LOG_INFO, "below the level");
    log_set_level(LOG_DEBUG);
    log_msg(LOG_DEBUG, "b");
    assert_string_equal(got.p, "1:a 1\n3:b\n");
    char big[5000];
    memset(big, 'z', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    str_clear(&got);
    log_msg(LOG_ERROR, "%s", big);
    assert_true(got.len < 2100 && str_ends(got.p, "zz...\n"));
    log_set_sink(NULL, NULL);
    log_msg(LOG_ERROR, "dropped");
    assert_null(strstr(got.p, "dropped"));
    log_set_level(LOG_WARN);
    str_release(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_id),    cmocka_unit_test(test_utc), cmocka_unit_test(test_identity),
        cmocka_unit_test(test_sleep), cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests_name("base_id", tests, NULL, NULL);
}
