/* The conformance suite on a simulated cluster whose jobs are real processes. The server is a
 * process of its own, which every job can ask. */
// SLOW
#include "tests/lib/sched_conformance.h"

#include <sys/wait.h>

#include "launcher/sched/sim.h"

static const struct sim_partition partitions[] = {{"low", 0, SCHED_PREEMPT_REQUEUE, 3, 0},
                                                  {"urgent", 1, SCHED_PREEMPT_OFF, 0, 0},
                                                  {"slept", 0, SCHED_PREEMPT_SUSPEND, 0, 0}};

static char dir[LIMIT_PATH_BYTES], home[LIMIT_PATH_BYTES];
static pid_t server;
static volatile sig_atomic_t stop;

static void on_term(int signo)
{
    (void)signo;
    stop = 1;
}

static int serve(int fd)
{
    struct sim_conf conf = SIM_CONF_INIT;
    struct err err = {0};
    conf.cores_per_node = 4;
    conf.partitions = partitions, conf.n_partitions = ARRAY_LEN(partitions);
    conf.kill_wait_s = 3;
    signal(SIGTERM, on_term);
    if (sched_sim_serve(&conf, home, fd, &stop, &err) < 0)
        fprintf(stderr, "%s\n", err.text);
    return err.code != 0;
}

static int setup(void **state)
{
    struct err err = {0};
    const char *tmp = getenv("TMPDIR");
    int fd;
    (void)state;
    snprintf(dir, sizeof dir, "%s/reel-conform.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    snprintf(home, sizeof home, "%.4000s/home", dir);
    conform = (struct conform){.kind = "sim", .home = home, .dir = dir,
                               .low_partition = "low", .urgent_partition = "urgent",
                               .cores = 4, .time_limit_s = 6, .patience_s = 200};
    if (sched_sim_listen(home, &fd, &err) < 0 || sched_open("sim", home, &conform.s, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    server = fork();
    if (server == 0)
        _exit(serve(fd));
    close(fd);
    conform_write_program();
    return server < 0;
}

static int teardown(void **state)
{
    int status = 0;
    (void)state;
    sched_close(conform.s);
    kill(server, SIGTERM);
    waitpid(server, &status, 0);
    return conform_remove() | status;
}

/* A suspended job stands still, every process of it, and goes on when its place is free again. */
static void suspends(void **state)
{
    struct conform_job slept = {
        .name = "slept", .script = "echo up; until [ -e \"$1/away\" ]; do sleep 0.02; done; echo end"};
    struct conform_job urgent = {.name = "above",
                                 .script = "touch \"$1/away\"; sleep 0.5; "
                                           "! grep -q end \"$1/slept.log\"",
                                 .spec = {.cores_per_node = 4}};
    (void)state;
    conform.low_partition = "slept";
    conform_submit(&slept, false);
    conform.low_partition = "low";
    conform_wait_text("slept.log", "up\n");
    conform_submit(&urgent, true);
    conform_wait(&urgent, conform_ended_set());
    assert_int_equal(conform_state(urgent.id), SCHED_DONE);
    conform_wait(&slept, 1u << SCHED_DONE);
    assert_int_equal(conform_count(conform_read("slept.log"), "end\n"), 1);
}

int main(int argc, char **argv)
{
    int rc;
    if (conform_program(argc, argv, &rc))
        return rc;
    const struct CMUnitTest all[] = {
        CONFORM_TESTS, cmocka_unit_test_teardown(suspends, conform_cancel_all)};
    return cmocka_run_group_tests_name("sched conformance: sim", all, setup, teardown);
}
