/* This file checks the rules of a run, and computes its steps, its learning rate and its data. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/num.h"
#include "profiles/dataset.h"
#include "profiles/run.h"

int64_t run_total_steps(const struct run *r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_stages; i++)
        n += r->stages[i].steps; /* at most 16 x 1e12 */
    return n;
}

int64_t run_stage_at(const struct run *r, int64_t step)
{
    int64_t i = 0;
    while (i < r->n_stages - 1 && step >= r->stages[i].steps)
        step -= r->stages[i++].steps;
    return i;
}

int64_t run_stage_first(const struct run *r, int64_t stage)
{
    int64_t step = 0;
    for (int64_t i = 0; i < stage; i++)
        step += r->stages[i].steps;
    return step;
}

/* Returns the number of levels of a batch ramp that have fewer packs than the full batch. */
static int64_t ramp_levels(const struct run_stage *s)
{
    return s->gbs_first ? num_ceil_div(s->gbs - s->gbs_first, s->gbs_more) : 0;
}

int64_t run_stage_gbs(const struct run_stage *s, int64_t step)
{
    int64_t level = s->gbs_first ? step / s->gbs_every_steps : 0;
    return level < ramp_levels(s) ? s->gbs_first + level * s->gbs_more : s->gbs;
}

int64_t run_stage_draws(const struct run_stage *s, int64_t step)
{
    int64_t every = s->gbs_first ? s->gbs_every_steps : 1,
            level = num_min_i64(step / every, ramp_levels(s));
    /* draws of all complete levels */
    int64_t whole = every * (level * s->gbs_first + level * (level - 1) / 2 * s->gbs_more);
    return whole + (step - level * every) * run_stage_gbs(s, level * every);
}

uint64_t run_ordinal_at(const struct run *r, int64_t step)
{
    int64_t stage = run_stage_at(r, step);
    uint64_t drawn = (uint64_t)run_stage_draws(&r->stages[stage], step - run_stage_first(r, stage));
    for (int64_t i = 0; i < stage; i++)
        drawn += (uint64_t)run_stage_draws(&r->stages[i], r->stages[i].steps);
    return drawn;
}

/* Returns the learning rate of a step. Step k of a warm-up of w steps has (k + 1) / w of the rate.
 * After it, p is the share of the way to the last step, which gets exactly lr · lr_final_scale.
 * After the last step the rate stays there. */
static double rate_at(const struct run_rate *r, int64_t step)
{
    int64_t last = r->steps - 1, first = r->warmup_steps;
    double lr = r->lr, end = r->final_scale;
    if (step < first)
        return lr * (double)(step + 1) / (double)first;
    if (r->kind == LR_CONSTANT)
        return lr;
    double p = last > first
                   ? (double)num_min_i64(step - first, last - first) / (double)(last - first)
                   : 1.0;
    double share = r->kind == LR_COSINE ? 0.5 * (1 + cos(M_PI * p)) : 1 - p;
    return lr * (end + (1 - end) * share);
}

struct run_rate run_rate_now(const struct run *r)
{
    return (struct run_rate){.lr = r->adamw.lr,
                             .final_scale = r->lr_final_scale,
                             .kind = r->lr_schedule,
                             .warmup_steps = r->warmup_steps,
                             .steps = run_total_steps(r)};
}

double run_lr_at(const struct run *r, int64_t step)
{
    struct run_rate rate = run_rate_now(r);
    for (int64_t i = 0; i < r->n_past; i++)
        if (step < r->past[i].until_step)
            return rate_at(&r->past[i].rate, step);
    return rate_at(&rate, step);
}

bool run_rate_same(struct run_rate a, struct run_rate b)
{
    bool shape = a.kind == LR_CONSTANT || (a.final_scale == b.final_scale && a.steps == b.steps);
    return a.lr == b.lr && a.kind == b.kind && a.warmup_steps == b.warmup_steps && shape;
}

