/* Whole searches with a stand-in for the trainer, a shell script that does what a test wants of it:
 * what is said and done after each failure, what is taken over, what is learnt. */
#include "tests/lib/test_profiles.h"

#include <math.h>
#include <sys/stat.h>

#include "autotune/tune.h"
#include "base/clock.h"
#include "base/events.h"
#include "tests/lib/scratch.h"

static const char cluster[] =
    "{\"schema\": \"reel.cluster/1\", \"name\": \"cores\", \"nodes\": 1, \"leaf_nodes\": 0,"
    " \"device\": {\"name\": \"core\", \"peak_source\": \"a guess\", \"peak_flops\": {\"f32\": 2e10},"
    "  \"cpu\": true,"
    "  \"memory_bytes\": 4000000000, \"memory_bytes_per_s\": 1e10, \"link_bytes_per_s\": 1e9,"
    "  \"gemm_efficiency\": 0.8, \"attn_fwd_efficiency\": 0.5, \"attn_bwd_efficiency\": 0.5},"
    " \"node\": {\"devices\": 1, \"link_bytes_per_s\": 1e9, \"link_latency_s\": 1e-5, \"nics\": 1,"
    "  \"cores\": 2, \"nic_bytes_per_s\": 1e9, \"nic_latency_s\": 2e-5, \"memory_bytes\": 8000000000},"
    " \"spine_oversubscription\": 1}";

/* Each trial reports FACTOR times what was predicted for it, but does first what the file `act` has
 * for its number, in $n. */
static const char trainer[] =
    "#!/bin/sh\n"
    "args=\"$*\"; while [ \"$1\" != --run-dir ]; do shift; done; d=$2; home=${0%/bin/*}\n"
    "echo >> $home/count; n=$(wc -l < $home/count)\n"
    ". $home/act\n"
    "s=$(sed -n 's/^ *\"step_s\": \\([^,]*\\),*$/\\1/p' $d/plan.json)\n"
    "s=$(awk \"BEGIN { print ${FACTOR:-1} * $s }\")\n"
    "echo '{\"schema\": \"reel.trial/1\", \"steps\": 3, \"step_s\": '$s', \"tokens\": 32,'"
    " '\"model_flops\": 1e9, \"mfu\": 0.5, \"peak_bytes\": 0, \"planned_bytes\": 6}' > $d/trial.json\n";

static char said[16384];

static void say(void *ctx, const char *line)
{
    (void)ctx;
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s\n", line);
}

static void put(const char *name, const char *text, mode_t mode)
{
    struct err err;
    assert_ok(file_publish(in_scratch(name), text, strlen(text), &err), &err);
    assert_int_equal(chmod(in_scratch(name), mode), 0);
}

struct asked {
    struct run run;
    struct sched *sched;
    struct tune_conf conf;
    struct tune tune;
    char bin[512], home[512], file[512];
    int64_t ranks[1];
};

/* Opens a search of at most four trials on one rank. */
static struct asked *ask_stack(const char *model, const char *where, const char *stack)
{
    struct asked *a = calloc(1, sizeof *a);
    struct err err;
    assert_non_null(a);
    said[0] = '\0';
    snprintf(a->bin, sizeof a->bin, "%s", in_scratch("bin"));
    snprintf(a->home, sizeof a->home, "%s", in_scratch("home"));
    snprintf(a->file, sizeof a->file, "%s", in_scratch("cores.json"));
    run_init(&a->run);
    assert_ok(model_load(model, &a->run.model, &err), &err);
    a->run.n_stages = 1;
    a->run.warmup_steps = 0;
    a->run.dtype = DTYPE_F32;
    a->run.stages[0] = (struct run_stage){.data = "synthetic:1x8x8", .gbs = 8, .steps = 4};
    a->ranks[0] = 1;
    assert_ok(sched_open("local", a->home, &a->sched, &err), &err);
    a->conf = (struct tune_conf){
        .home = a->home, .bin_dir = a->bin, .run = &a->run, .seq = {1, 4, 4}, .ranks = a->ranks,
        .n_ranks = 1, .cluster = a->file, .stack = stack, .max_trials = 4, .trial_steps = 3,
        .repeats = 1, .margin = 0, .cores = 1, .blas = "own", .where = where, .start_s = 20,
        .quiet_s = 0.5, .sched = a->sched, .say = say};
    assert_ok(tune_open(&a->tune, &a->conf, &err), &err);
    return a;
}

static struct asked *ask(const char *model, const char *where)
{ return ask_stack(model, where, "reel"); }

static void leave(struct asked *a)
{
    tune_release(&a->tune);
    sched_close(a->sched);
    run_release(&a->run);
    free(a);
}

