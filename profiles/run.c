/* The format reel.run/1: what is trained. Everything but model and stages has a default, shown
 * here.
 *
 *  {
 *    "schema": "reel.run/1",
 *    "name": "demo",          default "run": letters, digits, - and _; an alias for people, apart
 *                             from the run's id
 *    "model": "dit-tiny",     a catalog name, with variant if wanted, or a reel.model/1 object
 *    "stages": [              1 to 16, trained one after the other
 *      {"data": "clips",      dataset folder, or "synthetic:TxHxW" (latent cells)
 *       "data_fingerprint": "9f0c...",   32 hex digits, the index's; left out: whatever is there
 *                             at launch
 *       "gbs": 16,            packs of one optimizer step; a pack is one sample, unless
 *       "pack_tokens": 0,     this is not 0: then as many as fit into so many tokens
 *                             (profiles/pack.h)
 *       "gbs_first": 4, "gbs_more": 4, "gbs_every_steps": 10,   left out, or all three given: the
 *                             first steps have smaller batches, gbs_first packs, and every
 *                             gbs_every_steps steps gbs_more more, until there are gbs
 *       "plan": "256p.plan.json",   the stage's own layout, for as many ranks; left out: the plan
 *                             given to the program
 *       "steps": 200}],
 *    "validation": {
 *      "data": "held-out",    dataset folder or "synthetic:TxHxW"; left out: no validation
 *      "data_fingerprint": "9f0c...",   as in a stage
 *      "every_steps": 0,      0: never; else after so many steps, and at the end. An attempt that is
 *                             asked to stop gives a validation up, and the next attempt begins
 *                             with it
 *      "samples": 16, "bins": 8},   the first `samples` of the data's order are measured, each once
 *                             in each of `bins` equally probable bins of the noise level's
 *                             distribution, with fixed draws; the averaged weights' loss as well
 *    "data": {
 *      "verify": "first"},    when the shards' checksums are compared with the index's. first:
 *                             until they once were, in the first attempt if it gets so far;
 *                             always: in each attempt; never. Their sizes are always compared
 *    "objective": {
 *      "kind": "edm",         edm | rectified_flow | v
 *      "level": "normal",     how L = ln(sigma / alpha), the log of noise over data amplitude, is
 *                             drawn: normal | logistic | uniform | mode | cosine
 *                             (trainer/data/objective.h)
 *      "level_mean": 0, "level_std": 1,    normal (edm: ln sigma ~ N(mean, std); rectified flow:
 *                             logit t), logistic
 *      "level_min": -5, "level_max": 5,    uniform
 *      "level_mode_scale": 1.29,           mode, -1 to 1.75
 *      "shift": 1,            factor on sigma / alpha of all samples
 *      "shift_tokens": 0, "shift_power": 0.5,   not 0: each sample's own tokens give a further
 *                             factor (tokens / shift_tokens)^shift_power
 *      "condition_probability": 0,   probability that a video is given its first frames (needs a
 *                             model with channels for them)
 *      "condition_frames": 1,   how many latent frames; a sample with no more is never given them
 *      "text_dropout": 0.2,   probability that a caption becomes the null token
 *      "loss_norm": "token"},   token: mean over valid latent elements of the batch; sample: mean
 *                             of per-sample means
 *    "adamw": {
 *      "lr": 1e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
 *      "weight_decay": 0.1,
 *      "clip_norm": 1,        global gradient norm; 0: no clipping
 *      "ema_decay": 0,        decay of the averaged weights; 0: no average is kept
 *      "spike_z": 0},         not 0: a step changes nothing when its loss or gradient norm is more
 *                             than so many standard deviations above those of the stage's last
 *                             128 steps (trainer/state/spike.h); 6 is usual
 *    "schedule": {
 *      "kind": "constant",    constant | cosine | linear, over the steps of all stages together
 *      "warmup_steps": 100,   lr rises linearly to its full value; cut to a tenth of the run's
 *                             steps when that is less
 *      "final_scale": 0.1},   cosine, linear: lr of the last step, as a share
 *    "random": {"seed": "1234"},   64 bits, written as a text
 *    "numerics": {
 *      "dtype": "f32",        f64 | f32 | bf16: of weights and activations; beside bf16 all else is
 *                             f32
 *      "moments": "same",     of m and v: same (as dtype; bf16: f32), or bf16, rounded at random
 *                             (trainer/state/optim.h)
 *      "residual": "same"},   of the residual stream and its gradient: same (as dtype), or f32
 *                             beside bf16
 *    "checkpoint": {
 *      "every_steps": 0,      0: chosen as training goes, by Young's and Daly's rule
 *                             (trainer/run/cadence.h), from how long saves take here, which the
 *                             trainer measures, and how often the run has failed, which the agent
 *                             knows and tells the trainer; the trainer and `reel explain` show it.
 *                             "never": at the end and on request only. Neither changes any number
 *                             of the run, nor its identity
 *      "keep": 2,             how many of the newest stay on disk
 *      "async": false},       true: written from a copy in memory while training goes on, except
 *                             an attempt's last one
 *    "budget": {
 *      "crash_without_progress": 3,      a run ends after so many crashes and hangs without a new
 *                             step between them;
 *      "node_fail_without_progress": 10, the same for lost nodes,
 *      "preempt_without_progress": 50,   preemptions,
 *      "time_limit_without_progress": 3, and time limits; 0: no bound
 *      "wall_s": 0,           seconds since its first attempt began; 0: no bound
 *      "hang_s": 1800,        after so long without an event of the trainer (step, save, load) it
 *                             is taken to hang and is ended; 0: never
 *      "nonfinite_steps": 10},   after so many steps in a row that were skipped because a gradient
 *                             was not finite, the state is saved and training ends with exit
 *                             status 6, for good; 0: no bound
 *    "resources": {
 *      "nodes": 1, "ranks_per_node": 1, "cores_per_rank": 1, "gpus_per_node": 0,
 *      "time_limit_s": 0,     of one attempt; 0: the partition's
 *      "priority": 0,         -1000..1000, a higher one goes first
 *      "node_agents": true,   Slurm: a process on each node hears notices to stop, beside the batch
 *                             process
 *      "partition": "gpu", "account": "...", "qos": "...",   Slurm's; left out: its default
 *      "exclude": "n[1-2]",   nodes not to be used
 *      "again": "auto"}       how the run comes back: "requeue" its job, or "successor": each job
 *                             submits the next, which waits for its end; auto: successor where the
 *                             partition's preemption cancels jobs
 *    "past": [                left out: none. Rates that held until a step was done, when a run's
 *                             rate was changed on its way: 'reel launch --change lr' writes them
 *      {"until_step": 600, "lr": 1e-4, "kind": "constant", "warmup_steps": 100,
 *       "final_scale": 0.1, "steps": 600}],   for the steps before until_step these replace
 *                             adamw.lr, schedule, and the number of steps over which a rate falls
 *    "groups": [...], "lora": {...}   which parameters are trained, and how: described in tuning.c;
 *                             left out: all are, alike
 *    "init": {"from": "w.safetensors", ...}   weights to begin with: described in warm.c; left out:
 *                             drawn from the seed
 *  }
 *
 * A relative data folder is taken from the working directory of the program that reads the file.
 * The writer writes every field, the model as an object, in this order: that text is canonical. The
 * config hash is XXH3-128 of the canonical text (one line) of schema, model, stages, objective,
 * adamw, schedule, random, numerics, groups, lora and init: what decides the numbers. Name,
 * data.verify, validation, checkpoint, budget and resources are left out. So is the data's place
 * once its fingerprint is known: a moved dataset is the same dataset. Layouts are not part of a
 * run's identity at all, so any layout may resume it.
 *
 * A checkpoint after step S carries the hash of what decided its steps (run_past_hash). It is the
 * hash of the same text with the stages cut off at S, and with the rates that held before S in the
 * place of lr, schedule and past. Steps added behind S, and rates that hold from S on, do not
 * change it.
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
    {"kind", JSON_ENUM, AT(objective), .names = objective_names},
    {"level", JSON_ENUM, AT(level.dist), .names = level_dist_names},
    {"level_mean", JSON_NUM, AT(level.mean), .min = -100, .max = 100},
    {"level_std", JSON_NUM, AT(level.std), .min = 0, .max = 100},
    {"level_min", JSON_NUM, AT(level.min), .min = -100, .max = 100},
    {"level_max", JSON_NUM, AT(level.max), .min = -100, .max = 100},
    {"level_mode_scale", JSON_NUM, AT(level.mode_scale), .min = -1, .max = 1.75},
    {"shift", JSON_NUM, AT(level.shift), .min = 1e-6, .max = 1e6},
    {"shift_tokens", JSON_INT, AT(level.shift_tokens), .min = 0, .max = 1e12},
    {"shift_power", JSON_NUM, AT(level.shift_power), .min = 0, .max = 10},
    {"condition_probability", JSON_NUM, AT(condition_probability), .min = 0, .max = 1},
    {"condition_frames", JSON_INT, AT(condition_frames), .min = 1, .max = 1 << 20},
    {"text_dropout", JSON_NUM, AT(text_dropout), .min = 0, .max = 1},
    {"loss_norm", JSON_ENUM, AT(loss_norm), .names = loss_norm_names},
};
static const struct json_field data_fields[] = {
    {"verify", JSON_ENUM, AT(verify), .names = verify_names},
};
static const struct json_field validation_fields[] = {
    {"data", JSON_TEXT, AT(validation.data)},
    {"data_fingerprint", JSON_TEXT, AT(validation.data_fingerprint)},
    {"every_steps", JSON_INT, AT(validation.every_steps), .min = 0, .max = 1e12},
    {"samples", JSON_INT, AT(validation.samples), .min = 1, .max = 1e9},
    {"bins", JSON_INT, AT(validation.bins), .min = 1, .max = RUN_BINS_MAX},
};
static const struct json_field adamw_fields[] = {
    {"lr", JSON_NUM, AT(adamw.lr), .min = 0, .max = 1e3},
    {"beta1", JSON_NUM, AT(adamw.beta1), .min = 0, .max = 1},
    {"beta2", JSON_NUM, AT(adamw.beta2), .min = 0, .max = 1},
    /* an eps of 0 would give 0 / 0 where a gradient is 0 */
    {"eps", JSON_NUM, AT(adamw.eps), .min = 1e-30, .max = 1},
    {"weight_decay", JSON_NUM, AT(adamw.weight_decay), .min = 0, .max = 1e3},
    {"clip_norm", JSON_NUM, AT(adamw.clip_norm), .min = 0, .max = 1e30},
    {"ema_decay", JSON_NUM, AT(adamw.ema_decay), .min = 0, .max = 1},
    {"spike_z", JSON_NUM, AT(adamw.spike_z), .min = 0, .max = 1e6, .later = true},
};
static const struct json_field schedule_fields[] = {
    {"kind", JSON_ENUM, AT(lr_schedule), .names = lr_schedule_names},
    {"warmup_steps", JSON_INT, AT(warmup_steps), .min = 0, .max = 1e12},
    {"final_scale", JSON_NUM, AT(lr_final_scale), .min = 0, .max = 1},
};
static const struct json_field random_fields[] = {
    {"seed", JSON_U64TEXT, AT(seed)},
};
static const struct json_field numerics_fields[] = {
    {"dtype", JSON_ENUM, AT(dtype), .names = dtype_names},
    {"moments", JSON_ENUM, AT(moments), .names = moments_names},
    {"residual", JSON_ENUM, AT(residual), .names = residual_names, .later = true},
};
static const char *const never[] = {"never", NULL}; /* RUN_NEVER */
static const struct json_field checkpoint_fields[] = {
    {"every_steps", JSON_INT, AT(ckpt_every_steps), .min = 0, .max = 1e12, .names = never},
    {"keep", JSON_INT, AT(ckpt_keep), .min = 1, .max = 1e6},
    {"async", JSON_BOOL, AT(ckpt_async)},
};
static const struct json_field budget_fields[] = {
    {"crash_without_progress", JSON_INT, AT(budget.crash), .min = 0, .max = 1e6},
    {"node_fail_without_progress", JSON_INT, AT(budget.node_fail), .min = 0, .max = 1e6},
    {"preempt_without_progress", JSON_INT, AT(budget.preempt), .min = 0, .max = 1e6},
    {"time_limit_without_progress", JSON_INT, AT(budget.time_limit), .min = 0, .max = 1e6},
    {"wall_s", JSON_NUM, AT(budget.wall_s), .min = 0, .max = 1e12},
    {"hang_s", JSON_NUM, AT(budget.hang_s), .min = 0, .max = 1e9},
    {"nonfinite_steps", JSON_INT, AT(budget.nonfinite_steps), .min = 0, .max = 1e9},
};
static const struct json_field resources_fields[] = {
    {"nodes", JSON_INT, AT(resources.nodes), .min = 1, .max = LIMIT_RANKS},
    {"ranks_per_node", JSON_INT, AT(resources.ranks_per_node), .min = 1, .max = LIMIT_RANKS},
    {"cores_per_rank", JSON_INT, AT(resources.cores_per_rank), .min = 1, .max = 1 << 20},
    {"time_limit_s", JSON_NUM, AT(resources.time_limit_s), .min = 0, .max = 1e9},
    {"gpus_per_node", JSON_INT, AT(resources.gpus_per_node), .min = 0, .max = 1024},
    {"priority", JSON_INT, AT(resources.priority), .min = -1000, .max = 1000},
    {"node_agents", JSON_BOOL, AT(resources.node_agents)},
    {"partition", JSON_TEXT, AT(resources.partition)},
    {"account", JSON_TEXT, AT(resources.account)},
    {"qos", JSON_TEXT, AT(resources.qos)},
    {"exclude", JSON_TEXT, AT(resources.exclude)},
    {"again", JSON_ENUM, AT(resources.again), .names = again_names},
};

