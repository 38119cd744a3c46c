/* Runs: defaults, strictness, the canonical text, what the config hash covers, learning rates,
 * bound data. */
#include "tests/lib/test_profiles.h"

#include "profiles/dataset.h"
#include "profiles/hw.h"
#include "profiles/plan.h"
#include "profiles/run.h"
#include "tests/lib/scratch.h"

#define SHORT "{\"schema\": \"reel.run/1\", \"model\": \"dit-tiny\", "
#define STAGE "\"stages\": [{\"data\": \"synthetic:5x16x16\", \"gbs\": 4, \"steps\": 2000}]"
#define WITH(rest) SHORT STAGE ", " rest "}"

static int parse(const char *text, struct run *r, struct err *err)
{
    return run_parse(text, strlen(text), "run.json", r, err);
}

static struct str text_of(const struct run *r)
{
    struct str s = STR_INIT;
    struct json_out o;
    json_out_init(&o, &s, 2);
    run_write(r, &o);
    return s;
}

static void defaults(void **state)
{
    struct run r;
    struct err err;
    (void)state;
    assert_ok(parse(SHORT STAGE "}", &r, &err), &err);
    assert_string_equal(r.name, "run");
    assert_string_equal(r.model.name, "dit-tiny");
    assert_int_equal(r.n_stages, 1);
    assert_string_equal(r.stages[0].data, "synthetic:5x16x16");
    assert_int_equal(r.stages[0].gbs, 4);
    assert_true(r.objective == OBJECTIVE_EDM && r.level.dist == LEVEL_NORMAL && r.level.mean == 0 &&
                r.level.std == 1 && r.level.shift == 1 && r.text_dropout == 0.2);
    assert_true(r.loss_norm == LOSS_NORM_TOKEN && r.dtype == DTYPE_F32 && r.seed == 1234);
    assert_true(r.adamw.lr == 1e-4 && r.adamw.beta1 == 0.9 && r.adamw.beta2 == 0.95 &&
                r.adamw.eps == 1e-8);
    assert_true(r.adamw.weight_decay == 0.1 && r.adamw.clip_norm == 1 && r.adamw.ema_decay == 0);
    assert_true(r.lr_schedule == LR_CONSTANT && r.warmup_steps == 100 && r.lr_final_scale == 0.1);
    assert_true(r.ckpt_every_steps == 0 && r.ckpt_keep == 2 && r.budget.crash == 3 &&
                r.budget.wall_s == 0);
    assert_true(r.resources.nodes == 1 && r.resources.ranks_per_node == 1 &&
                r.resources.cores_per_rank == 1);
    run_release(&r);
    /* the default warm-up shrinks with a short run, a given one is taken or refused */
    assert_ok(parse(SHORT "\"stages\": [{\"data\": \"d\", \"gbs\": 4, \"steps\": 70}]}", &r, &err),
              &err);
    assert_int_equal(r.warmup_steps, 7);
    run_release(&r);
}

