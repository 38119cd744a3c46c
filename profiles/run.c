/* This file reads and writes the format reel.run/1: what is trained. Everything but model and
 * stages has a default. The tables below say what each field means; `reel format run` and
 * docs/formats.md are made from them.
 *
 * The writer writes every field, the model as an object, in this order: that text is canonical. The
 * config hash is XXH3-128 of the canonical text (one line) of everything that decides the numbers:
 * schema, model, stages, objective, adamw, schedule, random, numerics, past, groups, lora and init.
 * Name, data.verify, validation, checkpoint, budget, resources and the stages' plans are left out.
 * So is the path of the data once its fingerprint is known: a moved dataset is the same dataset.
 * Layouts are not part of a run's identity at all, so any layout may resume it.
 *
 * A checkpoint after step S carries the hash of what decided its steps (run_past_hash). It is the
 * hash of the same text with the stages cut off at S, and with the rates that held before S instead
 * of lr, schedule and past. Steps added after S, and rates that hold from S on, do not change it.
 *
 * Defaults follow the published recipes of this family (lr 1e-4, betas 0.9 / 0.95, decay 0.1,
 * warm-up 100 then constant, P_mean 0, P_std 1, text dropout 0.2, seed 1234).
 */
#include "profiles/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "profiles/field.h"
#include "profiles/format.h"

static const char run_schema[] = "reel.run/1";
const char *const verify_names[] = {"first", "always", "never", NULL};
const char *const again_names[] = {"auto", "requeue", "successor", NULL};
const char *const level_dist_names[] = {"normal", "logistic", "uniform", "mode", "cosine", NULL};
const char *const moments_names[] = {"same", "bf16", NULL};
const char *const residual_names[] = {"same", "f32", NULL};
const char *const objective_names[] = {"edm", "rectified_flow", "v", NULL};
const char *const loss_norm_names[] = {"token", "sample", NULL};
const char *const lr_schedule_names[] = {"constant", "cosine", "linear", NULL};

void run_init(struct run *r)
{
    *r = (struct run){
        .name = "run",
        .level =
            {.std = 1, .min = -5, .max = 5, .mode_scale = 1.29, .shift = 1, .shift_power = 0.5},
        .condition_frames = 1,
        .text_dropout = 0.2,
        .adamw = {.lr = 1e-4,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .weight_decay = 0.1,
                  .clip_norm = 1},
        .warmup_steps = 100,
        .lr_final_scale = 0.1,
        .seed = 1234,
        .dtype = DTYPE_F32,
        .ckpt_keep = 2,
        .validation = {.samples = 16, .bins = 8},
        .budget = RUN_BUDGET_INIT,
        .resources = {.nodes = 1, .ranks_per_node = 1, .cores_per_rank = 1, .node_agents = true},
    };
    r->budget.hang_s = 1800;
    r->budget.nonfinite_steps = 10;
    arena_init(&r->arena, 4096);
}

void run_release(struct run *r)
{
    arena_release(&r->arena);
    memset(r, 0, sizeof *r);
}

/* ---- the tables: one section is one object of the file ---- */

