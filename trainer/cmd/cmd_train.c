/* reel-train train: runs one rank's part of a run, or of a trial. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/num.h"
#include "trainer/ckpt/ckpt.h"
#include "trainer/cmd/device.h"
#include "trainer/cmd/main.h"
#include "trainer/ops/fma.h"
#include "trainer/run/notice.h"
#include "trainer/run/record.h"
#include "trainer/run/train.h"

enum { TRIAL_STEPS = 5, RUN_DIR_MAX = LIMIT_PATH_BYTES - 256 };

/* The names are in the order of enum dtype. */
static const char *const cli_dtypes[] = {"f64", "f32", "bf16", NULL};

enum { GRAPHS_AUTO, GRAPHS_OFF };
static const char *const graph_words[] = {"auto", "off", NULL};

static const struct opt opts[] = {
    {"run", 0, OPT_TEXT, "FILE", "what to train (reel.run/1)"},
    {"plan", 0, OPT_TEXT, "FILE", "layout (reel.plan/1)"},
    {"run-dir", 0, OPT_TEXT, "DIR",
     "folder of the run: events/ and ckpt/ lie there", .flags = OPT_REQUIRED},
    {"resume", 0, OPT_BOOL, NULL,
     "the run folder must hold a checkpoint to go on from; --no-resume: it must hold none, "
     "whatever was saved once (default: go on from one if there is one, begin if none was ever "
     "saved)"},
    {"attempt", 0, OPT_INT, "N", "number of this attempt", .fallback = "1", .min = 1, .max = 1e9},
    {"trial", 0, OPT_BOOL, NULL,
     "measure only: no checkpoint, no events, one JSON object at the end"},
    {"steps", 0, OPT_INT, "N",
     "stop after N steps of this attempt (trial: 5); with --model: length of the run",
     .min = 1, .max = 1e12},
    DEVICE_OPTS,
    DEVICE_COMM_OPT,
    {"deterministic", 0, OPT_BOOL, NULL,
     "form every sum in one order, and those over ranks in rank order: the same bits whenever a "
     "run is repeated, whatever the network and NCCL, as on the CPU (default: on GPUs NCCL's own "
     "sums of f32 and f64, and cuDNN's of dq of attention in bf16, which are faster)"},
    {"graphs", 0, OPT_ENUM, "WORD",
     "auto: on a GPU, launch what steps repeat as graphs; off: queue each call (the results are "
     "the same)", .fallback = "auto", .choices = graph_words},
    {"profile", 0, OPT_BOOL, NULL,
     "measure every kind of computation and waiting: in the events of steps, and as a table at "
     "the end"},
    {"trace", 0, OPT_TEXT, "FILE",
     "write what each rank did and exchanged when, for Perfetto or chrome://tracing; with "
     "--profile's table"},
    {"give-up", 0, OPT_SECONDS, "TIME",
     "trial: end early when even the fastest of two or more counted steps took longer",
     .min = 1e-9, .max = 1e9},
    {"memory-limit", 0, OPT_BYTES, "SIZE",
     "answer no when a rank's memory plan is larger; on a device with memory of its own: than "
     "that", .min = 1, .max = 1e18},
    {"host-memory-limit", 0, OPT_BYTES, "SIZE",
     "likewise, for what a rank holds on the host (on the CPU that is all)", .min = 1, .max = 1e18},
    {"verify", 0, OPT_BOOL, NULL,
     "compare the dataset's shards with their checksums first; --no-verify: their sizes only "
     "(default: as data.verify of the run says, which is until they once were whole)"},
    {"comm-deadline", 0, OPT_SECONDS, "TIME",
     "end with status 75 when the other ranks keep an exchange waiting for so long; 0: never",
     .fallback = "10m", .min = 0, .max = 1e9},
    {"mtbf", 0, OPT_SECONDS, "TIME",
     "where checkpoint.every_steps is 0: mean time between failures of this run (default: what "
     "others published, for its nodes)", .min = 1e-3, .max = 1e12},
    {"save-took", 0, OPT_SECONDS, "TIME",
     "likewise: what a save of this run took before (default: none is known)",
     .min = 1e-6, .max = 1e9},
    {"stop-ok", 0, OPT_BOOL, NULL,
     "exit status 0, not 75, when saved before the last step: for callers that read the run's "
     "events"},
    {"log-interval", 0, OPT_INT, "N",
     "print a line each N steps, and for the first and the last: the step's loss; tokens/s and "
     "MFU of the steps since the line before, without saves and validations between them; 0: none "
     "(default: 1, a line a step; 0 with --trial and --stop-ok)", .min = 0, .max = 1e12},
    {"quiet", 'q', OPT_BOOL, NULL, "say nothing of plan and steps"},
    {"model", 0, OPT_TEXT, "MODEL|FILE", "instead of --run: model"},
    {"layout", 0, OPT_TEXT, "TEXT",
     "instead of --plan: 'dp=2,zero=1,mbs=1,recompute=none', keys in any order"},
    {"gbs", 0, OPT_INT, "N",
     "with --model: samples of a step", .fallback = "8", .min = 1, .max = 1e9},
    {"seq", 0, OPT_TEXT, "TxHxW",
     "with --model: tokens of a synthetic sample", .fallback = "1x8x8"},
    {"data", 0, OPT_TEXT, "DIR",
     "with --model: dataset folder or 'synthetic'", .fallback = "synthetic"},
    {"seed", 0, OPT_TEXT, "K", "with --model: seed", .fallback = "1234"},
    {"dtype", 0, OPT_ENUM, "TYPE",
     "with --model: number format of weights and activations; with bf16 all else is f32, master "
     "weights too", .fallback = "f32", .choices = cli_dtypes},
    {"lr", 0, OPT_NUM, "X", "with --model: learning rate", .min = 0, .max = 1e3},
};
const struct opt_cmd train_cmd_train = {
    "train", "train, resume and save a run (started directly or by mpirun)", "",
    opts, ARRAY_LEN(opts), 0, 0,
    "SIGUSR1, SIGTERM or Ctrl-C asks to save and stop at the next step: exit status 75; a second "
    "Ctrl-C ends it at once. Status 0 means the last step is published. Open MPI's mpirun takes "
    "two seconds more to end when a rank's status is not 0; --mca odls_base_sigkill_timeout 0 "
    "spares them. When a rank was killed the others on its host name it and end with 75; mpirun's "
    "own status is then 128 and the number of the signal."};