static const struct section {
    const char *key;
    const struct json_field *fields;
    size_t n_fields;
    bool hashed; /* whether the section decides the numbers, and so the config hash */
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
    {"schema", JSON_ANY, 0, .optional = false},
    {"name", JSON_TEXT, offsetof(struct run_top, name), .optional = true},
    {"model", JSON_ANY, 0, .optional = false},
    {"stages", JSON_ANY, 0, .optional = false},
    {"objective", JSON_ANY, 0, .optional = true},
    {"adamw", JSON_ANY, 0, .optional = true},
    {"schedule", JSON_ANY, 0, .optional = true},
    {"random", JSON_ANY, 0, .optional = true},
    {"numerics", JSON_ANY, 0, .optional = true},
    {"data", JSON_ANY, 0, .optional = true},
    {"validation", JSON_ANY, 0, .optional = true},
    {"checkpoint", JSON_ANY, 0, .optional = true},
    {"budget", JSON_ANY, 0, .optional = true},
    {"resources", JSON_ANY, 0, .optional = true},
    {"past", JSON_ANY, 0, .optional = true},
    {"groups", JSON_ANY, 0, .optional = true},
    {"lora", JSON_ANY, 0, .optional = true},
    {"init", JSON_ANY, 0, .optional = true},
};

/* ---- reading ---- */