#define AT(field) offsetof(struct run, field), .optional = true
static const struct json_field objective_fields[] = {
    {"kind", JSON_ENUM, AT(objective), .names = objective_names,
     .help = "what is trained to be predicted"},
    {"level", JSON_ENUM, AT(level.dist), .names = level_dist_names,
     .help = "law from which L = ln(sigma / alpha) is drawn, the log of noise over data "
             "amplitude"},
    {"level_mean", JSON_NUM, AT(level.mean), .min = -100, .max = 100,
     .help = "normal (edm: of ln sigma; rectified flow: of logit t) and logistic: its mean"},
    {"level_std", JSON_NUM, AT(level.std), .min = 0, .max = 100, .help = "and its spread"},
    {"level_min", JSON_NUM, AT(level.min), .min = -100, .max = 100, .help = "uniform: from here"},
    {"level_max", JSON_NUM, AT(level.max), .min = -100, .max = 100, .help = "to here"},
    {"level_mode_scale", JSON_NUM, AT(level.mode_scale), .min = -1, .max = 1.75,
     .help = "mode's scale"},
    {"shift", JSON_NUM, AT(level.shift), .min = 1e-6, .max = 1e6,
     .help = "factor on sigma / alpha of all samples"},
    {"shift_tokens", JSON_INT, AT(level.shift_tokens), .min = 0, .max = 1e12,
     .help = "not 0: each sample's own tokens give a further factor, (tokens / "
             "shift_tokens)^shift_power"},
    {"shift_power", JSON_NUM, AT(level.shift_power), .min = 0, .max = 10, .help = "that power"},
    {"condition_probability", JSON_NUM, AT(condition_probability), .min = 0, .max = 1,
     .help = "probability that a video is given its first frames; needs a model with channels "
             "for them"},
    {"condition_frames", JSON_INT, AT(condition_frames), .min = 1, .max = 1 << 20,
     .help = "how many latent frames; a sample with no more is never given them"},
    {"text_dropout", JSON_NUM, AT(text_dropout), .min = 0, .max = 1,
     .help = "probability that a caption becomes the null token"},
    {"loss_norm", JSON_ENUM, AT(loss_norm), .names = loss_norm_names,
     .help = "token: mean over valid latent elements of the batch; sample: mean of the means "
             "of samples"},
};
static const struct json_field data_fields[] = {
    {"verify", JSON_ENUM, AT(verify), .names = verify_names,
     .help = "when the shards' checksums are compared with the index's: first, until they once "
             "were; always, in each attempt; never. Their sizes are always compared"},
};
static const struct json_field validation_fields[] = {
    {"data", JSON_TEXT, AT(validation.data),
     .help = "dataset folder or synthetic:TxHxW; left out: no validation"},
    {"data_fingerprint", JSON_TEXT, AT(validation.data_fingerprint), .help = "as in a stage"},
    {"every_steps", JSON_INT, AT(validation.every_steps), .min = 0, .max = 1e12,
     .help = "after so many steps, and at the end; 0: never"},
    {"samples", JSON_INT, AT(validation.samples), .min = 1, .max = 1e9,
     .help = "so many of the data's order are measured, with fixed draws"},
    {"bins", JSON_INT, AT(validation.bins), .min = 1, .max = RUN_BINS_MAX,
     .help = "each once in each of so many equally probable bins of the noise level"},
};
static const struct json_field adamw_fields[] = {
    {"lr", JSON_NUM, AT(adamw.lr), .min = 0, .max = 1e3, .help = "learning rate"},
    {"beta1", JSON_NUM, AT(adamw.beta1), .min = 0, .max = 1, .help = "decay of the first moment"},
    {"beta2", JSON_NUM, AT(adamw.beta2), .min = 0, .max = 1, .help = "decay of the second moment"},
    /* an eps of 0 would give 0 / 0 where a gradient is 0 */
    {"eps", JSON_NUM, AT(adamw.eps), .min = 1e-30, .max = 1,
     .help = "added to the root of the second moment"},
    {"weight_decay", JSON_NUM, AT(adamw.weight_decay), .min = 0, .max = 1e3,
     .help = "decay of weights, relative to the learning rate"},
    {"clip_norm", JSON_NUM, AT(adamw.clip_norm), .min = 0, .max = 1e30,
     .help = "global gradient norm that is not passed; 0: no clipping"},
    {"ema_decay", JSON_NUM, AT(adamw.ema_decay), .min = 0, .max = 1,
     .help = "decay of the averaged weights; 0: no average is kept"},
    {"spike_z", JSON_NUM, AT(adamw.spike_z), .min = 0, .max = 1e6, .later = true,
     .help = "not 0: a step changes nothing when its loss or gradient norm is more than so "
             "many standard deviations above those of the stage's last 128 steps; 6 is usual"},
};
static const struct json_field schedule_fields[] = {
    {"kind", JSON_ENUM, AT(lr_schedule), .names = lr_schedule_names,
     .help = "how the learning rate goes, over the steps of all stages together"},
    {"warmup_steps", JSON_INT, AT(warmup_steps), .min = 0, .max = 1e12,
     .help = "steps in which it rises to its full value; left out: 100, or a tenth of the "
             "run's steps when that is less"},
    {"final_scale", JSON_NUM, AT(lr_final_scale), .min = 0, .max = 1,
     .help = "cosine, linear: learning rate of the last step, as a share"},
};
static const struct json_field random_fields[] = {
    {"seed", JSON_U64TEXT, AT(seed), .help = "of all that is drawn: 64 bits, written as a text"},
};
static const struct json_field numerics_fields[] = {
    {"dtype", JSON_ENUM, AT(dtype), .names = dtype_names,
     .help = "of weights and activations; beside bf16 all else is f32. fp8 is refused"},
    {"moments", JSON_ENUM, AT(moments), .names = moments_names,
     .help = "of AdamW's moments: same (as dtype; for bf16: f32), or bf16, rounded at random"},
    {"residual", JSON_ENUM, AT(residual), .names = residual_names, .later = true,
     .help = "of the residual stream and its gradient: same (as dtype), or f32 beside bf16"},
};
static const char *const never[] = {"never", NULL}; /* RUN_NEVER */
static const struct json_field checkpoint_fields[] = {
    {"every_steps", JSON_INT, AT(ckpt_every_steps), .min = 0, .max = 1e12, .names = never,
     .help = "0: chosen as training goes, by how long saves take and how often the run failed; "
             "never: at the end and on request only"},
    {"keep", JSON_INT, AT(ckpt_keep), .min = 1, .max = 1e6,
     .help = "how many of the newest stay on disk"},
    {"async", JSON_BOOL, AT(ckpt_async),
     .help = "written from a copy in memory while training goes on, except an attempt's last "
             "one"},
};
static const struct json_field budget_fields[] = {
    {"crash_without_progress", JSON_INT, AT(budget.crash), .min = 0, .max = 1e6,
     .help = "the run ends after so many crashes and hangs without a new step between them; 0: "
             "no bound"},
    {"node_fail_without_progress", JSON_INT, AT(budget.node_fail), .min = 0, .max = 1e6,
     .help = "the same for lost nodes"},
    {"preempt_without_progress", JSON_INT, AT(budget.preempt), .min = 0, .max = 1e6,
     .help = "and for preemptions"},
    {"time_limit_without_progress", JSON_INT, AT(budget.time_limit), .min = 0, .max = 1e6,
     .help = "and for time limits"},
    {"wall_s", JSON_NUM, AT(budget.wall_s), .min = 0, .max = 1e12,
     .help = "seconds since its first attempt began; 0: no bound"},
    {"hang_s", JSON_NUM, AT(budget.hang_s), .min = 0, .max = 1e9,
     .help = "after so many seconds without an event of the trainer it is taken to hang and is "
             "ended; 0: never"},
    {"nonfinite_steps", JSON_INT, AT(budget.nonfinite_steps), .min = 0, .max = 1e9,
     .help = "after so many skipped steps in a row the state is saved and training ends with "
             "exit status 6; 0: no bound"},
};
static const struct json_field resources_fields[] = {
    {"nodes", JSON_INT, AT(resources.nodes), .min = 1, .max = LIMIT_RANKS, .help = "machines"},
    {"ranks_per_node", JSON_INT, AT(resources.ranks_per_node), .min = 1, .max = LIMIT_RANKS,
     .help = "processes on each"},
    {"cores_per_rank", JSON_INT, AT(resources.cores_per_rank), .min = 1, .max = 1 << 20,
     .help = "cores of each process"},
    {"time_limit_s", JSON_NUM, AT(resources.time_limit_s), .min = 0, .max = 1e9,
     .help = "of one attempt, in seconds; 0: the partition's"},
    {"gpus_per_node", JSON_INT, AT(resources.gpus_per_node), .min = 0, .max = 1024,
     .help = "GPUs that are asked for"},
    {"priority", JSON_INT, AT(resources.priority), .min = -1000, .max = 1000,
     .help = "a higher one goes first"},
    {"node_agents", JSON_BOOL, AT(resources.node_agents),
     .help = "Slurm: a process on each node hears notices to stop, beside the batch process"},
    {"partition", JSON_TEXT, AT(resources.partition), .help = "Slurm's; left out: its default"},
    {"account", JSON_TEXT, AT(resources.account), .help = "Slurm's; left out: its default"},
    {"qos", JSON_TEXT, AT(resources.qos), .help = "Slurm's; left out: its default"},
    {"exclude", JSON_TEXT, AT(resources.exclude), .help = "nodes not to be used, as n[1-2]"},
    {"again", JSON_ENUM, AT(resources.again), .names = again_names,
     .help = "how the run comes back: requeue its job, or successor: each job submits the "
             "next; auto: successor where preemption cancels jobs"},
};

