/* Checks that the two ways to ask a Slurm controller agree: in their reports on every kind of job
 * and on the site, in their submissions as Slurm and the job see them, and in their errors.
 * t8020-helper runs this program on a private cluster of two nodes with 4 cores each:
 *
 *     same HELPER SLURMCTLD_PID
 */
// LINK: -lcmocka
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "launcher/sched/slurm_rpc.h"

enum { COMMANDS, HELPER, N_WAYS };
static struct slurm_rpc *ways[N_WAYS];
static const char *helper;
static pid_t controller;
static char dir[256];
static struct arena arena;
static const char *plain_env[] = {"PATH=/usr/bin:/bin", NULL /* SLURM_CONF */,
                                  "ODD=a%41 b\nc'\"\\\xc3\xa9\xff", NULL};

static struct err why;
#define must(call)                              \
    do {                                        \
        if ((call) < 0)                         \
            fail_msg("%s: %s", #call, why.text); \
    } while (0)

/* ---- jobs ---- */

static struct sched_spec spec_of(const char *name)
{
    struct sched_spec s = SCHED_SPEC_INIT;
    s.name = name;
    s.cwd = dir;
    s.log_path = "/dev/null";
    s.cores_per_node = 1;
    s.requeue = true;
    s.time_limit_s = 600;
    return s;
}

static const char *submit(int way, const struct sched_spec *s, const char *script)
{
    static char id[SCHED_ID_BYTES];
    struct slurm_submit what = {
        .spec = s, .comment = "reel:same", .script = script, .env = plain_env};
    must(ways[way]->ops->submit(ways[way], &what, id, &why));
    return arena_strdup(&arena, id);
}

static const struct slurm_job *job(int way, const char *id)
{
    struct slurm_jobs jobs;
    must(ways[way]->ops->jobs(ways[way], id, &arena, &jobs, &why));
    return jobs.n ? jobs.v : NULL;
}

/* Waits until the job is in this state. With state NULL it waits until the job was requeued; the
 * job may run again by then. */
static void wait_for(const char *id, const char *state)
{
    const struct slurm_job *j = NULL;
    for (double end = clock_mono_s() + 300; clock_mono_s() < end; clock_sleep_s(0.1))
        if ((j = job(HELPER, id)) && (state ? strcmp(j->state, state) == 0 : j->restarts == 1))
            return;
    fail_msg("job %s is %s, not %s", id, j ? j->state : "gone", state ? state : "requeued");
}

static const char *output_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static const char *output_of(const char *fmt, ...)
{
    char command[512], buf[4096];
    struct str out = STR_INIT;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(buf, 1, sizeof buf, f));)
        str_addn(&out, buf, n);
    pclose(f);
    const char *copy = arena_strdup(&arena, out.p);
    str_release(&out);
    return copy;
}

/* ---- reports ---- */

static void assert_same_job(const struct slurm_job *a, const struct slurm_job *b)
{
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->handle, b->handle);
    assert_string_equal(a->state, b->state);
    assert_string_equal(a->reason, b->reason);
    assert_string_equal(a->comment, b->comment);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->partition, b->partition);
    assert_int_equal(a->restarts, b->restarts);
    assert_int_equal(a->nodes, b->nodes);
    assert_int_equal(a->cores, b->cores);
    assert_int_equal(a->nice, b->nice);
    assert_int_equal(a->exit_status, b->exit_status);
    assert_int_equal(a->requeue, b->requeue);
    assert_true(a->submitted_at == b->submitted_at);
    assert_true(a->started_at == b->started_at);
    assert_true(a->ended_at == b->ended_at);
}

/* Compares the two reports on jobs of every kind. The reports are repeated, at most 20 times, until
 * no job changed between them. */