struct stage_text {
    const char *fingerprint;
    struct run_stage s;
};
static const struct json_field stage_fields[] = {
    {"data", JSON_TEXT, offsetof(struct stage_text, s.data), .optional = false},
    {"data_fingerprint", JSON_TEXT, offsetof(struct stage_text, fingerprint), .optional = true},
    {"gbs", JSON_INT, offsetof(struct stage_text, s.gbs), .min = 1, .max = 1 << 30},
    {"steps", JSON_INT, offsetof(struct stage_text, s.steps), .min = 1, .max = 1e12},
    {"pack_tokens", JSON_INT, offsetof(struct stage_text, s.pack_tokens), .optional = true,
     .min = 0, .max = 1e12},
    {"gbs_first", JSON_INT, offsetof(struct stage_text, s.gbs_first), .optional = true, .min = 0,
     .max = 1 << 30},
    {"gbs_more", JSON_INT, offsetof(struct stage_text, s.gbs_more), .optional = true, .min = 0,
     .max = 1 << 30},
    {"gbs_every_steps", JSON_INT, offsetof(struct stage_text, s.gbs_every_steps), .optional = true,
     .min = 0, .max = 1e12},
    {"plan", JSON_TEXT, offsetof(struct stage_text, s.plan), .optional = true},
};

