/* Resuming under layouts: four steps are two steps, a checkpoint and two steps, bit for bit under
 * the same layout, and within 1e-11 of one rank's four steps under any other.
 *
 *     mpirun -n 8 test_trainer_resume     a drawn choice: a layout of each of three models, resumed
 *                                         under itself and under another
 *     RESUMES=all mpirun -n 8 …           each of a covering set, as it comes and as the one resumed
 *                                         under
 *     SEED=5 …                            that choice again; without it another one each time, told
 *                                         at the start */
#include "tests/lib/trainer_layouts.h"

#include "base/id.h"
#include "tests/lib/scratch.h"
#include "trainer/ckpt/ckpt.h"

enum { HALF = 2, WHOLE = 4, CHOSEN = 1 };
static const struct hash128 config = {.lo = 1, .hi = 2};

/* Holds what a rank has after its steps. */
enum { BUFFERS = 4 };
struct held { void *buffers[BUFFERS]; double loss[WHOLE]; struct optim_result step[WHOLE]; };

static int64_t buffer_bytes(const struct rig *r, int b)
{
    return rig_elements(r, b == 0 ? 3 : 1) * 8;
}

static void *buffer_of(const struct rig *r, int b)
{
    return (void *[BUFFERS]){r->optim.weights, r->optim.m, r->optim.v, r->optim.ema}[b];
}

static void held_take(struct held *h, const struct rig *r)
{
    for (int b = 0; b < BUFFERS; b++)
        h->buffers[b] = bench_get(&r->b, buffer_of(r, b), buffer_bytes(r, b));
}

static void held_release(struct held *h)
{
    for (int b = 0; b < BUFFERS; b++)
        free(h->buffers[b]);
}

static void held_differs(const struct held *h, const struct held *now, const struct rig *r,
                         char text[256])
{
    static const char *const names[BUFFERS] = {"weights", "m", "v", "average"};
    for (int b = 0; b < BUFFERS && !*text; b++) {
        void *is = bench_get(&r->b, buffer_of(r, b), buffer_bytes(r, b));
        if (memcmp(h->buffers[b], is, (size_t)buffer_bytes(r, b)) != 0)
            snprintf(text, 256, "%s are not the same bit for bit", names[b]);
        free(is);
    }
    for (int s = HALF; s < WHOLE && !*text; s++) {
        const double was[] = {h->loss[s], h->step[s].grad_norm, h->step[s].weight_norm,
                              h->step[s].update_norm};
        const double is[] = {now->loss[s], now->step[s].grad_norm, now->step[s].weight_norm,
                             now->step[s].update_norm};
        if (memcmp(was, is, sizeof was) != 0)
            snprintf(
                text, 256,
                "step %d: loss %.17g, norms %.17g %.17g %.17g instead of %.17g, %.17g %.17g %.17g",
                s, is[0], is[1], is[2], is[3], was[0], was[1], was[2], was[3]);
    }
}

/* ---- a run in parts ---- */

struct part_run {
    struct comm *part;
    const struct model_case *c;
    struct model m;
    struct run run;
    struct rig r;
};

static void part_open(struct part_run *p, struct comm *part, int model, const struct layout *l,
                      bool clip)
{
    *p = (struct part_run){.part = part, .c = &models[model], .m = model_of(&models[model])};
    run_init_for(&p->run, p->c, clip);
    rig_open_run(&p->r, part, &p->m, l, p->c->objective, DTYPE_F64, &p->run);
}

static void part_close(struct part_run *p)
{
    struct err err = {0};
    must(comm_order_check(p->part, &err), &err);
    rig_close(&p->r);
    run_release(&p->run);
}

static void part_steps(struct part_run *p, int64_t from, int64_t to, struct held *h)
{
    for (int64_t s = from; s < to; s++)
        h->step[s] = step_run(&p->r, p->part, s, &h->loss[s], NULL);
}

static void part_save(struct part_run *p, int64_t step)
{
    struct err err = {0};
    struct ckpt_meta meta = {.step = step, .ordinal = p->r.data.samples[0].ordinal,
                             .config_hash = config},
                     written;
    must(ckpt_save(&(struct ckpt_writer){.run_dir = in_scratch("run")}, &p->r.optim, &meta, 1,
                   &written, &err),
         &err);
}

/* Weights are random until they are loaded; the draws go on where they were. */
static void part_load(struct part_run *p, int64_t step)
{
    struct err err = {0};
    struct ckpt_meta meta;
    bool found;
    must(ckpt_load(&(struct ckpt_writer){.run_dir = in_scratch("run")}, &p->r.optim, config, NULL,
                   NULL, &meta, &found, &err),
         &err);
    assert_true(found && meta.step == step);
    for (int i = 0; i < SAMPLES; i++)
        p->r.data.samples[i].ordinal = meta.ordinal + (uint64_t)i;
}

