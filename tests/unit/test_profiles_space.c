/* Space: hand-counted layouts, every legal layout of the grid met once, the reasons add up. */
#include "tests/lib/test_profiles.h"

#include "base/num.h"
#include "profiles/space.h"

static struct model tiny(void)
{
    struct model m;
    struct err err;
    assert_ok(model_load("dit-tiny", &m, &err), &err);
    return m;
}

static bool same(const struct layout *a, const struct layout *b)
{
    struct str s = STR_INIT, t = STR_INIT;
    layout_format(a, &s);
    layout_format(b, &t);
    bool equal = strcmp(s.p, t.p) == 0;
    str_release(&s);
    str_release(&t);
    return equal;
}

/* What is visited is kept or has a reason, and a layout stands in the list once. */
static void check_sums(const struct space *s)
{
    int64_t out = 0;
    for (size_t k = 0; k < s->n_excluded; k++) {
        assert_true(s->excluded[k].count > 0 && s->excluded[k].sentence[0]);
        out += s->excluded[k].count;
        for (size_t i = 0; i < k; i++)
            assert_string_not_equal(s->excluded[k].rule, s->excluded[i].rule);
    }
    assert_int_equal(s->visited, (int64_t)s->n + out);
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < i; k++)
            assert_false(same(&s->items[i], &s->items[k]));
}

/* A caller's limits. */
static bool dp_alone(const struct layout *l) { return l->tp * l->cp * l->pp == 1; }
static bool plain_state(const struct layout *l)
{
    return l->zero <= 1 && l->fsdp == 0 && l->recompute != RECOMPUTE_SELECTIVE;
}
static const struct space_limit few[] = {{"dp-alone", "dp and nothing else", dp_alone},
                                         {"plain-state", "little sharding", plain_state}};

/* What the trainer can run, counted by hand: micro-batches x recompute (none, full) x zero (0, and
 * 1 when dp > 1). */
static void counts(void **state)
{
    static const struct {
        int64_t gbs, ranks[2];
        size_t n_ranks, n;
        int rc;
        const char *says;
    } rows[] = {
        {1, {1}, 1, 2, 0, NULL},
        {4, {1}, 1, 8, 0, NULL}, /* mbs 1..4 */
        {4, {2}, 1, 8, 0, NULL}, /* mbs 1, 2 */
        {4, {1, 2}, 2, 16, 0, NULL},
        {9, {1}, 1, 18, 0, NULL}, /* mbs 1..8, 9 */
        {2, {4}, 1, 0, ERR_NO, "gbs 2: 468 of 1218 break the rule tp-divides"},
        {0, {1}, 1, 0, ERR_INPUT, "gbs is 0"},
        {4, {0}, 1, 0, ERR_INPUT, "ranks is 0"},
        {4, {2, 2}, 2, 0, ERR_INPUT, "ranks has 2 twice"},
        {4, {1}, 0, 0, ERR_INPUT, "no number of ranks"},
    };
    struct model m = tiny();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct space_spec spec = {&m,  {1, 8, 8},     rows[i].gbs, rows[i].ranks, rows[i].n_ranks,
                                  few, ARRAY_LEN(few)};
        struct space s = {0};
        struct err err = {0};
        int rc = space_build(&spec, &s, &err);
        if (rc == 0)
            rc = space_check(&spec, &s, &err);
        if (rows[i].rc < 0)
            assert_fails(rc, rows[i].rc, &err, rows[i].says);
        else
            assert_ok(rc, &err);
        assert_int_equal(s.n, rows[i].n);
        check_sums(&s);
        space_release(&s);
    }
}

static size_t times_met(const struct space *s, const struct layout *l)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += same(&s->items[i], l);
    return n;
}

