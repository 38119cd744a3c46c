/* What the scheduler "slurm" decides without a Slurm: texts of several versions read, states,
 * errors, records, the shared answer. */
#include <math.h>

#include "tests/lib/sched_helpers.h"
#include "tests/lib/arena_fixture.h"

#include "base/str.h"
#include "launcher/sched/slurm_priv.h"
#include "launcher/sched/slurm_text.h"
#include "launcher/sched/slurm_wire.h"

/* ---- states ---- */

static void test_states(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        bool requeue;
        int restarts;
        double ended_ago_s; /* -1: not ended */
        enum sched_state wanted;
    } cases[] = {
        {"PENDING", true, 0, -1, SCHED_PENDING},
        {"PENDING", true, 2, -1, SCHED_REQUEUED},
        {"CONFIGURING", true, 1, -1, SCHED_REQUEUED},
        {"RUNNING", true, 3, -1, SCHED_RUNNING},
        {"SUSPENDED", true, 0, -1, SCHED_SUSPENDED},
        {"COMPLETING", true, 0, 1, SCHED_STOPPING},
        {"REQUEUE_HOLD", true, 1, 1, SCHED_REQUEUED},
        {"REQUEUED", true, 1, 1, SCHED_REQUEUED},
        {"PREEMPTED", true, 0, 1, SCHED_STOPPING}, /* comes back in a moment */
        {"PREEMPTED", true, 0, 3600, SCHED_CANCELLED},
        {"PREEMPTED", false, 0, 1, SCHED_CANCELLED},
        {"PREEMPTED", false, 0, -1, SCHED_STOPPING},
        {"NODE_FAIL", true, 0, 1, SCHED_STOPPING},
        {"NODE_FAIL", true, 0, 3600, SCHED_NODE_FAIL},
        {"NODE_FAIL", false, 0, 1, SCHED_NODE_FAIL},
        {"COMPLETED", true, 0, 1, SCHED_DONE},
        {"FAILED", false, 0, 1, SCHED_FAILED},
        {"OUT_OF_MEMORY", false, 0, 1, SCHED_FAILED},
        {"TIMEOUT", false, 0, 1, SCHED_TIME_LIMIT},
        {"DEADLINE", false, 0, 1, SCHED_TIME_LIMIT},
        {"CANCELLED", true, 0, 1, SCHED_CANCELLED},
        /* of a release to come: keep watching */
        {"BORROWED_BY_MARTIANS", true, 0, 1, SCHED_UNKNOWN},
        {"", true, 0, -1, SCHED_UNKNOWN},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double now = 1e9;
        struct slurm_job j = {.state = cases[i].word, .requeue = cases[i].requeue,
                              .restarts = cases[i].restarts,
                              .ended_at = cases[i].ended_ago_s < 0 ? 0
                                                                   : now - cases[i].ended_ago_s};
        enum sched_state got = slurm_state(&j, now);
        if (got != cases[i].wanted)
            fail_msg("%s, requeue %d, restarts %d, ended %g s ago: %s, expected %s", cases[i].word,
                     cases[i].requeue, cases[i].restarts, cases[i].ended_ago_s,
                     sched_state_name(got), sched_state_name(cases[i].wanted));
    }
}

static void test_token(void **state)
{
    (void)state;
    assert_string_equal(slurm_token("reel:00112233445566778899aabbccddeeff"),
                        "00112233445566778899aabbccddeeff");
    assert_string_equal(slurm_token("reel:00112233445566778899aabbccddeef"), "");
    assert_string_equal(slurm_token("reel:"), "");
    assert_string_equal(slurm_token("real:00112233445566778899aabbccddeeff"), "");
    assert_string_equal(slurm_token("my job"), "");
}

/* ---- squeue ---- */

#define SEP SLURM_SQUEUE_SEPARATOR
#define LINE(id, state, reason, restarts, exit_code, requeue, start, end, preempted, comment,      \
             name)                                                                                 \
    LINE_IN("low", id, state, reason, restarts, exit_code, requeue, start, end, preempted,         \
            comment, name)
#define LINE_IN(partition, id, state, reason, restarts, exit_code, requeue, start, end, preempted, \
                comment, name)                                                                     \
    id SEP id SEP state SEP reason SEP restarts SEP                                                       \
        "2" SEP "16" SEP "-1000" SEP exit_code SEP requeue SEP                                     \
        "1795247415" SEP start SEP end SEP preempted SEP partition SEP                             \
        "/w" SEP comment SEP name SEP "\n"

