/* Setting up a run: what this process can do of the layout, the groups, the memory plan, and everything a step needs, taken once. */
#include "trainer/run/train_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/num.h"

void train_say(const struct train *t, const char *line)
{
    if (t->conf->say && t->conf->world->rank == 0)
        t->conf->say(t->conf->say_ctx, line);
}

int64_t train_resident_peak_bytes(void)
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

/* Of them in memory that processes share; 0 where the system does not say. No buffer of ours is: they are MPI's segments. */
static int64_t shared_bytes(void)
{
    char line[128];
    long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "RssShmem: %lld kB", &kib) != 1)
        ;
    if (f)
        fclose(f);
    return kib * 1024;
}

int64_t train_segments_bytes(const struct train *t)
{
    return num_max_i64(0, shared_bytes() - t->shared_bytes);
}

/* ---- setting up ---- */

/* Stages around the one of `step` that have its layout. */
static void segment_take(struct train *t, int64_t step)
{
    const struct plan *plans = t->conf->plans;
    int64_t stage = run_stage_at(t->run, step);
    t->first_stage = stage, t->end_stage = stage + 1;
    while (t->first_stage > 0 && layout_equal(&plans[t->first_stage - 1].layout, &plans[stage].layout))
        t->first_stage--;
    while (t->end_stage < t->run->n_stages && layout_equal(&plans[t->end_stage].layout, &plans[stage].layout))
        t->end_stage++;
    t->plan = &plans[t->first_stage];
    t->layout = &t->plan->layout;
}

static int stage_check(const struct train *t, int64_t stage, struct err *err)
{
    const struct plan *plan = &t->conf->plans[stage];
    const struct run_stage *s = &t->run->stages[stage];
    struct hash128 none = {0}, model = model_hash(&t->run->model);
    if (memcmp(&plan->model_hash, &none, sizeof none) != 0 && memcmp(&plan->model_hash, &model, sizeof model) != 0)
        return err_set(err, ERR_INPUT, "the plan was made for model '%s', the run trains '%s' of another shape: plan again", plan->model,
                       t->run->model.name);
    if (plan->gbs != s->gbs)
        return err_set(err, ERR_INPUT, "the plan was made for batches of %lld samples, the run's have %lld: plan again",
                       (long long)plan->gbs, (long long)s->gbs);
    if (plan->dtype != t->run->dtype)
        return err_set(err, ERR_INPUT, "the plan was made for %s, the run trains in %s: plan again", dtype_names[plan->dtype],
                       dtype_names[t->run->dtype]);
    /* batches smaller than the segment's first, in later stages and ramps, leave replicas without samples: slow, not wrong */
    return layout_check(t->layout, &t->run->model, plan->seq, t->plan->gbs, t->conf->world->size, err);
}

static int capability_check(const struct train *t, struct err *err)
{
    int rc = 0;
    if (layout_world(t->layout) != t->conf->world->size)
        return comm_size_error(t->conf->world, t->layout, err);
    for (int64_t i = t->first_stage; i < t->end_stage && rc == 0; i++)
        if ((rc = stage_check(t, i, err)) < 0 && t->run->n_stages > 1)
            err_context(err, "stage %lld", (long long)i);
    return rc;
}

int train_plans_check(struct train *t, struct err *err)
{
    int rc = 0;
    for (int64_t stage = 0; stage < t->run->n_stages && rc == 0; stage = t->end_stage) {
        segment_take(t, run_stage_first(t->run, stage));
        rc = capability_check(t, err);
    }
    return rc;
}

static void bounds_add(struct loader_bounds *most, const struct loader *l)
{
    struct loader_bounds b = loader_bounds(l);
    most->tokens = num_max_i64(most->tokens, b.tokens);
    most->samples = num_max_i64(most->samples, b.samples);
    most->text_tokens = num_max_i64(most->text_tokens, b.text_tokens);
    most->segment = num_max_i64(most->segment, b.segment);
}

static int loaders_open(struct train *t, struct loader_bounds *most, struct err *err)
{
    const struct comm *world = t->conf->world;
    bool validates = t->run->validation.every_steps > 0 && !t->conf->trial;
    *most = (struct loader_bounds){0};
    for (int64_t i = t->first_stage; i < t->end_stage; i++) {
        int rc = loader_open(t->run, &t->run->stages[i], t->layout->mbs, t->verify[i], world->rank, world->size, &t->loaders[i], err);
        if (rc < 0)
            return rc;
        bounds_add(most, t->loaders[i]);
        t->most_gbs = num_max_i64(t->most_gbs, t->run->stages[i].gbs);
    }
    t->most_micros = layout_micro_batches(t->layout, t->most_gbs, 0);
    if (!validates)
        return 0;
    int rc = validate_open(&t->validate, t->run, t->layout, layout_place(t->layout, world->rank), t->most_gbs, t->verify[t->run->n_stages], world, err);
    if (rc == 0)
        bounds_add(most, t->validate.loader);
    return rc;
}