/* All that the rules allow on two ranks with one sample each, by hand. */
static void whole_of_two(void **state)
{
    static const char *const grids[] = {"tp=2", "tp=2,sp=1",  "cp=2", "cp=2,cp_kind=a2a",
                                        "pp=2", "pp=2,vpp=2", "dp=2"};
    /* one rank shards nothing: of dp=2 only */
    static const char *const states[] = {"", ",zero=1", ",zero=2", ",zero=3"};
    static const char *const over_cp[] = {"", ",zero=1,fsdp=2", ",zero=2,fsdp=2", ",zero=3,fsdp=2"};
    static const char *const recomputes[] = {"", ",recompute=selective", ",recompute=full"};
    struct model m = tiny();
    struct space_spec spec = {&m, {1, 8, 8}, 2, (const int64_t[]){2}, 1, NULL, 0};
    struct space s = {0};
    struct err err;
    size_t want = 0;
    (void)state;
    m.heads = m.kv_heads = 4;
    assert_ok(space_build(&spec, &s, &err), &err);
    check_sums(&s);
    for (size_t g = 0; g < ARRAY_LEN(grids); g++)
        for (size_t z = 0; z < (g == 2 || g == 3 || g == 6 ? 4 : 1); z++)
            for (size_t r = 0; r < ARRAY_LEN(recomputes); r++)
                for (int64_t mbs = 1; mbs <= (strcmp(grids[g], "dp=2") ? 2 : 1); mbs++, want++) {
                    char text[128];
                    struct layout l;
                    snprintf(text, sizeof text, "%s%s%s,mbs=%lld", grids[g],
                             g == 6 ? states[z] : over_cp[z], recomputes[r], (long long)mbs);
                    assert_ok(layout_parse(text, &l, &err), &err);
                    if (times_met(&s, &l) != 1)
                        fail_msg("%s is met %zu times", text, times_met(&s, &l));
                }
    assert_int_equal(s.n, want);
    space_release(&s);
}

/* ---- nothing legal without a place or a count ---- */

enum { KEYS_MAX = 1 << 16 };
struct keys { int64_t *of; size_t n; };

/* A layout as a number: equal when its fields are. */
static int64_t key(const struct layout *l)
{
    const int64_t fields[] = {l->tp,
                              l->sp, l->cp, (int64_t)l->cp_kind, l->pp, l->vpp, l->dp, l->zero,
                              l->fsdp, l->mbs, (int64_t)l->recompute,
                              l->recompute_layers, l->order};
    int64_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        assert_in_range(fields[i], 0, 22);
        n = n * 23 + fields[i];
    }
    return n;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void keys_add(struct keys *k, const struct layout *l)
{
    assert_true(k->n < KEYS_MAX);
    k->of[k->n++] = key(l);
}

/* The simpler of two names for the same. */
static bool named_so(const struct layout *l, const struct model *m)
{
    bool sharded = l->zero > 0, group = layout_shard_group(l) > 1;
    return (sharded ? group && l->fsdp != l->dp : l->fsdp == 0) &&
           l->recompute_layers < layout_chunk_first(l, m->layers, 1);
}

/* Every value of every field of a layout, straight from the rules. */
static void keys_of_all(struct keys *k, const struct space_spec *spec)
{
    int64_t world = spec->ranks[0], layers = spec->model->layers;
    struct layout l = layout_default();
    for (l.tp = 1; l.tp <= world; l.tp++)
    for (l.cp = 1; l.cp <= world; l.cp++)
    for (l.pp = 1; l.pp <= world; l.pp++)
    for (l.dp = 1; l.dp <= world; l.dp++)
    for (l.sp = 0; l.sp <= 1 && l.tp * l.cp * l.pp * l.dp == world; l.sp++)
    for (int kind = CP_RING; kind <= CP_2D; kind++)
    for (l.vpp = 1; l.vpp <= layers; l.vpp++)
    for (l.zero = 0; l.zero <= 3; l.zero++)
    for (l.fsdp = 0; l.fsdp <= world; l.fsdp++)
    for (l.mbs = 1; l.mbs <= spec->gbs; l.mbs++)
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++)
    for (l.recompute_layers = 0; l.recompute_layers <= layers; l.recompute_layers++) {
        l.cp_kind = (enum cp_kind)kind, l.recompute = (enum recompute)r;
        if (layout_broken_rule(&l, spec->model, spec->seq, spec->gbs, world) < 0 &&
            named_so(&l, spec->model))
            for (l.order = 0; l.order < LAYOUT_ORDERS; l.order++)
                if (layout_order_plain(&l) == l.order)
                    keys_add(k, &l);
        l.order = 0;
    }
}

