/* A set of layouts for tests: settings and their values, all legal combinations of up to eight
 * ranks, and few of them in which every legal combination of two or of three settings' values occurs.
 * Included after trainer_model.h.
 *
 *     struct candidates all = legal(&model), some = covering(all, 3); // or share(all, k, n)
 *     struct layout l = layout_of(some.v[i]);
 */
#ifndef TESTS_LAYOUT_SET_H
#define TESTS_LAYOUT_SET_H

#include "tests/unit/trainer_model.h"

#include "base/num.h"

/* ---- layouts: settings and their values ---- */

enum { SETTINGS = 11 };
static const int64_t values[SETTINGS][5] = {
    {1, 2, 4, 8, 0},       /* tp */
    {0, 1, -1},            /* sp */
    {1, 2, 3, 4, 8},       /* cp; 8 when all are wanted */
    {0, 1, 2, -1},         /* cp_kind */
    {1, 2, 3, 4, 5},       /* pp; 5 likewise */
    {1, 2, 0},             /* vpp */
    {1, 2, 3, 4, 0},       /* dp: four samples; 4 likewise */
    {0, 1, 2, 3, -1},      /* zero */
    {0, 1, 2, -1},         /* shard group: dp, 2, dp·cp */
    {1, 2, 3, 0},          /* mbs */
    {0, 1, 2, 3, -1},      /* recompute: none, selective, full, full of one layer */
};
static const int counts[SETTINGS] = {4, 2, 5, 3, 5, 2, 4, 4, 3, 3, 4},
                 few_counts[SETTINGS] = {4, 2, 4, 3, 4, 2, 3, 4, 3, 2, 4};
static bool every; /* all values, not the few */

static inline struct layout layout_of(const int *v)
{
    struct layout l = layout_default();
    l.tp = values[0][v[0]], l.sp = values[1][v[1]], l.cp = values[2][v[2]],
    l.cp_kind = (enum cp_kind)v[3];
    l.pp = values[4][v[4]], l.vpp = values[5][v[5]], l.dp = values[6][v[6]], l.zero = v[7];
    l.fsdp = v[8] == 0 ? 0 : v[8] == 1 ? 2 : l.dp * l.cp;
    l.mbs = values[9][v[9]];
    l.recompute = v[10] == 0 ? RECOMPUTE_NONE : v[10] == 1 ? RECOMPUTE_SELECTIVE : RECOMPUTE_FULL;
    l.recompute_layers = v[10] == 3;
    return l;
}

/* Is this layout not legal, or another one's second spelling? Such a one is left out. */
static inline bool left_out(const struct layout *l, const struct model *m, const int *v)
{
    bool zero_alone = l->zero > 0 && layout_shard_group(l) == 1,
         group = v[8] > 0 && (l->zero == 0 || l->fsdp == l->dp || l->fsdp == 1);
    int64_t w = layout_world(l);
    return w > 8 || zero_alone || group || (v[8] == 2 && l->fsdp == 2) ||
           layout_broken_rule(l, m, (struct seq){1, 1, 8}, SAMPLES, w) >= 0;
}

struct candidates { int (*v)[SETTINGS]; int64_t n; };

static inline bool next(int *v)
{
    for (int i = 0; i < SETTINGS; i++) {
        if (++v[i] < (every ? counts : few_counts)[i])
            return true;
        v[i] = 0;
    }
    return false;
}

static inline struct candidates legal(const struct model *m)
{
    struct candidates c = {0};
    int v[SETTINGS] = {0};
    int64_t room = 1 << 16;
    c.v = calloc((size_t)room, sizeof *c.v);
    do {
        struct layout l = layout_of(v);
        if (left_out(&l, m, v))
            continue;
        assert_true(c.n < room);
        memcpy(c.v[c.n++], v, sizeof v);
    } while (next(v));
    return c;
}

/* ---- the covering set: greedily, the candidate with the most tuples of values not met yet ---- */

enum { VALUES = 5, TRIPLES = SETTINGS * SETTINGS * SETTINGS * VALUES * VALUES * VALUES };
static inline int64_t triple(const int *v, int a, int b, int c)
{
    return ((((int64_t)a * SETTINGS + b) * SETTINGS + c) * VALUES + v[a]) * VALUES * VALUES +
           v[b] * VALUES + v[c];
}

/* Returns how many tuples of `ways` settings' values, 2 or 3, were not met before; a pair is a triple
 * whose second setting stands twice. */
static inline int64_t tuples(const int *v, int ways, bool *met, bool mark)
{
    int64_t n = 0;
    for (int a = 0; a < SETTINGS; a++)
        for (int b = a + 1; b < SETTINGS; b++)
            for (int c = ways == 2 ? b : b + 1; c < (ways == 2 ? b + 1 : SETTINGS); c++) {
                bool *m = &met[triple(v, a, b, c)];
                n += !*m;
                *m |= mark;
            }
    return n;
}

static inline struct candidates covering(struct candidates all, int ways)
{
    struct candidates c = {.v = calloc((size_t)all.n, sizeof *c.v)};
    bool *met = calloc(TRIPLES, sizeof *met);
    /* an upper bound: what was not met when it was last looked at */
    int64_t *left = malloc((size_t)all.n * sizeof *left);
    for (int64_t i = 0; i < all.n; i++)
        left[i] = tuples(all.v[i], ways, met, false);
    for (;;) {
        int64_t best = 0, most = 0;
        for (int64_t i = 0; i < all.n; i++)
            if (left[i] > most && (left[i] = tuples(all.v[i], ways, met, false)) > most)
                most = left[i], best = i;
        if (most == 0)
            break;
        tuples(all.v[best], ways, met, true);
        memcpy(c.v[c.n++], all.v[best], sizeof *c.v);
    }
    free(met);
    free(left);
    return c;
}

/* Returns every n-th candidate from the k-th on, k 1 .. n: an n-th of all, and of each kind. */
static inline struct candidates share(struct candidates all, int64_t k, int64_t n)
{
    struct candidates c = {.v = calloc((size_t)all.n, sizeof *c.v)};
    for (int64_t i = k - 1; i < all.n; i += n)
        memcpy(c.v[c.n++], all.v[i], sizeof *c.v);
    return c;
}

#endif
