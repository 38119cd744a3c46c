/* This file makes the cases of attention. Backward reads o and lse of the forward. They are
 * computed here by the definition, in f64, over all keys of a segment; the call may see only a part
 * of these keys. */
#include "tests/gpu/cases_lab.h"

#include <math.h>
#include <stdlib.h>

enum { SEGMENTS_MAX = 6 };
struct attn_case {
    const char *name;
    int64_t heads, kv_heads, d, n;
    int32_t q[SEGMENTS_MAX], k[SEGMENTS_MAX]; /* lengths */
    /* With `ring`: keys of a segment that other ranks hold. They lie before and after the keys of
     * this rank here, and the call may not touch them. */
    int32_t elsewhere[SEGMENTS_MAX];
    bool ring;
    int32_t gap;      /* rows of no segment: around the queries, and around each segment's keys */
    bool packed;      /* q, k and v are columns of one matrix */
    bool wide;        /* o, or dq, dk and dv, are LAB_WIDE */
    bool add_q, add_kv;
    bool ones_first;  /* the keys of segments with one key come first, as for dropped captions */
    bool shared;      /* all segments see the first one's keys: forward only */
    bool loose;       /* max_q and max_k are larger than any length */
    bool not_finite;  /* one key is NaN: forward only */
    double sharp;     /* the scale times sqrt(d); 0 stands for 1 */
    double shift;     /* subtracted from the first component of q, added to that of k */
    bool in_one;      /* `shift` applies to the first segment alone */
    bool in_last;     /* to the last head alone, and there to all keys and the last query */
};

