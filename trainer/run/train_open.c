/* train_open: sets up a leg: checks that this process can run the layout, opens the groups, plans
 * the memory, and allocates everything that steps need, once. */
#include "trainer/run/train_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/num.h"
#include "trainer/run/gpu.h"

void train_say(const struct train *t, const char *line)
{
    if (t->conf->say && t->conf->world->rank == 0)
        t->conf->say(t->conf->say_ctx, line);
}

/* Returns what the kernel says of this process's memory under a name such as "VmHWM:"; -1 if it
 * does not say it. It allocates nothing, because it is called in steps. */
static int64_t status_bytes(const char *name)
{
    char text[4096];
    long long kib = -1;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    const char *line = strstr(text, name);
    return line && sscanf(line + strlen(name), "%lld kB", &kib) == 1 ? kib * 1024 : -1;
}

/* Returns the peak resident memory of this program. ru_maxrss is used only if the kernel gives no
 * VmHWM, because it also counts the program that the process ran before: perhaps a launcher. */
int64_t train_resident_peak_bytes(void)
{
    struct rusage u;
    int64_t peak = status_bytes("VmHWM:");
    if (peak >= 0)
        return peak;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_maxrss * 1024 : 0;
}

/* Returns how many bytes are resident now; 0 if the system does not say. */
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

/* Returns how many resident bytes are shared between processes; 0 if the system does not say. No
 * buffer of ours is shared, so this is MPI's shared memory. */
static int64_t shared_bytes(void) { return num_max_i64(0, status_bytes("RssShmem:")); }

int64_t train_mpi_bytes(const struct train *t)
{
    return num_max_i64(0, shared_bytes() - t->leg.shared_bytes);
}

/* ---- setting up ---- */

/* Takes the stage of `step` and its neighbours with the same layout as the leg. */
static void leg_take(struct train *t, int64_t step)
{
    const struct plan *plans = t->conf->plans;
    int64_t stage = run_stage_at(t->run, step);
    t->leg.first_stage = stage, t->leg.end_stage = stage + 1;
    while (t->leg.first_stage > 0 &&
           layout_equal(&plans[t->leg.first_stage - 1].layout, &plans[stage].layout))
        t->leg.first_stage--;
    while (t->leg.end_stage < t->run->n_stages &&
           layout_equal(&plans[t->leg.end_stage].layout, &plans[stage].layout))
        t->leg.end_stage++;
    t->leg.plan = &plans[t->leg.first_stage];
    t->leg.layout = &t->leg.plan->layout;
}

static int stage_check(const struct train *t, int64_t stage, struct err *err)
{
    const struct plan *plan = &t->conf->plans[stage];
    const struct run_stage *s = &t->run->stages[stage];
    struct hash128 none = {0}, model = model_hash(&t->run->model);
    if (memcmp(&plan->model_hash, &none, sizeof none) != 0 &&
        memcmp(&plan->model_hash, &model, sizeof model) != 0)
        return err_set(err, ERR_INPUT,
                       "the plan was made for model '%s', the run trains '%s' of another shape: "
                       "plan again",
                       plan->model, t->run->model.name);
    if (plan->gbs != s->gbs)
        return err_set(err, ERR_INPUT,
                       "the plan was made for batches of %lld samples, the run's have %lld: plan "
                       "again",
                       (long long)plan->gbs, (long long)s->gbs);
    if (plan->dtype != t->run->dtype)
        return err_set(err, ERR_INPUT, "the plan was made for %s, the run trains in %s: plan again",
                       dtype_names[plan->dtype], dtype_names[t->run->dtype]);
    /* In later stages and in ramps, batches may be smaller than in the leg's first stage and leave
     * replicas without samples: that is slow, but not wrong. */
    return layout_check(t->leg.layout, &t->run->model, plan->seq, t->leg.plan->gbs,
                        t->conf->world->size, err);
}

