/* The optimizer against AdamW written out, on one rank and on mpirun's: groups, clipping, average, ZeRO 0 and 1, and gradients that
 * are not finite. */
#include "trainer_run.h"

#include "trainer/optim.h"

struct rig {
    struct bench b;
    struct run run;
    struct param_list params;
    struct flat flat;
    struct optim o;
};

static void rig_open(struct rig *r, int zero)
{
    struct err err = {0};
    r->b = bench_open(DTYPE_F64);
    run_make(&r->run, "synthetic:1x4x4", 8, 20);
    r->run.adamw.clip_norm = 0.5; /* odd steps have gradients a thousand times smaller: below it */
    must(params_build(&r->run.model, &r->params, &err), &err);
    /* Groups: one tensor frozen, one at half the learning rate, decay as the list says. */
    r->params.items[1].flags &= ~(unsigned)PARAM_TRAINABLE;
    r->params.items[2].lr_scale = 0.5;
    must(flat_build(&r->params, &r->flat, &err), &err);
    must(optim_open(&r->o, &r->params, &r->flat, &r->run, zero, world, r->b.ops, r->b.stream, &err), &err);
    must(optim_init(&r->o, &err), &err);
}

static void rig_close(struct rig *r)
{
    optim_close(&r->o);
    flat_release(&r->flat);
    params_release(&r->params);
    run_release(&r->run);
    bench_close(&r->b);
}

static double grad_of(int rank, int64_t step, int64_t i)
{
    return philox_normal_at(3, PHILOX_TEST, (uint64_t)(step * 64 + rank), (uint64_t)i) * (step % 2 ? 1e-3 : 1);
}

/* Gradients of this rank, zero in the gaps as the model leaves them. */
static void grads_fill(struct rig *r, int64_t step)
{
    double *g = r->o.grads;
    memset(g, 0, (size_t)r->o.padded * sizeof *g);
    for (int64_t t = 0; t < r->params.n; t++)
        for (int64_t i = 0; i < r->params.items[t].count; i++)
            g[r->flat.offset[t] + i] = grad_of(world->rank, step, r->flat.offset[t] + i);
}

static double grad_sum(int64_t step, int64_t i)
{
    double s = grad_of(0, step, i);
    for (int k = 1; k < world->size; k++)
        s += grad_of(k, step, i);
    return s;
}

/* ---- the same in plain loops ---- */

struct reference { double *w, *m, *v, *ema; };

static double reference_norm(const struct rig *r, int64_t step)
{
    double sum = 0;
    for (int64_t t = 0; t < r->params.n; t++)
        for (int64_t i = 0; i < r->params.items[t].count; i++)
            sum += pow(grad_sum(step, r->flat.offset[t] + i), 2);
    return sqrt(sum);
}

static void reference_step(const struct rig *r, struct reference *x, int64_t step)
{
    double norm = reference_norm(r, step), clip = norm > r->run.adamw.clip_norm ? r->run.adamw.clip_norm / norm : 1;
    double b1 = r->run.adamw.beta1, b2 = r->run.adamw.beta2, t1 = (double)(step + 1);
    for (int64_t t = 0; t < r->params.n; t++) {
        const struct param *p = &r->params.items[t];
        double lr = run_lr_at(&r->run, step) * p->lr_scale, decay = p->flags & PARAM_DECAY ? r->run.adamw.weight_decay : 0;
        for (int64_t i = r->flat.offset[t]; i < r->flat.offset[t] + p->count && p->flags & PARAM_TRAINABLE; i++) {
            double g = clip * grad_sum(step, i);
            x->m[i] = b1 * x->m[i] + (1 - b1) * g;
            x->v[i] = b2 * x->v[i] + (1 - b2) * g * g;
            double m = x->m[i] / (1 - pow(b1, t1)), v = x->v[i] / (1 - pow(b2, t1));
            x->w[i] -= lr * (m / (sqrt(v) + r->run.adamw.eps) + decay * x->w[i]);
            x->ema[i] = 0.9 * x->ema[i] + 0.1 * x->w[i];
        }
    }
}

static void assert_near(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fmax(fabs(want), 1e-3)))
        fail_msg("rank %d: %s is %.17g, want %.17g", world->rank, what, got, want);
}

static void compare(const struct rig *r, const struct reference *x)
{
    const double *w = r->o.weights, *m = r->o.m, *v = r->o.v, *ema = r->o.ema;
    for (int64_t i = 0; i < r->flat.total; i++)
        assert_near("a weight", w[i], x->w[i]);
    for (int64_t i = 0; i < r->o.own_n && r->o.own_first + i < r->flat.total; i++) {
        int64_t at = r->o.own_first + i;
        assert_near("m", m[i], x->m[at]);
        assert_near("v", v[i], x->v[at]);
        assert_near("the average", ema[i], x->ema[at]);
    }
}

