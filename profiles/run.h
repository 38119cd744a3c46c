/* run: describes what is trained (`reel.run/1`). All that decides the numbers is in the run and
 * never in the plan. The config hash covers that and never the layout, so any layout may resume a
 * run. The format is the tables of run.c.
 *
 *     struct run r;
 *     if (run_load("run.json", &r, err) < 0 || run_bind_data(&r, NULL, err) < 0) ...
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
#include "profiles/datasets.h"
#include "profiles/model.h"
#include "profiles/finetune.h"
#include "profiles/warm.h"

enum objective { OBJECTIVE_EDM, OBJECTIVE_RECTIFIED_FLOW, OBJECTIVE_V };
enum loss_norm { LOSS_NORM_TOKEN, LOSS_NORM_SAMPLE };
enum run_moments { MOMENTS_SAME, MOMENTS_BF16 };
enum run_residual { RESIDUAL_SAME, RESIDUAL_F32 };
/* "same", "bf16"; "same", "f32" */
extern const char *const moments_names[], *const residual_names[];
enum lr_schedule { LR_CONSTANT, LR_COSINE, LR_LINEAR };
/* Says when checksums are compared: until they matched once; in each attempt; never. */
enum run_verify { VERIFY_FIRST, VERIFY_ALWAYS, VERIFY_NEVER };
extern const char *const verify_names[];
/* Says how a run continues in the queue: its own job is requeued, or a successor job waits for the
 * end of this one. AGAIN_AUTO chooses a successor where preemption cancels jobs. */
enum run_again { AGAIN_AUTO, AGAIN_REQUEUE, AGAIN_SUCCESSOR };
enum level_dist { LEVEL_NORMAL, LEVEL_LOGISTIC, LEVEL_UNIFORM, LEVEL_MODE, LEVEL_COSINE };
extern const char *const again_names[], *const level_dist_names[];
extern const char *const objective_names[], *const loss_norm_names[], *const lr_schedule_names[];

enum { RUN_BINS_MAX = 15, RUN_NEVER = -1 };
/* Bounds the number of packs that all stages draw together. Their ordinals leave room for the
 * number of a sample inside its pack. */
#define RUN_DRAWS_MAX (INT64_C(1) << 48)
/* Says how the noise level L = ln(sigma / alpha) of a sample is drawn; trainer/data/objective.h has
 * the formulas. */
struct run_level {
    enum level_dist dist;
    double mean, std;      /* normal, logistic */
    double min, max;       /* uniform */
    double mode_scale;     /* mode */
    double shift;          /* factor on sigma / alpha: L grows by its logarithm */
    /* 0: all samples have the same shift; else the shift of a sample of n tokens is also multiplied
     * by (n / shift_tokens)^shift_power */
    int64_t shift_tokens;
    double shift_power;
};

/* Says when a run is given up. Each count bounds the attempts that ended in that way without a new
 * step, since the last attempt that made one; 0: no bound. */
struct run_budget {
    int64_t crash;      /* crashes and hangs */
    int64_t node_fail, preempt, time_limit;
    double wall_s;      /* seconds since the first counted attempt began; 0: no bound */
    double hang_s;      /* seconds without an event of the trainer */
    /* training ends after this many consecutive steps were skipped because a gradient was not
     * finite; 0: no bound */
    int64_t nonfinite_steps;
};
#define RUN_BUDGET_INIT {.crash = 3, .node_fail = 10, .preempt = 50, .time_limit = 3}
struct run_stage {
    const char *data;     /* dataset folder, or "synthetic:TxHxW" (latent cells) */
    /* fingerprint of the index; zero: take the newest (filled in at launch) */
    struct hash128 data_fingerprint;
    int64_t gbs, steps;   /* packs of one step; number of steps */
    int64_t pack_tokens;  /* greatest number of tokens of a pack; 0: a pack is one sample */
    /* batch ramp: gbs_first packs a step, then gbs_more more every gbs_every_steps steps, up to
     * gbs; 0: no ramp */
    int64_t gbs_first, gbs_more, gbs_every_steps;
    /* file with the stage's own plan; NULL: the run's. It is not part of the run's identity */
    const char *plan;
};
/* Holds the parameters from which the learning rate of a step is computed. */
struct run_rate {
    double lr, final_scale;
    enum lr_schedule kind;
    /* steps of the warm-up; steps until the rate has fallen to its end */
    int64_t warmup_steps, steps;
};
/* Holds the rate that applied before step `until_step`, in a run whose rate was changed while it
 * trained. */
