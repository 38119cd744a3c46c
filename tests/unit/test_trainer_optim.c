/* The optimizer against AdamW written out, under the layouts of as many ranks as mpirun started:
 * groups of tensors, clipping, average, every ZeRO, every sum over an axis and what happens without
 * it, gradients that are not finite, and weights of bf16 beside their masters. */
#include "trainer_run.h"

#include "base/bf16.h"
#include "tests/unit/optim_step.h"
#include "trainer/state/fault.h"
#include "trainer/state/optim.h"
#include "trainer/state/units.h"

struct rig {
    struct bench b;
    struct run run;
    struct param_list params;
    struct layout layout;
    struct shards sh;
    struct comm_grid grid;
    struct optim o;
};

/* The conditioning's 70 000 elements are most of a small model, and slow to check one by one: only
 * some tests have them. */
static bool conditioned;
static enum run_moments moments;
static enum dtype number = DTYPE_F64;

/* Two heads of k and v, so that tp 4 copies them. */
static void run_make_wide(struct run *run)
{
    run_make(run, "synthetic:1x4x4", 8, 20);
    run->model.hidden = 16, run->model.heads = 4, run->model.ffn = 12;
    run->model.layers = 4;
    run->model.adaln = conditioned ? ADALN_LORA_SINGLE : ADALN_NONE,
    run->model.adaln_rank = conditioned ? 3 : 0;
}

/* `layout` without its zero. */
static void rig_open_layout(struct rig *r, const char *layout, int zero)
{
    struct err err = {0};
    char text[128];
    r->b = bench_open(number);
    run_make_wide(&r->run);
    r->run.moments = moments;
    r->run.adamw.clip_norm = 0.5; /* odd steps have gradients a thousand times smaller: below it */
    snprintf(text, sizeof text, "%s,zero=%d", layout, zero);
    must(layout_parse(text, &r->layout, &err), &err);
    must(params_build(&r->run.model, &r->params, &err), &err);
    /* Groups: one tensor frozen, one at half the learning rate, decay as the list says. */
    r->params.items[3].flags &= ~(unsigned)PARAM_TRAINABLE;
    r->params.items[2].lr_scale = 0.5;
    must(shards_build(&r->run.model, &r->params, &r->layout, world->rank, &r->sh, &err), &err);
    must(comm_grid_open(world, &r->layout, &r->run.model, &r->grid, &err), &err);
    struct optim_conf conf = {&r->params, &r->sh,   &r->run,  &r->layout,
                              world,      &r->grid, r->b.ops, r->b.stream};
    must(optim_open(&r->o, &conf, &err), &err);
    must(optim_init(&r->o, &err), &err);
}

static void rig_open(struct rig *r, int zero)
{
    char layout[32];
    snprintf(layout, sizeof layout, "dp=%d", world->size);
    rig_open_layout(r, layout, zero);
}

static void rig_close(struct rig *r)
{
    optim_close(&r->o);
    comm_grid_close(&r->grid);
    shards_release(&r->sh);
    params_release(&r->params);
    run_release(&r->run);
    bench_close(&r->b);
}

/* ---- gradients: what adds up, over the ranks that hold parts of it, to a number that no layout
 * knows of ---- */

/* Any number from -1 to 1, small in odd steps, of so few digits that sums of them are exact. */
static double grad_number(uint64_t seed, int64_t step, int64_t id, int64_t global)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15 ^ (uint64_t)step << 56 ^ (uint64_t)id << 32 ^
                 (uint64_t)global;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9; /* splitmix64's mixing */
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return ((double)(x >> 33) - 0x1p30) * (step % 2 ? 0x1p-40 : 0x1p-30);
}

static double grad_whole(int64_t step, int64_t t, int64_t global)
{
    return grad_number(3, step, t, global);
}

/* Part i of n: random ones, and a last one that makes the sum right. */
static double grad_part(int64_t step, int64_t t, int64_t global, int64_t i, int64_t n)
{
    double rest = grad_whole(step, t, global);
    if (i < n - 1)
        return grad_number(4, step, t * 64 + i, global);
    for (int64_t k = 0; k < n - 1; k++)
        rest -= grad_part(step, t, global, k, n);
    return rest;
}

