/* The tables below say what a rank sends, and when. The letters mean:
 *
 *     D  hidden            H, K  heads and k/v heads of a tp rank     d  head dim
 *     n  samples of a micro-batch
 *     s  their tokens on this cp rank; r those in this tp rank's rows (s without sp)
 *     a  ranks in an all-to-all group; b = cp / a groups in the ring
 *     h, k  heads after the exchange: H / a, and max(1, K / a)
 *     u(g)  tokens of all-to-all group g
 *     S  self-attentions, B sub-blocks of a layer, A of them are modulated
 *
 * Elements have type `act`, or `stat` where marked *. A layer sends in forward, in backward, and
 * when it is recomputed ("again": selective, full):
 *
 *   group  what                                    moved               forward   backward  again
 *   tp     modulation                              [n, 3 A D / tp]     1 (cond)  0         0, 0
 *   tp     gradient of a modulation (sp)           [n, 3 A D / tp] *   0         1         0, 0
 *   tp     token rows of tp ranks (sp)             [r, D]              B         2 B       B - S, B
 *   tp     ...'s output, in layout_tp_slices       [s, D]              1 each    0         1 each
 *   tp     gradient of a branch's input            [s, D]              0         B         0, 0
 *   a2a    q, k, v by heads                        [s, (h + 2k) d] to each   1   1         0, 1
 *   a2a    attention by tokens                     [u - s, h d]        1         0         0, 1
 *   a2a    attention, gradient of it, by heads     [s, h d] to each    0         1, 1      0, 0
 *   a2a    gradients of q, k, v by tokens          [u - s, (h + 2k) d] 0         1         0, 0
 *   ring   keys and values of the ring             [u(g), 2 k d]       b - 1     b - 1     0, b - 1
 *   ring   gradients of ... *                      [u(g), 2 k d]       0         b         0, 0
 *   cp     q, k, v by segments                     [s', (H + 2K) d]    1         1         0, 1
 *   cp     attention of segments by tokens         [g', H d]           1         0         0, 1
 *   cp     attention and its gradient by segments  [s', 2 H d]         0         1         0, 0
 *   cp     gradients of q, k, v of segments        [g', (H + 2K) d]    0         1         0, 0
 *
 * The lines of cp hold for each spatial or temporal attention. s' counts the rank's own tokens in
 * segments dealt to others, g' others' tokens in its own segments (trainer/dit/dit_segments.c deals
 * them). Outputs and the gradient of the input are summed by all-reduces, or with sp by
 * reduce-scatters. Of the recomputed layers, the one that ran last is not recomputed if its
 * backward comes next: its activations are still in the copy that all recomputed layers share.
 *
 *   a chunk of a micro-batch
 *   tp     modulation, and its gradient *, of the head  [n, 2 D / tp]
 *   tp     gradient of the conditioning *               [n, D], of the shared modulation *
 *                                                       [n, 3 D]: one all-reduce a backward
 *   pp     residual stream between stages               [r, D] to the next chunk; gradient back;
 *                                                       * with residual_wide
 *   shard  weights of a unit (zero 3)                   piece of each unit that is not in one of
 *                                                       the two working buffers, and of its
 *                                                       layer's frozen unit
 *   shard  gradients of a unit * (zero 2, 3)            unit after its backward
 *
 *   a step, for trained tensors
 *   shard  gradients of a unit * (zero 0, 1)            each unit
 *   shard  summed gradients of a unit * (zero 0)        piece of each unit
 *   shard  weights of a unit (zero 1, 2)                piece of each unit
 *   replica gradients over replicas *                   piece of each unit
 *   tp, kv, pp  gradients of what tp replicates, of copied k/v heads, of the conditioning *: the
 *                                                       spans of piece.h, packed
 */
#include "profiles/traffic.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "profiles/piece.h"
#include "profiles/schedule.h"

const char *const traffic_group_names[] = {
    "tp", "cp", "a2a", "ring", "pp", "kv", "shard", "replica", NULL};