static const struct {
    const char *text, *says;
} refusals[] = {
    {"{\"schema\": \"reel.run/2\"}", "schema is 'reel.run/2': give a file of schema 'reel.run/1'"},
    {"{}", "no text 'schema'"},
    {"{\"schema\": \"reel.run/1\", " STAGE "}", "model is missing"},
    {SHORT "\"stages\": []}", "stages is empty: give an array of 1 to 16"},
    {SHORT "\"stages\": {}}", "stages is no array"},
    {SHORT "\"stages\": [{\"data\": \"d\", \"gbs\": 0, \"steps\": 1}]}", "stages[0].gbs is 0"},
    {SHORT
     "\"stages\": [{\"data\": \"d\", \"gbs\": 1, \"steps\": 1}, {\"data\": \"d\", \"gbs\": 1}]}",
     "stages[1].steps is missing"},
    {SHORT "\"stages\": [{\"data\": \"\", \"gbs\": 1, \"steps\": 1}]}", "stages[0].data is empty"},
    {SHORT "\"stages\": [{\"data\": \"synthetic:5x16\", \"gbs\": 1, \"steps\": 1}]}",
     "stages[0].data is 'synthetic:5x16': give synthetic:TxHxW"},
    {SHORT "\"stages\": [{\"data\": \"synthetic:64\", \"gbs\": 1, \"steps\": 1}]}",
     "give synthetic:TxHxW"},
    {SHORT "\"stages\": [{\"data\": \"synthetic:5x15x16\", \"gbs\": 1, \"steps\": 1}]}",
     "stages[0].data: latent of 5 x 15 x 16"},
    {SHORT
     "\"stages\": [{\"data\": \"d\", \"data_fingerprint\": \"12\", \"gbs\": 1, \"steps\": 1}]}",
     "stages[0].data_fingerprint is '12': give 32 lower-case hex digits"},
    {WITH("\"layout\": {}"), "layout is not a known key"},
    {WITH("\"optimizer\": {}"), "optimizer is not a known key"},
    {WITH("\"adamw\": {\"lr\": \"1e-4\"}"), "adamw.lr is \"1e-4\": give a number"},
    {WITH("\"adamw\": {\"learning_rate\": 1}"), "adamw.learning_rate is not a known key"},
    {WITH("\"adamw\": {\"beta2\": 1}"), "each must be below 1"},
    {WITH("\"adamw\": {\"lr\": -1}"), "adamw.lr is -1"},
    {WITH("\"objective\": {\"kind\": \"edm2\"}"),
     "objective.kind is \"edm2\": give one of edm, rectified_flow, v"},
    {WITH("\"objective\": {\"text_dropout\": 1.5}"), "objective.text_dropout is 1.5"},
    {SHORT "\"stages\": [{\"data\": \"d\", \"gbs\": 4, \"steps\": 9, \"gbs_first\": 2}]}",
     "give all three, or none"},
    {SHORT "\"stages\": [{\"data\": \"d\", \"gbs\": 4, \"steps\": 9, \"gbs_first\": 5, "
           "\"gbs_more\": 1, \"gbs_every_steps\": 1}]}",
     "stages[0].gbs_first is 5, above its gbs 4"},
    {SHORT "\"stages\": [{\"data\": \"d\", \"gbs\": 65536, \"steps\": 4294967296}]}",
     "the stages draw more than 2^48 packs"},
    {WITH("\"validation\": {\"every_steps\": 5}"), "validation.every_steps is 5 without data"},
    {WITH("\"validation\": {\"data\": \"synthetic:5x15x16\"}"),
     "validation.data: latent of 5 x 15 x 16"},
    {WITH("\"objective\": {\"condition_probability\": 0.5}"),
     "has no channels for first frames: give it cond_channels 17"},
    {WITH("\"objective\": {\"level\": \"flat\"}"),
     "objective.level is \"flat\": give one of normal, logistic, uniform, mode, cosine"},
    {WITH("\"objective\": {\"level_min\": 6}"), "objective.level_min 6 is above level_max 5"},
    {WITH("\"objective\": {\"shift\": 0}"), "objective.shift is 0"},
    {WITH("\"schedule\": {\"warmup_steps\": 2001}"),
     "warmup_steps is 2001, the stages have 2000 steps"},
    {WITH("\"random\": {\"seed\": 7}"),
     "random.seed is 7: give a whole number below 2^64 written as a text"},
    {WITH("\"numerics\": {\"dtype\": \"fp8\"}"), "numerics.dtype is fp8"},
    {WITH("\"numerics\": {\"moments\": \"f16\"}"),
     "numerics.moments is \"f16\": give one of same, bf16"},
    {WITH("\"numerics\": {\"residual\": \"bf16\"}"),
     "numerics.residual is \"bf16\": give one of same, f32"},
    {WITH("\"numerics\": {\"dtype\": \"f64\", \"residual\": \"f32\"}"),
     "numerics.residual is f32 with dtype f64"},
    {WITH("\"numerics\": {\"dtype\": \"f16\"}"),
     "numerics.dtype is \"f16\": give one of f64, f32, bf16"},
    {WITH("\"checkpoint\": {\"keep\": 0}"), "checkpoint.keep is 0"},
    {WITH("\"checkpoint\": {\"every_steps\": -1}"),
     "checkpoint.every_steps is -1: give an integer from 0 to 1000000000000 or \"never\""},
    {WITH("\"checkpoint\": {\"every_steps\": \"seldom\"}"),
     "checkpoint.every_steps is \"seldom\": give an integer from 0 to 1000000000000 or \"never\""},
    {WITH("\"resources\": {\"nodes\": 0}"), "resources.nodes is 0"},
    {WITH("\"resources\": {\"again\": \"never\"}"),
     "resources.again is \"never\": give one of auto, requeue, successor"},
    {WITH("\"budget\": 3"), "budget is 3: give an object"},
    {WITH("\"name\": \"\""), "name has 0 bytes"},
    {WITH("\"groups\": [{\"match\": \"block.*\"}]"), "groups[0].match 'block.*' matches no tensor"},
    {WITH("\"lora\": {\"rank\": 0}"), "lora.rank is 0"},
    {WITH("\"init\": {}"), "init.from is missing"},
    {WITH("\"init\": {\"from\": \"\"}"), "init.from is empty"},
    {WITH("\"init\": {\"from\": \"w\", \"ema\": true}"), "init.ema is not a known key"},
    {WITH("\"init\": {\"from\": \"w\", \"source_hash\": \"1\"}"), "init.source_hash is '1'"},
    {WITH("\"init\": {\"from\": \"w\", \"map\": {}}"), "init.map is no array"},
    {WITH("\"init\": {\"from\": \"w\", \"map\": [{\"from\": \"a.*.*\", \"to\": \"*\"}]}"),
     "init.map[0] maps 'a.*.*' to '*'"},
    {WITH("\"init\": {\"from\": \"w\", \"map\": [{\"from\": \"a.*\", \"to\": \"b\"}]}"),
     "give one * in both"},
    {"{\"schema\": \"reel.run/1\", \"model\": \"dit-tny\", " STAGE "}",
     "run.json: model: there is no model 'dit-tny'"},
    {"{\"schema\": \"reel.run/1\", \"model\": {\"name\": \"x\"}, " STAGE "}",
     "model.family is missing"},
    {"{\"schema\": \"reel.run/1\", \"model\": 3, " STAGE "}", "model is 3"},
    {"{\"schema\": \"reel.run/1\", \"model\": {\"name\": \"g\", \"family\": \"gpt\", \"layers\": "
     "1, \"hidden\": 64, "
     "\"heads\": 4, \"vocab\": 9}, " STAGE "}", "which is for planning only"},
    {"{\"schema\": \"reel.run/1\", \"model\": \"dit-tiny+global\", " STAGE "}",
     "of family dit with adaln global, which is for planning only"},
    {"{\"schema\": \"reel.run/1\", \"model\": \"moviegen-5b\", " STAGE "}",
     "with adaln full and cross_plain, which is for planning only"},
    {WITH("\"seed\": 1") " x", "run.json:1:"},
};

