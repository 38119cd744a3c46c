/* The local scheduler's own promises: decisions, settlement, loss of submitters, keepers and the
 * machine, damaged files. */
#include "tests/lib/sched_helpers.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include "base/philox.h"
#include "launcher/sched/local_priv.h"

static char dir[LIMIT_PATH_BYTES], home[LIMIT_PATH_BYTES];
static struct local_spool spool;

/* ---- decisions ---- */

struct decide_job {
    int state, stop;
    bool starting;
    int64_t priority, cores;
    double started_at;
    char expected; /* 's' start, 'p' preempt, '.' nothing */
    int64_t after;
};
struct decide_case {
    const char *name;
    int64_t cores;
    struct decide_job jobs[6];
};
#define P SCHED_PENDING
#define Q SCHED_REQUEUED
#define R SCHED_RUNNING
#define S SCHED_STOPPING
static const struct decide_case decide_cases[] = {
    {"empty machine", 4, {{P, 0, false, 0, 4, 0, 's'}}},
    {"two fit", 4,
     {{P, 0, false, 0, 2, 0, 's'}, {P, 0, false, 0, 2, 0, 's'}, {P, 0, false, 0, 1, 0, '.'}}},
    {"nobody overtakes", 4,
     {{R, 0, false, 0, 2, 1, '.'}, {P, 0, false, 0, 4, 0, '.'}, {P, 0, false, 0, 1, 0, '.'}}},
    {"priority before age", 4, {{P, 0, false, 0, 4, 0, '.'}, {P, 0, false, 3, 4, 0, 's'}}},
    {"requeued keeps its place", 4, {{Q, 0, false, 0, 4, 0, 's'}, {P, 0, false, 0, 4, 0, '.'}}},
    {"equal priority waits", 4, {{R, 0, false, 5, 4, 1, '.'}, {P, 0, false, 5, 4, 0, '.'}}},
    {"higher priority preempts", 4, {{R, 0, false, 0, 4, 1, 'p'}, {P, 0, false, 1, 4, 0, '.'}}},
    {"only as many as needed", 4,
     {{R, 0, false, 0, 2, 1, '.'}, {R, 0, false, 0, 2, 2, 'p'}, {P, 0, false, 1, 2, 0, '.'}}},
    {"least urgent first", 4,
     {{R, 0, false, 2, 2, 9, '.'}, {R, 0, false, 1, 2, 1, 'p'}, {P, 0, false, 3, 1, 0, '.'}}},
    {"nobody when it would not suffice", 4,
     {{R, 0, false, 9, 3, 1, '.'}, {R, 0, false, 0, 1, 1, '.'}, {P, 0, false, 1, 4, 0, '.'}}},
    {"cores already coming free", 4,
     {{S, STOP_CANCEL, false, 0, 2, 1, '.'}, {R, 0, false, 0, 2, 1, '.'},
      {P, 0, false, 1, 2, 0, '.'}}},
    {"part coming free", 4,
     {{S, STOP_PREEMPT, false, 0, 2, 1, '.'}, {R, 0, false, 0, 2, 1, 'p'},
      {P, 0, false, 1, 4, 0, '.'}}},
    {"a starting job holds its cores", 4,
     {{P, 0, true, 0, 3, 0, '.'}, {P, 0, false, 0, 2, 0, '.'}}},
    {"a starting job is not asked yet", 4,
     {{P, 0, true, 0, 4, 0, '.'}, {P, 0, false, 9, 4, 0, '.'}}},
    {"too large holds nobody up", 4, {{P, 0, false, 9, 8, 0, '.'}, {P, 0, false, 0, 4, 0, 's'}}},
    {"ended and unreadable hold nothing", 4,
     {{SCHED_DONE, 0, false, 0, 4, 1, '.'}, {SCHED_UNKNOWN, 0, false, 0, 4, 0, '.'},
      {P, 0, false, 0, 4, 0, 's'}}},
    {"after a live one: not in the queue", 4,
     {{R, 0, false, 0, 2, 1, '.'}, {P, 0, false, 9, 4, 0, '.', 1}, {P, 0, false, 0, 2, 0, 's'}}},
    {"after one that runs again", 4, {{Q, 0, false, 0, 4, 1, 's'}, {P, 0, false, 9, 4, 0, '.', 1}}},
    {"after one that has ended", 4,
     {{SCHED_NODE_FAIL, 0, false, 0, 2, 1, '.'}, {P, 0, false, 0, 4, 0, 's', 1}}},
    {"after one that cannot be read", 4,
     {{SCHED_UNKNOWN, 0, false, 0, 1, 0, '.'}, {P, 0, false, 0, 1, 0, '.', 1}}},
};
#undef P
#undef Q
#undef R
#undef S

