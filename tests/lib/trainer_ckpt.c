#include "tests/lib/trainer_ckpt.h"

struct ckpt_writer here = {.run_dir = scratch};

enum run_moments moments;

bool some_frozen;

void rig_open_as(struct rig *r, const char *layout, struct comm *group,
                 enum dtype dtype, double ema)
{
    struct err err = {0};
    r->b = rig_bench_take(dtype);
    run_make(&r->run, "synthetic:1x4x4", 8, 20);
    r->run.dtype = dtype;
    r->run.adamw.ema_decay = ema;
    r->run.moments = moments;
    must(layout_parse(layout, &r->layout, &err), &err);
    must(params_build(&r->run.model, &r->params, &err), &err);
    for (int64_t i = 2; some_frozen && i < r->params.n; i += 5)
        r->params.items[i].flags &= ~(unsigned)PARAM_TRAINABLE;
    must(shards_build(&r->run.model, &r->params, &r->layout, group->rank, &r->sh, &err), &err);
    must(comm_grid_open(group, &r->layout, &r->run.model, &r->grid, &err), &err);
    struct optim_conf conf = {&r->params, &r->sh,   &r->run,  &r->layout,
                              group,      &r->grid, r->b.ops, r->b.stream};
    must(optim_open(&r->o, &conf, &err), &err);
}

void ckpt_rig_open(struct rig *r, const char *layout, struct comm *group)
{
    rig_open_as(r, layout, group, DTYPE_F64, 0.9);
}

int64_t buffer_bytes(const struct rig *r, int buffer)
{
    int64_t n = buffer == CKPT_WEIGHTS ? r->o.n_weights : r->o.n_state;
    assert_true(n <= STATE_MOST);
    return n * dtype_bytes(ckpt_buffer_dtype(DTYPE_F64, r->run.moments, (enum ckpt_buffer)buffer));
}

struct ckpt_state state_get(const struct rig *r)
{
    static double held[CKPT_BUFFERS][STATE_MOST];
    struct ckpt_state s = ckpt_state_of(&r->o);
    for (int b = 0; b < CKPT_BUFFERS; b++)
        if (s.buffers[b]) {
            bench_get_to(&r->b, held[b], s.buffers[b], buffer_bytes(r, b));
            s.buffers[b] = (char *)held[b];
        }
    s.slab = NULL;
    return s;
}

void state_set(struct rig *r, int64_t salt)
{
    struct err err = {0};
    must(optim_zero(&r->o, &err), &err);
    struct ckpt_state s = state_get(r), there = ckpt_state_of(&r->o);
    state_visit(&s, salt, state_put);
    for (int b = 0; b < CKPT_BUFFERS; b++)
        if (s.buffers[b])
            bench_put(&r->b, there.buffers[b], s.buffers[b], buffer_bytes(r, b));
    r->o.updates = 1000 + salt;
}

void state_check(const struct rig *r, int64_t salt)
{
    struct ckpt_state s = state_get(r);
    assert_true(state_visit(&s, salt, state_compare) > 0);
    assert_int_equal(r->o.updates, 1000 + salt);
}

int try_save(struct rig *r, int64_t step, int64_t keep, struct err *err)
{
    struct ckpt_meta meta = {.step = step, .ordinal = (uint64_t)step * 8, .config_hash = config},
                     written = {0};
    state_set(r, step);
    int rc = ckpt_save(&here, &r->o, &meta, keep, &written, err);
    double bytes = ckpt_file_of_rank(&r->layout, r->o.c.world->rank) < 0 ? 0
                                                                         : (double)r->o.own * 8 * 4;
    if (rc == 0) {
        must(comm_sum(r->o.c.world, &bytes, 1, err), err);
        assert_true((double)written.bytes == bytes && written.updates == 1000 + step);
    }
    return rc;
}

void save(struct rig *r, int64_t step, int64_t keep)
{
    struct err err = {0};
    must(try_save(r, step, keep, &err), &err);
}

void on_damage(void *ctx, const char *dir, const char *reason)
{
    struct told *t = ctx;
    t->n++;
    snprintf(t->dir, sizeof t->dir, "%s", dir);
    snprintf(t->reason, sizeof t->reason, "%s", reason);
}

void load_expect(struct rig *r, int64_t step, struct told *told)
{
    struct ckpt_meta meta = {0};
    bool found = false;
    struct err err = {0};
    *told = (struct told){0};
    must(ckpt_load(&here, &r->o, config, on_damage, told, &meta, &found, &err), &err);
    assert_int_equal(found, step >= 0);
    if (!found)
        return;
    assert_true(meta.step == step && meta.ordinal == (uint64_t)step * 8 &&
                meta.updates == 1000 + step);
    state_check(r, step);
}

const char *step_file(int64_t step, const char *file)
{
    char name[128];
    snprintf(name, sizeof name, "ckpt/step-%08lld/%s", (long long)step, file);
    return in_scratch(name);
}

bool exists(int64_t step, const char *suffix)
{
    char name[128];
    snprintf(name, sizeof name, "ckpt/step-%08lld%s", (long long)step, suffix);
    return file_exists(in_scratch(name));
}