static const struct attn_case attn_cases[] = {
    /* These cases run forward only; FORWARD_ONLY is their number. */
    {"shared keys", 2, 2, 8, 3, {5, 9, 2}, {7, 7, 7}, .shared = true},
    {"a key is NaN", 2, 2, 8, 2, {5, 4}, {5, 4}, .not_finite = true},
    /* These cases run forward and backward. */
    {"one segment", 2, 2, 6, 1, {7}, {7}},
    {"one token, one key", 2, 2, 8, 1, {1}, {1}},
    {"one token, one key, thrice", 3, 3, 5, 3, {1, 1, 1}, {1, 1, 1}},
    {"grouped queries", 6, 2, 8, 2, {5, 9}, {5, 9}},
    {"grouped, one kv head", 5, 1, 16, 2, {33, 7}, {33, 7}, .packed = true},
    {"one key, grouped queries", 4, 2, 20, 2, {70, 3}, {1, 2}},
    {"63, 64, 65", 2, 2, 16, 3, {63, 64, 65}, {63, 64, 65}, .packed = true},
    {"192 and 1", 1, 1, 32, 2, {192, 1}, {192, 1}, .packed = true},
    {"1, 127, 128, 129", 1, 1, 8, 4, {1, 127, 128, 129}, {1, 127, 128, 129}},
    {"longer than tiles", 2, 1, 20, 2, {200, 3}, {130, 250}},
    {"many short ones", 2, 2, 12, 6, {3, 1, 2, 5, 4, 7}, {3, 1, 2, 5, 4, 7}, .packed = true},
    {"16, 17 and 32, of heads side by side", 2, 2, 40, 3, {16, 17, 32}, {16, 17, 32},
     .packed = true},
    {"16 at most", 3, 3, 72, 5, {16, 1, 9, 0, 3}, {16, 5, 2, 4, 0}},
    {"short, added to", 2, 2, 16, 3, {33, 64, 4}, {40, 7, 1}, .add_q = true, .add_kv = true},
    {"cross, text of other lengths", 3, 3, 16, 3, {64, 33, 5}, {77, 3, 130}, .loose = true},
    {"cross, one key, no keys", 2, 2, 4, 3, {6, 5, 4}, {3, 1, 0}},
    {"no keys at all", 2, 2, 8, 2, {6, 5}, {0, 0}},
    {"no keys, rows that are nobody's", 2, 2, 8, 2, {6, 5}, {0, 0}, .gap = 2},
    {"no queries", 1, 1, 34, 2, {0, 100}, {3, 97}},
    {"no segments", 2, 2, 8, 0, {0}, {0}, .gap = 3},
    {"rows that are nobody's", 2, 2, 8, 2, {5, 65}, {64, 3}, .gap = 2},
    {"nobody's, and nothing to see", 2, 1, 8, 3, {5, 0, 4}, {0, 3, 2}, .gap = 1},
    {"head dim 1", 2, 2, 1, 1, {9}, {9}},
    {"head dim 64", 2, 2, 64, 1, {65}, {65}, .packed = true},
    {"head dim 72", 2, 2, 72, 2, {17, 66}, {17, 66}, .packed = true},
    {"head dim 80", 2, 1, 80, 1, {40}, {40}},
    {"head dim 128", 2, 2, 128, 2, {33, 64}, {33, 64}, .packed = true},
    {"head dim 256", 2, 2, 256, 1, {35}, {35}},
    {"logits near -100", 2, 2, 8, 1, {20}, {130}, .shift = 17},
    {"logits near 100", 2, 2, 8, 1, {20}, {130}, .shift = 17, .sharp = -1},
    {"sharp logits", 2, 2, 8, 1, {20}, {30}, .sharp = 4},
    {"flat logits", 2, 2, 8, 1, {20}, {30}, .sharp = 1e-3},
    {"added to", 4, 2, 16, 3, {5, 64, 4}, {65, 7, 1}, .add_q = true, .add_kv = true},
    {"dq added to, no keys", 2, 2, 8, 2, {5, 4}, {0, 9}, .add_q = true},
    {"dk and dv added to, no queries", 2, 2, 8, 2, {0, 4}, {5, 9}, .add_kv = true},
    {"one key, added to", 4, 2, 8, 2, {5, 3}, {1, 1}, .add_q = true, .add_kv = true},
    {"a step of a ring", 4, 2, 8, 3, {130, 9, 5}, {70, 6, 1}, {70, 0, 1}, .ring = true,
     .wide = true, .add_q = true, .add_kv = true},
    {"the first step of a ring", 2, 2, 16, 3, {65, 9, 5}, {33, 0, 1}, {31, 6, 0}, .ring = true,
     .wide = true},
    {"a step of a ring, short", 2, 2, 8, 3, {20, 9, 5}, {17, 6, 1}, {17, 0, 1}, .ring = true,
     .wide = true, .add_q = true, .add_kv = true},
    {"one key here, more elsewhere", 2, 2, 8, 2, {3, 4}, {1, 1}, {5, 0}, .ring = true, .gap = 1},
    {"wide sums", 2, 2, 24, 2, {33, 7}, {33, 7}, .wide = true},
    {"equal segments", 4, 2, 16, 3, {70, 70, 70}, {70, 70, 70}, .packed = true},
    {"equal segments, keys apart", 2, 2, 24, 2, {66, 66}, {80, 80}, .gap = 3, .wide = true},
    {"equal segments, added to", 4, 2, 16, 2, {40, 40}, {130, 130}, .add_q = true, .add_kv = true},
    {"dropped captions behind others", 2, 2, 16, 5, {130, 70, 9, 66, 80}, {70, 1, 5, 1, 90},
     .ones_first = true},
    {"a dropped caption first, one last, added to", 4, 2, 8, 4, {70, 66, 3, 9}, {1, 80, 90, 1},
     .ones_first = true, .add_q = true, .add_kv = true},
    {"64 and 192 keys, logits near -100", 2, 2, 8, 3, {130, 70, 66}, {64, 192, 100}, .shift = 17},
    {"320 keys, logits near -100, added to", 4, 2, 8, 1, {20}, {320}, .shift = 17, .add_q = true,
     .add_kv = true},
    {"equal segments, logits near -100 in one", 2, 2, 8, 3, {70, 70, 70}, {192, 192, 192},
     .shift = 17, .in_one = true},
    {"logits near 100 in one, added to", 4, 2, 8, 2, {70, 66}, {130, 90}, .shift = 17, .sharp = -1,
     .in_one = true, .add_q = true, .add_kv = true},
    {"short, logits near -100", 2, 2, 8, 3, {20, 9, 33}, {17, 5, 40}, .shift = 17},
    {"192 keys, logits near -100 in one row", 2, 2, 8, 1, {130}, {192}, .shift = 20,
     .in_last = true},
};
enum { FORWARD_ONLY = 2 };

/* Holds the segments of a case, and where their rows are. */
struct segments {
    int32_t q_start[SEGMENTS_MAX + 1], k_start[SEGMENTS_MAX], k_len[SEGMENTS_MAX],
        k_all[SEGMENTS_MAX];
    int32_t all_start[SEGMENTS_MAX]; /* the first key, with those of other ranks */
    int64_t s, keys, max_q, max_k;
};

/* Places the keys of a segment after those that were placed before. */
static void keys_place(const struct attn_case *c, int64_t i, struct segments *g)
{
    g->keys += c->gap;
    g->all_start[i] = c->shared ? 0 : (int32_t)g->keys;
    g->k_start[i] = g->all_start[i] + c->elsewhere[i] / 2;
    g->k_len[i] = c->k[i];
    g->k_all[i] = c->k[i] + c->elsewhere[i];
    g->keys = g->all_start[i] + g->k_all[i];
}