static void test_jobs(void **state)
{
    static const char *const kinds[][2] = {
        {"completed", "COMPLETED"}, {"failed", "FAILED"},       {"killed", "FAILED"},
        {"running", "RUNNING"},     {"requeued", NULL},         {"endless", "RUNNING"},
        {"held", "PENDING"},        {"cancelled", "CANCELLED"}, {"pending", "PENDING"}};
    enum { REQUEUED = 4, ENDLESS, HELD, CANCELLED, WAITING, N };
    static const char *const scripts[] = {"#!/bin/sh\n", "#!/bin/sh\nexit 3\n",
                                          "#!/bin/sh\nkill -9 $$\n",
                                          "#!/bin/sh\nexec sleep 3000\n"};
    const char *ids[N];
    struct slurm_jobs a, b, again;
    (void)state;
    for (int i = 0; i < N; i++) {
        struct sched_spec s = spec_of(kinds[i][0]);
        s.requeue = i != 1;
        /* takes all nodes, so that it cannot start before it is held */
        bool wide = i == WAITING || i == HELD;
        s.nodes = wide ? 2 : 1;
        s.cores_per_node = wide ? 4 : 1;
        s.time_limit_s = i == ENDLESS ? 0 : 600;
        ids[i] = submit(i % N_WAYS, &s, scripts[i < 3 ? i : 3]);
        if (i == HELD)
            output_of("scontrol hold %s", ids[i]);
        if (i == CANCELLED)
            must(ways[HELPER]->ops->cancel(ways[HELPER], ids[i], &why));
        if (i == REQUEUED) {
            wait_for(ids[i], "RUNNING");
            must(ways[HELPER]->ops->requeue(ways[HELPER], ids[i], &why));
        }
    }
    for (int i = 0; i < N; i++)
        wait_for(ids[i], kinds[i][1]);
    assert_int_equal(job(HELPER, ids[REQUEUED])->restarts, 1);
    for (int tries = 0, same = 0; !same; tries++) {
        assert_true(tries < 20);
        must(ways[COMMANDS]->ops->jobs(ways[COMMANDS], NULL, &arena, &a, &why));
        must(ways[HELPER]->ops->jobs(ways[HELPER], NULL, &arena, &b, &why));
        must(ways[COMMANDS]->ops->jobs(ways[COMMANDS], NULL, &arena, &again, &why));
        same = a.n == again.n;
        for (size_t i = 0; same && i < a.n; i++)
            same = strcmp(a.v[i].state, again.v[i].state) == 0 &&
                   strcmp(a.v[i].reason, again.v[i].reason) == 0 &&
                   a.v[i].started_at == again.v[i].started_at &&
                   a.v[i].ended_at == again.v[i].ended_at;
    }
    assert_int_equal(a.n, b.n);
    assert_true(a.n >= N);
    for (size_t i = 0, k; i < a.n; i++) {
        for (k = 0; k < b.n && strcmp(a.v[i].id, b.v[k].id) != 0; k++)
            ;
        assert_true(k < b.n);
        assert_same_job(&a.v[i], &b.v[k]);
    }
    for (int i = 3; i < N; i++) {
        if (i != CANCELLED)
            must(ways[i % N_WAYS]->ops->cancel(ways[i % N_WAYS], ids[i], &why));
        wait_for(ids[i], "CANCELLED");
    }
}

/* Starts an array of two jobs that wait for their cancellation. Returns its id, which is the id of
 * the job of its last task too; *other is the id of the first. */
static const char *array_start(const char **other)
{
    const char *id = output_of("sbatch --parsable --array=0-1 -o /dev/null --requeue "
                               "--wrap 'exec sleep 3000' | tr -d '\\n'");
    for (double end = clock_mono_s() + 300; clock_mono_s() < end; clock_sleep_s(0.1))
        if (strcmp(output_of("squeue -h -t R -j %s | wc -l", id), "2\n") == 0)
            break;
    *other = output_of("squeue -h -t R -j %s_0 -o %%A | tr -d '\\n'", id);
    return id;
}

/* Acts on the task of an array whose job has the array's id, and on no other task. */
static void test_array(void **state)
{
    (void)state;
    for (int way = 0; way < N_WAYS; way++) {
        struct slurm_jobs jobs;
        const char *other, *id = array_start(&other);
        must(ways[way]->ops->jobs(ways[way], id, &arena, &jobs, &why));
        assert_int_equal(jobs.n, 1);
        assert_string_equal(jobs.v[0].id, id);
        const char *one = jobs.v[0].handle;
        must(ways[way]->ops->comment(ways[way], one, "noted", &why));
        must(ways[way]->ops->requeue(ways[way], one, &why));
        assert_string_equal(job(way, id)->comment, "noted");
        assert_int_equal(job(way, id)->restarts, 1);
        must(ways[way]->ops->cancel(ways[way], one, &why));
        assert_string_equal(job(way, other)->comment, "");
        assert_int_equal(job(way, other)->restarts, 0);
        assert_string_equal(job(way, other)->state, "RUNNING");
        must(ways[way]->ops->cancel(ways[way], job(way, other)->handle, &why));
    }
}

