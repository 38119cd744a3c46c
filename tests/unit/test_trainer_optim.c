/* The optimizer against AdamW written out, under the layouts of as many ranks as mpirun started:
 * groups of tensors, clipping, average, every ZeRO, every sum over an axis and what happens without
 * it, weights of bf16 beside their masters, and the memory that all of it takes. */
#include "tests/lib/trainer_optim.h"

#include "base/bf16.h"
#include "trainer/state/fault.h"
#include "trainer/state/units.h"

/* ---- what a rank holds ---- */

/* Copies of the buffers on the host; master NULL: the weight is its own. */
struct held { void *weights, *m, *v, *ema, *master; };

static struct held held_get(const struct rig *r)
{
    const struct optim *o = &r->o;
    int64_t act = dtype_bytes(r->b.ops->act), stat = dtype_bytes(r->b.ops->stat),
            moment = dtype_bytes(o->moments);
    return (struct held){bench_get(&r->b, o->weights, o->n_weights * act),
                         bench_get(&r->b, o->m, o->n_state * moment),
                         bench_get(&r->b, o->v, o->n_state * moment),
                         bench_get(&r->b, o->ema, o->n_state * stat),
                         o->master ? bench_get(&r->b, o->master, o->n_state * stat) : NULL};
}

static void held_free(struct held *h)
{
    free(h->weights), free(h->m), free(h->v), free(h->ema), free(h->master);
}

/* ---- AdamW in plain loops, of the whole model ---- */

struct reference {
    double *w, *m, *v, *ema;
    int64_t *first;
    double grad_norm, weight_norm, update_norm; /* of the last step */
};

static void reference_open(const struct rig *r, struct reference *x)
{
    size_t bytes = (size_t)r->params.total * sizeof(double);
    *x = (struct reference){malloc(bytes),
                            calloc(1, bytes), calloc(1, bytes), malloc(bytes),
                            calloc((size_t)r->params.n, sizeof(int64_t)), 0, 0, 0};
    for (int64_t t = 0, at = 0; t < r->params.n; at += r->params.items[t++].count) {
        x->first[t] = at;
        first_values(&r->params.items[t], r->run.seed, 0, r->params.items[t].count, x->w + at);
    }
    memcpy(x->ema, x->w, bytes);
}

/* Copies what a step changes. */
static void reference_copy(const struct rig *r, const struct reference *from, struct reference *to)
{
    size_t bytes = (size_t)r->params.total * sizeof(double);
    int64_t *first = to->first;
    double *all[] = {to->w, to->m, to->v, to->ema};
    const double *were[] = {from->w, from->m, from->v, from->ema};
    for (int i = 0; i < LEN(all); i++)
        memcpy(all[i], were[i], bytes);
    *to = (struct reference){all[0], all[1], all[2], all[3], first, 0, 0, 0};
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
    x->grad_norm = norm, x->weight_norm = sqrt(weights), x->update_norm = sqrt(update);
}

enum { STEPS = 2 };
/* Returns the state after a step. It is the same under every layout, so each is computed once. */
static const struct reference *reference_after(const struct rig *r, int64_t step)
{
    static struct reference kept[2][STEPS];
    struct reference *x = kept[conditioned];
    for (int64_t s = x[0].w ? STEPS : 0; s < STEPS; s++) {
        reference_open(r, &x[s]);
        if (s > 0)
            reference_copy(r, &x[s - 1], &x[s]);
        reference_step(r, &x[s], s);
    }
    return &x[step];
}

/* The part of the difference that is more than rounding of a number of about 1. */
static double apart(double got, double want) { return fabs(got - want) / fmax(fabs(want), 1e-3); }

/* Largest difference of all that this rank holds. */
static double state_apart(const struct rig *r, const struct reference *x)
{
    struct held h = held_get(r);
    const double *have[] = {h.weights, h.m, h.v, h.ema},
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
    held_free(&h);
    return most;
}

/* How far from the reference the worst rank is, norms and state; NaN counts as infinitely far. */
static double run_apart(const char *layout, int zero)
{
    struct rig r;
    struct err err = {0};
    double most = 0;
    optim_rig_open_layout(&r, layout, zero);
    for (int64_t step = 0; step < STEPS; step++) {
        struct optim_result out;
        grads_fill(&r, step);
        must(optim_step(&r.o, step, INFINITY, &out, &err), &err);
        assert_false(out.skipped);
        const struct reference *x = reference_after(&r, step);
        most = fmax(most, fmax(apart(out.grad_norm, x->grad_norm), state_apart(&r, x)));
        most = fmax(most, fmax(apart(out.weight_norm, x->weight_norm),
                               apart(out.update_norm, x->update_norm)));
    }
    assert_int_equal(r.o.updates, STEPS);
    must(comm_max(world, &most, 1, &err), &err);
    optim_rig_close(&r);
    return most;
}

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

