/* Shards: every element of every tensor has its place under every layout of up to 8 ranks, and one
 * owner. What a rank holds is checked element by element against a rule written down once more here
 * (holds). Each day has half of the layouts (DRAW=all: all). */
#include "tests/lib/day.h"
#include "tests/lib/test_profiles.h"

#include "base/num.h"
#include "profiles/buffers.h"
#include "profiles/shard.h"

enum { MOST_RANKS = 8, MOST_LAYOUTS = 2048, GBS = 8 };
static const struct seq seq = {2, 4, 4};

/* ---- models: three families, five kinds of AdaLN, k/v heads from one per head down to one, and
 * language models: a tied head with a vocabulary that tp does not divide, a head of its own, a
 * vocabulary of which some ranks have nothing ---- */

enum { FAMILIES = 3, ADALNS = 5, LANGUAGES = 3, VIDEOS = FAMILIES * ADALNS,
       MODELS = VIDEOS + LANGUAGES };

static struct model language_at(int i)
{
    static const int64_t vocab[LANGUAGES] = {21, 24, 9};
    struct model m = {.name = "words", .family = i ? MODEL_LLAMA : MODEL_GPT, .layers = 9,
                      .hidden = 16, .heads = 8, .kv_heads = i ? 2 : 8, .ffn = 24,
                      .gated_mlp = i > 0, .patch_t = 1, .patch_h = 1, .patch_w = 1,
                      .vocab = vocab[i], .tied_head = i != 1, .rope_theta = 10000};
    return m;
}

static struct model model_at(int i)
{
    static const int64_t kv_heads[] = {8, 2, 1, 4};
    if (i >= VIDEOS)
        return language_at(i - VIDEOS);
    int family = i / ADALNS, adaln = i % ADALNS;
    struct model m = {.name = "small", .layers = 9, .hidden = 16, .heads = 8,
                      .kv_heads = kv_heads[i % 4], .ffn = 24, .text_width = i % 3 ? 3 : 0,
                      .text_len = i % 3 ? 5 : 0, .patch_t = 1, .patch_h = 1, .patch_w = 2,
                      .latent_channels = 3, .cond_channels = i % 2, .rope_theta = 10000};
    m.family = (const enum model_family[]){MODEL_DIT, MODEL_MOVIEGEN, MODEL_STDIT}[family];
    m.gated_mlp = m.family == MODEL_MOVIEGEN || i == 2;
    m.adaln = (enum model_adaln)adaln;
    m.adaln_rank = adaln >= ADALN_LORA_SEPARATE ? 3 : 0;
    return m;
}

static void params_of(const struct model *m, struct param_list *list)
{
    struct err err;
    assert_ok(params_build(m, list, &err), &err);
}

/* ---- layouts ---- */

struct layouts { struct layout items[MOST_LAYOUTS]; int n; };

static void layout_add(struct layouts *list, const struct model *m, const struct layout *l)
{
    if (layout_broken_rule(l, m, seq, GBS, layout_world(l)) >= 0)
        return;
    assert_true(list->n < MOST_LAYOUTS);
    list->items[list->n++] = *l;
}

/* Every legal way to cut a model's tensors over up to 8 ranks; with `data` also over cp, dp, shard
 * groups, sp. */
static void layouts_of(const struct model *m, bool data, struct layouts *out)
{
    struct layout l = layout_default();
    int64_t most = data ? MOST_RANKS : 1;
    out->n = 0;
    for (l.tp = 1; l.tp <= MOST_RANKS; l.tp++)
        for (l.pp = 1; l.tp * l.pp <= MOST_RANKS; l.pp++)
            for (l.vpp = 1; l.vpp <= 3; l.vpp++)
                for (l.sp = 0; l.sp <= data; l.sp++)
                    for (l.cp = 1; l.cp <= most; l.cp++)
                        for (l.dp = 1; l.dp <= most && l.tp * l.pp * l.cp * l.dp <= MOST_RANKS;
                             l.dp++)
                            for (l.fsdp = 0; l.fsdp <= (data ? l.dp * l.cp : 0); l.fsdp++)
                                layout_add(out, m, &l);
    assert_true(out->n > 20);
}

/* All ranks of a layout. */
struct ranks { struct shards at[MOST_RANKS]; int64_t n; };

static void ranks_open(const struct model *m, const struct param_list *params,
                       const struct layout *l, struct ranks *r)
{
    struct err err;
    r->n = layout_world(l);
    for (int64_t i = 0; i < r->n; i++)
        assert_ok(shards_build(m, params, l, i, &r->at[i], &err), &err);
}