static void test_site(void **state)
{
    struct slurm_site a, b;
    (void)state;
    must(ways[COMMANDS]->ops->site(ways[COMMANDS], &arena, &a, &why));
    must(ways[HELPER]->ops->site(ways[HELPER], &arena, &b, &why));
    assert_string_equal(a.site.name, b.site.name);
    assert_string_equal(a.version, b.version);
    assert_string_equal(a.preempt_type, b.preempt_type);
    assert_string_equal(a.proctrack, b.proctrack);
    assert_string_equal(a.topology, b.topology);
    assert_string_equal(a.accounting, b.accounting);
    assert_int_equal(a.job_requeue, b.job_requeue);
    assert_true(a.min_job_age_s == b.min_job_age_s);
    assert_true(a.site.kill_wait_s == b.site.kill_wait_s);
    assert_true(a.site.requeue_delay_s == b.site.requeue_delay_s);
    assert_true(a.site.node_timeout_s == b.site.node_timeout_s);
    assert_int_equal(a.site.user_signal, b.site.user_signal);
    assert_int_equal(a.site.n_partitions, b.site.n_partitions);
    assert_int_equal(a.site.n_partitions, 2);
    for (size_t i = 0; i < a.site.n_partitions; i++) {
        const struct sched_partition *p = &a.site.partitions[i], *q = &b.site.partitions[i];
        assert_string_equal(p->name, q->name);
        assert_int_equal(p->is_default, q->is_default);
        assert_int_equal(p->preempt, q->preempt);
        assert_true(p->grace_s == q->grace_s);
        assert_true(p->max_time_s == q->max_time_s);
        assert_int_equal(p->nodes, q->nodes);
        assert_int_equal(p->cores_per_node, q->cores_per_node);
        assert_int_equal(p->gpus_per_node, q->gpus_per_node);
    }
}

static void test_net(void **state)
{
    struct slurm_net a, b;
    (void)state;
    output_of("scontrol update nodename=n1 state=drain reason='a [new] fan'");
    must(ways[COMMANDS]->ops->net(ways[COMMANDS], true, &arena, &a, &why));
    must(ways[HELPER]->ops->net(ways[HELPER], true, &arena, &b, &why));
    output_of("scontrol update nodename=n1 state=resume");
    assert_string_equal(a.kind, "tree");
    assert_string_equal(a.kind, b.kind);
    assert_int_equal(a.n_nodes, 2);
    assert_int_equal(b.n_nodes, 2);
    for (size_t i = 0; i < a.n_nodes; i++) {
        const struct slurm_node *p = &a.nodes[i], *q = &b.nodes[i];
        assert_string_equal(p->name, q->name);
        assert_string_equal(p->state, q->state);
        assert_string_equal(p->reason, q->reason);
        assert_string_equal(p->reason, i ? "a [new] fan" : "");
        assert_true(p->boot_at == q->boot_at && p->boot_at > 1e9);
        assert_string_equal(p->gres, q->gres);
        assert_string_equal(p->partitions, q->partitions);
        assert_string_equal(p->partitions, "low,high");
        assert_int_equal(p->cpus, q->cpus);
        assert_int_equal(p->sockets, q->sockets);
        assert_int_equal(p->cores_per_socket, q->cores_per_socket);
        assert_int_equal(p->threads_per_core, q->threads_per_core);
        assert_int_equal(p->gpus, q->gpus);
        assert_true(p->memory_bytes == q->memory_bytes && p->memory_bytes == (int64_t)1 << 30);
    }
    assert_int_equal(a.n_switches, 2);
    assert_int_equal(b.n_switches, 2);
    for (size_t i = 0; i < a.n_switches; i++) {
        assert_string_equal(a.switches[i].name, b.switches[i].name);
        assert_string_equal(a.switches[i].nodes, b.switches[i].nodes);
        assert_string_equal(a.switches[i].children, b.switches[i].children);
        assert_string_equal(a.switches[i].children, i ? "leaf[0-0]" : "");
    }
    for (int way = 0; way < N_WAYS; way++) {
        must(ways[way]->ops->net(ways[way], false, &arena, &a, &why));
        assert_true(a.n_nodes == 0 && a.n_switches == 2);
    }
}

/* ---- submissions ---- */

/* Tells whether a "key=value" word may differ between the two jobs: ids of the job itself, and
 * times. */
static bool own(const char *word)
{
    static const char *const keys[] = {
        "JobId=",     "SubmitTime=",    "EligibleTime=", "AccrueTime=",          "StartTime=",
        "EndTime=",   "LastSchedEval=", "RunTime=",      "PreemptEligibleTime=", "Priority=",
        "Scheduler=", "SLURM_JOB_ID=",  "SLURM_JOBID=",  "SLURM_TASK_PID=",      "SLURM_CONF="};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (str_starts(word, keys[i]))
            return true;
    /* scontrol replaces %j by the job's id */
    return str_starts(word, "Std") && strchr(word, '%');
}

