/* A trial against stand-in trainers (shell scripts that write what a trainer might), and what the
 * probe may have said. */
#include "tests/lib/test_profiles.h"

#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "autotune/probe.h"
#include "autotune/trial.h"
#include "base/file.h"

static char dir[LIMIT_PATH_BYTES - 64];

static volatile sig_atomic_t stop;
static bool stoppable;
static int status; /* of trial_run; what it says is known if it is 0 */

/* What the kernel shows: the files of `kernel_files`, "NAME\0TEXT\0" each. */
static char kernel[LIMIT_PATH_BYTES - 32];
static const char *kernel_files = "proc/vmstat\0pgfault 7\noom_kill 4\n\0";

static void kernel_make(void)
{
    char path[LIMIT_PATH_BYTES];
    struct err err;
    assert_ok(file_remove_tree(kernel, &err), &err);
    for (const char *name = kernel_files; *name;) {
        const char *text = name + strlen(name) + 1;
        snprintf(path, sizeof path, "%s/%s", kernel, name);
        *strrchr(path, '/') = '\0';
        assert_ok(file_mkdirs(path, &err), &err);
        snprintf(path, sizeof path, "%s/%s", kernel, name);
        assert_ok(file_publish(path, text, strlen(text), &err), &err);
        name = text + strlen(text) + 1;
    }
}

static struct trial_result trial_of(const char *script, double give_up_s, double quiet_s,
                                    int64_t limit_bytes)
{
    char bin[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES + 16], folder[LIMIT_PATH_BYTES];
    static int number;
    struct str text = STR_INIT;
    struct err err;
    struct sched *s;
    struct run run = {0};
    struct plan plan = {.layout = {.tp = 1, .cp = 1, .pp = 1, .vpp = 1, .dp = 1, .mbs = 1},
                        .seq = {1, 4, 4}, .gbs = 2, .dtype = DTYPE_F32};
    struct trial_result r = {0};
    snprintf(bin, sizeof bin, "%s/bin%d", dir, ++number);
    snprintf(path, sizeof path, "%s/reel-train", bin);
    snprintf(folder, sizeof folder, "%s/trial%d", dir, number);
    assert_ok(file_mkdirs(bin, &err), &err);
    /* the folder follows --run-dir */
    str_addf(&text,
             "#!/bin/sh\nargs=\"$*\"; while [ \"$1\" != --run-dir ]; do shift; done; d=$2\n%s\n",
             script);
    assert_ok(file_publish(path, text.p, text.len, &err), &err);
    assert_int_equal(chmod(path, 0755), 0);
    run_init(&run);
    assert_ok(model_load("dit-tiny", &run.model, &err), &err);
    run.n_stages = 1;
    run.warmup_steps = 0;
    run.stages[0] = (struct run_stage){.data = "synthetic:1x8x8", .gbs = 2, .steps = 4};
    snprintf(plan.model, sizeof plan.model, "dit-tiny");
    assert_ok(sched_open("local", dir, &s, &err), &err);
    kernel_make();
    struct trial_conf conf = {.sched = s, .bin_dir = bin, .dir = folder, .steps = 4,
                              .give_up_s = give_up_s, .start_s = quiet_s, .quiet_s = quiet_s,
                              .kernel_root = kernel, .limit_bytes = limit_bytes, .blas = "own",
                              .stop = stoppable ? &stop : NULL};
    status = trial_run(&conf, &run, &plan, &r, &err);
    if (status != ERR_TEMP || !stop)
        assert_ok(status, &err);
    sched_close(s);
    run_release(&run);
    str_release(&text);
    return r;
}

#define REPORT(steps, more)                                                                        \
    "cat > $d/trial.json << E\n{\"schema\": \"reel.trial/1\", \"steps\": " steps                   \
    ", \"step_s\": 0.25, \"tokens\": 32, "                                                         \
    "\"model_flops\": 1e9, \"mfu\": 0.5, \"peak_bytes\": 7, \"planned_bytes\": 6" more "}\nE\n"

