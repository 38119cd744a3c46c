#include "trainer/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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
    struct comm_grid grid;
    struct comm *dp; /* grid.dp */
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
    int64_t process_bytes; /* resident before any of the plan was taken, and some growth */
    double peak_flops; /* of the world, 0 unknown */
    int64_t next_step, skips;
    double *times;     /* step_s of this attempt, up to TRAIN_TIMES_MAX */
    int64_t n_times;
    struct train_phases phases; /* sums */
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

/* Resident now; 0 where the system does not say. */
static int64_t resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%*s %ld", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* ---- setting up ---- */

static int capability_check(const struct train *t, struct err *err)
{
    const struct layout *l = t->layout;
    const struct plan *plan = t->conf->plan;
    struct hash128 none = {0}, model = model_hash(&t->run->model);
    if (layout_world(l) != t->conf->world->size)
        return comm_size_error(t->conf->world, l, err);
    if (memcmp(&plan->model_hash, &none, sizeof none) != 0 && memcmp(&plan->model_hash, &model, sizeof model) != 0)
        return err_set(err, ERR_INPUT, "the plan was made for model '%s', the run trains '%s' of another shape: plan again", plan->model,
                       t->run->model.name);
    if (plan->gbs != t->run->stages[0].gbs)
        return err_set(err, ERR_INPUT, "the plan was made for batches of %lld samples, the run's have %lld: plan again",
                       (long long)plan->gbs, (long long)t->run->stages[0].gbs);
    if (plan->dtype != t->run->dtype)
        return err_set(err, ERR_INPUT, "the plan was made for %s, the run trains in %s: plan again", dtype_names[plan->dtype],
                       dtype_names[t->run->dtype]);
    if (l->tp * l->cp * l->pp != 1 || l->zero > 1 || l->recompute == RECOMPUTE_SELECTIVE ||
        (l->recompute == RECOMPUTE_FULL && l->recompute_layers && l->recompute_layers != t->run->model.layers) ||
        (l->zero && layout_shard_group(l) != l->dp))
        return err_set(err, ERR_INPUT, "layout '%s': this trainer runs dp, zero 0 and 1 over all of dp, mbs, recompute none and full", t->layout_text);
    if (t->run->dtype != DTYPE_F32 && t->run->dtype != DTYPE_F64)
        return err_set(err, ERR_INPUT, "numerics.dtype '%s': the CPU trains in f32 or f64", dtype_names[t->run->dtype]);
    return layout_check(l, &t->run->model, plan->seq, t->run->stages[0].gbs, t->conf->world->size, err);
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
        rc = buffer_list_add(&t->plan, "loader", BUFFER_LOADER, DTYPE_FP8, 1, 1, loader, err);
    return rc < 0 ? rc : buffer_list_add(&t->plan, "process", BUFFER_PROCESS, DTYPE_FP8, 1, 1, t->process_bytes, err);
}