/* Returns a word with one form of an unlimited time, because the backfill scheduler reports it as a
 * year and the main scheduler does not. */
static const char *unlimited(const char *word)
{
    return strcmp(word, "TimeLimit=365-00:00:00") == 0 ? "TimeLimit=UNLIMITED" : word;
}

static void assert_same_words(const char *a, const char *b, const char *between)
{
    char *x = arena_strdup(&arena, a), *y = arena_strdup(&arena, b), *at_x, *at_y;
    char *p = strtok_r(x, between, &at_x), *q = strtok_r(y, between, &at_y);
    for (; p && q; p = strtok_r(NULL, between, &at_x), q = strtok_r(NULL, between, &at_y))
        if (!own(p) || !own(q))
            assert_string_equal(unlimited(p), unlimited(q));
    assert_true(!p && !q);
}

static void test_submissions(void **state)
{
    static const char script[] =
        "#!/bin/sh\n(env | sort; ulimit -a; umask; pwd; cat) > \"out.$SLURM_JOB_ID\"\n"
        "echo first; echo second >&2\n";
    struct sched_spec specs[4];
    const char *ids[4][N_WAYS], *log;
    (void)state;
    for (int i = 0; i < 4; i++)
        specs[i] = spec_of("shape");
    specs[1].nodes = 2;
    specs[1].cores_per_node = 0;
    specs[1].gpus_per_node = 2;
    specs[1].requeue = false;
    specs[2].signal = SIGUSR1;
    specs[2].signal_lead_s = 90;
    specs[2].time_limit_s = 121;
    specs[2].partition = "high";
    specs[2].cores_per_node = 3;
    specs[2].exclude = "n0";
    specs[3].time_limit_s = 0;
    specs[3].log_path = log = arena_printf(&arena, "%s/log-%%j-'x'-%%%%", dir);
    for (int i = 0; i < 4; i++)
        for (int way = 0; way < N_WAYS; way++) {
            ids[i][way] = submit(way, &specs[i], script);
            wait_for(ids[i][way], "COMPLETED");
        }
    for (int i = 0; i < 4; i++) {
        const char *a = ids[i][COMMANDS], *b = ids[i][HELPER];
        assert_same_words(output_of("scontrol show job -o -d %s", a),
                          output_of("scontrol show job -o -d %s", b), " \n");
        assert_same_words(output_of("cat %s/out.%s", dir, a), output_of("cat %s/out.%s", dir, b),
                          "\n");
        assert_string_equal(output_of("scontrol write batch_script %s -", a),
                            output_of("scontrol write batch_script %s -", b));
        assert_non_null(strstr(output_of("cat %s/out.%s", dir, b), "SLURM_CPUS_ON_NODE="));
    }
    assert_string_equal(output_of("cat \"%s\"", log), "first\nsecond\nfirst\nsecond\n");
}

/* ---- errors ---- */

/* Signals and cancels jobs that do not exist. For a job that has ended, scancel finds none, and
 * libslurm reports that it has ended. */
static void test_no_such_job(void **state)
{
    struct sched_spec s = spec_of("ended");
    const char *ended = submit(HELPER, &s, "#!/bin/sh\n"),
               *ids[] = {"4000000", "99999999999", "", "x", ended};
    (void)state;
    wait_for(ended, "COMPLETED");
    for (int i = 0; i < 5; i++)
        for (int way = 0; way < N_WAYS; way++) {
            struct slurm_rpc *r = ways[way];
            struct slurm_jobs jobs = {0};
            int expected = ids[i] == ended && way == HELPER ? ERR_STATE : ERR_NOT_FOUND;
            if (ids[i] != ended && i < 2) {
                must(r->ops->jobs(r, ids[i], &arena, &jobs, &why));
                assert_int_equal(jobs.n, 0);
            }
            if (i > 1 && i < 4 && way == COMMANDS)
                continue; /* usage errors of scancel */
            assert_int_equal(r->ops->signal(r, ids[i], SIGUSR1, false, NULL), expected);
            assert_int_equal(r->ops->signal(r, ids[i], SIGUSR1, true, NULL), expected);
            assert_int_equal(r->ops->cancel(r, ids[i], NULL), 0);
        }
}