/* What the model on data rank `data` of our tp and pp place leaves for local element j. */
static double grad_local(const struct rig *r, int64_t step, int64_t t, int64_t j, int64_t data)
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

static void grad_add(struct rig *r, int64_t at, double g)
{
    if (r->b.ops->stat == DTYPE_F64)
        ((double *)r->o.grads)[at] += g;
    else
        ((float *)r->o.grads)[at] += (float)g;
}

/* As the model leaves them: whole buffers hold this rank's; own pieces (zero 2, 3) the sum over the
 * shard group; gaps zero. */
static void grads_fill(struct rig *r, int64_t step)
{
    int64_t data = layout_data_rank(&r->layout, r->sh.place), first = data - r->sh.group_rank;
    memset(r->o.grads, 0, (size_t)(r->o.n_grads * dtype_bytes(r->b.ops->stat)));
    for (int64_t t = 0; t < r->params.n; t++)
        for (int64_t j = 0; shards_trained(&r->sh, t) && j < r->sh.tensors[t].count; j++) {
            struct piece own = piece_of(&r->sh, shards_unit_of(&r->sh, t), &r->sh.tensors[t], j,
                                        j + 1);
            if (r->layout.zero < 2)
                grad_add(r, r->sh.tensors[t].offset + j, grad_local(r, step, t, j, data));
            for (int64_t f = 0; f < r->sh.group && r->layout.zero >= 2 && own.n; f++)
                grad_add(r, own.at, grad_local(r, step, t, j, first + f));
        }
}

/* ---- the same in plain loops, of the whole model ---- */

struct reference {
    double *w, *m, *v, *ema;
    int64_t *first;
    double weight_norm, update_norm; /* of the last step */
};

static void reference_open(const struct rig *r, struct reference *x)
{
    size_t bytes = (size_t)r->params.total * sizeof(double);
    *x = (struct reference){malloc(bytes),
                            calloc(1, bytes), calloc(1, bytes), malloc(bytes),
                            calloc((size_t)r->params.n, sizeof(int64_t)), 0,
                            0};
    for (int64_t t = 0, at = 0; t < r->params.n; at += r->params.items[t++].count) {
        x->first[t] = at;
        first_values(&r->params.items[t], r->run.seed, 0, r->params.items[t].count, x->w + at);
    }
    memcpy(x->ema, x->w, bytes);
}

static void reference_close(struct reference *x)
{
    free(x->w), free(x->m), free(x->v), free(x->ema), free(x->first);
}

static double reference_norm(const struct rig *r, int64_t step)
{
    double sum = 0;
    for (int64_t t = 0; t < r->params.n; t++)
        for (int64_t i = 0;
             i < r->params.items[t].count && r->params.items[t].flags & PARAM_TRAINABLE; i++)
            sum += grad_whole(step, t, i) * grad_whole(step, t, i);
    return sqrt(sum);
}

static void reference_step(const struct rig *r, struct reference *x, int64_t step)
{
    double norm = reference_norm(r, step),
           clip = norm > r->run.adamw.clip_norm ? r->run.adamw.clip_norm / norm : 1;
    double b1 = r->run.adamw.beta1, b2 = r->run.adamw.beta2, t1 = (double)(step + 1), weights = 0,
           update = 0;
    for (int64_t t = 0; t < r->params.n; t++) {
        const struct param *p = &r->params.items[t];
        double lr = run_lr_at(&r->run, step) * p->lr_scale,
               decay = p->flags & PARAM_DECAY ? r->run.adamw.weight_decay : 0;
        for (int64_t j = 0, i = x->first[t]; j < p->count && p->flags & PARAM_TRAINABLE; j++, i++) {
            double g = clip * grad_whole(step, t, j);
            x->m[i] = b1 * x->m[i] + (1 - b1) * g;
            x->v[i] = b2 * x->v[i] + (1 - b2) * g * g;
            double m = x->m[i] / (1 - pow(b1, t1)), v = x->v[i] / (1 - pow(b2, t1));
            double d = lr * (m / (sqrt(v) + r->run.adamw.eps) + decay * x->w[i]);
            weights += x->w[i] * x->w[i], update += d * d;
            x->w[i] -= d;
            x->ema[i] = 0.9 * x->ema[i] + 0.1 * x->w[i];
        }
    }
    x->weight_norm = sqrt(weights), x->update_norm = sqrt(update);
}

