#include "trainer/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/num.h"
#include "trainer/ckpt.h"
#include "trainer/dit.h"
#include "trainer/loader.h"
#include "trainer/record.h"

struct train {
    const struct train_conf *conf;
    const struct run *run;
    const struct layout *layout;
    struct comm *dp; /* every rank is a data-parallel one: the present trainer splits nothing else */
    struct param_list params;
    struct flat flat;
    struct dev *dev;
    struct dev_stream *stream;
    struct ops *ops;
    struct optim optim;
    struct dit *dit;
    struct loader *loaders[LIMIT_STAGES];
    struct record record;
    struct buffer_list plan;
    double peak_flops; /* of the world, 0 unknown */
    int64_t next_step, skips;
    double *times;     /* step_s of this attempt, up to TRAIN_TIMES_MAX */
    int64_t n_times;
    struct hash128 config_hash;
    char layout_text[256];
};

static void say(const struct train *t, const char *line)
{
    if (t->conf->say && t->conf->world->rank == 0)
        t->conf->say(t->conf->say_ctx, line);
}

static int64_t resident_peak_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_maxrss * 1024 : 0;
}

/* ---- setting up ---- */

static int capability_check(const struct train *t, struct err *err)
{
    const struct layout *l = t->layout;
    if (layout_world(l) != t->conf->world->size)
        return err_set(err, ERR_USAGE, "the layout needs %lld ranks, %d were started: mpirun -n %lld", (long long)layout_world(l),
                       t->conf->world->size, (long long)layout_world(l));
    if (l->tp * l->cp * l->pp != 1 || l->zero > 1 || l->recompute == RECOMPUTE_SELECTIVE ||
        (l->recompute == RECOMPUTE_FULL && l->recompute_layers && l->recompute_layers != t->run->model.layers) ||
        (l->zero && layout_shard_group(l) != l->dp))
        return err_set(err, ERR_INPUT, "layout '%s': this trainer runs dp, zero 0 and 1 over all of dp, mbs, recompute none and full", t->layout_text);
    if (t->run->dtype != DTYPE_F32 && t->run->dtype != DTYPE_F64)
        return err_set(err, ERR_INPUT, "numerics.dtype '%s': the CPU trains in f32 or f64", dtype_names[t->run->dtype]);
    return layout_check(l, &t->run->model, t->conf->plan->seq, t->run->stages[0].gbs, t->conf->world->size, err);
}

static int loaders_open(struct train *t, struct loader_bounds *most, struct err *err)
{
    *most = (struct loader_bounds){0};
    for (int64_t i = 0; i < t->run->n_stages; i++) {
        int rc = loader_open(t->run, i, t->layout->mbs, t->conf->verify, t->conf->world->rank, t->conf->world->size,
                             &t->loaders[i], err);
        if (rc < 0)
            return rc;
        struct loader_bounds b = loader_bounds(t->loaders[i]);
        most->tokens = num_max_i64(most->tokens, b.tokens);
        most->samples = num_max_i64(most->samples, b.samples);
        most->text_tokens = num_max_i64(most->text_tokens, b.text_tokens);
    }
    return 0;
}

static struct dit_config dit_config_of(const struct train *t, const struct loader_bounds *b)
{
    return (struct dit_config){
        .model = &t->run->model, .params = &t->params, .flat = &t->flat, .objective = t->run->objective,
        .level_mean = t->run->level_mean, .level_std = t->run->level_std, .text_dropout = t->run->text_dropout,
        .seed = t->run->seed, .recompute = t->layout->recompute, .max_tokens = b->tokens, .max_samples = b->samples,
        .max_text_tokens = b->text_tokens};
}

static int plan_make(struct train *t, const struct dit_config *c, struct err *err)
{
    int64_t loader = 0;
    int rc = dit_plan(c, t->ops->act, t->ops->stat, &t->plan, err);
    for (int64_t i = 0; i < t->run->n_stages; i++)
        loader += loader_bytes(t->loaders[i]);
    if (rc == 0)
        rc = optim_plan(&t->flat, t->run, (int)t->layout->zero, t->dp->size, t->ops->stat, &t->plan, err);
    if (rc == 0)
        rc = buffer_list_add(&t->plan, "gemm and attention tiles", BUFFER_WORK, DTYPE_FP8, 1, 1, t->ops->workspace_bytes, err);
    if (rc == 0)
        rc = buffer_list_add(&t->plan, "loader", BUFFER_INPUT, DTYPE_FP8, 1, 1, loader, err);
    return rc;
}