static void refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        struct run r;
        struct err err;
        int rc = parse(refusals[i].text, &r, &err);
        assert_true(rc < 0 && err_exit_code(rc) == 3);
        assert_says(&err, refusals[i].says);
        assert_says(&err, "run.json");
    }
}

static const char everything[] =
    "{\"schema\": \"reel.run/1\", \"name\": \"big\", \"model\": \"dit-7b+lora_fused\", \"stages\": "
    "["
    "{\"data\": \"images\", \"data_fingerprint\": \"00112233445566778899aabbccddeeff\", \"gbs\": "
    "4608, \"steps\": 100},"
    "{\"data\": \"clips \\u00e9\", \"gbs\": 256, \"steps\": 50, \"pack_tokens\": 9000, "
    "\"gbs_first\": 16, \"gbs_more\": 24, \"gbs_every_steps\": 2,"
    " \"plan\": \"b.json\"}], \"validation\": {\"data\": \"held\", \"every_steps\": 7, "
    "\"samples\": 5, \"bins\": 3},"
    "\"objective\": {\"kind\": \"rectified_flow\", \"level\": \"logistic\", \"level_mean\": -1.2, "
    "\"level_std\": 1.2, \"shift\": 3, \"shift_tokens\": 256, \"shift_power\": 1, "
    "\"text_dropout\": 0.1, \"loss_norm\": \"sample\"},"
    "\"adamw\": {\"lr\": 6e-5, \"beta1\": 0.8, \"beta2\": 0.99, \"eps\": 1e-7, \"weight_decay\": "
    "0, \"clip_norm\": 0, \"ema_decay\": 0.9999},"
    "\"schedule\": {\"kind\": \"cosine\", \"warmup_steps\": 10, \"final_scale\": 0.01},"
    "\"random\": {\"seed\": \"18446744073709551615\"}, \"numerics\": {\"dtype\": \"bf16\"},"
    "\"checkpoint\": {\"every_steps\": 25, \"keep\": 5}, \"budget\": {\"crash_without_progress\": "
    "1, \"wall_s\": 3600.5},"
    "\"resources\": {\"nodes\": 8, \"ranks_per_node\": 8, \"cores_per_rank\": 14, "
    "\"time_limit_s\": 14400, \"priority\": -5,"
    "\"again\": \"successor\"},"
    "\"groups\": [{\"match\": \"*.attn.*\", \"lr_scale\": 0.1, \"decay\": false}],"
    "\"lora\": {\"rank\": 8, \"alpha\": 16, \"match\": [\"*.qkv.weight\"]},"
    "\"init\": {\"from\": \"w.safetensors\", \"map\": [{\"from\": \"net.*\", \"to\": \"*\"}], "
    "\"partial\": true}}";