static void ranks_close(struct ranks *r)
{
    for (int64_t i = 0; i < r->n; i++)
        shards_release(&r->at[i]);
}

/* ---- what a tp rank holds ---- */

static bool ends(const struct param *p, const char *end)
{
    return strlen(p->name) >= strlen(end) &&
           strcmp(p->name + strlen(p->name) - strlen(end), end) == 0;
}

/* Does tp rank t of T hold row `row`, column `col` of p? In words of params.c. */
static bool holds(const struct model *m, const struct param *p, int64_t t, int64_t T, int64_t row,
                  int64_t col)
{
    int64_t d = m->hidden / m->heads, head = row / d, H = m->heads, K = m->kv_heads;
    if (ends(p, ".cross.kv.weight"))
        return T <= K ? head % K / (K / T) == t : head % K == t / (T / K);
    if (ends(p, "qkv.weight") && head >= H)
        return T <= K ? (head - H) % K / (K / T) == t : (head - H) % K == t / (T / K);
    if (ends(p, "qkv.weight") || ends(p, ".cross.q.weight"))
        return head / (H / T) == t;
    if (ends(p, "fc1.weight"))
        return row % m->ffn / (m->ffn / T) == t;
    if (m->vocab && (ends(p, "token_embed.weight") || ends(p, "final.out.weight")))
        return row / num_ceil_div(m->vocab, T) == t;
    if (ends(p, "adaln.weight") || ends(p, ".b.weight"))
        return row / (p->dim[0] / T) == t;
    if ((ends(p, ".out.weight") && p->layer >= 0) || ends(p, "fc2.weight"))
        return col / (p->dim[1] / T) == t;
    return true;
}

/* want[g]: local element, -1 if not held. Local elements stand in global order. Returns how many
 * are held. */
static int64_t wanted_places(const struct model *m, const struct param *p, int64_t t, int64_t T,
                             int64_t *want)
{
    int64_t cols = p->nd > 1 ? p->count / p->dim[0] : p->count, n = 0;
    for (int64_t g = 0; g < p->count; g++)
        want[g] = holds(m, p, t, T, g / cols, g % cols) ? n++ : -1;
    return n;
}

/* Elements from g on that follow one another in both, or are all not held. */
static int64_t wanted_run(const int64_t *want, int64_t count, int64_t g)
{
    int64_t run = 1;
    while (g + run < count && want[g + run] == (want[g] < 0 ? -1 : want[g] + run))
        run++;
    return run;
}

static void check_point(const struct shard_tensor *s, const struct param *p, int64_t g,
                        int64_t local, int64_t run)
{
    int64_t got_run = -1, got = shard_to_local(s, p, g, &got_run);
    if (got != local || got_run != run)
        fail_msg("%s element %lld: local %lld run %lld, want %lld run %lld", p->name, (long long)g,
                 (long long)got, (long long)got_run, (long long)local, (long long)run);
    if (local < 0)
        return;
    got = shard_to_global(s, p, local, &got_run);
    if (got != g || got_run != run)
        fail_msg("%s local %lld: global %lld run %lld, want %lld run %lld", p->name,
                 (long long)local, (long long)got, (long long)got_run, (long long)g,
                 (long long)run);
}

/* Every run of a tensor from its first, its middle and its last element. */
static void check_tensor(const struct shard_tensor *s, const struct param *p, const int64_t *want)
{
    for (int64_t g = 0, run; g < p->count; g += run) {
        run = wanted_run(want, p->count, g);
        for (int k = 0; k < 3; k++) {
            int64_t in = (const int64_t[]){0, run / 2, run - 1}[k];
            check_point(s, p, g + in, want[g] < 0 ? -1 : want[g] + in, run - in);
        }
    }
}

static void places_and_runs(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (int64_t T = 1; T <= MOST_RANKS; T *= 2) {
            if (!day_has(i + (T == 1 || T == 4), 2))
                continue;
            struct model m = model_at(i);
            struct layout l = layout_default();
            struct param_list params;
            struct ranks r;
            l.tp = T;
            params_of(&m, &params);
            ranks_open(&m, &params, &l, &r);
            for (int64_t k = 0; k < params.n; k++) {
                const struct param *p = &params.items[k];
                int64_t *want = malloc((size_t)p->count * sizeof *want);
                for (int64_t t = 0; t < T; t++) {
                    assert_int_equal(r.at[t].tensors[k].count, wanted_places(&m, p, t, T, want));
                    check_tensor(&r.at[t].tensors[k], p, want);
                }
                free(want);
            }
            ranks_close(&r);
            params_release(&params);
        }
}