static const struct section {
    const char *key;
    const struct json_field *fields;
    size_t n_fields;
    bool hashed; /* the section decides the numbers, so the hash covers it */
} sections[] = {
    {"objective", objective_fields, ARRAY_LEN(objective_fields), true},
    {"adamw", adamw_fields, ARRAY_LEN(adamw_fields), true},
    {"schedule", schedule_fields, ARRAY_LEN(schedule_fields), true},
    {"random", random_fields, ARRAY_LEN(random_fields), true},
    {"numerics", numerics_fields, ARRAY_LEN(numerics_fields), true},
    {"data", data_fields, ARRAY_LEN(data_fields), false},
    {"validation", validation_fields, ARRAY_LEN(validation_fields), false},
    {"checkpoint", checkpoint_fields, ARRAY_LEN(checkpoint_fields), false},
    {"budget", budget_fields, ARRAY_LEN(budget_fields), false},
    {"resources", resources_fields, ARRAY_LEN(resources_fields), false},
};

struct run_top {
    const char *name;
};
static const struct json_field top_fields[] = {
    {"schema", JSON_ANY, 0, .optional = false, .help = "\"reel.run/1\""},
    {"name", JSON_TEXT, offsetof(struct run_top, name), .optional = true,
     .help = "letters, digits, - and _; for people, apart from the run's id; left out: run"},
    {"model", JSON_ANY, 0, .optional = false,
     .help = "name of a compiled-in model, with a variant if wanted, or an object reel.model/1"},
    {"stages", JSON_ANY, 0, .optional = false,
     .help = "array of 1 to 16 objects, trained one after the other"},
    {"objective", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"adamw", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"schedule", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"random", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"numerics", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"data", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"validation", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"checkpoint", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"budget", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"resources", JSON_ANY, 0, .optional = true, .help = "object, see below"},
    {"past", JSON_ANY, 0, .optional = true,
     .help = "array of rates that held until a step was done; reel launch --change lr writes it"},
    {"groups", JSON_ANY, 0, .optional = true,
     .help = "array: which parameters are trained, and how"},
    {"lora", JSON_ANY, 0, .optional = true, .help = "object: adapters"},
    {"init", JSON_ANY, 0, .optional = true,
     .help = "object: weights to begin with; left out: drawn from the seed"},
};