static int setup(void **state)
{
    struct err err;
    if (scratch_setup(state) < 0)
        return -1;
    assert_ok(file_mkdirs(in_scratch("bin"), &err), &err);
    assert_ok(file_mkdirs(in_scratch("home"), &err), &err);
    put("bin/reel-train", trainer, 0755);
    put("cores.json", cluster, 0644);
    put("act", "", 0644);
    return 0;
}

static int64_t in_state(const struct tune *t, enum trial_state state)
{
    int64_t n = 0;
    for (size_t i = 0; i < t->space.n; i++)
        n += t->items[i].state == state;
    return n;
}

/* Says whether trial k + 1 was of the same layout as trial k, by what was said of them. */
static bool again_after(int k)
{
    const char *at = said, *words[2];
    size_t n[2];
    for (; k > 1; k--)
        at = strchr(at, '\n') + 1;
    for (int i = 0; i < 2; i++) {
        words[i] = strstr(at, ": ");
        n[i] = (size_t)(strstr(at, "  predicted") - words[i]);
        at = strchr(at, '\n') + 1;
    }
    return n[0] == n[1] && memcmp(words[0], words[1], n[0]) == 0;
}

/* The second trial fails in one way or another. The search says so, goes on, and comes back to that
 * layout only where the failure says nothing of it. */