static struct dit_config dit_config_of(const struct train *t, const struct loader_bounds *b)
{
    return (struct dit_config){
        .model = &t->run->model, .tuning = &t->run->tuning, .params = &t->params, .shards = &t->sh, .layout = t->layout, .grid = &t->grid,
        .objective = t->run->objective, .seed = t->run->seed, .max_tokens = b->tokens, .max_samples = b->samples,
        .max_text_tokens = b->text_tokens, .max_segment = b->segment, .slots = pipe_slots(t->layout, t->most_micros, t->sh.place.pp),
        .residual_wide = t->run->residual == RESIDUAL_F32};
}

static struct optim_conf optim_conf_of(const struct train *t, const struct dit_config *c)
{
    return (struct optim_conf){.params = &t->params, .sh = &t->sh, .run = t->run, .layout = t->layout, .world = t->conf->world,
                               .grid = &t->grid, .ops = t->ops, .stream = t->stream,
                               .tp_bytes = dit_tp_sum_bytes(c, t->ops->act, t->ops->stat)};
}

static bool writes_async(const struct train *t) { return t->run->ckpt_async && !t->conf->trial; }

static int plan_make(struct train *t, const struct dit_config *c, struct err *err)
{
    struct optim_conf o = optim_conf_of(t, c);
    int64_t loader = 0;
    int rc = dit_plan(c, t->ops->act, t->ops->stat, &t->memory, err);
    for (int64_t i = t->first_stage; i < t->end_stage; i++)
        loader += loader_bytes(t->loaders[i]);
    if (t->validate.loader)
        loader += loader_bytes(t->validate.loader);
    if (rc == 0)
        rc = optim_plan(&o, &t->memory, err);
    if (rc == 0 && writes_async(t))
        rc = buffer_list_add(&t->memory, "copy for checkpoints", BUFFER_WORK, DTYPE_BYTE, 1, 1, ckpt_async_bytes(&o), err);
    if (rc == 0)
        rc = buffer_list_add(&t->memory, "gemm and attention tiles", BUFFER_WORK, DTYPE_BYTE, 1, 1, t->ops->workspace_bytes, err);
    if (rc == 0)
        rc = buffer_list_add(&t->memory, "trace", BUFFER_WORK, DTYPE_BYTE, 1, 1, train_profile_bytes(t), err);
    if (rc == 0)
        rc = buffer_list_add(&t->memory, "loader", BUFFER_LOADER, DTYPE_BYTE, 1, 1, loader, err);
    return rc < 0 ? rc : buffer_list_add(&t->memory, "process", BUFFER_PROCESS, DTYPE_BYTE, 1, 1, t->process_bytes, err);
}

static void plan_say(const struct train *t)
{
    char line[128], bytes[32];
    train_say(t, "memory plan of a rank:");
    for (int c = 0; c <= BUFFER_CATEGORIES; c++) {
        bool all = c == BUFFER_CATEGORIES;
        int64_t n = all ? t->memory.total : buffer_list_bytes(&t->memory, (enum buffer_category)c);
        snprintf(line, sizeof line, "  %-14s %12s", all ? "total" : buffer_category_names[c], num_format_bytes(n, bytes, sizeof bytes));
        train_say(t, line);
    }
}

static int limit_check(const struct train *t, struct err *err)
{
    char need[32], have[32], stage[40] = "";
    if (t->conf->memory_limit_bytes == 0 || t->memory.total <= t->conf->memory_limit_bytes)
        return 0;
    if (t->run->n_stages > 1)
        snprintf(stage, sizeof stage, " in stage %lld", (long long)t->first_stage);
    return err_set(err, ERR_NO, "out of memory by plan%s: a rank needs %s, the limit is %s: give another layout, fewer tokens at a time, or a higher limit", stage,
                   num_format_bytes(t->memory.total, need, sizeof need),
                   num_format_bytes(t->conf->memory_limit_bytes, have, sizeof have));
}

static int device_open(struct train *t, struct err *err)
{
    int rc = dev_cpu_open(false, &t->dev, err);
    if (rc == 0)
        rc = t->dev->stream_new(t->dev, "compute", &t->stream, err);
    return rc < 0 ? rc : ops_cpu_open(t->dev, t->run->dtype, t->conf->blas, &t->ops, err);
}