/* ---- reading ---- */

struct stage_text {
    const char *fingerprint;
    struct run_stage s;
};
static const struct json_field stage_fields[] = {
    {"data", JSON_TEXT, offsetof(struct stage_text, s.data), .optional = false,
     .help = "dataset folder, or synthetic:TxHxW (latent cells). A relative folder is taken "
             "from the working directory"},
    {"data_fingerprint", JSON_TEXT, offsetof(struct stage_text, fingerprint), .optional = true,
     .help = "32 hex digits, the index's; left out: whatever is there at launch"},
    {"gbs", JSON_INT, offsetof(struct stage_text, s.gbs), .min = 1, .max = 1 << 30,
     .help = "packs of one optimizer step; a pack is one sample, unless pack_tokens is given"},
    {"steps", JSON_INT, offsetof(struct stage_text, s.steps), .min = 1, .max = 1e12,
     .help = "optimizer steps"},
    {"pack_tokens", JSON_INT, offsetof(struct stage_text, s.pack_tokens), .optional = true,
     .min = 0, .max = 1e12,
     .help = "not 0: a pack has as many samples as fit into so many tokens"},
    {"gbs_first", JSON_INT, offsetof(struct stage_text, s.gbs_first), .optional = true, .min = 0,
     .max = 1 << 30,
     .help = "packs of the first steps; this and the next two are all given or all left out"},
    {"gbs_more", JSON_INT, offsetof(struct stage_text, s.gbs_more), .optional = true, .min = 0,
     .max = 1 << 30,
     .help = "so many packs more"},
    {"gbs_every_steps", JSON_INT, offsetof(struct stage_text, s.gbs_every_steps), .optional = true,
     .min = 0, .max = 1e12,
     .help = "after every so many steps, until there are gbs"},
    {"plan", JSON_TEXT, offsetof(struct stage_text, s.plan), .optional = true,
     .help = "plan of this stage, for as many ranks; left out: the plan given to the program"},
};

