/* The simulated cluster: what happens when, to the second; the same again with the same seed; and
 * thousands of jobs on thousands of nodes, with every node's cores counted. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/philox.h"
#include "launcher/sched/sim.h"

#define START 1.8e9

static const struct sim_partition modes[] = {{"low", 0, SCHED_PREEMPT_REQUEUE, 10, 0},
                                             {"once", 0, SCHED_PREEMPT_CANCEL, 0, 0},
                                             {"slept", 0, SCHED_PREEMPT_SUSPEND, 0, 0},
                                             {"high", 1, SCHED_PREEMPT_OFF, 0, 5000}};

/* What executions do is in their program's arguments: "SECONDS CODE", seconds "hang" for ever. */
static void play(void *ctx, const struct sim_exec *exec, struct sim_outcome *out)
{
    (void)ctx;
    bool hangs = strcmp(exec->argv[1], "hang") == 0;
    *out = (struct sim_outcome){hangs ? INFINITY : atof(exec->argv[1]), atoi(exec->argv[2]), 0};
}

static void deaf(void *ctx, const struct sim_exec *exec, int signo, struct sim_outcome *out)
{
    (void)ctx, (void)exec, (void)signo, (void)out;
}

struct job {
    const char *seconds, *code, *partition, *after, *exclude;
    int nodes, cores, signal;
    double limit_s, lead_s;
    bool requeue;
};

static int submit_try(struct sched *s, int k, const struct job *j, char id[SCHED_ID_BYTES],
                      struct err *err)
{
    static const char *const env[] = {NULL};
    const char *argv[] = {"/bin/job", j->seconds, j->code ? j->code : "0", NULL};
    char token[33], name[16];
    struct sched_spec spec = SCHED_SPEC_INIT;
    snprintf(token, sizeof token, "%032x", k);
    snprintf(name, sizeof name, "job%d", k);
    spec.token = token, spec.name = name;
    spec.argv = argv, spec.env = env;
    spec.cwd = "/", spec.log_path = "/log";
    spec.partition = j->partition, spec.after = j->after, spec.exclude = j->exclude;
    spec.nodes = j->nodes ? j->nodes : 1;
    spec.cores_per_node = j->cores;
    spec.time_limit_s = j->limit_s;
    spec.signal = j->signal, spec.signal_lead_s = j->lead_s;
    spec.requeue = j->requeue;
    return sched_submit(s, &spec, id, err);
}

static const char *submit(struct sched *s, int k, struct job j)
{
    static char ids[64][SCHED_ID_BYTES];
    struct err err = {0};
    if (submit_try(s, k, &j, ids[k % 64], &err) < 0)
        fail_msg("%s", err.text);
    return ids[k % 64];
}

static struct sched_job look(struct sched *s, const char *id)
{
    static struct sched_jobs jobs;
    assert_int_equal(sched_poll(s, NULL, &jobs, NULL), 0);
    const struct sched_job *job = sched_jobs_find(&jobs, id);
    assert_non_null(job);
    struct sched_job out = *job;
    out.id = id;
    out.token = out.name = "";
    static char reason[128];
    snprintf(reason, sizeof reason, "%s", job->reason);
    out.reason = reason;
    sched_jobs_release(&jobs);
    return out;
}

