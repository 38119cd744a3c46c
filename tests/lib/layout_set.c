#include "tests/lib/layout_set.h"

bool every;

struct layout layout_of(const int *v)
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

bool left_out(const struct layout *l, const struct model *m, const int *v)
{
    bool zero_alone = l->zero > 0 && layout_shard_group(l) == 1,
         group = v[8] > 0 && (l->zero == 0 || l->fsdp == l->dp || l->fsdp == 1);
    int64_t w = layout_world(l);
    return w > 8 || zero_alone || group || (v[8] == 2 && l->fsdp == 2) ||
           layout_broken_rule(l, m, (struct seq){1, 1, 8}, SAMPLES, w) >= 0;
}

bool next(int *v)
{
    for (int i = 0; i < SETTINGS; i++) {
        if (++v[i] < (every ? counts : few_counts)[i])
            return true;
        v[i] = 0;
    }
    return false;
}

struct candidates legal(const struct model *m)
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

int64_t triple(const int *v, int a, int b, int c)
{
    return ((((int64_t)a * SETTINGS + b) * SETTINGS + c) * VALUES + v[a]) * VALUES * VALUES +
           v[b] * VALUES + v[c];
}

int64_t tuples(const int *v, int ways, bool *met, bool mark)
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

struct candidates covering(struct candidates all, int ways)
{
    struct candidates c = {.v = calloc((size_t)all.n, sizeof *c.v)};
    bool *met = calloc(TRIPLES, sizeof *met);
    /* upper bounds: the number of new combinations when each candidate was last counted */
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

struct candidates share(struct candidates all, int64_t k, int64_t n)
{
    struct candidates c = {.v = calloc((size_t)all.n, sizeof *c.v)};
    for (int64_t i = k - 1; i < all.n; i += n)
        memcpy(c.v[c.n++], all.v[i], sizeof *c.v);
    return c;
}