static void test_squeue_text(void **state)
{
    (void)state;
    struct slurm_jobs jobs;
    struct sched_jobs out = {0};
    static const char text[] = LINE("7", "RUNNING", "None", "0", "0", "1", "1795247417",
                                    "1795250000", "1795247500",
                                    "reel:00112233445566778899aabbccddeeff", "a b|c;")
        LINE("8", "FAILED", "NonZeroExitCode", "1", "768", "0", "1795247417", "1795247418", "N/A",
             "(null)", "x") LINE("9", "FAILED", "RaisedSignal:9(Killed)", "0", "9", "1",
                                 "1795247417", "1795247418", "N/A", "", "")
            LINE("10", "PENDING", "Priority", "0", "0", "1", "N/A", "N/A", "N/A", "", "y");
    assert_int_equal(slurm_text_jobs(text, &arena, &jobs, NULL), 0);
    assert_int_equal(jobs.n, 4);
    assert_string_equal(jobs.v[0].cwd, "/w");
    assert_true(jobs.v[0].preempted_at == 1795247500 && jobs.v[1].preempted_at == 0 &&
                jobs.v[3].preempted_at == 0);
    arena_init(&out.arena, 0);
    assert_int_equal(slurm_to_sched(&jobs, 1795248000, &out, NULL), 0);
    const struct sched_job *j = out.jobs;
    assert_string_equal(j[0].token, "00112233445566778899aabbccddeeff");
    assert_string_equal(j[0].name, "a b|c;");
    assert_int_equal(j[0].priority, 1);
    assert_int_equal(j[0].cores_per_node, 8);
    assert_true(j[0].started_at == 1795247417 && j[0].ended_at == 0 && j[0].exit_code == -1);
    assert_string_equal(j[0].reason, "");
    assert_true(j[1].exit_code == 3 && j[1].exit_signal == 0 && j[1].ended_at == 1795247418 &&
                j[1].restarts == 1);
    assert_string_equal(j[1].token, "");
    assert_string_equal(j[1].reason, "NonZeroExitCode");
    assert_true(j[2].exit_code == -1 && j[2].exit_signal == 9);
    assert_true(j[3].started_at == 0 && j[3].ended_at == 0 && j[3].state == SCHED_PENDING);
    assert_string_equal(j[3].reason, "Priority");
    sched_jobs_release(&out);
    assert_int_equal(slurm_text_jobs("", &arena, &jobs, NULL), 0);
    assert_int_equal(jobs.n, 0);
}

/* What 22.05.8 showed of jobs while they ended, beside what libslurm told of the same jobs at the
 * same moment. */