/* Two steps, a checkpoint, two steps; and from the checkpoint again. */
static void same_layout(struct comm *part, int model, const struct layout *l, bool clip,
                        char text[256])
{
    struct part_run p;
    struct held whole = {{0}}, again = {{0}};
    part_open(&p, part, model, l, clip);
    part_steps(&p, 0, HALF, &whole);
    part_save(&p, HALF);
    part_steps(&p, HALF, WHOLE, &whole);
    held_take(&whole, &p.r);
    part_close(&p);
    part_open(&p, part, model, l, clip);
    part_load(&p, HALF);
    part_steps(&p, HALF, WHOLE, &again);
    held_differs(&whole, &again, &p.r, text);
    part_close(&p);
    held_release(&whole);
}

/* Resumes from the checkpoint that another layout has left. */
static void other_layout(struct comm *part, int model, const struct layout *l, bool clip,
                         char text[256])
{
    struct part_run p;
    struct held h = {{0}};
    struct compare c = {wanted(model, clip), text};
    part_open(&p, part, model, l, clip);
    part_load(&p, HALF);
    part_steps(&p, HALF, WHOLE, &h);
    for (int64_t s = HALF; s < WHOLE; s++)
        compare_step(&c, s, h.loss[s], &h.step[s]);
    compare_states(&c, &p.r, NULL);
    part_close(&p);
}

typedef void part_fn(struct comm *part, int model, const struct layout *l, bool clip,
                     char text[256]);

/* Runs a part on the first ranks of the world; the others wait. */
static void on_ranks_of(part_fn *fn, int model, const struct layout *l, bool clip,
                        const char *first)
{
    struct comm *part;
    char text[256] = "";
    if (layout_part(l, &part))
        fn(part, model, l, clip, text);
    comm_close(part);
    if (part_differs(world, text))
        fail_msg("%s, %s%s%s: %s", models[model].name, layout_text(l),
                 *first ? ", saved under " : "", first, *text ? text : "(see another rank)");
}

/* ---- which ---- */

static int64_t drawn(uint64_t *state, int64_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*state >> 33) % (uint64_t)n);
}

static void fits(struct candidates *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        struct layout l = layout_of(c->v[i]);
        if (layout_world(&l) <= world->size)
            memcpy(c->v[n++], c->v[i], sizeof *c->v);
    }
    c->n = n;
}

static void model_resumes(int model, bool all, uint64_t *seed)
{
    struct model m = model_of(&models[model]);
    int64_t n_legal;
    struct candidates some = covering_given(&m, 3, &n_legal);
    struct err err = {0};
    fits(&some);
    int64_t n = all ? some.n : num_min_i64(some.n, CHOSEN),
            shift = some.n > 1 ? 1 + drawn(seed, some.n - 1) : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = all ? i : drawn(seed, some.n), other = (k + shift) % some.n;
        struct layout l = layout_of(some.v[k]), then = layout_of(some.v[other]);
        char first[256];
        snprintf(first, sizeof first, "%s", layout_text(&l));
        if (world->rank == 0)
            print_message("# %s: %s, then %s\n", models[model].name, first, layout_text(&then));
        on_ranks_of(same_layout, model, &l, model % 2, "");
        on_ranks_of(other_layout, model, &then, model % 2, first);
        if (world->rank == 0)
            must(file_remove_tree(in_scratch("run"), &err), &err);
    }
    free(some.v);
}

/* Rank 0's on all ranks, told at once: a rank that fails may take the program's output with it. */
static uint64_t seed_agree(void)
{
    const char *number = getenv("SEED");
    struct err err = {0};
    struct id fresh = {0};
    uint64_t seed;
    must(id_random(&fresh, &err), &err);
    seed = fresh.lo % 1000000;
    if (number)
        must(num_parse_u64(number, "SEED", &seed, &err), &err);
    must(comm_broadcast_bytes(world, &seed, sizeof seed, 0, &err), &err);
    if (world->rank == 0)
        print_message("# SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

static void test_resumes(void **state)
{
    const char *wish = getenv("RESUMES");
    bool all = wish && strcmp(wish, "all") == 0;
    uint64_t seed = seed_agree();
    (void)state;
    for (int model = 0; model < (all ? LEN(models) : COVERED); model++)
        model_resumes(model, all, &seed);
}

static int setup(void **state)
{
    struct err err = {0};
    if (world->rank == 0 && scratch_setup(state) < 0)
        return -1;
    return comm_broadcast_bytes(world, scratch, sizeof scratch, 0, &err);
}

static int teardown(void **state)
{
    return world->rank == 0 ? scratch_teardown(state) : 0;
}

int main(int argc, char **argv)
{
    layouts_open(&argc, &argv);
    layouts_conf.steps = WHOLE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_resumes, setup, teardown)};
    return layouts_close(cmocka_run_group_tests(tests, NULL, NULL));
}