static void told(int signo) { stop = signo; }

/* The trial's end is seen before the word that explains it. */
static void ends_before_the_word(void **state)
{
    static const char *const scripts[] = {"kill -TERM $$", "kill -9 $$", "exit 75",
                                          REPORT("1", ", \"stopped_early\": true")};
    (void)state;
    stoppable = signal(SIGALRM, told) != SIG_ERR;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        alarm(1);
        trial_of(scripts[i], 0.1, 60, 0);
        assert_int_equal(status, ERR_TEMP);
        stop = 0;
    }
    stoppable = false;
}

static void ends(void **state)
{
    static const struct {
        const char *script;
        enum trial_state state;
        const char *says;
    } rows[] = {
        {REPORT("4", ""), TRIAL_OK, ""},
        {REPORT("3", ", \"stopped_early\": true"), TRIAL_OK,
         "ended early: each of 2 steps slower than 0.1 s"},
        {REPORT("1", ""), TRIAL_FAILED, "it measured 1 steps: 2 or more are needed"},
        {"exit 0", TRIAL_FAILED, "no usable report"},
        {"echo '{' > $d/trial.json", TRIAL_FAILED, "no usable report"},
        {"echo '{\"schema\": \"reel.trial/2\"}' > $d/trial.json", TRIAL_FAILED, "no usable report"},
        {REPORT("4", "") "exit 5", TRIAL_FAILED, "exit code 5"},
        {"echo 'reel-train: step 3: bad shard'; echo noise; exit 3", TRIAL_FAILED,
         "reel-train: step 3: bad shard"},
        {"echo 'reel-train: out of memory by plan: 2 GiB'; exit 1", TRIAL_OOM_HOST, "2 GiB"},
        {"echo 'reel-train: out of memory by plan: 2 GiB of the device'; exit 1", TRIAL_OOM_DEVICE,
         "2 GiB"},
        {"kill -9 $$", TRIAL_FAILED, "killed by SIGKILL"},
        {"echo oom_kill 5 > $d/../kernel/proc/vmstat; kill -9 $$", TRIAL_OOM_HOST,
         "killed by SIGKILL"},
        {"echo \"reel-train: layout 'tp=3': tp must divide the attention heads (4)\"; exit 3",
         TRIAL_ILLEGAL, "must divide"},
        {REPORT("4", ", \"loss\": null"), TRIAL_NONFINITE, "its loss was not finite"},
        {"echo 'reel-train: 3 steps in a row had a gradient that is not finite'; exit 6",
         TRIAL_NONFINITE, "not finite"},
        {"kill -TERM $$", TRIAL_PREEMPTED, "killed by SIGTERM"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct trial_result r = trial_of(rows[i].script, 0.1, 60, 0);
        if (r.state != rows[i].state || !strstr(r.cause, rows[i].says))
            fail_msg("row %zu: %s, '%s' does not say '%s'", i, trial_state_names[r.state], r.cause,
                     rows[i].says);
        if (r.state == TRIAL_OK)
            assert_true(r.step_s == 0.25 && r.tokens == 32 && r.model_flops == 1e9 &&
                        r.mfu == 0.5 && r.peak_bytes == 7 && r.planned_bytes == 6);
    }
}

#define V1 "proc/self/cgroup\0004:memory:/a/b\n0::/\n\0" \
           "sys/fs/cgroup/memory/a/b/memory.oom_control\0under_oom 0\noom_kill 2\n\0"
#define V2 "proc/self/cgroup\0000::/a\n\0sys/fs/cgroup/a/memory.events\0oom 1\noom_kill 2\n\0"
#define INSIDE "proc/self/cgroup\0000::/x\n\0sys/fs/cgroup/memory.events\0oom_kill 2\n\0"
#define KMSG "dev/kmsg\0006,1,0,-;Killed process 5 (reel-train)\n\0proc/vmstat\0oom_kill 4\n\0"
#define COUNT(path, n) "echo oom_kill " n " > $d/../kernel/sys/fs/cgroup/" path "; "
#define SAY(words) "echo '" words "' >> $d/../kernel/dev/kmsg; "

/* Memory counts as short by the kernel's own word alone, of the trial's cgroup where it has one. */
static void kernel_words(void **state)
{
    static const struct {
        const char *files, *script;
        enum trial_state state;
        const char *evidence;
    } rows[] = {
        {V1, "kill -9 $$", TRIAL_FAILED, ""},
        {V1, COUNT("memory/a/b/memory.oom_control", "3") "kill -9 $$", TRIAL_OOM_HOST,
         "/a/b/memory.oom_control went from 2 to 3"},
        {V1, COUNT("memory/a/b/memory.oom_control", "3") "exit 75", TRIAL_OOM_HOST, "from 2 to 3"},
        {V2, COUNT("a/memory.events", "4") "kill -9 $$", TRIAL_OOM_HOST,
         "/a/memory.events went from 2 to 4"},
        {V2 KMSG, SAY("6,2,0,-;Killed process 7 (reel-train)") "kill -9 $$", TRIAL_FAILED, ""},
        {INSIDE, COUNT("memory.events", "3") "kill -9 $$", TRIAL_OOM_HOST, "memory.events went"},
        {KMSG, "kill -9 $$", TRIAL_FAILED, ""},
        {KMSG, SAY("6,2,0,-;Out of memory: Killed process 7 (reel-train) total-vm:9kB") "kill -9 $$",
         TRIAL_OOM_HOST, "the kernel says: Killed process 7 (reel-train)"},
        {KMSG, SAY("6,2,0,-;Out of memory: Killed process 7 (firefox) total-vm:9kB") "kill -9 $$",
         TRIAL_FAILED, ""},
        {KMSG, SAY("6,2,0,-;Killed process 7 (reel-train)") "exit 5", TRIAL_FAILED, ""},
        {"", "kill -9 $$", TRIAL_FAILED, ""},
    };
    const char *before = kernel_files;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        kernel_files = rows[i].files;
        struct trial_result r = trial_of(rows[i].script, 0, 60, 0);
        if (r.state != rows[i].state || !strstr(r.evidence, rows[i].evidence) ||
            (r.evidence[0] != '\0') != (rows[i].evidence[0] != '\0'))
            fail_msg("row %zu: %s, '%s'", i, trial_state_names[r.state], r.evidence);
    }
    kernel_files = before;
}