/* ---- what the ranges say ---- */

static void ranges_of_heads(void **state)
{
    struct model m = model_at(1); /* 8 heads of 2, 2 k/v heads */
    struct layout l = layout_default();
    struct param_list params;
    struct shards sh;
    struct err err;
    (void)state;
    l.tp = 8;
    params_of(&m, &params);
    /* head 5 uses k/v head 1, with ranks 4, 6, 7 */
    assert_ok(shards_build(&m, &params, &l, 5, &sh, &err), &err);
    const struct shard_tensor *t = &sh.tensors[params_find(&params, "blocks.3.attn.qkv.weight")];
    assert_int_equal(sh.kv_copies, 4);
    assert_int_equal(t->n, 3);
    assert_int_equal(t->first[0], 10);
    assert_int_equal(t->first[1], 16 + 2);
    assert_int_equal(t->first[2], 16 + 4 + 2);
    assert_int_equal(t->rows, 6);
    assert_int_equal(t->cols, 16);
    assert_int_equal(t->kv_row, 2);
    assert_int_equal(t->own_rows, 2);
    t = &sh.tensors[params_find(&params, "blocks.3.cross.kv.weight")];
    assert_int_equal(t->n, 2);
    assert_int_equal(t->kv_row, 0);
    assert_int_equal(t->own_rows, 0);
    t = &sh.tensors[params_find(&params, "blocks.3.mlp.fc2.weight")];
    assert_int_equal(t->n, 1);
    assert_int_equal(t->rows, 16);
    assert_int_equal(t->cols, 3);
    assert_int_equal(t->col, 15);
    shards_release(&sh);
    params_release(&params);
}

enum { TP = SHARD_SUM_TP, PP = SHARD_SUM_PP, KV = SHARD_SUM_KV };
static const struct { const char *layout, *name; unsigned sums; } sums_rows[] = {
    {"", "patch_embed.weight", 0},
    {"", "text_null", 0},
    {"", "blocks.0.attn.q_norm.weight", 0},
    {"", "blocks.0.adaln.a.weight", 0},
    {"dp=2,cp=2", "blocks.0.attn.k_norm.weight", 0}, /* the data group is summed in any case */
    {"tp=2", "patch_embed.weight", 0},
    {"tp=2", "final.out.weight", 0},
    {"tp=2,sp=1", "patch_embed.weight", TP},
    {"tp=2,sp=1", "final.out.weight", TP},
    {"tp=2", "blocks.0.attn.q_norm.weight", TP},
    {"tp=2", "blocks.0.attn.k_norm.weight", TP},
    {"tp=2", "blocks.0.spatial.q_norm.weight", TP},
    {"tp=2", "blocks.0.temporal.k_norm.weight", TP},
    {"tp=2", "blocks.0.cross.q_norm.weight", TP},
    {"tp=2", "blocks.8.cross.k_norm.weight", TP},
    {"tp=2", "blocks.8.adaln.a.weight", TP},
    {"tp=2", "final.adaln.a.weight", TP},
    {"tp=2", "final.adaln.b.weight", 0},
    {"tp=2", "blocks.8.adaln.b.weight", 0},
    {"tp=2", "text_null", TP},
    {"tp=2,sp=1", "time_mlp.0.weight", 0},
    {"tp=2,sp=1", "time_mlp.2.weight", 0},
    {"tp=2,sp=1", "fps_mlp.0.weight", 0},
    {"tp=2,sp=1", "fps_mlp.2.weight", 0},
    {"tp=2,sp=1", "cond_norm.weight", 0},
    {"tp=2", "blocks.0.attn.qkv.weight", 0}, /* two k/v heads */
    {"tp=4", "blocks.0.attn.qkv.weight", KV},
    {"tp=4", "blocks.0.cross.kv.weight", KV},
    {"tp=4", "blocks.0.cross.q.weight", 0},
    {"tp=4", "blocks.0.attn.out.weight", 0},
    {"tp=4", "blocks.0.mlp.fc1.weight", 0},
    {"pp=2", "time_mlp.0.weight", PP},
    {"pp=2", "fps_mlp.2.weight", PP},
    {"pp=2", "cond_norm.weight", PP},
    {"pp=2", "text_null", PP},
    {"pp=2,tp=2", "text_null", TP | PP},
    {"pp=2", "patch_embed.weight", 0},
    {"pp=2", "blocks.0.adaln.a.weight", 0},
};

