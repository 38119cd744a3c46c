/* reel tune: finds the fastest layout of a training step by prediction and a few measured
 * trials. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "autotune/tune.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/simd_kind.h"
#include "launcher/cmd/cmd.h"
#include "launcher/cmd/tune_job.h"
#include "launcher/cmd/tune_other.h"
#include "launcher/cmd/tune_show.h"
#include "profiles/catalog.h"
#include "profiles/dataset.h"

#define MEMORY_SHARE 0.9 /* share of the machine's memory that all ranks get without --memory */
enum { RANKS_MAX = TUNE_RANKS };
static const char *const objectives[] = {"time", "gpu-hours", NULL};

static const struct opt opts[] = {
    CMD_OPT_JSON,
    CMD_OPT_DRY_RUN,
    {"run", 0, OPT_TEXT, "RUN.json", "what is trained; its first stage is tuned"},
    {"seq", 0, OPT_TEXT, "TxHxW", "with MODEL: tokens of a sample", .fallback = "1x16x16"},
    {"gbs", 0, OPT_INT, "N", "with MODEL: samples of a step", .fallback = "8", .min = 1,
     .max = 1 << 24},
    {"data", 0, OPT_TEXT, "DIR", "with MODEL: dataset folder instead of synthetic samples"},
    {"ranks", 0, OPT_TEXT, "N[,M...]", "numbers of ranks to try", .fallback = "1"},
    {"layout", 0, OPT_TEXT, "TEXT",
     "measure this layout alone: 'dp=2,zero=1,mbs=1,recompute=none', keys in any order; it says "
     "how many ranks there are"},
    {"default", 0, OPT_TEXT, "TEXT",
     "layout that is measured first, and that the winner is held against, written as for --layout "
     "(default: plain data parallelism)"},
    {"cluster", 0, OPT_TEXT, "NAME|FILE",
     "predict for this cluster instead of probing the machine: a compiled-in name, or a file "
     "(reel.cluster/1)"},
    {"stack", 0, OPT_TEXT, "NAME", "with --cluster: software that trains there: a compiled-in "
     "name, or a file (reel.stack/1)", .fallback = "reel"},
    {"objective", 0, OPT_ENUM, "WHAT",
     "time: the shortest step; gpu-hours: the least time of all ranks together", .fallback = "time",
     .choices = objectives},
    {"adapter", 0, OPT_TEXT, "NAME|FILE",
     "with --cluster: try another trainer, by the command behind --: megatron, megatron-bridge, "
     "torchtitan, torchtitan-0.2, generic, or a file (reel.adapter/1)"},
    {"export", 0, OPT_TEXT, "ADAPTER", "tell the winner in this trainer's flags too (default: "
     "those of --adapter)"},
    {"dtype", 0, OPT_ENUM, "NAME",
     "with MODEL: of activations (default: f32, and bf16 with --adapter)",
     .choices = (const char *const[]){"bf16", "f32", NULL}},
    {"scale-down", 0, OPT_INT, "DP",
     "with --cluster: trials run no more than DP replicas, with as few samples; what the others "
     "add is predicted", .min = 1, .max = LIMIT_RANKS},
    {"max-trials", 0, OPT_INT, "N", "most layouts measured", .fallback = "12", .min = 1,
     .max = 200},
    {"trial-steps", 0, OPT_INT, "N", "steps of a trial; the first is not counted", .fallback = "6",
     .min = 2, .max = 1000},
    {"repeats", 0, OPT_INT, "N", "measurements of the layouts whose intervals meet the best's",
     .fallback = "2", .min = 1, .max = 10},
    {"margin", 0, OPT_NUM, "SHARE", "gain a further trial must promise", .fallback = "0.02",
     .min = 0, .max = 0.5},
    {"time", 0, OPT_SECONDS, "TIME", "start no trial after so long", .min = 1, .max = 1e7},
    {"memory", 0, OPT_BYTES, "SIZE",
     "memory for all ranks (default 90 % of the machine's, or what a cluster's devices have)",
     .min = 1 << 20, .max = 0x1p50},
    {"blas", 0, OPT_ENUM, "NAME", "matrix products by our own kernels or OpenBLAS",
     .fallback = "own", .choices = (const char *const[]){"own", "openblas", NULL}},
    {"oversubscribe", 0, OPT_BOOL, NULL, "allow more ranks than this machine has cores for"},
    {"fresh", 0, OPT_BOOL, NULL, "measure again what an equal search measured before"},
    {"output", 'o', OPT_TEXT, "FILE", "where the winner goes", .fallback = "plan.json"},
    {"force", 0, OPT_BOOL, NULL, "write over a plan that is there already"},
    {"nodes", 0, OPT_INT, "N", "search inside an allocation of N Slurm nodes, taken for it",
     .min = 1, .max = 4096},
    {"partition", 0, OPT_TEXT, "NAME", "with --nodes: Slurm partition", .flags = OPT_SETTING},
    {"account", 0, OPT_TEXT, "NAME", "with --nodes: Slurm account", .flags = OPT_SETTING},
    {"qos", 0, OPT_TEXT, "NAME", "with --nodes: Slurm quality of service", .flags = OPT_SETTING},
    {"quiet", 'q', OPT_BOOL, NULL, "no progress"},
    {"chdir", 0, OPT_TEXT, "DIR", "work in this folder", .flags = OPT_HIDDEN},
    {"result", 0, OPT_TEXT, "FILE", "print to this file, when all is done", .flags = OPT_HIDDEN},
};
const struct opt_cmd cmd_tune = {
    "tune",
    "find the fastest layout by prediction and a few measured trials",
    "[MODEL] [-- COMMAND [ARGUMENT...]]", opts, ARRAY_LEN(opts), 0, -1,
    "Every layout the trainer can run is predicted from the machine's measured rates. Plain data "
    "parallelism, or --default, is measured first, then the layout that shards all, then whatever "
    "may still be faster; each measurement corrects the predictions. The search ends when nothing "
    "untried can beat the best by the margin. Each "
    "prediction is recorded before its measurement, under REEL_HOME/tunes.\n\n"
    "Trials run as steps inside the present job, or on the whole machine outside of one. "
    "--dry-run measures the rates there and shows what it predicts from them. With --nodes the "
    "search itself becomes a job: preempted, it comes back; this command killed, it goes on. The "
    "same question asked again takes over the trials of the last time."};