struct run_past { int64_t until_step; struct run_rate rate; };
enum { RUN_PAST_MAX = 32 };
/* Describes validation: fixed draws whose loss is measured every so many steps. */
struct run_validation {
    const char *data;     /* as in a stage; NULL: no validation */
    /* 32 hex digits, as in a stage; NULL: take the newest, or if a stage has the same data, that
     * stage's (filled in at launch) */
    const char *data_fingerprint;
    int64_t every_steps;  /* 0: never */
    int64_t samples;      /* how many samples are measured: the first ones in the data's order */
    /* number of equally probable bins of the noise level's distribution: each sample is measured
     * once in each bin */
    int64_t bins;
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
    double condition_probability;   /* probability that a video is given its first latent frames */
    int64_t condition_frames;
    double text_dropout;            /* probability that a sample's caption becomes the null token */
    enum loss_norm loss_norm;
    /* clip_norm, ema_decay, spike_z 0: off */
    struct { double lr, beta1, beta2, eps, weight_decay, clip_norm, ema_decay, spike_z; } adamw;
    enum lr_schedule lr_schedule;
    int64_t warmup_steps;
    bool warmup_given; /* warmup_steps is from the file; else it follows from the number of steps */
    double lr_final_scale;
    int64_t n_past;
    /* past rates by rising until_step; the present rate is given by the members above */
    struct run_past past[RUN_PAST_MAX + 1];
    uint64_t seed;
    enum dtype dtype;               /* f64, f32 or bf16 */
    enum run_moments moments;       /* the type in which the optimizer's m and v are kept */
    /* the type of the residual stream and its gradient: as dtype, or f32 beside bf16 */
    enum run_residual residual;
    /* 0: at the interval that trainer/run/cadence.h computes; RUN_NEVER: only at the end and on
     * request */
    int64_t ckpt_every_steps;
    int64_t ckpt_keep;
    /* checkpoints are written from a copy while training goes on, except the last one */
    bool ckpt_async;
    struct run_budget budget;
    struct {
        int64_t nodes, ranks_per_node, cores_per_rank, gpus_per_node;
        double time_limit_s;
        int64_t priority;
        /* with Slurm, a process on each node also receives notices (launcher/run/node_agent.h) */
        bool node_agents;
        const char *partition, *account, *qos, *exclude; /* NULL: the scheduler's default */
        enum run_again again;
    } resources;
    struct finetune finetune;           /* groups of parameters, adapters */
    struct warm warm;               /* source of the first weights */
    struct arena arena;             /* owns the texts */
};

/* Sets everything to its documented default, except model and stages, which have none: n_stages is
 * 0. Initialises the arena. */
void run_init(struct run *r);
int run_load(const char *path, struct run *out, struct err *err);
int run_parse(const char *text, size_t len, const char *name, struct run *out, struct err *err);
/* Checks the rules between fields (betas, warm-up within the steps ...). load, parse and save call
 * it. `where` is the file's name. */
int run_check(const struct run *r, const char *where, struct err *err);
/* Writes the complete canonical form: every field. */
void run_write(const struct run *r, struct json_out *o);
int run_save(const struct run *r, const char *path, struct err *err); /* atomic */
void run_release(struct run *r);
/* Returns the hash of the canonical form without name, data.verify, validation, checkpoint, budget,
 * resources, the stages' plans, and paths of data whose hash is known. */
struct hash128 run_config_hash(const struct run *r);
/* Returns the hash of everything that decided the first `step` steps, and of nothing else. A run
 * that is longer, or has another rate from there on, has the same hash. */
struct hash128 run_past_hash(const struct run *r, int64_t step);
/* Makes r the continuation of a run that was trained as `before` up to `step`: before that step the
 * rates of `before` hold. Returns ERR_LIMIT if rates were changed too often. */
int run_past_take(struct run *r, const struct run *before, int64_t step, struct err *err);
/* Returns the rate of the steps after all past ones. */
struct run_rate run_rate_now(const struct run *r);
/* Says whether both give the same learning rate for every step. */
bool run_rate_same(struct run_rate a, struct run_rate b);
int64_t run_total_steps(const struct run *r);
/* Returns the index of the stage of a step; the last stage for steps past the end. */
int64_t run_stage_at(const struct run *r, int64_t step);
int64_t run_stage_first(const struct run *r, int64_t stage); /* Returns the stage's first step. */
/* Return the packs of a stage's step, and the packs that the stage draws before it. `step` is
 * counted from the stage's first step. */
int64_t run_stage_gbs(const struct run_stage *s, int64_t step);
int64_t run_stage_draws(const struct run_stage *s, int64_t step);
/* Returns the draw ordinal of the first pack of a step of the run. */
uint64_t run_ordinal_at(const struct run *r, int64_t step);
/* Returns the learning rate of a step, counted from 0. */
double run_lr_at(const struct run *r, int64_t step);

/* Fills in fingerprints that are zero: those of the stages and of validation data, from the
 * datasets' indices, and the hash of the file of first weights. ERR_INPUT: a dataset's fingerprint
 * differs from the recorded one, its channels or text width differ from the model's, or a sample
 * does not fit into a pack. Synthetic stages stay as they are. `set` keeps the indices for later
 * readers of the data; it may be NULL. */
int run_bind_data(struct run *r, struct datasets *set, struct err *err);
/* Returns the fingerprint that the stages record for this data, which may have grown since; zero,
 * which stands for the newest, if no stage records one. */
struct hash128 run_data_generation(const struct run *r, const char *data);
/* Returns the fingerprint of the data used for validation, in the same way. */
struct hash128 run_validation_generation(const struct run *r);
/* Computes the extent in tokens of the stage's first sample, with which plans are compared. set may
 * be NULL. */
int run_stage_seq(const struct run *r, int64_t stage, struct datasets *set, struct seq *out,
                  struct err *err);
/* Reads "synthetic:TxHxW" into latent cells {t, h, w}. Returns 1 if `data` is synthetic, 0 if it is
 * a folder, ERR_INPUT if it is malformed. `what` names it in the error. */
int run_synthetic(const char *data, const char *what, int64_t thw[3], struct err *err);

#endif