static void round_trip(void **state)
{
    struct run r, back, loaded;
    struct err err;
    (void)state;
    assert_ok(parse(everything, &r, &err), &err);
    assert_true(r.seed == UINT64_MAX && r.stages[0].data_fingerprint.lo == 0x8899aabbccddeeffull);
    assert_true(r.adamw.ema_decay == 0.9999 && r.resources.priority == -5 &&
                r.resources.again == AGAIN_SUCCESSOR && r.budget.wall_s == 3600.5);
    struct str first = text_of(&r);
    assert_ok(run_parse(first.p, first.len, "again.json", &back, &err), &err);
    struct str second = text_of(&back);
    assert_string_equal(first.p, second.p);
    assert_ok(run_save(&r, in_scratch("run.json"), &err), &err);
    assert_ok(run_load(in_scratch("run.json"), &loaded, &err), &err);
    struct str third = text_of(&loaded);
    assert_string_equal(first.p, third.p);
    struct hash128 a = run_config_hash(&r), b = run_config_hash(&loaded);
    assert_memory_equal(&a, &b, sizeof a);
    run_release(&r);
    run_release(&back);
    run_release(&loaded);
    str_release(&first);
    str_release(&second);
    str_release(&third);
}

/* Saving what breaks a rule fails and leaves the file that was there. */
static void save_refused(void **state)
{
    struct run r;
    struct err err;
    struct str text = STR_INIT;
    (void)state;
    assert_ok(parse(everything, &r, &err), &err);
    assert_ok(run_save(&r, in_scratch("run.json"), &err), &err);
    r.warmup_steps = 151;
    assert_fails(run_save(&r, in_scratch("run.json"), &err), ERR_INPUT, &err,
                 "warmup_steps is 151");
    r.warmup_steps = 10;
    assert_true(run_save(&r, in_scratch("no/such/run.json"), &err) < 0);
    assert_ok(file_read(in_scratch("run.json"), 1 << 20, &text, &err), &err);
    assert_non_null(strstr(text.p, "\"warmup_steps\": 10"));
    assert_int_equal(count_entries(scratch), 1);
    str_release(&text);
    run_release(&r);
}

/* ---- what the config hash covers ---- */

static void set_name(struct run *r) { snprintf(r->name, sizeof r->name, "other"); }
static void set_every(struct run *r) { r->ckpt_every_steps = 1; }
static void set_never(struct run *r) { r->ckpt_every_steps = RUN_NEVER; }
static void set_keep(struct run *r) { r->ckpt_keep = 9; }
static void set_crashes(struct run *r) { r->budget.crash = 9; }
static void set_wall(struct run *r) { r->budget.wall_s = 9; }
static void set_nodes(struct run *r) { r->resources.nodes = 9; }
static void set_ranks(struct run *r) { r->resources.ranks_per_node = 9; }
static void set_cores(struct run *r) { r->resources.cores_per_rank = 9; }
static void set_limit(struct run *r) { r->resources.time_limit_s = 9; }
static void set_priority(struct run *r) { r->resources.priority = 9; }
static void set_again(struct run *r) { r->resources.again = AGAIN_REQUEUE; }
static void move_known_data(struct run *r) { r->stages[0].data = "elsewhere"; }
static void move_unknown_data(struct run *r) { r->stages[1].data = "elsewhere"; }
static void set_fingerprint(struct run *r) { r->stages[0].data_fingerprint.hi ^= 1; }
static void set_gbs(struct run *r) { r->stages[1].gbs++; }
static void set_steps(struct run *r) { r->stages[1].steps++; }
static void drop_stage(struct run *r) { r->n_stages = 1; }
static void set_layers(struct run *r) { r->model.layers++; }
static void set_theta(struct run *r) { r->model.rope_theta *= 2; }
static void set_objective(struct run *r) { r->objective = OBJECTIVE_V; }
static void set_pack(struct run *r) { r->stages[1].pack_tokens = 0; }
static void set_ramp(struct run *r) { r->stages[1].gbs_first = 17; }
static void set_more(struct run *r) { r->stages[1].gbs_more = 25; }
static void set_ramp_every(struct run *r) { r->stages[1].gbs_every_steps = 3; }
static void set_plan(struct run *r) { r->stages[1].plan = "c.json"; }
static void set_validation(struct run *r) { r->validation.samples = 6; }
static void set_condition(struct run *r) { r->condition_probability = 0.25; }
static void set_frames(struct run *r) { r->condition_frames = 3; }
static void set_dist(struct run *r) { r->level.dist = LEVEL_COSINE; }
static void set_mean(struct run *r) { r->level.mean = 0; }
static void set_std(struct run *r) { r->level.std = 2; }
static void set_min(struct run *r) { r->level.min = -9; }
static void set_max(struct run *r) { r->level.max = 9; }
static void set_mode(struct run *r) { r->level.mode_scale = 0; }
static void set_shift(struct run *r) { r->level.shift = 2; }
static void set_shift_tokens(struct run *r) { r->level.shift_tokens = 0; }
static void set_shift_power(struct run *r) { r->level.shift_power = 2; }
static void set_dropout(struct run *r) { r->text_dropout = 0; }
static void set_norm(struct run *r) { r->loss_norm = LOSS_NORM_TOKEN; }
static void set_lr(struct run *r) { r->adamw.lr *= 1.0000001; }
static void set_beta1(struct run *r) { r->adamw.beta1 = 0; }
static void set_beta2(struct run *r) { r->adamw.beta2 = 0; }
static void set_eps(struct run *r) { r->adamw.eps = 0; }
static void set_decay(struct run *r) { r->adamw.weight_decay = 1; }
static void set_clip(struct run *r) { r->adamw.clip_norm = 1; }
static void set_ema(struct run *r) { r->adamw.ema_decay = 0; }
static void set_spike(struct run *r) { r->adamw.spike_z = 6; }
static void set_schedule(struct run *r) { r->lr_schedule = LR_LINEAR; }
static void set_warmup(struct run *r) { r->warmup_steps = 0; }
static void set_final(struct run *r) { r->lr_final_scale = 0; }
static void set_seed(struct run *r) { r->seed--; }
static void set_group(struct run *r) { r->finetune.groups[0].lr_scale = 0.2; }
static void set_switch(struct run *r) { r->finetune.groups[0].trainable = FINETUNE_ON; }
static void drop_groups(struct run *r) { r->finetune.n_groups = 0; }
static void set_rank(struct run *r) { r->finetune.lora.rank = 9; }
static void set_alpha(struct run *r) { r->finetune.lora.alpha = 9; }
static void set_adapted(struct run *r)
{
    snprintf(r->finetune.lora.match[0], LIMIT_NAME_BYTES, "*.out.weight");
}
static void drop_lora(struct run *r) { r->finetune.lora.rank = 0; }
static void set_source(struct run *r) { r->warm.from = "other.safetensors"; }
static void set_source_hash(struct run *r) { r->warm.hash = (struct hash128){1, 2}; }
static void set_map(struct run *r) { snprintf(r->warm.map[0].to, LIMIT_NAME_BYTES, "x.*"); }
static void set_partial(struct run *r) { r->warm.partial = false; }
static void drop_init(struct run *r) { r->warm.from = NULL; }
static void set_moments(struct run *r) { r->moments = MOMENTS_BF16; }
static void set_residual(struct run *r) { r->residual = RESIDUAL_F32; }
static void set_dtype(struct run *r) { r->dtype = DTYPE_F64; }