/* A log may be longer than what is read of it: its end counts. */
static void long_log(void **state)
{
    (void)state;
    struct trial_result r = trial_of("head -c 20000000 /dev/zero | tr '\\0' x; echo; "
                                     "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1",
                                     0, 60, 0);
    assert_int_equal(r.state, TRIAL_OOM_DEVICE);
}

/* Some trainers give no sign at all, and some no more of them after the first. */
static void hangs(void **state)
{
    static const char *const scripts[] = {"exec sleep 600", "echo > $d/pulse; exec sleep 600"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct trial_result r = trial_of(scripts[i], 0, 0.3, 0);
        assert_int_equal(r.state, TRIAL_HANG);
        assert_non_null(strstr(r.cause, "no sign of life"));
    }
}

/* The trainer is told what was asked, and finds run and plan in its folder. */
static void arguments(void **state)
{
    (void)state;
    struct trial_result r = trial_of("case $args in *'--trial --steps 4 --no-verify --blas own "
                                     "--give-up 0.75s --memory-limit 4096') ;; "
                                     "*) echo \"$args\"; exit 9;; esac\ngrep -q reel.run/1 "
                                     "$d/run.json && grep -q reel.plan/1 $d/plan.json || "
                                     "exit 8\n" REPORT("4", ""),
                                     0.75, 60, 4096);
    if (r.state != TRIAL_OK)
        fail_msg("%s", r.cause);
    r = trial_of("case $args in *give-up*|*memory-limit*) exit 9;; esac\n" REPORT("4", ""), 0, 60,
                 0);
    assert_int_equal(r.state, TRIAL_OK);
}

