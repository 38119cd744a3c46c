/* run: what is trained (`reel.run/1`): semantics live here and only here, never in the plan. The config hash covers
 * all of this and never the layout, so any layout may resume. The format's essay is at the top of run.c.
 *
 *     struct run r;
 *     if (run_load("run.json", &r, err) < 0 || run_bind_data(&r, err) < 0) ...
 *     struct hash128 h = run_config_hash(&r);
 *     run_release(&r);
 */
#ifndef PROFILES_RUN_H
#define PROFILES_RUN_H

#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/json.h"
#include "profiles/model.h"
#include "profiles/tuning.h"
#include "profiles/warm.h"

enum objective { OBJECTIVE_EDM, OBJECTIVE_RECTIFIED_FLOW, OBJECTIVE_V };
enum loss_norm { LOSS_NORM_TOKEN, LOSS_NORM_SAMPLE };
enum run_moments { MOMENTS_SAME, MOMENTS_BF16 };
enum run_residual { RESIDUAL_SAME, RESIDUAL_F32 };
extern const char *const moments_names[], *const residual_names[]; /* "same", "bf16"; "same", "f32" */
enum lr_schedule { LR_CONSTANT, LR_COSINE, LR_LINEAR };
enum run_verify { VERIFY_FIRST, VERIFY_ALWAYS, VERIFY_NEVER }; /* until it passed once; in each attempt; not */
extern const char *const verify_names[];
enum run_again { AGAIN_AUTO, AGAIN_REQUEUE, AGAIN_SUCCESSOR }; /* how a run comes back: its job again, or another that waits for its end */
enum level_dist { LEVEL_NORMAL, LEVEL_LOGISTIC, LEVEL_UNIFORM, LEVEL_MODE, LEVEL_COSINE };
extern const char *const again_names[], *const level_dist_names[];
extern const char *const objective_names[], *const loss_norm_names[], *const lr_schedule_names[];

enum { RUN_BINS_MAX = 15, RUN_NEVER = -1 };
#define RUN_DRAWS_MAX (INT64_C(1) << 48) /* packs that all stages draw together: their ordinals leave room for a sample's number in its pack */
/* How the noise level L = ln(sigma / alpha) of a sample is drawn: trainer/data/objective.h. */
struct run_level {
    enum level_dist dist;
    double mean, std;      /* normal, logistic */
    double min, max;       /* uniform */
    double mode_scale;     /* mode */
    double shift;          /* factor on sigma / alpha: L grows by its logarithm */
    int64_t shift_tokens;  /* 0: the same for all; else a sample of n tokens gets (n / shift_tokens)^shift_power besides */
    double shift_power;
};

/* When to give up. The counts are of attempts that ended that way and brought no new step, since the last one that did; 0: no bound. */
struct run_budget {
    int64_t crash;      /* crashes and hangs */
    int64_t node_fail, preempt, time_limit;
    double wall_s;      /* since the run was made; 0: no bound */
    double hang_s;      /* without an event of the trainer; 0: never */
    int64_t nonfinite_steps; /* in a row, skipped because a gradient was not finite, before training ends; 0: no bound */
};
#define RUN_BUDGET_INIT {.crash = 3, .node_fail = 10, .preempt = 50, .time_limit = 3}
struct run_stage {
    const char *data;     /* dataset folder, or "synthetic:TxHxW" (latent cells) */
    struct hash128 data_fingerprint; /* of the index; zero = take what is there (filled in at launch) */
    int64_t gbs, steps;   /* packs of a step */
    int64_t pack_tokens;  /* most tokens of a pack of samples; 0: a pack is one sample */
    int64_t gbs_first, gbs_more, gbs_every_steps; /* ramp: gbs_first packs a step, gbs_more more every so many steps, up to gbs; 0: none */
    const char *plan;     /* file of the stage's own layout; NULL: the run's. Not of the run's identity */
};
/* By which learning rates are given. */
struct run_rate {
    double lr, final_scale;
    enum lr_schedule kind;
    int64_t warmup_steps, steps; /* of the warm-up; until the last one of which it falls */
};
/* Those that held before step `until`, when the rate of a run was changed on its way. */
struct run_past { int64_t until_step; struct run_rate rate; };
enum { RUN_PAST_MAX = 32 };
/* Fixed draws whose loss is measured now and then. */
struct run_validation {
    const char *data;     /* as a stage's; NULL: none */
    const char *data_fingerprint; /* 32 hex digits, as a stage's; NULL: take what is there, of a stage's data what the stage has (filled in at launch) */
    int64_t every_steps;  /* 0: never */
    int64_t samples;      /* the first so many of the data's order */
    int64_t bins;         /* of the noise level's distribution, equally probable: each sample is measured once in each */
};
struct run {
    char name[LIMIT_NAME_BYTES];
    struct model model;
    int64_t n_stages;
    struct run_stage stages[LIMIT_STAGES];
    enum run_verify verify;         /* when shards are compared with their checksums */
    struct run_validation validation;
    enum objective objective;
    struct run_level level;
    double condition_probability;   /* that a video is given its first latent frames */
    int64_t condition_frames;
    double text_dropout;            /* probability a sample's caption becomes the null token */
    enum loss_norm loss_norm;
    struct { double lr, beta1, beta2, eps, weight_decay, clip_norm, ema_decay, spike_z; } adamw; /* clip_norm, ema_decay, spike_z 0: off */
    enum lr_schedule lr_schedule;
    int64_t warmup_steps;
    bool warmup_given;              /* by the file; else it follows the number of steps */
    double lr_final_scale;
    int64_t n_past;
    struct run_past past[RUN_PAST_MAX + 1]; /* by rising until_step; what holds now is above */
    uint64_t seed;
    enum dtype dtype;               /* f64, f32 or bf16 */
    enum run_moments moments;       /* how the optimizer's m and v are kept */
    enum run_residual residual;     /* the residual stream and its gradient: as dtype, or f32 beside bf16 */
    int64_t ckpt_every_steps;       /* 0: as often as it pays, by trainer/run/cadence.h; RUN_NEVER: only at the end and on request */
    int64_t ckpt_keep;
    bool ckpt_async;                /* written from a copy while training goes on, but for the last one */
    struct run_budget budget;
    struct {
        int64_t nodes, ranks_per_node, cores_per_rank, gpus_per_node;
        double time_limit_s;
        int64_t priority;
        bool node_agents;           /* Slurm: a process on each node hears notices too (launcher/run/node_agent.h) */
        const char *partition, *account, *qos, *exclude; /* NULL: the scheduler's default */
        enum run_again again;
    } resources;
    struct tuning tuning;           /* groups of parameters, adapters */
    struct warm warm;               /* where first weights come from */
    struct arena arena;             /* owns the texts */
};