static void sums_table(void **state)
{
    struct model m = model_at(2 * ADALNS + ADALN_LORA_FUSED); /* stdit */
    struct param_list params;
    (void)state;
    m.kv_heads = 2;
    m.text_width = 3;
    m.text_len = 5;
    params_of(&m, &params);
    for (size_t i = 0; i < ARRAY_LEN(sums_rows); i++) {
        struct layout l;
        struct shards sh;
        struct err err;
        int64_t at = params_find(&params, sums_rows[i].name);
        assert_true(at >= 0);
        assert_ok(layout_parse(sums_rows[i].layout, &l, &err), &err);
        for (int64_t rank = 0; rank < layout_world(&l); rank++) {
            assert_ok(shards_build(&m, &params, &l, rank, &sh, &err), &err);
            if (sh.tensors[at].offset >= 0 && sh.tensors[at].sums != sums_rows[i].sums)
                fail_msg("%s, %s: sums %u, want %u", sums_rows[i].layout, sums_rows[i].name,
                         sh.tensors[at].sums, sums_rows[i].sums);
            shards_release(&sh);
        }
    }
    params_release(&params);
}

/* The embedding that is the head too lives on both ends of a pipeline, which sum its gradients; the
 * first owns it. */
static void tied_ends(void **state)
{
    struct model m = model_at(VIDEOS);
    struct layout l = layout_default();
    struct param_list params;
    struct ranks r;
    (void)state;
    l.tp = 2, l.pp = 3;
    params_of(&m, &params);
    ranks_open(&m, &params, &l, &r);
    for (int64_t i = 0; i < r.n; i++) {
        const struct shard_tensor *t = &r.at[i].tensors[params_find(&params, "token_embed.weight")];
        int64_t rows = i % 2 ? 10 : 11; /* of 21 */
        bool first = i / 2 == 0, last = i / 2 == 2;
        assert_int_equal(t->offset >= 0, first || last);
        assert_int_equal(t->sums, first || last ? SHARD_SUM_ENDS : 0);
        assert_int_equal(t->count, first || last ? rows * 16 : 0);
        assert_int_equal(t->room, first || last ? 11 * 16 : 0);
        assert_int_equal(t->own_rows, first ? rows : 0);
    }
    ranks_close(&r);
    params_release(&params);
}

/* ---- flat layout ---- */

/* Units follow one another, divide into pieces and hold their tensors one behind the other. */
static void check_units(const struct shards *sh)
{
    int64_t at = 0;
    for (int64_t i = 0; i < sh->n_units; i++) {
        const struct shard_unit *u = &sh->units[i];
        assert_int_equal(u->offset, at);
        assert_int_equal(u->elements % (sh->group * BUFFER_FLAT_ALIGN), 0);
        for (int64_t k = u->first_param; k < u->first_param + u->n_params; k++) {
            const struct shard_tensor *t = &sh->tensors[k];
            assert_int_equal(t->offset % BUFFER_FLAT_ALIGN, 0);
            assert_true(t->offset >= at && t->offset - at < BUFFER_FLAT_ALIGN);
            assert_true(t->room >= t->count);
            at = t->offset + t->room;
        }
        assert_true(u->offset + u->elements - at < (sh->group + 1) * BUFFER_FLAT_ALIGN);
        at = u->offset + u->elements;
        assert_int_equal(shards_unit(sh, u->layer), i);
    }
    assert_int_equal(at, sh->total);
}

/* The tensors of every held layer are here and no others. */
static void check_held(const struct shards *sh, const struct model *m,
                       const struct param_list *params, const struct layout *l)
{
    for (int64_t i = 0; i < params->n; i++) {
        int64_t layer = params->items[i].layer, stage = 0;
        for (int64_t c = 0; c < l->pp * l->vpp; c++)
            if (layer >= layout_chunk_first(l, m->layers, c) &&
                layer < layout_chunk_first(l, m->layers, c + 1))
                stage = c % l->pp;
        if (layer == PARAM_LAYER_HEAD)
            stage = l->pp - 1;
        if (layer == PARAM_LAYER_COND || (layer == PARAM_LAYER_EMBED && m->tied_head &&
                                          sh->place.pp == l->pp - 1))
            stage = sh->place.pp;
        assert_int_equal(sh->tensors[i].offset >= 0, stage == sh->place.pp);
        assert_int_equal(shards_unit(sh, layer) >= 0, stage == sh->place.pp);
    }
}