static struct segments segments_of(const struct attn_case *c)
{
    struct segments g = {.q_start = {c->gap}};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < c->n; i++)
            if ((c->ones_first && c->k[i] == 1) == (pass == 0))
                keys_place(c, i, &g);
    for (int64_t i = 0; i < c->n; i++) {
        g.q_start[i + 1] = g.q_start[i] + c->q[i];
        g.max_q = c->q[i] > g.max_q ? c->q[i] : g.max_q;
        g.max_k = c->k[i] > g.max_k ? c->k[i] : g.max_k;
    }
    g.s = g.q_start[c->n] + c->gap, g.keys += c->gap;
    if (c->loose)
        g.max_q = g.s + 5, g.max_k = g.keys + 70;
    return g;
}

static void segments_put(struct lab *l, const struct attn_case *c, const struct segments *g,
                         struct ops_attn *a)
{
    int64_t bytes = c->n * (int64_t)sizeof *g->k_start;
    a->n = c->n, a->max_q = g->max_q, a->max_k = g->max_k;
    a->q_start = lab_bytes(l, "q_start", g->q_start, bytes + (int64_t)sizeof *g->q_start);
    a->k_start = lab_bytes(l, "k_start", g->k_start, bytes);
    a->k_len = lab_bytes(l, "k_len", g->k_len, bytes);
    a->k_all = c->ring ? lab_bytes(l, "k_all", g->k_all, bytes) : NULL;
    a->host.q_start = lab_host(l, a->q_start);
    a->host.k_start = lab_host(l, a->k_start);
    a->host.k_len = lab_host(l, a->k_len);
    a->host.k_all = c->ring ? lab_host(l, a->k_all) : NULL;
}

/* Adds `shift` to the first component of keys, and subtracts it from that of queries. */
static void logits_shift(struct lab *l, const struct attn_case *c, const struct segments *g,
                         const struct ops_attn *a)
{
    const struct tensor q = c->in_one    ? tensor_rows(a->q, g->q_start[0], c->q[0])
                            : c->in_last ? tensor_rows(a->q, g->q_start[c->n] - 1, 1)
                                         : a->q,
                        k = c->in_one ? tensor_rows(a->k, g->k_start[0], c->k[0]) : a->k;
    for (int64_t h = c->in_last ? c->heads - 1 : 0; h < c->heads && c->shift != 0; h++)
        lab_scale(l, tensor_cols(q, h * c->d, 1), 1, -c->shift);
    for (int64_t h = c->in_last ? c->kv_heads - 1 : 0; h < c->kv_heads && c->shift != 0; h++)
        lab_scale(l, tensor_cols(k, h * c->d, 1), 1, c->shift);
}

static struct ops_attn attn_common(struct lab *l, const struct attn_case *c,
                                   const struct segments *g)
{
    int64_t wq = c->heads * c->d, wk = c->kv_heads * c->d;
    struct ops_attn a = {.heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->d,
                         .scale = (c->sharp == 0 ? 1 : c->sharp) / sqrt((double)c->d)};
    segments_put(l, c, g, &a);
    if (c->packed) { /* with as many keys as queries, in the result of one product */
        struct tensor qkv = lab_in(l, "qkv", LAB_ACT, g->s, wq + 2 * wk);
        a.q = tensor_cols(qkv, 0, wq);
        a.k = tensor_cols(qkv, wq, wk), a.v = tensor_cols(qkv, wq + wk, wk);
    } else {
        a.q = lab_in(l, "q", LAB_ACT, g->s, wq);
        a.k = lab_in(l, "k", LAB_ACT, g->keys, wk), a.v = lab_in(l, "v", LAB_ACT, g->keys, wk);
    }
    logits_shift(l, c, g, &a);
    if (c->not_finite)
        lab_put(l, a.k, 3, 0, (double)NAN);
    return a;
}

/* Returns by how many roundings a probability may be off where logits are large: a logit is a
 * scaled sum of d products, and P is the exponential of its distance from lse, which is rounded
 * too. */
static double p_roundings(const struct attn_case *c)
{
    double logit = c->shift * c->shift / sqrt((double)c->d);
    return logit > 0 ? ((double)c->d + 6) * logit : 0;
}