static const struct {
    void (*change)(struct run *r);
    const char *what;
    bool covered;
} changes[] = {
#define OUTSIDE(f) {f, #f, false}
    OUTSIDE(set_name),          OUTSIDE(set_every),       OUTSIDE(set_never),
    OUTSIDE(set_keep),          OUTSIDE(set_crashes),     OUTSIDE(set_wall),
    OUTSIDE(set_nodes),         OUTSIDE(set_ranks),       OUTSIDE(set_cores),
    OUTSIDE(set_limit),         OUTSIDE(set_priority),    OUTSIDE(set_again),
    OUTSIDE(move_known_data),   OUTSIDE(set_plan),        OUTSIDE(set_validation),
#define COVERED(f) {f, #f, true}
    COVERED(move_unknown_data), COVERED(set_fingerprint), COVERED(set_gbs),
    COVERED(set_steps),         COVERED(drop_stage),      COVERED(set_layers),
    COVERED(set_theta),         COVERED(set_objective),   COVERED(set_dist),
    COVERED(set_pack),          COVERED(set_ramp),        COVERED(set_more),
    COVERED(set_ramp_every),    COVERED(set_condition),   COVERED(set_frames),
    COVERED(set_mean),          COVERED(set_std),         COVERED(set_min),
    COVERED(set_max),           COVERED(set_mode),        COVERED(set_shift),
    COVERED(set_shift_tokens),  COVERED(set_shift_power), COVERED(set_dropout),
    COVERED(set_norm),          COVERED(set_lr),          COVERED(set_beta1),
    COVERED(set_beta2),         COVERED(set_eps),         COVERED(set_decay),
    COVERED(set_clip),          COVERED(set_ema),         COVERED(set_spike),
    COVERED(set_schedule),      COVERED(set_warmup),      COVERED(set_final),
    COVERED(set_seed),          COVERED(set_dtype),       COVERED(set_moments),
    COVERED(set_residual),      COVERED(set_group),       COVERED(set_switch),
    COVERED(drop_groups),       COVERED(set_rank),        COVERED(set_alpha),
    COVERED(set_adapted),       COVERED(drop_lora),       COVERED(set_source),
    COVERED(set_source_hash),   COVERED(set_map),         COVERED(set_partial),
    COVERED(drop_init),
};