const char *const traffic_kind_names[] = {"all-gather", "reduce-scatter", "all-reduce",
                                          "all-to-all", "send-recv",      NULL};

enum { NO_LAYER = -100, NO_UNIT = -1 };

struct kept { int64_t chunk, micro, layer; };
struct walk {
    const struct traffic_spec *spec;
    struct layout_place place;
    int64_t a, ring;           /* size of an all-to-all group; groups in the ring */
    int64_t heads, kv_heads, head_dim;
    int64_t working[2];        /* with zero 3, the units in the two working buffers */
    /* the layer whose activations are in the copy that recomputed layers share */
    struct kept kept;
    struct traffic_list *out;
};

/* Describes this rank's part of a micro-batch. */
struct extent {
    const struct traffic_micro *micro;
    /* tokens of this rank; how many of them are in its rows of the residual stream */
    int64_t s, rows;
};

/* ---- the list ---- */

static void sent(struct walk *w, enum traffic_group group, enum traffic_kind kind, const char *what,
                 int64_t elements, enum dtype type)
{
    struct traffic_list *list = w->out;
    struct traffic *t = list->items, *end = t + list->n;
    while (t < end && !(t->group == group && t->kind == kind && strcmp(t->what, what) == 0))
        t++;
    if (t == end) {
        BUG_ON(list->n == TRAFFIC_MAX);
        *t = (struct traffic){.group = group, .kind = kind, .what = what};
        list->n++;
    }
    t->ops++;
    t->bytes += elements * dtype_bytes(type);
}

int64_t traffic_bytes(const struct traffic_list *list, enum traffic_group group)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < list->n; i++)
        sum += list->items[i].group == group ? list->items[i].bytes : 0;
    return sum;
}

/* ---- groups ---- */

static int64_t size_of(const struct walk *w, enum traffic_group group)
{
    const struct layout *l = w->spec->layout;
    const struct model *m = w->spec->model;
    switch (group) {
    case TRAFFIC_TP: return l->tp;
    case TRAFFIC_CP: return l->cp;
    case TRAFFIC_A2A: return layout_a2a_group(l, m);
    case TRAFFIC_RING: return l->cp / layout_a2a_group(l, m);
    case TRAFFIC_PP: return l->pp;
    case TRAFFIC_KV: return num_max_i64(1, l->tp / m->kv_heads);
    case TRAFFIC_SHARD: return layout_shard_group(l);
    case TRAFFIC_REPLICA: return l->dp * l->cp / layout_shard_group(l);
    case TRAFFIC_GROUPS: break;
    }
    BUG_ON(true);
}

/* Returns the rank's place in a group over which sums are computed. */
static int64_t rank_in(const struct walk *w, enum traffic_group group)
{
    switch (group) {
    case TRAFFIC_TP: return w->place.tp;
    case TRAFFIC_KV: return w->place.tp % size_of(w, group);
    case TRAFFIC_PP: return w->place.pp;
    case TRAFFIC_REPLICA:
        return layout_data_rank(w->spec->layout, w->place) / w->spec->shards->group;
    default: BUG_ON(true);
    }
}

static void all_reduce(struct walk *w, enum traffic_group group, const char *what, int64_t n,
                       enum dtype type)
{
    int64_t size = size_of(w, group), own = n / size + (rank_in(w, group) < n % size);
    if (size > 1)
        sent(w, group, TRAFFIC_ALL_REDUCE, what, n - own + own * (size - 1), type);
}

/* ---- rows and columns over tp ---- */

static void rows_gather(struct walk *w, const struct extent *e)
{
    if (w->spec->layout->sp)
        sent(w, TRAFFIC_TP, TRAFFIC_ALL_GATHER, "token rows of tp ranks",
             e->rows * w->spec->model->hidden * (w->spec->layout->tp - 1), w->spec->act);
}

/* Returns the rows of slice c of a part. */
static int64_t slice_rows(int64_t rows, int64_t c, int64_t slices)
{ return rows * (c + 1) / slices - rows * c / slices; }