/* `b` differs from `a` in tp only. */
static void check_same_flat(const struct shards *a, const struct shards *b)
{
    assert_int_equal(a->total, b->total);
    assert_int_equal(a->n_units, b->n_units);
    for (int64_t i = 0; i < a->n_tensors; i++)
        assert_int_equal(a->tensors[i].offset, b->tensors[i].offset);
}

static void check_same_conditioning(const struct shards *a, const struct shards *b)
{
    int64_t i = shards_unit(a, PARAM_LAYER_COND), k = shards_unit(b, PARAM_LAYER_COND);
    assert_int_equal(i < 0, k < 0);
    if (i < 0)
        return;
    const struct shard_unit *u = &a->units[i], *v = &b->units[k];
    assert_int_equal(u->elements, v->elements);
    for (int64_t p = u->first_param; p < u->first_param + u->n_params; p++)
        assert_int_equal(a->tensors[p].offset - u->offset, b->tensors[p].offset - v->offset);
}

/* Count what rank `sh` owns in its piece of a unit: +1 in seen[] of each global element of
 * parameter i. */
static void count_piece(const struct shards *sh, const struct shard_unit *u, int64_t i,
                        const struct param *p, unsigned char *seen)
{
    const struct shard_tensor *t = &sh->tensors[i];
    int64_t piece = u->elements / sh->group, first = u->offset + sh->group_rank * piece;
    int64_t from = num_max_i64(first - t->offset, 0),
            to = num_min_i64(first + piece - t->offset, t->own_rows * t->cols);
    for (int64_t j = from, run; j < to; j += run) {
        int64_t g = shard_to_global(t, p, j, &run);
        run = num_min_i64(run, to - j);
        for (int64_t k = 0; k < run; k++)
            seen[g + k]++;
    }
}

/* Every element of the model is owned once by the ranks of one shard group, over all tp and pp
 * places. */
static void check_owned_once(const struct ranks *r, const struct param_list *params,
                             int64_t first_data, const struct layout *l)
{
    unsigned char *seen = calloc((size_t)params->total, 1);
    for (int64_t k = 0; k < r->n; k++) {
        const struct shards *sh = &r->at[k];
        int64_t at = 0, data = layout_data_rank(l, sh->place);
        for (int64_t i = 0; i < params->n; at += params->items[i++].count)
            if (data >= first_data && data < first_data + sh->group && sh->tensors[i].offset >= 0)
                count_piece(sh, &sh->units[shards_unit(sh, params->items[i].layer)], i,
                            &params->items[i], seen + at);
    }
    for (int64_t g = 0; g < params->total; g++)
        if (seen[g] != 1)
            fail_msg("element %lld of the model is owned %d times", (long long)g, seen[g]);
    free(seen);
}

static void check_layout(const struct model *m, const struct param_list *params,
                         const struct layout *l)
{
    struct ranks r;
    ranks_open(m, params, l, &r);
    for (int64_t i = 0; i < r.n; i++) {
        struct layout_place tp0 = r.at[i].place, pp0 = r.at[i].place;
        tp0.tp = pp0.pp = 0;
        assert_int_equal(layout_rank(l, r.at[i].place), i);
        assert_int_equal(r.at[i].group, layout_shard_group(l));
        check_units(&r.at[i]);
        check_held(&r.at[i], m, params, l);
        check_same_flat(&r.at[layout_rank(l, tp0)], &r.at[i]);
        check_same_conditioning(&r.at[layout_rank(l, pp0)], &r.at[i]);
    }
    for (int64_t first = 0; first < l->dp * l->cp; first += r.at[0].group)
        check_owned_once(&r, params, first, l);
    ranks_close(&r);
}

static void every_layout(void **state)
{
    static struct layouts list;
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        struct model m = model_at(i);
        struct param_list params;
        params_of(&m, &params);
        layouts_of(&m, true, &list);
        for (int k = 0; k < list.n; k++)
            if (day_has(i + k, 2))
                check_layout(&m, &params, &list.items[k]);
        params_release(&params);
    }
}

/* ---- from one layout to another ---- */

/* One buffer a rank; element j of a tensor holds `base + global element`, base: elements of the
 * tensors before. */