static void config_hash(void **state)
{
    struct hash128 seen[ARRAY_LEN(changes)], base;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        struct run r;
        struct err err;
        assert_ok(parse(everything, &r, &err), &err);
        base = run_config_hash(&r);
        changes[i].change(&r);
        seen[i] = run_config_hash(&r);
        bool same = memcmp(&base, &seen[i], sizeof base) == 0;
        if (same == changes[i].covered)
            fail_msg("%s: the hash %s", changes[i].what, same ? "did not change" : "changed");
        for (size_t k = 0; k < i && changes[i].covered; k++)
            assert_memory_not_equal(&seen[k], &seen[i], sizeof base);
        run_release(&r);
    }
}

/* A field that comes later must leave the hash of runs that do not use it: by it their checkpoints
 * are told. */
static void the_hash_stays(void **state)
{
    struct run r;
    struct err err;
    char hash[HASH_TEXT_BYTES];
    (void)state;
    assert_ok(parse(everything, &r, &err), &err);
    assert_string_equal(hash_format(run_config_hash(&r), hash), "587c96b80459b59b8abf4a55e8a063b3");
    run_release(&r);
}

/* ---- what is past ---- */

static void parse_stages(struct run *r, const char *stages, const char *more)
{
    char text[1024];
    struct err err;
    snprintf(text, sizeof text,
             "{\"schema\": \"reel.run/1\", \"model\": \"dit-tiny\", \"stages\": [%s]%s}", stages,
             more);
    assert_ok(parse(text, r, &err), &err);
}

#define PART(gbs, steps) "{\"data\": \"synthetic:1x4x4\", \"gbs\": " #gbs ", \"steps\": " #steps "}"
#define RATE(lr) ", \"adamw\": {\"lr\": " #lr "}, \"schedule\": {\"warmup_steps\": 2}"
#define FALLS ", \"schedule\": {\"kind\": \"cosine\", \"warmup_steps\": 0}"
#define PAST(until, lr)                                                                            \
    ", \"past\": [{\"until_step\": " #until ", \"lr\": " #lr                                       \
    ", \"kind\": \"constant\", \"warmup_steps\": 2, \"final_scale\": 1, \"steps\": 1}]"

static const struct past_case {
    const char *what, *a_stages, *a, *b_stages, *b;
    int64_t same_to; /* the last step after which both have the same past */
} past_cases[] = {
    {"more steps", PART(2, 6), RATE(1e-3), PART(2, 12), RATE(1e-3), 6},
    {"a stage behind", PART(2, 6), RATE(1e-3), PART(2, 6) "," PART(4, 3), RATE(1e-3), 6},
    {"more steps before another stage", PART(2, 6) "," PART(4, 3), RATE(1e-3),
     PART(2, 8) "," PART(4, 3), RATE(1e-3), 6},
    {"another rate", PART(2, 6), RATE(1e-3), PART(2, 6), RATE(2e-3), 0},
    {"another rate from step 4 on", PART(2, 6), RATE(1e-3), PART(2, 6), RATE(2e-3) PAST(4, 1e-3),
     4},
    {"a rate that was always the same", PART(2, 6), RATE(1e-3), PART(2, 6),
     RATE(1e-3) PAST(4, 1e-3), 6},
    {"a rate that falls over more steps", PART(2, 6), FALLS, PART(2, 12), FALLS, 0},
    {"other batches", PART(2, 6), RATE(1e-3), PART(3, 6), RATE(1e-3), 0},
};

static void past_hash(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(past_cases); i++) {
        const struct past_case *c = &past_cases[i];
        struct run a, b;
        parse_stages(&a, c->a_stages, c->a);
        parse_stages(&b, c->b_stages, c->b);
        for (int64_t step = 0; step <= 6; step++) {
            struct hash128 x = run_past_hash(&a, step), y = run_past_hash(&b, step);
            if ((memcmp(&x, &y, sizeof x) == 0) != (step <= c->same_to))
                fail_msg("%s: after %lld steps", c->what, (long long)step);
            for (int64_t before = 0; before < step && before < c->same_to; before++)
                assert_true(run_lr_at(&a, before) == run_lr_at(&b, before) || before >= c->same_to);
        }
        run_release(&a);
        run_release(&b);
    }
}

/* What was trained keeps its rates, taken twice too: an agent may be killed after the first
 * time. */