static int64_t part_rows(const struct walk *w, const struct extent *e, int64_t r)
{
    int64_t tp = w->spec->layout->tp;
    return layout_span_first(e->s, tp, r + 1) - layout_span_first(e->s, tp, r);
}

static void rows_sum(struct walk *w, const struct extent *e, int64_t slices, const char *what)
{
    const struct layout *l = w->spec->layout;
    int64_t D = w->spec->model->hidden;
    for (int64_t c = 0; c < slices; c++) {
        int64_t others = 0;
        for (int64_t r = 0; r < l->tp && l->sp; r++)
            others += r == w->place.tp ? 0 : slice_rows(part_rows(w, e, r), c, slices);
        if (l->sp)
            sent(w, TRAFFIC_TP, TRAFFIC_REDUCE_SCATTER, what, others * D, w->spec->act);
        else
            all_reduce(w, TRAFFIC_TP, what, slice_rows(e->s, c, slices) * D, w->spec->act);
    }
}

static void branch_sum(struct walk *w, const struct extent *e, const char *what)
{
    rows_sum(w, e, layout_tp_slices(w->spec->layout, e->s), what);
}

/* Counts the exchange of `width` modulation columns, or of their gradients. */
static void modulation(struct walk *w, const struct extent *e, int64_t width, bool back)
{
    const struct layout *l = w->spec->layout;
    int64_t n = e->micro->n * (width / l->tp) * (l->tp - 1);
    if (w->spec->model->adaln == ADALN_NONE || l->tp == 1 || (back && !l->sp))
        return;
    if (back)
        sent(w, TRAFFIC_TP, TRAFFIC_REDUCE_SCATTER, "gradient of a modulation", n, w->spec->stat);
    else
        sent(w, TRAFFIC_TP, TRAFFIC_ALL_GATHER, "modulation", n, w->spec->act);
}

static int64_t layer_mod_width(const struct model *m)
{ return 3 * model_modulations(m) * m->hidden; }
static int64_t head_mod_width(const struct model *m) { return 2 * m->hidden; }

/* ---- attention over cp ---- */

static int64_t between(int64_t x, int64_t low, int64_t high)
{ return num_max_i64(low, num_min_i64(x, high)); }

/* Counts the tokens of a sample before `token` whose index modulo `period` is in [first, end). */
static int64_t periodic_before(int64_t token, int64_t period, int64_t first, int64_t end)
{
    return token / period * (end - first) + between(token % period, first, end) - first;
}

struct traffic_dealt traffic_dealt(struct seq q, int64_t cp, int64_t rank, int64_t i, bool spatial)
{
    int64_t n = seq_tokens(q), frame = q.h * q.w, segments = spatial ? q.t : frame;
    int64_t turn = (rank + layout_segment_turn(segments, cp, i)) % cp;
    int64_t first = num_ceil_div(turn * segments, cp),
            end = num_ceil_div((turn + 1) * segments, cp);
    int64_t from = layout_span_first(n, cp, rank), to = layout_span_first(n, cp, rank + 1);
    if (spatial)
        return (struct traffic_dealt){(end - first) * frame,
                                      between(end * frame, from, to) -
                                          between(first * frame, from, to)};
    return (struct traffic_dealt){(end - first) * q.t,
                                  periodic_before(to, frame, first, end) -
                                      periodic_before(from, frame, first, end)};
}

static void segments(struct walk *w, const struct extent *e, bool spatial, bool back)
{
    int64_t qkv = (w->heads + 2 * w->kv_heads) * w->head_dim, o = w->heads * w->head_dim,
            leave = e->s, come = 0;
    if (w->spec->layout->cp == 1)
        return;
    for (int64_t i = 0; i < e->micro->n; i++) {
        struct traffic_dealt d = traffic_dealt(e->micro->samples[i], w->spec->layout->cp,
                                               w->place.cp, i, spatial);
        leave -= d.own;
        come += d.all - d.own;
    }
    sent(w, TRAFFIC_CP, TRAFFIC_ALL_TO_ALL, "q, k, v by segments", leave * qkv, w->spec->act);
    if (back) {
        sent(w, TRAFFIC_CP, TRAFFIC_ALL_TO_ALL, "attention and its gradient by segments",
             leave * 2 * o, w->spec->act);
        sent(w, TRAFFIC_CP, TRAFFIC_ALL_TO_ALL, "gradients of q, k, v of segments by tokens",
             come * qkv, w->spec->act);
    } else {
        sent(w, TRAFFIC_CP, TRAFFIC_ALL_TO_ALL, "attention of segments by tokens", come * o,
             w->spec->act);
    }
}