static void say(void *ctx, const char *line)
{
    (void)ctx;
    log_msg(LOG_INFO, "%s", line);
}

/* Makes a run from options alone, the form used by hand and by tests. */
static int run_from_options(const struct opt_values *v, struct run *run, struct err *err)
{
    struct seq seq;
    uint64_t seed = 0;
    struct err why = {0};
    run_init(run);
    snprintf(run->name, sizeof run->name, "options");
    int rc = model_load(opt_text(v, "model"), &run->model, err);
    if (rc < 0)
        return rc;
    if (seq_parse(opt_text(v, "seq"), "--seq", &seq, &why) < 0 ||
        num_parse_u64(opt_text(v, "seed"), "--seed", &seed, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    const struct model *m = &run->model;
    run->seed = seed;
    run->dtype = (enum dtype)opt_enum(v, "dtype");
    if (opt_given(v, "lr"))
        run->adamw.lr = opt_num(v, "lr");
    run->n_stages = 1;
    run->stages[0] = (struct run_stage){
        .gbs = opt_int(v, "gbs"), .steps = opt_given(v, "steps") ? opt_int(v, "steps") : 10};
    run->warmup_steps = num_min_i64(run->warmup_steps, run->stages[0].steps / 10);
    const char *data = opt_text(v, "data");
    run->stages[0].data = strcmp(data, "synthetic")
                              ? arena_strdup(&run->arena, data)
                              : arena_printf(&run->arena, "synthetic:%lldx%lldx%lld",
                                             (long long)(seq.t * m->patch_t),
                                             (long long)(seq.h * m->patch_h),
                                             (long long)(seq.w * m->patch_w));
    return run->stages[0].data ? run_check(run, "options", err)
                               : err_set(err, ERR_NOMEM, "out of memory");
}

static int plan_from_options(const struct opt_values *v, const struct run *run,
                             struct datasets *set, struct plan *plan, struct err *err)
{
    *plan = (struct plan){
        .layout = layout_default(), .gbs = run->stages[0].gbs, .dtype = run->dtype};
    struct err why = {0};
    if (opt_text(v, "layout") && layout_parse(opt_text(v, "layout"), &plan->layout, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    return run_stage_seq(run, 0, set, &plan->seq, err);
}

/* Refuses options that describe a model together with --run. The run's file alone says what is
 * trained: another value would make it another run, whose checkpoints do not fit. */
static int beside_run_check(const struct opt_values *v, struct err *err)
{
    static const struct { const char *option, *field; } of_file[] = {
        {"gbs", "stages[].gbs"}, {"seq", "stages[].data"}, {"data", "stages[].data"},
        {"seed", "random.seed"}, {"dtype", "numerics.dtype"}, {"lr", "adamw.lr"}};
    for (size_t i = 0; opt_text(v, "run") && i < ARRAY_LEN(of_file); i++)
        if (opt_given(v, of_file[i].option))
            return err_set(err, ERR_USAGE,
                           "--%s describes a --model: with --run it is the file's, change %s in "
                           "'%s'",
                           of_file[i].option, of_file[i].field, opt_text(v, "run"));
    return 0;
}

/* Checks that no option makes another one ineffective. */
static int options_check(const struct opt_values *v, struct err *err)
{
    static const char *const of_attempt[] = {"resume", "attempt", "stop-ok", "mtbf", "save-took"};
    if (!opt_text(v, "run") == !opt_text(v, "model"))
        return err_set(err, ERR_USAGE, "give --run FILE or --model NAME, one of them");
    if (opt_text(v, "plan") && opt_text(v, "layout"))
        return err_set(err, ERR_USAGE,
                       "--plan and --layout both say how the run is spread: give one of them");
    if (opt_given(v, "seq") && opt_given(v, "data") &&
        strcmp(opt_text(v, "data"), "synthetic") != 0)
        return err_set(err, ERR_USAGE,
                       "--seq is of samples made on the spot, those of --data '%s' have their own: "
                       "give one of them",
                       opt_text(v, "data"));
    if (opt_bool(v, "quiet") && opt_given(v, "log-interval") && opt_int(v, "log-interval") > 0)
        return err_set(err, ERR_USAGE,
                       "--quiet and --log-interval: quiet says nothing of steps: give one of them");
    if (opt_given(v, "give-up") && !opt_bool(v, "trial"))
        return err_set(err, ERR_USAGE, "--give-up ends a trial early: give --trial with it");
    for (size_t i = 0; i < ARRAY_LEN(of_attempt); i++)
        if (opt_given(v, of_attempt[i]) && opt_bool(v, "trial"))
            return err_set(err, ERR_USAGE,
                           "--%s and --trial: a trial is no attempt of a run, and neither reads "
                           "nor writes checkpoints: give one of them",
                           of_attempt[i]);
    return beside_run_check(v, err);
}

/* Logs that stages with plans of their own keep them. This is no error with --plan, because an
 * agent passes a plan to every run. A --layout that no stage would use is refused. */
static int stage_plans_check(const struct opt_values *v, const struct run *run,
                             const struct comm *world, struct err *err)
{
    int64_t own = 0;
    for (int64_t i = 0; i < run->n_stages; i++)
        own += run->stages[i].plan != NULL;
    if (opt_text(v, "layout") && own == run->n_stages)
        return err_set(err, ERR_USAGE,
                       "--layout: every stage of --run '%s' has a plan of its own (stages[].plan): "
                       "leave one of them out",
                       opt_text(v, "run"));
    if (world->rank == 0 && own > 0 && (opt_text(v, "layout") || opt_text(v, "plan")))
        log_msg(LOG_INFO,
                "%lld of %lld stages have plans of their own (stages[].plan): %s is for the others",
                (long long)own, (long long)run->n_stages,
                opt_text(v, "plan") ? "--plan" : "--layout");
    return 0;
}

static bool stage_is_open(const struct run_stage *s)
{
    return s->data_fingerprint.hi == 0 && s->data_fingerprint.lo == 0;
}

static int validation_recall(struct run *run, const struct run *began, struct err *err)
{
    struct run_validation *v = &run->validation;
    const char *old = began->validation.data_fingerprint;
    if (v->data_fingerprint || !v->data || !old || strcmp(v->data, began->validation.data) != 0)
        return 0;
    v->data_fingerprint = arena_strdup(&run->arena, old);
    return v->data_fingerprint ? 0 : err_set(err, ERR_NOMEM, "out of memory for a run");
}

/* Recalls generations of data. A dataset may grow while a run on it is stopped. Stages and a
 * validation that do not fix the generation of their data get the generation with which the run in
 * this folder began. */
static int generations_recall(const struct opt_values *v, struct run *run, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct run began = {0};
    bool anew = opt_given(v, "resume") && !opt_bool(v, "resume");
    int rc;
    snprintf(path, sizeof path, "%.4000s/began.json", opt_text(v, "run-dir"));
    if (anew || opt_bool(v, "trial") || !file_exists(path))
        return 0;
    if ((rc = run_load(path, &began, err)) < 0)
        goto out;
    for (int64_t i = 0; i < run->n_stages; i++)
        if (stage_is_open(&run->stages[i]))
            run->stages[i].data_fingerprint = run_data_generation(&began, run->stages[i].data);
    rc = validation_recall(run, &began, err);
out:
    run_release(&began);
    return rc;
}

/* Writes into the folder (began.json) with which generations of data the run begins. If the folder
 * holds checkpoints, an existing file stays. Synthetic data does not grow and needs no file. */
static int generations_keep(const struct run *run, const char *dir, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    bool stored = run->validation.data_fingerprint != NULL;
    for (int64_t i = 0; i < run->n_stages; i++)
        stored = stored || !stage_is_open(&run->stages[i]);
    snprintf(path, sizeof path, "%.4000s/began.json", dir);
    return !stored || (file_exists(path) && ckpt_newest_step(dir) > 0) ? 0
                                                                       : run_save(run, path, err);
}

static int run_inputs_load(const struct opt_values *v, const struct comm *world, struct run *run,
                           struct datasets *set, struct err *err)
{
    const char *path = opt_text(v, "run");
    int rc;
    if ((rc = options_check(v, err)) < 0)
        return rc;
    if ((rc = path ? run_load(path, run, err) : run_from_options(v, run, err)) < 0)
        return rc;
    if ((rc = stage_plans_check(v, run, world, err)) < 0)
        return rc;
    if ((rc = generations_recall(v, run, err)) < 0)
        return rc;
    return run_bind_data(run, set, err);
}

/* Holds the generations of data to which a run's stages and, last, its validation are bound; zero:
 * synthetic data, or none. */
struct generations { struct hash128 of[LIMIT_STAGES + 1]; };

static struct generations generations_of(const struct run *run)
{
    struct generations g = {0};
    for (int64_t i = 0; i < run->n_stages; i++)
        g.of[i] = run->stages[i].data_fingerprint;
    if (run->validation.data_fingerprint)
        g.of[LIMIT_STAGES] = run_validation_generation(run);
    return g;
}

/* Binds the run on this rank to the generations of data that rank 0 found. */
static int generations_take(struct run *run, const struct generations *g, struct datasets *set,
                            struct err *err)
{
    char hex[HASH_TEXT_BYTES];
    for (int64_t i = 0; i < run->n_stages; i++)
        run->stages[i].data_fingerprint = g->of[i];
    if (run->validation.data_fingerprint &&
        !(run->validation.data_fingerprint =
              arena_strdup(&run->arena, hash_format(g->of[LIMIT_STAGES], hex))))
        return err_set(err, ERR_NOMEM, "out of memory for a run");
    datasets_drop(set);
    return run_bind_data(run, set, err);
}

/* Makes all ranks use the generations of data that rank 0 found. A dataset may grow while the ranks
 * start, between the times at which two of them read its index. */
static int generations_share(struct comm *world, struct run *run, struct datasets *set,
                             struct err *err)
{
    const struct generations own = generations_of(run);
    struct generations first = own;
    int rc;
    if ((rc = comm_broadcast_bytes(world, &first, sizeof first, 0, err)) < 0)
        return rc;
    if (memcmp(&first, &own, sizeof own) != 0)
        rc = generations_take(run, &first, set, err);
    return comm_agree(world, rc, err);
}

/* Loads the plans: plans[i] is stage i's own plan, or the plan that the options give. */
static int plans_load(const struct opt_values *v, const struct run *run, struct datasets *set,
                      struct plan plans[LIMIT_STAGES], struct err *err)
{
    const char *path = opt_text(v, "plan");
    struct plan given;
    int rc;
    if ((rc = path ? plan_load(path, &given, err)
                   : plan_from_options(v, run, set, &given, err)) < 0)
        return rc;
    for (int64_t i = 0; i < run->n_stages; i++) {
        plans[i] = given;
        if (run->stages[i].plan) {
            if ((rc = plan_load(run->stages[i].plan, &plans[i], err)) < 0)
                return rc;
        } else if (i > 0) { /* the given plan is for the first stage; others use its layout */
            plans[i].gbs = run->stages[i].gbs;
            if ((rc = run_stage_seq(run, i, set, &plans[i].seq, err)) < 0)
                return rc;
        }
    }
    return 0;
}

/* Holds the seconds of each step of a trial, the first included. */
static double trial_times_s[TRAIN_TIMES_MAX];

static void times_json(const struct train_report *r, struct json_out *o)
{
    json_arr_begin(o, "steps_s");
    for (int64_t i = 0; i < r->n_times; i++)
        json_put_num(o, NULL, trial_times_s[i]);
    json_arr_end(o);
}

/* Writes how GPUs spent the recorded steps, as means over ranks; null if nothing was recorded. */
static void activity_json(const struct train_report *r, struct json_out *o)
{
    const struct timeline_sum *s = &r->activity.sums;
    if (r->activity.steps == 0) {
        json_put_null(o, "activity");
        json_put_text(o, "activity_refused", r->activity_refused);
        return;
    }
    json_obj_begin(o, "activity");
    json_put_int(o, "steps", r->activity.steps);
    json_put_num(o, "step_s", r->activity_step_s);
    json_obj_begin(o, "class_s");
    for (int c = 0; c < KERNEL_CLASSES; c++)
        json_put_num(o, kernel_class_names[c], s->class_s[c]);
    json_put_num(o, KERNEL_NONE_NAME, s->idle_s);
    json_obj_end(o);
    json_put_num(o, "exposed_s", s->exposed_s);
    json_put_num(o, "hidden_s", s->hidden_s);
    json_put_num(o, "compute_s", s->compute_s);
    json_put_num(o, "mfu", s->mfu);
    json_put_num(o, "hfu", s->hfu);
    json_put_num(o, "busy_hfu", s->busy_hfu);
    json_put_int(o, "activities", r->activity.activities);
    json_put_int(o, "dropped", r->activity.dropped);
    json_put_num(o, "overhead_s", r->activity.overhead_s);
    json_obj_end(o);
}

/* Writes the CPU time of a step by the classes that the cost model prices; null if it was not
 * measured. */
static void classes_json(const struct train_report *r, struct json_out *o)
{
    const double *s = r->class_cpu_s;
    if (!(s[METER_CLASS_GEMM] > 0)) {
        json_put_null(o, "class_cpu_s");
        return;
    }
    json_obj_begin(o, "class_cpu_s");
    json_put_num(o, "gemm", s[METER_CLASS_GEMM]);
    json_put_num(o, "attention", s[METER_CLASS_ATTN_FWD] + s[METER_CLASS_ATTN_BWD]);
    json_put_num(o, "elementwise", s[METER_CLASS_ELEMENTWISE]);
    json_put_num(o, "inputs", s[METER_CLASS_INPUTS]);
    json_put_num(o, "optimizer", s[METER_CLASS_UPDATE]);
    json_obj_end(o);
}

static void trial_json(const struct train_report *r, const char *state, struct str *text)
{
    struct json_out o;
    json_out_init(&o, text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.trial/1");
    json_put_text(&o, "state", state);
    json_put_int(&o, "steps", r->steps);
    json_put_bool(&o, "stopped_early", r->end == TRAIN_STOPPED);
    json_put_num(&o, "step_s", r->median_step_s);
    json_put_num(&o, "min_step_s", r->min_step_s);
    json_put_num(&o, "max_step_s", r->max_step_s);
    times_json(r, &o);
    classes_json(r, &o);
    json_put_num(&o, "data_s", r->phases.data_s);
    json_put_num(&o, "forward_s", r->phases.forward_s);
    json_put_num(&o, "backward_s", r->phases.backward_s);
    json_put_num(&o, "comm_s", r->phases.comm_s);
    json_put_num(&o, "optim_s", r->phases.optim_s);
    json_put_num(&o, "other_s", r->phases.other_s);
    json_put_num(&o, "tokens", r->tokens);
    json_put_num(&o, "model_flops", r->model_flops);
    json_put_num(&o, "mfu", r->mfu);
    json_put_num(&o, "loss", r->loss);
    json_put_int(&o, "planned_bytes", r->planned_bytes);
    json_put_int(&o, "device_bytes", r->device_bytes);
    json_put_int(&o, "pinned_bytes", r->pinned_bytes);
    json_put_int(&o, "taken_bytes", r->taken_bytes);
    json_put_int(&o, "taken_pinned_bytes", r->taken_pinned_bytes);
    json_put_int(&o, "used_bytes", r->used_bytes);
    json_put_int(&o, "peak_bytes", r->peak_bytes);
    json_put_int(&o, "mpi_bytes", r->mpi_bytes);
    json_put_int(&o, "graphs", r->graphs);
    json_put_int(&o, "graph_launches", r->graph_launches);
    activity_json(r, &o);
    json_obj_end(&o);
    str_addc(text, '\n');
}

/* Writes reel.trial/1 on stdout and as <run-dir>/trial.json. state is "ok"; or "oom" if the plan of
 * memory exceeded --memory-limit or the memory that there is, and then the measured fields are
 * null. planned_bytes, device_bytes and pinned_bytes are rank 0's plan, which is the largest: all
 * of it, the part on the device, and the pinned host memory from which the device copies. taken_…
 * are the most bytes of device and of pinned memory that were allocated at one time. used_bytes are
 * the bytes of a GPU's memory that were not free after the last step, whichever process had them; 0
 * on the CPU. steps_s has the time of every step. peak_bytes is the most resident memory of a rank.
 * mpi_bytes is a part of it: the growth of the memory through which MPI passes messages between
 * ranks of a node, which is not in the plan. */
static int trial_print(const struct train_report *r, const char *state, const char *dir,
                       struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    int rc;
    trial_json(r, state, &text);
    snprintf(path, sizeof path, "%s/trial.json", dir);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if ((rc = file_publish(path, text.p, text.len, err)) < 0)
        goto out;
    rc = train_print(&text, err);
out:
    str_release(&text);
    return rc;
}

/* Prints the result of a trial. Returns the trial's status, which stays ERR_NO if the plan was past
 * a limit and ERR_NOMEM if there was not enough memory. */
static int trial_end(const struct train_report *r, int status, const char *dir, struct err *err)
{
    struct err more = {0};
    if (status != 0 && status != ERR_NO && status != ERR_NOMEM)
        return status;
    int rc = trial_print(r, status == 0 ? "ok" : "oom", dir, &more);
    return rc < 0 ? err_set(err, rc, "%s", more.text) : status;
}

static int64_t steps_wanted(const struct opt_values *v)
{
    if (opt_bool(v, "trial"))
        return opt_given(v, "steps") ? opt_int(v, "steps") : TRIAL_STEPS;
    return opt_given(v, "steps") && opt_text(v, "run") ? opt_int(v, "steps") : 0;
}

/* Checks what --resume and --no-resume require of the folder. Only rank 0 looks, because a network
 * file system may show different contents to different ranks. */
static int resume_check(const struct opt_values *v, const char *dir, struct err *err)
{
    bool found = ckpt_newest_step(dir) > 0;
    if (!opt_given(v, "resume") || opt_bool(v, "resume") == found)
        return 0;
    if (found)
        return err_set(err, ERR_INPUT,
                       "--no-resume: '%s' holds checkpoints: give another --run-dir to begin anew, "
                       "or leave --no-resume out to go on",
                       dir);
    return err_set(err, ERR_INPUT,
                   "--resume: '%s' holds no checkpoint (ckpt/step-…) to go on from: give the "
                   "folder of a run that has saved one, or " TRAIN_ANEW,
                   dir);
}

static int folder_open(const struct opt_values *v, int rank, const char *dir, struct err *err)
{
    if (strlen(dir) > RUN_DIR_MAX)
        return err_set(err, ERR_LIMIT, "--run-dir has %zu bytes: give a path of at most %d",
                       strlen(dir), RUN_DIR_MAX);
    int rc = rank == 0 ? resume_check(v, dir, err) : 0;
    return rc < 0 || opt_bool(v, "resume") ? rc : file_mkdirs(dir, err);
}

/* Returns for which steps a line is printed. Who reads events, or the object of a trial, needs no
 * lines. */
static int64_t log_interval_of(const struct opt_values *v)
{
    if (opt_given(v, "log-interval"))
        return opt_int(v, "log-interval");
    return !opt_bool(v, "stop-ok") && !opt_bool(v, "trial");
}

/* Measures the FMA rate of the slowest rank while all ranks compute on the CPU, and puts it as the
 * device's peak into those plans that name none. */
static int peak_measure(const struct run *run, struct comm *world, struct plan *plans, bool say_it,
                        struct err *err)
{
    bool known = true;
    int rc;
    for (int64_t i = 0; i < run->n_stages; i++)
        known = known && plans[i].peak_flops > 0;
    if (known)
        return 0;
    if ((rc = comm_barrier(world, err)) < 0)
        return rc;
    double slowest = -fma_rate(run->dtype);
    if ((rc = comm_max(world, &slowest, 1, err)) < 0)
        return rc;
    for (int64_t i = 0; i < run->n_stages; i++)
        if (!(plans[i].peak_flops > 0)) {
            plans[i].peak_flops = -slowest;
            snprintf(plans[i].peak_source, sizeof plans[i].peak_source,
                     "FMA rate of a core, measured at the start");
        }
    if (world->rank == 0 && say_it)
        log_msg(LOG_INFO, "MFU is of %.4g FLOP/s a rank: the FMA rate of a core, measured now",
                -slowest);
    return 0;
}

static enum run_verify verify_of(const struct opt_values *v, const struct run *run)
{
    return !opt_given(v, "verify") ? run->verify
           : opt_bool(v, "verify") ? VERIFY_ALWAYS
                                   : VERIFY_NEVER;
}

/* Records an error that would occur in another attempt, too. */
static void rejection_record(const struct train_conf *conf, int rc, const struct err *err)
{
    if (rc == ERR_INPUT || rc == ERR_USAGE)
        record_rejected(conf->run_dir, conf->attempt, err->text);
}

/* Loads the plans of a run that is bound to its data, and makes the run's folder. */
static int place_prepare(const struct opt_values *v, const struct comm *world, struct run *run,
                         struct datasets *set, struct plan plans[LIMIT_STAGES], struct err *err)
{
    const char *dir = opt_text(v, "run-dir");
    bool trial = opt_bool(v, "trial");
    int rc;
    if ((rc = plans_load(v, run, set, plans, err)) < 0)
        return rc;
    if (trial)
        run->text_dropout = 0; /* every step then has the captions that a prediction counts */
    if ((rc = folder_open(v, world->rank, dir, err)) < 0)
        return rc;
    return world->rank == 0 && !trial ? generations_keep(run, dir, err) : 0;
}

static int attempt_prepare(const struct opt_values *v, struct comm *world, struct run *run,
                           struct datasets *set, struct plan plans[LIMIT_STAGES],
                           struct compute_conf *compute, const struct coll_ops **coll,
                           struct err *err)
{
    int rc;
    if ((rc = comm_agree(world, run_inputs_load(v, world, run, set, err), err)) < 0)
        return rc;
    if ((rc = generations_share(world, run, set, err)) < 0)
        return rc;
    if ((rc = comm_agree(world, place_prepare(v, world, run, set, plans, err), err)) < 0)
        return rc;
    if ((rc = device_comm_take(v, run->resources.gpus_per_node, world, compute, coll, err)) < 0)
        return rc;
    device_name(compute, plans, run->n_stages);
    compute->deterministic = opt_bool(v, "deterministic");
    if (opt_bool(v, "trial") || compute->device != COMPUTE_CPU)
        return 0;
    return peak_measure(run, world, plans, !opt_bool(v, "quiet"), err);
}

static struct train_conf conf_of(const struct opt_values *v, const struct run *run,
                                 struct datasets *set, const struct plan *plans, struct comm *world,
                                 const struct compute_conf *compute, const struct coll_ops *coll,
                                 struct notice *notice)
{
    return (struct train_conf){
        .run = run, .plans = plans, .datasets = set,
        .run_dir = opt_text(v, "run-dir"), .attempt = opt_int(v, "attempt"),
        .trial = opt_bool(v, "trial"),
        .resume = opt_bool(v, "resume"), .anew = opt_given(v, "resume") && !opt_bool(v, "resume"),
        .max_steps = steps_wanted(v), .verify = verify_of(v, run),
        .compute = *compute, .coll = coll,
        .memory_limit_bytes = opt_given(v, "memory-limit") ? opt_int(v, "memory-limit") : 0,
        .host_memory_limit_bytes =
            opt_given(v, "host-memory-limit") ? opt_int(v, "host-memory-limit") : 0,
        .world = world,
        .stop = &notice->signo, .stop_heard = &notice->heard, .phase = &notice->phase,
        .log_interval = log_interval_of(v), .say = opt_bool(v, "quiet") ? NULL : say,
        .graphs = opt_enum(v, "graphs") == GRAPHS_AUTO,
        .profile = opt_bool(v, "profile"), .trace = opt_text(v, "trace"),
        .times_s = opt_bool(v, "trial") ? trial_times_s : NULL,
        .mtbf_s = opt_given(v, "mtbf") ? opt_num(v, "mtbf") : 0,
        .save_s = opt_given(v, "save-took") ? opt_num(v, "save-took") : 0,
        .give_up_s = opt_given(v, "give-up") ? opt_num(v, "give-up") : 0};
}

/* Runs the attempt or trial on this rank. *end, set when 0 is returned, says how it ended. */
static int train_here(const struct opt_values *v, struct comm *world, struct notice *notice,
                      enum train_end *end, struct err *err)
{
    struct run run = {0};
    struct datasets set = {0};
    static struct plan plans[LIMIT_STAGES];
    struct train_report report = {0};
    struct compute_conf compute = {0};
    const struct coll_ops *coll = NULL;
    int rc = attempt_prepare(v, world, &run, &set, plans, &compute, &coll, err);
    struct train_conf conf = conf_of(v, &run, &set, plans, world, &compute, coll, notice);
    bool recorded = world->rank == 0 && !conf.trial;
    if (rc < 0) {
        if (recorded)
            rejection_record(&conf, rc, err);
        goto out;
    }
    if (recorded)
        notice_record(notice, conf.run_dir, conf.attempt);
    rc = train_run(&conf, &report, err);
    if (conf.trial && world->rank == 0)
        rc = trial_end(&report, rc, conf.run_dir, err);
    *end = conf.trial ? TRAIN_DONE : report.end;
out:
    datasets_drop(&set);
    run_release(&run);
    return rc;
}

int train_cmd_train_run(const struct opt_values *v, int argc, char **argv, struct err *err)
{
    static struct notice notice; /* its thread lives to the end of the process */
    struct comm *world = NULL;
    enum train_end end = TRAIN_DONE;
    int rc = notice_listen(&notice, err);
    if (rc < 0)
        return rc;
    signal(SIGPIPE, SIG_IGN); /* the run goes on when the reader of our messages has gone */
    rc = train_world_open(&argc, &argv, &world, err);
    if (rc < 0)
        return rc;
    world->conf->deadline_s = opt_num(v, "comm-deadline");
    world->conf->ordered = opt_bool(v, "deterministic");
    rc = train_here(v, world, &notice, &end, err);
    if (rc < 0 && world->broken) {
        log_msg(LOG_ERROR, "%s", err->text);
        comm_abort(world, err_exit_code(rc));
    }
    if (rc < 0)
        train_sentence_say(world, err);
    if (rc == 0 && end != TRAIN_DONE && !opt_bool(v, "stop-ok"))
        rc = ERR_TEMP; /* without an error text: the run is saved, another attempt goes on */
    comm_close(world);
    return rc;
}
