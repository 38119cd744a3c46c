/* Gradients that are not finite, or too large, under the layouts of as many ranks as mpirun started:
 * a step that all ranks skip, the rank whose gradient it was, and how often gradients are read for
 * that. */
#include "tests/lib/trainer_optim.h"

#include "trainer/state/units.h"

/* Returns which of the gradients that this rank holds is no padding. */
static int64_t grad_any(const struct rig *r)
{
    for (int64_t t = r->params.n - 1;; t--) {
        if (!shards_trained(&r->sh, t))
            continue;
        struct piece own = piece_of(&r->sh, shards_unit_of(&r->sh, t), &r->sh.tensors[t], 0,
                                    r->sh.tensors[t].count);
        if (own.n > 0)
            return r->layout.zero < 2 ? r->sh.tensors[t].offset + own.local : own.at;
    }
}

/* Checks that n numbers of two rigs' devices have the same bits. */
static void same_numbers(const struct rig *a, const void *x, const struct rig *b, const void *y,
                         int64_t n)
{
    double *p = bench_get(&a->b, x, n * 8), *q = bench_get(&b->b, y, n * 8);
    assert_memory_equal(p, q, (size_t)n * 8);
    free(p);
    free(q);
}

/* Gradients that are not finite, or whose norm is past its limit: one bad number on one rank.
 * Nobody changes anything, all count it alike, and the next good step is the first. */
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
            optim_rig_open(&r, zero);
            optim_rig_open(&fresh, zero);
            grads_fill(&r, 0);
            if (world->rank == world->size - 1)
                bench_put(&r.b, (double *)r.o.grads + grad_any(&r), &rows[k].gradient, 8);
            must(optim_step(&r.o, 0, rows[k].limit, &out, &err), &err);
            assert_true(out.skipped && out.nonfinite == !isfinite(rows[k].gradient));
            assert_int_equal(r.o.updates, 0);
            same_numbers(&r, r.o.weights, &fresh, fresh.o.weights, r.o.n_weights);
            same_numbers(&r, r.o.m, &fresh, fresh.o.m, r.o.n_state);
            same_numbers(&r, r.o.v, &fresh, fresh.o.v, r.o.n_state);
            grads_fill(&r, 0);
            grads_fill(&fresh, 0);
            must(optim_step(&r.o, 0, INFINITY, &out, &err), &err);
            assert_false(out.skipped);
            must(optim_step(&fresh.o, 0, INFINITY, &out, &err), &err);
            same_numbers(&r, r.o.weights, &fresh, fresh.o.weights, r.o.n_weights);
            optim_rig_close(&r);
            optim_rig_close(&fresh);
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
        r->b.dev->fill(r->b.dev, g, 0, s->elements * (int64_t)sizeof *g, r->b.stream);
        if (s == shards_unit_of(&r->sh, t) && world->rank == rank)
            bench_put(&r->b, g + r->sh.tensors[t].offset + j - s->offset, &bad, sizeof bad);
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
            optim_rig_open_layout(&r, layouts[i], zero);
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
            optim_rig_close(&r);
        }
    assert_true(seen > 0);
}

/* ---- how much is read for it ---- */

static struct { struct ops real; int64_t elements, updates; } looked;
static void count_sumsq(struct ops *o, struct dev_stream *s, const struct ops_sumsq *a)
{
    looked.elements += a->x.rows * a->x.cols;
    looked.real.sumsq(o, s, a);
}

static void count_adamw(struct ops *o, struct dev_stream *s, const struct ops_adamw *a)
{
    looked.updates++;
    looked.real.adamw(o, s, a);
}

/* The read that makes the norm is the only one where no other rank sums a step's gradients; else
 * that of the own pieces comes before it. And each unit is updated by one call. */
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
        optim_rig_open_layout(&r, data[i / 2], i % 2);
        must(units_open(&u, &r.sh, i % 2, r.grid.shard, r.b.ops, r.b.stream, r.o.weights, r.o.grads,
                        &err), &err);
        u.sums = &r.o.sums, u.spans = r.o.spans;
        looked.real = *r.b.ops, looked.elements = looked.updates = 0;
        r.b.ops->sumsq = count_sumsq;
        r.b.ops->adamw = count_adamw;
        int64_t found;
        assert_false(bad_step(&r, &u, 0, 0, -1, &found));
        *r.b.ops = looked.real;
        assert_in_range(looked.elements, 1, (world->size == 1 ? 1 : 2) * r.o.own);
        /* of several ranks one may have no piece of a small unit */
        assert_in_range(looked.updates, world->size == 1 ? r.sh.n_trained : 1, r.sh.n_trained);
        units_close(&u);
        optim_rig_close(&r);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skipped_by_all),
        cmocka_unit_test(whose_it_was),
        cmocka_unit_test(gradients_are_read_once),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