/* Returns u(g), the tokens of all-to-all group `group`. */
static int64_t group_tokens(const struct walk *w, const struct extent *e, int64_t group)
{
    int64_t tokens = 0, cp = w->spec->layout->cp;
    for (int64_t i = 0; i < e->micro->n; i++) {
        int64_t n = seq_tokens(e->micro->samples[i]);
        tokens +=
            layout_span_first(n, cp, (group + 1) * w->a) - layout_span_first(n, cp, group * w->a);
    }
    return tokens;
}

static void heads_exchange(struct walk *w, const struct extent *e, bool back)
{
    int64_t h = w->heads / w->a, k = num_max_i64(1, w->kv_heads / w->a), o = h * w->head_dim,
            qkv = (h + 2 * k) * w->head_dim;
    int64_t in = e->s * (w->a - 1), out = group_tokens(w, e, w->place.cp / w->a) - e->s;
    if (w->a == 1)
        return;
    sent(w, TRAFFIC_A2A, TRAFFIC_ALL_TO_ALL, "q, k, v by heads", in * qkv, w->spec->act);
    if (back) {
        sent(w, TRAFFIC_A2A, TRAFFIC_ALL_TO_ALL, "attention by heads", in * o, w->spec->act);
        sent(w, TRAFFIC_A2A, TRAFFIC_ALL_TO_ALL, "gradient of attention by heads", in * o,
             w->spec->act);
        sent(w, TRAFFIC_A2A, TRAFFIC_ALL_TO_ALL, "gradients of q, k, v by tokens", out * qkv,
             w->spec->act);
    } else {
        sent(w, TRAFFIC_A2A, TRAFFIC_ALL_TO_ALL, "attention by tokens", out * o, w->spec->act);
    }
}

/* Counts the ring's messages. Step j passes on the keys of the group j places before the rank's
 * own. */
static void ring(struct walk *w, const struct extent *e, bool back)
{
    int64_t own = w->place.cp / w->a, width = 2 * num_max_i64(1, w->kv_heads / w->a) * w->head_dim;
    for (int64_t j = 0; j < w->ring && w->ring > 1; j++) {
        int64_t n = group_tokens(w, e, (own - j + w->ring) % w->ring) * width;
        if (j + 1 < w->ring)
            sent(w, TRAFFIC_RING, TRAFFIC_SEND_RECV, "keys and values of the ring", n,
                 w->spec->act);
        if (back)
            sent(w, TRAFFIC_RING, TRAFFIC_SEND_RECV, "gradients of the ring's keys and values", n,
                 w->spec->stat);
    }
}

/* Counts self-attention number `self` of a layer. Where there are three, they are spatial, temporal
 * and full. */
static void attention(struct walk *w, const struct extent *e, int64_t self, bool back)
{
    if (self + 1 < model_self_attentions(w->spec->model)) {
        segments(w, e, self == 0, back);
        return;
    }
    heads_exchange(w, e, back);
    ring(w, e, back);
}

/* ---- units over the shard group ---- */

static int64_t piece_of_unit(const struct walk *w, int64_t unit)
{
    return w->spec->shards->units[unit].elements / w->spec->shards->group;
}

static void unit_gather(struct walk *w, int64_t unit, const char *what, enum dtype type)
{
    int64_t group = w->spec->shards->group;
    if (group > 1)
        sent(w, TRAFFIC_SHARD, TRAFFIC_ALL_GATHER, what, piece_of_unit(w, unit) * (group - 1),
             type);
}

