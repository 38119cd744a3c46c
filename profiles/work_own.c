#include "profiles/work_own.h"

#include <string.h>

#include "base/num.h"
#include "profiles/held.h"
#include "profiles/schedule.h"

/* ---- of a grid and a micro-batch ---- */

/* Says whether every tp rank gets equal parts, as the rules of layout.h demand. */
static bool cuts(const struct layout *l, const struct model *m)
{
    return m->heads % l->tp == 0 && m->ffn % l->tp == 0 &&
           (m->kv_heads % l->tp == 0 || l->tp % m->kv_heads == 0);
}

/* Adds elements from .. to - 1 of a unit to a rule's sums, or extends the range before. */
static void sum_add(struct work_cut *cut, enum work_unit_id unit, enum piece_rule rule,
                    int64_t from, int64_t to)
{
    struct work_sum *last = NULL;
    for (int i = 0; i < cut->n_sums; i++)
        if (cut->sums[i].unit == unit && cut->sums[i].rule == rule)
            last = &cut->sums[i];
    if (last && last->to == from) {
        last->to = to;
        return;
    }
    BUG_ON(cut->n_sums == WORK_SUMS);
    cut->sums[cut->n_sums++] = (struct work_sum){unit, rule, from, to};
}

/* Places a tensor behind those of its unit, and adds its partial sums. A range that reaches the
 * tensor's end includes the padding behind it. */
static void tensor_add(struct work_cut *cut, enum work_unit_id unit, const struct shard_tensor *t)
{
    int64_t at = cut->elements[unit], first, end;
    cut->elements[unit] += shard_tensor_room(t);
    cut->tensors[unit]++;
    for (enum piece_rule rule = PIECE_SUM_TP; rule < PIECE_RULES; rule++) {
        piece_rule_range(t, rule, &first, &end);
        if (first < end)
            sum_add(cut, unit, rule, at + first,
                    at + (end == t->count ? num_round_up(end, BUFFER_FLAT_ALIGN) : end));
    }
}

void work_own_cut(const struct work_spec *spec, const struct layout *l, struct work_cut *out)
{
    memset(out, 0, offsetof(struct work_cut, sums));
    out->cuts = cuts(l, spec->model);
    for (int i = 0; i < spec->weights->n_tensors && out->cuts; i++) {
        const struct work_tensor *w = &spec->weights->tensors[i];
        struct shard_tensor t = shard_tensor_cut(spec->model, l, (struct layout_place){0},
                                                 &w->kind);
        tensor_add(out, w->unit, &t);
    }
}

static struct buffer_spec micro_of(const struct work_spec *spec, const struct layout *l)
{
    const struct model *m = spec->model;
    return (struct buffer_spec){.model = m, .layout = l,
                                .act = spec->act, .stat = dtype_stat(spec->act),
                                .tokens = seq_tokens(spec->seq) * l->mbs, .samples = l->mbs,
                                .text_tokens = (spec->text ? spec->text : m->text_len) * l->mbs,
                                .segment_tokens = seq_longest_segment(spec->seq),
                                .residual_wide = spec->residual_wide};
}

void work_own_micro(const struct work_spec *spec, const struct layout *l, struct work *out)
{
    struct buffer_spec micro = micro_of(spec, l);
    if (out->cut.cuts)
        buffers_dit_totals(&micro, &out->micro);
    else
        out->micro.bytes[BUFFER_WORK][0] = BUFFER_TOO_MANY_BYTES;
}

/* ---- of a stage ---- */

/* Holds how many units of each kind a stage has, and what each takes in its flat buffer. */
struct stage_units { int64_t n[WORK_UNITS], room[WORK_UNITS]; };

static struct stage_units units_of(const struct work_cut *cut, const struct layout *l,
                                   const struct work_stage *s)
{
    struct stage_units u = {.n = {[UNIT_LAYER] = (int64_t)s->layers, [UNIT_FIRST] = s->first,
                                  [UNIT_LAST] = s->last, [UNIT_EACH] = 1}};
    for (int i = 0; i < WORK_UNITS; i++)
        u.room[i] = shard_unit_room(cut->elements[i], layout_shard_group(l));
    return u;
}