/* The part of the difference that is more than rounding of a number of about 1. */
static double apart(double got, double want) { return fabs(got - want) / fmax(fabs(want), 1e-3); }

/* Largest difference of all that this rank holds. */
static double state_apart(const struct rig *r, const struct reference *x)
{
    const double *have[] = {r->o.weights, r->o.m, r->o.v, r->o.ema},
                 *want[] = {x->w, x->m, x->v, x->ema};
    double most = 0;
    for (int64_t t = 0; t < r->params.n; t++)
        for (int64_t j = 0; j < r->sh.tensors[t].count; j++) {
            struct piece own = piece_of(&r->sh, shards_unit_of(&r->sh, t), &r->sh.tensors[t], j,
                                        j + 1);
            int64_t run, global = x->first[t] +
                                  shard_to_global(&r->sh.tensors[t], &r->params.items[t], j, &run);
            for (int b = 0; b < (shards_trained(&r->sh, t) ? 4 : 1); b++) {
                bool whole = b == 0 ? r->layout.zero < 3 : r->layout.zero < 1;
                if (whole || own.n)
                    most = fmax(most, apart(have[b][whole ? r->sh.tensors[t].offset + j : own.at],
                                            want[b][global]));
            }
        }
    return most;
}

enum { STEPS = 2 };
/* How far from the reference the worst rank is, norms and state; NaN counts as infinitely far. */
static double run_apart(const char *layout, int zero)
{
    struct rig r;
    struct reference x;
    struct err err = {0};
    double most = 0;
    rig_open_layout(&r, layout, zero);
    reference_open(&r, &x);
    for (int64_t step = 0; step < STEPS; step++) {
        struct optim_result out;
        grads_fill(&r, step);
        must(optim_step(&r.o, step, INFINITY, &out, &err), &err);
        reference_step(&r, &x, step);
        assert_false(out.skipped);
        most = fmax(most,
                    fmax(apart(out.grad_norm, reference_norm(&r, step)), state_apart(&r, &x)));
        most = fmax(most, fmax(apart(out.weight_norm, x.weight_norm),
                               apart(out.update_norm, x.update_norm)));
    }
    assert_int_equal(r.o.updates, STEPS);
    must(comm_max(world, &most, 1, &err), &err);
    reference_close(&x);
    rig_close(&r);
    return most;
}

static bool fits(const char *layout)
{
    struct layout l;
    return layout_parse(layout, &l, NULL) == 0 && layout_world(&l) == world->size;
}

static const char *const layouts[] = {"dp=1",
                                      "dp=2", "cp=2,fsdp=2", "cp=2", "tp=2", "tp=2,sp=1", "pp=2",
                                      "pp=2,vpp=2", "dp=3", "dp=4", "dp=4,fsdp=2", "dp=4,fsdp=1",
                                      "cp=2,dp=2", "cp=2,dp=2,fsdp=4", "tp=2,dp=2",
                                      "tp=2,sp=1,cp=2", "tp=4", "tp=4,sp=1", "pp=2,dp=2", "pp=4",
                                      "tp=2,pp=2", "tp=2,pp=2,dp=2", "tp=4,dp=2", "tp=4,pp=2,vpp=2",
                                      "tp=2,sp=1,cp=2,dp=2,fsdp=2"};

static void any_layout_steps_like_the_formula(void **state)
{
    int tried = 0;
    (void)state;
    for (int i = 0; i < LEN(layouts); i++)
        for (int zero = 0; zero <= 3 && fits(layouts[i]); zero++) {
            conditioned = zero == 1 || zero == 3;
            double most = run_apart(layouts[i], zero);
            conditioned = false;
            tried++;
            if (!(most <= 1e-11))
                fail_msg("%s,zero=%d is %.3g from the formula", layouts[i], zero, most);
        }
    assert_true(tried > 0);
}

/* A sum that is left out is seen, each in a layout that needs it, and each in no other. With zero 3
 * the model sums over the shard group. */
