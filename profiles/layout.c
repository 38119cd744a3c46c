/* This file decides whether a layout is legal. A rule is a name, a sentence and a predicate over
 * (layout, model, extent, gbs, world). The order of the rules matters twice: the first rules make
 * the divisions of later ones safe, and the first broken rule is the one reported.
 *
 * What the rules rest on:
 *  - Ranks form a grid tp x cp x dp x pp, so the product is the world.
 *  - TP cuts attention by heads and the MLP by columns. When tp exceeds kv_heads, each K/V head is
 *    copied to tp / kv_heads ranks, hence "one divides the other".
 *    A vocabulary is padded to a multiple of tp (shard.h), so that any tp will do.
 *  - Sequence parallelism (sp) shards the residual stream over the TP group, so every TP rank needs
 *    a token.
 *  - Ring CP cuts a sample into cp near-equal spans of tokens (uneven is fine, empty is not).
 *    All-to-all CP (DeepSpeed Ulysses) regroups by heads, so tp·cp must divide heads. 2d is a ring
 *    of all-to-all groups and needs a split cp = a·b, both above 1, with tp·a dividing heads.
 *  - PP cuts the layers into pp·vpp spans (uneven is fine, empty is not). A replica's micro-batches
 *    may be any number.
 *  - Replicas share gbs as evenly as possible. A replica without a sample would be a wasted rank,
 *    and a micro-batch larger than a replica's share equals a smaller one, so both are refused.
 * A few rules only refuse a second spelling of the same layout (sp without tp, cp_kind without cp,
 * a layer count without full recompute): a search must meet every layout once.
 */
#include "profiles/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

const char *const cp_kind_names[] = {"ring", "a2a", "2d", NULL};
const char *const recompute_names[] = {"none", "selective", "full", NULL};
const char *const layout_order_names[] = {
    "tp-cp-dp-pp", "tp-cp-pp-dp", "tp-dp-cp-pp", "tp-dp-pp-cp", "tp-pp-cp-dp", "tp-pp-dp-cp",
    "cp-tp-dp-pp", "cp-tp-pp-dp", "cp-dp-tp-pp", "cp-dp-pp-tp", "cp-pp-tp-dp", "cp-pp-dp-tp",
    "dp-tp-cp-pp", "dp-tp-pp-cp", "dp-cp-tp-pp", "dp-cp-pp-tp", "dp-pp-tp-cp", "dp-pp-cp-tp",
    "pp-tp-cp-dp", "pp-tp-dp-cp", "pp-cp-tp-dp", "pp-cp-dp-tp", "pp-dp-tp-cp", "pp-dp-cp-tp",
    NULL};

struct layout layout_default(void)
{
    return (struct layout){.tp = 1, .cp = 1, .pp = 1, .vpp = 1, .dp = 1, .mbs = 1};
}

int64_t layout_world(const struct layout *l)
{
    int64_t n = l->tp;
    if (!num_mul_i64(n, l->cp, &n) || !num_mul_i64(n, l->pp, &n) || !num_mul_i64(n, l->dp, &n) ||
        n > LIMIT_RANKS)
        return -1;
    return n;
}

int64_t layout_shard_group(const struct layout *l)
{
    return l->fsdp ? l->fsdp : l->dp;
}

/* ---- rules ---- */

struct layout_case {
    const struct layout *l;
    const struct model *m;
    int64_t tokens, gbs, world;
};

static bool one_divides_other(int64_t a, int64_t b) { return a % b == 0 || b % a == 0; }

static bool ranges(const struct layout_case *c)
{
    const struct layout *l = c->l;
    return l->tp >= 1 && l->cp >= 1 && l->pp >= 1 && l->vpp >= 1 && l->dp >= 1 && l->mbs >= 1 &&
           l->fsdp >= 0 && l->sp >= 0 && l->sp <= 1 && l->zero >= 0 && l->zero <= 3 &&
           l->recompute_layers >= 0 && c->gbs >= 1 && c->tokens >= 1;
}
static bool world_is_product(const struct layout_case *c) { return layout_world(c->l) == c->world; }
static bool tp_divides_heads(const struct layout_case *c) { return c->m->heads % c->l->tp == 0; }
static bool tp_fits_kv_heads(const struct layout_case *c)
{ return one_divides_other(c->m->kv_heads, c->l->tp); }
static bool tp_divides_ffn(const struct layout_case *c) { return c->m->ffn % c->l->tp == 0; }
static bool sp_needs_tp(const struct layout_case *c) { return !c->l->sp || c->l->tp > 1; }
static bool tokens_for_cp(const struct layout_case *c) { return c->tokens >= c->l->cp; }
static bool tokens_for_sp(const struct layout_case *c)
{ return !c->l->sp || c->tokens / c->l->cp >= c->l->tp; }
static bool cp_kind_needs_cp(const struct layout_case *c)
{ return c->l->cp_kind == CP_RING || c->l->cp > 1; }

