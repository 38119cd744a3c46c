/* Trials of other people's trainers: stand-ins that print what Megatron-LM (core_v0.19),
 * Megatron-Bridge (v0.6.0), torchtitan (v0.2.0 and v0.3.0 alike) and a script for the generic
 * adapter print. */
#include "tests/lib/test_profiles.h"

#include <math.h>
#include <sys/stat.h>

#include "autotune/trial_other.h"
#include "base/file.h"
#include "tests/lib/scratch.h"

struct trial_case {
    const char *adapter, *script;
    double give_up_s;
    const char *recorder;
    bool no_peak;
};

/* Runs the script, which finds the trial's folder in $d. */
static struct trial_result trial_of(const struct trial_case *c, const char *dir)
{
    struct trial_result r = {0};
    struct adapter *a;
    struct model model;
    struct sched *s;
    struct err err;
    struct str text = STR_INIT;
    struct plan plan = {.layout = layout_default(), .model = "llama", .seq = {1, 1, 8192}, .gbs = 8};
    plan.layout.dp = 2, plan.layout.zero = 0;
    str_addf(&text, "#!/bin/sh\nd=%s\n%s\n", dir, c->script);
    assert_ok(file_mkdirs(dir, &err), &err);
    assert_ok(file_publish(in_scratch("script"), text.p, text.len, &err), &err);
    assert_int_equal(chmod(in_scratch("script"), 0755), 0);
    assert_ok(model_load("llama-3-8b", &model, &err), &err);
    assert_ok(adapter_load(c->adapter, &a, &err), &err);
    assert_ok(sched_open("local", scratch, &s, &err), &err);
    char script[512];
    snprintf(script, sizeof script, "%s", in_scratch("script"));
    const char *argv[] = {script, "--nproc={ranks}", "a'b c", NULL};
    struct trial_other other = {.adapter = a, .argv = argv, .model = &model, .model_flops = 4e12,
                                .hardware_flops = 5e12, .peak_flops = c->no_peak ? 0 : 1e13,
                                .memory_bytes = 80000000000};
    snprintf(other.recorder, sizeof other.recorder, "%s", c->recorder ? c->recorder : "");
    struct trial_conf conf = {.sched = s, .dir = dir, .steps = 4, .start_s = 60, .quiet_s = 60,
                              .give_up_s = c->give_up_s, .blas = "own", .other = &other};
    assert_ok(trial_run(&conf, NULL, &plan, &r, &err), &err);
    sched_close(s);
    adapter_free(a);
    str_release(&text);
    return r;
}

#define MEGATRON(step, ms)                                                                         \
    " [2025-10-02 09:53:12] iteration        " step "/       4 | consumed samples:           32 "  \
    "| elapsed time per iteration (ms): " ms " | throughput per GPU (TFLOP/s/GPU): 402.1 | "       \
    "learning rate: 1.0E-05 | global batch size:     8 | lm loss: 1.189E+01 | loss scale: 1.0 | "  \
    "grad norm: 8.2 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
#define TIMERS(forward)                                                                            \
    "(min, max) time across ranks (ms):\n"                                                         \
    "    forward-backward ...............................: (700.11, 702.90)\n"                     \
    "    forward-compute ................................: (180.00, " forward ")\n"                \
    "    backward-compute ...............................: (390.00, 400.00)\n"                     \
    "    all-grads-sync .................................: (50.00, 90.00)\n"                       \
    "    optimizer ......................................: (40.00, 50.00)\n"
static const char megatron[] =
    "cat << 'END'\n"
    "using world size: 2, data-parallel size: 2, context-parallel size: 1\n"
    "training ...\n" MEGATRON("1", "9000.0") TIMERS("8000.00")
    "[Rank 1] (after 1 iterations) memory (MB) | allocated: 20000.0 | max allocated: 30000.0 | "
    "reserved: 31000.0 | max reserved: 31000.0\n"
    "[Rank 0] (after 1 iterations) memory (MB) | allocated: 20000.0 | max allocated: 30000.5 | "
    "reserved: 32000.0 | max reserved: 32768.0\n" MEGATRON("2", "810.0") TIMERS("200.00")
    MEGATRON("3", "800.0") TIMERS("200.00") MEGATRON("4", "830.0") TIMERS("200.00") "END\n";