/* Whether a value of a thinned axis is listed, as the sentences have it. */
static bool listed(const struct layout *l, int64_t gbs)
{
    int64_t share = num_ceil_div(gbs, l->dp);
    bool vpp = l->vpp == 1 || l->vpp == 2 || l->vpp == 4;
    return vpp && (l->mbs <= 8 || l->mbs == 16 || share % l->mbs == 0) && l->recompute_layers == 0 &&
           l->order == 0;
}

/* The closed walk counts every layout with one that it meets: that of the smallest micro-batches of
 * their number, without recomputation, in the default order. */
static void closed_counts(struct space_spec spec, const struct space *all)
{
    struct space s = {0};
    struct err err;
    size_t met = 0;
    spec.closed = true;
    assert_ok(space_build(&spec, &s, &err), &err);
    assert_int_equal(s.legal, all->n);
    assert_int_equal(s.visited, all->visited);
    for (size_t i = 0; i < all->n; i++) {
        const struct layout *l = &all->items[i];
        int64_t share = num_ceil_div(spec.gbs, l->dp);
        bool fewest = l->mbs == 1 ||
                      num_ceil_div(share, l->mbs) < num_ceil_div(share, l->mbs - 1);
        assert_true(space_has(&spec, l));
        if (fewest && l->recompute == RECOMPUTE_NONE && l->order == 0)
            assert_true(met < s.n && layout_equal(l, &s.items[met++]));
    }
    assert_int_equal(met, s.n);
    for (int axis = 0; axis < SPACE_THINNED; axis++)
        assert_int_equal(s.thinned[axis], 0);
    space_release(&s);
}

static void nothing_is_dropped(void **state)
{
    static const struct {
        int64_t ranks, gbs;
        struct seq seq;
    } rows[] = {{1, 11, {1, 4, 4}}, {2, 18, {1, 8, 8}}, {4, 4, {1, 8, 8}}, {4, 11, {1, 1, 3}}};
    struct model m = tiny();
    (void)state;
    m.layers = 11, m.heads = m.kv_heads = 4;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct space_spec spec = {&m, rows[i].seq, rows[i].gbs, &rows[i].ranks,
                                  1,  NULL,        0,           .all = true};
        struct keys want = {test_malloc(KEYS_MAX * sizeof(int64_t)), 0},
                    got = {test_malloc(KEYS_MAX * sizeof(int64_t)), 0};
        struct space all = {0}, thin = {0};
        struct err err;
        size_t kept = 0;
        assert_ok(space_build(&spec, &all, &err), &err);
        spec.all = false;
        closed_counts(spec, &all);
        assert_ok(space_build(&spec, &thin, &err), &err);
        keys_of_all(&want, &spec);
        for (size_t k = 0; k < all.n; k++)
            keys_add(&got, &all.items[k]), kept += listed(&all.items[k], rows[i].gbs);
        qsort(got.of, got.n, sizeof *got.of, by_value);
        qsort(want.of, want.n, sizeof *want.of, by_value);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.of, want.of, got.n * sizeof *got.of);
        assert_int_equal(thin.n, kept);
        assert_int_equal(all.n,
                         thin.n + (size_t)(thin.thinned[SPACE_VPP] + thin.thinned[SPACE_MBS] +
                                           thin.thinned[SPACE_RECOMPUTE_LAYERS] +
                                           thin.thinned[SPACE_ORDER]));
        /* one rank has no virtual stages, some batches are thin, and two axes make an order */
        for (int axis = 0; axis < SPACE_THINNED; axis++)
            assert_true(all.thinned[axis] == 0 &&
                        (thin.thinned[axis] > 0 || (axis == SPACE_VPP && rows[i].ranks == 1) ||
                         (axis == SPACE_MBS && rows[i].gbs < 9) ||
                         (axis == SPACE_ORDER && rows[i].ranks < 4)));
        space_release(&all);
        space_release(&thin);
        test_free(want.of);
        test_free(got.of);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts), cmocka_unit_test(whole_of_two),
                                       cmocka_unit_test(nothing_is_dropped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