static void plan_say(const struct train *t)
{
    char line[128], bytes[32];
    say(t, "memory plan of a rank:");
    for (int c = 0; c <= BUFFER_CATEGORIES; c++) {
        bool all = c == BUFFER_CATEGORIES;
        int64_t n = all ? t->plan.total : buffer_list_bytes(&t->plan, (enum buffer_category)c);
        snprintf(line, sizeof line, "  %-14s %12s", all ? "total" : buffer_category_names[c], num_format_bytes(n, bytes, sizeof bytes));
        say(t, line);
    }
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

static int device_open(struct train *t, struct err *err)
{
    int rc = capability_check(t, err);
    if (rc == 0)
        rc = dev_cpu_open(false, &t->dev, err);
    if (rc == 0)
        rc = t->dev->stream_new(t->dev, "compute", &t->stream, err);
    return rc < 0 ? rc : ops_cpu_open(t->dev, t->run->dtype, t->conf->blas, &t->ops, err);
}

/* Libraries are loaded, the groups are open and have exchanged messages, and of the plan only the tiles are taken. */
static int process_measure(struct train *t, struct err *err)
{
    double most = (double)(resident_bytes() - t->ops->workspace_bytes);
    int rc = comm_max(t->conf->world, &most, 1, err);
    t->process_bytes = (int64_t)most + buffers_process_growth_bytes(t->conf->world->size);
    return rc;
}

/* What follows from files and options: loaders and the list of tensors. */
static int inputs_open(struct train *t, struct loader_bounds *bounds, struct err *err)
{
    int rc = loaders_open(t, bounds, err);
    if (rc == 0)
        rc = params_build(&t->run->model, &t->params, err);
    return rc < 0 ? rc : flat_build(&t->params, &t->flat, err);
}

/* Everything a step needs, taken once. */
static int memory_take(struct train *t, const struct dit_config *c, struct err *err)
{
    int rc = optim_open(&t->optim, &t->params, &t->flat, t->run, (int)t->layout->zero, t->dp, t->ops, t->stream, err);
    if (rc == 0)
        rc = dit_new(c, t->ops, t->stream, t->optim.weights, t->optim.grads, &t->dit, err);
    if (rc == 0 && !(t->times = calloc(TRAIN_TIMES_MAX, sizeof *t->times)))
        rc = err_set(err, ERR_NOMEM, "out of memory");
    if (rc == 0 && !t->conf->trial && t->conf->world->rank == 0)
        rc = record_open(&t->record, t->conf->run_dir, t->conf->attempt, err);
    return rc;
}

/* Each rank's own failures are agreed on before the next collective call. */
static int train_open(struct train *t, struct err *err)
{
    struct comm *world = t->conf->world;
    struct loader_bounds bounds = {0};
    struct str text = STR_INIT;
    layout_format(t->layout, &text);
    snprintf(t->layout_text, sizeof t->layout_text, "%s", text.p);
    str_release(&text);
    int rc = comm_agree(world, device_open(t, err), err);
    if (rc < 0)
        return rc;
    comm_bind(world, t->dev);
    if ((rc = comm_grid_open(world, t->layout, &t->run->model, &t->grid, err)) < 0 || (rc = process_measure(t, err)) < 0 ||
        (rc = comm_agree(world, inputs_open(t, &bounds, err), err)) < 0)
        return rc;
    t->dp = t->grid.dp;
    struct dit_config c = dit_config_of(t, &bounds);
    if ((rc = comm_agree(world, plan_make(t, &c, err), err)) < 0)
        return rc;
    plan_say(t);
    rc = comm_agree(world, limit_check(t, err), err);
    return rc < 0 ? rc : comm_agree(world, memory_take(t, &c, err), err);
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
    comm_grid_close(&t->grid);
    comm_bind(t->conf->world, NULL);
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
    snprintf(line, sizeof line, "checkpoint %s is not used: %s", dir, reason);
    say(t, line);
    record_damaged(&t->record, dir, reason);
}

static void phase_set(const struct train *t, const char *phase)
{
    if (t->conf->phase)
        *t->conf->phase = phase;
}

static int state_load(struct train *t, struct err *err)
{
    struct ckpt_meta meta = {0};
    bool found = false;
    double wall = clock_wall_s(), mono = clock_mono_s();
    phase_set(t, "load");
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

static int err_step(int64_t step, int status, struct err *err)
{
    err_context(err, "step %lld", (long long)step);
    return status;
}

/* A trial that is plainly too slow: no counted step, and the first is none, was as fast as asked for. */
static bool hopeless(const struct train *t)
{
    bool slow = t->conf->trial && t->conf->give_up_s > 0 && t->n_times > TRAIN_GIVE_UP_STEPS;
    for (int64_t i = 1; slow && i < t->n_times; i++)
        slow = t->times[i] > t->conf->give_up_s;
    return slow;
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
    double sums[] = {loss, *t->conf->stop || hopeless(t) ? 1 : 0, failed < 0}, waited = t->dp->wait_s;
    int rc = comm_sum(t->dp, sums, 3, failed < 0 ? NULL : err);
    if (rc < 0 || sums[2] > 0)
        return rc < 0 ? rc : err_step(step, comm_agree(t->dp, failed, err), err);
    double update = clock_mono_s(), before = t->dp->wait_s;
    if ((rc = optim_step(&t->optim, step, &opt, err)) < 0)
        return rc;
    s->optim_s = clock_mono_s() - update - (t->dp->wait_s - before);
    s->comm_s = t->dp->wait_s - waited;
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

/* Times without the first step, which pays for first touches: median, least, most. */
static void times_report(const struct train *t, struct train_report *out)
{
    double *times = t->times;
    int64_t n = t->n_times;
    out->median_step_s = out->min_step_s = out->max_step_s = NAN;
    if (n > 1)
        times++, n--;
    if (n == 0)
        return;
    qsort(times, (size_t)n, sizeof *times, by_value);
    out->median_step_s = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
    out->min_step_s = times[0];
    out->max_step_s = times[n - 1];
}

static void phases_add(struct train *t, const struct record_step *s)
{
    if (t->n_times == 1)
        t->phases = (struct train_phases){0}; /* as with the times, the first step counts only when it is the only one */
    t->phases.data_s += s->data_s;
    t->phases.forward_s += s->forward_s;
    t->phases.backward_s += s->backward_s;
    t->phases.comm_s += s->comm_s;
    t->phases.optim_s += s->optim_s;
    if (t->n_times < TRAIN_TIMES_MAX)
        t->times[t->n_times++] = s->step_s;
}

static void phases_report(const struct train *t, int64_t steps, struct train_report *out)
{
    double n = (double)(steps > 1 ? steps - 1 : 1);
    const struct train_phases *p = &t->phases;
    out->phases = (struct train_phases){p->data_s / n, p->forward_s / n, p->backward_s / n, p->comm_s / n, p->optim_s / n};
}

static int report_make(struct train *t, const struct record_step *last, struct train_report *out, struct err *err)
{
    double most = (double)resident_peak_bytes();
    int rc = comm_max(t->dp, &most, 1, err);
    out->next_step = t->next_step;
    out->loss = last->loss;
    out->grad_norm = last->grad_norm;
    out->tokens = last->tokens;
    out->model_flops = last->model_flops;
    out->taken_bytes = t->dev->peak_bytes;
    out->peak_bytes = (int64_t)most;
    times_report(t, out);
    phases_report(t, out->steps, out);
    out->mfu = t->peak_flops > 0 ? last->model_flops / out->median_step_s / t->peak_flops : NAN;
    char line[160], planned[32], peak[32];
    snprintf(line, sizeof line, "memory of a rank: planned %s, resident at most %s",
             num_format_bytes(out->planned_bytes, planned, sizeof planned), num_format_bytes(out->peak_bytes, peak, sizeof peak));
    say(t, line);
    return rc;
}

/* Between steps: has any rank been asked to stop? At the boundary of a step its last exchange tells. */
static int stop_agree(struct train *t, bool *stop, struct err *err)
{
    double asked = *t->conf->stop ? 1 : 0;
    int rc = comm_max(t->dp, &asked, 1, err);
    *stop = asked > 0;
    if (rc == 0 && *stop)
        record_stop_seen(&t->record, *t->conf->stop, t->conf->stop_heard);
    return rc;
}

static int steps_run(struct train *t, struct train_report *out, struct err *err)
{
    struct record_step s = {.loss = NAN, .grad_norm = NAN, .tokens = NAN, .model_flops = NAN};
    int64_t total = run_total_steps(t->run), end = total, every = t->run->ckpt_every_steps, saved = t->next_step;
    bool stop;
    int rc = stop_agree(t, &stop, err); /* asked while we were starting: not even one step then */
    if (t->conf->max_steps > 0 && t->next_step + t->conf->max_steps < total)
        end = t->next_step + t->conf->max_steps;
    phase_set(t, "step");
    while (t->next_step < end && !stop && rc == 0) {
        if ((rc = step_run(t, t->next_step, &stop, &s, err)) < 0)
            return rc;
        record_step(&t->record, &s);
        if (stop)
            record_stop_seen(&t->record, *t->conf->stop, t->conf->stop_heard);
        t->next_step++;
        out->steps++;
        phases_add(t, &s);
        rc = health_check(t, &s, err);
        if (rc == 0 && (stop || t->next_step == end || (every > 0 && t->next_step % every == 0)) && saved != t->next_step) {
            phase_set(t, "save");
            rc = state_save(t, err);
            phase_set(t, "step");
            saved = t->next_step;
            if (rc == 0 && !stop && t->next_step < end) /* asked while we were saving: no further step, no further save */
                rc = stop_agree(t, &stop, err);
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
    *out = (struct train_report){.loss = NAN, .grad_norm = NAN, .tokens = NAN, .model_flops = NAN, .mfu = NAN, .median_step_s = NAN,
                                 .min_step_s = NAN, .max_step_s = NAN, .phases = {NAN, NAN, NAN, NAN, NAN}};
    t.config_hash = run_config_hash(conf->run);
    t.peak_flops = conf->plan->peak_flops * conf->world->size;
    int rc = train_open(&t, err);
    out->planned_bytes = t.plan.total;
    out->process_bytes = t.process_bytes;
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
