/* The conformance suite on the local scheduler, with a grace and without one. */
// SLOW
#include "tests/lib/sched_conformance.h"

#include "launcher/sched/local.h"

static char dir[LIMIT_PATH_BYTES], home[LIMIT_PATH_BYTES];

static int setup_with(const char *grace)
{
    struct err err = {0};
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/reel-conform.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    snprintf(home, sizeof home, "%.4000s/home", dir);
    setenv("REEL_LOCAL_CORES", "4", 1);
    setenv("REEL_LOCAL_GRACE", grace, 1);
    setenv("REEL_LOCAL_KILL_WAIT", "5s", 1); /* what is asked must come to its answer */
    conform = (struct conform){.kind = "local", .home = home, .dir = dir, .low_priority = 0,
                               .urgent_priority = 100, .cores = 4, .time_limit_s = 6,
                               .patience_s = 200};
    if (sched_open("local", home, &conform.s, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    conform_write_program();
    return 0;
}

static int setup_grace(void **state)
{
    (void)state;
    return setup_with("5s");
}

static int setup_no_grace(void **state)
{
    (void)state;
    return setup_with("0");
}

static int teardown(void **state)
{
    (void)state;
    sched_close(conform.s);
    return conform_remove();
}

int main(int argc, char **argv)
{
    int rc;
    if (argc == 4 && strcmp(argv[1], "keeper") == 0)
        return sched_local_keeper(argv[2], argv[3], NULL) < 0;
    if (conform_program(argc, argv, &rc))
        return rc;
    const struct CMUnitTest all[] = {CONFORM_TESTS};
    const struct CMUnitTest preempt[] = {CONFORM_TEST(preempt)};
    rc = cmocka_run_group_tests_name("sched conformance: local", all, setup_grace, teardown);
    return rc + cmocka_run_group_tests_name("sched conformance: local, grace 0", preempt,
                                            setup_no_grace, teardown);
}
