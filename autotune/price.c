/* How the terms are made. Symbols as in profiles/work.h; e, h, ... are constants.
 *
 *     gemm         for each product: 2 m n k / (peak e · m/(m+h) · n/(n+h) · k/(k+h)), or its
 *                  operands' bytes by the memory's bandwidth where that is longer; times `compute`;
 *                  slower where n or k is no multiple of 64, and again where it is none of 8
 *     attention    4 pairs heads d / (peak e · q/(q+h)), 2.5 times the FLOPs backward. Where the
 *                  scores are kept: products of 4 q k heads d, twice backward, and their bytes
 *     elementwise  bytes / (bandwidth · copy_share)
 *     launch       what kernels · launch_s exceed the three above by, part by part
 *
 * A message in which B bytes leave each of n ranks, k of them in each NVLink domain, which is a
 * node or several: inside a domain (n = k) B / (link share). Else the n/k domains form the outer
 * ring, whose edge carries B bytes; the G/k groups of a domain with G devices share its NICs, so B
 * (G/k) / (all NICs · share), or the link's time if that is longer; latency of log2(n/k) hops. An
 * all-to-all sends (n-k)/(n-1) of B through the NICs, for each rank.
 *
 * The pipeline. Stage s takes f_s and b_s for a micro-batch, with its messages. Of m micro-batches,
 * no schedule with the order of schedule.h ends before
 *
 *     for each s:  sum over i < s of (f_i + b_i)/v + m (f_s + b_s)
 *     v = 1:       sum of all (f_i + b_i) + (m - 1) b_s + max(0, m - pp + s) f_s
 *
 * The first: a stage's first forward needs those of the stages before it, and the first stage's
 * last backward those of the same. The second: until its first backward, which all forwards and the
 * later backwards precede, stage s does no more than pp - s forwards. The larger is the price; the
 * stage with the most work gives the other terms, and what is missing is the bubble. What a step
 * does once is that of the stage which takes longest for it.
 *
 * A replay has as many events as the pipeline has chunks and micro-batches. Of very many
 * micro-batches some pp · k fewer are replayed, and what the bound of all is above theirs is then
 * added.
 *
 * State in parts. Gathers of weights hide under the compute of their unit (gather_hidden of it),
 * scattered gradients too; what a step reduces once hides under reduce_hidden of the last
 * micro-batch's backward, but for one unit. What is left over is exposed.
 */
#include "autotune/price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "profiles/schedule.h"

enum { REPLAY_EVENTS = 1 << 16 };

#define PRICE_NAME(id, name, what) name,
const char *const price_term_names[PRICE_TERMS] = {PRICE_TERM_LIST(PRICE_NAME)};
#undef PRICE_NAME

void price_machine(const struct cluster *cluster, const double v[CONSTANTS], enum dtype dtype,
                   bool fp8, struct price_machine *out)
{
    const struct device *d = &cluster->device;
    struct price_machine m = {.cluster = cluster, .act_bytes = (double)dtype_bytes(dtype)};
    memcpy(m.v, v, sizeof m.v);
    fp8 = fp8 && d->peak_flops[DTYPE_FP8] > 0;
    m.attention_flops = d->peak_flops[dtype];
    m.peak_flops = d->peak_flops[fp8 ? DTYPE_FP8 : dtype];
    m.gemm_flops = fp8 ? d->peak_flops[DTYPE_FP8] * v[CONSTANT_FP8_SHARE]
                       : d->peak_flops[dtype] * v[CONSTANT_GEMM_SHARE];
    m.copy_bytes = d->memory_bytes_per_s * v[CONSTANT_COPY_SHARE];
    m.score_bytes = d->memory_bytes_per_s * v[CONSTANT_SCORES_SHARE];
    *out = m;
}

/* ---- messages ---- */

struct price_group price_row(double size, double stride)
{ return (struct price_group){{size, 1}, {stride, stride}}; }