static void attn_fwd_make(struct lab *l, const void *data)
{
    const struct attn_case *c = data;
    const struct segments g = segments_of(c);
    struct ops_attn a = attn_common(l, c, &g);
    a.o = lab_new(l, "o", c->wide ? LAB_WIDE : LAB_ACT, g.s, c->heads * c->d);
    a.lse = lab_new(l, "lse", LAB_STAT, g.s, c->heads);
    for (int i = 0; i < c->n; i++) {
        struct case_output *o = lab_out(l, "o", i, tensor_rows(a.o, g.q_start[i], c->q[i]));
        o->roundings = p_roundings(c);
        o->narrow_inside = true;
        lab_out(l, "lse", i, tensor_rows(a.lse, g.q_start[i], c->q[i]));
    }
    LAB_CALL(l, attn_fwd, a);
}
LAB_CASES(attn_fwd, attn_cases, attn_fwd_make)

/* ---- backward ---- */

/* Holds the rounded numbers of q, k and v, and the o and lse that follow from them. */
struct plain { double *q, *k, *v, *o, *lse; };

/* Holds o and lse of the case that was made last: they depend on the case and on the types to which
 * its inputs are rounded, and each case runs on several tables. */
static struct { bool any; uint64_t seed; struct case_types types; double *o, *lse; } last;

/* Computes o and lse of one head of one query of segment `seg`. */
static void query_plain(const struct attn_case *c, const struct segments *g, const struct plain *p,
                        int64_t seg, int64_t row, int64_t h, double scale)
{
    int64_t d = c->d, kv = h / (c->heads / c->kv_heads), wk = c->kv_heads * d;
    const double *q = p->q + (row * c->heads + h) * d;
    double *o = p->o + (row * c->heads + h) * d, top = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < d; j++)
        o[j] = 0;
    for (int64_t n = 0; n < g->k_all[seg]; n++) {
        const double *k = p->k + (g->all_start[seg] + n) * wk + kv * d,
                     *v = p->v + (g->all_start[seg] + n) * wk + kv * d;
        double logit = 0, most, grow, shrink;
        for (int64_t j = 0; j < d; j++)
            logit += scale * q[j] * k[j];
        most = top > logit ? top : logit;
        grow = logit == most ? 1 : exp(logit - most), shrink = top == most ? 1 : exp(top - most);
        sum = sum * shrink + grow, top = most;
        for (int64_t j = 0; j < d; j++)
            o[j] = o[j] * shrink + grow * v[j];
    }
    for (int64_t j = 0; j < d && sum > 0; j++)
        o[j] /= sum;
    p->lse[row * c->heads + h] = top + log(sum);
}

static void rows_put(struct lab *l, struct tensor t, const double *x, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++)
        for (int64_t j = 0; j < t.cols; j++)
            lab_put(l, t, i, j, x[i * t.cols + j]);
}

/* Computes o and lse of a case into `last`, unless they are there. */
static void forward_make(struct lab *l, const struct attn_case *c, const struct segments *g,
                         const struct ops_attn *a)
{
    struct case_types types = lab_types(l);
    if (last.any && last.seed == l->c->seed && last.types.act == types.act &&
        last.types.stat == types.stat)
        return;
    free(last.o), free(last.lse);
    struct plain p = {lab_values(l, a->q), lab_values(l, a->k), lab_values(l, a->v),
                      lab_values(l, a->o), lab_values(l, a->lse)};
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t row = g->q_start[i]; row < g->q_start[i + 1]; row++)
            for (int64_t h = 0; h < c->heads; h++)
                query_plain(c, g, &p, i, row, h, a->scale);
    free(p.q), free(p.k), free(p.v);
    last.any = true, last.seed = l->c->seed, last.types = types, last.o = p.o, last.lse = p.lse;
}

static void forward_put(struct lab *l, const struct attn_case *c, const struct segments *g,
                        const struct ops_attn *a)
{
    if (!l->filling)
        return;
    forward_make(l, c, g, a);
    for (int64_t i = 0; i < c->n; i++) {
        rows_put(l, a->o, last.o, g->q_start[i], c->q[i]);
        rows_put(l, a->lse, last.lse, g->q_start[i], c->q[i]);
    }
}