int run_past_take(struct run *r, const struct run *before, int64_t step, struct err *err)
{
    int64_t from = before->n_past ? before->past[before->n_past - 1].until_step : 0;
    struct run_rate rate = run_rate_now(before);
    bool changes = !run_rate_same(rate, run_rate_now(r)) && step > from;
    if (changes && before->n_past == RUN_PAST_MAX)
        return err_set(err, ERR_LIMIT,
                       "the learning rate of run '%s' was changed %d times already: make a new run "
                       "that begins with its weights (init.from)",
                       r->name, RUN_PAST_MAX);
    memcpy(r->past, before->past, sizeof r->past);
    r->n_past = before->n_past;
    if (changes)
        r->past[r->n_past++] = (struct run_past){step, rate};
    return 0;
}

int run_synthetic(const char *data, const char *what, int64_t thw[3], struct err *err)
{
    static const char prefix[] = "synthetic:";
    struct seq s;
    if (!str_starts(data, prefix))
        return 0;
    const char *extent = data + strlen(prefix);
    if (!strchr(extent, 'x') || seq_parse(extent, what, &s, NULL) < 0)
        return err_set(err, ERR_INPUT,
                       "%s is '%s': give synthetic:TxHxW with the latent's frames, height and "
                       "width in cells, such as synthetic:5x16x16",
                       what, data);
    thw[0] = s.t;
    thw[1] = s.h;
    thw[2] = s.w;
    return 1;
}

/* ---- rules between fields ---- */

static int ramp_check(const struct run_stage *s, int64_t i, const char *where, struct err *err)
{
    if (s->gbs_first == 0 && s->gbs_more == 0 && s->gbs_every_steps == 0)
        return 0;
    if (s->gbs_first < 1 || s->gbs_more < 1 || s->gbs_every_steps < 1)
        return err_set(err, ERR_INPUT,
                       "%s: stages[%lld] has a batch ramp of gbs_first %lld, gbs_more %lld, "
                       "gbs_every_steps %lld: give all three, or none",
                       where, (long long)i, (long long)s->gbs_first, (long long)s->gbs_more,
                       (long long)s->gbs_every_steps);
    if (s->gbs_first > s->gbs)
        return err_set(err, ERR_INPUT,
                       "%s: stages[%lld].gbs_first is %lld, above its gbs %lld: give less", where,
                       (long long)i, (long long)s->gbs_first, (long long)s->gbs);
    return 0;
}

/* Refuses runs that draw too many packs, before anything is computed from products of gbs and
 * steps. */
static int draws_check(const struct run *r, const char *where, struct err *err)
{
    double draws = 0;
    for (int64_t i = 0; i < r->n_stages; i++)
        draws += (double)r->stages[i].gbs * (double)r->stages[i].steps;
    return draws < (double)RUN_DRAWS_MAX ? 0
                                         : err_set(err, ERR_INPUT,
                                                   "%s: the stages draw more than 2^48 packs, %g "
                                                   "by their gbs and steps: give fewer steps",
                                                   where, draws);
}

static int data_check(const struct run *r, const char *data, const char *what, struct err *err)
{
    int64_t thw[3];
    struct seq s;
    int rc = run_synthetic(data, what, thw, err);
    if (rc <= 0)
        return rc;
    rc = seq_from_latent(&r->model, thw[0], thw[1], thw[2], &s, err);
    return rc < 0 ? err_context(err, "%s", what) : 0;
}

static int stage_check(const struct run *r, int64_t i, const char *where, struct err *err)
{
    char what[LIMIT_PATH_BYTES];
    snprintf(what, sizeof what, "%s: stages[%lld].data", where, (long long)i);
    int rc;
    if ((rc = data_check(r, r->stages[i].data, what, err)) < 0)
        return rc;
    return ramp_check(&r->stages[i], i, where, err);
}

static int validation_check(const struct run *r, const char *where, struct err *err)
{
    char what[LIMIT_PATH_BYTES];
    snprintf(what, sizeof what, "%s: validation.data", where);
    if (r->validation.every_steps > 0 && !r->validation.data)
        return err_set(err, ERR_INPUT,
                       "%s: validation.every_steps is %lld without data: give a dataset folder or "
                       "synthetic:TxHxW",
                       where, (long long)r->validation.every_steps);
    if (r->validation.data_fingerprint && !r->validation.data)
        return err_set(err, ERR_INPUT,
                       "%s: validation.data_fingerprint without data: give the dataset's folder "
                       "too, or take it out",
                       where);
    return r->validation.data ? data_check(r, r->validation.data, what, err) : 0;
}