static void steps_like_the_formula(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        struct rig r;
        rig_open(&r, zero);
        size_t bytes = (size_t)r.flat.total * sizeof(double);
        struct reference x = {malloc(bytes), calloc(1, bytes), calloc(1, bytes), malloc(bytes)};
        memcpy(x.w, r.o.weights, bytes);
        memcpy(x.ema, r.o.weights, bytes);
        for (int64_t step = 0; step < 4; step++) {
            struct optim_result out;
            struct err err = {0};
            grads_fill(&r, step);
            must(optim_step(&r.o, step, &out, &err), &err);
            assert_false(out.skipped);
            assert_near("the norm", out.grad_norm, reference_norm(&r, step));
            reference_step(&r, &x, step);
            compare(&r, &x);
        }
        assert_int_equal(r.o.updates, 4);
        free(x.w), free(x.m), free(x.v), free(x.ema);
        rig_close(&r);
    }
}

static void zero_0_and_1_are_bitwise_equal(void **state)
{
    struct rig a, b;
    struct optim_result ra, rb;
    struct err err = {0};
    (void)state;
    rig_open(&a, 0);
    rig_open(&b, 1);
    for (int64_t step = 0; step < 3; step++) {
        grads_fill(&a, step);
        grads_fill(&b, step);
        must(optim_step(&a.o, step, &ra, &err), &err);
        must(optim_step(&b.o, step, &rb, &err), &err);
        assert_true(ra.grad_norm == rb.grad_norm);
    }
    assert_memory_equal(a.o.weights, b.o.weights, (size_t)a.o.padded * 8);
    assert_memory_equal((double *)a.o.m + b.o.own_first, b.o.m, (size_t)b.o.own_n * 8);
    assert_memory_equal((double *)a.o.v + b.o.own_first, b.o.v, (size_t)b.o.own_n * 8);
    assert_memory_equal((double *)a.o.ema + b.o.own_first, b.o.ema, (size_t)b.o.own_n * 8);
    rig_close(&a);
    rig_close(&b);
}

/* One bad number on one rank: nobody changes anything, all count it alike, and the next good step is the first. */
static void not_finite_is_skipped_by_all(void **state)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (int zero = 0; zero < 2; zero++)
        for (size_t k = 0; k < 3; k++) {
            struct rig r, fresh;
            struct optim_result out;
            struct err err = {0};
            rig_open(&r, zero);
            rig_open(&fresh, zero);
            grads_fill(&r, 0);
            if (world->rank == world->size - 1)
                ((double *)r.o.grads)[r.flat.total / 2] = bad[k];
            must(optim_step(&r.o, 0, &out, &err), &err);
            assert_true(out.skipped);
            assert_int_equal(r.o.updates, 0);
            assert_memory_equal(r.o.weights, fresh.o.weights, (size_t)r.o.padded * 8);
            assert_memory_equal(r.o.m, fresh.o.m, (size_t)r.o.own_n * 8);
            assert_memory_equal(r.o.v, fresh.o.v, (size_t)r.o.own_n * 8);
            grads_fill(&r, 0);
            grads_fill(&fresh, 0);
            must(optim_step(&r.o, 0, &out, &err), &err);
            assert_false(out.skipped);
            must(optim_step(&fresh.o, 0, &out, &err), &err);
            assert_memory_equal(r.o.weights, fresh.o.weights, (size_t)r.o.padded * 8);
            rig_close(&r);
            rig_close(&fresh);
        }
}

static void plan_is_what_is_taken(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        struct buffer_list plan = {0};
        struct rig r;
        struct err err = {0};
        rig_open(&r, zero);
        must(optim_plan(&r.flat, &r.run, zero, world->size, DTYPE_F64, &plan, &err), &err);
        int64_t exchange = r.o.shard * 8 * world->size; /* of the scratch no more than this is ever touched */
        int64_t taken = (r.o.padded * 2 + r.o.own_n * 3) * 8 + (exchange < world->scratch_bytes ? exchange : world->scratch_bytes);
        assert_in_range(plan.total, taken, taken + 8 * BUFFER_ALIGN_BYTES);
        rig_close(&r);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_like_the_formula),
        cmocka_unit_test(zero_0_and_1_are_bitwise_equal),
        cmocka_unit_test(not_finite_is_skipped_by_all),
        cmocka_unit_test(plan_is_what_is_taken),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