static void test_decide(void **state)
{
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(decide_cases); c++) {
        struct local_rec recs[6];
        struct local_decision d[6];
        size_t n = 0;
        for (; n < 6 && decide_cases[c].jobs[n].expected; n++) {
            const struct decide_job *j = &decide_cases[c].jobs[n];
            recs[n] = (struct local_rec){.id = (int64_t)n + 1, .state = j->state, .stop = j->stop,
                                         .cores = j->cores, .priority = j->priority,
                                         .started_at = j->started_at, .starting_at = j->starting,
                                         .after = j->after};
        }
        const struct local_recs all = {.v = recs, .n = n};
        local_decide(&all, decide_cases[c].cores, d);
        for (size_t i = 0; i < n; i++) {
            char got = d[i].act == ACT_START ? 's' : d[i].act == ACT_PREEMPT ? 'p' : '.';
            if (got != decide_cases[c].jobs[i].expected)
                fail_msg("%s: job %zu: '%c', expected '%c'", decide_cases[c].name, i + 1, got,
                         decide_cases[c].jobs[i].expected);
        }
    }
}

static void test_settle(void **state)
{
    static const struct {
        int stop;
        bool requeue, lost;
        int64_t code;
        enum sched_state expected;
    } rows[] = {
        {STOP_NONE, true, false, 0, SCHED_DONE},
        {STOP_NONE, true, false, 1, SCHED_FAILED},
        {STOP_NONE, true, true, 0, SCHED_REQUEUED},
        {STOP_NONE, false, true, 0, SCHED_NODE_FAIL},
        {STOP_CANCEL, true, false, 0, SCHED_CANCELLED},
        {STOP_CANCEL, true, true, 0, SCHED_CANCELLED},
        {STOP_REQUEUE, true, false, 0, SCHED_REQUEUED},
        {STOP_REQUEUE, true, true, 0, SCHED_REQUEUED},
        {STOP_PREEMPT, true, false, 0, SCHED_REQUEUED},
        {STOP_PREEMPT, false, false, 0, SCHED_CANCELLED},
        {STOP_PREEMPT, false, true, 0, SCHED_CANCELLED},
        {STOP_TIME_LIMIT, true, false, 0, SCHED_TIME_LIMIT},
        {STOP_TIME_LIMIT, true, true, 0, SCHED_TIME_LIMIT},
        {STOP_SHUTDOWN, true, false, 0, SCHED_REQUEUED},
        {STOP_SHUTDOWN, false, false, 1, SCHED_NODE_FAIL},
    };
    struct arena texts = {0};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct local_rec r = {.state = SCHED_RUNNING, .stop = rows[i].stop,
                              .requeue = rows[i].requeue, .reason = "", .boot = "b",
                              .keeper = {5, 5}, .exit_code = rows[i].code};
        local_rec_settle(&r, rows[i].lost, 7, &texts);
        if (r.state != (int)rows[i].expected)
            fail_msg("row %zu: %s", i, sched_state_name((enum sched_state)r.state));
        assert_int_equal(r.restarts, rows[i].expected == SCHED_REQUEUED);
        assert_true(r.ended_at == 7 && r.stop == STOP_NONE && r.keeper.pid == 0 &&
                    r.boot[0] == '\0');
    }
    arena_release(&texts);
}