static void past_taken(void **state)
{
    struct run before, after;
    struct err err;
    (void)state;
    parse_stages(&before, PART(2, 6), FALLS);
    parse_stages(&after, PART(2, 12), RATE(5e-4));
    assert_ok(run_past_take(&after, &before, 4, &err), &err);
    assert_int_equal(after.n_past, 1);
    for (int64_t step = 0; step < 12; step++)
        assert_true(run_lr_at(&after, step) == (step < 4 ? run_lr_at(&before, step) : 5e-4));
    struct hash128 x = run_past_hash(&before, 4), y = run_past_hash(&after, 4);
    assert_memory_equal(&x, &y, sizeof x);
    struct run again = after;
    assert_ok(run_past_take(&again, &after, 9, &err), &err);
    assert_int_equal(again.n_past, 1);
    run_release(&before);
    run_release(&after);
}

/* ---- steps and rates ---- */

static void stages(void **state)
{
    static const struct {
        int64_t step, stage;
    } rows[] = {{0, 0}, {99, 0}, {100, 1}, {149, 1}, {150, 1}, {1000000, 1}};
    struct run r;
    struct err err;
    (void)state;
    assert_ok(parse(everything, &r, &err), &err);
    assert_int_equal(run_total_steps(&r), 150);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(run_stage_at(&r, rows[i].step), rows[i].stage);
    run_release(&r);
}

/* Counted by hand from the definition, one step after the other. */
static void batch_ramp(void **state)
{
    static const struct run_stage ramps[] = {
        {.gbs = 16, .steps = 40},
        {.gbs = 16, .steps = 40, .gbs_first = 4, .gbs_more = 5, .gbs_every_steps = 3},
        {.gbs = 16, .steps = 40, .gbs_first = 16, .gbs_more = 1, .gbs_every_steps = 1},
        {.gbs = 16, .steps = 2, .gbs_first = 1, .gbs_more = 3, .gbs_every_steps = 4}};
    struct run r = {.n_stages = ARRAY_LEN(ramps)};
    int64_t drawn = 0, step = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ramps); i++) {
        int64_t in_stage = 0, gbs = ramps[i].gbs_first ? ramps[i].gbs_first : ramps[i].gbs;
        r.stages[i] = ramps[i];
        for (int64_t k = 0; k < ramps[i].steps; k++) {
            if (k > 0 && ramps[i].gbs_first && k % ramps[i].gbs_every_steps == 0)
                gbs = gbs + ramps[i].gbs_more > ramps[i].gbs ? ramps[i].gbs
                                                             : gbs + ramps[i].gbs_more;
            assert_int_equal(run_stage_gbs(&ramps[i], k), gbs);
            assert_int_equal(run_stage_draws(&ramps[i], k), in_stage);
            in_stage += gbs;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(ramps); i++)
        for (int64_t k = 0; k < ramps[i].steps; k++, step++) {
            assert_int_equal(run_ordinal_at(&r, step), drawn);
            drawn += run_stage_gbs(&ramps[i], k);
        }
    /* past the end: where the next stage would begin */
    assert_int_equal(run_ordinal_at(&r, step), drawn);
}

/* lr 1, 4 steps of warm-up of 14 in all, last one at a tenth. By hand: step 7 is (7 - 4) / 9 = 1/3
 * of the way, so the cosine's share is (1 + cos 60) / 2 = 0.75 and the line's 2/3; step 10 is 2/3
 * of it: 0.25 and 1/3. */
static void learning_rates(void **state)
{
    static const struct {
        int64_t step;
        double constant, cosine, linear;
    } rows[] = {
        {0, 0.25, 0.25, 0.25}, {1, 0.5, 0.5, 0.5},  {2, 0.75, 0.75, 0.75}, {3, 1, 1, 1},
        {4, 1, 1, 1},          {7, 1, 0.775, 0.7},  {10, 1, 0.325, 0.4},   {13, 1, 0.1, 0.1},
        {14, 1, 0.1, 0.1},     {1000, 1, 0.1, 0.1},
    };
    struct run r = {.n_stages = 2, .stages = {{.steps = 5}, {.steps = 9}}, .adamw = {.lr = 1},
                    .warmup_steps = 4,
                    .lr_final_scale = 0.1};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        r.lr_schedule = LR_CONSTANT;
        assert_close(run_lr_at(&r, rows[i].step), rows[i].constant, 1e-15, "constant");
        r.lr_schedule = LR_COSINE;
        assert_close(run_lr_at(&r, rows[i].step), rows[i].cosine, 1e-14, "cosine");
        r.lr_schedule = LR_LINEAR;
        assert_close(run_lr_at(&r, rows[i].step), rows[i].linear, 1e-14, "linear");
    }
    /* all warm-up; no warm-up and one step: no division by zero, and the last step gets the final
     * rate */
    r.warmup_steps = 14;
    assert_close(run_lr_at(&r, 13), 1, 1e-15, "all warm-up");
    r = (struct run){.n_stages = 1, .stages = {{.steps = 1}}, .adamw = {.lr = 1},
                     .lr_final_scale = 0.1, .lr_schedule = LR_LINEAR};
    assert_close(run_lr_at(&r, 0), 0.1, 1e-15, "one step");
}

