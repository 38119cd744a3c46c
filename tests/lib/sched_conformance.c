#include "tests/lib/sched_conformance.h"

/* ---- jobs that need nothing of each other ---- */

enum conform_act { ACT_WAIT, ACT_USR1, ACT_CANCEL, ACT_REQUEUE };
struct conform_case {
    const char *name, *script;
    enum conform_act act; /* done once "up" stands in the log */
    bool requeue, limited;
    int signal;
    enum sched_state state;
    int code, exit_signal, restarts;
    const char *log; /* stands in the log in the end */
    bool orphans;    /* needs a scheduler that finds processes which left the job */
};

static const struct conform_case conform_cases[] = {
    {"zero", "exit 0", .state = SCHED_DONE},
    /* These last longest, and so they begin first. */
    {"limit", "echo up; exec sleep 1000", .limited = true, .state = SCHED_TIME_LIMIT},
    {"early", "trap 'echo early; exit 9' USR1;" CONFORM_UP, .limited = true, .signal = SIGUSR1,
     .state = SCHED_FAILED, .code = 9, .log = "early\n"},
    {"three", "exit 3", .state = SCHED_FAILED, .code = 3},
    {"high", "exit 255", .state = SCHED_FAILED, .code = 255},
    {"killed", "kill -9 $$", .state = SCHED_FAILED, .code = -1, .exit_signal = SIGKILL},
    {"output", "echo to-out; echo to-err >&2", .state = SCHED_DONE, .log = "to-out\nto-err\n"},
    {"folder", "pwd", .state = SCHED_DONE},
    {"stdin", "cat; echo end", .state = SCHED_DONE, .log = "end\n"},
    {"append", "echo new", .state = SCHED_DONE, .log = "old\nnew\n"},
    {"environment", "/usr/bin/env -0 > \"$1/environment\"", .state = SCHED_DONE},
    {"signalled", "trap 'exit 7' USR1;" CONFORM_UP, .act = ACT_USR1, .state = SCHED_FAILED,
     .code = 7},
    {"cancelled", CONFORM_UP, .act = ACT_CANCEL, .requeue = true, .state = SCHED_CANCELLED},
    {"revived", "trap 'exec \"$1/program\" self-requeue' TERM;" CONFORM_UP, .act = ACT_CANCEL,
     .requeue = true, .state = SCHED_CANCELLED, .log = "is being cancelled"},
    {"deaf", "trap '' TERM;" CONFORM_UP, .act = ACT_CANCEL, .state = SCHED_CANCELLED},
    {"again", "echo run $REEL_JOB_RESTART; [ $REEL_JOB_RESTART = 1 ] && exit 0;" CONFORM_UP,
     .act = ACT_REQUEUE, .requeue = true, .state = SCHED_DONE, .restarts = 1, .log = "run 1\n"},
    {"itself",
     "echo run $REEL_JOB_RESTART; [ $REEL_JOB_RESTART = 2 ] && exit 0; trap '' TERM; "
     "exec \"$1/program\" self-requeue",
     .requeue = true, .state = SCHED_DONE, .restarts = 2, .log = "run 2\n"},
    {"orphans",
     "(setsid sh -c '(setsid sleep 1000 & sleep 1000 &)' &) ; "
     "setsid sh -c 'trap \"\" TERM HUP INT; echo escaped; while :; do sleep 0.2; done' & "
     "until grep -q escaped \"$1/orphans.log\"; do sleep 0.1; done; exit 0",
     .state = SCHED_DONE, .orphans = true},
};
enum { CONFORM_CASES = ARRAY_LEN(conform_cases) };
static struct conform_job conform_jobs[CONFORM_CASES];