struct inputs {
    struct run run;
    struct seq seq;
    int64_t ranks[RANKS_MAX];
    size_t n_ranks;
    struct layout layout, baseline; /* of --layout; of --default */
    struct tune_other other;
    char cluster[PLAN_INPUT_BYTES], stack[PLAN_INPUT_BYTES]; /* valid from any folder */
};

static int ranks_parse(const char *text, struct inputs *in, struct err *err)
{
    char word[32];
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        struct err why;
        if (in->n_ranks == RANKS_MAX || n >= sizeof word)
            return err_set(err, ERR_USAGE,
                           "--ranks is '%s': give at most %d numbers, separated by commas", text,
                           RANKS_MAX);
        memcpy(word, p, n);
        word[n] = '\0';
        if (num_parse_i64(word, "--ranks", &in->ranks[in->n_ranks], &why) < 0)
            return err_set(err, ERR_USAGE, "%s", why.text);
        if (in->ranks[in->n_ranks] < 1 || in->ranks[in->n_ranks] > 4096)
            return err_set(err, ERR_USAGE, "--ranks is '%s': give numbers from 1 to 4096", text);
        for (size_t i = 0; i < in->n_ranks; i++)
            if (in->ranks[i] == in->ranks[in->n_ranks])
                return err_set(err, ERR_USAGE, "--ranks is '%s': %lld is given twice: give it once",
                               text, (long long)in->ranks[i]);
        in->n_ranks++;
        p += n;
        if (!*p)
            return 0;
    }
}

/* Reads the layout of --layout, and sets the number of ranks to the layout's. The errors have the
 * wording of reel-train's. */