static void unit_sum(struct walk *w, int64_t unit)
{
    int64_t group = w->spec->shards->group;
    if (group > 1)
        sent(w, TRAFFIC_SHARD, TRAFFIC_REDUCE_SCATTER, "gradients of a unit",
             piece_of_unit(w, unit) * (group - 1), w->spec->stat);
}

/* Counts the gathering of a unit and its sibling: the trained and the frozen tensors of a layer. */
static void both_gather(struct walk *w, int64_t unit)
{
    int64_t sibling = w->spec->shards->units[unit].sibling;
    unit_gather(w, unit, "weights of a unit", w->spec->act);
    if (sibling >= 0)
        unit_gather(w, sibling, "weights of a unit", w->spec->act);
}

/* Counts the gathering of a layer's weights, and of the next layer's, which are fetched ahead into
 * the second of two working buffers (trainer/state/units.c). */
static void unit_use(struct walk *w, int64_t layer, int64_t next_layer)
{
    int64_t unit = shards_unit(w->spec->shards, layer),
            next = next_layer == NO_LAYER ? NO_UNIT : shards_unit(w->spec->shards, next_layer);
    int have = w->working[1] == unit;
    if (w->spec->layout->zero < 3 || unit < 0)
        return;
    if (w->working[have] != unit)
        both_gather(w, unit);
    w->working[have] = unit;
    if (next >= 0 && w->working[!have] != next) {
        both_gather(w, next);
        w->working[!have] = next;
    }
}

static void unit_done(struct walk *w, int64_t layer)
{
    int64_t unit = shards_unit(w->spec->shards, layer);
    if (w->spec->layout->zero >= 2 && unit >= 0 && unit < w->spec->shards->n_trained)
        unit_sum(w, unit);
}

/* ---- layers ---- */

static int64_t sub_blocks(const struct model *m)
{ return model_self_attentions(m) + model_has_cross(m) + 1; }

/* Counts the sub-blocks of a layer. attended: the outputs of self-attention were kept (selective
 * recompute), so their inputs are not gathered again. */
static void sub_blocks_run(struct walk *w, const struct extent *e, bool attended)
{
    const struct model *m = w->spec->model;
    for (int64_t i = 0; i < model_self_attentions(m); i++) {
        if (!attended) {
            rows_gather(w, e);
            attention(w, e, i, false);
        }
        branch_sum(w, e, "self-attention's output");
    }
    if (model_has_cross(m)) {
        rows_gather(w, e);
        branch_sum(w, e, "cross-attention's output");
    }
    rows_gather(w, e);
    branch_sum(w, e, "MLP's output");
}

static bool recomputed(const struct walk *w, int64_t layer, int64_t first)
{
    const struct layout *l = w->spec->layout;
    if (l->recompute == RECOMPUTE_FULL)
        return l->recompute_layers == 0 || layer - first < l->recompute_layers;
    return l->recompute == RECOMPUTE_SELECTIVE;
}

static void layer_back(struct walk *w, const struct extent *e)
{
    const struct model *m = w->spec->model;
    for (int64_t sub = sub_blocks(m) - 1; sub >= 0; sub--) {
        rows_gather(w, e); /* rows of the gradient of the output */
        if (sub < model_self_attentions(m))
            attention(w, e, sub, true);
        rows_gather(w, e); /* rows of the input */
        rows_sum(w, e, 1, "gradient of a branch's input");
    }
    modulation(w, e, layer_mod_width(m), true);
}

/* ---- chunks ---- */

static void between_stages(struct walk *w, const struct extent *e, const char *what, bool receive,
                           bool send)
{
    enum dtype t = w->spec->residual_wide ? w->spec->stat : w->spec->act;
    if (receive)
        sent(w, TRAFFIC_PP, TRAFFIC_SEND_RECV, what, 0, t);
    if (send)
        sent(w, TRAFFIC_PP, TRAFFIC_SEND_RECV, what, e->rows * w->spec->model->hidden, t);
}

static struct kept kept_of(int64_t chunk, int64_t micro, int64_t layer)
{ return (struct kept){chunk, micro, layer}; }