static void buffers_fill(const struct ranks *r, const struct param_list *params, int32_t **buffers)
{
    for (int64_t k = 0; k < r->n; k++) {
        int64_t base = 0;
        buffers[k] = calloc((size_t)r->at[k].total, sizeof *buffers[k]);
        for (int64_t i = 0; i < params->n; base += params->items[i++].count) {
            const struct shard_tensor *t = &r->at[k].tensors[i];
            for (int64_t j = 0, run; j < t->count; j += run) {
                int64_t g = shard_to_global(t, &params->items[i], j, &run);
                for (int64_t e = 0; e < run; e++)
                    buffers[k][t->offset + j + e] = (int32_t)(base + g + e);
            }
        }
    }
}

/* The owned elements of tensor i on rank a that rank b holds too, compared through their global
 * places. Returns how many. */
static int64_t meet(const struct shards *a, const int32_t *from, const struct shards *b,
                    const int32_t *to, int64_t i, const struct param *p)
{
    const struct shard_tensor *s = &a->tensors[i], *t = &b->tensors[i];
    int64_t owned = s->own_rows * s->cols, n = 0;
    for (int64_t j = 0, run, other; j < owned && t->count; j += run) {
        int64_t local = shard_to_local(t, p, shard_to_global(s, p, j, &run), &other);
        run = num_min_i64(num_min_i64(run, other), owned - j);
        if (local < 0)
            continue;
        n += run;
        if (memcmp(from + s->offset + j, to + t->offset + local, (size_t)run * sizeof *from) != 0)
            fail_msg("%s: local %lld of tp %lld is not local %lld of tp %lld", p->name,
                     (long long)j, (long long)a->place.tp, (long long)local,
                     (long long)b->place.tp);
    }
    return n;
}

/* All that a rank under `b` holds is owned under `a`, each element by one rank. */
static void check_pair(const struct ranks *a, int32_t *const *from, const struct ranks *b,
                       int32_t *const *to, const struct param_list *params)
{
    for (int64_t k = 0; k < b->n; k++)
        for (int64_t i = 0; i < params->n; i++) {
            int64_t n = 0;
            for (int64_t o = 0; o < a->n && b->at[k].tensors[i].count; o++)
                n += meet(&a->at[o], from[o], &b->at[k], to[k], i, &params->items[i]);
            assert_int_equal(n, b->at[k].tensors[i].count);
        }
}

static void pairs_of(const struct model *m)
{
    static struct layouts list;
    static struct ranks ranks[MOST_LAYOUTS];
    static int32_t *buffers[MOST_LAYOUTS][MOST_RANKS];
    struct param_list params;
    params_of(m, &params);
    layouts_of(m, false, &list);
    for (int i = 0; i < list.n; i++) {
        ranks_open(m, &params, &list.items[i], &ranks[i]);
        buffers_fill(&ranks[i], &params, buffers[i]);
    }
    for (int a = 0; a < list.n; a++)
        for (int b = 0; b < list.n; b++)
            check_pair(&ranks[a], buffers[a], &ranks[b], buffers[b], &params);
    for (int i = 0; i < list.n; i++) {
        for (int64_t k = 0; k < ranks[i].n; k++)
            free(buffers[i][k]);
        ranks_close(&ranks[i]);
    }
    params_release(&params);
}

/* All pairs of the ways to cut: one model a family, with one, eight and two k/v heads, and one of
 * words. */
static void every_pair(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES + 1; i++) {
        struct model m = model_at((const int[]){ADALN_LORA_SEPARATE, ADALNS + ADALN_LORA_FUSED,
                                                2 * ADALNS + ADALN_LORA_FUSED, VIDEOS}[i]);
        pairs_of(&m);
    }
}

static void too_many(void **state)
{
    struct model m = model_at(0);
    struct param_list params;
    struct shards sh = {.total = 77};
    struct layout l = layout_default();
    struct err err;
    (void)state;
    params_of(&m, &params);
    params.total = (int64_t)1 << 62;
    assert_fails(shards_build(&m, &params, &l, 0, &sh, &err), ERR_LIMIT, &err,
                 "give a smaller model");
    assert_int_equal(sh.total, 77);
    params_release(&params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_and_runs), cmocka_unit_test(ranges_of_heads),
        cmocka_unit_test(sums_table),      cmocka_unit_test(every_layout),
        cmocka_unit_test(tied_ends),
        cmocka_unit_test(every_pair),      cmocka_unit_test(too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