/* Libraries are loaded, the groups are open and have exchanged messages, and of the plan only the tiles are taken. */
static int process_measure(struct train *t, struct err *err)
{
    double most = (double)(resident_bytes() - t->ops->workspace_bytes);
    t->shared_bytes = shared_bytes();
    int rc = comm_max(t->conf->world, &most, 1, err);
    t->process_bytes = (int64_t)most + buffers_process_growth_bytes(t->conf->world->size);
    return rc;
}

/* What follows from files and options: loaders and the list of tensors. */
static int inputs_open(struct train *t, struct loader_bounds *bounds, struct err *err)
{
    int rc = loaders_open(t, bounds, err);
    if (rc == 0)
        rc = tuning_params(&t->run->model, &t->run->tuning, &t->params, err);
    return rc < 0 ? rc : shards_build(&t->run->model, &t->params, t->layout, t->conf->world->rank, &t->sh, err);
}

/* Everything a step needs, taken once. */
static int memory_take(struct train *t, const struct dit_config *c, struct err *err)
{
    struct optim_conf o = optim_conf_of(t, c);
    int rc = optim_open(&t->optim, &o, err);
    if (rc == 0)
        rc = units_open(&t->units, &t->sh, (int)t->layout->zero, t->grid.shard, t->ops, t->stream, t->optim.weights, t->optim.grads, err);
    t->units.sums = &t->optim.sums;
    if (rc == 0)
        rc = dit_new(c, t->ops, t->stream, &t->units, &t->dit, err);
    if (rc == 0)
        rc = pipe_open(&t->pipe, t->dit, t->layout, t->sh.place, t->grid.pp, t->stream, t->most_micros, err);
    return rc == 0 && writes_async(t) ? ckpt_async_open(&t->async, &t->optim, err) : rc;
}

int train_open(struct train *t, int64_t step, struct err *err)
{
    struct comm *world = t->conf->world;
    struct loader_bounds bounds = {0};
    segment_take(t, step);
    t->peak_flops = t->plan->peak_flops * world->size;
    int rc = comm_agree(world, device_open(t, err), err);
    if (rc < 0)
        return rc;
    comm_bind(world, t->dev);
    if ((rc = comm_grid_open(world, t->layout, &t->run->model, &t->grid, err)) < 0 || (rc = train_verify_decide(t, err)) < 0 ||
        (rc = process_measure(t, err)) < 0 || (rc = comm_agree(world, inputs_open(t, &bounds, err), err)) < 0)
        return rc;
    train_verify_note(t);
    struct dit_config c = dit_config_of(t, &bounds);
    if ((rc = comm_agree(world, plan_make(t, &c, err), err)) < 0)
        return rc;
    plan_say(t);
    rc = comm_agree(world, limit_check(t, err), err);
    if (rc == 0)
        rc = comm_agree(world, memory_take(t, &c, err), err);
    if (rc == 0)
        train_profile_attach(t);
    return rc;
}

void train_close(struct train *t)
{
    struct train next = {.conf = t->conf, .run = t->run, .record = t->record, .writer = t->writer, .next_step = t->next_step, .skips = t->skips, .spikes = t->spikes,
                         .end_step = t->end_step, .owed = t->owed, .save_owed = t->save_owed, .room = t->room, .cadence = t->cadence,
                         .times = t->times, .n_times = t->n_times, .phases = t->phases,
                         .tokens = t->tokens, .flops = t->flops, .config_hash = t->config_hash, .trace_clock = t->trace_clock,
                         .named = t->named, .line = t->line, .peak_flops = t->peak_flops};
    cadence_next(&next.cadence);
    meter_detach(&t->meter);
    next.meter = t->meter;
    memcpy(next.kinds_s, t->kinds_s, sizeof next.kinds_s);
    ckpt_async_close(&t->async);
    validate_close(&t->validate);
    pipe_close(&t->pipe);
    dit_free(t->dit);
    units_close(&t->units);
    optim_close(&t->optim);
    for (int i = 0; i < LIMIT_STAGES; i++)
        loader_close(t->loaders[i]);
    if (t->ops)
        t->ops->close(t->ops);
    if (t->stream)
        t->dev->stream_free(t->dev, t->stream);
    if (t->dev)
        t->dev->close(t->dev);
    shards_release(&t->sh);
    params_release(&t->params);
    comm_grid_close(&t->grid);
    comm_bind(t->conf->world, NULL);
    *t = next;
}