static void chunk_forward(struct walk *w, const struct extent *e, int64_t chunk, int64_t micro)
{
    const struct model *m = w->spec->model;
    const struct layout *l = w->spec->layout;
    int64_t first = layout_chunk_first(l, m->layers, chunk),
            end = layout_chunk_first(l, m->layers, chunk + 1);
    bool last = end == m->layers;
    unit_use(w, PARAM_LAYER_COND, PARAM_LAYER_EMBED);
    if (first == 0)
        unit_use(w, PARAM_LAYER_EMBED, 0);
    for (int64_t i = first; i < end; i++) {
        unit_use(w, i, i + 1 < end ? i + 1 : last ? PARAM_LAYER_HEAD : NO_LAYER);
        modulation(w, e, layer_mod_width(m), false);
        sub_blocks_run(w, e, false);
        if (recomputed(w, i, first))
            w->kept = kept_of(chunk, micro, i);
    }
    if (last) {
        unit_use(w, PARAM_LAYER_HEAD, NO_LAYER);
        modulation(w, e, head_mod_width(m), false);
    }
    between_stages(w, e, "residual stream between stages", first > 0, !last);
}

static void layer_again(struct walk *w, const struct extent *e, struct kept layer)
{
    bool there = w->kept.chunk == layer.chunk && w->kept.micro == layer.micro &&
                 w->kept.layer == layer.layer;
    if (there)
        return;
    sub_blocks_run(w, e, w->spec->layout->recompute == RECOMPUTE_SELECTIVE);
    w->kept = layer;
}

static void conditioning_back(struct walk *w, const struct extent *e)
{
    const struct model *m = w->spec->model;
    unit_use(w, PARAM_LAYER_COND, NO_LAYER);
    if (m->adaln != ADALN_NONE) {
        all_reduce(w, TRAFFIC_TP, "gradient of the conditioning", e->micro->n * m->hidden,
                   w->spec->stat);
        if (model_shared_modulation(m))
            all_reduce(w, TRAFFIC_TP, "gradient of the shared modulation",
                       e->micro->n * 3 * m->hidden, w->spec->stat);
    }
    unit_done(w, PARAM_LAYER_COND);
}

/* Says whether the embedding has an adapter. Only then does its backward need weights. */
static bool embed_adapted(const struct param_list *params)
{
    for (int64_t i = 0; i < params->n; i++)
        if (params->items[i].layer == PARAM_LAYER_EMBED && params->items[i].lora)
            return true;
    return false;
}

static void chunk_backward(struct walk *w, const struct extent *e, int64_t chunk, int64_t micro)
{
    const struct model *m = w->spec->model;
    const struct layout *l = w->spec->layout;
    int64_t first = layout_chunk_first(l, m->layers, chunk),
            end = layout_chunk_first(l, m->layers, chunk + 1);
    bool last = end == m->layers, embed_again = first == 0 && embed_adapted(w->spec->params);
    if (last) {
        unit_use(w, PARAM_LAYER_HEAD, end - 1);
        modulation(w, e, head_mod_width(m), true);
        unit_done(w, PARAM_LAYER_HEAD);
    }
    for (int64_t i = end - 1; i >= first; i--) {
        unit_use(w, i, i > first ? i - 1 : embed_again ? PARAM_LAYER_EMBED : PARAM_LAYER_COND);
        if (recomputed(w, i, first))
            layer_again(w, e, kept_of(chunk, micro, i));
        layer_back(w, e);
        unit_done(w, i);
    }
    if (embed_again)
        unit_use(w, PARAM_LAYER_EMBED, PARAM_LAYER_COND);
    if (first == 0)
        unit_done(w, PARAM_LAYER_EMBED);
    conditioning_back(w, e);
    between_stages(w, e, "gradient between stages", !last, first > 0);
}