static bool heads_for_a2a(const struct layout_case *c, int64_t group)
{
    int64_t ranks = c->l->tp * group;
    return c->m->heads % ranks == 0 && one_divides_other(c->m->kv_heads, ranks);
}
static bool a2a_divides_heads(const struct layout_case *c)
{
    return c->l->cp_kind != CP_A2A || heads_for_a2a(c, c->l->cp);
}
static bool cp_2d_splits(const struct layout_case *c)
{
    if (c->l->cp_kind != CP_2D)
        return true;
    for (int64_t a = 2; a <= c->l->cp / 2; a++)
        if (c->l->cp % a == 0 && heads_for_a2a(c, a))
            return true;
    return false;
}
static bool layers_for_pp(const struct layout_case *c)
{
    return c->l->pp <= c->m->layers && c->l->vpp <= c->m->layers / c->l->pp;
}
static bool vpp_needs_pp(const struct layout_case *c) { return c->l->vpp == 1 || c->l->pp > 1; }
static bool sample_for_dp(const struct layout_case *c) { return c->l->dp <= c->gbs; }
static bool mbs_within_share(const struct layout_case *c)
{ return c->l->mbs <= num_ceil_div(c->gbs, c->l->dp); }
static bool fsdp_divides_dp_cp(const struct layout_case *c)
{
    return c->l->dp * c->l->cp % layout_shard_group(c->l) == 0;
}
static bool recompute_count_with_full(const struct layout_case *c)
{
    return c->l->recompute_layers == 0 || c->l->recompute == RECOMPUTE_FULL;
}
static bool recompute_within_layers(const struct layout_case *c)
{ return c->l->recompute_layers <= c->m->layers; }

static const struct {
    const char *name, *sentence;
    bool (*holds)(const struct layout_case *c);
} rules[] = {
    {"ranges",
     "tp, cp, pp, vpp, dp, mbs, gbs and the tokens are 1 or more, sp is 0 or 1, zero is 0 to 3",
     ranges},
    {"world-is-product",
     "tp x cp x pp x dp must be the number of ranks: change dp, or give that many ranks",
     world_is_product},
    {"tp-divides-heads", "tp must divide the attention heads: give a divisor of heads",
     tp_divides_heads},
    {"tp-fits-kv-heads", "tp must divide kv_heads or be a multiple of it: give another tp",
     tp_fits_kv_heads},
    {"tp-divides-ffn", "tp must divide the MLP's width: give a divisor of ffn", tp_divides_ffn},
    {"sp-needs-tp", "sequence parallelism shards over the tp group: give tp 2 or more, or sp=0",
     sp_needs_tp},
    {"tokens-for-cp", "each of the cp ranks needs a token of every sample: give a smaller cp",
     tokens_for_cp},
    {"tokens-for-sp",
     "with sp each tp rank needs a token of its cp rank's span: give sp=0 or smaller tp or cp",
     tokens_for_sp},
    {"cp-kind-needs-cp", "cp_kind other than ring means nothing when cp is 1: give cp_kind=ring",
     cp_kind_needs_cp},
    {"a2a-divides-heads",
     "all-to-all CP deals out heads, so tp x cp must divide heads, and divide kv_heads or be a "
     "multiple of it: give cp_kind=ring or a smaller cp",
     a2a_divides_heads},
    {"cp-2d-splits",
     "2d CP needs cp = a x b, both above 1, with tp x a dividing heads: give cp_kind=ring or "
     "another cp",
     cp_2d_splits},
    {"vpp-needs-pp", "virtual stages interleave pipeline stages: give pp 2 or more, or vpp=1",
     vpp_needs_pp},
    {"layers-for-pp", "each of the pp x vpp stages needs a layer: give smaller pp or vpp",
     layers_for_pp},
    {"sample-for-dp",
     "each data-parallel replica needs a sample of the global batch: give a smaller dp or a larger "
     "gbs",
     sample_for_dp},
    {"mbs-within-share",
     "a micro-batch cannot exceed a replica's share of the global batch: give a smaller mbs",
     mbs_within_share},
    {"fsdp-divides-dp-cp", "the shard group must divide dp x cp: give a divisor, or fsdp=0 for dp",
     fsdp_divides_dp_cp},
    {"recompute-count-with-full",
     "recompute_layers counts layers of recompute=full: give that, or recompute_layers=0",
     recompute_count_with_full},
    {"recompute-within-layers",
     "recompute_layers cannot exceed the model's layers: give fewer, or 0 for all",
     recompute_within_layers},
};

int layout_rule_count(void) { return (int)ARRAY_LEN(rules); }
const char *layout_rule_name(int rule) { return rules[rule].name; }
const char *layout_rule_sentence(int rule) { return rules[rule].sentence; }

int layout_broken_rule(const struct layout *l, const struct model *m, struct seq s, int64_t gbs,
                       int64_t world)
{
    struct layout_case c = {l, m, seq_tokens(s), gbs, world};
    for (int i = 0; i < layout_rule_count(); i++)
        if (!rules[i].holds(&c))
            return i;
    return -1;
}