/* Counts the elements of the sums of the first rank of a shard group, which owns the first piece of
 * each unit. */
static void sums_count(const struct work_cut *cut, const struct stage_units *u, int64_t group,
                       int64_t out[PIECE_RULES])
{
    int64_t piece[WORK_UNITS];
    for (int i = 0; i < WORK_UNITS && cut->n_sums; i++)
        piece[i] = u->room[i] / group;
    for (int i = 0; i < cut->n_sums; i++) {
        const struct work_sum *s = &cut->sums[i];
        out[s->rule] +=
            u->n[s->unit] * num_max_i64(0, num_min_i64(s->to, piece[s->unit]) - s->from);
    }
}

/* Returns what held_state() finds, but for what only the sums' scratch depends on. */
static struct buffer_state state_of(const struct work *w, const struct layout *l,
                                    const struct work_stage *s)
{
    const struct work_cut *cut = &w->cut;
    struct stage_units u = units_of(cut, l, s);
    struct buffer_state st = {.group = layout_shard_group(l), .zero = (int)l->zero,
                              .ema = w->ema_bytes > 0, .act = w->act, .stat = dtype_stat(w->act),
                              .moments_bf16 = w->moment_bytes < w->stat_bytes};
    int64_t tensors = 0;
    for (int i = 0; i < WORK_UNITS; i++) {
        st.elements += u.n[i] * u.room[i];
        st.unit = u.n[i] ? num_max_i64(st.unit, u.room[i]) : st.unit;
        tensors += u.n[i] * cut->tensors[i];
    }
    st.trained = st.elements, st.trained_unit = st.unit;
    st.span_bytes = buffers_tensor_span_bytes(tensors);
    sums_count(cut, &u, st.group, st.pieces);
    return st;
}

void work_own_held(const struct work *w, const struct layout *l, const struct work_stage *s,
                   double bytes[WORK_HELD])
{
    struct buffer_state state = state_of(w, l, s);
    double rows[BUFFER_STATE_ROWS], of[BUFFER_CATEGORIES] = {0};
    int64_t slots = schedule_in_flight(l->pp, l->vpp, (int64_t)w->micro_batches, s->stage);
    buffers_state_bytes(&state, rows);
    buffers_totals_add(&w->micro, l, w->model->layers, slots, of);
    bytes[HELD_PARAMETERS] = rows[KEPT_WEIGHTS];
    bytes[HELD_GRADIENTS] = rows[KEPT_GRADS];
    bytes[HELD_OPTIMIZER] = rows[KEPT_MASTERS] + rows[KEPT_MOMENTS] + rows[KEPT_SPANS];
    bytes[HELD_EMA] = rows[KEPT_EMA];
    bytes[HELD_ACTIVATIONS] = of[BUFFER_INPUT] + of[BUFFER_SAVED];
    bytes[HELD_GATHERED] = rows[KEPT_GATHERED] + rows[KEPT_UNIT_GRADS] + rows[KEPT_UNIT_SUMS];
    bytes[HELD_BUFFERS] = rows[KEPT_PACK];
    bytes[HELD_WORKSPACE] = of[BUFFER_WORK] + rows[KEPT_SWAP] + HELD_GPU_TABLE_BYTES;
}

/* Adds up the padding, of which every unit has at most BUFFER_FLAT_ALIGN elements in each of its
 * pieces. Weights, gradients and units in use are whole; of own pieces there are masters, moments,
 * average, weights, gradients, their sums and partial sums, seven times `stat` at most. Each row is
 * also rounded to BUFFER_ALIGN_BYTES. */
double work_own_padding(const struct work *w, const struct layout *l)
{
    double act = w->act_bytes, stat = w->stat_bytes, piece = BUFFER_FLAT_ALIGN,
           whole = piece * (double)layout_shard_group(l);
    double units = (double)num_ceil_div(w->model->layers, l->pp) + WORK_UNITS;
    double kept = (l->zero < 3 ? act : 0) + (l->zero < 2 ? stat : 0);
    return units * (whole * kept + piece * 8 * stat) + 2 * whole * (act + stat) +
           (double)BUFFER_STATE_ROWS * BUFFER_ALIGN_BYTES;
}