static int past_check(const struct run *r, const char *where, struct err *err)
{
    for (int64_t i = 0; i < r->n_past; i++)
        if (r->past[i].until_step <= (i ? r->past[i - 1].until_step : 0))
            return err_set(err, ERR_INPUT, "%s: past[%lld].until_step is %lld: give rising steps",
                           where, (long long)i, (long long)r->past[i].until_step);
    return 0;
}

/* Checks the patterns of groups and lora against the model's names. */
static int finetune_check(const struct run *r, const char *where, struct err *err)
{
    struct param_list list = {0};
    int rc = r->finetune.n_groups || r->finetune.lora.rank
                 ? finetune_params(&r->model, &r->finetune, &list, err)
                 : 0;
    params_release(&list);
    return rc < 0 ? err_context(err, "%s", where) : 0;
}

/* This is the largest beta that a float holds well enough. As a float, 1 - beta has a relative
 * error of 6e-8 / (1 - beta). Above this bound the bias corrections, which use the exact beta,
 * would scale updates by rounding errors, and near 1 divide by 0. */
static const double BETA_MOST_F32 = 0.99999;

static int averages_check(const struct run *r, const char *where, struct err *err)
{
    double beta1 = r->adamw.beta1, beta2 = r->adamw.beta2, ema_decay = r->adamw.ema_decay;
    if (beta1 >= 1 || beta2 >= 1 || ema_decay >= 1)
        return err_set(err, ERR_INPUT,
                       "%s: adamw.beta1 %g, beta2 %g, ema_decay %g: each must be below 1, or its "
                       "average never moves",
                       where, beta1, beta2, ema_decay);
    if (r->dtype != DTYPE_F64 &&
        (beta1 > BETA_MOST_F32 || beta2 > BETA_MOST_F32 || (float)ema_decay >= 1))
        return err_set(err, ERR_INPUT,
                       "%s: adamw.beta1 %.12g, beta2 %.12g, ema_decay %.12g: the optimizer of a "
                       "run of %s has floats, which do not tell one of them from 1: give at most "
                       "%g, or numerics.dtype f64",
                       where, beta1, beta2, ema_decay, dtype_names[r->dtype], BETA_MOST_F32);
    return 0;
}

static int numerics_check(const struct run *r, const char *where, struct err *err)
{
    if (r->dtype == DTYPE_FP8)
        return err_set(err, ERR_INPUT,
                       "%s: numerics.dtype is fp8, which weights are not stored in: give f64, f32 "
                       "or bf16",
                       where);
    if (r->dtype != DTYPE_BF16 && r->residual == RESIDUAL_F32)
        return err_set(err, ERR_INPUT,
                       "%s: numerics.residual is f32 with dtype %s, it is for bf16: leave it out",
                       where, dtype_names[r->dtype]);
    return 0;
}

static int channels_check(const struct run *r, const char *where, struct err *err)
{
    int64_t C = r->model.latent_channels, cond = r->model.cond_channels;
    if (cond != 0 && cond != 1 && cond != C + 1 && cond != C + 2)
        return err_set(err, ERR_INPUT,
                       "%s: model %s has %lld conditioning channels: give 0, 1 (a padding mask), "
                       "%lld (first frames and their mask) or %lld (both)",
                       where, r->model.name, (long long)cond, (long long)C + 1, (long long)C + 2);
    if (r->condition_probability > 0 && !model_cond_frames(&r->model))
        return err_set(err, ERR_INPUT,
                       "%s: objective.condition_probability is %g, and model %s has no channels "
                       "for first frames: give it cond_channels %lld",
                       where, r->condition_probability, r->model.name, (long long)C + 1);
    return 0;
}

static int schedule_check(const struct run *r, const char *where, struct err *err)
{
    int64_t steps = run_total_steps(r);
    if (r->level.min > r->level.max)
        return err_set(err, ERR_INPUT,
                       "%s: objective.level_min %g is above level_max %g: give a smaller one",
                       where, r->level.min, r->level.max);
    if (r->warmup_steps > steps)
        return err_set(err, ERR_INPUT,
                       "%s: schedule.warmup_steps is %lld, the stages have %lld steps in all: give "
                       "fewer",
                       where, (long long)r->warmup_steps, (long long)steps);
    return past_check(r, where, err);
}