static void failures(void **state)
{
    static const struct {
        const char *act;
        enum trial_state state;
        const char *says;
    } rows[] = {
        {"echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1", TRIAL_OOM_DEVICE,
         "oom_device: torch.OutOfMemoryError"},
        {"echo 'slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.'; kill -9 $$",
         TRIAL_OOM_HOST, "oom_host: killed by SIGKILL"},
        {"kill -9 $$", TRIAL_FAILED, "failed: killed by SIGKILL"},
        {"echo \"reel-train: layout 'mbs=9': mbs must divide\"; exit 3", TRIAL_ILLEGAL,
         "illegal: reel-train: layout"},
        {"echo > $d/pulse; exec sleep 1000", TRIAL_HANG, "hang: gave no sign of life for "},
        {"kill -TERM $$", TRIAL_UNTRIED, "preempted: killed by SIGTERM"},
        {"echo 'reel-train: 3 steps in a row had a gradient that is not finite'; exit 6",
         TRIAL_NONFINITE, "nonfinite: reel-train: 3 steps"},
        {"exit 5", TRIAL_FAILED, "failed: ended with exit code 5"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char act[512], where[16];
        struct plan *winner = calloc(1, sizeof *winner);
        struct err err;
        snprintf(act, sizeof act, "[ $n != 2 ] || { %s; }\n", rows[i].act);
        snprintf(where, sizeof where, "host%zu", i);
        put("act", act, 0644);
        remove(in_scratch("count"));
        struct asked *a = ask("dit-tiny", where);
        assert_ok(tune_search(&a->tune, winner, &err), &err);
        const struct search *s = &a->tune.search;
        bool interrupted = rows[i].state == TRIAL_UNTRIED;
        if (!strstr(said, rows[i].says) || again_after(2) != interrupted)
            fail_msg("row %zu: %s", i, said);
        assert_true(s->trials >= 2 && in_state(&a->tune, TRIAL_OK) == s->trials - !interrupted);
        if (!interrupted)
            assert_int_equal(in_state(&a->tune, rows[i].state), 1);
        assert_true(trial_is_oom(rows[i].state) || in_state(&a->tune, TRIAL_SKIPPED) == 0);
        leave(a);
        free(winner);
    }
}

/* Records a trial of a search that was before, as its program wrote it. */
static void record(struct asked *a, const char *layout, const char *evidence)
{
    char events[700];
    struct evlog_ids ids = {a->tune.id, 0, "tune", NULL};
    struct evlog_event e;
    struct evlog *log;
    struct err err;
    snprintf(events, sizeof events, "%s/events", a->tune.dir);
    assert_ok(file_mkdirs(events, &err), &err);
    assert_ok(evlog_open(events, &ids, &log, &err), &err);
    event_begin(log, &e, trial_predicted);
    event_text(&e, trial_predicted, trial, "aa");
    event_text(&e, trial_predicted, layout, layout);
    assert_ok(evlog_commit(log, &e, true, &err), &err);
    event_begin(log, &e, trial_ended);
    event_text(&e, trial_ended, trial, "aa");
    event_text(&e, trial_ended, state, "oom_host");
    event_text(&e, trial_ended, cause, "killed by SIGKILL");
    if (evidence)
        event_text(&e, trial_ended, evidence, evidence);
    assert_ok(evlog_commit(log, &e, true, &err), &err);
    evlog_close(log);
}

/* An earlier program took every SIGKILL for memory that was short. Nobody is named for it there, so
 * it is no fact; with a witness it is one. */
static void old_verdicts(void **state)
{
    (void)state;
    for (int witness = 0; witness < 2; witness++) {
        struct plan *winner = calloc(1, sizeof *winner);
        struct str text = STR_INIT;
        struct layout plain = layout_default();
        struct err err;
        struct asked *a = ask("dit-tiny", witness ? "w" : "x");
        plain.dp = 1;
        layout_format(&plain, &text);
        record(a, text.p, witness ? "oom_kill of memory.events went from 0 to 1" : NULL);
        a->tune.search.conf.max_trials = 1;
        int rc = tune_search(&a->tune, winner, &err);
        assert_int_equal(a->tune.reused, witness);
        assert_int_equal(a->tune.items[a->tune.search.baseline].state,
                         witness ? TRIAL_OOM_HOST : TRIAL_OK);
        if (!witness)
            assert_ok(rc, &err);
        str_release(&text);
        leave(a);
        free(winner);
    }
}

/* A search begins from what others measured of the same host, stack and binary, and from nothing
 * else; its own trials it takes over, and does not count twice. */
static void learns(void **state)
{
    struct plan *winner = calloc(1, sizeof *winner);
    struct err err;
    (void)state;
    /* the first trial takes longer, and the others what is predicted from then on */
    put("act", "[ $n -gt 1 ] || FACTOR=1.6\n", 0644);
    struct asked *a = ask("dit-tiny", "h");
    assert_int_equal(a->tune.learnt, 0);
    assert_ok(tune_search(&a->tune, winner, &err), &err);
    int64_t measured = a->tune.search.trials;
    leave(a);

    a = ask("dit-tiny", "h");
    assert_int_equal(a->tune.learnt, 0); /* the same question */
    leave(a);

    a = ask("dit-s", "other");
    double first_s = search_predict(&a->tune.search, 0, NULL, NULL);
    assert_int_equal(a->tune.learnt, 0);
    leave(a);

    a = ask("dit-s", "h");
    assert_int_equal(a->tune.learnt, measured);
    double taught_s = search_predict(&a->tune.search, 0, NULL, NULL);
    if (!(taught_s > 1.3 * first_s && taught_s < 1.7 * first_s))
        fail_msg("predicted %g s, and %g s before", taught_s, first_s);
    assert_ok(tune_search(&a->tune, winner, &err), &err);
    leave(a);

    struct str newer = STR_INIT;
    str_addf(&newer, "%s# newer\n", trainer);
    put("bin/reel-train", newer.p, 0755);
    a = ask("dit-s", "h");
    assert_int_equal(a->tune.learnt, 0);
    leave(a);
    str_release(&newer);
    free(winner);
}

#define STACK(name, overlap)                                                                       \
    "{\"schema\": \"reel.stack/1\", \"name\": \"" name "\", \"source\": \"a guess\", \"kind\": "      \
    "\"fsdp\", \"attention\": \"flash\", \"gradient_bytes\": 4, \"optimizer_bytes\": 12, "            \
    "\"logit_bytes\": 10, \"gradients_overlap\": " overlap ", \"zero\": 3}\n"

static int64_t learnt_by(const char *stack)
{
    struct asked *a = ask_stack("dit-s", "h", stack);
    int64_t n = a->tune.learnt;
    leave(a);
    return n;
}

/* A correction that was learnt holds no longer where the prediction rests on something else: on
 * another stack, or on a file that was edited. A file that only lies elsewhere says the same. */
static void learns_by_content(void **state)
{
    char mine[512], moved[512], edited[sizeof cluster + 8];
    struct plan *winner = calloc(1, sizeof *winner);
    struct err err;
    (void)state;
    snprintf(mine, sizeof mine, "%s", in_scratch("mine.json"));
    snprintf(moved, sizeof moved, "%s", in_scratch("moved.json"));
    put("mine.json", STACK("mine", "true"), 0644);
    put("moved.json", STACK("mine", "true"), 0644);
    struct asked *a = ask_stack("dit-tiny", "h", mine);
    assert_ok(tune_search(&a->tune, winner, &err), &err);
    int64_t measured = a->tune.search.trials;
    leave(a);
    assert_true(measured > 0);
    assert_int_equal(learnt_by(mine), measured);
    assert_int_equal(learnt_by(moved), measured);
    assert_int_equal(learnt_by("reel"), 0);
    assert_int_equal(learnt_by("fsdp"), 0);
    put("mine.json", STACK("mine", "false"), 0644);
    assert_int_equal(learnt_by(mine), 0);
    put("mine.json", STACK("mine", "true"), 0644);
    assert_int_equal(learnt_by(mine), measured);

    const char *at = strstr(cluster, "1e10");
    snprintf(edited, sizeof edited, "%.*s2%s", (int)(at - cluster), cluster, at + 1);
    put("cores.json", edited, 0644);
    assert_int_equal(learnt_by(mine), 0);
    free(winner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(failures, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(old_verdicts, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(learns, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(learns_by_content, setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("autotune_tune", tests, NULL, NULL);
}