/* ---- data ---- */

static void save_dataset(const char *root, int64_t channels, int64_t text_width)
{
    struct dataset_shard shard = {.path = (char *)"a.tar", .samples = 1, .bytes = 100000};
    struct dataset_sample sample = {.offset = 0, .bytes = 50000, .latent_offset = 512,
                                    .latent_bytes = 40000, .t = 5, .h = 8, .w = 8, .frames = 33,
                                    .height = 64, .width = 64, .fps = 24};
    struct dataset d = {.n_shards = 1, .n_samples = 1, .shards = &shard, .samples = &sample,
                        .channels = channels, .text_width = text_width, .tokenizer = "t",
                        .text_encoder = "e", .latent_std = 1};
    struct err err;
    assert_ok(dataset_save(root, &d, &err), &err);
}

static void bind_data(void **state)
{
    const char *root = in_scratch("data");
    struct run r;
    struct err err;
    char text[1024];
    (void)state;
    snprintf(text, sizeof text,
             SHORT "\"stages\": [{\"data\": \"synthetic:5x16x16\", \"gbs\": 1, \"steps\": 1}, "
                   "{\"data\": \"%s\", \"gbs\": 1, \"steps\": 1}]}",
             root);
    assert_ok(parse(text, &r, &err), &err);
    assert_fails(run_bind_data(&r, NULL, &err), ERR_NOT_FOUND, &err, "is no dataset");
    save_dataset(root, 16, 64);
    assert_ok(run_bind_data(&r, NULL, &err), &err);
    assert_true(r.stages[1].data_fingerprint.lo != 0 && r.stages[0].data_fingerprint.lo == 0);
    struct hash128 bound = r.stages[1].data_fingerprint;
    assert_ok(run_bind_data(&r, NULL, &err), &err); /* again: equal, no complaint */
    assert_memory_equal(&bound, &r.stages[1].data_fingerprint, sizeof bound);
    r.validation.data = root;
    r.validation.every_steps = 1;
    assert_ok(run_bind_data(&r, NULL, &err), &err);
    struct hash128 validated = run_validation_generation(&r);
    assert_memory_equal(&bound, &validated, sizeof bound);
    save_dataset(root, 16, 0);
    assert_fails(run_bind_data(&r, NULL, &err), ERR_INPUT, &err, "the run was made for");
    r.stages[1].data = r.stages[0].data;
    assert_fails(run_bind_data(&r, NULL, &err), ERR_INPUT, &err, "validation.data '");
    r.stages[1].data = root;
    assert_memory_equal(&bound, &r.stages[1].data_fingerprint, sizeof bound);
    save_dataset(root, 8, 64);
    assert_fails(run_bind_data(&r, NULL, &err), ERR_INPUT, &err,
                 "has latents of 8 channels, model dit-tiny takes 16");
    save_dataset(root, 16, 63);
    assert_fails(run_bind_data(&r, NULL, &err), ERR_INPUT, &err,
                 "width 63, model dit-tiny takes 64");
    run_release(&r);
}

/* ---- names of a source ---- */

static void mapped_names(void **state)
{
    static const struct {
        const char *name, *becomes;
    } rows[] = {
        {"net.blocks.0.q", "blocks.0.q"},
        {"net.x", "x"},
        {"net.", ""},
        {"net", "net"},
        {"other", "other"},
        {"one", "two"},
        {"a.w.end", "b.w.fin"},
        {"a.end", "a.end"},
        {"a.x.en", "a.x.en"},
    };
    struct warm w = {.n_maps = 3, .map = {{"net.*", "*"}, {"one", "two"}, {"a.*.end", "b.*.fin"}}};
    char name[LIMIT_NAME_BYTES];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_true(warm_name(&w, rows[i].name, name));
        assert_string_equal(name, rows[i].becomes);
    }
    memset(w.map[1].from, 'x', LIMIT_NAME_BYTES - 1);
    snprintf(w.map[0].to, LIMIT_NAME_BYTES, "%0120d*", 0);
    assert_false(warm_name(&w, "net.12345678901", name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(refused),
        cmocka_unit_test_setup_teardown(round_trip, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(save_refused, scratch_setup, scratch_teardown),
        cmocka_unit_test(config_hash), cmocka_unit_test(past_hash), cmocka_unit_test(past_taken),
        cmocka_unit_test(the_hash_stays), cmocka_unit_test(mapped_names),
        cmocka_unit_test(stages),
        cmocka_unit_test(batch_ramp), cmocka_unit_test(learning_rates),
        cmocka_unit_test_setup_teardown(bind_data, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("profiles_run", tests, NULL, NULL);
}