static struct extent extent_of(const struct walk *w, int64_t micro)
{
    const struct layout *l = w->spec->layout;
    struct extent e = {.micro = &w->spec->micros[micro]};
    for (int64_t i = 0; i < e.micro->n; i++) {
        int64_t n = seq_tokens(e.micro->samples[i]);
        e.s +=
            layout_span_first(n, l->cp, w->place.cp + 1) - layout_span_first(n, l->cp, w->place.cp);
    }
    e.rows = l->sp ? layout_span_first(e.s, l->tp, w->place.tp + 1) -
                         layout_span_first(e.s, l->tp, w->place.tp)
                   : e.s;
    return e;
}

static int micros_run(struct walk *w, struct err *err)
{
    const struct layout *l = w->spec->layout;
    int64_t n = schedule_length(l->pp, l->vpp, w->spec->n_micros);
    struct pipe_step *steps = malloc((size_t)n * sizeof *steps);
    if (!steps)
        return err_set(err, ERR_NOMEM, "no memory for the schedule of %lld micro-batches",
                       (long long)w->spec->n_micros);
    schedule_build(l->pp, l->vpp, w->spec->n_micros, w->place.pp, steps);
    for (int64_t i = 0; i < n; i++) {
        struct extent e = extent_of(w, steps[i].micro);
        int64_t chunk = steps[i].chunk * l->pp + w->place.pp;
        if (steps[i].kind == PIPE_FORWARD)
            chunk_forward(w, &e, chunk, steps[i].micro);
        else
            chunk_backward(w, &e, chunk, steps[i].micro);
    }
    free(steps);
    return 0;
}

/* ---- the update ---- */

static void replicas_sum(struct walk *w)
{
    for (int64_t u = 0; u < w->spec->shards->n_trained; u++)
        all_reduce(w, TRAFFIC_REPLICA, "gradients over replicas", piece_of_unit(w, u),
                   w->spec->stat);
}

static int partial_sums(struct walk *w, struct err *err)
{
    static const struct {
        enum piece_rule rule;
        enum traffic_group group;
        const char *what;
    } sums[] = {
        {PIECE_SUM_TP, TRAFFIC_TP, "gradients of what tp replicates"},
        {PIECE_SUM_KV, TRAFFIC_KV, "gradients of copied k/v heads"},
        {PIECE_SUM_PP, TRAFFIC_PP, "gradients of the conditioning"},
    };
    for (size_t i = 0; i < ARRAY_LEN(sums); i++) {
        struct piece_spans spans;
        int rc = piece_spans_build(w->spec->shards, w->spec->params, sums[i].rule, &spans, err);
        if (rc < 0)
            return rc;
        if (spans.n > 0)
            all_reduce(w, sums[i].group, sums[i].what, spans.elements, w->spec->stat);
        piece_spans_release(&spans);
    }
    return 0;
}

static int update_run(struct walk *w, struct err *err)
{
    int64_t zero = w->spec->layout->zero;
    for (int64_t u = 0; u < w->spec->shards->n_trained; u++) {
        if (zero < 2)
            unit_sum(w, u);
        if (zero == 0)
            unit_gather(w, u, "summed gradients of a unit", w->spec->stat);
        if (zero == 1 || zero == 2)
            unit_gather(w, u, "weights of a unit", w->spec->act);
    }
    replicas_sum(w);
    return partial_sums(w, err);
}

int traffic_step(const struct traffic_spec *spec, struct traffic_list *out, struct err *err)
{
    const struct layout *l = spec->layout;
    struct walk w = {.spec = spec,
                     .place = spec->shards->place,
                     .a = layout_a2a_group(l, spec->model),
                     .heads = spec->model->heads / l->tp,
                     .kv_heads = num_max_i64(1, spec->model->kv_heads / l->tp),
                     .head_dim = model_head_dim(spec->model),
                     .working = {NO_UNIT, NO_UNIT},
                     .kept = {.layer = NO_LAYER},
                     .out = out};
    BUG_ON(spec->n_micros < 1);
    w.ring = l->cp / w.a;
    *out = (struct traffic_list){0};
    int rc;
    if ((rc = micros_run(&w, err)) < 0)
        return rc;
    return update_run(&w, err);
}