static struct sched *open_sim(const struct sim_conf *conf)
{
    struct sched *s = NULL;
    struct err err = {0};
    if (sched_sim_open(conf, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static struct sim_conf small(void)
{
    struct sim_conf conf = SIM_CONF_INIT;
    conf.nodes = 4;
    conf.cores_per_node = 8;
    conf.partitions = modes;
    conf.n_partitions = 4;
    conf.run = play;
    return conf;
}

/* Holds a job to its state, and to when it last started and ended: seconds after START, -1 for
 * "not". */
static void is(struct sched *s, const char *id, enum sched_state state, double started,
               double ended)
{
    struct sched_job job = look(s, id);
    double begun = job.started_at > 0 ? job.started_at - START : -1,
           over = job.ended_at > 0 ? job.ended_at - START : -1;
    if (job.state != state || begun != started || over != ended)
        fail_msg("job %s is %s (%s) from %g to %g; expected %s from %g to %g", id,
                 sched_state_name(job.state), job.reason, begun, over, sched_state_name(state),
                 started, ended);
}

/* ---- to the second ---- */

static void ends(void **state)
{
    struct sim_conf conf = small();
    struct sched *s = open_sim(&conf);
    (void)state;
    const char *ok = submit(s, 1, (struct job){"100", .nodes = 4}),
               *bad = submit(s, 2, (struct job){"50", "3", .nodes = 4}),
               *half = submit(s, 3, (struct job){"10", .cores = 4, .after = bad}),
               *rest = submit(s, 4, (struct job){"20", .cores = 4, .nodes = 4}),
               *late = submit(s, 5, (struct job){"hang", .limit_s = 60});
    sched_sim_advance(s, 120);
    is(s, ok, SCHED_DONE, 0, 100);
    is(s, bad, SCHED_RUNNING, 100, -1);
    assert_non_null(strstr(look(s, half).reason, "Dependency"));
    sched_sim_advance(s, 1000);
    is(s, bad, SCHED_FAILED, 100, 150);
    assert_int_equal(look(s, bad).exit_code, 3);
    is(s, half, SCHED_DONE, 150, 160);
    is(s, rest, SCHED_DONE, 150, 170); /* both have room on the first node */
    is(s, late, SCHED_TIME_LIMIT, 170, 230);
    assert_false(sched_sim_step(s));
    sched_close(s);
}

static void preempts(void **state)
{
    struct sim_conf conf = small();
    (void)state;
    conf.hear = deaf;
    struct sched *s = open_sim(&conf);
    const char *low = submit(s, 1, (struct job){"100", .partition = "low", .requeue = true}),
               *once = submit(s, 2, (struct job){"100", .partition = "once", .requeue = true}),
               *slept = submit(s, 3, (struct job){"100", .partition = "slept"}),
               *high = submit(s, 4, (struct job){"100", .partition = "high"});
    sched_sim_advance(s, 20);
    const char *two = submit(s, 5, (struct job){"200", .partition = "high", .nodes = 2});
    sched_sim_advance(s, 5);
    is(s, low, SCHED_RUNNING, 0, -1); /* two give way, the youngest first */
    is(s, slept, SCHED_SUSPENDED, 0, -1);
    is(s, once, SCHED_STOPPING, 0, -1);
    is(s, two, SCHED_PENDING, -1, -1);
    sched_sim_advance(s, 30); /* SIGKILL is at 20 + 30 */
    is(s, once, SCHED_CANCELLED, 0, 50);
    is(s, two, SCHED_RUNNING, 50, -1);
    const char *more = submit(s, 6, (struct job){"10", .partition = "high"});
    sched_sim_advance(s, 41);
    is(s, low, SCHED_REQUEUED, 0, 95); /* 55, 10 of grace, 30 to SIGKILL */
    is(s, more, SCHED_RUNNING, 95, -1);
    sched_sim_advance(s, 1000);
    is(s, high, SCHED_DONE, 0, 100);
    is(s, low, SCHED_DONE, 100, 200);
    is(s, two, SCHED_DONE, 50, 250);
    is(s, slept, SCHED_DONE, 0, 330); /* 80 were left of it */
    assert_int_equal(look(s, low).restarts, 1);
    sched_close(s);
}

struct heard {
    int n;
    struct sim_told told[64];
};

static void listen(void *ctx, const struct sim_told *told)
{
    struct heard *h = ctx;
    if (told->what == SIM_SIGNALLED && h->n < 64)
        h->told[h->n++] = *told;
}

static void signals(void **state)
{
    static const struct {
        double at;
        int signo;
    } expected[] = {{70, SIGUSR1}, {100, SIGTERM}, {130, SIGKILL}, {140, SIGUSR2}, {150, SIGTERM},
                    {180, SIGKILL}};
    struct heard h = {0};
    struct sim_conf conf = small();
    (void)state;
    conf.hear = deaf, conf.tell = listen, conf.ctx = &h;
    struct sched *s = open_sim(&conf);
    submit(s, 1, (struct job){"hang", .nodes = 4, .limit_s = 100, .lead_s = 30, .signal = SIGUSR1});
    const char *low = submit(s, 2, (struct job){"hang", .nodes = 4, .signal = SIGUSR2});
    sched_sim_advance(s, 140);
    struct sched_ending end;
    submit(s, 3, (struct job){"10", .partition = "high"});
    sched_sim_advance(s, 1);
    assert_int_equal(sched_ending(s, low, &end, NULL), 0);
    assert_true(end.why == SCHED_END_PREEMPTED && !end.is_killed);
    sched_sim_advance(s, 15);
    assert_int_equal(sched_ending(s, low, &end, NULL), 0);
    assert_true(end.is_killed);
    sched_sim_advance(s, 100);
    assert_int_equal(h.n, 6);
    for (int i = 0; i < h.n; i++)
        if (h.told[i].at_s - START != expected[i].at || h.told[i].detail != expected[i].signo)
            fail_msg("signal %d: %d at %g", i, h.told[i].detail, h.told[i].at_s - START);
    is(s, low, SCHED_CANCELLED, 130, 180);
    sched_close(s);
}

static void nodes_fail(void **state)
{
    struct sim_conf conf = small();
    char node[SCHED_ID_BYTES];
    (void)state;
    conf.repair_s = 1000;
    struct sched *s = open_sim(&conf);
    const char *again = submit(s, 1, (struct job){"400", .nodes = 2, .requeue = true}),
               *lost = submit(s, 2, (struct job){"400", .exclude = "n[0-1,3]"}),
               *other = submit(s, 3, (struct job){"400"});
    sched_sim_advance(s, 50);
    sched_sim_node_fail(s, 1);
    sched_sim_node_fail(s, 2);
    sched_sim_advance(s, 299);
    is(s, again, SCHED_RUNNING, 0, -1); /* nobody knows yet */
    struct sched_loss loss = {START, sched_sim_now(s)};
    assert_int_equal(sched_lost_node(s, "n[0-3]", &loss, node, NULL), 0);
    assert_string_equal(node, "");
    sched_sim_advance(s, 2);
    is(s, again, SCHED_REQUEUED, 0, 350);
    is(s, lost, SCHED_NODE_FAIL, 0, 350);
    assert_non_null(strstr(look(s, lost).reason, "n2"));
    loss.down_by = sched_sim_now(s);
    assert_int_equal(sched_lost_node(s, "n[0,2-3]", &loss, node, NULL), 0);
    assert_string_equal(node, "n2");
    sched_sim_advance(s, 1000);
    is(s, other, SCHED_DONE, 0, 400);
    is(s, again, SCHED_DONE, 400, 800); /* on the two that are left */
    const char *all = submit(s, 4, (struct job){"1", .nodes = 4});
    sched_sim_advance(s, 10);
    is(s, all, SCHED_DONE, 1351, 1352); /* both are back */
    sched_close(s);
}

/* ---- steps ---- */

static struct sched_step *step(struct sched *s, const char *seconds, int cores, double deadline_s)
{
    static const char *const env[] = {NULL};
    const char *argv[] = {"/bin/step", seconds, "4", NULL};
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct sched_step *out = NULL;
    struct err err = {0};
    spec.argv = argv, spec.env = env;
    spec.ranks = 2, spec.cores = cores, spec.deadline_s = deadline_s;
    if (sched_step_start(s, &spec, &out, &err) < 0)
        assert_int_equal(err.code, ERR_LIMIT);
    return out;
}

static void steps(void **state)
{
    struct sched_step_status st;
    struct sim_conf conf = small();
    (void)state;
    struct sched *s = open_sim(&conf);
    const char *job = submit(s, 1, (struct job){"hang", .nodes = 2, .cores = 4});
    sched_sim_advance(s, 1);
    assert_int_equal(sched_sim_enter(s, job, NULL), 0);
    struct sched_step *a = step(s, "10", 3, 0), *b = step(s, "hang", 1, 20);
    assert_non_null(a);
    assert_null(step(s, "1", 1, 0)); /* no core is left */
    assert_int_equal(sched_step_poll(a, 4, &st, NULL), 0);
    assert_true(!st.ended && sched_sim_now(s) == START + 5);
    assert_int_equal(sched_step_poll(a, -1, &st, NULL), 0);
    assert_true(st.ended && st.exit_code == 4 && st.ended_at == START + 11);
    assert_int_equal(sched_step_poll(b, 100, &st, NULL), 0);
    assert_true(st.ended && st.timed_out && st.exit_signal == SIGTERM &&
                st.ended_at == START + 21);
    sched_step_free(a);
    sched_step_free(b);
    a = step(s, "hang", 4, 0);
    assert_true(sched_step_poll(a, -1, &st, NULL) < 0); /* nothing is to come */
    double at_s = sched_sim_now(s) - START;
    sched_sim_node_fail(s, 1);
    assert_int_equal(sched_step_poll(a, 1000, &st, NULL), 0);
    assert_true(st.ended && st.lost && st.ended_at == START + at_s + 300);
    assert_string_equal(st.node_lost, "n1");
    sched_step_free(a);
    is(s, job, SCHED_NODE_FAIL, 0, at_s + 300); /* the job is lost with the node */
    sched_close(s);
}

/* ---- the controller's faults ---- */

static void asks_again(void **state)
{
    enum { JOBS = 200 };
    struct sim_conf conf = small();
    struct sched_jobs jobs = {0};
    struct err err = {0};
    char id[SCHED_ID_BYTES];
    int failed = 0;
    (void)state;
    conf.faults = (struct sim_faults){.silent = 0.3, .silent_s = 10, .lost = 0.3, .slow_s = 0.1};
    struct sched *s = open_sim(&conf);
    for (int k = 0; k < JOBS; k++)
        for (int rc; (rc = submit_try(s, k, &(struct job){"5"}, id, &err)) < 0; failed++)
            assert_int_equal(rc, ERR_TEMP);
    while (sched_poll(s, NULL, &jobs, NULL) < 0)
        failed++;
    assert_int_equal(jobs.n, JOBS); /* one of each token */
    sched_jobs_release(&jobs);
    assert_true(failed > JOBS / 2 && failed < 4 * JOBS);
    assert_true(sched_sim_now(s) > START + 1000);
    sched_close(s);
}

static void bad_conf(void **state)
{
    struct sim_conf conf = small();
    struct sched *s = NULL;
    struct err err = {0};
    (void)state;
    conf.nodes = 0;
    assert_int_equal(sched_sim_open(&conf, &s, &err), ERR_INPUT);
    conf = small();
    conf.faults.lost = 1;
    assert_int_equal(sched_sim_open(&conf, &s, &err), ERR_INPUT);
    assert_null(s);
}

/* ---- many ---- */

enum { NODES = 4096, JOBS = 10000, CORES = 64 };

struct many {
    uint64_t seed, hash;
    int64_t events;
    int cores[NODES], most;  /* taken now, by what was told; the most there ever were */
    struct {
        int where[512], nodes, cores;
    } jobs[JOBS + 1];
};

/* Draws a job by its number. */
static struct job drawn(uint64_t seed, int k, char seconds[24])
{
    uint64_t i = (uint64_t)k;
    double u = philox_uniform_at(seed, PHILOX_TEST, 101, i);
    bool whole = philox_uniform_at(seed, PHILOX_TEST, 102, i) < 0.7;
    snprintf(seconds, 24, "%.3f", -3600 * log(philox_uniform_at(seed, PHILOX_TEST, 103, i)));
    return (struct job){.seconds = seconds, .code = k % 50 ? "0" : "1",
                        .partition = modes[k % 4].name,
                        .nodes = (int)exp2(9 * u), .cores = whole ? 0 : CORES / 4,
                        .limit_s = 5000, .requeue = k % 3 != 0};
}

static void many_run(void *ctx, const struct sim_exec *exec, struct sim_outcome *out)
{
    struct many *m = ctx;
    int k = atoi(exec->job);
    play(NULL, exec, out);
    assert_true(exec->nodes <= 512);
    m->jobs[k].nodes = exec->nodes;
    memcpy(m->jobs[k].where, exec->where, (size_t)exec->nodes * sizeof(int));
}

/* Counts the cores of a job's nodes, up or down. */
static void many_count(struct many *m, int64_t job, int sign)
{
    for (int i = 0; i < m->jobs[job].nodes; i++) {
        int *cores = &m->cores[m->jobs[job].where[i]];
        *cores += sign * m->jobs[job].cores;
        assert_true(*cores >= 0 && *cores <= CORES);
    }
}

static void many_tell(void *ctx, const struct sim_told *t)
{
    struct many *m = ctx;
    uint64_t bits;
    memcpy(&bits, &t->at_s, sizeof bits);
    m->hash = (m->hash ^ bits ^ (uint64_t)t->job << 8 ^ (uint64_t)t->what ^
               (uint64_t)t->detail << 40) * 0x100000001b3u;
    m->events++;
}

/* Every so often no node has more than its cores: by the jobs that run and where they were put. */
static void many_check(struct sched *s, struct many *m)
{
    struct sched_jobs jobs = {0};
    assert_int_equal(sched_poll(s, NULL, &jobs, NULL), 0);
    memset(m->cores, 0, sizeof m->cores);
    for (size_t i = 0; i < jobs.n; i++) {
        const struct sched_job *j = &jobs.jobs[i];
        m->jobs[i + 1].cores = j->cores_per_node;
        if (j->state == SCHED_RUNNING || j->state == SCHED_STOPPING)
            many_count(m, (int64_t)i + 1, 1);
    }
    sched_jobs_release(&jobs);
}

static int64_t many_ended(struct sched *s, struct sched_jobs *jobs, int of[SCHED_NODE_FAIL + 1])
{
    int64_t n = 0;
    assert_int_equal(sched_poll(s, NULL, jobs, NULL), 0);
    for (size_t i = 0; i < jobs->n; i++) {
        of[jobs->jobs[i].state]++;
        n += sched_state_ended(jobs->jobs[i].state);
    }
    return n;
}

/* Simulates the whole workload; returns its hash. */
static uint64_t simulate(uint64_t seed, int jobs_n, bool counted, struct many *m)
{
    struct sim_conf conf = SIM_CONF_INIT;
    struct sched_jobs jobs = {0};
    int of[SCHED_NODE_FAIL + 1] = {0};
    char seconds[24];
    memset(m, 0, sizeof *m);
    m->seed = seed;
    conf.seed = seed, conf.nodes = NODES, conf.cores_per_node = CORES;
    conf.partitions = modes, conf.n_partitions = 4;
    conf.noise = 0.1, conf.node_mean_s = 3e7, conf.requeue_delay_s = 120;
    conf.run = many_run, conf.tell = many_tell, conf.ctx = m;
    struct sched *s = open_sim(&conf);
    for (int k = 1; k <= jobs_n; k++) {
        submit(s, k, drawn(seed, k, seconds));
        sched_sim_advance(s, 7);
        if (counted && k % 500 == 0)
            many_check(s, m);
    }
    while (many_ended(s, &jobs, memset(of, 0, sizeof of)) < jobs_n)
        sched_sim_advance(s, 3600);
    double days = (sched_sim_now(s) - START) / 86400;
    int64_t restarts = 0;
    for (size_t i = 0; i < jobs.n; i++)
        restarts += jobs.jobs[i].restarts;
    if (counted)
        print_message("%d jobs, %.1f days, %lld events; %lld requeues; done %d, failed %d, "
                      "cancelled %d, time limit %d, node fail %d\n",
                      jobs_n, days, (long long)m->events, (long long)restarts, of[SCHED_DONE],
                      of[SCHED_FAILED], of[SCHED_CANCELLED], of[SCHED_TIME_LIMIT],
                      of[SCHED_NODE_FAIL]);
    for (int k = SCHED_DONE; counted && k <= SCHED_NODE_FAIL; k++)
        assert_true(of[k] > 0);
    sched_jobs_release(&jobs);
    sched_close(s);
    return m->hash;
}

static void ten_thousand_jobs(void **state)
{
    struct many *m = malloc(sizeof *m);
    double begin_s = clock_mono_s();
    (void)state;
    assert_non_null(m);
    simulate(1, JOBS, true, m);
    print_message("%d jobs on %d nodes in %.1f s\n", JOBS, NODES, clock_mono_s() - begin_s);
    free(m);
}

static void same_seed(void **state)
{
    struct many *m = malloc(sizeof *m);
    (void)state;
    assert_non_null(m);
    uint64_t first = simulate(1, 1000, false, m);
    int64_t events = m->events;
    assert_true(simulate(1, 1000, false, m) == first && m->events == events);
    assert_true(simulate(2, 1000, false, m) != first);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends),       cmocka_unit_test(preempts),   cmocka_unit_test(signals),
        cmocka_unit_test(nodes_fail), cmocka_unit_test(steps),      cmocka_unit_test(asks_again),
        cmocka_unit_test(bad_conf),   cmocka_unit_test(same_seed),
        cmocka_unit_test(ten_thousand_jobs)};
    return cmocka_run_group_tests_name("the simulated cluster", tests, NULL, NULL);
}
