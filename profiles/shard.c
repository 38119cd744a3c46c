/* This table says which rank holds what. R and C are rows and columns of the whole matrix; tp rank
 * t of T, H heads, K k/v heads, F ffn, d head dim, copies = max(1, T / K).
 *
 *   tensor                                row ranges of rank t                          columns
 *   attn.qkv (spatial, temporal, full)    q: heads t·H/T ..; k, v: heads of the rank    all
 *   cross.q                               heads t·H/T ..                                all
 *   cross.kv                              k, v: heads of the rank                       all
 *   mlp.fc1, gated                        gate: t·F/T ..; up: F + t·F/T ..              all
 *   token_embed, final.out of a vocabulary  t·ceil(V/T) .., the last ranks have fewer     all
 *   any other cut by rows                 t·R/T ..                                      all
 *   cut by columns (out, fc2)             all                                           t·C/T ..
 *   the rest                              all                                           all
 *
 * A rank has K/T k/v heads, from t·K/T on. With T > K it has the one head t / copies, which
 * `copies` consecutive ranks hold. The query heads t·H/T .. of such a rank all use that head,
 * because a k/v head serves H/K consecutive query heads.
 *
 * These gradients are partial sums over tp (SHARD_SUM_TP): gains of q and k norms (each rank sees
 * its own heads), the null token of the text (through the rank's heads of cross.kv), the low side
 * `a` of a modulation pair (through the rank's rows of `b`), and with sp all replicated tensors
 * that multiply every token (through the rank's tokens). The conditioning's other tensors are
 * replicated too, but their gradients follow from values already summed over tp, and all tp ranks
 * compute the same. The conditioning's gradients are partial sums over pp, because every stage
 * feeds its layers from it.
 *
 * Adapters A [rank, in] and B [out, rank] are cut like their base: B by its rows (k/v copies too),
 * A by its columns. The adapter that is not cut is replicated, and its gradient is a partial sum
 * over tp: A's through the rank's rows of B, B's through the rank's columns of A. The adapters of a
 * replicated base are replicated too, and their gradients are treated like the base's.
 */
#include "profiles/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "profiles/buffers.h"

struct cut {
    const struct model *m;
    const struct layout *l;
    struct layout_place place;
    int64_t copies;
};

static struct cut cut_of(const struct model *m, const struct layout *l, struct layout_place place)
{
    return (struct cut){.m = m, .l = l, .place = place,
                        .copies = num_max_i64(1, l->tp / m->kv_heads)};
}

static bool name_ends(const struct param *p, const char *end)
{
    size_t n = strlen(p->name), e = strlen(end);
    return n >= e && strcmp(p->name + n - e, end) == 0;
}

static const struct param *base_of(const struct param *p)
{ return p - (p->lora == PARAM_LORA_A ? 1 : p->lora == PARAM_LORA_B ? 2 : 0); }

struct shard_kind shard_kind_of(const struct model *m, const struct param *p)
{
    const struct param *base = base_of(p);
    bool own_heads = name_ends(base, ".q_norm.weight") || name_ends(base, ".k_norm.weight") ||
                     strcmp(base->name, "text_null") == 0;
    bool own_rows = name_ends(base, ".a.weight"), qkv = name_ends(base, ".qkv.weight");
    struct shard_kind k = {.tp = p->tp, .rows = param_rows(p), .cols = param_cols(p),
                           .parts = p->part == PART_MLP && m->gated_mlp ? 2 : 1,
                           .cond = p->layer == PARAM_LAYER_COND, .tied = p->flags & PARAM_TIED};
    k.partial = own_heads || own_rows || base->tp != PARAM_TP_NONE;
    k.q = !name_ends(base, ".kv.weight");
    k.kv = !k.q || qkv;
    return k;
}

/* ---- one tensor ---- */

static void rows_add(struct shard_tensor *t, int64_t first, int64_t n)
{
    BUG_ON(t->n == SHARD_RANGES);
    t->first[t->n] = first;
    t->n_rows[t->n++] = n;
    t->rows += n;
}

/* Adds the rank's part of `n` rows that begin at row `base`. The last ranks may have fewer rows
 * than the others only in a vocabulary. */