static void megatron_log(void **state)
{
    struct trial_case c = {"megatron", megatron, 0, NULL};
    struct trial_result r = trial_of(&c, in_scratch("m"));
    (void)state;
    assert_int_equal(r.state, TRIAL_OK);
    assert_int_equal(r.steps, 4);
    assert_close(r.step_s, 0.81, 1e-12, "median without the first");
    assert_close(r.min_step_s, 0.8, 1e-12, "fastest");
    assert_close(r.mfu, 4e12 / 0.81 / 2e13, 1e-12, "MFU");
    assert_close(r.hfu, 5e12 / 0.81 / 2e13, 1e-12, "HFU, of the steps that the timers tell of");
    assert_close(r.tokens, 8 * 8192, 1e-12, "tokens");
    assert_true(r.peak_bytes == 32768LL << 20);
    assert_close(r.class_s[KERNEL_OTHER], 0.6, 1e-9, "computation");
    assert_close(r.class_s[KERNEL_OPTIMIZER], 0.05, 1e-9, "optimizer");
    assert_close(r.class_s[KERNEL_COMMUNICATION], 0.05, 1e-9, "communication, the least rank's");
    assert_close(r.recorded_step_s, 0.81, 1e-9, "classes and idle add up to the step");
    assert_close(r.idle_s, 0.11, 1e-9, "idle");
    assert_close(r.exposed_s, 0.05, 1e-9, "exposed");
}

/* Megatron-Bridge prints the same lines, but for those of memory. */
static const char bridge[] =
    "cat << 'END'\n" MEGATRON("1", "9000.0")
    "[Rank 0] (after 1 iterations) memory (GB) | mem-allocated-gigabytes: 20.001 | "
    "mem-reserved-gigabytes: 32.5 | mem-max-allocated-gigabytes: 30.1 | "
    "mem-max-reserved-gigabytes: 33.125 | mem-alloc-retires: 0 | mem-allocated-count: 812\n"
    MEGATRON("2", "810.0") MEGATRON("3", "800.0") MEGATRON("4", "830.0") "END\n";

static void bridge_log(void **state)
{
    struct trial_case c = {"megatron-bridge", bridge, 0, NULL};
    struct trial_result r = trial_of(&c, in_scratch("b"));
    (void)state;
    assert_int_equal(r.state, TRIAL_OK);
    assert_close(r.step_s, 0.81, 1e-12, "median without the first");
    assert_true(r.peak_bytes == 33125000000);
}

#define TITAN(step, tps)                                                                           \
    "[rank0]:[titan] 2025-10-10 16:04:46,338 - root - INFO - \033[31mstep:  " step                 \
    "  \033[32mloss: 11.2441  \033[38;2;180;60;0mgrad_norm:  0.8319  \033[33mmemory: 40.50GiB"     \
    "(51.20%)  \033[34mtps: " tps "  \033[36mtflops: 381.20  \033[35mmfu: 38.54%\033[39m\n"

/* torchtitan tells tokens a second of a GPU: 2 GPUs do 65,536 tokens. */
static void torchtitan_log(void **state)
{
    struct trial_case c = {"torchtitan",
                           "cat << 'END'\n" TITAN("1", "1,024") TITAN("2", "8,192")
                           TITAN("3", "8,192") TITAN("4", "16,384") "END\n", 0, NULL};
    struct trial_result r = trial_of(&c, in_scratch("t"));
    (void)state;
    assert_int_equal(r.state, TRIAL_OK);
    assert_close(r.step_s, 4, 1e-12, "from tokens a second");
    assert_close(r.min_step_s, 2, 1e-12, "fastest");
    assert_true(r.peak_bytes == (int64_t)(40.5 * 0x1p30));
    assert_true(r.recorded_step_s == 0 && isnan(r.hfu));
}

#define STEPS(n) "for i in $(seq " n "); do echo \"step: $i time_ms: 205 loss: 2.1\"; done\n"

#define EVERY(said) "for i in 1 2 3 4; do echo \"step: $i " said " loss: 2.1\"; done\n"

/* Only where the peak is known can a step be too short. */
static void peak_unknown(void **state)
{
    struct trial_case c = {"generic", EVERY("time_ms: 2.5"), .no_peak = true};
    struct trial_result r = trial_of(&c, in_scratch("u"));
    (void)state;
    assert_int_equal(r.state, TRIAL_OK);
    assert_close(r.step_s, 0.0025, 1e-12, "its own time");
}