static void plan_say(const struct train *t)
{
    char line[512], bytes[32];
    int n = snprintf(line, sizeof line, "memory plan of a rank: %s", num_format_bytes(t->plan.total, bytes, sizeof bytes));
    for (int c = 0; c < BUFFER_CATEGORIES && n < (int)sizeof line; c++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s %s %s", c ? "," : " =", buffer_category_names[c],
                      num_format_bytes(buffer_list_bytes(&t->plan, (enum buffer_category)c), bytes, sizeof bytes));
    say(t, line);
}

static int limit_check(const struct train *t, struct err *err)
{
    char need[32], have[32];
    if (t->conf->memory_limit_bytes == 0 || t->plan.total <= t->conf->memory_limit_bytes)
        return 0;
    return err_set(err, ERR_NO, "out of memory by plan: a rank needs %s, the limit is %s",
                   num_format_bytes(t->plan.total, need, sizeof need),
                   num_format_bytes(t->conf->memory_limit_bytes, have, sizeof have));
}

static int machine_open(struct train *t, struct err *err)
{
    int rc = dev_cpu_open(false, &t->dev, err);
    if (rc == 0)
        rc = t->dev->stream_new(t->dev, "compute", &t->stream, err);
    if (rc == 0)
        rc = ops_cpu_open(t->dev, t->run->dtype, t->conf->blas, &t->ops, err);
    if (rc == 0)
        rc = params_build(&t->run->model, &t->params, err);
    if (rc == 0)
        rc = flat_build(&t->params, &t->flat, err);
    return rc;
}

static int train_open(struct train *t, struct err *err)
{
    struct loader_bounds bounds;
    struct str text = STR_INIT;
    layout_format(t->layout, &text);
    snprintf(t->layout_text, sizeof t->layout_text, "%s", text.p);
    str_release(&text);
    int rc = capability_check(t, err);
    if (rc < 0 || (rc = comm_agree(t->conf->world, loaders_open(t, &bounds, err), err)) < 0 ||
        (rc = t->conf->world->split(t->conf->world, 0, t->conf->world->rank, &t->dp, err)) < 0 ||
        (rc = machine_open(t, err)) < 0)
        return rc;
    struct dit_config c = dit_config_of(t, &bounds);
    if ((rc = plan_make(t, &c, err)) < 0)
        return rc;
    plan_say(t);
    if ((rc = limit_check(t, err)) < 0)
        return rc;
    rc = optim_open(&t->optim, &t->params, &t->flat, t->run, (int)t->layout->zero, t->dp, t->ops, t->stream, err);
    if (rc == 0)
        rc = dit_new(&c, t->ops, t->stream, t->optim.weights, t->optim.grads, &t->dit, err);
    if (rc == 0 && !(t->times = calloc(TRAIN_TIMES_MAX, sizeof *t->times)))
        rc = err_set(err, ERR_NOMEM, "out of memory");
    if (rc == 0 && !t->conf->trial && t->conf->world->rank == 0)
        rc = record_open(&t->record, t->conf->run_dir, t->conf->attempt, err);
    return comm_agree(t->conf->world, rc, err);
}

static void train_close(struct train *t)
{
    record_close(&t->record);
    dit_free(t->dit);
    optim_close(&t->optim);
    for (int i = 0; i < LIMIT_STAGES; i++)
        loader_close(t->loaders[i]);
    if (t->ops)
        t->ops->close(t->ops);
    if (t->stream)
        t->dev->stream_free(t->dev, t->stream);
    if (t->dev)
        t->dev->close(t->dev);
    flat_release(&t->flat);
    params_release(&t->params);
    if (t->dp)
        t->dp->close(t->dp);
    free(t->times);
}

/* ---- checkpoints ---- */

/* Steps before a stage, and the ordinal of its first draw. */
static int64_t stage_first_step(const struct run *run, int64_t stage, uint64_t *ordinal)
{
    int64_t step = 0;
    *ordinal = 0;
    for (int64_t i = 0; i < stage; i++) {
        step += run->stages[i].steps;
        *ordinal += (uint64_t)(run->stages[i].steps * run->stages[i].gbs);
    }
    return step;
}

static uint64_t ordinal_at(const struct run *run, int64_t step)
{
    uint64_t base;
    int64_t stage = run_stage_at(run, step), first = stage_first_step(run, stage, &base);
    return base + (uint64_t)((step - first) * run->stages[stage].gbs);
}

static void damage_told(void *ctx, const char *dir, const char *reason)
{
    struct train *t = ctx;
    char line[1024];
    snprintf(line, sizeof line, "checkpoint %s is damaged and set aside: %s", dir, reason);
    say(t, line);
    record_damaged(&t->record, dir, reason);
}