static void rows_add_part(const struct cut *c, struct shard_tensor *t, int64_t base, int64_t n)
{
    int64_t most = num_ceil_div(n, c->l->tp), first = num_min_i64(n, c->place.tp * most);
    BUG_ON(n % c->l->tp && n != c->m->vocab);
    rows_add(t, base + first, num_min_i64(most, n - first));
}

/* Adds the rank's heads of k, then of v; k begins at row `base`. */
static void rows_add_kv(const struct cut *c, struct shard_tensor *t, int64_t base)
{
    int64_t d = model_head_dim(c->m), all = c->m->kv_heads * d;
    int64_t n = c->copies > 1 ? d : all / c->l->tp, first = c->place.tp / c->copies * n;
    BUG_ON(n * c->l->tp != all * c->copies);
    rows_add(t, base + first, n);
    rows_add(t, base + all + first, n);
}

static void cut_heads(const struct cut *c, const struct shard_kind *k, struct shard_tensor *t)
{
    int64_t q_rows = k->q ? c->m->heads * model_head_dim(c->m) : 0;
    BUG_ON(k->rows != q_rows + (k->kv ? 2 * c->m->kv_heads * model_head_dim(c->m) : 0));
    if (k->q)
        rows_add_part(c, t, 0, q_rows);
    t->kv_row = t->rows;
    if (k->kv)
        rows_add_kv(c, t, q_rows);
    if (c->copies == 1)
        t->kv_row = t->rows;
    else if (t->kv_row < t->rows)
        t->sums |= SHARD_SUM_KV;
}

static void cut_rows(const struct cut *c, const struct shard_kind *k, struct shard_tensor *t)
{
    for (int64_t i = 0; i < k->parts; i++)
        rows_add_part(c, t, i * (k->rows / k->parts), k->rows / k->parts);
}

static void cut_cols(const struct cut *c, const struct shard_kind *k, struct shard_tensor *t)
{
    BUG_ON(k->cols % c->l->tp);
    rows_add(t, 0, k->rows);
    t->cols = k->cols / c->l->tp;
    t->col = c->place.tp * t->cols;
}

/* Returns the ranks over which the gradient of a tensor that every tp rank holds whole is a partial
 * sum. */
static unsigned replicated_sums(const struct cut *c, const struct shard_kind *k)
{
    bool own_tokens = c->l->sp && !k->cond;
    unsigned tp = c->l->tp > 1 && (k->partial || own_tokens) ? SHARD_SUM_TP : 0;
    return tp | (k->cond && c->l->pp > 1 ? SHARD_SUM_PP : 0);
}

static int64_t own_rows(const struct cut *c, const struct shard_kind *k,
                        const struct shard_tensor *t)
{
    bool first_stage = !k->cond || c->place.pp == 0;
    bool is_copy = k->tied && c->place.pp > 0; /* the original is on the first stage */
    if (!first_stage || is_copy || (k->tp == PARAM_TP_NONE && c->place.tp > 0))
        return 0;
    return c->place.tp % c->copies == 0 ? t->rows : t->kv_row;
}

static struct shard_tensor tensor_cut(const struct cut *c, const struct shard_kind *k)
{
    struct shard_tensor t = {.cols = k->cols, .kv_row = -1};
    switch (k->tp) {
    case PARAM_TP_NONE:
        rows_add(&t, 0, k->rows);
        t.sums = replicated_sums(c, k);
        break;
    case PARAM_TP_ROW: cut_rows(c, k, &t); break;
    case PARAM_TP_COL: cut_cols(c, k, &t); break;
    case PARAM_TP_HEADS: cut_heads(c, k, &t); break;
    }
    if (t.kv_row < 0)
        t.kv_row = t.rows;
    if (k->tied && c->l->pp > 1)
        t.sums |= SHARD_SUM_ENDS;
    t.count = t.rows * t.cols;
    t.room = k->tp == PARAM_TP_ROW ? num_ceil_div(k->rows, c->l->tp) * t.cols : t.count;
    t.own_rows = own_rows(c, k, &t);
    return t;
}

struct shard_tensor shard_tensor_cut(const struct model *m, const struct layout *l,
                                     struct layout_place place, const struct shard_kind *k)
{
    struct cut c = cut_of(m, l, place);
    return tensor_cut(&c, k);
}

