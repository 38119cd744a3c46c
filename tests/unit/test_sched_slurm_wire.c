/* What the scheduler "slurm" makes of Slurm's accounting and of the errors of its commands, and how
 * jobs come over the wire from reel-slurm. */
#include "tests/lib/sched_helpers.h"
#include "tests/lib/arena_fixture.h"

#include "base/str.h"
#include "launcher/sched/slurm_priv.h"
#include "launcher/sched/slurm_text.h"
#include "launcher/sched/slurm_wire.h"

/* ---- accounting ---- */

static void test_history(void **state)
{
    (void)state;
    struct slurm_jobs jobs;
    struct err err = {0};
    static const char text[] = "12|COMPLETED|0:0|2|16|1795247415|1795247417|1795247500|reel:"
                               "00112233445566778899aabbccddeeff|a|b\n"
                               "13|CANCELLED by 1000|0:15|1|8|1795247415|Unknown|1795247500||n\n"
                               "14|FAILED|3:0|1|8|1795247415|1795247417|1795247500||n\n";
    assert_int_equal(slurm_text_history(text, &arena, &jobs, NULL), 0);
    assert_int_equal(jobs.n, 3);
    assert_string_equal(jobs.v[0].name, "a|b");
    assert_string_equal(slurm_token(jobs.v[0].comment), "00112233445566778899aabbccddeeff");
    assert_true(jobs.v[0].nodes == 2 && jobs.v[0].cores == 16 && jobs.v[0].ended_at == 1795247500);
    assert_string_equal(jobs.v[1].state, "CANCELLED");
    assert_true(jobs.v[1].started_at == 0 && jobs.v[1].exit_status == 15);
    assert_int_equal(jobs.v[2].exit_status, 768);
    assert_int_equal(slurm_text_history("", &arena, &jobs, NULL), 0);
    assert_int_equal(jobs.n, 0);
    assert_int_equal(slurm_text_history("12|COMPLETED|0:0\n", &arena, &jobs, &err), ERR_INPUT);
}

/* ---- array tasks ---- */

/* Checks how a job is named alone: a task of an array by the array and its number (23.02 and later
 * write no task as "set": false). */