static int state_load(struct train *t, struct err *err)
{
    struct ckpt_meta meta = {0};
    bool found = false;
    double wall = clock_wall_s(), mono = clock_mono_s();
    if (!t->conf->trial) {
        int rc = ckpt_load(t->conf->run_dir, &t->optim, t->config_hash, damage_told, t, &meta, &found, err);
        if (rc < 0)
            return rc;
    }
    if (!found)
        return optim_init(&t->optim, err);
    t->next_step = meta.step;
    char dir[64], line[128];
    snprintf(dir, sizeof dir, "ckpt/step-%08lld", (long long)meta.step);
    snprintf(line, sizeof line, "loaded %s", dir);
    say(t, line);
    record_ckpt(&t->record, "ckpt_loaded", meta.step, dir, meta.bytes, wall, clock_mono_s() - mono);
    return 0;
}

static int state_save(struct train *t, struct err *err)
{
    struct ckpt_meta meta = {.step = t->next_step, .ordinal = ordinal_at(t->run, t->next_step), .config_hash = t->config_hash}, written;
    double wall = clock_wall_s(), mono = clock_mono_s();
    char dir[64];
    if (t->conf->trial)
        return 0;
    int rc = ckpt_save(t->conf->run_dir, &t->optim, &meta, t->layout_text, t->run->ckpt_keep, &written, err);
    if (rc < 0)
        return rc;
    snprintf(dir, sizeof dir, "ckpt/step-%08lld", (long long)t->next_step);
    record_ckpt(&t->record, "ckpt_saved", t->next_step, dir, written.bytes, wall, clock_mono_s() - mono);
    return 0;
}

/* ---- a step ---- */

struct batch_facts { double norm, tokens, flops; }; /* of the global batch, from metadata alone */

static struct batch_facts facts_of(const struct train *t, const struct loader *l, int64_t first_draw, int64_t gbs)
{
    struct batch_facts f = {0};
    double elements = 0;
    for (int64_t i = 0; i < gbs; i++) {
        struct loader_draw d = loader_draw(l, first_draw + i);
        elements += (double)d.elements;
        f.tokens += (double)d.tokens;
        f.flops += d.flops;
    }
    f.norm = t->run->loss_norm == LOSS_NORM_SAMPLE ? (double)gbs : elements;
    return f;
}

/* This replica's micro-batches: gradients of the batch's loss into the flat buffer. */
static int micro_batches(struct train *t, struct loader *l, int64_t first_draw, uint64_t ordinal, int64_t gbs, double inv_norm,
                         struct record_step *s, double *loss, struct err *err)
{
    int64_t at = first_draw + layout_replica_first(t->layout, gbs, t->dp->rank);
    int64_t n = layout_micro_batches(t->layout, gbs, t->dp->rank);
    struct dit_result r;
    for (int64_t i = 0; i < n || i == 0; i++) {
        struct batch b = {0};
        double started = clock_mono_s();
        int64_t samples = i < n ? layout_micro_batch_samples(t->layout, gbs, t->dp->rank, i) : 0;
        int rc = samples ? loader_read(l, at, samples, ordinal, &b, err) : 0;
        s->data_s += clock_mono_s() - started;
        b.accumulate = i > 0;
        if (rc == 0)
            rc = dit_step(t->dit, &b, inv_norm, &r, err);
        if (rc < 0)
            return rc;
        at += samples;
        *loss += r.loss_sum * inv_norm;
        s->forward_s += r.stage_s + r.forward_s;
        s->backward_s += r.backward_s;
    }
    return 0;
}

static int step_run(struct train *t, int64_t step, bool *stop, struct record_step *s, struct err *err)
{
    uint64_t ordinal;
    int64_t stage = run_stage_at(t->run, step), first = stage_first_step(t->run, stage, &ordinal);
    int64_t gbs = t->run->stages[stage].gbs, draw = (step - first) * gbs;
    double mono = clock_mono_s(), loss = 0;
    struct optim_result opt;
    *s = (struct record_step){.step = step, .started_at = clock_wall_s(), .lr = run_lr_at(t->run, step)};
    struct batch_facts facts = facts_of(t, t->loaders[stage], draw, gbs);

    int failed = micro_batches(t, t->loaders[stage], draw, ordinal, gbs, 1 / facts.norm, s, &loss, err);
    double sums[] = {loss, *t->conf->stop ? 1 : 0, failed < 0};
    double exchange = clock_mono_s();
    int rc = comm_sum(t->dp, sums, 3, failed < 0 ? NULL : err);
    if (failed < 0 || rc < 0)
        return failed < 0 ? failed : rc;
    if (sums[2] > 0)
        return err_set(err, ERR_CHILD, "another rank failed in step %lld: see its message", (long long)step);
    exchange = clock_mono_s() - exchange;
    double update = clock_mono_s();
    if ((rc = optim_step(&t->optim, step, &opt, err)) < 0)
        return rc;
    s->comm_s = exchange + opt.comm_s;
    s->optim_s = clock_mono_s() - update - opt.comm_s;
    s->step_s = clock_mono_s() - mono;
    s->loss = sums[0];
    s->grad_norm = opt.grad_norm;
    s->skipped = opt.skipped;
    s->tokens = facts.tokens;
    s->model_flops = facts.flops;
    s->mfu = t->peak_flops > 0 ? facts.flops / s->step_s / t->peak_flops : NAN;
    s->peak_bytes = resident_peak_bytes();
    *stop = sums[1] > 0;
    return 0;
}