/* Everything at its documented default but model and stages, which have none. Zero n_stages; arena initialised. */
void run_init(struct run *r);
int run_load(const char *path, struct run *out, struct err *err);
int run_parse(const char *text, size_t len, const char *name, struct run *out, struct err *err);
/* The rules between fields (betas, warm-up within the steps ...); load, parse and save apply it. `where`: file name. */
int run_check(const struct run *r, const char *where, struct err *err);
void run_write(const struct run *r, struct json_out *o); /* complete and canonical: every field written */
int run_save(const struct run *r, const char *path, struct err *err); /* atomic */
void run_release(struct run *r);
struct hash128 run_config_hash(const struct run *r); /* of the canonical form without name, budget, resources, ckpt cadence */
/* Of what decided the first `step` steps and nothing else: a run that is longer, or has another rate from there on, has the same one. */
struct hash128 run_past_hash(const struct run *r, int64_t step);
/* `before` was trained up to `step` and is to go on as r: before that its rates hold. ERR_LIMIT when they were changed too often. */
int run_past_take(struct run *r, const struct run *before, int64_t step, struct err *err);
struct run_rate run_rate_now(const struct run *r); /* of the steps after all that is past */
bool run_rate_same(struct run_rate a, struct run_rate b); /* do they give the same rate to each step? */
int64_t run_total_steps(const struct run *r);
int64_t run_stage_at(const struct run *r, int64_t step); /* index; the last stage at and past the end */
int64_t run_stage_first(const struct run *r, int64_t stage); /* its first step */
/* Packs of step `step` of a stage, counted from the stage's first step; packs drawn before it in the stage. */
int64_t run_stage_gbs(const struct run_stage *s, int64_t step);
int64_t run_stage_draws(const struct run_stage *s, int64_t step);
uint64_t run_ordinal_at(const struct run *r, int64_t step); /* draw ordinal of the first pack of a step of the run */
double run_lr_at(const struct run *r, int64_t step); /* pure; step from 0 */

/* Fill a stage's zero fingerprint from its dataset's index, and so that of data that is validated on, and the zero hash of what the weights are taken from; a different one than recorded is ERR_INPUT. Also checks
 * that channels and text width are the model's. Synthetic stages are left alone. */
int run_bind_data(struct run *r, struct err *err);
/* Returns the fingerprint that the stages have of this data, which may have grown since; zero, which stands for the newest, where none has it. */
struct hash128 run_data_generation(const struct run *r, const char *data);
struct hash128 run_validation_generation(const struct run *r); /* the same for what is validated on */
/* Tokens of the stage's first sample, by which plans are checked. */
int run_stage_seq(const struct run *r, int64_t stage, struct seq *out, struct err *err);
/* "synthetic:TxHxW" to latent cells {t, h, w}: 1 if so, 0 if `data` is a folder, ERR_INPUT if malformed. `what` names it. */
int run_synthetic(const char *data, const char *what, int64_t thw[3], struct err *err);

#endif