static int stage_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct run *r,
                      struct err *err)
{
    struct stage_text t = {0};
    int rc;
    if ((rc = json_read(doc, obj, path, stage_fields, ARRAY_LEN(stage_fields), &r->arena, &t,
                        err)) < 0)
        return rc;
    if (t.fingerprint && (rc = field_read_hash(t.fingerprint, doc, path, "data_fingerprint",
                                               &t.s.data_fingerprint, err)) < 0)
        return rc;
    if (!*t.s.data)
        return err_set(err, ERR_INPUT,
                       "%s: %s.data is empty: give a dataset folder or synthetic:TxHxW", doc->name,
                       path);
    r->stages[r->n_stages++] = t.s;
    return 0;
}

static int stages_read(const struct json_doc *doc, struct run *r, struct err *err)
{
    const cJSON *list = json_member(doc->root, "stages"), *item;
    int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0, rc = 0;
    if (n < 1 || n > LIMIT_STAGES)
        return err_set(err, ERR_INPUT, "%s: stages %s: give an array of 1 to %d stages", doc->name,
                       cJSON_IsArray(list) ? n ? "is too long" : "is empty" : "is no array",
                       LIMIT_STAGES);
    cJSON_ArrayForEach(item, list)
    {
        char path[32];
        snprintf(path, sizeof path, "stages[%lld]", (long long)r->n_stages);
        if ((rc = stage_read(doc, item, path, r, err)) < 0)
            return rc;
    }
    return 0;
}

static const struct json_field past_fields[] = {
    {"until_step", JSON_INT, offsetof(struct run_past, until_step), .min = 1, .max = 1e13,
     .help = "holds for the steps before this one"},
    {"lr", JSON_NUM, offsetof(struct run_past, rate.lr), .min = 0, .max = 1e3,
     .help = "in the place of adamw.lr"},
    {"kind", JSON_ENUM, offsetof(struct run_past, rate.kind), .names = lr_schedule_names,
     .help = "of schedule.kind"},
    {"warmup_steps", JSON_INT, offsetof(struct run_past, rate.warmup_steps), .min = 0, .max = 1e12,
     .help = "of schedule.warmup_steps"},
    {"final_scale", JSON_NUM, offsetof(struct run_past, rate.final_scale), .min = 0, .max = 1,
     .help = "of schedule.final_scale"},
    {"steps", JSON_INT, offsetof(struct run_past, rate.steps), .min = 0, .max = 1e13,
     .help = "and of the number of steps over which a rate falls"},
};

static int past_read(const struct json_doc *doc, struct run *r, struct err *err)
{
    const cJSON *list = json_member(doc->root, "past"), *item;
    char path[32];
    if (list && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > RUN_PAST_MAX))
        return err_set(err, ERR_INPUT,
                       "%s: past is no array, or has more than %d entries: give up to so many",
                       doc->name, RUN_PAST_MAX);
    cJSON_ArrayForEach(item, list)
    {
        snprintf(path, sizeof path, "past[%lld]", (long long)r->n_past);
        int rc = json_read(doc, item, path, past_fields, ARRAY_LEN(past_fields), NULL,
                           &r->past[r->n_past], err);
        if (rc < 0)
            return rc;
        r->n_past++;
    }
    return 0;
}