static void a_lost_sum_is_seen(void **state)
{
    static const struct { const char *layout; bool seen[FAULT_POINTS]; } rows[] = {
        /*              replica, tp, kv, pp, count once, unit */
        {"dp=4,fsdp=2", {false, true, false, false, false, true, true}},
        {"tp=2,dp=2", {false, false, true, false, false, true, true}},
        {"tp=4", {false, false, true, true, false, true}},
        {"pp=2,dp=2", {false, false, false, false, true, true, true}},
        {"tp=2,pp=2", {false, false, true, false, true, true}},
        {"dp=4", {false, false, false, false, false, false, true}},
    };
    (void)state;
    for (int i = 0; i < LEN(rows); i++)
        for (int f = 0; f < FAULT_POINTS && fits(rows[i].layout); f++)
            for (int zero = 0; zero <= 3; zero += 3) {
                bool seen = rows[i].seen[f] && !(f == FAULT_POINT_SUM_UNIT && zero == 3);
                if (!seen && !dealt(i + f, 3))
                    continue;
                fault_active = f;
                double most = run_apart(rows[i].layout, zero);
                fault_active = FAULT_POINT_NONE;
                if (seen != (most > 1e-6) || (!seen && most > 1e-11))
                    fail_msg("%s, zero %d, fault %d: %.3g apart", rows[i].layout, zero, f, most);
            }
}

/* Layouts that differ in zero alone, every second one of them: the same bits everywhere. */
static void zero_leaves_bits(int first)
{
    struct rig a, b;
    struct optim_result ra, rb;
    struct err err = {0};
    for (int i = 0; i < LEN(layouts); i++)
        for (int zero = 1; zero <= 3 && fits(layouts[i]) && dealt(i + first, 2); zero++) {
            rig_open_layout(&a, layouts[i], 0);
            rig_open_layout(&b, layouts[i], zero);
            for (int64_t step = 0; step < STEPS; step++) {
                grads_fill(&a, step);
                grads_fill(&b, step);
                must(optim_step(&a.o, step, INFINITY, &ra, &err), &err);
                must(optim_step(&b.o, step, INFINITY, &rb, &err), &err);
                assert_true(ra.grad_norm == rb.grad_norm);
            }
            const char *whole[] = {a.o.weights, a.o.m, a.o.v, a.o.ema, a.o.master},
                       *own[] = {b.o.weights, b.o.m, b.o.v, b.o.ema, b.o.master};
            for (int buffer = 0; buffer < 4 + (a.o.master != NULL); buffer++)
                for (int64_t k = 0; k < (buffer ? a.sh.n_trained : a.sh.n_units); k++) {
                    int64_t n = a.sh.units[k].elements / a.sh.group,
                            at = a.sh.units[k].offset / a.sh.group,
                            in_whole = piece_whole(&a.sh, k, at);
                    bool all = buffer == 0 && zero < 3;
                    int64_t size = dtype_bytes(buffer == 0  ? a.b.ops->act
                                               : buffer < 3 ? a.o.moments
                                                            : a.b.ops->stat);
                    assert_memory_equal(whole[buffer] + in_whole * size,
                                        own[buffer] + (all ? in_whole : at) * size,
                                        (size_t)(n * size));
                }
            if (zero < 3)
                assert_memory_equal(a.o.weights, b.o.weights,
                                    (size_t)(a.sh.total * dtype_bytes(a.b.ops->act)));
            rig_close(&a);
            rig_close(&b);
        }
}

/* Rounded moments too: by numbers of the model, not of a rank. */
static void zero_changes_no_bit(void **state)
{
    (void)state;
    for (number = DTYPE_F64; number <= DTYPE_BF16; number += DTYPE_BF16)
        for (moments = MOMENTS_SAME; moments <= MOMENTS_BF16; moments++)
            zero_leaves_bits((number == DTYPE_BF16) + (int)moments);
    number = DTYPE_F64;
    moments = MOMENTS_SAME;
}

/* ---- weights of bf16 ---- */

/* Numbers of f32 in a buffer that is whole or of own pieces, against those of another rig's that
 * lies alike. */
static void same_floats(const char *what, const void *a, const void *b, int64_t n)
{
    if (memcmp(a, b, (size_t)n * sizeof(float)) != 0)
        fail_msg("%s is not the f32 run's", what);
}

/* Every weight is what the f32 run's rounds to, and, where they move, so do the masters and all
 * else. */