/* ---- units ---- */

static int64_t chunk_of(const struct layout *l, int64_t layers, int64_t layer)
{
    int64_t chunk = 0;
    while (layout_chunk_first(l, layers, chunk + 1) <= layer)
        chunk++;
    return chunk;
}

static bool held(const struct cut *c, int64_t layer)
{
    const struct layout *l = c->l;
    bool last = c->place.pp == l->pp - 1;
    switch (layer) {
    case PARAM_LAYER_COND: return true;
    case PARAM_LAYER_EMBED: return c->place.pp == 0 || (last && c->m->tied_head);
    case PARAM_LAYER_HEAD: return last;
    default: return chunk_of(l, c->m->layers, layer) % l->pp == c->place.pp;
    }
}

int64_t shard_tensor_room(const struct shard_tensor *t)
{ return num_round_up(t->room, BUFFER_FLAT_ALIGN); }

int64_t shard_unit_room(int64_t elements, int64_t group)
{ return num_round_up(elements, group * BUFFER_FLAT_ALIGN); }

static bool is_trained(const struct param *p) { return p->flags & PARAM_TRAINABLE; }

/* Places the layer's trained, or frozen, tensors: sets their offsets and the unit's size. */
static void unit_fill(const struct cut *c, const struct param_list *params, struct shards *sh,
                      struct shard_unit *u, bool trained)
{
    int64_t at = u->offset;
    for (int64_t i = u->first_param; i < u->first_param + u->n_params; i++) {
        struct shard_tensor *t = &sh->tensors[i];
        if (is_trained(&params->items[i]) != trained)
            continue;
        struct shard_kind kind = shard_kind_of(c->m, &params->items[i]);
        *t = tensor_cut(c, &kind);
        t->offset = at;
        t->unit = u - sh->units;
        at += shard_tensor_room(t);
    }
    u->elements = shard_unit_room(at - u->offset, sh->group);
}

static int64_t layer_tensors(const struct param_list *params, int64_t first)
{
    int64_t n = 1;
    while (first + n < params->n && params->items[first + n].layer == params->items[first].layer)
        n++;
    return n;
}

static bool has_any(const struct param_list *params, int64_t first, int64_t n, bool trained)
{
    for (int64_t i = first; i < first + n; i++)
        if (is_trained(&params->items[i]) == trained)
            return true;
    return false;
}

static void units_fill(const struct cut *c, const struct param_list *params, struct shards *sh,
                       bool trained)
{
    for (int64_t i = 0, n; i < params->n; i += n) {
        n = layer_tensors(params, i);
        if (!held(c, params->items[i].layer) || !has_any(params, i, n, trained))
            continue;
        int64_t sibling = shards_unit(sh, params->items[i].layer);
        if (sibling >= 0)
            sh->units[sibling].sibling = sh->n_units;
        struct shard_unit *u = &sh->units[sh->n_units++];
        *u = (struct shard_unit){
            .layer = params->items[i].layer, .first_param = i, .n_params = n,
            .sibling = sibling, .offset = sh->total
        };
        unit_fill(c, params, sh, u, trained);
        sh->total += u->elements;
    }
}

/* Says whether the model, plus the greatest padding of every tensor and unit, stays below 2^62
 * elements. */
static bool within_limit(const struct param_list *params, int64_t units, int64_t group)
{
    int64_t padding, sum;
    return num_mul_i64(units, group * BUFFER_FLAT_ALIGN, &padding) &&
           num_add_i64(padding, params->total, &sum) &&
           num_add_i64(sum, params->n * BUFFER_FLAT_ALIGN, &sum) && sum < (int64_t)1 << 62;
}