/* ---- helpers on records ---- */

static struct local_rec record(const struct conform_job *j)
{
    struct local_rec r = {0};
    struct err err = {0};
    if (local_rec_load(&spool, atoll(j->id), &spool.texts, &r, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

/* A record as a process that died in the middle would have left it; returns its job. */
static struct conform_job planted(int64_t id, const char *name, const char *script,
                                  struct local_rec r)
{
    struct conform_job j = {.name = name, .script = script};
    const char *argv[] = {"/bin/sh", "-c", script, name, conform.dir, NULL};
    char log[64];
    struct sched_spec spec = SCHED_SPEC_INIT;
    snprintf(log, sizeof log, "%s.log", name);
    snprintf(j.id, sizeof j.id, "%lld", (long long)id);
    conform_token(j.token);
    spec.argv = argv;
    spec.env = conform_env;
    spec.cwd = conform.dir;
    spec.log_path = conform_path(log);
    r.id = id;
    r.token = j.token;
    r.name = name;
    r.reason = "";
    r.boot = r.boot ? r.boot : "";
    r.cores = 1;
    r.exit_code = -1;
    assert_int_equal(file_mkdirs(spool.dir, NULL), 0);
    assert_int_equal(local_program_save(&spool, id, &spec, NULL), 0);
    assert_int_equal(local_rec_save(&spool, &r, NULL), 0);
    return j;
}

static void assert_job(const struct conform_job *j, enum sched_state state, int restarts,
                       const char *reason)
{
    struct sched_jobs jobs = {0};
    const struct sched_job *job = conform_look(j->id, &jobs);
    assert_non_null(job);
    if (job->state != state || job->restarts != restarts || !strstr(job->reason, reason))
        fail_msg("%s: %s, %d restarts, '%s'; expected %s, %d, '%s'", j->name,
                 sched_state_name(job->state), job->restarts, job->reason, sched_state_name(state),
                 restarts, reason);
    sched_jobs_release(&jobs);
}

/* ---- lost keepers ---- */

#define RUN_TWICE "echo run $REEL_JOB_RESTART; [ $REEL_JOB_RESTART = 1 ] && exit 0;"
#define ESCAPE "setsid sh -c 'trap \"\" TERM HUP; echo escaped; while :; do sleep 0.2; done' & "

static void test_killed_keepers(void **state)
{
    static const char *const script = RUN_TWICE ESCAPE CONFORM_UP;
    struct conform_job
        again = {.name = "again", .script = script, .spec = {.requeue = true}},
        gone = {.name = "gone", .script = script},
        both = {.name = "both", .script = script, .spec = {.requeue = true}},
        carries = {.name = "carries",
                   .script = "echo up; until [ -e \"$1/carry\" ]; do sleep 0.02; done; exit 4"},
        stops = {.name = "stops", .script = RUN_TWICE "trap 'echo asked; exit 1' TERM;" CONFORM_UP,
                 .spec = {.requeue = true}};
    struct conform_job *all[] = {&again, &gone, &both, &carries, &stops};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        conform_submit(all[i], false);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char log[64];
        snprintf(log, sizeof log, "%s.log", all[i]->name);
        conform_wait_text(log, "up\n");
        if (i < 3)
            conform_wait_text(log, "escaped\n");
        conform_wait(all[i], 1u << SCHED_RUNNING);
    }
    assert_true(kill((pid_t)record(&again).keeper.pid, SIGKILL) == 0);
    assert_true(kill((pid_t)record(&gone).keeper.pid, SIGKILL) == 0);
    assert_true(kill((pid_t)record(&carries).guard.pid, SIGKILL) == 0);
    assert_true(kill((pid_t)record(&stops).keeper.pid, SIGTERM) == 0);
    struct local_rec r = record(&both);
    kill((pid_t)r.guard.pid, SIGKILL);
    kill((pid_t)r.keeper.pid, SIGKILL);
    conform_touch("carry");
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        conform_wait(all[i], conform_ended_set());
        assert_int_equal(conform_marked(all[i]->token), 0);
    }
    assert_job(&again, SCHED_DONE, 1, "");
    assert_job(&gone, SCHED_NODE_FAIL, 0, "keeper");
    assert_job(&both, SCHED_DONE, 1, "");
    assert_job(&carries, SCHED_FAILED, 0, "exit code 4");
    assert_job(&stops, SCHED_DONE, 1, "");
    assert_int_equal(conform_count(conform_read("stops.log"), "asked\n"), 1);
}

static void test_restarted_machine(void **state)
{
    (void)state;
    /* alive: only the boot id tells that it is another process */
    struct proc_id me = proc_identify(getpid());
    struct local_rec before = {.state = SCHED_RUNNING, .boot = "another-boot", .guard = me,
                               .keeper = me, .batch = me, .started_at = 5, .requeue = true};
    struct local_rec never = before;
    never.requeue = false;
    struct local_rec called_off = before;
    called_off.state = SCHED_STOPPING;
    called_off.stop = STOP_CANCEL;
    struct local_rec unclaimed = {.state = SCHED_PENDING, .starting_at = 5};
    struct local_rec hopeless = {.state = SCHED_PENDING, .starting_at = 5, .starts = 4};
    struct conform_job a = planted(1001, "reboot", "echo run $REEL_JOB_RESTART", before),
                       b = planted(1002, "rebootnever", "exit 0", never),
                       c = planted(1003, "rebootcancel", "exit 0", called_off),
                       d = planted(1004, "unclaimed", "echo ran", unclaimed),
                       e = planted(1005, "hopeless", "exit 0", hopeless);
    conform_wait(&a, conform_ended_set());
    conform_wait(&d, conform_ended_set());
    assert_job(&a, SCHED_DONE, 1, "");
    assert_job(&b, SCHED_NODE_FAIL, 0, "restarted");
    assert_job(&c, SCHED_CANCELLED, 0, "");
    assert_job(&d, SCHED_DONE, 0, "");
    assert_job(&e, SCHED_FAILED, 0, "keeper.log");
    assert_string_equal(conform_read("reboot.log"), "run 1\n");
    assert_string_equal(conform_read("unclaimed.log"), "ran\n");
}

static enum sched_end ending_of(const struct conform_job *j)
{
    struct sched_ending ending = {.why = SCHED_END_UNKNOWN};
    sched_ending(conform.s, j->id, &ending, NULL);
    return ending.why;
}

/* A requeued job whose keeper has started the batch process, and not yet recorded that: the batch
 * process that asks is not told of the requeue before. */
static void test_begins_again(void **state)
{
    struct proc_id me = proc_identify(getpid());
    struct local_rec waits = {.state = SCHED_REQUEUED, .restarts = 1, .requeue = true,
                              .starting_at = clock_wall_s()};
    enum sched_end told[3];
    (void)state;
    struct conform_job j = planted(1006, "beginsagain", "exit 0", waits);
    told[0] = ending_of(&j);
    struct local_rec r = record(&j);
    r.boot = clock_boot_id();
    r.guard = r.keeper = me;
    assert_int_equal(local_rec_save(&spool, &r, NULL), 0);
    told[1] = ending_of(&j);
    r.stop = STOP_REQUEUE;
    assert_int_equal(local_rec_save(&spool, &r, NULL), 0);
    told[2] = ending_of(&j);
    local_rec_settle(&r, true, clock_wall_s(), &spool.texts);
    r.state = SCHED_CANCELLED;
    assert_int_equal(local_rec_save(&spool, &r, NULL), 0);
    assert_int_equal(told[0], SCHED_END_REQUEUED);
    assert_int_equal(told[1], SCHED_END_NONE);
    assert_int_equal(told[2], SCHED_END_REQUEUED);
}

/* ---- killed submitters ---- */

/* Submit in a child that is killed after `after_us`, or right after it returned (negative). */
static void submit_killed(struct conform_job *j, long after_us)
{
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct sched *s = NULL;
        setpgid(0, 0);
        byte = 'r';
        if (write(fds[1], &byte, 1) == 1 && sched_open("local", home, &s, NULL) == 0)
            conform.s = s;
        conform_submit_try(j, false, NULL);
        if (write(fds[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(fds[0], &byte, 1), 1);
    if (after_us < 0)
        assert_int_equal(read(fds[0], &byte, 1), 1);
    else
        clock_sleep_s(1e-6 * (double)after_us);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(fds[0]);
    close(fds[1]);
}

/* REEL_TEST_KILLS: how many. Zero wrong in n runs bounds the rate at about 3/n. */
static void test_killed_submitters(void **state)
{
    const char *wanted = getenv("REEL_TEST_KILLS");
    int n = wanted ? atoi(wanted) : 24;
    struct conform_job *jobs = calloc((size_t)n, sizeof *jobs);
    struct sched_jobs seen = {0};
    (void)state;
    assert_non_null(jobs);
    const char *given = getenv("SEED");
    unsigned long seed = given ? strtoul(given, NULL, 10) : (unsigned long)getpid();
    print_message("# moments of the kills: SEED=%lu repeats them\n", seed);
    for (int i = 0; i < n; i++) {
        jobs[i] = (struct conform_job){.name = "killed",
                                       .script = "echo ran $REEL_RUN_TOKEN >> \"$1/killed\""};
        conform_token(jobs[i].token);
        submit_killed(
            &jobs[i],
            i % 4 == 0 ? -1 : (long)(6000 * philox_uniform_at(seed, PHILOX_TEST, 1, (uint64_t)i)));
    }
    assert_int_equal(sched_poll(conform.s, NULL, &seen, NULL), 0);
    for (int i = 0; i < n; i++) {
        int there = 0;
        for (size_t k = 0; k < seen.n; k++)
            there += strcmp(seen.jobs[k].token, jobs[i].token) == 0;
        assert_true(there == 1 || (there == 0 && i % 4 != 0)); /* acknowledged: there */
    }
    sched_jobs_release(&seen);
    for (int i = 0; i < n; i++)
        conform_submit(&jobs[i], false);
    for (int i = 0; i < n; i++)
        conform_wait(&jobs[i], 1u << SCHED_DONE);
    struct str text = STR_INIT;
    assert_int_equal(file_read(conform_path("killed"), 1 << 20, &text, NULL), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(conform_count(text.p, jobs[i].token), 1);
    assert_int_equal(conform_count(text.p, "\n"), n);
    str_release(&text);
    free(jobs);
}

/* ---- jobs submitted by jobs ---- */

static int submit_from_inside(char **argv)
{
    struct err err = {0};
    conform = (struct conform){.kind = "local", .home = argv[2], .dir = argv[3]};
    struct conform_job inner = {
        .name = "inner", .script = "echo inner $REEL_RUN_TOKEN; until [ -e \"$1/inner-on\" ]; do "
                  "sleep 0.02; done"};
    memcpy(inner.token, argv[4], ID_TEXT_BYTES);
    int rc = sched_open("local", argv[2], &conform.s, &err);
    if (rc == 0)
        rc = conform_submit_try(&inner, false, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.text);
    sched_close(conform.s);
    return rc < 0;
}

/* The outer job's keeper kills what the outer job left, and the inner job is not that. */
static void test_job_outlives_submitting_job(void **state)
{
    char self[LIMIT_PATH_BYTES] = "", script[3 * LIMIT_PATH_BYTES];
    struct conform_job outer = {.name = "outer"}, inner = {.name = "inner"};
    struct sched_jobs jobs = {0};
    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    conform_token(inner.token);
    snprintf(script, sizeof script, "'%s' submit '%s' \"$1\" %s", self, home, inner.token);
    outer.script = script;
    conform_submit(&outer, false);
    conform_wait(&outer, conform_ended_set());
    assert_job(&outer, SCHED_DONE, 0, "");
    assert_int_equal(sched_poll(conform.s, NULL, &jobs, NULL), 0);
    const struct sched_job *job = job_of_token(&jobs, inner.token);
    assert_non_null(job);
    snprintf(inner.id, sizeof inner.id, "%s", job->id);
    sched_jobs_release(&jobs);
    conform_wait_text("inner.log", inner.token); /* its own token, not the outer job's */
    conform_touch("inner-on");
    conform_wait(&inner, conform_ended_set());
    assert_job(&inner, SCHED_DONE, 0, "");
}

/* ---- what cannot be started, read or written ---- */

static void test_cannot_start(void **state)
{
    static const char *const missing[] = {"/no/such/program", NULL};
    char token[3][ID_TEXT_BYTES], file[LIMIT_PATH_BYTES];
    struct conform_job j[3] = {{.name = "program"}, {.name = "folder"}, {.name = "log"}};
    static const char *const good[] = {"/bin/true", NULL};
    (void)state;
    conform_touch("plain-file");
    snprintf(file, sizeof file, "%.4000s/plain-file/log", dir);
    for (int i = 0; i < 3; i++) {
        struct sched_spec spec = SCHED_SPEC_INIT;
        spec.token = conform_token(token[i]);
        spec.name = j[i].name;
        spec.argv = i == 0 ? missing : good;
        spec.env = conform_env;
        spec.cwd = i == 1 ? "/no/such/folder" : dir;
        spec.log_path = i == 2 ? file : conform_path("start.log");
        spec.cores_per_node = 1;
        spec.requeue = true;
        assert_int_equal(sched_submit(conform.s, &spec, j[i].id, NULL), 0);
    }
    static const char *const words[] = {"/no/such/program", "/no/such/folder", "plain-file"};
    for (int i = 0; i < 3; i++) {
        conform_wait(&j[i], conform_ended_set());
        assert_job(&j[i], SCHED_FAILED, 0, words[i]);
    }
}

/* A damaged record is one job nobody knows about, a refusal to submit what may be that job, and
 * nothing else. */
static void test_damaged_record(void **state)
{
    struct conform_job other = {.name = "other",
                                .script = "until [ -e \"$1/other-on\" ]; do sleep 0.02; done"},
                       more = other;
    struct err err = {0};
    char path[LIMIT_PATH_BYTES];
    (void)state;
    conform_submit(&other, false);
    assert_int_equal(local_spool_path(&spool, "5000.job", path, NULL), 0);
    /* not published: the other job's keeper removes temporary files that are not the lock
     * owner's */
    FILE *f = fopen(path, "w");
    assert_true(f && fputs("{\"schema\": \"reel.sched-jo", f) >= 0 && fclose(f) == 0);
    struct conform_job damaged = {.name = "damaged", .id = "5000"};
    assert_job(&damaged, SCHED_UNKNOWN, 0, "5000.job");
    assert_int_equal(conform_submit_try(&more, false, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "5000.job"));
    char id[SCHED_ID_BYTES];
    memcpy(id, other.id, sizeof id);
    conform_submit(&other, false); /* known: no doubt about this one */
    assert_string_equal(other.id, id);
    conform_touch("other-on");
    conform_wait(&other, conform_ended_set());
    assert_job(&other, SCHED_DONE, 0, "");
    assert_int_equal(unlink(path), 0);
}

/* No byte can be written: a sentence, no job; afterwards the same token works. */
static void test_full_disk(void **state)
{
    struct conform_job j = {.name = "full", .script = "echo ran"};
    struct rlimit before, none;
    struct err err = {0};
    struct sched_jobs jobs = {0};
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int rc = conform_submit_try(&j, false, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, ERR_IO);
    assert_int_equal(sched_poll(conform.s, NULL, &jobs, NULL), 0);
    assert_null(job_of_token(&jobs, j.token));
    sched_jobs_release(&jobs);
    conform_submit(&j, false);
    conform_wait(&j, 1u << SCHED_DONE);
}

static void test_settings(void **state)
{
    static const struct {
        const char *name, *value;
    } rows[] = {{"REEL_LOCAL_CORES", "0"},        {"REEL_LOCAL_CORES", "two"},
                {"REEL_LOCAL_CORES", "99999999"}, {"REEL_LOCAL_GRACE", "-1"},
                {"REEL_LOCAL_GRACE", "soon"},     {"REEL_LOCAL_KILL_WAIT", "1e9"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *before = strdup(getenv(rows[i].name));
        struct sched *s = NULL;
        struct err err = {0};
        setenv(rows[i].name, rows[i].value, 1);
        if (sched_open("local", home, &s, &err) != ERR_INPUT || !strstr(err.text, rows[i].name))
            fail_msg("%s=%s: '%s'", rows[i].name, rows[i].value, err.text);
        setenv(rows[i].name, before, 1);
        free(before);
    }
    assert_int_equal(sched_open("pbs", home, &conform.s, NULL), ERR_INPUT);
    assert_int_equal(sched_open("local", "relative", &conform.s, NULL), ERR_INPUT);
}

/* Why a job waits stands in its reason, so that `status` can say it. */
static void test_waiting_reasons(void **state)
{
    struct conform_job holds = {.name = "holds", .script = CONFORM_UP,
                                .spec = {.cores_per_node = 7}},
                       wants = {.name = "wants", .script = "exit 0", .spec = {.cores_per_node = 4}},
                       behind = {.name = "behind", .script = "exit 0"};
    char word[96];
    (void)state;
    conform_submit(&holds, true);
    conform_wait(&holds, 1u << SCHED_RUNNING);
    conform_submit(&wants, false);
    conform_submit(&behind, false);
    assert_job(&wants, SCHED_PENDING, 0, "waits for 4 cores, 1 are free");
    snprintf(word, sizeof word, "waits behind job %s", wants.id);
    assert_job(&behind, SCHED_PENDING, 0, word);
}

/* ---- a scratch machine of eight cores ---- */

static int setup(void **state)
{
    char path[LIMIT_PATH_BYTES];
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(dir, sizeof dir, "%s/reel-local.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    snprintf(home, sizeof home, "%.3900s/home", dir);
    snprintf(path, sizeof path, "%.3900s/sched/local/%.100s", home, clock_host());
    setenv("REEL_LOCAL_CORES", "8", 1);
    setenv("REEL_LOCAL_GRACE", "5s", 1);
    setenv("REEL_LOCAL_KILL_WAIT", "5s", 1);
    conform = (struct conform){.kind = "local", .home = home, .dir = dir, .urgent_priority = 100,
                               .cores = 8,
                               .patience_s = 200};
    return local_spool_init(&spool, path, NULL) < 0 ||
                   sched_open("local", home, &conform.s, NULL) < 0
               ? -1
               : 0;
}

static int teardown(void **state)
{
    (void)state;
    sched_close(conform.s);
    local_spool_release(&spool);
    return conform_remove();
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "keeper") == 0)
        return sched_local_keeper(argv[2], argv[3], NULL) < 0;
    if (argc == 5 && strcmp(argv[1], "submit") == 0)
        return submit_from_inside(argv);
#define TEST(name) cmocka_unit_test_teardown(test_##name, conform_cancel_all)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decide), cmocka_unit_test(test_settle), TEST(killed_submitters),
        TEST(killed_keepers), TEST(restarted_machine), TEST(begins_again),
        TEST(job_outlives_submitting_job), TEST(cannot_start), TEST(damaged_record),
        TEST(full_disk), TEST(waiting_reasons), cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests_name("sched local", tests, setup, teardown);
}