int layout_check(const struct layout *l, const struct model *m, struct seq s, int64_t gbs,
                 int64_t world, struct err *err)
{
    int rule = layout_broken_rule(l, m, s, gbs, world);
    if (rule < 0)
        return 0;
    struct str text = STR_INIT;
    layout_format(l, &text);
    int rc = err_set(err, ERR_INPUT,
                     "layout %s: %s (rule %s; %lld ranks, gbs %lld, %lld tokens; model %s: %lld "
                     "layers, %lld heads, %lld kv_heads, ffn %lld)",
                     text.p, rules[rule].sentence, rules[rule].name, (long long)world,
                     (long long)gbs, (long long)seq_tokens(s), m->name, (long long)m->layers,
                     (long long)m->heads, (long long)m->kv_heads, (long long)m->ffn);
    str_release(&text);
    return rc;
}

/* ---- who gets which samples ---- */

int64_t layout_replica_samples(const struct layout *l, int64_t gbs, int64_t replica)
{
    return gbs / l->dp + (replica < gbs % l->dp);
}

int64_t layout_replica_first(const struct layout *l, int64_t gbs, int64_t replica)
{
    return replica * (gbs / l->dp) + num_min_i64(replica, gbs % l->dp);
}

int64_t layout_micro_batches(const struct layout *l, int64_t gbs, int64_t replica)
{
    return num_ceil_div(layout_replica_samples(l, gbs, replica), l->mbs);
}

int64_t layout_micro_batch_samples(const struct layout *l, int64_t gbs, int64_t replica,
                                   int64_t micro_batch)
{
    int64_t left = layout_replica_samples(l, gbs, replica) - micro_batch * l->mbs;
    return num_max_i64(0, num_min_i64(left, l->mbs));
}

/* ---- who stands where ---- */

enum { AXES = 4, AXIS_TEXT = 3 /* letters of an axis in an order's name, with the dash */ };

/* Returns the first letter of axis i of an order: t, c, d or p. */
static char axis_at(int order, int i) { return layout_order_names[order][AXIS_TEXT * i]; }

static int64_t axis_size(const struct layout *l, char axis)
{ return axis == 't' ? l->tp : axis == 'c' ? l->cp : axis == 'd' ? l->dp : l->pp; }

static int64_t *axis_of(struct layout_place *p, char axis)
{ return axis == 't' ? &p->tp : axis == 'c' ? &p->cp : axis == 'd' ? &p->dp : &p->pp; }

struct layout_place layout_place(const struct layout *l, int64_t rank)
{
    struct layout_place p;
    for (int i = 0; i < AXES; i++) {
        int64_t n = axis_size(l, axis_at(l->order, i));
        *axis_of(&p, axis_at(l->order, i)) = rank % n;
        rank /= n;
    }
    return p;
}

int64_t layout_rank(const struct layout *l, struct layout_place p)
{
    int64_t rank = 0;
    for (int i = AXES - 1; i >= 0; i--) {
        char axis = axis_at(l->order, i);
        rank = rank * axis_size(l, axis) + *axis_of(&p, axis);
    }
    return rank;
}

/* Returns a key that is equal for two orders if they differ only in axes of one rank. */
static int order_key(const struct layout *l, int order)
{
    int key = 0;
    for (int i = 0; i < AXES; i++)
        if (axis_size(l, axis_at(order, i)) > 1)
            key = key * 128 + axis_at(order, i);
    return key;
}

int layout_order_plain(const struct layout *l)
{
    int order = 0;
    while (order_key(l, order) != order_key(l, l->order))
        order++;
    return order;
}

int layout_orders(const struct layout *l, int out[LAYOUT_ORDERS])
{
    int keys[LAYOUT_ORDERS], n = 0;
    for (int order = 0; order < LAYOUT_ORDERS; order++) {
        int i = 0;
        keys[n] = order_key(l, order);
        while (keys[i] != keys[n])
            i++;
        if (i == n)
            out[n++] = order;
    }
    return n;
}

int64_t layout_data_rank(const struct layout *l, struct layout_place p)
{
    return p.dp * l->cp + p.cp;
}

int64_t layout_chunk_first(const struct layout *l, int64_t layers, int64_t chunk)
{
    int64_t chunks = l->pp * l->vpp;
    return chunk * (layers / chunks) + num_min_i64(chunk, layers % chunks);
}

int64_t layout_tp_slices(const struct layout *l, int64_t rows)
{
    return l->tp > 1 && rows / (l->sp ? l->tp : 1) >= LAYOUT_TP_SLICES * LAYOUT_TP_SLICE_ROWS
               ? LAYOUT_TP_SLICES
               : 1;
}

int64_t layout_span_first(int64_t tokens, int64_t cp, int64_t r)
{
    return tokens * r / cp;
}

int64_t layout_segment_turn(int64_t segments, int64_t cp, int64_t sample)
{ return segments % cp ? sample : 0; }

int64_t layout_a2a_group(const struct layout *l, const struct model *m)
{
    if (l->cp_kind == CP_RING)
        return 1;
    if (l->cp_kind == CP_A2A)
        return l->cp;
    struct layout_case c = {.l = l, .m = m};
    for (int64_t a = num_min_i64(l->cp / 2, m->heads / l->tp); a > 1; a--)
        if (l->cp % a == 0 && heads_for_a2a(&c, a))
            return a;
    return 1; /* the rule cp-2d-splits is broken */
}