int shards_build(const struct model *m, const struct param_list *params, const struct layout *l,
                 int64_t rank, struct shards *out, struct err *err)
{
    struct cut c = cut_of(m, l, layout_place(l, rank));
    struct shards sh = {.place = c.place,
                        .tp = l->tp,
                        .group = layout_shard_group(l),
                        .kv_copies = c.copies,
                        .n_tensors = params->n};
    int64_t max_units = 2 * (m->layers + 3);
    BUG_ON(rank < 0 || rank >= layout_world(l));
    sh.group_rank = layout_data_rank(l, c.place) % sh.group;
    if (!within_limit(params, max_units, sh.group))
        return err_set(err, ERR_LIMIT,
                       "model %s: more than 2^62 elements in a rank's flat buffer: give a smaller "
                       "model",
                       m->name);
    sh.units = calloc((size_t)max_units, sizeof *sh.units);
    sh.tensors = calloc((size_t)params->n, sizeof *sh.tensors);
    if (!sh.units || !sh.tensors) {
        shards_release(&sh);
        return err_set(err, ERR_NOMEM, "model %s: no memory for the places of %lld tensors",
                       m->name, (long long)params->n);
    }
    for (int64_t i = 0; i < params->n; i++)
        sh.tensors[i].offset = sh.tensors[i].unit = -1;
    units_fill(&c, params, &sh, true);
    sh.n_trained = sh.n_units, sh.trained = sh.total;
    units_fill(&c, params, &sh, false);
    *out = sh;
    return 0;
}

void shards_release(struct shards *sh)
{
    free(sh->units);
    free(sh->tensors);
    *sh = (struct shards){0};
}

int64_t shards_unit(const struct shards *sh, int64_t layer)
{
    for (int64_t i = 0; i < sh->n_units; i++)
        if (sh->units[i].layer == layer)
            return i;
    return -1;
}

/* ---- local and global elements ---- */

/* Returns how many rows, from row `row` of range i on, are consecutive globally too. */
static int64_t rows_span(const struct shard_tensor *t, int i, int64_t row)
{
    int64_t span = t->n_rows[i] - row;
    for (; i + 1 < t->n && t->first[i] + t->n_rows[i] == t->first[i + 1]; i++)
        span += t->n_rows[i + 1];
    return span;
}

int64_t shard_to_global(const struct shard_tensor *t, const struct param *p, int64_t local,
                        int64_t *span)
{
    int64_t cols = param_cols(p), row = local / t->cols, col = local % t->cols;
    int i = 0;
    BUG_ON(local < 0 || local >= t->count);
    for (; row >= t->n_rows[i]; i++)
        row -= t->n_rows[i];
    *span = (t->cols == cols ? rows_span(t, i, row) * cols : t->cols) - col;
    return (t->first[i] + row) * cols + t->col + col;
}

/* Returns how many global elements from g on are not in the shard, given that g is not. */
static int64_t outside_span(const struct shard_tensor *t, const struct param *p, int64_t g)
{
    int64_t cols = param_cols(p), next = p->count;
    for (int i = 0; i < t->n; i++) {
        int64_t row = g / cols + (g % cols >= t->col); /* the first whose columns begin after g */
        row = num_max_i64(row, t->first[i]);
        if (row < t->first[i] + t->n_rows[i])
            next = num_min_i64(next, row * cols + t->col);
    }
    return next - g;
}

int64_t shard_to_local(const struct shard_tensor *t, const struct param *p, int64_t global,
                       int64_t *span)
{
    int64_t cols = param_cols(p), row = global / cols, col = global % cols - t->col, before = 0;
    BUG_ON(global < 0 || global >= p->count);
    for (int i = 0; i < t->n && col >= 0 && col < t->cols; i++) {
        int64_t in_range = row - t->first[i];
        if (in_range >= 0 && in_range < t->n_rows[i]) {
            *span = (t->cols == cols ? rows_span(t, i, in_range) * cols : t->cols) - col;
            return (before + in_range) * t->cols + col;
        }
        before += t->n_rows[i];
    }
    *span = outside_span(t, p, global);
    return -1;
}

int64_t shards_most_elements(const struct shards *sh)
{
    int64_t most = 0;
    for (int64_t i = 0; i < sh->n_units; i++) {
        const struct shard_unit *s = &sh->units[i];
        most =
            num_max_i64(most, s->elements + (s->sibling < 0 ? 0 : sh->units[s->sibling].elements));
    }
    return most;
}

int64_t shards_most_trained(const struct shards *sh)
{
    int64_t most = 0;
    for (int64_t i = 0; i < sh->n_trained; i++)
        most = num_max_i64(most, sh->units[i].elements);
    return most;
}