static int layout_take(const char *text, struct inputs *in, struct err *err)
{
    struct err why = {0};
    if (layout_parse(text, &in->layout, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    in->ranks[0] = layout_world(&in->layout);
    in->n_ranks = 1;
    if (in->ranks[0] < 0)
        return err_set(err, ERR_USAGE,
                       "--layout '%s': tp x cp x pp x dp is above %d ranks: give smaller ones",
                       text, LIMIT_RANKS);
    if (!in->other.adapter)
        return 0;
    return adapter_check_order(in->other.adapter, &in->layout, text, err);
}

/* Binds the run's data. Trials run in another folder, so a dataset's path becomes absolute. */
static int data_bind(struct run *run, struct seq *seq, struct err *err)
{
    int64_t thw[3];
    int rc = run_synthetic(run->stages[0].data, "data", thw, err);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        char *path = realpath(run->stages[0].data, NULL);
        if (!path)
            return err_set_errno(err, ERR_INPUT, "cannot find the dataset '%s'",
                                 run->stages[0].data);
        run->stages[0].data = arena_strdup(&run->arena, path);
        free(path);
        if (!run->stages[0].data)
            return err_set(err, ERR_NOMEM, "out of memory");
    }
    run->n_stages = 1; /* only the first stage is tuned */
    if ((rc = run_stage_seq(run, 0, NULL, seq, err)) < 0)
        return rc;
    return run_bind_data(run, NULL, err);
}

static int run_from_options(const struct opt_values *v, const char *model, struct inputs *in,
                            struct err *err)
{
    struct run *run = &in->run;
    struct err why;
    run_init(run);
    snprintf(run->name, sizeof run->name, "tune");
    if (seq_parse(opt_text(v, "seq"), "--seq", &in->seq, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    int rc = model_load(model, &run->model, err);
    if (rc < 0)
        return rc;
    const struct model *m = &run->model;
    run->n_stages = 1;
    run->warmup_steps = 0;
    run->stages[0] = (struct run_stage){.gbs = opt_int(v, "gbs"),
                                        .steps = opt_int(v, "trial-steps")};
    run->stages[0].data = opt_given(v, "data")
                              ? arena_strdup(&run->arena, opt_text(v, "data"))
                              : arena_printf(&run->arena, "synthetic:%lldx%lldx%lld",
                                             (long long)(in->seq.t * m->patch_t),
                                             (long long)(in->seq.h * m->patch_h),
                                             (long long)(in->seq.w * m->patch_w));
    if (!run->stages[0].data)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (in->other.adapter || opt_given(v, "dtype"))
        run->dtype = opt_enum(v, "dtype") == 1 ? DTYPE_F32 : DTYPE_BF16;
    /* run_check has the rules of reel-train only */
    return in->other.adapter ? 0 : run_check(run, "options", err);
}

/* Takes the cluster and the stack of the predictions, which is that of --adapter's trainer or else
 * --stack. The winner's plan and the records name them, and are read from other folders, so paths
 * become absolute. */
static int described_take(const struct opt_values *v, struct inputs *in, struct err *err)
{
    const char *stack = in->other.adapter ? in->other.adapter->stack : opt_text(v, "stack");
    int rc;
    if ((rc = described_place(opt_text(v, "cluster"), in->cluster, sizeof in->cluster, err)) < 0)
        return rc;
    return catalog_place(stack, in->stack, sizeof in->stack, err);
}

/* Warns where a prediction for a described cluster, which trains all weights, is not the run's. */
static void parts_note(const struct run *run)
{
    const char *what = run->finetune.lora.rank > 0           ? "trains adapters"
                       : finetune_freezes(&run->finetune) ? "has frozen groups"
                                                          : NULL;
    if (what)
        log_msg(LOG_WARN, "the run %s, and for a cluster time and memory are predicted as if all "
                "weights were trained", what);
}

/* Checks that the described cluster can be loaded, before a job is submitted for it. */
static int cluster_check(const struct inputs *in, struct err *err)
{
    const struct described_spec spec = {.cluster = in->cluster,
                                        .stack = in->stack,
                                        .adapter = in->other.adapter,
                                        .model = &in->run.model,
                                        .seq = in->seq,
                                        .gbs = in->run.stages[0].gbs,
                                        .dtype = in->run.dtype,
                                        .ranks = in->ranks,
                                        .n_ranks = in->n_ranks};
    struct described *d = described_new(&spec, err);
    described_free(d);
    return d ? 0 : err->code;
}

/* Refuses options that contradict each other. */
static int options_check(const struct opt_values *v, struct err *err)
{
    static const char *const described[] = {"stack", "scale-down"},
                      *const submitted[] = {"partition", "account", "qos"};
    if (opt_given(v, "nodes") && opt_bool(v, "dry-run") && !opt_given(v, "cluster"))
        return err_set(err, ERR_USAGE, "--dry-run predicts from rates measured here, which say "
                       "nothing of the nodes that --nodes takes: leave --nodes out, give "
                       "--cluster, or --dry-run inside an allocation of such nodes");
    if (opt_given(v, "ranks") && opt_given(v, "layout"))
        return err_set(err, ERR_USAGE,
                       "--ranks and --layout both say how many ranks there are: give one of them");
    if (opt_given(v, "default") && opt_given(v, "layout"))
        return err_set(err, ERR_USAGE, "--layout measures one layout alone, and --default begins a "
                       "search: give one of them");
    for (size_t i = 0; i < ARRAY_LEN(described); i++)
        if (opt_given(v, described[i]) && !opt_given(v, "cluster"))
            return err_set(err, ERR_USAGE, "--%s is about a cluster that is described: give "
                           "--cluster too", described[i]);
    for (size_t i = 0; i < ARRAY_LEN(submitted); i++) /* a setting counts for those who submit */
        if (opt_typed(v, submitted[i]) && !opt_given(v, "nodes"))
            return err_set(err, ERR_USAGE, "--%s is about a job that is submitted: give --nodes "
                           "too", submitted[i]);
    return 0;
}

static int inputs_load(const struct opt_values *v, const char *home, struct inputs *in,
                       struct err *err)
{
    const char *const *operands, *path = opt_text(v, "run");
    size_t n = opt_operands(v, &operands);
    int rc;
    if (opt_given(v, "chdir") && chdir(opt_text(v, "chdir")) != 0)
        return err_set_errno(err, ERR_ENV, "cannot work in '%s'", opt_text(v, "chdir"));
    if ((rc = tune_other_open(v, home, &in->other, err)) < 0)
        return rc;
    if ((n >= 1) == (path != NULL))
        return err_set(err, ERR_USAGE, "give a MODEL or --run RUN.json, one of them");
    if (path && (opt_given(v, "seq") || opt_given(v, "gbs") || opt_given(v, "data") ||
                 opt_given(v, "dtype")))
        return err_set(err, ERR_USAGE, "--seq, --gbs, --data and --dtype describe a MODEL: with "
                       "--run they are the file's");
    if ((rc = options_check(v, err)) < 0)
        return rc;
    bool one = opt_given(v, "layout");
    struct err why = {0};
    enum simd ignored; /* only the trials' machine knows whether its processors have it */
    if ((rc = simd_named(&ignored, err)) < 0)
        return rc;
    if (one && (rc = layout_take(opt_text(v, "layout"), in, err)) < 0)
        return rc;
    if (!one && (rc = ranks_parse(opt_text(v, "ranks"), in, err)) < 0)
        return rc;
    if (opt_given(v, "default") && layout_parse(opt_text(v, "default"), &in->baseline, &why) < 0)
        return err_set(err, ERR_USAGE, "--default: %s", why.text);
    if (path && (rc = run_load(path, &in->run, err)) < 0)
        return rc;
    if (!path && (rc = run_from_options(v, operands[0], in, err)) < 0)
        return rc;
    if (!in->other.adapter && (rc = data_bind(&in->run, &in->seq, err)) < 0)
        return rc;
    if (!opt_given(v, "cluster"))
        return 0;
    if ((rc = described_take(v, in, err)) < 0)
        return rc;
    parts_note(&in->run);
    return cluster_check(in, err);
}

static volatile sig_atomic_t stop;

static void on_stop(int signo)
{
    stop = signo;
}

/* Catches the signals that stop the job in which the search runs. The search then ends with its
 * finished trials on record, and come_back requeues the job. */
static void stops_take(void)
{
    struct sigaction action = {.sa_handler = on_stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

/* Requeues the job of this search. Slurm stops a job that is requeued, so why it is has to be known
 * before. */
static int come_back(struct sched *s, struct err *err)
{
    struct sched_self self;
    const char *why = stop ? "asked to stop" : "nodes were lost";
    int rc;
    if ((rc = sched_self(s, &self, err)) < 0)
        return rc;
    if ((rc = sched_requeue(s, self.id, err)) < 0)
        return rc;
    return err_set(err, ERR_TEMP, "%s: job %s goes on with the remaining trials when it runs again",
                   why, self.id);
}

static void say(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "%s\n", line);
}

/* Refuses more ranks than cores if reel-train's ranks run here and --oversubscribe is not given.
 * Ranks that share cores would measure the sharing, and slow down all other programs. */
static int ranks_check(const struct opt_values *v, const struct inputs *in, int64_t cores,
                       struct err *err)
{
    bool here = !opt_bool(v, "oversubscribe") && !in->other.adapter &&
                !opt_given(v, "scale-down") &&
                !(opt_given(v, "cluster") && opt_bool(v, "dry-run"));
    for (size_t i = 0; i < in->n_ranks && here; i++)
        if (in->ranks[i] > cores)
            return err_set(err, ERR_LIMIT,
                           "%lld ranks are more than the %lld core%s here: give fewer, --nodes for "
                           "an allocation, or --oversubscribe",
                           (long long)in->ranks[i], (long long)cores, cores == 1 ? "" : "s");
    return 0;
}

/* Says where trials run: in the job that this process is part of, or on this machine. */
struct place {
    bool in_job;
    struct sched_self self;
    int64_t cores;
    int64_t nodes; /* of this process's job, or of the user's allocation; 0: neither */
};

static int place_find(const struct opt_values *v, const struct inputs *in, struct sched *s,
                      struct place *out, struct err *err)
{
    struct place p = {.self = {.nodes = 1}, .cores = 1, .nodes = 0};
    const char *allotted = getenv("SLURM_JOB_NUM_NODES");
    struct sched_site site;
    int rc;
    p.in_job = sched_self(s, &p.self, NULL) == 0;
    p.nodes = p.in_job ? p.self.nodes : allotted ? strtoll(allotted, NULL, 10) : 0;
    if (!p.in_job && (rc = sched_describe(s, &site, err)) < 0)
        return rc;
    if (p.in_job)
        p.cores = (int64_t)p.self.cores_per_node * p.self.nodes;
    else if (site.n_partitions)
        p.cores = site.partitions[0].cores_per_node;
    if (!p.in_job && (rc = ranks_check(v, in, p.cores, err)) < 0)
        return rc;
    *out = p;
    return 0;
}

static int conf_make(const struct opt_values *v, const struct cmd_env *env, const struct inputs *in,
                     struct sched *s, struct tune_conf *out, struct err *err)
{
    struct place p;
    bool scaled = opt_given(v, "scale-down");
    int rc;
    if ((rc = place_find(v, in, s, &p, err)) < 0)
        return rc;
    const char *cluster = getenv("SLURM_CLUSTER_NAME");
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) *
                     MEMORY_SHARE * p.self.nodes;
    struct tune_conf conf = {.home = env->home,
                             .bin_dir = env->bin_dir,
                             .run = &in->run,
                             .seq = in->seq,
                             .ranks = in->ranks,
                             .n_ranks = in->n_ranks,
                             .layout = opt_given(v, "layout") ? &in->layout : NULL,
                             .baseline = opt_given(v, "default") ? &in->baseline : NULL,
                             .cluster = opt_given(v, "cluster") ? in->cluster : NULL,
                             .stack = opt_given(v, "cluster") ? in->stack : opt_text(v, "stack"),
                             .gpu_hours = opt_enum(v, "objective") == 1,
                             .scale_down = scaled ? opt_int(v, "scale-down") : 0,
                             .max_trials = opt_int(v, "max-trials"),
                             .trial_steps = opt_int(v, "trial-steps"),
                             .repeats = opt_int(v, "repeats"),
                             .cores = p.cores, .nodes = p.nodes,
                             .margin = opt_num(v, "margin"),
                             .budget_s = opt_given(v, "time") ? opt_num(v, "time") : 0,
                             .memory_bytes = opt_given(v, "memory")    ? opt_int(v, "memory")
                                             : opt_given(v, "cluster") ? 0
                                                                       : (int64_t)machine,
                             .blas = opt_enum(v, "blas") == 1 ? "openblas" : "own",
                             .fresh = opt_bool(v, "fresh"),
                             .where = p.in_job && cluster ? cluster : clock_host(),
                             .stop = &stop,
                             .sched = s,
                             .say = opt_bool(v, "quiet") ? NULL : say};
    conf.adapter = in->other.adapter;
    conf.argv = in->other.argv, conf.own_sched = in->other.sched;
    *out = conf; /* a requeued job has the same token as salt, and so makes the same search */
    snprintf(out->salt, sizeof out->salt, "%s", p.in_job ? p.self.token : "");
    return 0;
}

static int tune_print(const struct tune *t, const struct plan *winner, const char *path,
                      const struct opt_values *v, struct err *err)
{
    const struct tune_answer a = {t, winner, path};
    struct str text = STR_INIT;
    int rc = opt_bool(v, "json") ? tune_json(&a, &text, err) : tune_text(&a, &text, err);
    if (rc < 0)
        goto out;
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = opt_given(v, "result") ? file_publish(opt_text(v, "result"), text.p, text.len, err)
                                : cmd_print(&text, err);
out:
    str_release(&text);
    return rc;
}

/* Refuses, even with --force, an output that is the file of an input. */
static int inputs_spare(const struct opt_values *v, const char *path, struct err *err)
{
    const char *named[] = {opt_text(v, "run"), opt_text(v, "cluster"), opt_text(v, "stack"),
                           opt_text(v, "adapter")};
    const char *const *operands;
    size_t n = opt_operands(v, &operands);
    int rc;
    if ((rc = cmd_spare("-o", path, operands, n, err)) < 0)
        return rc;
    return cmd_spare("-o", path, named, ARRAY_LEN(named), err);
}

/* Checks, before hours of trials, that the winner can be written to `path`, and that no file there
 * is overwritten unless --force is given. */
static int output_check(const struct opt_values *v, const char *path, struct err *err)
{
    struct stat st;
    int rc;
    if ((rc = cmd_output_check("--output", path, err)) < 0)
        return rc;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && !opt_bool(v, "force"))
        return err_set(err, ERR_EXISTS,
                       "'%s' exists already: give another --output, or --force to write over what "
                       "is there",
                       path);
    return inputs_spare(v, path, err);
}

/* Opens the scheduler that starts the trials: the job's own inside a job, else this machine's. */
static int scheduler_open(const struct cmd_env *env, struct sched **s, struct err *err)
{
    const char *kind = getenv("REEL_JOB_SCHED");
    return sched_open(kind && *kind ? kind : "local", env->home, s, err);
}

/* Searches for the fastest layout. */
static int winner_find(struct tune *t, const struct inputs *in, struct plan *winner,
                       struct err *err)
{
    int rc;
    if ((rc = tune_search(t, winner, err)) < 0)
        return rc;
    return tune_other_flags(&in->other, &in->run.model, winner, err);
}

/* Saves the winner's plan. If that fails, the result of the search, which may have taken hours, is
 * still printed, and the error of saving is returned. */
static int winner_save(const struct tune *t, const struct plan *winner, const char *path,
                       const struct opt_values *v, struct err *err)
{
    struct err unsaid = {0};
    char place[LIMIT_PATH_BYTES];
    int rc = plan_save(winner, cmd_output_place(path, place), err);
    if (rc < 0)
        tune_print(t, winner, NULL, v, &unsaid);
    return rc;
}

int cmd_tune_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct inputs in = {0};
    struct tune_conf conf;
    struct sched *s = NULL;
    static struct tune t; /* this and the plan are too large for the stack */
    static struct plan winner;
    bool dry = opt_bool(v, "dry-run");
    const char *path = opt_text(v, "output");
    int rc;
    if ((rc = inputs_load(v, env->home, &in, err)) < 0)
        goto out;
    if (!dry && (rc = output_check(v, path, err)) < 0)
        goto out;
    if (!dry && opt_given(v, "nodes")) {
        rc = tune_job_run(v, env, &in.run, &in.other, err);
        goto out;
    }
    if ((rc = scheduler_open(env, &s, err)) < 0)
        goto out;
    if (getenv("REEL_JOB_ID"))
        stops_take();
    if ((rc = conf_make(v, env, &in, s, &conf, err)) < 0)
        goto out;
    if ((rc = tune_open(&t, &conf, err)) < 0)
        goto out;
    if (!dry && (rc = winner_find(&t, &in, &winner, err)) < 0)
        goto out;
    if (!dry && (rc = winner_save(&t, &winner, path, v, err)) < 0)
        goto out;
    rc = tune_print(&t, dry ? NULL : &winner, path, v, err);
out:
    if (rc == ERR_TEMP && (stop || (t.short_of_nodes && getenv("REEL_JOB_ID"))))
        rc = come_back(s, err);
    if (t.log)
        cmd_ingest(env);
    tune_release(&t);
    sched_close(s);
    run_release(&in.run);
    tune_other_release(&in.other);
    return rc;
}