static void probes(void **state)
{
#define VIEW "{\"seq\": \"1x4x4\", \"samples\": 2, \"gemm_s\": 1, \"attn_fwd_s\": 2, " \
             "\"attn_bwd_s\": 3, \"elementwise_s\": 4, \"samples_s\": 5, " \
             "\"angles_s\": 0, \"patches_s\": 6, \"loss_s\": 7}"
#define RATES "\"fma_flops\": 1e10, \"update_elements\": 100, \"update_s\": 2, \"norm_s\": 3, " \
              "\"clear_s\": 4, \"move_s\": 5"
#define PROBE(ranks, rest) "{\"schema\": \"reel.probe/3\", \"ranks\": " ranks ", " rest "}"
#define ALONE RATES ", \"latency_s\": 0, \"bus_bytes_per_s\": 0"
    static const struct {
        const char *text, *says;
    } rows[] = {
        {PROBE("1", ALONE ", \"layer\": [" VIEW ", " VIEW "]"), NULL},
        {PROBE("2", RATES ", \"latency_s\": 1e-6, \"bus_bytes_per_s\": 1e9, \"layer\": [" VIEW
                    ", " VIEW "]"), NULL},
        {PROBE("2", RATES ", \"latency_s\": 0, \"bus_bytes_per_s\": 1e9"), "latency_s"},
        {PROBE("1", ALONE ", \"layer\": []"), "layer is missing or empty"},
        {PROBE("1", ALONE ", \"layer\": [{\"seq\": \"1x4x4\"}]"), "layer[].samples is missing"},
        {PROBE("1", ALONE ", \"layer\": [{\"seq\": \"1x4\"}]"), "layer[].seq"},
        {PROBE("1", ALONE ", \"layer\": [{\"seq\": \"1x4x4\", \"samples\": 1}]"), "gemm_s"},
        {PROBE("0", RATES), "ranks is missing or below 1"},
        {PROBE("1", "\"fma_flops\": -1"), "fma_flops is missing or not a positive number"},
        {PROBE("1", "\"fma_flops\": \"x\""), "fma_flops"},
        {"{\"schema\": \"reel.probe/2\", \"ranks\": 1}", "schema"},
        {PROBE("1", "\"ranks\": 2"), "ranks"},
        {"", "p:1:"},
        {"reel-train: no such device\n", "p:1:"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct probe p = {.ranks = -7};
        struct err err;
        int rc = probe_parse(rows[i].text, strlen(rows[i].text), "p", &p, &err);
        if (!rows[i].says) {
            assert_ok(rc, &err);
            assert_true(p.fma_flops == 1e10 && p.n_views == 2 && p.norm_s == 3);
            assert_true(p.view[1].samples == 2 && p.view[1].seq.w == 4 &&
                        p.view[1].attn_s[1] == 3 && p.view[1].inputs_s[INPUT_SAMPLES] == 5 &&
                        p.view[1].inputs_s[INPUT_LOSS] == 7 && p.clear_s == 4 && p.move_s == 5);
            continue;
        }
        assert_fails(rc, ERR_INPUT, &err, rows[i].says);
        assert_int_equal(p.ranks, -7); /* nothing written */
    }
}

static int setup(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(dir, sizeof dir, "%s/trial.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    snprintf(kernel, sizeof kernel, "%s/kernel", dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends), cmocka_unit_test(ends_before_the_word), cmocka_unit_test(hangs),
        cmocka_unit_test(kernel_words), cmocka_unit_test(long_log),
        cmocka_unit_test(arguments), cmocka_unit_test(probes)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