static int sections_read(const struct json_doc *doc, struct run *r, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        const struct section *s = &sections[i];
        const cJSON *obj = json_member(doc->root, s->key);
        int rc = obj ? json_read(doc, obj, s->key, s->fields, s->n_fields, &r->arena, r, err) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Shortens the default warm-up to a tenth of the steps where it would be longer than that. */
static void warmup_default(const struct json_doc *doc, struct run *r)
{
    r->warmup_given = json_member(json_member(doc->root, "schedule"), "warmup_steps") != NULL;
    if (!r->warmup_given && r->warmup_steps > run_total_steps(r) / 10)
        r->warmup_steps = run_total_steps(r) / 10;
}

/* Checks the text of validation.data_fingerprint, which struct run holds as a text. */
static int fingerprint_check(const struct json_doc *doc, const char *text, struct err *err)
{
    struct hash128 ignored;
    return text ? field_read_hash(text, doc, "validation", "data_fingerprint", &ignored, err) : 0;
}

static int run_read(const struct json_doc *doc, struct run *r, struct err *err)
{
    struct run_top top = {"run"};
    const cJSON *root = doc->root;
    int rc;
    if ((rc = json_check_schema(doc, run_schema, err)) < 0)
        return rc;
    if ((rc = json_read(doc, root, "", top_fields, ARRAY_LEN(top_fields), NULL, &top, err)) < 0)
        return rc;
    if ((rc = field_copy_text(r->name, sizeof r->name, top.name, doc, "", "name", err)) < 0)
        return rc;
    if ((rc = model_read_ref(doc, json_member(root, "model"), "model", &r->model, err)) < 0)
        return rc;
    if ((rc = stages_read(doc, r, err)) < 0)
        return rc;
    if ((rc = sections_read(doc, r, err)) < 0)
        return rc;
    if ((rc = fingerprint_check(doc, r->validation.data_fingerprint, err)) < 0)
        return rc;
    if ((rc = past_read(doc, r, err)) < 0)
        return rc;
    if ((rc = finetune_read(doc, root, &r->finetune, err)) < 0)
        return rc;
    if ((rc = warm_read(doc, root, &r->arena, &r->warm, err)) < 0)
        return rc;
    warmup_default(doc, r);
    return run_check(r, doc->name, err);
}

static int run_from_doc(const struct json_doc *doc, struct run *out, struct err *err)
{
    struct run r;
    run_init(&r);
    int rc = run_read(doc, &r, err);
    if (rc < 0)
        run_release(&r);
    else
        *out = r;
    return rc;
}

int run_parse(const char *text, size_t len, const char *name, struct run *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = json_parse(text, len, name, &doc, err)) < 0)
        return rc;
    rc = run_from_doc(&doc, out, err);
    json_release(&doc);
    return rc;
}

int run_load(const char *path, struct run *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = json_load(path, &doc, err)) < 0)
        return rc;
    rc = run_from_doc(&doc, out, err);
    json_release(&doc);
    return rc;
}

/* ---- writing ---- */

static bool fingerprint_known(const struct run_stage *s)
{
    return s->data_fingerprint.hi || s->data_fingerprint.lo;
}

