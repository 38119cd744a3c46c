/* One run, several jobs: what is submitted, exactly once, when each job submits the next; against a
 * scheduler that is a list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "launcher/state/attempt.h"
#include "launcher/submit/launch.h"
#include "tests/lib/scratch.h"

/* ---- the scheduler ---- */

enum { MAX_JOBS = 8 };
static struct {
    char token[ID_TEXT_BYTES], id[SCHED_ID_BYTES], after[SCHED_ID_BYTES];
    enum sched_state state;
    bool as_successor; /* REEL_JOB_AGAIN of its environment */
} jobs[MAX_JOBS];
static int n_jobs, n_cancelled;
static bool cut_off;              /* the next submission is made and not acknowledged */
static bool silent;               /* no answer to a poll */
static enum sched_preempt preempt;

static int fake_describe(struct sched *s, struct sched_site *out, struct err *err)
{
    static struct sched_partition partition;
    (void)s, (void)err;
    partition = (struct sched_partition){
        .name = "p", .is_default = true, .preempt = preempt, .nodes = 1, .cores_per_node = 4};
    *out = (struct sched_site){.kind = "local", .name = "fake", .node_timeout_s = 300,
                               .n_partitions = 1, .partitions = &partition};
    return 0;
}

static int find(const char *token)
{
    int i = 0;
    while (i < n_jobs && strcmp(jobs[i].token, token) != 0)
        i++;
    return i;
}