static struct price_group rows(double n, double stride, double more, double more_stride)
{
    return stride <= more_stride ? (struct price_group){{n, more}, {stride, more_stride}}
                                 : (struct price_group){{more, n}, {more_stride, stride}};
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* Returns the stride of an axis: a place one further along it is so many ranks further. */
static double stride_of(const struct layout *l, struct layout_place one)
{ return (double)layout_rank(l, one); }

/* Returns the group of every `step`th of the dp·cp ranks that share a state, n of them. Where cp
 * and dp are neighbours in the order, with cp first, they are one row. Else step and n, of which
 * one is 1 or divides the rest, are dealt to cp as far as they go. */
static struct price_group data_group(const struct layout *l, int64_t step, int64_t n)
{
    double cp = stride_of(l, (struct layout_place){.cp = 1}),
           dp = stride_of(l, (struct layout_place){.dp = 1});
    if (dp == cp * (double)l->cp)
        return price_row((double)n, cp * (double)step);
    int64_t skip = gcd(step, l->cp), in_cp = gcd(n, l->cp / skip);
    return rows((double)in_cp, cp * (double)skip, (double)(n / in_cp), dp * (double)(step / skip));
}

struct price_group price_group(const struct layout *l, const struct model *m,
                               enum traffic_group group)
{
    int64_t shard = layout_shard_group(l), data = l->dp * l->cp;
    double cp = stride_of(l, (struct layout_place){.cp = 1});
    switch (group) {
    case TRAFFIC_TP:
        return price_row((double)l->tp, stride_of(l, (struct layout_place){.tp = 1}));
    case TRAFFIC_CP: return price_row((double)l->cp, cp);
    case TRAFFIC_A2A: return price_row((double)layout_a2a_group(l, m), cp);
    case TRAFFIC_RING: {
        int64_t a = layout_a2a_group(l, m);
        return price_row((double)(l->cp / a), (double)a * cp);
    }
    case TRAFFIC_PP:
        return price_row((double)l->pp, stride_of(l, (struct layout_place){.pp = 1}));
    case TRAFFIC_SHARD: return data_group(l, 1, shard);
    case TRAFFIC_REPLICA: /* with zero 0 no rank shards anything */
        return l->zero ? data_group(l, shard, data / shard) : data_group(l, 1, data);
    case TRAFFIC_KV:
    case TRAFFIC_GROUPS: break;
    }
    return price_row(1, 1);
}

/* Returns how many ranks of a group are in one NVLink domain of so many devices. A row that does
 * not fit into it leaves no room for another, as rows lie further apart than they are long. */
static double in_domain(double devices, struct price_group g)
{
    double n = 1;
    for (int i = 0; i < 2; i++)
        n *= fmin(g.size[i], fmax(1, floor(devices / g.stride[i])));
    return n;
}

bool price_group_leaves(struct price_group g, double box)
{
    for (int i = 0; i < 2; i++)
        if (g.size[i] > 1 && g.size[i] * g.stride[i] > box)
            return true;
    return false;
}

/* What a byte that leaves each rank takes on the links and on the NICs, the slower of which counts,
 * and what a message takes besides. */
struct route { double link_s, nic_s, latency_s; };

static struct route route_of(const struct price_machine *m, struct price_group g,
                             enum traffic_kind kind)
{
    const struct node_profile *node = &m->cluster->node;
    double devices = (double)cluster_domain_devices(m->cluster), size = g.size[0] * g.size[1];
    double k = in_domain(devices, g), domains = size / k;
    double link = 1 / (node->link_bytes_per_s * m->v[CONSTANT_LINK_SHARE]);
    if (size <= 1)
        return (struct route){0, 0, 0};
    if (domains <= 1)
        return (struct route){link, 0, node->link_latency_s * log2(size)};
    double nics = devices / (double)node->devices * (double)node->nics * node->nic_bytes_per_s *
                  m->v[CONSTANT_NIC_SHARE];
    double leave = kind == TRAFFIC_ALL_TO_ALL ? (size - k) / (size - 1) * devices : devices / k;
    return (struct route){k > 1 ? link : 0, leave / nics,
                          node->nic_latency_s * log2(domains) + node->link_latency_s * log2(k)};
}

static double route_seconds(const struct route *r, double bytes)
{ return fmax(bytes * r->link_s, bytes * r->nic_s) + r->latency_s; }

double price_message(const struct price_machine *m, struct price_group g, enum traffic_kind kind,
                     double bytes)
{
    struct route r = route_of(m, g, kind);
    return route_seconds(&r, bytes);
}

/* ---- parts ---- */

/* Returns by how much a product slows down for a side of this many elements: tensor cores and the
 * memory's sectors want multiples of 64, and of 8 at the least. */
static double ragged(const struct price_machine *m, double side)
{
    int64_t n = (int64_t)side;
    double slow = n % 64 == 0 ? 1 : 1 / m->v[CONSTANT_RAGGED];
    return n % 8 == 0 ? slow : slow / m->v[CONSTANT_RAGGED];
}

static double gemm_seconds(const struct price_machine *m, const struct work_gemm *g)
{
    double h = m->v[CONSTANT_GEMM_HALF];
    double flops = 2 * g->m * g->n * g->k / m->gemm_flops * (1 + h / g->m) * (1 + h / g->n) *
                   (1 + h / g->k) * fmax(ragged(m, g->n), ragged(m, g->k));
    double bytes = m->act_bytes * (g->m * g->k + g->k * g->n + g->m * g->n) / m->copy_bytes;
    return g->count * fmax(flops, bytes);
}

/* Returns what no product takes less than: constants were fitted on other shapes. */
static double peak_seconds(const struct price_machine *m, const struct work_gemm *g)
{ return g->count * 2 * g->m * g->n * g->k / m->peak_flops; }

static double attention_seconds(const struct price_machine *m, enum stack_attention kind,
                                const struct work_attention *a)
{
    double flops = 4 * a->pairs * a->heads * a->dim;
    if (attention_keeps_scores(kind)) {
        double h = m->v[CONSTANT_GEMM_HALF];
        double products = 4 * a->q * a->k * a->heads * a->dim / m->gemm_flops * (1 + h / a->q) *
                          (1 + h / a->k) * ragged(m, a->dim);
        return a->count * ((a->backward ? 2 : 1) * products + a->score_bytes / m->score_bytes);
    }
    double share = m->v[a->backward ? CONSTANT_ATTENTION_BACKWARD : CONSTANT_ATTENTION_FORWARD];
    if (kind == ATTENTION_FLASH1)
        share *= m->v[CONSTANT_FLASH1_SHARE];
    /* FlashAttention-2 was written for Ampere; devices with fp8 came later and have faster ones */
    if (kind == ATTENTION_FLASH2 && m->cluster->device.peak_flops[DTYPE_FP8] > 0)
        share *= m->v[CONSTANT_FLASH2_SHARE];
    return a->count * (a->backward ? 2.5 : 1) * flops / (m->attention_flops * share) *
           (1 + m->v[CONSTANT_ATTENTION_HALF] / a->q) * m->v[CONSTANT_ATTENTION_PACE];
}

static void message_price(const struct price_machine *m, const struct work *w,
                          const struct work_message *g, struct price_part *p)
{
    double one = price_message(m, price_group(&w->grid, w->model, g->group), g->kind, g->bytes);
    if (g->group == TRAFFIC_TP) {
        double hidden = w->stack->sums_overlap ? m->v[CONSTANT_SUM_HIDDEN] * one : 0;
        p->tp += g->count * (one - hidden + m->v[CONSTANT_SUM_S]);
        p->tp_hidden += g->count * hidden;
    } else if (g->group == TRAFFIC_PP) {
        bool hides = g->hide != HIDE_NOTHING;
        p->pp += g->count * (m->v[CONSTANT_SEND_S] + (hides ? 0 : one));
        p->pp_hidden += hides ? g->count * one : 0;
    } else if (g->hide == HIDE_ATTENTION) {
        double hidden = fmin(g->count * one, p->attention + p->launch);
        p->cp += g->count * (one + m->v[CONSTANT_SUM_S]) - hidden;
        p->cp_hidden += hidden;
    } else {
        p->cp += g->count * (one + m->v[CONSTANT_SUM_S]);
    }
}

static void part_price(const struct price_machine *m, const struct work *w,
                       const struct work_part *part, struct price_part *p)
{
    double slow = m->v[CONSTANT_COMPUTE];
    memset(p, 0, sizeof *p);
    for (int i = 0; i < part->n_gemms; i++)
        p->gemm += fmax(slow * gemm_seconds(m, &part->gemms[i]), peak_seconds(m, &part->gemms[i]));
    for (int i = 0; i < part->n_attentions; i++)
        p->attention += slow * attention_seconds(m, w->stack->attention, &part->attentions[i]);
    p->elementwise = slow *
                     (part->bytes * m->v[CONSTANT_ELEMENTWISE] +
                      part->norm_bytes * m->v[CONSTANT_NORM_PASSES]) /
                     m->copy_bytes;
    p->launch = fmax(0, part->kernels * m->v[CONSTANT_LAUNCH_S] - p->gemm - p->attention -
                            p->elementwise);
    for (int i = 0; i < part->n_messages; i++)
        message_price(m, w, &part->messages[i], p);
}

void price_parts(const struct price_machine *m, const struct work *w, struct price *out)
{
    out->machine = m;
    out->work = w;
    for (int i = 0; i < WORK_PARTS; i++)
        part_price(m, w, &w->parts[i], &out->parts[i]);
}

static double compute_of(const struct price_part *p)
{
    return p->gemm + p->attention + p->elementwise + p->launch;
}

static double seconds_of(const struct price_part *p)
{
    return compute_of(p) + p->tp + p->cp + p->pp;
}

/* ---- a stage ---- */

/* What gathering and scattering in every micro-batch exposes, for one unit. */
struct unit_price {
    double gather, gather_hidden, reduce, reduce_hidden;
    double under_backward; /* of what is hidden */
};

struct stage_price {
    struct work_stage s;
    double forward, backward;      /* seconds of a micro-batch, all of it */
    double again;                  /* of `backward`, forwards a second time */
    double forward_compute, backward_compute;
    struct unit_price units;       /* summed over its units, of a micro-batch */
};

struct state_seconds { double each[WORK_STATES][WORK_UNITS], step[WORK_STATES][WORK_UNITS]; };

/* Computes what each message of the state takes for each unit. */
static void state_price(const struct price *p, const struct layout *l, struct state_seconds *out)
{
    struct work_state st;
    memset(out, 0, sizeof *out);
    work_state(p->work, l, &st);
    for (int i = 0; i < WORK_STATES; i++) {
        if (st.bytes[i] <= 0)
            continue;
        struct route r = route_of(p->machine, price_group(l, p->work->model, st.group[i]),
                                  st.kind[i]);
        for (int u = 0; u < WORK_UNITS; u++) {
            double n = p->work->unit_elements[u];
            double s = n > 0 ? route_seconds(&r, n * st.bytes[i]) : 0;
            (st.each[i] ? out->each : out->step)[i][u] = s;
        }
    }
}

/* Adds `count` units whose gathers and scatters hide under a forward and a backward. */
static void unit_add(const struct price *p, const struct state_seconds *st, enum work_unit_id u,
                     double count, double forward, double backward, struct unit_price *out)
{
    bool overlap = p->work->stack->gathers_overlap;
    double share = overlap ? p->machine->v[CONSTANT_GATHER_HIDDEN] : 0;
    double g1 = st->each[STATE_GATHER_FORWARD][u], g2 = st->each[STATE_GATHER_BACKWARD][u],
           r = st->each[STATE_REDUCE][u];
    double h1 = fmin(g1, share * forward), h2 = fmin(g2, share * backward),
           h3 = fmin(r, fmax(0, share * backward - h2));
    out->gather += count * (g1 - h1 + g2 - h2);
    out->gather_hidden += count * (h1 + h2);
    out->reduce += count * (r - h3);
    out->reduce_hidden += count * h3;
    out->under_backward += count * (h2 + h3);
}

static double again_seconds(const struct price *p, const struct work_stage *s)
{
    double again = s->full * seconds_of(&p->parts[WORK_LAYER_FULL]) +
                   s->selective * seconds_of(&p->parts[WORK_LAYER_SELECTIVE]);
    return again * p->machine->v[CONSTANT_AGAIN];
}

static void stage_units(const struct price *p, const struct state_seconds *st,
                        struct stage_price *out)
{
    const struct price_part *q = p->parts;
    double again = out->s.layers > 0 ? out->again / out->s.layers : 0;
    unit_add(p, st, UNIT_LAYER, out->s.layers, compute_of(&q[WORK_LAYER_FORWARD]),
             compute_of(&q[WORK_LAYER_BACKWARD]) + again, &out->units);
    unit_add(p, st, UNIT_EACH, 1, 0, 0, &out->units);
    if (out->s.first)
        unit_add(p, st, UNIT_FIRST, 1, 0, 0, &out->units);
    if (out->s.last)
        unit_add(p, st, UNIT_LAST, 1, compute_of(&q[WORK_LAST_FORWARD]),
                 compute_of(&q[WORK_LAST_BACKWARD]), &out->units);
}

static void stage_price(const struct price *p, const struct layout *l,
                        const struct state_seconds *st, int64_t stage, struct stage_price *out)
{
    const struct price_part *q = p->parts;
    struct stage_price r = {0};
    work_stage(p->work, l, stage, &r.s);
    r.again = again_seconds(p, &r.s);
    double f = r.s.layers * seconds_of(&q[WORK_LAYER_FORWARD]) + seconds_of(&q[WORK_EACH_FORWARD]),
           b = r.s.layers * seconds_of(&q[WORK_LAYER_BACKWARD]) +
               seconds_of(&q[WORK_EACH_BACKWARD]) + r.again;
    if (r.s.first)
        f += seconds_of(&q[WORK_FIRST_FORWARD]), b += seconds_of(&q[WORK_FIRST_BACKWARD]);
    if (r.s.last)
        f += seconds_of(&q[WORK_LAST_FORWARD]), b += seconds_of(&q[WORK_LAST_BACKWARD]);
    double send = (double)l->vpp * seconds_of(&q[WORK_SEND]);
    stage_units(p, st, &r);
    r.forward_compute = f, r.backward_compute = b;
    /* a stage waits for what it sends and what it receives */
    double sends = l->pp > 1 ? (r.s.first || r.s.last ? 1 : 2) * send : 0;
    r.forward = f + sends + 0.5 * (r.units.gather);
    r.backward = b + sends + 0.5 * (r.units.gather) + r.units.reduce;
    *out = r;
}

/* ---- the pipeline ---- */

/* Stages between the first and the last are alike but for one layer: so there are four kinds. */
struct stage_class { int64_t from, to; struct stage_price price; };

static int classes_of(const struct price *p, const struct layout *l, const struct state_seconds *st,
                      struct stage_class out[4])
{
    int64_t pp = l->pp, more = p->work->model->layers % pp;
    int64_t cuts[5] = {0, 1, num_min_i64(num_max_i64(more, 1), pp - 1), pp - 1, pp};
    int n = 0;
    if (pp == 1) {
        out[0] = (struct stage_class){.from = 0, .to = 1};
        stage_price(p, l, st, 0, &out[0].price);
        return 1;
    }
    for (int i = 0; i < 4; i++) {
        if (cuts[i] >= cuts[i + 1])
            continue;
        out[n] = (struct stage_class){.from = cuts[i], .to = cuts[i + 1]};
        stage_price(p, l, st, cuts[i], &out[n++].price);
    }
    return n;
}

/* Returns the greater of the two bounds that stand at the top of this file. */
static double pipeline_bound(double m, const struct layout *l, const struct stage_class *c, int n)
{
    double v = (double)l->vpp, pp = (double)l->pp, all = 0, before = 0, most = 0;
    for (int i = 0; i < n; i++)
        all += (double)(c[i].to - c[i].from) * (c[i].price.forward + c[i].price.backward);
    for (int i = 0; i < n; i++) {
        double f = c[i].price.forward, b = c[i].price.backward, last = (double)(c[i].to - 1);
        double alike = last - (double)c[i].from;
        most = fmax(most, (before + alike * (f + b)) / v + m * (f + b));
        if (l->vpp == 1)
            most = fmax(most, all + (m - 1) * b + fmax(0, m - pp + last) * f);
        before += (alike + 1) * (f + b);
    }
    return most;
}

/* ---- the step ---- */

static void part_terms(const struct price_part *p, double count, struct price_step *out)
{
    out->term[PRICE_GEMM] += count * p->gemm;
    out->term[PRICE_ATTENTION] += count * p->attention;
    out->term[PRICE_ELEMENTWISE] += count * p->elementwise;
    out->term[PRICE_LAUNCH] += count * p->launch;
    out->term[PRICE_TP] += count * p->tp;
    out->hidden[PRICE_TP] += count * p->tp_hidden;
    out->term[PRICE_CP] += count * p->cp;
    out->hidden[PRICE_CP] += count * p->cp_hidden;
}

/* Splits the busiest stage's micro-batches into terms. */
static void busiest_terms(const struct price *p, const struct layout *l,
                          const struct stage_price *s, struct price_step *out)
{
    const struct price_part *q = p->parts;
    double m = p->work->micro_batches;
    for (int back = 0; back < 2; back++) {
        part_terms(&q[WORK_LAYER_FORWARD + back], m * s->s.layers, out);
        part_terms(&q[WORK_EACH_FORWARD + back], m, out);
        part_terms(&q[WORK_FIRST_FORWARD + back], s->s.first ? m : 0, out);
        part_terms(&q[WORK_LAST_FORWARD + back], s->s.last ? m : 0, out);
    }
    double sends = l->pp > 1 ? (s->s.first || s->s.last ? 2 : 4) * (double)l->vpp : 0;
    out->term[PRICE_PP] = m * sends * seconds_of(&q[WORK_SEND]);
    out->hidden[PRICE_PP] = m * sends * q[WORK_SEND].pp_hidden;
    out->term[PRICE_RECOMPUTE] = m * s->again;
    out->term[PRICE_GATHER] = m * s->units.gather;
    out->hidden[PRICE_GATHER] = m * s->units.gather_hidden;
    out->term[PRICE_REDUCE] = m * s->units.reduce;
    out->hidden[PRICE_REDUCE] = m * s->units.reduce_hidden;
}

/* Sums what a stage's units send once a step. */
static double step_state(const struct state_seconds *st, const struct work_stage *s,
                         enum work_state_id id)
{
    return s->layers * st->step[id][UNIT_LAYER] + st->step[id][UNIT_EACH] +
           (s->first ? st->step[id][UNIT_FIRST] : 0) + (s->last ? st->step[id][UNIT_LAST] : 0);
}

/* Adds what a step does once: reducing gradients, gathering weights, the update. */
static void once_terms(const struct price *p, const struct layout *l,
                       const struct state_seconds *st, const struct stage_price *s,
                       struct price_step *out)
{
    const struct stack *k = p->work->stack;
    const double *v = p->machine->v;
    double reduce = step_state(st, &s->s, STATE_REDUCE) + step_state(st, &s->s, STATE_REPLICAS);
    double gather = step_state(st, &s->s, STATE_GATHER_STEP);
    double under = k->gradients_overlap ? v[CONSTANT_REDUCE_HIDDEN] * s->backward_compute : 0;
    under = fmax(0, under - s->units.under_backward);
    double unit = s->s.layers > 0 ? reduce / s->s.layers : reduce;
    double hidden = fmin(fmax(0, reduce - unit), under);
    double ahead = k->gathers_overlap ? v[CONSTANT_GATHER_HIDDEN] * s->forward_compute : 0;
    double hidden_gather = fmin(gather, ahead);
    double n = work_stage_elements(p->work, &s->s), g = l->zero ? (double)layout_shard_group(l) : 1;
    out->term[PRICE_REDUCE] += reduce - hidden;
    out->hidden[PRICE_REDUCE] += hidden;
    out->term[PRICE_GATHER] += gather - hidden_gather;
    out->hidden[PRICE_GATHER] += hidden_gather;
    out->term[PRICE_OPTIMIZER] += n *
                                 (2 * p->work->gradient_bytes +
                                  2 * (p->work->optimizer_bytes + p->work->ema_bytes) +
                                  p->work->weight_bytes) /
                                 g / p->machine->copy_bytes;
}

/* Finds the stage whose updates end last, when all have left the pipeline together. */
static void slowest_once(const struct price *p, const struct layout *l,
                         const struct state_seconds *st, const struct stage_class *c, int n,
                         struct price_step *out)
{
    struct price_step best = {.seconds = -1};
    for (int i = 0; i < n; i++) {
        struct price_step one = {0};
        once_terms(p, l, st, &c[i].price, &one);
        one.seconds = one.term[PRICE_REDUCE] + one.term[PRICE_GATHER] + one.term[PRICE_OPTIMIZER];
        if (one.seconds > best.seconds)
            best = one;
    }
    for (int t = 0; t < PRICE_TERMS; t++)
        out->term[t] += best.term[t], out->hidden[t] += best.hidden[t];
}

static void whole_terms(const struct price *p, const struct layout *l, struct price_step *out)
{
    const double *v = p->machine->v;
    double ranks = (double)(l->tp * l->cp * l->pp * l->dp),
           nodes = ranks / (double)p->machine->cluster->node.devices;
    double sum = 0;
    for (int t = 0; t < PRICE_SPREAD; t++)
        sum += out->term[t];
    out->term[PRICE_SPREAD] = sum * v[CONSTANT_SPREAD] * log2(1 + fmax(0, nodes - 1));
    out->term[PRICE_OVERHEAD] = v[CONSTANT_STEP_S];
    out->seconds = sum + out->term[PRICE_SPREAD] + out->term[PRICE_OVERHEAD];
}

/* Finds the stage with the most work. */
static const struct stage_price *busiest(const struct stage_class *c, int n)
{
    const struct stage_price *best = &c[0].price;
    for (int i = 1; i < n; i++)
        if (c[i].price.forward + c[i].price.backward > best->forward + best->backward)
            best = &c[i].price;
    return best;
}

static void step_of(const struct price *p, const struct layout *l, const struct state_seconds *st,
                    const struct stage_class *c, int n, double pipeline_s, struct price_step *out)
{
    const struct stage_price *s = busiest(c, n);
    memset(out, 0, sizeof *out);
    out->stage = s->s.stage;
    busiest_terms(p, l, s, out);
    if (l->pp > 1)
        out->term[PRICE_BUBBLE] =
            fmax(0, pipeline_s - p->work->micro_batches * (s->forward + s->backward));
    slowest_once(p, l, st, c, n, out);
    whole_terms(p, l, out);
}

void price_step(const struct price *p, const struct layout *l, struct price_step *out)
{
    struct state_seconds st;
    struct stage_class c[4];
    state_price(p, l, &st);
    int n = classes_of(p, l, &st, c);
    step_of(p, l, &st, c, n, pipeline_bound(p->work->micro_batches, l, c, n), out);
}

/* Returns how many of m micro-batches are replayed: all, or as many less a multiple of pp as leave
 * the replay short. */
static int64_t replayed_batches(const struct layout *l, int64_t m)
{
    int64_t most = num_max_i64(REPLAY_EVENTS / (2 * l->pp * l->vpp), 4 * l->pp);
    return m <= most ? m : m - num_ceil_div(m - most, l->pp) * l->pp;
}

/* Replays the schedule. Returns its seconds, or -1: out of memory. `cost` is room for two seconds a
 * chunk. */
static double pipeline_replay(const struct layout *l, int64_t m, const struct stage_class *c,
                              int n, double *cost)
{
    int64_t chunks = l->pp * l->vpp, some = replayed_batches(l, m);
    for (int i = 0; i < n; i++)
        for (int64_t s = c[i].from; s < c[i].to; s++)
            for (int64_t v = 0; v < l->vpp; v++) {
                cost[v * l->pp + s] = c[i].price.forward / (double)l->vpp;
                cost[chunks + v * l->pp + s] = c[i].price.backward / (double)l->vpp;
            }
    double s = schedule_replay(l->pp, l->vpp, some, cost, cost + chunks, 0);
    if (s < 0 || some == m)
        return s;
    return s + pipeline_bound((double)m, l, c, n) - pipeline_bound((double)some, l, c, n);
}

int price_replay(const struct price *p, const struct layout *l, struct price_step *out,
                 struct err *err)
{
    struct state_seconds st;
    struct stage_class c[4];
    int64_t chunks = l->pp * l->vpp;
    double *cost = malloc((size_t)chunks * 2 * sizeof *cost);
    if (!cost)
        return err_set(err, ERR_NOMEM, "out of memory for a pipeline of %lld chunks",
                       (long long)chunks);
    state_price(p, l, &st);
    int n = classes_of(p, l, &st, c);
    double s = pipeline_replay(l, (int64_t)p->work->micro_batches, c, n, cost);
    free(cost);
    if (s < 0)
        return err_set(err, ERR_NOMEM, "out of memory for the replay of a pipeline");
    step_of(p, l, &st, c, n, s, out);
    return 0;
}