static void follows_f32(const struct rig *wide, const struct rig *narrow)
{
    const float *w = wide->o.weights;
    const uint16_t *rounded = narrow->o.weights;
    for (int64_t i = 0; i < wide->o.n_weights; i++)
        if (rounded[i] != bf16_round(w[i]))
            fail_msg("zero %lld, weight %lld: %g is not what %.9g rounds to",
                     (long long)wide->layout.zero, (long long)i, (double)bf16_value(rounded[i]),
                     (double)w[i]);
    same_floats("m", wide->o.m, narrow->o.m, wide->o.n_state);
    same_floats("v", wide->o.v, narrow->o.v, wide->o.n_state);
    same_floats("average", wide->o.ema, narrow->o.ema, wide->o.n_state);
    for (int64_t k = 0; k < wide->sh.n_trained; k++) {
        int64_t n = wide->sh.units[k].elements / wide->sh.group,
                at = wide->sh.units[k].offset / wide->sh.group,
                whole = piece_whole(&wide->sh, k, at);
        same_floats("master", w + (wide->layout.zero < 3 ? whole : at),
                    (const float *)narrow->o.master + (wide->layout.zero < 1 ? whole : at), n);
    }
}

/* Steps far below half the last digit of weights above 2^-4, all in one direction: the weights get
 * there by way of their masters. */
enum { SMALL_STEPS = 50 };
static const double small_lr = 1e-5;
struct moved { int64_t at_once, at_last; };

static struct moved moved_by(const struct rig *wide, const float *before, bool first)
{
    const float *now = wide->o.weights;
    struct moved m = {0};
    for (int64_t i = 0; i < wide->o.n_weights; i++)
        if (fabsf(before[i]) >= 0x1p-4f) {
            m.at_once += first && fabsf(now[i] - before[i]) >= 0x1p-12f;
            m.at_last += bf16_round(now[i]) != bf16_round(before[i]);
        }
    return m;
}

static void rig_step_like(struct rig *r, int64_t gradients, int64_t step)
{
    struct optim_result out;
    struct err err = {0};
    grads_fill(r, gradients);
    must(optim_step(&r->o, step, INFINITY, &out, &err), &err);
    assert_false(out.skipped);
}

static void masters_walk(const char *layout, int zero)
{
    struct rig wide, narrow;
    struct err err = {0};
    number = DTYPE_F32;
    rig_open_layout(&wide, layout, zero);
    number = DTYPE_BF16;
    rig_open_layout(&narrow, layout, zero);
    number = DTYPE_F64;
    size_t bytes = (size_t)wide.o.n_weights * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, wide.o.weights, bytes);
    follows_f32(&wide, &narrow);
    wide.run.adamw.lr = narrow.run.adamw.lr = small_lr;
    wide.run.lr_schedule = narrow.run.lr_schedule = LR_CONSTANT;
    for (int64_t step = 0; step < SMALL_STEPS; step++) {
        rig_step_like(&wide, 0, step);
        rig_step_like(&narrow, 0, step);
        if (step == 0)
            assert_int_equal(moved_by(&wide, before, true).at_once, 0);
    }
    follows_f32(&wide, &narrow);
    double moved = (double)moved_by(&wide, before, false).at_last;
    must(comm_sum(world, &moved, 1, &err), &err);
    if (moved < 20)
        fail_msg("%s, zero %d: %g weights of bf16 have moved", layout, zero, moved);
    for (int i = 0; i < 2; i++) { /* the average in their place, and back */
        must(optim_average_swap(&wide.o, &err), &err);
        must(optim_average_swap(&narrow.o, &err), &err);
        for (int64_t k = 0; k < wide.o.n_weights; k++)
            assert_int_equal(((uint16_t *)narrow.o.weights)[k],
                             bf16_round(((float *)wide.o.weights)[k]));
    }
    rig_step_like(&wide, 1, SMALL_STEPS);
    rig_step_like(&narrow, 1, SMALL_STEPS);
    follows_f32(&wide, &narrow);
    free(before);
    rig_close(&wide);
    rig_close(&narrow);
}

static void masters_walk_like_f32(void **state)
{
    static const char *const few[] = {"dp=1",        "dp=2",      "tp=2",      "pp=2",
                                      "dp=4,fsdp=2", "tp=2,dp=2", "cp=2,dp=2", "tp=4,pp=2,vpp=2"};
    (void)state;
    for (int i = 0; i < LEN(few); i++)
        for (int zero = 0; zero <= 3 && fits(few[i]); zero++)
            if (dealt(i + zero, 2))
                masters_walk(few[i], zero);
}