static void test_refused_submissions(void **state)
{
    static const int expected[] = {
        ERR_INPUT, 0 /* accepted: the job waits for ever */, 0, ERR_LIMIT, ERR_INPUT, ERR_LIMIT,
        0 /* accepted: the cluster has no accounting */};
    struct sched_spec bad[7];
    char id[SCHED_ID_BYTES];
    (void)state;
    for (int i = 0; i < 7; i++)
        bad[i] = spec_of("bad");
    bad[0].partition = "nowhere";
    bad[1].nodes = 7;
    bad[2].cores_per_node = 64;
    bad[3].gpus_per_node = 9;
    bad[4].exclude = "no-such-node";
    bad[5].exclude = "n[0-1]";
    bad[6].qos = "no-such-qos";
    for (int i = 0; i < 7; i++) {
        struct slurm_submit what = {
            .spec = &bad[i], .comment = "", .script = "#!/bin/sh\n", .env = plain_env};
        for (int way = 0; way < N_WAYS; way++) {
            int rc = ways[way]->ops->submit(ways[way], &what, id, &why);
            if (rc != expected[i])
                fail_msg("specification %d over %s: %s, %s", i, ways[way]->ops->name, err_name(rc),
                         rc < 0 ? why.text : id);
            if (rc == 0)
                must(ways[way]->ops->cancel(ways[way], id, &why));
        }
    }
}

/* ---- failures of the controller and the helper ---- */

static void test_helper_killed(void **state)
{
    struct slurm_jobs jobs;
    struct err err = {0};
    (void)state;
    job(HELPER, "1"); /* starts the helper */
    int pid = atoi(output_of("cat /proc/%d/task/%d/children", (int)getpid(), (int)getpid()));
    assert_true(pid > 0);
    /* A preemption signals every process of a batch step. A process answers nothing between a signal
     * that ends it and its end. */
    for (const int *s = (const int[]){SIGTERM, SIGUSR1, SIGHUP, SIGINT, 0}; *s; s++)
        assert_int_equal(kill(pid, *s), 0);
    must(ways[HELPER]->ops->jobs(ways[HELPER], NULL, &arena, &jobs, &why));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    assert_int_equal(ways[HELPER]->ops->jobs(ways[HELPER], NULL, &arena, &jobs, &err), ERR_TEMP);
    must(ways[HELPER]->ops->jobs(ways[HELPER], NULL, &arena, &jobs, &why));
}

static void test_controller_stopped(void **state)
{
    struct slurm_jobs jobs;
    struct err err = {0};
    double begin = clock_mono_s();
    (void)state;
    assert_int_equal(kill(controller, SIGSTOP), 0);
    int rc = ways[HELPER]->ops->jobs(ways[HELPER], NULL, &arena, &jobs, &err);
    assert_int_equal(kill(controller, SIGCONT), 0);
    print_message("# after %.1f s: %s\n", clock_mono_s() - begin, err.text);
    assert_int_equal(rc, ERR_TEMP);
    must(ways[HELPER]->ops->jobs(ways[HELPER], NULL, &arena, &jobs, &why));
}

/* ---- set-up, and the list of tests ---- */

static int setup(void **state)
{
    struct err err = {0};
    const char *tmp = getenv("TMPDIR");
    (void)state;
    arena_init(&arena, 0);
    plain_env[1] = arena_printf(&arena, "SLURM_CONF=%s", getenv("SLURM_CONF"));
    snprintf(dir, sizeof dir, "%.200s/same.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    umask(027); /* jobs inherit it */
    if (slurm_commands_open(&ways[COMMANDS], &err) < 0 ||
        slurm_helper_open(helper, &ways[HELPER], &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    output_of("scancel -u %d", (int)getuid()); /* jobs that a failed test left behind */
    for (int way = 0; way < N_WAYS; way++)
        ways[way]->ops->close(ways[way]);
    arena_release(&arena);
    return file_remove_tree(dir, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_site),          cmocka_unit_test(test_net),
        cmocka_unit_test(test_jobs),          cmocka_unit_test(test_submissions),
        cmocka_unit_test(test_array),
        cmocka_unit_test(test_no_such_job),   cmocka_unit_test(test_refused_submissions),
        cmocka_unit_test(test_helper_killed), cmocka_unit_test(test_controller_stopped),
    };
    if (argc < 3) {
        fprintf(stderr, "usage: same HELPER SLURMCTLD_PID [TEST]\n");
        return 2;
    }
    helper = argv[1];
    controller = (pid_t)atol(argv[2]);
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    return cmocka_run_group_tests_name("both ways to ask Slurm", all, setup, teardown);
}