static int capability_check(const struct train *t, struct err *err)
{
    if (layout_world(t->leg.layout) != t->conf->world->size)
        return comm_size_error(t->conf->world, t->leg.layout, err);
    for (int64_t i = t->leg.first_stage; i < t->leg.end_stage; i++) {
        int rc = stage_check(t, i, err);
        if (rc < 0 && t->run->n_stages > 1)
            err_context(err, "stage %lld", (long long)i);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int train_plans_check(struct train *t, struct err *err)
{
    int rc;
    for (int64_t stage = 0; stage < t->run->n_stages; stage = t->leg.end_stage) {
        leg_take(t, run_stage_first(t->run, stage));
        if ((rc = capability_check(t, err)) < 0)
            return rc;
    }
    return 0;
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
    int rc;
    *most = (struct loader_bounds){0};
    for (int64_t i = t->leg.first_stage; i < t->leg.end_stage; i++) {
        if ((rc = loader_open(t->run, &t->run->stages[i], t->conf->datasets, t->leg.layout->mbs,
                              t->leg.verify[i], world->rank, world->size, &t->leg.loaders[i],
                              err)) < 0)
            return rc;
        bounds_add(most, t->leg.loaders[i]);
        t->leg.most_gbs = num_max_i64(t->leg.most_gbs, t->run->stages[i].gbs);
    }
    t->leg.most_micros = layout_micro_batches(t->leg.layout, t->leg.most_gbs, 0);
    if (validates &&
        (rc = validate_open(&t->leg.validate, t->run, t->conf->datasets, t->leg.layout,
                            layout_place(t->leg.layout, world->rank), t->leg.most_gbs,
                            t->leg.verify[t->run->n_stages], world, err)) < 0)
        return rc;
    if (validates)
        bounds_add(most, t->leg.validate.loader);
    /* Otherwise the indices of later legs would stay in memory until those legs begin. */
    datasets_drop(t->conf->datasets);
    return 0;
}

static struct dit_config dit_config_of(const struct train *t, const struct loader_bounds *b)
{
    return (struct dit_config){
        .model = &t->run->model, .finetune = &t->run->finetune, .params = &t->leg.params,
        .shards = &t->leg.sh, .layout = t->leg.layout, .grid = &t->leg.grid,
        .objective = t->run->objective, .seed = t->run->seed,
        .max_tokens = b->tokens, .max_samples = b->samples, .max_text_tokens = b->text_tokens,
        .max_segment = b->segment,
        .slots = pipe_slots(t->leg.layout, t->leg.most_micros, t->leg.sh.place.pp),
        .residual_wide = t->run->residual == RESIDUAL_F32,
        .most_micros = t->leg.most_micros, .apart = !t->leg.compute.dev->host_memory};
}

static enum buffer_sums sums_of(const struct train *t)
{
    if (!train_exchanges(t))
        return SUMS_OF_HOST;
    return t->conf->world->conf->ordered ? SUMS_IN_ORDER : SUMS_OF_LIBRARY;
}

static struct optim_conf optim_conf_of(const struct train *t, const struct dit_config *c)
{
    return (struct optim_conf){
        .params = &t->leg.params, .sh = &t->leg.sh, .run = t->run, .layout = t->leg.layout,
        .world = t->conf->world, .grid = &t->leg.grid,
        .ops = t->leg.compute.ops, .stream = t->leg.compute.stream,
        .tp_bytes = dit_tp_sum_bytes(c, t->leg.compute.ops->act, t->leg.compute.ops->stat),
        .sums = sums_of(t)};
}

static bool writes_async(const struct train *t) { return t->run->ckpt_async && !t->conf->trial; }

static int bytes_add(struct train *t, const char *name, enum buffer_category category,
                     enum buffer_side side, int64_t bytes, struct err *err)
{
    return side == BUFFER_ON_DEVICE
               ? buffer_list_add(&t->leg.memory, name, category, DTYPE_BYTE, 1, 1, bytes, err)
               : buffer_list_add_host(&t->leg.memory, name, category, side, 1, bytes, err);
}

/* Lists the pinned memory in which messages are staged. */
static int stages_list(struct train *t, const struct dit_config *c, struct err *err)
{
    struct optim_conf o = optim_conf_of(t, c);
    struct buffer_spec spec = dit_spec(c, t->leg.compute.ops->act, t->leg.compute.ops->stat);
    struct buffer_state state;
    int rc;
    if (!c->apart || o.sums != SUMS_OF_HOST)
        return 0;
    if ((rc = optim_state(&o, &state, err)) < 0)
        return rc;
    buffers_stages(&state, &spec, &t->leg.memory, t->leg.stages);
    return buffers_stages_add(t->leg.stages, &t->leg.memory, err);
}

/* Allocates the memory that stages_list lists, in the groups. */
static int stages_take(struct train *t, struct err *err)
{
    const struct comm_grid *g = &t->leg.grid;
    struct comm *const groups[BUFFER_STAGES] = {
        [STAGES_GATHER] = g->shard, [STAGES_SHARD] = g->shard, [STAGES_REPLICA] = g->replica,
        [STAGES_TP] = g->tp, [STAGES_KV] = g->kv, [STAGES_PP] = g->pp,
        [STAGES_A2A] = g->a2a, [STAGES_CP] = g->cp, [STAGES_RING] = g->ring};
    int rc;
    for (int i = 0; i < BUFFER_STAGES; i++)
        if ((rc = comm_reserve_stages(groups[i], (int)t->leg.stages[i].count,
                                      t->leg.stages[i].bytes, err)) < 0)
            return rc;
    return 0;
}

/* Lists what is only on the host, except the parts of the model and the optimizer. */
static int host_list(struct train *t, struct err *err)
{
    int64_t loader = 0;
    int rc;
    for (int64_t i = t->leg.first_stage; i < t->leg.end_stage; i++)
        loader += loader_bytes(t->leg.loaders[i]);
    if (t->leg.validate.loader)
        loader += loader_bytes(t->leg.validate.loader);
    if ((rc = bytes_add(t, "slab of files", BUFFER_WORK, BUFFER_PINNED,
                        slab_bytes(t->leg.compute.dev), err)) < 0)
        return rc;
    if ((rc = bytes_add(t, "calls that graphs are made of", BUFFER_WORK, BUFFER_ON_HOST,
                        t->conf->graphs ? graphs_bytes(t->leg.compute.dev) : 0, err)) < 0)
        return rc;
    if ((rc = bytes_add(t, "trace", BUFFER_WORK, BUFFER_ON_HOST, train_profile_bytes(t), err)) < 0)
        return rc;
    if ((rc = bytes_add(t, "loader", BUFFER_LOADER, BUFFER_ON_HOST, loader, err)) < 0)
        return rc;
    return bytes_add(t, "process", BUFFER_PROCESS, BUFFER_ON_HOST, t->leg.process_bytes, err);
}

/* Lists all that a rank will hold: this memory plan is shown before step 0 and compared with a
 * limit. */
static int memory_list(struct train *t, const struct dit_config *c, struct err *err)
{
    struct optim_conf o = optim_conf_of(t, c);
    const struct ops *ops = t->leg.compute.ops;
    int rc;
    if ((rc = dit_memory(c, ops->act, ops->stat, &t->leg.memory, err)) < 0)
        return rc;
    if ((rc = optim_memory(&o, &t->leg.memory, err)) < 0)
        return rc;
    if (writes_async(t) &&
        (rc = bytes_add(t, "copy for checkpoints", BUFFER_WORK, BUFFER_PINNED, ckpt_async_bytes(&o),
                        err)) < 0)
        return rc;
    if ((rc = bytes_add(t, "gemm and attention tiles", BUFFER_WORK, BUFFER_ON_DEVICE,
                        ops->workspace_bytes + ops->attn_plans.bytes, err)) < 0)
        return rc;
    if ((rc = scan_memory(&t->leg.memory, err)) < 0)
        return rc;
    if ((rc = stages_list(t, c, err)) < 0)
        return rc;
    return host_list(t, err);
}

/* Prints "  name   bytes". */
static void bytes_say(const struct train *t, const char *name, int64_t n)
{
    char line[128], bytes[32];
    snprintf(line, sizeof line, "  %-14s %12s", name, num_format_bytes(n, bytes, sizeof bytes));
    train_say(t, line);
}

static int64_t host_bytes(const struct buffer_list *m)
{
    return m->sides[BUFFER_PINNED] + m->sides[BUFFER_ON_HOST];
}

/* Says by which means devices exchange data, if they do. */
static void comm_say(const struct train *t)
{
    char line[96];
    if (t->conf->world->size == 1 || t->leg.compute.dev->host_memory)
        return;
    snprintf(line, sizeof line, "messages between devices: %s%s",
             train_exchanges(t) ? t->conf->coll->name : "through the host's memory, by MPI",
             sums_of(t) == SUMS_IN_ORDER ? ", all sums in rank order" : "");
    train_say(t, line);
}

/* Prints the plan by category and, if host and device have separate memory, by side. */
static void memory_say(const struct train *t)
{
    const struct buffer_list *m = &t->leg.memory;
    train_say(t, "memory plan of a rank:");
    for (int c = 0; c < BUFFER_CATEGORIES; c++)
        bytes_say(t, buffer_category_names[c], buffer_list_bytes(m, (enum buffer_category)c));
    if (!t->leg.compute.dev->host_memory) {
        bytes_say(t, "on the device", m->sides[BUFFER_ON_DEVICE]);
        bytes_say(t, "on the host", host_bytes(m));
        bytes_say(t, "there pinned", m->sides[BUFFER_PINNED]);
    }
    bytes_say(t, "total", m->total);
}

/* Compares what a rank needs with a limit; 0: there is none. whose: "" or " of the host". */
static int side_check(const struct train *t, int64_t bytes, int64_t limit, const char *whose,
                      const char *advice, struct err *err)
{
    char need[32], have[32], stage[40] = "";
    if (limit == 0 || bytes <= limit)
        return 0;
    if (t->run->n_stages > 1)
        snprintf(stage, sizeof stage, " in stage %lld", (long long)t->leg.first_stage);
    return err_set(err, ERR_NO,
                   "out of memory by plan%s: a rank needs %s%s, the limit is %s: give %s, or a "
                   "higher limit",
                   stage, num_format_bytes(bytes, need, sizeof need), whose,
                   num_format_bytes(limit, have, sizeof have), advice);
}

/* Refuses a leg that needs more memory than the limits allow. On the CPU all memory is host memory,
 * and its sum is compared with both limits. */
static int limit_check(const struct train *t, struct err *err)
{
    static const char fewer[] = "another layout, fewer tokens at a time";
    const struct train_conf *c = t->conf;
    const struct buffer_list *m = &t->leg.memory;
    bool apart = !t->leg.compute.dev->host_memory;
    int rc;
    if ((rc = side_check(t, apart ? m->sides[BUFFER_ON_DEVICE] : m->total, c->memory_limit_bytes,
                         apart ? " of the device" : "", fewer, err)) < 0)
        return rc;
    return side_check(t, apart ? host_bytes(m) : m->total, c->host_memory_limit_bytes,
                      apart ? " of the host" : "",
                      apart ? "smaller micro-batches, checkpoint.async false" : fewer, err);
}

/* Compares the plan's part on the device with what is free there, before any of it is allocated
 * except the operations' own memory. Where the memory is the host's, nothing is compared, because
 * other processes may take some of it at any time. */
static int room_check(const struct train *t, int64_t wanted, struct err *err)
{
    struct dev *dev = t->leg.compute.dev;
    int64_t left, all, plan = t->leg.memory.sides[BUFFER_ON_DEVICE];
    char need[32], have[32], whole[32], ours[32];
    int rc;
    if (dev->host_memory)
        return 0;
    if ((rc = dev->memory(dev, &left, &all, err)) < 0)
        return rc;
    if (wanted <= left)
        return 0;
    return err_set(err, ERR_NOMEM,
                   "out of memory by plan: a rank needs %s of the device%s, of which its "
                   "operations hold %s from the start, and %s of the device's %s are free: give "
                   "another layout, fewer tokens at a time, or a device that nobody else uses "
                   "(nvidia-smi says who does)",
                   num_format_bytes(plan, need, sizeof need),
                   wanted > plan ? ", which several share," : "",
                   num_format_bytes(dev->alloc_bytes, ours, sizeof ours),
                   num_format_bytes(left, have, sizeof have),
                   num_format_bytes(all, whole, sizeof whole));
}

/* Checks the plan on all ranks. */
static int memory_check(struct train *t, struct err *err)
{
    struct comm *world = t->conf->world;
    int64_t wanted = t->leg.memory.sides[BUFFER_ON_DEVICE] - t->leg.compute.dev->alloc_bytes;
    int rc;
    if ((rc = comm_agree(world, limit_check(t, err), err)) < 0)
        return rc;
    if ((rc = gpu_wanted(world, &t->conf->compute, wanted, &wanted, err)) < 0)
        return rc;
    return comm_agree(world, room_check(t, wanted, err), err);
}

/* Measures the memory of the process. Libraries are loaded, the groups are open and have exchanged
 * messages, and of the memory plan only the operations' tiles are allocated. On a device with
 * memory of its own these are not resident here. */
static int process_measure(struct train *t, struct err *err)
{
    const struct compute *c = &t->leg.compute;
    int64_t tiles = c->dev->host_memory ? c->ops->workspace_bytes : 0;
    double most = (double)(resident_bytes() - tiles);
    t->leg.shared_bytes = shared_bytes();
    int rc = comm_max(t->conf->world, &most, 1, err);
    t->leg.process_bytes = (int64_t)most + buffers_process_growth_bytes(t->conf->world->size);
    return rc;
}

/* Opens what depends on files and options only: loaders and the list of tensors. */
static int inputs_open(struct train *t, struct loader_bounds *bounds, struct err *err)
{
    int rc;
    if ((rc = loaders_open(t, bounds, err)) < 0)
        return rc;
    if ((rc = finetune_params(&t->run->model, &t->run->finetune, &t->leg.params, err)) < 0)
        return rc;
    return shards_build(&t->run->model, &t->leg.params, t->leg.layout, t->conf->world->rank,
                        &t->leg.sh, err);
}

/* Allocates everything that steps need, once. */
static int memory_take(struct train *t, const struct dit_config *c, struct err *err)
{
    struct optim_conf o = optim_conf_of(t, c);
    struct leg *l = &t->leg;
    int rc;
    if ((rc = optim_open(&l->optim, &o, err)) < 0)
        return rc;
    if ((rc = units_open(&l->units, &l->sh, (int)l->layout->zero, l->grid.shard, l->compute.ops,
                         l->compute.stream, l->optim.weights, l->optim.grads, err)) < 0)
        return rc;
    l->units.sums = &l->optim.sums;
    l->units.spans = l->optim.spans;
    if ((rc = dit_new(c, l->compute.ops, l->compute.stream, &l->units, &l->dit, err)) < 0)
        return rc;
    if ((rc = pipe_open(&l->pipe, l->dit, l->layout, l->sh.place, l->grid.pp, l->compute.dev,
                        l->compute.stream, l->most_micros, err)) < 0)
        return rc;
    if ((rc = scan_open(&l->scan, l->compute.ops, err)) < 0)
        return rc;
    if ((rc = stages_take(t, err)) < 0)
        return rc;
    if (l->compute.ops->attn_reserve &&
        (rc = l->compute.ops->attn_reserve(l->compute.ops, l->compute.stream, err)) < 0)
        return rc;
    return writes_async(t) ? ckpt_async_open(&l->async, &l->optim, err) : 0;
}

/* Opens the leg of `step` up to its memory plan, of which only the operations' own memory is
 * allocated yet. again: the leg will be opened once more, and its data is verified then. */
static int leg_plan(struct train *t, int64_t step, bool again, struct dit_config *c,
                    struct err *err)
{
    struct comm *world = t->conf->world;
    struct loader_bounds bounds = {0};
    leg_take(t, step);
    t->peak_flops = t->leg.plan->peak_flops * world->size;
    int rc;
    struct compute_conf compute = t->conf->compute;
    compute.dtype = t->run->dtype;
    compute.gemm_table = t->gemm.kept[0] ? t->gemm.path : NULL;
    compute.attn = t->attn.kept[0] ? t->attn.word : NULL;
    if ((rc = comm_agree(world, compute_open(&t->leg.compute, &compute, err), err)) < 0)
        return rc;
    if ((rc = comm_bind(world, t->leg.compute.dev, again ? NULL : t->conf->coll, err)) < 0)
        return rc;
    if ((rc = comm_grid_open(world, t->leg.layout, &t->run->model, &t->leg.grid, err)) < 0)
        return rc;
    if (!again && (rc = train_verify_decide(t, err)) < 0)
        return rc;
    if ((rc = process_measure(t, err)) < 0)
        return rc;
    if ((rc = comm_agree(world, inputs_open(t, &bounds, err), err)) < 0)
        return rc;
    *c = dit_config_of(t, &bounds);
    if ((rc = comm_agree(world, train_attn_plan(t, step, c, err), err)) < 0)
        return rc;
    return comm_agree(world, memory_list(t, c, err), err);
}

int train_memory_check(struct train *t, struct err *err)
{
    const struct train_conf *conf = t->conf;
    bool limited = conf->memory_limit_bytes > 0 || conf->host_memory_limit_bytes > 0 ||
                   conf->compute.device != COMPUTE_CPU;
    struct dit_config c;
    int rc = 0;
    leg_take(t, t->next_step);
    /* The first leg is checked when it is opened. A trial has no other. */
    for (int64_t stage = t->leg.end_stage;
         limited && !conf->trial && stage < t->run->n_stages && rc == 0;) {
        if ((rc = leg_plan(t, run_stage_first(t->run, stage), true, &c, err)) == 0)
            rc = memory_check(t, err);
        stage = t->leg.end_stage;
        train_close(t);
    }
    return rc;
}

/* Replaces the calls of device and operations by measured ones, or by graphs. A table of times
 * needs each call by itself, so there are no graphs then. */
static int calls_replace(struct train *t, struct err *err)
{
    struct compute *d = &t->leg.compute;
    bool graphs = t->conf->graphs && d->dev->graph_begin && !t->conf->profile && !t->conf->trace;
    int rc;
    if (graphs && (rc = graphs_open(d->ops, d->stream, &t->leg.graphs, err)) < 0)
        return rc;
    return train_profile_attach(t, err);
}

int train_open(struct train *t, int64_t step, struct err *err)
{
    struct dit_config c;
    int rc;
    if ((rc = leg_plan(t, step, false, &c, err)) < 0)
        return rc;
    train_verify_note(t);
    comm_say(t);
    memory_say(t);
    if ((rc = memory_check(t, err)) < 0)
        return rc;
    if ((rc = comm_agree(t->conf->world, memory_take(t, &c, err), err)) < 0)
        return rc;
    return comm_agree(t->conf->world, calls_replace(t, err), err);
}

void train_close(struct train *t)
{
    cadence_next(&t->cadence);
    meter_detach(&t->meter);
    graphs_close(t->leg.graphs);
    ckpt_async_close(&t->leg.async);
    validate_close(&t->leg.validate);
    scan_close(&t->leg.scan);
    pipe_close(&t->leg.pipe);
    dit_free(t->leg.dit);
    units_close(&t->leg.units);
    optim_close(&t->leg.optim);
    for (int i = 0; i < LIMIT_STAGES; i++)
        loader_close(t->leg.loaders[i]);
    comm_grid_close(&t->leg.grid);
    comm_bind(t->conf->world, NULL, NULL, NULL);
    compute_close(&t->leg.compute);
    shards_release(&t->leg.sh);
    params_release(&t->leg.params);
    t->leg = (struct leg){0};
}