/* Is what a rank holds under a layout of zero 0 what it holds under one of `b`'s zero? */
static void same_bits(const struct rig *a, const struct rig *b)
{
    struct held x = held_get(a), y = held_get(b);
    const char *whole[] = {x.weights, x.m, x.v, x.ema, x.master},
               *own[] = {y.weights, y.m, y.v, y.ema, y.master};
    for (int buffer = 0; buffer < 4 + (x.master != NULL); buffer++)
        for (int64_t k = 0; k < (buffer ? a->sh.n_trained : a->sh.n_units); k++) {
            int64_t n = a->sh.units[k].elements / a->sh.group,
                    at = a->sh.units[k].offset / a->sh.group,
                    in_whole = piece_whole(&a->sh, k, at);
            bool all = buffer == 0 && b->layout.zero < 3;
            int64_t size = dtype_bytes(buffer == 0  ? a->b.ops->act
                                       : buffer < 3 ? a->o.moments
                                                    : a->b.ops->stat);
            assert_memory_equal(whole[buffer] + in_whole * size,
                                own[buffer] + (all ? in_whole : at) * size, (size_t)(n * size));
        }
    if (b->layout.zero < 3)
        assert_memory_equal(x.weights, y.weights,
                            (size_t)(a->sh.total * dtype_bytes(a->b.ops->act)));
    held_free(&x);
    held_free(&y);
}

/* Layouts that differ in zero alone, every fourth one of them: the same bits everywhere. */
static void zero_leaves_bits(int first)
{
    struct rig a, b;
    struct optim_result ra, rb;
    struct err err = {0};
    for (int i = 0; i < LEN(layouts); i++)
        for (int zero = 1; zero <= 3 && fits(layouts[i]) && dealt(i + first, 4); zero++) {
            optim_rig_open_layout(&a, layouts[i], 0);
            optim_rig_open_layout(&b, layouts[i], zero);
            for (int64_t step = 0; step < STEPS; step++) {
                grads_fill(&a, step);
                grads_fill(&b, step);
                must(optim_step(&a.o, step, INFINITY, &ra, &err), &err);
                must(optim_step(&b.o, step, INFINITY, &rb, &err), &err);
                assert_true(ra.grad_norm == rb.grad_norm);
            }
            same_bits(&a, &b);
            optim_rig_close(&a);
            optim_rig_close(&b);
        }
}

/* Rounded moments too: by numbers of the model, not of a rank. */
static void zero_changes_no_bit(void **state)
{
    (void)state;
    for (number = DTYPE_F64; number <= DTYPE_BF16; number += DTYPE_BF16)
        for (rig_moments = MOMENTS_SAME; rig_moments <= MOMENTS_BF16; rig_moments++)
            zero_leaves_bits((number == DTYPE_BF16) + (int)rig_moments);
    number = DTYPE_F64;
    rig_moments = MOMENTS_SAME;
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
    struct held a = held_get(wide), b = held_get(narrow);
    const float *w = a.weights;
    const uint16_t *rounded = b.weights;
    for (int64_t i = 0; i < wide->o.n_weights; i++)
        if (rounded[i] != bf16_round(w[i]))
            fail_msg("zero %lld, weight %lld: %g is not what %.9g rounds to",
                     (long long)wide->layout.zero, (long long)i, (double)bf16_value(rounded[i]),
                     (double)w[i]);
    same_floats("m", a.m, b.m, wide->o.n_state);
    same_floats("v", a.v, b.v, wide->o.n_state);
    same_floats("average", a.ema, b.ema, wide->o.n_state);
    for (int64_t k = 0; k < wide->sh.n_trained; k++) {
        int64_t n = wide->sh.units[k].elements / wide->sh.group,
                at = wide->sh.units[k].offset / wide->sh.group,
                whole = piece_whole(&wide->sh, k, at);
        same_floats("master", w + (wide->layout.zero < 3 ? whole : at),
                    (const float *)b.master + (wide->layout.zero < 1 ? whole : at), n);
    }
    held_free(&a);
    held_free(&b);
}

/* Steps far below half the last digit of weights above 2^-4, all in one direction: the weights get
 * there by way of their masters. */
