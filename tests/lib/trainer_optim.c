#include "tests/lib/trainer_optim.h"

bool conditioned;

enum run_moments rig_moments;

enum dtype number = DTYPE_F64;

void run_make_wide(struct run *run)
{
    run_make(run, "synthetic:1x4x4", 8, 20);
    run->model.hidden = 16, run->model.heads = 4, run->model.ffn = 12;
    run->model.layers = 4;
    run->model.adaln = conditioned ? ADALN_LORA_SINGLE : ADALN_NONE,
    run->model.adaln_rank = conditioned ? 3 : 0;
}

void optim_rig_open_layout(struct rig *r, const char *layout, int zero)
{
    struct err err = {0};
    char text[128];
    r->b = rig_bench_take(number);
    run_make_wide(&r->run);
    r->run.moments = rig_moments;
    /* odd steps have gradients 2^10 times smaller, which are below this limit */
    r->run.adamw.clip_norm = 0.5;
    snprintf(text, sizeof text, "%s,zero=%d", layout, zero);
    must(layout_parse(text, &r->layout, &err), &err);
    must(params_build(&r->run.model, &r->params, &err), &err);
    /* One tensor is frozen, one has half the learning rate, and the list sets the weight decay. */
    r->params.items[3].flags &= ~(unsigned)PARAM_TRAINABLE;
    r->params.items[2].lr_scale = 0.5;
    must(shards_build(&r->run.model, &r->params, &r->layout, world->rank, &r->sh, &err), &err);
    must(comm_bind(world, r->b.dev, NULL, &err), &err);
    must(comm_grid_open(world, &r->layout, &r->run.model, &r->grid, &err), &err);
    struct optim_conf conf = {&r->params, &r->sh,   &r->run,  &r->layout,
                              world,      &r->grid, r->b.ops, r->b.stream};
    must(optim_open(&r->o, &conf, &err), &err);
    must(optim_init(&r->o, &err), &err);
}

void optim_rig_open(struct rig *r, int zero)
{
    char layout[32];
    snprintf(layout, sizeof layout, "dp=%d", world->size);
    optim_rig_open_layout(r, layout, zero);
}

double grad_number(uint64_t seed, int64_t step, int64_t id, int64_t global)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15 ^ (uint64_t)step << 56 ^ (uint64_t)id << 32 ^
                 (uint64_t)global;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9; /* splitmix64's mixing */
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return ((double)(x >> 33) - 0x1p30) * (step % 2 ? 0x1p-40 : 0x1p-30);
}

double grad_whole(int64_t step, int64_t t, int64_t global)
{
    return grad_number(3, step, t, global);
}

double grad_part(int64_t step, int64_t t, int64_t global, int64_t i, int64_t n)
{
    double rest = grad_whole(step, t, global);
    if (i < n - 1)
        return grad_number(4, step, t * 64 + i, global);
    for (int64_t k = 0; k < n - 1; k++)
        rest -= grad_part(step, t, global, k, n);
    return rest;
}

double grad_local(const struct rig *r, int64_t step, int64_t t, int64_t j, int64_t data)
{
    const struct shard_tensor *s = &r->sh.tensors[t];
    int64_t n = 1, i = 0, run, global = shard_to_global(s, &r->params.items[t], j, &run);
    if (s->sums & SHARD_SUM_PP)
        i = i * r->layout.pp + r->sh.place.pp, n *= r->layout.pp;
    if (s->sums & SHARD_SUM_TP)
        i = i * r->layout.tp + r->sh.place.tp, n *= r->layout.tp;
    if (s->sums & SHARD_SUM_KV && j / s->cols >= s->kv_row)
        i = i * r->sh.kv_copies + r->sh.place.tp % r->sh.kv_copies, n *= r->sh.kv_copies;
    int64_t ranks = r->layout.dp * r->layout.cp;
    return grad_part(step, t, global, i * ranks + data, n * ranks);
}

void grad_add(const struct rig *r, void *grads, int64_t at, double g)
{
    if (r->b.ops->stat == DTYPE_F64)
        ((double *)grads)[at] += g;
    else
        ((float *)grads)[at] += (float)g;
}

void grads_fill(const struct rig *r, int64_t step)
{
    int64_t data = layout_data_rank(&r->layout, r->sh.place), first = data - r->sh.group_rank,
            bytes = r->o.n_grads * dtype_bytes(r->b.ops->stat);
    void *grads = calloc(1, (size_t)bytes + 1);
    for (int64_t t = 0; t < r->params.n; t++)
        for (int64_t j = 0; shards_trained(&r->sh, t) && j < r->sh.tensors[t].count; j++) {
            struct piece own = piece_of(&r->sh, shards_unit_of(&r->sh, t), &r->sh.tensors[t], j,
                                        j + 1);
            if (r->layout.zero < 2)
                grad_add(r, grads, r->sh.tensors[t].offset + j,
                         grad_local(r, step, t, j, data));
            for (int64_t f = 0; f < r->sh.group && r->layout.zero >= 2 && own.n; f++)
                grad_add(r, grads, own.at, grad_local(r, step, t, j, first + f));
        }
    bench_put(&r->b, r->o.grads, grads, bytes);
    free(grads);
}

bool fits(const char *layout)
{
    struct layout l;
    return layout_parse(layout, &l, NULL) == 0 && layout_world(&l) == world->size;
}