static int stage_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct run *r,
                      struct err *err)
{
    struct stage_text t = {0};
    int rc = json_read(doc, obj, path, stage_fields, ARRAY_LEN(stage_fields), &r->arena, &t, err);
    if (rc == 0 && t.fingerprint)
        rc = field_read_hash(t.fingerprint, doc, path, "data_fingerprint", &t.s.data_fingerprint,
                             err);
    if (rc == 0 && !*t.s.data)
        rc = err_set(err, ERR_INPUT,
                     "%s: %s.data is empty: give a dataset folder or synthetic:TxHxW", doc->name,
                     path);
    if (rc < 0)
        return rc;
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
    {"until_step", JSON_INT, offsetof(struct run_past, until_step), .min = 1, .max = 1e13},
    {"lr", JSON_NUM, offsetof(struct run_past, rate.lr), .min = 0, .max = 1e3},
    {"kind", JSON_ENUM, offsetof(struct run_past, rate.kind), .names = lr_schedule_names},
    {"warmup_steps", JSON_INT, offsetof(struct run_past, rate.warmup_steps), .min = 0, .max = 1e12},
    {"final_scale", JSON_NUM, offsetof(struct run_past, rate.final_scale), .min = 0, .max = 1},
    {"steps", JSON_INT, offsetof(struct run_past, rate.steps), .min = 0, .max = 1e13},
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

/* Shortens a default warm-up that a short run would never complete, to a tenth of the steps. */
static void warmup_default(const struct json_doc *doc, struct run *r)
{
    r->warmup_given = json_member(json_member(doc->root, "schedule"), "warmup_steps") != NULL;
    if (!r->warmup_given && r->warmup_steps > run_total_steps(r) / 10)
        r->warmup_steps = run_total_steps(r) / 10;
}

static int run_read(const struct json_doc *doc, struct run *r, struct err *err)
{
    struct run_top top = {"run"};
    struct hash128 ignored;
    int rc = json_check_schema(doc, run_schema, err);
    if (rc == 0)
        rc = json_read(doc, doc->root, "", top_fields, ARRAY_LEN(top_fields), NULL, &top, err);
    if (rc == 0)
        rc = field_copy_text(r->name, sizeof r->name, top.name, doc, "", "name", err);
    if (rc == 0)
        rc = model_read_ref(doc, json_member(doc->root, "model"), "model", &r->model, err);
    if (rc == 0)
        rc = stages_read(doc, r, err);
    if (rc == 0)
        rc = sections_read(doc, r, err);
    if (rc == 0 && r->validation.data_fingerprint)
        rc = field_read_hash(r->validation.data_fingerprint, doc, "validation", "data_fingerprint",
                             &ignored, err);
    if (rc == 0)
        rc = past_read(doc, r, err);
    if (rc == 0)
        rc = tuning_read(doc, doc->root, &r->tuning, err);
    if (rc == 0)
        rc = warm_read(doc, doc->root, &r->arena, &r->warm, err);
    if (rc < 0)
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
    int rc = json_parse(text, len, name, &doc, err);
    if (rc == 0)
        rc = run_from_doc(&doc, out, err);
    json_release(&doc);
    return rc;
}

int run_load(const char *path, struct run *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc = json_load(path, &doc, err);
    if (rc == 0)
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
    tuning_write(&r->tuning, o);
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
    int rc = run_check(r, path, err);
    if (rc == 0) {
        json_out_init(&o, &s, 2);
        run_write(r, &o);
        str_addc(&s, '\n');
        rc = str_check(&s, err);
    }
    if (rc == 0)
        rc = file_publish(path, s.p, s.len, err);
    str_release(&s);
    return rc;
}

struct hash128 run_config_hash(const struct run *r)
{
    struct str s = STR_INIT;
    struct json_out o;
    json_out_init(&o, &s, 0);
    run_put(r, &o, true);
    /* the text is a few KiB: without memory for that the process is lost anyway */
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

/* Cuts the rates down to those that hold for a step before `step`, and zeroes the members on which
 * such a rate does not depend. */
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