static void test_handle_json(void **state)
{
    static const char text[] =
        "{\"jobs\": [{\"job_id\": 7, \"array_job_id\": {\"set\": true, \"number\": 7}, "
        "\"array_task_id\": {\"set\": true, \"number\": 0}}, "
        "{\"job_id\": 8, \"array_job_id\": {\"set\": true, \"number\": 0}, "
        "\"array_task_id\": {\"set\": false, \"number\": 0}}, "
        "{\"job_id\": 9, \"array_job_id\": {\"set\": true, \"number\": 7}, "
        "\"array_task_id\": {\"set\": false, \"number\": 0}}]}";
    static const char *const handles[] = {"7_0", "8", "9"};
    struct slurm_jobs jobs;
    (void)state;
    assert_int_equal(slurm_text_jobs_json(text, &arena, &jobs, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(handles); i++)
        assert_string_equal(jobs.v[i].handle, handles[i]);
    slurm_jobs_keep(&jobs, "8");
    assert_int_equal(jobs.n, 1);
    assert_string_equal(jobs.v[0].id, "8");
}

/* ---- errors ---- */

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *said, *sentence;
        int code;
    } cases[] = {
        {"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect "
         "failure)\n",
         "x: Batch job submission failed: Unable to contact slurm controller (connect failure)",
         ERR_TEMP},
        {"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
         NULL, ERR_TEMP},
        {"sbatch: error: Batch job submission failed: Slurm temporarily unable to accept job, "
         "sleeping and retrying\n", NULL, ERR_TEMP},
        {"sbatch: error: invalid partition specified: no\nsbatch: error: Batch job submission "
         "failed: Invalid partition name specified\n",
         "x: invalid partition specified: no", ERR_INPUT},
        {"sbatch: error: Batch job submission failed: Requested node configuration is not "
         "available\n", NULL, ERR_LIMIT},
        {"slurm_load_jobs error: Invalid job id specified\n", "x: Invalid job id specified",
         ERR_NOT_FOUND},
        {"scancel: error: Kill job error on job id 99999999: Invalid job id specified\n", NULL,
         ERR_NOT_FOUND},
        {"Job/step already completing or completed for job 3\n", NULL, ERR_STATE},
        {"sinfo: fatal: Unable to process configuration file\n", NULL, ERR_ENV},
        {"\n", "x: it failed and said nothing", ERR_TEMP},
        {"", NULL, ERR_TEMP},
        {"sbatch: error: Batch job submission failed: Broken pipe", NULL, ERR_TEMP},
        {"squeue: error: Transport endpoint is not connected", NULL, ERR_TEMP},
        {"slurm_load_jobs error: Connection reset by peer", NULL, ERR_TEMP},
        {"sbatch: error: Batch job submission failed: I/O error writing script/environment to file",
         NULL, ERR_TEMP},
        {"sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job "
         "submit limit, user's size)", NULL, ERR_LIMIT},
        {"sbatch: error: Batch job submission failed: Invalid account or account/partition "
         "combination specified", NULL, ERR_INPUT},
        {"something nobody has heard of", "x: something nobody has heard of", ERR_CHILD},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {0};
        int rc = slurm_text_error("x", cases[i].said, &err);
        if (rc != cases[i].code)
            fail_msg("'%s': %s, expected %s", cases[i].said, err_name(rc), err_name(cases[i].code));
        if (cases[i].sentence)
            assert_string_equal(err.text, cases[i].sentence);
    }
}

/* ---- the wire ---- */

static void test_wire(void **state)
{
    (void)state;
    struct str text = STR_INIT;
    struct json_out o;
    struct json_doc doc = {0};
    struct slurm_job got;
    const struct slurm_job j = {"12",    "12_3",  "RUNNING", "RUNNING", "r", "c", "n \"x\"",
                                3,       4,       32,        -1000,     768, true,
                                1e9 + 1, 1e9 + 2,   1e9 + 3,   0,     "low",
                                "/w"};
    json_out_init(&o, &text, 0);
    slurm_wire_job_write(&j, &o);
    assert_int_equal(json_parse(text.p, text.len, "wire", &doc, NULL), 0);
    assert_int_equal(slurm_wire_job_read(doc.root, &arena, &got, NULL), 0);
    assert_string_equal(got.handle, j.handle);
    assert_string_equal(got.name, j.name);
    assert_string_equal(got.partition, j.partition);
    assert_string_equal(got.cwd, j.cwd);
    assert_true(got.restarts == 3 && got.nodes == 4 && got.cores == 32 && got.nice == -1000 &&
                got.exit_status == 768 && got.requeue);
    assert_true(got.submitted_at == j.submitted_at && got.started_at == j.started_at &&
                got.ended_at == j.ended_at);
    json_release(&doc);
    str_release(&text);
    char every[256];
    for (int i = 1; i < 256; i++)
        every[i - 1] = (char)i;
    every[255] = '\0';
    slurm_wire_escape(every, &text);
    for (const char *p = text.p; *p; p++)
        assert_true(*p >= ' ' && *p < 0x7f);
    slurm_wire_unescape(text.p);
    assert_string_equal(text.p, every);
    str_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_history, arena_setup, arena_teardown),
        cmocka_unit_test_setup_teardown(test_handle_json, arena_setup, arena_teardown),
        cmocka_unit_test_setup_teardown(test_errors, arena_setup, arena_teardown),
        cmocka_unit_test_setup_teardown(test_wire, arena_setup, arena_teardown),
    };
    return cmocka_run_group_tests_name("sched slurm wire", tests, NULL, NULL);
}