static int health_check(struct train *t, const struct record_step *s, struct err *err)
{
    t->skips = s->skipped ? t->skips + 1 : 0;
    if (t->skips < TRAIN_SKIPS_MAX)
        return 0;
    return err_set(err, ERR_STATE, "%d steps in a row had a gradient that is not finite (last: step %lld): lower the learning rate, or look "
                   "at the data", TRAIN_SKIPS_MAX, (long long)s->step);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median without the first step, which pays for first touches. */
static double median_of(double *times, int64_t n)
{
    if (n == 0)
        return NAN;
    if (n > 1)
        times++, n--;
    qsort(times, (size_t)n, sizeof *times, by_value);
    return n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
}

static int report_make(struct train *t, const struct record_step *last, struct train_report *out, struct err *err)
{
    double most = (double)resident_peak_bytes();
    int rc = comm_max(t->dp, &most, 1, err);
    out->next_step = t->next_step;
    out->loss = last->loss;
    out->tokens = last->tokens;
    out->model_flops = last->model_flops;
    out->planned_bytes = t->plan.total;
    out->peak_bytes = (int64_t)most;
    out->median_step_s = median_of(t->times, t->n_times);
    out->mfu = t->peak_flops > 0 ? last->model_flops / out->median_step_s / t->peak_flops : NAN;
    char line[160], planned[32], peak[32];
    snprintf(line, sizeof line, "memory of a rank: planned %s, resident at most %s",
             num_format_bytes(out->planned_bytes, planned, sizeof planned), num_format_bytes(out->peak_bytes, peak, sizeof peak));
    say(t, line);
    return rc;
}

static int steps_run(struct train *t, struct train_report *out, struct err *err)
{
    struct record_step s = {0};
    int64_t total = run_total_steps(t->run), end = total, every = t->run->ckpt_every_steps, saved = t->next_step;
    bool stop = false;
    int rc = 0;
    if (t->conf->max_steps > 0 && t->next_step + t->conf->max_steps < total)
        end = t->next_step + t->conf->max_steps;
    while (t->next_step < end && !stop && rc == 0) {
        if ((rc = step_run(t, t->next_step, &stop, &s, err)) < 0)
            return rc;
        record_step(&t->record, &s);
        t->next_step++;
        out->steps++;
        if (t->n_times < TRAIN_TIMES_MAX)
            t->times[t->n_times++] = s.step_s;
        rc = health_check(t, &s, err);
        if (rc == 0 && (stop || t->next_step == end || (every > 0 && t->next_step % every == 0)) && saved != t->next_step) {
            rc = state_save(t, err);
            saved = t->next_step;
        }
    }
    if (rc < 0)
        return rc;
    out->end = t->next_step == total ? TRAIN_DONE : stop ? TRAIN_STOPPED : TRAIN_LIMIT;
    record_ended(&t->record, t->next_step, out->end == TRAIN_DONE ? "done" : "stop");
    return report_make(t, &s, out, err);
}

int train_run(const struct train_conf *conf, struct train_report *out, struct err *err)
{
    struct train t = {.conf = conf, .run = conf->run, .layout = &conf->plan->layout};
    *out = (struct train_report){.loss = NAN};
    t.config_hash = run_config_hash(conf->run);
    t.peak_flops = conf->plan->peak_flops * conf->world->size;
    int rc = train_open(&t, err);
    if (rc == 0)
        rc = state_load(&t, err);
    if (rc == 0) {
        record_started(&t.record, t.run, conf->plan, t.next_step, t.peak_flops);
        rc = steps_run(&t, out, err);
        if (rc < 0)
            record_ended(&t.record, t.next_step, "error");
    }
    train_close(&t);
    return rc;
}