static void stages_write(const struct run *r, struct json_out *o, bool for_hash)
{
    json_arr_begin(o, "stages");
    for (int64_t i = 0; i < r->n_stages; i++) {
        const struct run_stage *s = &r->stages[i];
        char hex[HASH_TEXT_BYTES];
        json_obj_begin(o, NULL);
        if (!for_hash || !fingerprint_known(s))
            json_put_text(o, "data", s->data);
        if (fingerprint_known(s))
            json_put_text(o, "data_fingerprint", hash_format(s->data_fingerprint, hex));
        json_put_int(o, "gbs", s->gbs);
        json_put_int(o, "steps", s->steps);
        json_put_int(o, "pack_tokens", s->pack_tokens);
        json_put_int(o, "gbs_first", s->gbs_first);
        json_put_int(o, "gbs_more", s->gbs_more);
        json_put_int(o, "gbs_every_steps", s->gbs_every_steps);
        if (s->plan && !for_hash)
            json_put_text(o, "plan", s->plan);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void past_write(const struct run *r, struct json_out *o)
{
    if (r->n_past == 0)
        return;
    json_arr_begin(o, "past");
    for (int64_t i = 0; i < r->n_past; i++) {
        json_obj_begin(o, NULL);
        field_write_table(o, past_fields, ARRAY_LEN(past_fields), &r->past[i]);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void run_put(const struct run *r, struct json_out *o, bool for_hash)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "schema", run_schema);
    if (!for_hash)
        json_put_text(o, "name", r->name);
    model_write(&r->model, o, "model");
    stages_write(r, o, for_hash);
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        if (for_hash && !sections[i].hashed)
            continue;
        json_obj_begin(o, sections[i].key);
        (for_hash ? field_hash_table : field_write_table)(o, sections[i].fields,
                                                          sections[i].n_fields, r);
        json_obj_end(o);
    }
    past_write(r, o);
    finetune_write(&r->finetune, o);
    warm_write(&r->warm, o, for_hash);
    json_obj_end(o);
}

void run_write(const struct run *r, struct json_out *o)
{
    run_put(r, o, false);
}

int run_save(const struct run *r, const char *path, struct err *err)
{
    struct str s = STR_INIT;
    struct json_out o;
    int rc;
    if ((rc = run_check(r, path, err)) < 0)
        return rc;
    json_out_init(&o, &s, 2);
    run_write(r, &o);
    str_addc(&s, '\n');
    if ((rc = str_check(&s, err)) < 0)
        goto out;
    rc = file_publish(path, s.p, s.len, err);
out:
    str_release(&s);
    return rc;
}

struct hash128 run_config_hash(const struct run *r)
{
    struct str s = STR_INIT;
    struct json_out o;
    json_out_init(&o, &s, 0);
    run_put(r, &o, true);
    /* The text has a few KiB: a process without memory for it cannot continue anyway. */
    BUG_ON(s.failed);
    struct hash128 h = hash_128(s.p, s.len);
    str_release(&s);
    return h;
}

/* Cuts the stages down to the first `step` steps. */
static void stages_cut(struct run *r, int64_t step)
{
    int64_t first = 0, n = 0;
    for (; n < r->n_stages && first < step; n++) {
        r->stages[n].steps = num_min_i64(r->stages[n].steps, step - first);
        first += r->stages[n].steps;
    }
    r->n_stages = n;
}

/* Cuts the rates down to those of steps before `step`, and zeroes the members that do not influence
 * such a rate. */
static void rates_cut(struct run *r, const struct run *from, int64_t step)
{
    int64_t n = 0, first = 0;
    struct run_rate before = {0};
    for (int64_t i = 0; i <= from->n_past && first < step; i++) {
        bool now = i == from->n_past;
        int64_t until = now ? step : num_min_i64(step, from->past[i].until_step);
        struct run_rate rate = now ? run_rate_now(from) : from->past[i].rate;
        bool another = n == 0 || !run_rate_same(before, rate), falls = rate.kind != LR_CONSTANT;
        before = rate;
        rate.final_scale = falls ? rate.final_scale : 0;
        rate.steps = falls ? rate.steps : 0;
        rate.warmup_steps = falls || rate.warmup_steps > first ? rate.warmup_steps : 0;
        if (another)
            r->past[n++].rate = rate;
        r->past[n - 1].until_step = until;
        first = until;
    }
    r->n_past = n;
}

struct hash128 run_past_hash(const struct run *r, int64_t step)
{
    struct run cut = *r; /* borrows the texts */
    stages_cut(&cut, step);
    rates_cut(&cut, r, step);
    cut.adamw.lr = cut.lr_final_scale = 0;
    cut.lr_schedule = LR_CONSTANT;
    cut.warmup_steps = 0;
    return run_config_hash(&cut);
}

/* ---- its page ---- */

size_t run_format(struct format_part *out)
{
    static struct run defaults;
    static const struct stage_text stage;
    size_t n = 0;
    run_init(&defaults);
    out[n++] = (struct format_part){"", top_fields, ARRAY_LEN(top_fields), NULL};
    out[n++] = (struct format_part){"stages[]", stage_fields, ARRAY_LEN(stage_fields), &stage};
    for (size_t i = 0; i < ARRAY_LEN(sections); i++)
        out[n++] = (struct format_part){sections[i].key, sections[i].fields, sections[i].n_fields,
                                        &defaults};
    out[n++] = (struct format_part){"past[]", past_fields, ARRAY_LEN(past_fields), NULL};
    n += finetune_format(&out[n]);
    return n + warm_format(&out[n]);
}