void conform_write_program(void)
{
    struct err err = {0};
    char self[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    const char *via = getenv("REEL_SLURM_VIA"), *helper = getenv("REEL_SLURM_HELPER");
    str_addf(&text,
             "#!/bin/sh\nPATH='%s' REEL_SLURM_VIA='%s' REEL_SLURM_HELPER='%s' exec '%s' \"$1\" "
             "'%s' '%s'\n",
             getenv("PATH"), via ? via : "", helper ? helper : "", self, conform.kind,
             conform.home);
    if (file_publish(conform_path("program"), text.p, text.len, &err) < 0 ||
        chmod(conform_path("program"), 0755) < 0)
        fail_msg("%s", err.text);
    str_release(&text);
}

bool conform_program(int argc, char **argv, int *rc)
{
    struct err err = {0};
    struct sched *s = NULL;
    struct sched_self self;
    if (argc != 4 || strcmp(argv[1], "self-requeue") != 0)
        return false;
    *rc = 5;
    if (sched_open(argv[2], argv[3], &s, &err) < 0 || sched_self(s, &self, &err) < 0 ||
        sched_requeue(s, self.id, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        *rc = 6;
    }
    sched_close(s);
    return true;
}

static void conform_submit_cases(void)
{
    assert_int_equal(file_publish(conform_path("append.log"), "old\n", 4, NULL), 0);
    for (int i = 0; i < CONFORM_CASES; i++) {
        const struct conform_case *c = &conform_cases[i];
        struct conform_job *j = &conform_jobs[i];
        if (c->orphans && conform.orphans_escape)
            continue;
        *j = (struct conform_job){.name = c->name, .script = c->script, .spec = SCHED_SPEC_INIT};
        j->spec.requeue = c->requeue;
        j->spec.signal = c->signal;
        j->spec.time_limit_s = c->limited ? conform.time_limit_s : 0;
        j->spec.signal_lead_s = !c->signal                  ? 0
                                : conform.signal_lead_s > 0 ? conform.signal_lead_s
                                                            : conform.time_limit_s / 2;
        conform_submit(j, false);
    }
}

static void conform_do(const struct conform_case *c, const struct conform_job *j)
{
    struct err err = {0};
    char log[64];
    int rc = 0;
    snprintf(log, sizeof log, "%s.log", c->name);
    if (c->act == ACT_WAIT)
        return;
    conform_wait_text(log, "up\n");
    if (c->act == ACT_USR1)
        rc = sched_signal(conform.s, j->id, SIGUSR1, SCHED_TO_BATCH, &err);
    else if (c->act == ACT_CANCEL)
        rc = sched_cancel(conform.s, j->id, &err);
    else
        rc = sched_requeue(conform.s, j->id, &err);
    if (rc < 0)
        fail_msg("%s: %s", c->name, err.text);
}

static void conform_check(const struct conform_case *c, const struct conform_job *j)
{
    struct sched_jobs jobs = {0};
    char log[64];
    snprintf(log, sizeof log, "%s.log", c->name);
    conform_wait(j, conform_ended_set());
    const struct sched_job *job = conform_look(j->id, &jobs);
    if (job->state != c->state)
        fail_msg("%s: state %s (%s), expected %s; log: %s", c->name, sched_state_name(job->state),
                 job->reason, sched_state_name(c->state), conform_read(log));
    assert_int_equal(job->restarts, c->restarts);
    assert_string_equal(job->token, j->token);
    assert_string_equal(job->name, c->name);
    assert_true(job->submitted_at > 1e9 && job->started_at >= job->submitted_at &&
                job->ended_at >= job->started_at);
    if (c->state == SCHED_DONE || c->state == SCHED_FAILED) {
        assert_int_equal(job->exit_code, c->code);
        assert_int_equal(job->exit_signal, c->exit_signal);
    }
    if (c->state != SCHED_DONE)
        assert_true(job->reason[0] != '\0');
    if (c->log && !strstr(conform_read(log), c->log))
        fail_msg("%s: '%s' is not in the log: %s", c->name, c->log, conform_read(log));
    assert_int_equal(conform_marked(j->token), 0);
    sched_jobs_release(&jobs);
}

void conform_test_cases(void **state)
{
    (void)state;
    conform_submit_cases();
    for (int i = 0; i < CONFORM_CASES; i++)
        if (conform_jobs[i].name)
            conform_do(&conform_cases[i], &conform_jobs[i]);
    for (int i = 0; i < CONFORM_CASES; i++)
        if (conform_jobs[i].name)
            conform_check(&conform_cases[i], &conform_jobs[i]);
}

/* The log holds every execution, once each. */
void conform_test_log_over_restarts(void **state)
{
    (void)state;
    for (int run = 0; run <= 2; run++) {
        char word[32];
        snprintf(word, sizeof word, "run %d\n", run);
        assert_int_equal(conform_count(conform_read("itself.log"), word), 1);
    }
    assert_int_equal(conform_count(conform_read("again.log"), "run 0\n"), 1);
}

static bool conform_env_is_known(const char *entry)
{
    static const char *const own[] = {
        "REEL_JOB_ID=", "REEL_JOB_RESTART=", "REEL_JOB_CORES=", "REEL_JOB_NODES=",
        "REEL_RUN_TOKEN=", "REEL_JOB_SCHED=", "SLURM", "PWD=", "OLDPWD=", "SHLVL=", "_=",
        /* of contrib/slurm-cluster's task prolog */
        "OMPI_MCA_btl_vader_backing_directory=", "OMPI_MCA_pmix_base_async_modex=", NULL};
    for (int i = 0; own[i]; i++)
        if (str_starts(entry, own[i]))
            return true;
    for (int i = 0; conform_env[i]; i++)
        if (strcmp(entry, conform_env[i]) == 0)
            return true;
    return false;
}

/* A job has every entry that was submitted, byte for byte, and nothing of the submitter's. */
void conform_test_environment(void **state)
{
    struct str text = STR_INIT;
    int found = 0;
    (void)state;
    assert_int_equal(file_read(conform_path("environment"), 1 << 20, &text, NULL), 0);
    for (const char *p = text.p; p < text.p + text.len; p += strlen(p) + 1) {
        if (!conform_env_is_known(p))
            fail_msg("the job's environment has '%s', which nobody submitted", p);
        for (int i = 0; conform_env[i]; i++)
            found += strcmp(p, conform_env[i]) == 0;
    }
    assert_int_equal(found, ARRAY_LEN(conform_env) - 1);
    str_release(&text);
}

void conform_test_folder(void **state)
{
    char expected[LIMIT_PATH_BYTES + 1], real[LIMIT_PATH_BYTES];
    (void)state;
    assert_non_null(realpath(conform.dir, real));
    snprintf(expected, sizeof expected, "%s\n", real);
    assert_string_equal(conform_read("folder.log"), expected);
}

/* ---- refusals ---- */

static void conform_refused(const char *what, const struct sched_spec *spec, int code,
                            const char *word)
{
    char id[SCHED_ID_BYTES] = "untouched";
    struct err err = {0};
    int rc = sched_submit(conform.s, spec, id, &err);
    if (rc != code || !strstr(err.text, word))
        fail_msg("%s: %s '%s', expected %s with '%s'", what, err_name(rc), err.text, err_name(code),
                 word);
    assert_string_equal(id, "untouched");
}

void conform_test_refusals(void **state)
{
    static const char *const relative[] = {"sh", NULL}, *const none[] = {NULL},
                             *const good[] = {"/bin/true", NULL};
    static const char *const bad_env[] = {"A=1", "NOVALUE", NULL};
    char token[ID_TEXT_BYTES];
    (void)state;
    struct sched_spec ok = SCHED_SPEC_INIT;
    ok.token = conform_token(token);
    ok.name = "refused";
    ok.argv = good;
    ok.env = none;
    ok.cwd = conform.dir;
    ok.log_path = conform_path("refused.log");
#define REFUSED(change, code, word)                 \
    do {                                            \
        struct sched_spec bad = ok;                 \
        bad.change;                                 \
        conform_refused(#change, &bad, code, word); \
    } while (0)
    REFUSED(token = "12", ERR_INPUT, "12");
    REFUSED(token = NULL, ERR_INPUT, "token");
    REFUSED(name = "", ERR_INPUT, "name");
    REFUSED(name = "a\nb", ERR_INPUT, "letters, digits");
    REFUSED(name = "a b", ERR_INPUT, "letters, digits");
    REFUSED(argv = relative, ERR_INPUT, "'sh'");
    REFUSED(argv = none, ERR_INPUT, "program");
    REFUSED(env = NULL, ERR_INPUT, "environment");
    REFUSED(env = bad_env, ERR_INPUT, "entry 1 is not NAME=VALUE");
    REFUSED(cwd = "here", ERR_INPUT, "'here'");
    REFUSED(log_path = "log", ERR_INPUT, "'log'");
    REFUSED(nodes = 0, ERR_INPUT, "nodes is 0");
    REFUSED(nodes = 100000, ERR_LIMIT, "100000");
    REFUSED(cores_per_node = 100000, ERR_LIMIT, "100000");
    REFUSED(ranks_per_node = -1, ERR_INPUT, "-1");
    REFUSED(priority = 2000, ERR_INPUT, "2000");
    REFUSED(time_limit_s = -1, ERR_INPUT, "-1");
    REFUSED(signal = 99, ERR_INPUT, "99");
    REFUSED(signal_lead_s = 5, ERR_INPUT, "signal");
    REFUSED(partition = "no-such-partition", ERR_INPUT, "no-such-partition");
    REFUSED(after = "99999999", ERR_NOT_FOUND, "99999999");
    REFUSED(after = "x", ERR_NOT_FOUND, "'x'");
#undef REFUSED
    struct sched_jobs jobs = {0};
    const char *const tokens[] = {token, NULL};
    assert_int_equal(sched_poll(conform.s, &(struct sched_filter){.tokens = tokens}, &jobs, NULL),
                     0);
    assert_int_equal(jobs.n, 0); /* refused means: not there */
    sched_jobs_release(&jobs);
}

void conform_test_unknown_and_ended(void **state)
{
    struct err err = {0};
    const char *done = conform_jobs[0].id;
    (void)state;
    conform_wait(&conform_jobs[0], conform_ended_set());
    assert_int_equal(sched_cancel(conform.s, "99999999", &err), ERR_NOT_FOUND);
    assert_int_equal(sched_requeue(conform.s, "99999999", &err), ERR_NOT_FOUND);
    assert_int_equal(sched_signal(conform.s, "99999999", SIGUSR1, SCHED_TO_BATCH, &err),
                     ERR_NOT_FOUND);
    assert_int_equal(sched_cancel(conform.s, "../lock", &err), ERR_NOT_FOUND);
    assert_int_equal(sched_signal(conform.s, done, 0, SCHED_TO_BATCH, &err), ERR_INPUT);
    assert_int_equal(sched_cancel(conform.s, done, &err), 0);
    assert_int_equal(sched_requeue(conform.s, done, &err), ERR_STATE);
    assert_int_equal(sched_signal(conform.s, done, SIGUSR1, SCHED_TO_BATCH, &err), ERR_STATE);
    assert_int_equal(conform_state(done), SCHED_DONE);
}

/* ---- one job a token ---- */

void conform_test_token(void **state)
{
    struct conform_job j = {.name = "once", .script = "echo ran", .spec = SCHED_SPEC_INIT};
    struct sched_jobs jobs = {0};
    char first[SCHED_ID_BYTES];
    (void)state;
    conform_submit(&j, false);
    memcpy(first, j.id, sizeof first);
    conform_submit(&j, false);
    assert_string_equal(j.id, first);
    conform_wait(&j, conform_ended_set());
    conform_submit(&j, false); /* also after its end */
    assert_string_equal(j.id, first);
    assert_int_equal(sched_poll(conform.s, NULL, &jobs, NULL), 0);
    int n = 0;
    for (size_t i = 0; i < jobs.n; i++)
        n += strcmp(jobs.jobs[i].token, j.token) == 0;
    assert_int_equal(n, 1);
    assert_non_null(job_of_token(&jobs, j.token));
    assert_int_equal(conform_count(conform_read("once.log"), "ran\n"), 1);
    sched_jobs_release(&jobs);
}

/* ---- priority ---- */

/* A urgent job holds the machine while three others queue up; they take it one after the other. */
void conform_test_order(void **state)
{
    struct conform_job holder = {.name = "holder",
                                 .script = "until [ -e \"$1/go\" ]; do sleep 0.1; done"};
    struct conform_job first = {.name = "old", .script = "echo $0 >> \"$1/order\""}, second = first,
                       third = first, off = first;
    (void)state;
    second.name = "urgent";
    third.name = "young";
    off.name = "calledoff";
    struct conform_job *all[] = {&holder, &first, &second, &third, &off};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        all[i]->spec = (struct sched_spec){.cores_per_node = conform.cores};
    second.spec.priority = 1;
    conform_submit(&holder, true);
    conform_wait(&holder, 1u << SCHED_RUNNING);
    for (size_t i = 1; i < ARRAY_LEN(all); i++) {
        conform_submit(all[i], false);
        conform_wait(all[i], 1u << SCHED_PENDING);
    }
    assert_int_equal(sched_cancel(conform.s, off.id, NULL), 0);
    conform_wait(&off, 1u << SCHED_CANCELLED);
    conform_touch("go");
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        conform_wait(all[i], conform_ended_set());
    assert_string_equal(conform_read("order"), "urgent\nold\nyoung\n");
    assert_int_equal(conform_state(off.id), SCHED_CANCELLED);
}

/* ---- one job after another ---- */

static void conform_waits(const struct conform_job *j)
{
    struct sched_jobs jobs = {0};
    const struct sched_job *job = conform_look(j->id, &jobs);
    if (!job || job->state != SCHED_PENDING || !strstr(job->reason, "Dependency"))
        fail_msg("%s: %s (%s), expected to wait for another job", j->name,
                 job ? sched_state_name(job->state) : "not there", job ? job->reason : "");
    sched_jobs_release(&jobs);
}

void conform_test_after(void **state)
{
    struct conform_job first = {
        .name = "first",
        .script = "echo run $REEL_JOB_RESTART; until [ -e \"$1/end$REEL_JOB_RESTART\" ]; do "
                  "sleep 0.1; done; exit 3",
        .spec = {.requeue = true}};
    struct conform_job next = {
        .name = "next", .script = "[ -e \"$1/end1\" ] && echo after", .spec = {.after = first.id}};
    struct conform_job gone = {.name = "gone", .script = CONFORM_UP},
                       heir = {.name = "heir", .script = "exit 0", .spec = {.after = gone.id}},
                       late = {.name = "late", .script = "exit 0", .spec = {.after = first.id}};
    struct sched_jobs jobs = {0};
    (void)state;
    conform_submit(&first, false);
    conform_submit(&next, false);
    conform_submit(&gone, false);
    conform_submit(&heir, false);
    conform_wait_text("first.log", "run 0\n");
    conform_wait_text("gone.log", "up\n");
    conform_waits(&next);
    assert_int_equal(sched_requeue(conform.s, first.id, NULL), 0); /* no end: it runs again first */
    assert_int_equal(sched_cancel(conform.s, gone.id, NULL), 0);
    conform_wait(&heir, 1u << SCHED_DONE);
    conform_wait_text("first.log", "run 1\n");
    conform_waits(&next);
    conform_touch("end1");
    conform_wait(&next, 1u << SCHED_DONE);
    assert_int_equal(conform_count(conform_read("next.log"), "after\n"), 1);
    const struct sched_job *job = conform_look(next.id, &jobs);
    assert_true(job->started_at >= job->submitted_at && conform_state(first.id) == SCHED_FAILED);
    sched_jobs_release(&jobs);
    conform_submit(&late, false); /* one that has ended already holds nobody up */
    conform_wait(&late, 1u << SCHED_DONE);
}

/* ---- preemption ---- */

#define CONFORM_FIRST_RUN "echo run $REEL_JOB_RESTART; [ $REEL_JOB_RESTART = 1 ] && exit 0;"

/* Four jobs share the machine when one comes that needs all of it. */
void conform_test_preempt(void **state)
{
    struct conform_job saves = {.name = "saves",
                                .script = CONFORM_FIRST_RUN "trap 'echo saved; exec \"$1/program\" "
                                                            "self-requeue' TERM;" CONFORM_UP,
                                .spec = {.requeue = true}};
    struct conform_job deaf = {.name = "unhearing",
                               .script = CONFORM_FIRST_RUN "trap '' TERM;" CONFORM_UP,
                               .spec = {.requeue = true}};
    struct conform_job noticed = {.name = "noticed", .script = CONFORM_FIRST_RUN
                                  "trap '' TERM; trap 'echo notice' USR1;" CONFORM_UP,
                                  .spec = {.requeue = true, .signal = SIGUSR1}};
    struct conform_job once = {.name = "onlyonce",
                               .script = CONFORM_FIRST_RUN "trap '' TERM;" CONFORM_UP};
    struct conform_job urgent = {.name = "urgently",
                                 .script = "echo here; until [ -e \"$1/on\" ]; do sleep 0.1; done",
                                 .spec = {.cores_per_node = conform.cores}};
    struct conform_job *low[] = {&saves, &deaf, &noticed, &once};
    struct sched_site site;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(low); i++)
        conform_submit(low[i], false);
    for (size_t i = 0; i < ARRAY_LEN(low); i++) {
        char log[64];
        snprintf(log, sizeof log, "%s.log", low[i]->name);
        conform_wait_text(log, "up\n");
    }
    conform_submit(&urgent, true);
    conform_wait(&urgent, 1u << SCHED_RUNNING);
    for (size_t i = 0; i < 3; i++) { /* its place is taken: they wait, and nothing of them runs */
        assert_int_equal(conform_state(low[i]->id), SCHED_REQUEUED);
        assert_int_equal(conform_marked(low[i]->token), 0);
    }
    assert_int_equal(conform_state(once.id), SCHED_CANCELLED);
    conform_touch("on");
    conform_wait(&urgent, 1u << SCHED_DONE);
    for (size_t i = 0; i < 3; i++) {
        struct sched_jobs jobs = {0};
        conform_wait(low[i], conform_ended_set());
        const struct sched_job *job = conform_look(low[i]->id, &jobs);
        assert_int_equal(job->state, SCHED_DONE);
        assert_int_equal(job->restarts, 1);
        sched_jobs_release(&jobs);
    }
    assert_int_equal(conform_count(conform_read("saves.log"), "saved\n"), 1);
    assert_int_equal(sched_describe(conform.s, &site, NULL), 0);
    if (site.user_signal)
        assert_int_equal(conform_count(conform_read("noticed.log"), "notice\n"), 1);
}

void conform_test_describe(void **state)
{
    struct sched_site site;
    struct err err = {0};
    int defaults = 0;
    (void)state;
    assert_int_equal(sched_describe(conform.s, &site, &err), 0);
    assert_string_equal(site.kind, conform.kind);
    assert_true(site.n_partitions > 0 && site.kill_wait_s >= 0);
    for (size_t i = 0; i < site.n_partitions; i++) {
        defaults += site.partitions[i].is_default;
        assert_true(site.partitions[i].nodes > 0 && site.partitions[i].cores_per_node > 0);
    }
    assert_int_equal(defaults, 1);
}

/* ---- steps ---- */

static struct sched_step *conform_step(const char *script, double deadline_s, const char *log)
{
    const char *argv[] = {"/bin/sh", "-c", script, "step", conform.dir, NULL};
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct sched_step *step = NULL;
    struct err err = {0};
    spec.argv = argv;
    spec.env = conform_env;
    spec.cwd = conform.dir;
    spec.log_path = log ? conform_path(log) : NULL;
    spec.cores = 1;
    spec.deadline_s = deadline_s;
    if (sched_step_start(conform.s, &spec, &step, &err) < 0)
        fail_msg("step: %s", err.text);
    return step;
}

static struct sched_step_status conform_step_end(struct sched_step *step)
{
    struct sched_step_status st;
    assert_int_equal(sched_step_poll(step, conform.patience_s, &st, NULL), 0);
    assert_true(st.ended);
    assert_true(st.ended_at >= st.started_at && st.started_at > 1e9);
    sched_step_free(step);
    return st;
}

void conform_test_steps(void **state)
{
    struct sched_step_status st;
    (void)state;
    if (conform.allocate)
        conform.allocate();
    struct sched_step *code = conform_step("echo $PLAIN; exit 4", 0, "step.log"),
                      *killed = conform_step("kill -9 $$", 0, NULL),
                      *late = conform_step(
                          "trap '' TERM;" CONFORM_UP,
                          conform.step_deadline_s > 0 ? conform.step_deadline_s : 6, "late.log");
    st = conform_step_end(code);
    assert_int_equal(st.exit_code, 4);
    /* beside what srun has to say */
    assert_int_equal(conform_count(conform_read("step.log"), "value\n"), 1);
    st = conform_step_end(killed);
    assert_int_equal(st.exit_signal, SIGKILL);
    assert_int_equal(st.exit_code, -1);
    assert_false(st.timed_out);
    st = conform_step_end(late);
    assert_true(st.timed_out);
    if (strstr(conform_read("late.log"), "up\n")) /* it came to its trap */
        assert_int_equal(st.exit_signal, SIGKILL);
    struct sched_step *heard = conform_step("trap 'exit 6' USR1;" CONFORM_UP, 0, "heard.log");
    conform_wait_text("heard.log", "up\n");
    assert_int_equal(sched_step_poll(heard, 0, &st, NULL), 0);
    assert_false(st.ended);
    assert_int_equal(sched_step_signal(heard, SIGUSR1, NULL), 0);
    assert_int_equal(conform_step_end(heard).exit_code, 6);
}

void conform_test_step_limits(void **state)
{
    static const char *const missing[] = {"/no/such/program", NULL};
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct sched_step *step = NULL;
    struct err err = {0};
    (void)state;
    if (conform.allocate)
        conform.allocate();
    spec.argv = missing;
    spec.env = conform_env;
    spec.cores = 1;
    assert_true(sched_step_start(conform.s, &spec, &step, &err) < 0);
    assert_non_null(strstr(err.text, "/no/such/program"));
    spec.cores = 100000;
    assert_int_equal(sched_step_start(conform.s, &spec, &step, &err), ERR_LIMIT);
    assert_null(step);
    /* cores come back when steps end, and freeing a running step ends it with all it started */
    for (int i = 0; i < 2; i++) {
        step = conform_step(
            conform.orphans_escape
                ? "echo $$ > \"$1/orphan\"; exec sleep 1000"
                : "(setsid sh -c 'echo $$ > \"$0/orphan\"; exec sleep 1000' \"$1\" &);" CONFORM_UP,
            0, "free.log");
        conform_wait_text("orphan", "\n");
        sched_step_free(step);
        pid_t pid = (pid_t)atol(conform_read("orphan"));
        assert_true(pid > 1);
        for (double end = clock_mono_s() + conform.patience_s;
             conform.orphans_escape && kill(pid, 0) == 0 && clock_mono_s() < end;)
            clock_sleep_s(0.02); /* a node's daemon ends it, not we */
        assert_int_equal(kill(pid, 0), -1);
        assert_int_equal(errno, ESRCH);
        unlink(conform_path("orphan"));
    }
}