static int stages_check(const struct run *r, const char *where, struct err *err)
{
    int rc;
    if ((rc = draws_check(r, where, err)) < 0)
        return rc;
    for (int64_t i = 0; i < r->n_stages; i++)
        if ((rc = stage_check(r, i, where, err)) < 0)
            return rc;
    return 0;
}

int run_check(const struct run *r, const char *where, struct err *err)
{
    char what[LIMIT_PATH_BYTES];
    int rc;
    snprintf(what, sizeof what, "%s: name", where);
    if ((rc = id_name_check(r->name, what, err)) < 0)
        return rc;
    if (r->n_stages < 1)
        return err_set(err, ERR_INPUT, "%s: stages is empty: give at least one stage", where);
    if (!model_is_trainable(&r->model))
        return err_set(err, ERR_INPUT,
                       "%s: model %s is of family %s with adaln %s%s, which is for planning only: "
                       "give a dit model",
                       where, r->model.name, model_family_names[r->model.family],
                       model_adaln_names[r->model.adaln],
                       r->model.cross_plain ? " and cross_plain" : "");
    if ((rc = numerics_check(r, where, err)) < 0)
        return rc;
    if ((rc = averages_check(r, where, err)) < 0)
        return rc;
    if ((rc = channels_check(r, where, err)) < 0)
        return rc;
    if ((rc = schedule_check(r, where, err)) < 0)
        return rc;
    if ((rc = stages_check(r, where, err)) < 0)
        return rc;
    if ((rc = validation_check(r, where, err)) < 0)
        return rc;
    return finetune_check(r, where, err);
}

/* ---- data ---- */

static bool is_known(struct hash128 h)
{
    return h.hi || h.lo;
}

/* Checks that a dataset fits the run. `what` names the data. `want` is the fingerprint that it must
 * have; zero: any. */
static int data_fits(const struct run *r, const char *what, struct hash128 want,
                     const struct dataset *d, struct err *err)
{
    char wanted[HASH_TEXT_BYTES], found[HASH_TEXT_BYTES];
    if (d->channels != r->model.latent_channels)
        return err_set(err, ERR_INPUT,
                       "%s has latents of %lld channels, model %s takes %lld: give other data",
                       what, (long long)d->channels, r->model.name,
                       (long long)r->model.latent_channels);
    if (d->text_width && r->model.text_width && d->text_width != r->model.text_width)
        return err_set(err, ERR_INPUT,
                       "%s has text embeddings of width %lld, model %s takes %lld: give other data",
                       what, (long long)d->text_width, r->model.name,
                       (long long)r->model.text_width);
    if (is_known(want) && (want.hi != d->fingerprint.hi || want.lo != d->fingerprint.lo))
        return err_set(err, ERR_INPUT,
                       "%s has fingerprint %s, the run was made for %s: give the data it was made "
                       "for, or take data_fingerprint out for a new run",
                       what, hash_format(d->fingerprint, found), hash_format(want, wanted));
    return 0;
}

/* Checks that a sample of thw latent cells fits into a pack of `most` tokens; 0: a pack is one
 * sample of any size. */
static int pack_fits(const struct run *r, const char *what, int64_t most, const int64_t thw[3],
                     struct err *err)
{
    struct seq seq;
    int64_t padded[3];
    if (most == 0)
        return 0;
    model_pad_latent(&r->model, thw, padded);
    if (seq_from_latent(&r->model, padded[0], padded[1], padded[2], &seq, NULL) < 0)
        return 0; /* the caller that needs the extent reports the error */
    if (seq_tokens(seq) <= most)
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: a sample has %lld tokens, and pack_tokens is %lld: give at least that many",
                   what, (long long)seq_tokens(seq), (long long)most);
}

