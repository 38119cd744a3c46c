/* Leases: what becomes of who waits, in a time that passes as fast as somebody waits for it. */
// LINK: -Wl,--wrap=clock_mono_s -Wl,--wrap=clock_sleep_s
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/lease.h"
#include "base/log.h"
#include "base/process.h"
#include "tests/lib/scratch.h"

static double ahead_s;
static void (*meanwhile)(void); /* what others do during a nap */
double __real_clock_mono_s(void);
double __wrap_clock_mono_s(void);
void __wrap_clock_sleep_s(double seconds);

double __wrap_clock_mono_s(void) { return __real_clock_mono_s() + ahead_s; }

void __wrap_clock_sleep_s(double seconds)
{
    ahead_s += seconds;
    if (meanwhile)
        meanwhile();
}

static const char *path(void) { return in_scratch("lock"); }

/* Puts a file of this name into the lease, in the place of what is there. */
static void held_by(const char *name)
{
    assert_int_equal(file_remove_tree(path(), NULL), 0);
    assert_int_equal(file_mkdirs(path(), NULL), 0);
    char file[512];
    snprintf(file, sizeof file, "%s/%s", path(), name);
    assert_int_equal(file_publish(file, "x", 1, NULL), 0);
}

static struct { int lines; char text[1024]; } heard;
static void hear(void *ctx, enum log_level level, const char *text)
{
    (void)ctx, (void)level;
    heard.lines++;
    snprintf(heard.text, sizeof heard.text, "%s", text);
}

/* Takes the lease as one that waits half a minute for who lives. */
static void taken_after_a_wait(void)
{
    struct lease *l = NULL;
    struct err err = {0};
    if (lease_take(path(), 30, &l, &err) < 0)
        fail_msg("%s", err.text);
    lease_drop(l);
    assert_int_equal(heard.lines, 1);
}

/* NFS keeps what is unlinked while it is open in such a file. */
static void a_file_that_names_no_process(void **state)
{
    (void)state;
    held_by(".nfs000000000001");
    taken_after_a_wait();
    assert_non_null(strstr(heard.text, "/lock' is held by another process: waiting for a sign of"));
}

static void another_takes_over(void)
{
    char name[256];
    long pid = (long)getpid();
    if (ahead_s < 59 || ahead_s > 65)
        return;
    snprintf(name, sizeof name, "%032x.%s.%lld.%ld.%lld.0.%s", 8, clock_boot_id(),
             (long long)proc_namespace(), pid, (long long)proc_identify((pid_t)pid).start,
             clock_host());
    held_by(name);
    if (ahead_s > 64)
        assert_int_equal(file_remove_tree(path(), NULL), 0);
}

/* Two have watched a holder on another host. The one that is second to take over has not waited for
 * the first yet. */
static void the_second_of_two(void **state)
{
    (void)state;
    held_by("00000000000000000000000000000007.11111111-2222.1.7.1.0.elsewhere");
    meanwhile = another_takes_over;
    taken_after_a_wait();
    assert_non_null(strstr(heard.text, "/lock' is held by process 7 on host elsewhere"));
}

static int begin(void **state)
{
    ahead_s = 0, heard.lines = 0, meanwhile = NULL;
    log_set_sink(hear, NULL);
    return scratch_setup(state);
}

static int end(void **state)
{
    log_set_sink(NULL, NULL);
    return scratch_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_that_names_no_process, begin, end),
        cmocka_unit_test_setup_teardown(the_second_of_two, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