static void ends(void **state)
{
    static const struct {
        struct trial_case c;
        enum trial_state state;
        const char *says;
    } rows[] = {
        {{"generic", STEPS("4")}, TRIAL_OK, ""},
        {{"generic", STEPS("1")}, TRIAL_FAILED, "tells 1 of 4 steps by the adapter generic"},
        {{"generic", "echo hello"}, TRIAL_FAILED, "tells 0 of 4 steps"},
        {{"generic", STEPS("3") "echo bye"}, TRIAL_FAILED, "tells 3 of 4 steps"},
        {{"generic", STEPS("3") "echo 'KeyError: x'"}, TRIAL_FAILED, "KeyError: x"},
        {{"generic", STEPS("3") "echo 'CUDA out of memory.'"}, TRIAL_OOM_DEVICE, "out of memory."},
        {{"generic", "for i in 2 4; do echo \"step: $i time_ms: 1,020.5\"; done"}, TRIAL_OK, ""},
        {{"generic", "for i in 1 2 3 4; do echo \"step: $i time_ms: 0\"; done"}, TRIAL_FAILED,
         "its steps all at once"},
        {{"generic", EVERY("time_ms: 2.5")}, TRIAL_FAILED, "its log's 'time_ms: 2.5' is an MFU of "
         "8000 %, which no device reaches: check the unit by which the adapter generic reads it"},
        {{"torchtitan", EVERY("tps: 900,000")}, TRIAL_FAILED, "'tps: 900,000' is an MFU of 549 %"},
        {{"generic", EVERY("time_ms: 99999999999999999999")}, TRIAL_FAILED, "tells 0 of 4 steps by "
         "the adapter generic; its log's 'time_ms: 99999999999999999999' was left out: no run can "
         "have it"},
        {{"torchtitan", EVERY("tps: 0.0000000001")}, TRIAL_FAILED, "'tps: 0.0000000001' was left"},
        {{"generic", STEPS("3") "echo 'step: 4 time_ms: 1e400'"}, TRIAL_FAILED, "3 of 4 steps by "
         "the adapter generic; its log's 'time_ms: 1e400' was left out"},
        {{"generic", STEPS("4") "echo 'memory_bytes: 999999999999999999999'"}, TRIAL_OK,
         "its log's 'memory_bytes: 999999999999999999999' was left out: no run can have it"},
        {{"generic", STEPS("4") "echo 'memory_bytes: 90000000000000'"}, TRIAL_OK, "90000000000000"},
        {{"generic", STEPS("4") "echo 'compute_ms: 99999999999999999999'"}, TRIAL_OK,
         "'compute_ms: 99999999999999999999' was left out"},
        {{"generic", STEPS("4") "echo 'memory_bytes: 999999999999999999999'; exec sleep 1000",
          .give_up_s = 0.01}, TRIAL_OK, "0.01 s; its log's 'memory_bytes: 9999"},
        {{"generic", STEPS("4") "exit 1"}, TRIAL_FAILED,
         "ended with status 1; its last line: step: 4 time_ms: 205 loss: 2.1"},
        {{"generic", STEPS("3") "echo 'step: 4 time_ms: 20 loss: nan'"}, TRIAL_NONFINITE, "loss"},
        {{"generic", STEPS("4") "exec sleep 1000", .give_up_s = 0.01}, TRIAL_OK,
         "ended early: each of"},
        {{"generic", STEPS("2") "echo 'ValueError: no such recipe'; echo bye; exit 1"},
         TRIAL_FAILED, "ValueError: no such recipe"},
        {{"torchtitan", "echo '[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to "
          "allocate 2.00 GiB.'; i=0; while [ $i -lt 400 ]; do echo 'W1010 torch elastic agent'; "
          "i=$((i + 1)); done; exit 1"}, TRIAL_OOM_DEVICE, "Tried to allocate 2.00 GiB"},
        {{"megatron", "echo \"n3:3063028:3066152 [3] include/alloc.h:178 NCCL WARN Cuda failure "
          "'out of memory'\"; exit 1"}, TRIAL_OOM_DEVICE, "NCCL WARN Cuda failure"},
        {{"torchtitan", "echo \"n3:7:9 [3] init.cc:1358 NCCL WARN Cuda failure 2 'out of memory'\"; "
          "echo 'KeyError: x'; exit 1"}, TRIAL_OOM_DEVICE, "Cuda failure 2"},
        {{"generic", "echo \"n3:7:9 [3] enqueue.cc:54 NCCL WARN Cuda failure 'invalid resource "
          "handle'\"; echo 'KeyError: x'; exit 1"}, TRIAL_FAILED, "KeyError"},
        {{"megatron", "echo 'RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. "
          "'; exit 1"}, TRIAL_OOM_HOST, "is killed by signal"},
        {{"megatron", "echo 'srun: error: Node failure on n3'; kill -9 $$"}, TRIAL_NODE,
         "node n3 was lost"},
        {{"megatron", "echo 'srun: error: Task launch for StepId=3.2 failed on node n1: Communication "
          "connection failure'; exit 1"}, TRIAL_NODE, "node n1 was lost"},
        {{"megatron", "echo 'srun: error: Task launch for StepId=3.2 failed on node n1: Slurmd could "
          "not execve job'; exit 1"}, TRIAL_FAILED, "could not execve"},
        {{"generic", "[ \"$1\" = --nproc=2 ] && [ \"$2\" = \"a'b c\" ] && [ \"$5\" = --cp=1 ] &&"
          "[ \"${16}\" = --steps=4 ] && " STEPS("4")}, TRIAL_OK, ""},
    };
    char name[16];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(name, sizeof name, "e%zu", i);
        struct trial_result r = trial_of(&rows[i].c, in_scratch(name));
        if (r.state != rows[i].state || !strstr(r.cause, rows[i].says))
            fail_msg("%zu: %s: %s", i, trial_state_names[r.state], r.cause);
        assert_true(r.peak_bytes == 0 && !(r.recorded_step_s > 0));
    }
}