/* Of the gradients that this rank holds, one that is no padding. */
static double *grad_any(const struct rig *r)
{
    for (int64_t t = r->params.n - 1;; t--) {
        if (!shards_trained(&r->sh, t))
            continue;
        struct piece own = piece_of(&r->sh, shards_unit_of(&r->sh, t), &r->sh.tensors[t], 0,
                                    r->sh.tensors[t].count);
        if (own.n > 0)
            return (double *)r->o.grads +
                   (r->layout.zero < 2 ? r->sh.tensors[t].offset + own.local : own.at);
    }
}

/* One bad number on one rank: nobody changes anything, all count it alike, and the next good step
 * is the first. */
/* Gradients that are not finite, or whose norm is past its limit. */
static void skipped_by_all(void **state)
{
    static const struct {
        double gradient, limit;
    } rows[] = {{NAN, INFINITY}, {INFINITY, INFINITY}, {-INFINITY, INFINITY}, {1, 0.5}, {1, -1},
                {NAN, -1}};
    (void)state;
    for (int zero = 0; zero <= 3; zero++)
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            struct rig r, fresh;
            struct optim_result out;
            struct err err = {0};
            rig_open(&r, zero);
            rig_open(&fresh, zero);
            grads_fill(&r, 0);
            if (world->rank == world->size - 1)
                *grad_any(&r) = rows[k].gradient;
            must(optim_step(&r.o, 0, rows[k].limit, &out, &err), &err);
            assert_true(out.skipped && out.nonfinite == !isfinite(rows[k].gradient));
            assert_int_equal(r.o.updates, 0);
            assert_memory_equal(r.o.weights, fresh.o.weights, (size_t)r.o.n_weights * 8);
            assert_memory_equal(r.o.m, fresh.o.m, (size_t)r.o.n_state * 8);
            assert_memory_equal(r.o.v, fresh.o.v, (size_t)r.o.n_state * 8);
            grads_fill(&r, 0);
            grads_fill(&fresh, 0);
            must(optim_step(&r.o, 0, INFINITY, &out, &err), &err);
            assert_false(out.skipped);
            must(optim_step(&fresh.o, 0, INFINITY, &out, &err), &err);
            assert_memory_equal(r.o.weights, fresh.o.weights, (size_t)r.o.n_weights * 8);
            rig_close(&r);
            rig_close(&fresh);
        }
}

/* Puts a number that is not finite into element j of tensor t on one rank, in a step whose gradients
 * are 0 else. Tells whether the norm sees it, and which unit each rank finds in its own. */
static bool bad_step(struct rig *r, struct units *u, int64_t t, int64_t j, int rank, int64_t *found)
{
    const double bad = j % 2 ? (double)NAN : (double)INFINITY;
    struct optim_result out;
    struct err err = {0};
    units_begin(u, 1, 1);
    for (int64_t k = 0; k < r->sh.n_trained; k++) {
        const struct shard_unit *s = &r->sh.units[k];
        double *g = units_grads(u, k);
        memset(g, 0, (size_t)s->elements * sizeof *g);
        if (s == shards_unit_of(&r->sh, t) && world->rank == rank)
            g[r->sh.tensors[t].offset + j - s->offset] = bad;
        units_done(u, k);
    }
    units_flush(u);
    must(units_failed(u, &err), &err);
    must(optim_step(&r->o, 0, INFINITY, &out, &err), &err);
    if (out.nonfinite)
        must(units_nonfinite(u, found, &err), &err);
    return out.nonfinite;
}

/* A number that is not finite is found by the rank whose it was, and by no other, wherever it stands
 * and whatever sums are made over it. */
