/* Runs the conformance suite on a private Slurm cluster. The test t8010-conformance starts the
 * cluster (one node, 4 cores, partitions low and high), selects by REEL_SLURM_VIA how the
 * controller is asked, and runs this program. */
// LINK: -lcmocka
#include "tests/lib/sched_conformance.h"

static char dir[LIMIT_PATH_BYTES], home[LIMIT_PATH_BYTES];

/* Submits a job that takes the whole node, because steps need a job around them. */
static void allocate(void)
{
    static struct conform_job holder;
    holder = (struct conform_job){.name = "holder-of-steps", .script = "exec sleep 1000",
                                  .spec = {.cores_per_node = conform.cores}};
    conform_submit(&holder, false);
    conform_wait(&holder, 1u << SCHED_RUNNING);
    setenv("SLURM_JOB_ID", holder.id, 1);
    setenv("SLURM_JOB_NUM_NODES", "1", 1);
    setenv("SLURM_CPUS_ON_NODE", "4", 1);
}

static int setup(void **state)
{
    struct err err = {0};
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(dir, sizeof dir, "%s/reel-conform.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    snprintf(home, sizeof home, "%.4000s/home", dir);
    conform = (struct conform){
        .kind = "slurm", .home = home, .dir = dir, .low_partition = "low",
        .urgent_partition = "high", .cores = 4, .time_limit_s = 60,
        .signal_lead_s = 15 /* Slurm checks only every half minute */,
        .step_deadline_s = 10, .patience_s = 200, .orphans_escape = true, .allocate = allocate};
    if (sched_open("slurm", home, &conform.s, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    conform_write_program();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sched_close(conform.s);
    return file_remove_tree(dir, NULL);
}

int main(int argc, char **argv)
{
    int rc;
    if (conform_program(argc, argv, &rc))
        return rc;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest all[] = {CONFORM_TESTS};
    return cmocka_run_group_tests_name("sched conformance: slurm", all, setup, teardown);
}