static int packs_fit(const struct run *r, const char *what, int64_t most, const struct dataset *d,
                     struct err *err)
{
    for (int64_t i = 0; i < d->n_samples; i++) {
        const int64_t thw[3] = {d->samples[i].t, d->samples[i].h, d->samples[i].w};
        int rc = pack_fits(r, what, most, thw, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Checks the dataset in the folder `data`, in its generation with the fingerprint `want` (zero: the
 * newest), and sets *bound to that generation's fingerprint. Synthetic data has none and leaves
 * *bound alone. `most`: tokens of a pack. */
static int data_bind(const struct run *r, const char *name, const char *data, int64_t most,
                     struct hash128 want, struct datasets *set, struct hash128 *bound,
                     struct err *err)
{
    char what[LIMIT_PATH_BYTES];
    const struct dataset *d;
    int64_t thw[3];
    int rc;
    snprintf(what, sizeof what, "%s '%.3900s'", name, data);
    if ((rc = run_synthetic(data, "data", thw, err)) < 0)
        return rc;
    if (rc > 0)
        return pack_fits(r, what, most, thw, err);
    if ((rc = datasets_open(set, data, want, &d, err)) < 0)
        return rc;
    if ((rc = data_fits(r, what, want, d, err)) < 0)
        goto out;
    if ((rc = packs_fit(r, what, most, d, err)) < 0)
        goto out;
    *bound = d->fingerprint;
out:
    datasets_close(d);
    return rc;
}

static int validation_bind(struct run *r, struct datasets *set, struct err *err)
{
    struct hash128 bound = {0};
    char hex[HASH_TEXT_BYTES];
    if (!r->validation.data || r->validation.every_steps == 0)
        return 0;
    int rc = data_bind(r, "validation.data", r->validation.data, 0, run_validation_generation(r),
                       set, &bound, err);
    if (rc < 0 || !is_known(bound))
        return rc;
    r->validation.data_fingerprint = arena_strdup(&r->arena, hash_format(bound, hex));
    return r->validation.data_fingerprint ? 0 : err_set(err, ERR_NOMEM, "out of memory for a run");
}

int run_bind_data(struct run *r, struct datasets *set, struct err *err)
{
    for (int64_t i = 0; i < r->n_stages; i++) {
        struct run_stage *s = &r->stages[i];
        char name[64];
        snprintf(name, sizeof name, "stages[%lld].data", (long long)i);
        int rc = data_bind(r, name, s->data, s->pack_tokens, s->data_fingerprint, set,
                           &s->data_fingerprint, err);
        if (rc < 0)
            return rc;
    }
    int rc;
    if ((rc = validation_bind(r, set, err)) < 0)
        return rc;
    return warm_bind(&r->warm, err);
}

struct hash128 run_validation_generation(const struct run *r)
{
    struct id id;
    if (r->validation.data_fingerprint && id_parse(r->validation.data_fingerprint, &id, NULL) == 0)
        return (struct hash128){id.hi, id.lo};
    return run_data_generation(r, r->validation.data);
}

struct hash128 run_data_generation(const struct run *r, const char *data)
{
    struct hash128 found = {0};
    for (int64_t i = 0; i < r->n_stages; i++)
        if (strcmp(r->stages[i].data, data) == 0)
            found = r->stages[i].data_fingerprint;
    return found;
}

/* Finds the extent of the stage's first latent, in cells. */
static int latent_find(const struct run_stage *s, struct datasets *set, int64_t thw[3],
                       struct err *err)
{
    const struct dataset *d;
    int rc;
    if ((rc = run_synthetic(s->data, "data", thw, err)) != 0)
        return rc < 0 ? rc : 0;
    if ((rc = datasets_open(set, s->data, s->data_fingerprint, &d, err)) < 0)
        return rc;
    BUG_ON(d->n_samples < 1); /* dataset_check refuses an index without samples */
    thw[0] = d->samples[0].t, thw[1] = d->samples[0].h, thw[2] = d->samples[0].w;
    datasets_close(d);
    return 0;
}

int run_stage_seq(const struct run *r, int64_t stage, struct datasets *set, struct seq *out,
                  struct err *err)
{
    int64_t thw[3], padded[3];
    int rc;
    if ((rc = latent_find(&r->stages[stage], set, thw, err)) < 0)
        return rc;
    model_pad_latent(&r->model, thw, padded);
    return seq_from_latent(&r->model, padded[0], padded[1], padded[2], out, err);
}