static void gradients_put(struct lab *l, const struct attn_case *c, const struct segments *g,
                          struct ops_attn *a)
{
    enum lab_class sums = c->wide ? LAB_WIDE : LAB_ACT;
    int64_t wq = c->heads * c->d, wk = c->kv_heads * c->d;
    a->accumulate_dq = c->add_q, a->accumulate_dkv = c->add_kv;
    a->d_o = lab_in(l, "d_o", LAB_ACT, g->s, wq);
    a->dq = (c->add_q ? lab_in : lab_new)(l, "dq", sums, g->s, wq);
    a->dk = (c->add_kv ? lab_in : lab_new)(l, "dk", sums, g->keys, wk);
    a->dv = (c->add_kv ? lab_in : lab_new)(l, "dv", sums, g->keys, wk);
    for (int i = 0; i < c->n; i++) {
        struct case_output *made[] = {
            lab_out(l, "dq", i, tensor_rows(a->dq, g->q_start[i], c->q[i])),
            lab_out(l, "dk", i, tensor_rows(a->dk, g->k_start[i], c->k[i])),
            lab_out(l, "dv", i, tensor_rows(a->dv, g->k_start[i], c->k[i])),
        };
        for (int k = 0; k < 3; k++)
            made[k]->roundings = p_roundings(c), made[k]->narrow_inside = true;
        /* The gradients of a query's scores add up to 0. So the terms of dq cancel in the first
         * component, which all keys share and which is `shift` times as large as the others. */
        made[0]->roundings *= 1 + c->shift / sqrt((double)c->d);
    }
}

static void attn_bwd_make(struct lab *l, const void *data)
{
    const struct attn_case *c = data;
    const struct segments g = segments_of(c);
    struct ops_attn a = attn_common(l, c, &g);
    a.o = lab_new(l, "o", LAB_ACT, g.s, c->heads * c->d);
    a.lse = lab_new(l, "lse", LAB_STAT, g.s, c->heads);
    a.delta = lab_new(l, "delta", LAB_STAT, g.s, c->heads);
    lab_working(l, a.delta);
    forward_put(l, c, &g, &a);
    gradients_put(l, c, &g, &a);
    LAB_CALL(l, attn_bwd, a);
}
const struct case_list cases_attn_bwd = {
    "attn_bwd", attn_cases + FORWARD_ONLY, sizeof *attn_cases,
    (int)(sizeof attn_cases / sizeof *attn_cases) - FORWARD_ONLY, attn_bwd_make,
};

/* ---- partial results ---- */

struct merge_case {
    const char *name;
    int64_t s, heads, d;
    enum lab_class o, part;
    double apart; /* both lse are N(0, 1) times this */
    bool empty;   /* some partial results saw no keys */
};
static const struct merge_case merge_cases[] = {
    {"odd", 9, 3, 7, LAB_ACT, LAB_ACT, 1, false},
    {"even", 65, 2, 64, LAB_ACT, LAB_ACT, 1, false},
    {"not rounded", 33, 2, 16, LAB_WIDE, LAB_WIDE, 1, false},
    {"of rounded parts", 33, 2, 16, LAB_WIDE, LAB_ACT, 1, false},
    {"some saw no keys", 9, 3, 7, LAB_ACT, LAB_ACT, 1, true},
    {"some saw no keys, not rounded", 9, 3, 8, LAB_WIDE, LAB_ACT, 1, true},
    {"far apart", 20, 2, 9, LAB_ACT, LAB_ACT, 60, false},
    {"no rows", 0, 2, 9, LAB_ACT, LAB_ACT, 1, false},
};

static void lse_merge_make(struct lab *l, const void *data)
{
    const struct merge_case *c = data;
    struct ops_lse_merge a = {.o = lab_in(l, "o", c->o, c->s, c->heads * c->d),
                              .lse = lab_in(l, "lse", LAB_STAT, c->s, c->heads),
                              .o_part = lab_in(l, "o_part", c->part, c->s, c->heads * c->d),
                              .lse_part = lab_in(l, "lse_part", LAB_STAT, c->s, c->heads),
                              .heads = c->heads, .head_dim = c->d};
    lab_scale(l, a.lse, c->apart, 0);
    lab_scale(l, a.lse_part, c->apart, 0);
    for (int64_t k = 0; c->empty && k < 3; k++) { /* rows 1, 2 and 3: o, o_part, neither saw keys */
        if (k != 1) {
            lab_put(l, a.lse, 1 + k, k, -(double)INFINITY);
            lab_fill(l, tensor_cols(tensor_rows(a.o, 1 + k, 1), k * c->d, c->d), 0);
        }
        if (k != 0) {
            lab_put(l, a.lse_part, 1 + k, k, -(double)INFINITY);
            lab_fill(l, tensor_cols(tensor_rows(a.o_part, 1 + k, 1), k * c->d, c->d), 0);
        }
    }
    lab_out(l, "o", 0, a.o);
    lab_out(l, "lse", 0, a.lse);
    LAB_CALL(l, lse_merge, a);
}
LAB_CASES(lse_merge, merge_cases, lse_merge_make)