static void whose_it_was(void **state)
{
    (void)state;
    int64_t seen = 0;
    for (int i = 0; i < LEN(layouts); i++)
        for (int zero = 0; zero <= 3 && fits(layouts[i]) && !strstr(layouts[i], "vpp"); zero++) {
            if (!dealt(i + zero, 3))
                continue;
            struct rig r;
            struct units u;
            struct err err = {0};
            rig_open_layout(&r, layouts[i], zero);
            must(units_open(&u, &r.sh, zero, r.grid.shard, r.b.ops, r.b.stream, r.o.weights,
                            r.o.grads, &err), &err);
            u.sums = &r.o.sums, u.spans = r.o.spans;
            for (int64_t k = 0; k < 3 * r.params.n; k++) {
                int64_t t = k / 3, n = r.sh.tensors[t].count, found = -1;
                int rank = (int)(k % world->size);
                if (!dealt(k + t + zero + i, 3))
                    continue; /* a tensor's first, middle or last: all of them in three zeros */
                double any = shards_trained(&r.sh, t) && n > 0; /* a stage has not every tensor */
                must(comm_max(world, &any, 1, &err), &err);
                if (any == 0 || !bad_step(&r, &u, t, k % 3 * (n - 1) / 2, rank, &found))
                    continue;
                seen++;
                if (world->rank == rank ? found < 0 || &r.sh.units[found] != shards_unit_of(&r.sh, t)
                                        : found >= 0)
                    fail_msg("%s, zero %d, tensor %s of rank %d: unit %lld", layouts[i], zero,
                             r.params.items[t].name, rank, (long long)found);
            }
            units_close(&u);
            rig_close(&r);
        }
    assert_true(seen > 0);
}

/* ---- how much is read for it ---- */

static struct { struct ops real; int64_t elements; } looked;
static void count_sumsq(struct ops *o, struct dev_stream *s, const struct ops_sumsq *a)
{
    looked.elements += a->x.rows * a->x.cols;
    looked.real.sumsq(o, s, a);
}

/* The read that makes the norm is the only one where no other rank sums a step's gradients; else
 * that of the own pieces comes before it. */
static void gradients_are_read_once(void **state)
{
    static const char *const data[] = {"dp=1", "dp=2", "dp=4"};
    (void)state;
    for (int i = 0; i < 2 * LEN(data); i++) {
        struct rig r;
        struct units u;
        struct err err = {0};
        if (!fits(data[i / 2]))
            continue;
        rig_open_layout(&r, data[i / 2], i % 2);
        must(units_open(&u, &r.sh, i % 2, r.grid.shard, r.b.ops, r.b.stream, r.o.weights, r.o.grads,
                        &err), &err);
        u.sums = &r.o.sums, u.spans = r.o.spans;
        looked.real = *r.b.ops, looked.elements = 0;
        r.b.ops->sumsq = count_sumsq;
        int64_t found;
        assert_false(bad_step(&r, &u, 0, 0, -1, &found));
        *r.b.ops = looked.real;
        assert_in_range(looked.elements, 1, (world->size == 1 ? 1 : 2) * r.o.own);
        units_close(&u);
        rig_close(&r);
    }
}

static void plan_is_what_is_taken(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * LEN(layouts); i++)
        for (int zero = 0; zero <= 3 && fits(layouts[i / 2]); zero++) {
            struct buffer_list plan = {0};
            struct rig r;
            struct err err = {0};
            number = i % 2 ? DTYPE_BF16 : DTYPE_F64;
            rig_open_layout(&r, layouts[i / 2], zero);
            number = DTYPE_F64;
            must(optim_memory(&r.o.c, &plan, &err), &err);
            struct units u;
            must(units_open(&u, &r.sh, zero, r.grid.shard, r.b.ops, r.b.stream, r.o.weights,
                            r.o.grads, &err),
                 &err);
            const struct comm *groups[] = {r.grid.shard, r.grid.replica, r.grid.tp, r.grid.kv,
                                           r.grid.pp};
            int64_t taken = r.b.dev->alloc_bytes - r.b.ops->workspace_bytes;
            for (int k = 0; k < LEN(groups); k++)
                taken += groups[k]->scratch_bytes;
            assert_in_range(plan.total, taken - 20 * BUFFER_ALIGN_BYTES,
                            taken + 20 * BUFFER_ALIGN_BYTES);
            units_close(&u);
            rig_close(&r);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_steps_like_the_formula),
        cmocka_unit_test(a_lost_sum_is_seen),
        cmocka_unit_test(zero_changes_no_bit),
        cmocka_unit_test(masters_walk_like_f32),
        cmocka_unit_test(skipped_by_all),
        cmocka_unit_test(whose_it_was),
        cmocka_unit_test(gradients_are_read_once),
        cmocka_unit_test(plan_is_what_is_taken),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