static const struct ending {
    const char *what, *text;
    enum sched_end end;
} endings[] = {
    {"runs", LINE("1", "RUNNING", "None", "0", "0", "1", "100", "460", "N/A", "", "n"),
     SCHED_END_NONE},
    {"waits", LINE("1", "PENDING", "Priority", "0", "0", "1", "N/A", "N/A", "N/A", "", "n"),
     SCHED_END_NONE},
    {"scancel", LINE("1", "COMPLETING", "None", "0", "0", "1", "100", "112", "N/A", "", "n"),
     SCHED_END_CANCELLED},
    {"scancel, in its second run",
     LINE("1", "COMPLETING", "None", "1", "0", "1", "100", "112", "50", "", "n"),
     SCHED_END_CANCELLED},
    {"preempted, requeue",
     LINE("1", "COMPLETING", "None", "1", "0", "1", "N/A", "N/A", "112", "", "n"),
     SCHED_END_REQUEUED},
    {"preempted, requeue, at the end of the grace",
     LINE("1", "COMPLETING", "None", "1", "0", "1", "127", "NONE", "126", "", "n"),
     SCHED_END_REQUEUED},
    {"preempted, requeue, with a time limit",
     LINE("1", "COMPLETING", "None", "1", "0", "1", "127", "187", "126", "", "n"),
     SCHED_END_REQUEUED},
    {"preempted, requeue, then scancel",
     LINE("1", "COMPLETING", "None", "1", "0", "1", "N/A", "112", "112", "", "n"),
     SCHED_END_CANCELLED},
    {"in the grace", LINE("1", "RUNNING", "None", "0", "0", "1", "100", "127", "112", "", "n"),
     SCHED_END_PREEMPTED},
    {"scancel in the grace",
     LINE("1", "COMPLETING", "None", "0", "0", "1", "100", "115", "112", "", "n"),
     SCHED_END_CANCELLED},
    {"scancel in the second of the preemption",
     LINE("1", "COMPLETING", "None", "0", "0", "1", "105", "109", "109", "", "n"),
     SCHED_END_CANCELLED},
    {"scancel in the next",
     LINE("1", "COMPLETING", "None", "0", "0", "1", "105", "110", "109", "", "n"),
     SCHED_END_CANCELLED},
    {"preempted, cancel, at the end of the grace",
     LINE_IN("late", "1", "COMPLETING", "None", "0", "0", "1", "81", "109", "109", "", "n"),
     SCHED_END_PREEMPTED},
    {"scancel in that grace",
     LINE_IN("late", "1", "COMPLETING", "None", "0", "0", "1", "81", "94", "84", "", "n"),
     SCHED_END_CANCELLED},
    {"scancel beside a preemption without grace",
     LINE_IN("requeue", "1", "COMPLETING", "None", "0", "0", "1", "105", "109", "109", "", "n"),
     SCHED_END_CANCELLED},
    {"preempted, may not be requeued",
     LINE_IN("requeue", "1", "COMPLETING", "None", "0", "0", "0", "105", "109", "109", "", "n"),
     SCHED_END_PREEMPTED},
    {"preempted, cancel",
     LINE_IN("cancel", "1", "COMPLETING", "None", "0", "0", "1", "105", "109", "109", "", "n"),
     SCHED_END_PREEMPTED},
    {"preempted where nothing is known",
     LINE_IN("unheard", "1", "COMPLETING", "None", "0", "0", "1", "105", "109", "109", "", "n"),
     SCHED_END_PREEMPTED},
    {"time limit",
     LINE("1", "COMPLETING", "TimeLimit", "0", "0", "1", "100", "160", "N/A", "", "n"),
     SCHED_END_TIME_LIMIT},
    {"for a reason nobody knows",
     LINE("1", "COMPLETING", "Odd", "0", "0", "1", "100", "112", "N/A", "", "n"),
     SCHED_END_UNKNOWN},
    {"over", LINE("1", "CANCELLED", "None", "0", "0", "1", "100", "112", "N/A", "", "n"),
     SCHED_END_CANCELLED},
    {"over by preemption",
     LINE("1", "PREEMPTED", "None", "0", "0", "0", "100", "112", "112", "", "n"),
     SCHED_END_PREEMPTED},
    {"over by itself",
     LINE("1", "COMPLETED", "None", "0", "0", "1", "100", "112", "N/A", "", "n"),
     SCHED_END_NONE},
    {"over by a lost node",
     LINE("1", "NODE_FAIL", "None", "0", "0", "0", "100", "112", "N/A", "", "n"),
     SCHED_END_NODE_FAIL},
    {"a word of another year",
     LINE("1", "UNHEARD_OF", "None", "0", "0", "1", "100", "112", "N/A", "", "n"),
     SCHED_END_UNKNOWN},
};

static void test_ending(void **state)
{
    static const struct sched_partition partitions[] = {
        {.name = "low", .preempt = SCHED_PREEMPT_REQUEUE, .grace_s = 15},
        {.name = "late", .preempt = SCHED_PREEMPT_CANCEL, .grace_s = 15},
        {.name = "requeue", .preempt = SCHED_PREEMPT_REQUEUE},
        {.name = "cancel", .preempt = SCHED_PREEMPT_CANCEL},
    };
    static const struct slurm_site site = {
        .preempt_type = "preempt/partition_prio",
        .site = {.partitions = partitions, .n_partitions = ARRAY_LEN(partitions)}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        struct slurm_jobs jobs;
        assert_int_equal(slurm_text_jobs(endings[i].text, &arena, &jobs, NULL), 0);
        enum sched_end end = slurm_end(&jobs.v[0], &site, 130);
        if (end != endings[i].end)
            fail_msg("%s: '%s', expected '%s'", endings[i].what, sched_end_name(end),
                     sched_end_name(endings[i].end));
    }
}

/* A job cancelled in the second in which its grace begins, where preemption cancels jobs, has the
 * same text as one whose grace is over. Where the base state is told (reel-slurm, a squeue --json that
 * lists the states) they differ. */
static void test_ending_by_base(void **state)
{
    static const char text[] =
        LINE_IN("late", "1", "COMPLETING", "None", "0", "0", "1", "81", "109", "109", "", "n");
    struct slurm_jobs jobs;
    (void)state;
    assert_int_equal(slurm_text_jobs(text, &arena, &jobs, NULL), 0);
    assert_int_equal(slurm_end(&jobs.v[0], NULL, 130), SCHED_END_PREEMPTED);
    jobs.v[0].base = "CANCELLED";
    assert_int_equal(slurm_end(&jobs.v[0], NULL, 130), SCHED_END_CANCELLED);
}