enum { SMALL_STEPS = 50 };
static const double small_lr = 1e-5;
struct moved { int64_t at_once, at_last; };

static struct moved moved_by(const struct rig *wide, const float *before, bool first)
{
    float *now = bench_get(&wide->b, wide->o.weights, wide->o.n_weights * (int64_t)sizeof *now);
    struct moved m = {0};
    for (int64_t i = 0; i < wide->o.n_weights; i++)
        if (fabsf(before[i]) >= 0x1p-4f) {
            m.at_once += first && fabsf(now[i] - before[i]) >= 0x1p-12f;
            m.at_last += bf16_round(now[i]) != bf16_round(before[i]);
        }
    free(now);
    return m;
}

/* Returns the gradients of a step, new, which then lie on the device too. */
static void *grads_kept(const struct rig *r, int64_t step)
{
    grads_fill(r, step);
    return bench_get(&r->b, r->o.grads, r->o.n_grads * dtype_bytes(r->b.ops->stat));
}

static void rig_step_like(struct rig *r, const void *gradients, int64_t step)
{
    struct optim_result out;
    struct err err = {0};
    bench_put(&r->b, r->o.grads, gradients, r->o.n_grads * dtype_bytes(r->b.ops->stat));
    must(optim_step(&r->o, step, INFINITY, &out, &err), &err);
    assert_false(out.skipped);
}

/* Are all weights of bf16 what the others round to? */
static void rounded_alike(const struct rig *wide, const struct rig *narrow)
{
    struct held a = held_get(wide), b = held_get(narrow);
    for (int64_t k = 0; k < wide->o.n_weights; k++)
        assert_int_equal(((uint16_t *)b.weights)[k], bf16_round(((float *)a.weights)[k]));
    held_free(&a);
    held_free(&b);
}

static void masters_walk(const char *layout, int zero)
{
    struct rig wide, narrow;
    struct err err = {0};
    number = DTYPE_F32;
    optim_rig_open_layout(&wide, layout, zero);
    number = DTYPE_BF16;
    optim_rig_open_layout(&narrow, layout, zero);
    number = DTYPE_F64;
    int64_t bytes = wide.o.n_weights * (int64_t)sizeof(float);
    float *before = bench_get(&wide.b, wide.o.weights, bytes);
    follows_f32(&wide, &narrow);
    wide.run.adamw.lr = narrow.run.adamw.lr = small_lr;
    wide.run.lr_schedule = narrow.run.lr_schedule = LR_CONSTANT;
    void *first[] = {grads_kept(&wide, 0), grads_kept(&narrow, 0)};
    for (int64_t step = 0; step < SMALL_STEPS; step++) {
        rig_step_like(&wide, first[0], step);
        rig_step_like(&narrow, first[1], step);
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
        rounded_alike(&wide, &narrow);
    }
    void *next[] = {grads_kept(&wide, 1), grads_kept(&narrow, 1)};
    rig_step_like(&wide, next[0], SMALL_STEPS);
    rig_step_like(&narrow, next[1], SMALL_STEPS);
    follows_f32(&wide, &narrow);
    for (int i = 0; i < 2; i++)
        free(first[i]), free(next[i]);
    free(before);
    optim_rig_close(&wide);
    optim_rig_close(&narrow);
}

static void masters_walk_like_f32(void **state)
{
    static const char *const few[] = {"dp=1",        "dp=2",      "tp=2",      "pp=2",
                                      "dp=4,fsdp=2", "tp=2,dp=2", "cp=2,dp=2", "tp=4,pp=2,vpp=2"};
    (void)state;
    for (int i = 0; i < LEN(few); i++)
        for (int zero = 0; zero <= 3 && fits(few[i]); zero++)
            if (dealt(i + zero, 4))
                masters_walk(few[i], zero);
}
/* ---- memory ---- */

static void plan_is_what_is_taken(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * LEN(layouts); i++)
        for (int zero = 0; zero <= 3 && fits(layouts[i / 2]); zero++) {
            struct buffer_list plan = {0};
            struct rig r;
            struct err err = {0};
            number = i % 2 ? DTYPE_BF16 : DTYPE_F64;
            optim_rig_open_layout(&r, layouts[i / 2], zero);
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
            optim_rig_close(&r);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_steps_like_the_formula),
        cmocka_unit_test(a_lost_sum_is_seen),
        cmocka_unit_test(zero_changes_no_bit),
        cmocka_unit_test(masters_walk_like_f32),
        cmocka_unit_test(plan_is_what_is_taken),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