/* The file that the recorder waits for is there behind the measured steps, until the last one. The
 * shares of what it wrote are told of a step that was not recorded. */
static void recorded(void **state)
{
    struct trial_case c = {
        "generic",
        "for r in 0 1; do echo '{\"schema\": \"reel.activity/1\", \"step_s\": 8, \"class_s\": "
        "{\"gemm\": 4, \"communication\": 2, \"idle\": 2}, \"exposed_s\": 2, \"hidden_s\": 1, "
        "\"dropped\": 1}' > $d/activity-$r.json; done\n"
        "[ -e $d/record ] && exit 7\n" STEPS("4")
        "until [ -e $d/record ]; do sleep 0.01; done\n"
        "echo 'step: 5 time_ms: 99 loss: 1'; echo 'step: 6 time_ms: 99 loss: 1'\n"
        "while [ -e $d/record ]; do sleep 0.01; done\n"
        "[ \"$REEL_CUPTI_DIR\" = $d ] && [ \"$CUDA_INJECTION64_PATH\" = /x.so ] && "
        "[ \"${16}\" = --steps=6 ]",
        0, "/x.so"};
    (void)state;
    unsetenv("CUDA_INJECTION64_PATH");
    struct trial_result r = trial_of(&c, in_scratch("r"));
    if (r.state != TRIAL_OK)
        fail_msg("%s", r.cause);
    assert_close(r.step_s, 0.205, 1e-12, "recorded steps do not count");
    assert_close(r.recorded_step_s, r.step_s, 1e-12, "of a step that was not recorded");
    assert_close(r.class_s[KERNEL_GEMM], r.step_s / 2, 1e-12, "products");
    assert_close(r.idle_s, r.step_s / 4, 1e-12, "idle");
    assert_close(r.hidden_s, r.step_s / 8, 1e-12, "hidden");
    assert_close(r.hfu, 5e12 / r.step_s / 2e13, 1e-12, "HFU");
    assert_int_equal(r.dropped, 2);
}

/* What backward computes again follows from the layout, but for what a trainer may choose. */
static void hardware_flops(void **state)
{
    static const struct { const char *layout; double least, most; } rows[] = {
        {"dp=2", 1, 1}, {"dp=2,recompute=full", 1.2, 4.0 / 3}, {"dp=2,recompute=selective", 0, 0}};
    struct trial_conf conf = {.bin_dir = "/nowhere"};
    struct adapter *a;
    struct model model;
    struct err err;
    (void)state;
    assert_ok(model_load("llama-3-8b", &model, &err), &err);
    assert_ok(adapter_load("generic", &a, &err), &err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct plan plan = {.seq = {1, 1, 8192}, .gbs = 8};
        struct trial_other other = {.adapter = a};
        assert_ok(layout_parse(rows[i].layout, &plan.layout, &err), &err);
        assert_ok(other_trial(&other, &model, &plan, NULL, &conf, &err), &err);
        assert_true(other.hardware_flops >= rows[i].least * other.model_flops &&
                    other.hardware_flops <= rows[i].most * other.model_flops);
    }
    adapter_free(a);
}

/* A lost node is found in whatever form the user's command names it, and only a whole name is. */
static void lost_node_is_found(void **state)
{
    (void)state;
    static const struct { const char *word; bool named; } cases[] = {
        {"n2", true}, {"n1,n3", true}, {"-wn2", true}, {"--nodelist=n[1-3]", true},
        {"-H", false}, {"n1", false}, {"n22", false}, {"--nodelist=n[4-6]", false},
        {"./n2.sh", false}, {"{nodes}", false}, {"n[2", false}, {"", false},
        {"module load x; srun -w n1,n2 ./train", true}, {"srun -w n1 ./train n21", false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *argv[] = {"srun", cases[i].word, "-N", "2", NULL},
                   *found = other_names_node(argv, "n2,n3");
        if (cases[i].named ? found != argv[1] : found != NULL)
            fail_msg("'%s': %s", cases[i].word, found ? found : "not found");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(megatron_log, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(bridge_log, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(torchtitan_log, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(peak_unknown, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(ends, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(recorded, scratch_setup, scratch_teardown),
        cmocka_unit_test(hardware_flops),
        cmocka_unit_test(lost_node_is_found),
    };
    return cmocka_run_group_tests_name("autotune_trial_other", tests, NULL, NULL);
}