static void test_ending_json(void **state)
{
    static const struct {
        const char *text, *base;
    } cases[] = {
        {"{\"jobs\": [{\"job_id\": 5, \"job_state\": [\"CANCELLED\", \"COMPLETING\"], "
         "\"end_time\": {\"set\": true, \"number\": 18}}]}", "CANCELLED"},
        {"{\"jobs\": [{\"job_id\": 5, \"job_state\": [\"PREEMPTED\", \"COMPLETING\"], "
         "\"end_time\": {\"set\": true, \"number\": 18}}]}", "PREEMPTED"},
        {"{\"jobs\": [{\"job_id\": 5, \"job_state\": [\"PENDING\", \"COMPLETING\", "
         "\"REQUEUED\"]}]}", "PENDING"},
        {"{\"jobs\": [{\"job_id\": 5, \"job_state\": \"COMPLETING\", \"start_time\": 10, "
         "\"end_time\": 18, \"preempt_time\": 0}]}", ""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct slurm_jobs jobs;
        assert_int_equal(slurm_text_jobs_json(cases[i].text, &arena, &jobs, NULL), 0);
        assert_string_equal(jobs.v[0].base, cases[i].base);
    }
}

static void test_squeue_text_refused(void **state)
{
    (void)state;
    struct slurm_jobs jobs;
    struct err err = {0};
    assert_int_equal(slurm_text_jobs("7" SEP "RUNNING" SEP "\n", &arena, &jobs, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "18 fields"));
    assert_int_equal(slurm_text_jobs("slurm_load_jobs error\n", &arena, &jobs, &err), ERR_INPUT);
}

static void test_squeue_json(void **state)
{
    (void)state;
    /* the shapes of 22.05 (plain numbers), 23.02 (no_val objects) and 23.11 (states as arrays, exit
     * codes as objects) */
    static const struct {
        const char *text, *state;
        int exit_status, restarts;
        double started_at;
    } cases[] = {
        {"{\"jobs\": [{\"job_id\": 5, \"job_state\": \"FAILED\", \"exit_code\": 768, "
         "\"restart_cnt\": 2, \"start_time\": 17, "
         "\"end_time\": 18, \"submit_time\": 16, \"comment\": \"c\", \"name\": \"n\", \"nice\": "
         "1000, \"node_count\": 2, \"cpus\": 8, "
         "\"requeue\": true, \"state_reason\": \"None\", \"new_field_of_another_year\": [1]}]}",
         "FAILED", 768, 2, 17},
        {"{\"jobs\": [{\"job_id\": 5, \"job_state\": \"COMPLETED\", \"exit_code\": {\"set\": true, "
         "\"infinite\": false, \"number\": 0}, "
         "\"restart_cnt\": 0, \"start_time\": {\"set\": true, \"infinite\": false, \"number\": "
         "17}, \"requeue\": true}]}", "COMPLETED", 0, 0, 17},
        {"{\"jobs\": [{\"job_id\": 5, \"job_state\": [\"RUNNING\", \"COMPLETING\"], \"exit_code\": "
         "{\"status\": [\"SIGNALED\"], "
         "\"return_code\": {\"set\": true, \"number\": 0}, \"signal\": {\"id\": {\"set\": true, "
         "\"number\": 9}, \"name\": \"SIGKILL\"}}, "
         "\"start_time\": {\"set\": false, \"number\": 0}, \"restart_cnt\": 1}]}",
         "COMPLETING", 9, 1, 0},
        {"{\"jobs\": [{\"job_id\": 5, \"job_state\": [\"FAILED\"], \"exit_code\": "
         "{\"return_code\": {\"set\": true, \"number\": 3}, "
         "\"signal\": {\"signal_id\": 0}}, \"restart_cnt\": 1}]}", "FAILED", 768, 1, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct slurm_jobs jobs;
        assert_int_equal(slurm_text_jobs_json(cases[i].text, &arena, &jobs, NULL), 0);
        assert_int_equal(jobs.n, 1);
        assert_string_equal(jobs.v[0].id, "5");
        assert_string_equal(jobs.v[0].state, cases[i].state);
        assert_int_equal(jobs.v[0].exit_status, cases[i].exit_status);
        assert_int_equal(jobs.v[0].restarts, cases[i].restarts);
        assert_true(jobs.v[0].started_at == cases[i].started_at);
    }
    struct slurm_jobs jobs;
    assert_int_equal(slurm_text_jobs_json("{\"jobs\": []}", &arena, &jobs, NULL), 0);
    assert_int_equal(jobs.n, 0);
    static const char *const bad[] = {"", "{}", "{\"jobs\": 5}", "{\"jobs\": [", "squeue: error"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(slurm_text_jobs_json(bad[i], &arena, &jobs, NULL), ERR_INPUT);
}

/* ---- stand-ins for Slurm's commands: scripts in a folder that is all of PATH but the system's
 * ---- */

static char fake[64];

static void fake_command(const char *name, const char *body)
{
    char path[128], text[4096];
    snprintf(path, sizeof path, "%s/%s", fake, name);
    snprintf(text, sizeof text, "#!/bin/sh\ncd '%s'\necho \"%s $*\" >> asked\n%s\n", fake, name,
             body);
    assert_int_equal(file_publish(path, text, strlen(text), NULL), 0);
    assert_int_equal(chmod(path, 0755), 0);
}

static int fake_setup(void **state)
{
    char path[256];
    snprintf(fake, sizeof fake, "/tmp/reel-fake.XXXXXX");
    if (!mkdtemp(fake))
        return -1;
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", fake);
    setenv("PATH", path, 1);
    setenv("REEL_SLURM_VIA", "commands", 1);
    setenv("REEL_SLURM_POLL_S", "1000", 1);
    fake_command("sinfo", "[ \"$1\" = --version ] && echo slurm 22.05.8 || echo 'low|8|gpu:8'");
    fake_command("scontrol", "[ \"$2\" = config ] && printf 'ClusterName = west\\nSLURM_VERSION = "
                             "22.05.8\\nKillWait = 30 sec\\nAccountingStorageType = "
                             "accounting_storage/slurmdbd\\n' || echo 'PartitionName=low "
                             "Default=YES MaxTime=UNLIMITED TotalNodes=4'");
    fake_command("sbatch", "echo 41");
    fake_command("squeue", "cat queue 2> /dev/null; exit 0");
    fake_command("sacct", "cat accounts 2> /dev/null; exit 0");
    return arena_setup(state);
}

static int fake_teardown(void **state)
{
    file_remove_tree(fake, NULL);
    return arena_teardown(state);
}

static struct sched *fake_open(void)
{
    struct sched *s = NULL;
    struct err err = {0};
    if (sched_open("slurm", fake, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static void fake_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fake, name);
    assert_int_equal(file_publish(path, text, strlen(text), NULL), 0);
}

static int fake_asked(const char *command)
{
    char path[128];
    struct str text = STR_INIT;
    int n = 0;
    snprintf(path, sizeof path, "%s/asked", fake);
    if (file_exists(path))
        file_read(path, 1 << 20, &text, NULL);
    for (const char *p = text.len ? text.p : ""; *p; p = strchr(p, '\n') + 1)
        n += strncmp(p, command, strlen(command)) == 0 && p[strlen(command)] == ' ';
    str_release(&text);
    return n;
}

#define TOKEN "00112233445566778899aabbccddeeff"

/* Truth order: the controller, then accounting, then nothing. */
static void test_forgotten(void **state)
{
    (void)state;
    static const char *const ids[] = {"12", NULL};
    struct sched_jobs jobs = {0};
    struct sched *s = fake_open();
    fake_file("accounts",
              "12|COMPLETED|0:0|2|16|1795247415|1795247417|1795247500|reel:" TOKEN "|n\n");
    assert_int_equal(sched_poll(s, &(struct sched_filter){.ids = ids}, &jobs, NULL), 0);
    assert_int_equal(jobs.n, 1);
    assert_int_equal(jobs.jobs[0].state, SCHED_DONE);
    assert_string_equal(jobs.jobs[0].token, TOKEN);
    for (int i = 0; i < 5; i++)
        assert_int_equal(sched_poll(s, &(struct sched_filter){.ids = ids}, &jobs, NULL), 0);
    assert_int_equal(fake_asked("sacct"), 1); /* asked as seldom as the controller */
    assert_int_equal(sched_poll(s, NULL, &jobs, NULL), 0);
    assert_int_equal(jobs.n, 0); /* only jobs that somebody asks for are recalled */
    sched_close(s);

    s = fake_open(); /* accounting is behind: a state that is no end tells nothing */
    fake_file("accounts", "12|RUNNING|0:0|2|16|1795247415|1795247417|Unknown|reel:" TOKEN "|n\n");
    assert_int_equal(sched_poll(s, &(struct sched_filter){.ids = ids}, &jobs, NULL), 0);
    assert_int_equal(jobs.n, 0);
    sched_jobs_release(&jobs);
    sched_close(s);
}

static int submit_after(const char *token, const char *after, char id[SCHED_ID_BYTES],
                        struct err *err)
{
    const char *argv[] = {"/bin/true", NULL}, *env[] = {"A=1", NULL};
    struct sched_spec spec = SCHED_SPEC_INIT;
    struct sched *s = fake_open();
    spec.token = token;
    spec.name = "n";
    spec.argv = argv;
    spec.env = env;
    spec.cwd = fake;
    spec.log_path = "/tmp/reel-fake.log";
    spec.after = after;
    int rc = sched_submit(s, &spec, id, err);
    sched_close(s);
    return rc;
}

/* A job gets what was submitted and how its ranks are to be started, and nothing of a job that the
 * submitter is in. */
static void test_environment(void **state)
{
    const char *argv[] = {"/bin/true", NULL};
    const char *env[] = {"A=1",
                         "SLURM_JOB_ID=7", "SLURM_PMIX_FENCE=tree",
                         "SLURM_PMIX_MAPPING_SERV=(vector)", "SLURM_MPI_TYPE=pmix", "PMIX_RANK=0",
                         "PMIX_MCA_gds=hash", "PMI_FD=3", "SBATCH_PARTITION=high",
                         NULL};
    struct sched_spec spec = SCHED_SPEC_INIT;
    char path[128], id[SCHED_ID_BYTES];
    struct sched *s = fake_open();
    struct str sent = STR_INIT;
    struct err err = {0};
    (void)state;
    fake_command("sbatch", "env | grep -e '^A=' -e SLURM_ -e PMI -e SBATCH | grep -v -e "
                           "SLURM_TIME_FORMAT -e SLURM_EXIT_ERROR | LC_ALL=C sort > sent; echo 41");
    spec.token = TOKEN, spec.name = "n", spec.argv = argv, spec.env = env, spec.cwd = fake,
    spec.log_path = "/tmp/reel-fake.log";
    assert_int_equal(sched_submit(s, &spec, id, &err), 0);
    snprintf(path, sizeof path, "%s/sent", fake);
    assert_int_equal(file_read(path, 1 << 20, &sent, &err), 0);
    assert_string_equal(sent.p, "A=1\nPMIX_MCA_gds=hash\nSLURM_PMIX_FENCE=tree\n");
    str_release(&sent);
    sched_close(s);
}

/* The controller knows the first job, then has forgotten it; what it does with a dependency on an
 * unknown id is its own affair. */
static void test_after(void **state)
{
    static const char other[] = "10112233445566778899aabbccddeeff",
                      third[] = "20112233445566778899aabbccddeeff";
    char id[SCHED_ID_BYTES];
    struct err err = {0};
    (void)state;
    assert_int_equal(submit_after(TOKEN, NULL, id, &err), 0);
    assert_string_equal(id, "41");
    fake_file("queue", LINE("41", "RUNNING", "None", "0", "0", "1", "1795247417", "1795250000",
                            "N/A", "reel:" TOKEN, "n"));
    fake_command("sbatch", "case $* in *--dependency=afterany:41*) echo 42;; *) echo 43;; esac");
    assert_int_equal(submit_after(other, "41", id, &err), 0);
    assert_string_equal(id, "42");
    fake_file("queue", "");
    assert_int_equal(submit_after(third, "41", id, &err), 0);
    assert_string_equal(id, "43");
    assert_int_equal(submit_after("30112233445566778899aabbccddeeff", "17", id, &err),
                     ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no job 17"));
    assert_int_equal(fake_asked("sbatch"), 3);
}

/* One answer serves all processes: many handles, many polls, one query; a controller in trouble is
 * not asked more often either. */
static void test_shared_answer(void **state)
{
    (void)state;
    struct sched_jobs jobs = {0};
    struct err err = {0};
    fake_file("queue", LINE("7", "RUNNING", "None", "0", "0", "1", "1795247417", "1795250000",
                            "N/A", "reel:" TOKEN, "n"));
    for (int i = 0; i < 20; i++) {
        struct sched *s = fake_open();
        for (int k = 0; k < 5; k++)
            assert_int_equal(sched_poll(s, NULL, &jobs, NULL), 0);
        assert_int_equal(jobs.n, 1);
        sched_close(s);
    }
    assert_int_equal(fake_asked("squeue"), 1);
    char dir[128];
    snprintf(dir, sizeof dir, "%s/sched", fake);
    file_remove_tree(dir, NULL);
    fake_command("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller "
                           "(connect failure)' >&2; exit 1");
    for (int i = 0; i < 5; i++) {
        struct sched *s = fake_open();
        assert_int_equal(sched_poll(s, NULL, &jobs, &err), ERR_TEMP);
        assert_non_null(strstr(err.text, "Unable to contact"));
        sched_close(s);
    }
    assert_int_equal(fake_asked("squeue"), 2);
    sched_jobs_release(&jobs);
}

/* A folder that nobody may write in, or that has no room: there is an answer all the same, and one
 * question a process. */
static void test_answer_unshared(void **state)
{
    (void)state;
    struct sched_jobs jobs = {0};
    struct err err = {0};
    char dir[128];
    fake_file("queue", LINE("7", "RUNNING", "None", "0", "0", "1", "1795247417", "1795250000",
                            "N/A", "reel:" TOKEN, "n"));
    snprintf(dir, sizeof dir, "%s/sched", fake);
    assert_int_equal(file_mkdirs(dir, NULL), 0);
    snprintf(dir, sizeof dir, "%s/sched/slurm", fake);
    assert_int_equal(symlink("/sys", dir), 0);
    struct sched *s = fake_open();
    for (int i = 0; i < 5; i++) {
        if (sched_poll(s, NULL, &jobs, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(jobs.n, 1);
    }
    sched_close(s);
    assert_int_equal(fake_asked("squeue"), 1);
    sched_jobs_release(&jobs);
}

static void test_several_clusters(void **state)
{
    (void)state;
    struct sched *s = NULL;
    struct err err = {0};
    setenv("SLURM_CLUSTERS", "east,west", 1);
    assert_int_equal(sched_open("slurm", fake, &s, &err), ERR_ENV);
    assert_non_null(strstr(err.text, "SLURM_CLUSTERS"));
    unsetenv("SLURM_CLUSTERS");
}

/* A node of the job that is down since then is lost with it, and so is one that has been booted
 * since; what slurmd's own start tells is nothing. */
static void test_lost_node(void **state)
{
    static const struct {
        const char *of_n1;
        double booted_after, down_by;
        const char *node;
    } table[] = {
        {"State=DOWN* BootTime=500 Reason=Not responding [slurm@1000]", 900, 1030, "n1"},
        {"State=DOWN* BootTime=500 Reason=Not responding [slurm@5000]", 900, 1030, ""},
        {"State=IDLE BootTime=500 SlurmdStartTime=1100", 900, 1030, ""},
        {"State=IDLE BootTime=1100 SlurmdStartTime=1110", 900, 1030, "n1"},
        {"State=IDLE BootTime=9000 SlurmdStartTime=9010", 900, 1030, ""},
        {"State=DRAIN BootTime=1100 Reason=fan [root@1200]", 900, 1030, "n1"},
        {"State=IDLE BootTime=1100", INFINITY, INFINITY, ""},
        {"State=IDLE BootTime=None", 900, 1030, ""},
    };
    char node[SCHED_ID_BYTES], body[400];
    struct err err = {0};
    (void)state;
    struct sched *s = fake_open();
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct sched_loss loss = {table[i].booted_after, table[i].down_by};
        snprintf(body, sizeof body,
                 "[ \"$2\" != node ] || { echo 'NodeName=n0 State=IDLE BootTime=500'; echo "
                 "'NodeName=n1 %s'; "
                 "echo 'NodeName=n7 State=DOWN BootTime=1100 Reason=gone [root@1000]'; }",
                 table[i].of_n1);
        fake_command("scontrol", body);
        if (sched_lost_node(s, "n[0-1]", &loss, node, &err) < 0)
            fail_msg("%s", err.text);
        if (strcmp(node, table[i].node) != 0)
            fail_msg("case %zu: '%s'", i, node);
    }
    sched_close(s);
}

/* ---- the site ---- */

static void test_site(void **state)
{
    (void)state;
    static const char config[] =
        "Configuration data as of 2026-11-21T07:50:15\nAuthInfo                = "
        "socket=/m,cred_expire=5\nClusterName             = west\n"
        "JobRequeue              = 1\nKillWait                = 30 sec\nMinJobAge               = "
        "300 sec\n"
        "SlurmdTimeout           = 250 sec\nPreemptMode             = REQUEUE\nPreemptType         "
        "    = preempt/partition_prio\n"
        "TaskPlugin              = task/affinity,task/cgroup\n"
        "ProctrackType           = proctrack/cgroup\nSLURM_VERSION           = 22.05.8\n"
        "SlurmctldParameters     = preempt_send_user_signal\nTopologyPlugin          = "
        "topology/tree\n"
        "AccountingStorageType   = accounting_storage/none\n";
    static const char partitions[] =
        "PartitionName=low AllowGroups=ALL Default=YES QoS=N/A GraceTime=8 MaxTime=1-00:00:00 "
        "PreemptMode=REQUEUE TotalCPUs=32 TotalNodes=4\n"
        "PartitionName=high Default=NO GraceTime=0 MaxTime=UNLIMITED PreemptMode=OFF TotalCPUs=32 "
        "TotalNodes=4\n"
        "PartitionName=odd Default=NO GraceTime=0 MaxTime=30 PreemptMode=GANG,SUSPEND "
        "TotalNodes=9\n";
    static const char nodes[] = "low|8|gpu:8\nhigh|8|(null)\nodd|16+|gpu:a100:4(S:0-1),nic:2\nodd|"
                                "8|gpu:a100:8\nlowest|99|gpu:99\n";
    struct slurm_site s;
    assert_int_equal(slurm_text_site(config, partitions, nodes, &arena, &s, NULL), 0);
    assert_string_equal(s.site.name, "west");
    assert_string_equal(s.version, "22.05.8");
    assert_string_equal(s.proctrack, "proctrack/cgroup");
    assert_string_equal(s.task, "task/affinity,task/cgroup");
    assert_true(s.site.kill_wait_s == 30 && s.site.requeue_delay_s == 5 && s.site.user_signal &&
                s.job_requeue && s.min_job_age_s == 300);
    assert_true(s.site.node_timeout_s == 250);
    assert_int_equal(s.site.n_partitions, 3);
    const struct sched_partition *p = s.site.partitions;
    assert_true(p[0].is_default && p[0].preempt == SCHED_PREEMPT_REQUEUE && p[0].grace_s == 8 &&
                p[0].max_time_s == 86400);
    assert_true(p[0].nodes == 4 && p[0].cores_per_node == 8 && p[0].gpus_per_node == 8);
    assert_true(!p[1].is_default && p[1].preempt == SCHED_PREEMPT_OFF && p[1].max_time_s == 0 &&
                p[1].gpus_per_node == 0);
    assert_true(p[2].preempt == SCHED_PREEMPT_SUSPEND && p[2].max_time_s == 1800 &&
                p[2].cores_per_node == 16 && p[2].gpus_per_node == 8);
    assert_int_equal(
        slurm_text_site("ClusterName = west\nSLURM_VERSION = 20.11.9\n", "", "", &arena, &s, NULL),
        0);
    /* what is not said is the default */
    assert_true(s.site.requeue_delay_s == 120 && !s.site.user_signal && s.site.n_partitions == 0);
    assert_int_equal(slurm_text_site("garbage", "", "", &arena, &s, NULL), ERR_INPUT);
}

static void test_durations_and_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double s;
    } times[] = {{"UNLIMITED", 0},      {"INFINITE", 0},  {"", 0},
                 {"30", 1800},          {"30:15", 1815},  {"02:03:04", 7384},
                 {"1-02:03:04", 93784}, {"7-00", 604800}, {"2-12:30", 217800}};
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        if (slurm_text_duration(times[i].text) != times[i].s)
            fail_msg("'%s': %g, expected %g", times[i].text, slurm_text_duration(times[i].text),
                     times[i].s);
    static const struct {
        const char *text;
        int n;
    } gres[] = {{"(null)", 0},
                {"", 0},
                {"gpu:8", 8},
                {"gpu", 1},
                {"gpu:a100:4", 4},
                {"gpu:a100:4(S:0-1)", 4},
                {"gpu:h100_80gb:8,nic:2", 8},
                {"nic:2,gpu:3", 3},
                {"gpu:v100:2,gpu:a100:6", 8},
                {"mygpu:7", 0},
                {"gpu:tesla", 1}};
    for (size_t i = 0; i < ARRAY_LEN(gres); i++)
        if (slurm_text_gpus(gres[i].text) != gres[i].n)
            fail_msg("'%s': %d, expected %d", gres[i].text, slurm_text_gpus(gres[i].text),
                     gres[i].n);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, arena_setup, arena_teardown)
    const struct CMUnitTest tests[] = {
        TEST(states), TEST(token), TEST(squeue_text), TEST(squeue_text_refused), TEST(ending),
        TEST(ending_by_base), TEST(ending_json), TEST(squeue_json), TEST(site),
        TEST(durations_and_gpus),
#define FAKED(name) cmocka_unit_test_setup_teardown(test_##name, fake_setup, fake_teardown)
        FAKED(forgotten), FAKED(environment), FAKED(after), FAKED(shared_answer),
        FAKED(answer_unshared), FAKED(several_clusters), FAKED(lost_node),
    };
    return cmocka_run_group_tests_name("sched slurm", tests, NULL, NULL);
}