static int fake_submit(struct sched *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                       struct err *err)
{
    int i = find(spec->token);
    (void)s;
    if (spec->after && strcmp(spec->after, "77") == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no job 77");
    if (i == n_jobs) {
        assert_true(n_jobs++ < MAX_JOBS);
        snprintf(jobs[i].token, sizeof jobs[i].token, "%s", spec->token);
        snprintf(jobs[i].id, sizeof jobs[i].id, "%d", i + 1);
        snprintf(jobs[i].after, sizeof jobs[i].after, "%s", spec->after ? spec->after : "");
        jobs[i].state = SCHED_PENDING;
        for (const char *const *e = spec->env; *e; e++)
            jobs[i].as_successor |= strcmp(*e, LAUNCH_AGAIN_ENV "=successor") == 0;
    }
    if (cut_off) {
        cut_off = false;
        return err_set(err, ERR_TEMP, "no answer");
    }
    snprintf(id, SCHED_ID_BYTES, "%s", jobs[i].id);
    return 0;
}

static int fake_poll(struct sched *s, const struct sched_filter *filter, struct sched_jobs *out,
                     struct err *err)
{
    (void)s, (void)filter;
    if (silent)
        return err_set(err, ERR_TEMP, "no answer");
    arena_init(&out->arena, 0);
    out->jobs = arena_array(&out->arena, MAX_JOBS, sizeof *out->jobs);
    for (int i = 0; i < n_jobs; i++)
        if (jobs[i].state != SCHED_UNKNOWN) /* here: forgotten */
            out->jobs[out->n++] = (struct sched_job){.id = jobs[i].id, .token = jobs[i].token,
                                                     .name = "", .reason = "",
                                                     .state = jobs[i].state};
    return 0;
}

static int fake_cancel(struct sched *s, const char *id, struct err *err)
{
    int i = atoi(id) - 1;
    (void)s;
    if (i < 0 || i >= n_jobs)
        return err_set(err, ERR_NOT_FOUND, "there is no job %s", id);
    jobs[i].state = SCHED_CANCELLED;
    n_cancelled++;
    return 0;
}

static double job_ended_at; /* 0: nobody knows */

static int fake_ending(struct sched *s, const char *id, struct sched_ending *out, struct err *err)
{
    int i = atoi(id) - 1;
    (void)s;
    if (silent)
        return err_set(err, ERR_TEMP, "no answer");
    if (i < 0 || i >= n_jobs || jobs[i].state == SCHED_UNKNOWN)
        return err_set(err, ERR_NOT_FOUND, "there is no job %s", id);
    *out = (struct sched_ending){.why = jobs[i].state == SCHED_CANCELLED ? SCHED_END_CANCELLED
                                                                         : SCHED_END_NONE,
                                 .ended_at = job_ended_at};
    return 0;
}

static double down_at; /* since when n1 is lost */
static struct sched_loss loss_asked;
static char nodes_asked[32];

static int fake_lost_node(struct sched *s, const char *nodes, const struct sched_loss *loss,
                          char node[SCHED_ID_BYTES], struct err *err)
{
    (void)s, (void)err;
    loss_asked = *loss;
    snprintf(nodes_asked, sizeof nodes_asked, "%s", nodes);
    snprintf(node, SCHED_ID_BYTES, "%s", down_at <= loss->down_by ? "n1" : "");
    return 0;
}

static const struct sched_ops ops = {.kind = "local", .describe = fake_describe,
                                     .submit = fake_submit, .poll = fake_poll,
                                     .cancel = fake_cancel, .ending = fake_ending,
                                     .lost_node = fake_lost_node};
static struct sched sched = {.ops = &ops, .absence_s = 0.1};

/* ---- the run ---- */

static struct launch l;
static const struct attempt_ending untold = {.why = SCHED_END_UNKNOWN};
static char detail[STATE_TEXT_BYTES]; /* of the attempt that cause_told tells of */

static void make_run(const char *again)
{
    char text[512];
    struct run run;
    struct plan plan;
    struct err err = {0};
    bool existed;
    memset(jobs, 0, sizeof jobs);
    n_jobs = n_cancelled = 0;
    cut_off = false;
    snprintf(text, sizeof text,
             "{\"schema\": \"reel.run/1\", \"name\": \"%s\", \"model\": \"dit-tiny\", \"stages\": "
             "[{\"data\": \"synthetic:1x4x4\", "
             "\"gbs\": 2, \"steps\": 4}], \"resources\": {\"again\": \"%s\"}}",
             again, again);
    if (run_parse(text, strlen(text), "run.json", &run, &err) < 0)
        fail_msg("%s", err.text);
    plan = (struct plan){.layout = layout_default(), .seq = {1, 4, 4}, .gbs = 2, .dtype = run.dtype,
                         .device = "cpu", .model = "dit-tiny"};
    plan.model_hash = model_hash(&run.model);
    if (launch_create(in_scratch("home"), "/bin", &run, &plan, NULL, &l, &existed, &err) < 0 ||
        launch_submit(&l, &sched, NULL, &err) < 0)
        fail_msg("%s", err.text);
    run_release(&run);
    assert_int_equal(n_jobs, 1);
}

static struct sched_self self_of(int job)
{
    struct sched_self self = {.nodes = 1};
    memcpy(self.id, jobs[job].id, sizeof self.id);
    memcpy(self.token, jobs[job].token, sizeof jobs[job].token);
    return self;
}

static struct run_state state_now(void)
{
    struct run_state s;
    run_state_init(&s);
    assert_int_equal(run_state_load(l.run_dir, &s, NULL), 0);
    return s;
}

/* The agent of this job takes the next attempt. */
static int claim(int job)
{
    struct sched_self self = self_of(job);
    struct run_state s = state_now();
    struct attempt a;
    struct err err = {0};
    attempt_init(&a, l.run_dir, &self);
    assert_int_equal(attempt_lock(&a, NULL), 0);
    int rc = attempt_claim(&a, &s, &untold, &err);
    attempt_release(&a);
    run_state_release(&s);
    return rc;
}

/* It takes the next attempt, and the last that is heard of it is that it began. */
static int claim_and_say(int job)
{
    struct sched_self self = self_of(job);
    struct run_state s = state_now();
    struct attempt a;
    struct evlog_event e;
    attempt_init(&a, l.run_dir, &self);
    assert_int_equal(attempt_lock(&a, NULL), 0);
    int rc = attempt_claim(&a, &s, &untold, NULL);
    evlog_begin(a.log, &e, "attempt_started");
    json_put_text(&e.out, "job_id", self.id);
    attempt_event(&a, &e);
    attempt_release(&a);
    run_state_release(&s);
    return rc;
}

static int succeed(int job, char id[SCHED_ID_BYTES])
{
    struct sched_self self = self_of(job);
    struct run_fold *fold = NULL;
    struct err err = {0};
    assert_int_equal(run_fold_open(l.run_dir, &fold, NULL), 0);
    int rc = launch_successor(&l, &sched, &self, fold, id, &err);
    run_fold_close(fold);
    return rc;
}

/* ---- tests ---- */

static void decides(void **state)
{
    static const struct {
        const char *again;
        enum sched_preempt preempt;
        bool successor;
    } table[] = {{"auto", SCHED_PREEMPT_REQUEUE, false},
                 {"auto", SCHED_PREEMPT_CANCEL, true},
                 {"auto", SCHED_PREEMPT_OFF, false},
                 {"requeue", SCHED_PREEMPT_CANCEL, false},
                 {"successor", SCHED_PREEMPT_REQUEUE, true}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        scratch_setup(state);
        preempt = table[i].preempt;
        make_run(table[i].again);
        assert_int_equal(jobs[0].as_successor, table[i].successor);
        scratch_teardown(state);
    }
    scratch_setup(state);
}

static void once(void **state)
{
    char id[SCHED_ID_BYTES];
    (void)state;
    make_run("successor");
    assert_int_equal(claim(0), 0);
    cut_off = true;
    assert_int_equal(succeed(0, id), ERR_TEMP); /* made and not acknowledged: the intent stands */
    assert_int_equal(n_jobs, 2);
    for (int i = 0; i < 3; i++) {
        silent = i == 2; /* an acknowledged job is there until somebody says that it has ended */
        assert_int_equal(succeed(0, id), 0);
        assert_string_equal(id, "2");
        assert_int_equal(n_jobs, 2);
    }
    assert_string_equal(jobs[1].after, "1");
    assert_true(jobs[1].as_successor);
    silent = false;
    jobs[1].state = SCHED_CANCELLED; /* by somebody's hand */
    assert_int_equal(succeed(0, id), 0);
    assert_string_equal(id, "3");
    assert_string_equal(jobs[2].after, "1");
}

/* Somebody cancelled a job whose agent could say nothing any more: its successor learns it from the
 * scheduler, and the run is over. */
static void cancelled_silently(void **state)
{
    struct sched_self first, next;
    struct attempt a;
    struct evlog_event e;
    char id[SCHED_ID_BYTES], why[STATE_TEXT_BYTES];
    (void)state;
    make_run("successor");
    first = self_of(0);
    struct run_state s = state_now();
    attempt_init(&a, l.run_dir, &first);
    assert_int_equal(attempt_lock(&a, NULL), 0);
    assert_int_equal(attempt_claim(&a, &s, &untold, NULL), 0);
    evlog_begin(a.log, &e, "attempt_started");
    json_put_text(&e.out, "job_id", first.id);
    attempt_event(&a, &e);
    attempt_release(&a);
    run_state_release(&s);
    assert_int_equal(succeed(0, id), 0);
    next = self_of(1);
    s = state_now();
    attempt_init(&a, l.run_dir, &next);
    assert_int_equal(attempt_lock(&a, NULL), 0);
    assert_int_equal(
        attempt_claim(&a, &s, &(struct attempt_ending){.why = SCHED_END_CANCELLED}, NULL), 0);
    attempt_release(&a);
    run_state_release(&s);
    s = state_now();
    assert_int_equal(s.attempts[0].cause, CAUSE_CANCEL);
    assert_int_equal(run_state_next(&s, &l.budget, why), RUN_NEXT_CANCELLED);
    assert_non_null(strstr(why, "job 1 was cancelled at the scheduler"));
    run_state_release(&s);
}

/* How the end of an attempt is told whose step heard SIGTERM, and its agent too where agent_hears,
 * when the scheduler says this of its job; NULL: the scheduler is asked. */
static enum attempt_cause cause_told(const struct attempt_ending *told, bool agent_hears)
{
    struct attempt a;
    struct attempt_ending before;
    struct evlog_event e;
    make_run("requeue");
    struct sched_self self = self_of(0);
    struct run_state s = state_now();
    attempt_init(&a, l.run_dir, &self);
    assert_int_equal(attempt_lock(&a, NULL), 0);
    assert_int_equal(attempt_claim(&a, &s, &untold, NULL), 0);
    evlog_begin(a.log, &e, "attempt_started");
    json_put_text(&e.out, "job_id", self.id);
    attempt_event(&a, &e);
    evlog_begin(a.log, &e, "stop_heard");
    json_put_text(&e.out, "signal", "SIGTERM");
    json_put_num(&e.out, "heard_at", clock_wall_s());
    attempt_event(&a, &e);
    if (agent_hears)
        attempt_notice_at_node(&a, 15);
    attempt_release(&a);
    run_state_release(&s);
    s = state_now();
    attempt_init(&a, l.run_dir, &self);
    assert_int_equal(attempt_lock(&a, NULL), 0);
    attempt_before(&a, &s, &sched, &before);
    assert_int_equal(attempt_claim(&a, &s, told ? told : &before, NULL), 0);
    attempt_release(&a);
    run_state_release(&s);
    s = state_now();
    enum attempt_cause cause = s.attempts[0].cause;
    assert_true(s.attempts[0].heard_at > 0 && s.attempts[0].heard_at <= s.attempts[0].ended_at);
    snprintf(detail, sizeof detail, "%s", s.attempts[0].detail);
    run_state_release(&s);
    return cause;
}

/* SIGTERM at the step is of the job's clean-up when its batch process was killed, and of a
 * preemption when the scheduler says so or nobody knows better. */
static void stopped_silently(void **state)
{
    static const struct {
        struct attempt_ending told;
        enum attempt_cause cause;
        const char *detail;
        bool agent_hears;
    } table[] = {
        {{.why = SCHED_END_NONE}, CAUSE_CRASH, "batch process was killed", false},
        {{.why = SCHED_END_UNKNOWN}, CAUSE_PREEMPT, "does not say whether a node was lost", false},
        {{.why = SCHED_END_UNKNOWN, .other_job = true}, CAUSE_CRASH, "not say any more why", false},
        {{.why = SCHED_END_UNKNOWN, .other_job = true}, CAUSE_PREEMPT, "before it had", true},
        {{.why = SCHED_END_NONE}, CAUSE_CRASH, "batch process was killed", true},
        {{.why = SCHED_END_PREEMPTED}, CAUSE_PREEMPT, "before it had finished stopping", false},
        {{.why = SCHED_END_NODE_FAIL}, CAUSE_NODE_FAIL, "node of its job was lost", false},
        {{.why = SCHED_END_CANCELLED, .node_lost = "n1"}, CAUSE_CANCEL, "cancelled", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        scratch_setup(state);
        assert_int_equal(cause_told(&table[i].told, table[i].agent_hears), table[i].cause);
        assert_non_null(strstr(detail, table[i].detail));
        scratch_teardown(state);
    }
    scratch_setup(state);
}

/* Nobody heard a notice: a job that the scheduler did not end, and that lost no node, lost its batch
 * process; one that it has forgotten, and that lost no node, crashed. */
static void ended_by_itself(void **state)
{
    static const struct {
        struct attempt_ending told;
        enum attempt_cause cause;
    } table[] = {{{.why = SCHED_END_NONE, .nodes_told = true}, CAUSE_CRASH},
                 {{.why = SCHED_END_NONE, .nodes_told = true, .node_lost = "n1"}, CAUSE_NODE_FAIL},
                 {{.why = SCHED_END_NONE}, CAUSE_NODE_FAIL},
                 {{.why = SCHED_END_UNKNOWN, .nodes_told = true}, CAUSE_NODE_FAIL},
                 {{.why = SCHED_END_UNKNOWN, .other_job = true}, CAUSE_NODE_FAIL},
                 {{.why = SCHED_END_UNKNOWN, .other_job = true, .nodes_told = true}, CAUSE_CRASH}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct attempt a;
        scratch_teardown(state);
        scratch_setup(state);
        make_run("requeue");
        assert_int_equal(claim_and_say(0), 0);
        struct sched_self self = self_of(0);
        struct run_state s = state_now();
        attempt_init(&a, l.run_dir, &self);
        assert_int_equal(attempt_lock(&a, NULL), 0);
        assert_int_equal(attempt_claim(&a, &s, &table[i].told, NULL), 0);
        attempt_release(&a);
        run_state_release(&s);
        s = state_now();
        assert_int_equal(s.attempts[0].cause, table[i].cause);
        run_state_release(&s);
    }
}

/* The loss of a node tells the job's other nodes to stop, and the job that runs again does not
 * remember why: its next agent asks about the nodes that the attempt had. */
static void node_lost_silently(void **state)
{
    (void)state;
    setenv("SLURM_JOB_NODELIST", "n[0-1]", 1);
    down_at = clock_wall_s();
    assert_int_equal(cause_told(NULL, false), CAUSE_NODE_FAIL);
    assert_string_equal(detail, "node n1 was lost");
    assert_string_equal(nodes_asked, "n[0-1]");
    scratch_teardown(state);
    scratch_setup(state);
    down_at = clock_wall_s() + 1000; /* long after they were told to stop */
    assert_int_equal(cause_told(NULL, false), CAUSE_PREEMPT);
    assert_string_equal(detail, "killed before it had finished stopping");
    unsetenv("SLURM_JOB_NODELIST");
}

/* Of an attempt that ended without any word or notice a node is told that was lost before its job
 * ended; where nobody knows when, before the scheduler gives up one that is silent since the
 * attempt's last word. One that is lost hours later has another reason. */
static void node_lost_without_notice(void **state)
{
    static const struct {
        double job_ended_s, down_s;
        bool same_job, named;
    } table[] = {
        {0, 250, true, true},    {0, 3600, true, false},    {0, 250, false, true},
        {0, 3600, false, false}, {2000, 2010, false, true}, {2000, 2100, false, false},
        {20, 250, false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct attempt a;
        struct attempt_ending before;
        struct sched_self self, next;
        scratch_teardown(state);
        scratch_setup(state);
        make_run("successor");
        setenv("SLURM_JOB_NODELIST", "n[0-1]", 1);
        assert_int_equal(claim_and_say(0), 0);
        unsetenv("SLURM_JOB_NODELIST");
        struct run_state s = state_now();
        self = next = self_of(0);
        snprintf(next.id, sizeof next.id, "5");
        double began = s.attempts[0].started_at;
        down_at = began + table[i].down_s;
        job_ended_at = table[i].job_ended_s > 0 ? began + table[i].job_ended_s : 0;
        attempt_init(&a, l.run_dir, table[i].same_job ? &self : &next);
        attempt_before(&a, &s, &sched, &before);
        if ((strcmp(before.node_lost, "n1") == 0) != table[i].named)
            fail_msg("case %zu: node '%s'", i, before.node_lost);
        assert_true(loss_asked.booted_after > began && loss_asked.booted_after < began + 100);
        attempt_release(&a);
        run_state_release(&s);
    }
    job_ended_at = 0;
}

/* A first job that comes back goes on while its successor waits, and no longer once that has
 * begun. */
static void one_lives(void **state)
{
    char id[SCHED_ID_BYTES];
    (void)state;
    make_run("successor");
    assert_int_equal(claim(0), 0);
    assert_int_equal(succeed(0, id), 0);
    assert_int_equal(claim(0), 0);
    assert_int_equal(claim(1), 0);
    assert_int_equal(claim(0), ERR_BUSY);
    assert_int_equal(succeed(1, id), 0);
    assert_int_equal(claim(0), ERR_BUSY);
    assert_int_equal(succeed(0, id), ERR_BUSY);
    assert_int_equal(claim(1), 0);
    assert_int_equal(n_jobs, 3);
}

static void taken_up(void **state)
{
    char id[SCHED_ID_BYTES];
    struct err err = {0};
    (void)state;
    make_run("successor");
    assert_int_equal(claim(0), 0);
    cut_off = true;
    assert_int_equal(succeed(0, id), ERR_TEMP);
    struct run_state s = state_now();
    assert_string_equal(s.token, jobs[1].token);
    assert_string_equal(s.job_token, jobs[0].token);
    assert_int_equal(launch_submit(&l, &sched, NULL, &err), 0); /* nobody has seen it lost */
    assert_int_equal(launch_submit(&l, &sched, jobs[0].token, &err), 0);
    /* a follower that saw the first one's end */
    assert_int_equal(launch_submit(&l, &sched, s.job_token, &err), 0);
    run_state_release(&s);
    s = state_now();
    assert_int_equal(n_jobs, 2);
    assert_string_equal(s.job_id, "2");
    assert_string_equal(s.after_job, "1");
    enum launch_kept kept;
    assert_int_equal(launch_cancel(&l, &sched, &kept, &err), 0);
    assert_int_equal(kept, LAUNCH_LOGGED);
    assert_true(n_cancelled == 2 && jobs[0].state == SCHED_CANCELLED &&
                jobs[1].state == SCHED_CANCELLED);
    run_state_release(&s);
}

/* An intent after a job that the scheduler knows no more is submitted by itself. */
static void forgotten(void **state)
{
    char id[SCHED_ID_BYTES];
    struct err err = {0};
    (void)state;
    make_run("successor");
    snprintf(jobs[0].id, sizeof jobs[0].id, "77");
    assert_int_equal(succeed(0, id), ERR_NOT_FOUND); /* it runs: never without waiting for it */
    assert_int_equal(n_jobs, 1);
    struct run_state s = state_now();
    assert_int_equal(launch_submit(&l, &sched, s.job_token, &err), 0);
    assert_int_equal(n_jobs, 2);
    assert_string_equal(jobs[1].token, s.token);
    run_state_release(&s);
}

/* What the scheduler says of a job when the run is submitted again counts, once, after it has
 * forgotten the job. */
static void forgotten_since(void **state)
{
    static const struct {
        enum sched_state ended;
        enum sched_end why;
    } table[] = {{SCHED_CANCELLED, SCHED_END_CANCELLED}, {SCHED_FAILED, SCHED_END_NONE}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct attempt a;
        struct attempt_ending before;
        scratch_teardown(state);
        scratch_setup(state);
        make_run("successor");
        assert_int_equal(claim_and_say(0), 0);
        jobs[0].state = table[i].ended;
        job_ended_at = clock_wall_s();
        for (int twice = 0; twice < 2; twice++)
            assert_int_equal(launch_submit(&l, &sched, jobs[0].token, NULL), 0);
        jobs[0].state = SCHED_UNKNOWN;
        struct sched_self next = self_of(1);
        struct run_state s = state_now();
        attempt_init(&a, l.run_dir, &next);
        attempt_before(&a, &s, &sched, &before);
        assert_int_equal(before.why, table[i].why);
        assert_true(before.other_job);
        attempt_release(&a);
        run_state_release(&s);
    }
    job_ended_at = 0;
}

/* Of a run whose file is gone nothing is submitted. */
static void gone(void **state)
{
    char run_json[LIMIT_PATH_BYTES + 16];
    struct err err = {0};
    (void)state;
    make_run("successor");
    snprintf(run_json, sizeof run_json, "%s/run.json", l.run_dir);
    assert_int_equal(unlink(run_json), 0);
    assert_int_equal(launch_submit(&l, &sched, jobs[0].token, &err), ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "run.json"));
    assert_int_equal(n_jobs, 1);
}

struct looks {
    int n, stop_at;
    volatile int stop;
    char word[32];
};

static void look(void *ctx, const struct run_state *s, const struct run_budget *budget,
                 const char *job_state)
{
    struct looks *k = ctx;
    (void)s, (void)budget;
    snprintf(k->word, sizeof k->word, "%s", job_state);
    k->stop = ++k->n >= k->stop_at;
}

static int follow(struct looks *k)
{
    enum run_next next;
    struct err err = {0};
    k->n = k->stop = 0;
    return launch_follow(&l, &sched, &k->stop, look, k, &next, &err);
}

/* The end of the first job is no loss while its successor waits, nor the successor's while the
 * first one runs. */
static void followed(void **state)
{
    struct looks k = {.stop_at = 3};
    char id[SCHED_ID_BYTES];
    (void)state;
    make_run("successor");
    assert_int_equal(claim(0), 0);
    assert_int_equal(succeed(0, id), 0);
    jobs[0].state = SCHED_RUNNING;
    jobs[1].state = SCHED_CANCELLED;
    assert_int_equal(follow(&k), 0);
    assert_string_equal(k.word, "running");
    jobs[0].state = SCHED_FAILED;
    jobs[1].state = SCHED_PENDING;
    assert_int_equal(follow(&k), 0);
    assert_string_equal(k.word, "pending");
    assert_int_equal(n_jobs, 2);
}

static void followed_to_the_end(void **state)
{
    struct looks k = {.stop_at = 2};
    struct run_state s;
    char id[SCHED_ID_BYTES];
    (void)state;
    make_run("successor");
    assert_int_equal(claim(0), 0);
    struct sched_self self = self_of(0);
    struct attempt a;
    s = state_now();
    attempt_init(&a, l.run_dir, &self);
    assert_int_equal(attempt_lock(&a, NULL), 0);
    assert_int_equal(attempt_claim(&a, &s, &untold, NULL), 0);
    attempt_end(&a, CAUSE_PREEMPT, -1, 9, "gone");
    attempt_release(&a);
    run_state_release(&s);
    assert_int_equal(succeed(0, id), 0);
    jobs[0].state = jobs[1].state = SCHED_UNKNOWN;
    assert_int_equal(follow(&k), 0);
    assert_int_equal(n_jobs, 3); /* both are over: one more, which comes after nobody */
    assert_string_equal(jobs[2].after, "");
}

#define IN_SCRATCH(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
int main(void)
{
    const struct CMUnitTest all[] = {IN_SCRATCH(decides),
                                     IN_SCRATCH(once), IN_SCRATCH(one_lives),
                                     IN_SCRATCH(cancelled_silently), IN_SCRATCH(stopped_silently),
                                     IN_SCRATCH(ended_by_itself),
                                     IN_SCRATCH(node_lost_silently),
                                     IN_SCRATCH(node_lost_without_notice), IN_SCRATCH(taken_up),
                                     IN_SCRATCH(forgotten), IN_SCRATCH(forgotten_since),
                                     IN_SCRATCH(gone), IN_SCRATCH(followed),
                                     IN_SCRATCH(followed_to_the_end)};
    return cmocka_run_group_tests_name("successors", all, NULL, NULL);
}
