/* This file adds up the seconds of a step from those of the parts and messages that price_part.c
 * gives. price.h lists the terms.
 *
 * The pipeline (price_pipe.c) takes as long as the largest of its bounds, or as a replay of its
 * schedule. The terms for compute and messages are those of the stage that has the most work. The
 * bubble is the rest of the pipeline's time. Work that is done once a step, like the update, is
 * priced on the stage where it takes longest.
 *
 * Sharded state. Weights that are gathered for a unit can travel while another unit computes. The
 * constant gather_hidden says how much of that compute they can hide under. The same holds for
 * gradients that are scattered in every micro-batch. Gradients that are summed once a step hide
 * under the backward of the last micro-batch (the constant reduce_hidden says under how much of
 * it), except for the share of one layer. What does not fit there is exposed, and is in the sum.
 *
 * Shared wires. A ring hides under attention, sums of tensor-parallel ranks under products.
 * Messages of the state follow both on the wires that they need too, and travel beside them on
 * others. Let a unit compute for c seconds and wait for e more, as its own messages take longer
 * than what hides them; let these keep a kind of wire busy for r seconds, and messages of the state
 * for g. Then max(0, g - gather_hidden (c + e - r)) of g is exposed, on the kind of wire where that
 * is most. With it the unit takes (1 - gather_hidden) (c + e) + gather_hidden r + g: no computation
 * and no message that is faster makes it longer. The same holds for what is sent once a step, with
 * the sums of c, e and r over the backward that hides it.
 *
 * Ranks that share cores. On CPUs, N ranks may have only K cores between them. A rank that waits in
 * a pipeline then leaves its core to the others. So the step takes as long as the busiest rank, or
 * as long as all computation takes on K cores, whichever is longer. Ranks that work at the same
 * time also slow each other, by the share rank_loss for each further rank. Let c_s be the seconds
 * that stage s computes for a micro-batch, c those of the busiest stage, and m' the micro-batches
 * that a replica has on average:
 *
 *     contention   max(0, dp tp cp m' sum of c_s / K - m c - bubble) + rank_loss (min(N, K) - 1)
 *                  m c
 *
 * The update shares the cores in the same way, with a loss of its own, update_loss. Ranks that have
 * a device each have no contention.
 */
#include "autotune/price_pipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

#define PRICE_NAME(id, name, what) name,
const char *const price_term_names[PRICE_TERMS] = {PRICE_TERM_LIST(PRICE_NAME)};
#undef PRICE_NAME

static double seconds_of(const struct price_part *p) { return p->seconds; }
static double links_busy(const struct price_part *p) { return p->busy[PRICE_LINKS]; }
static double nics_busy(const struct price_part *p) { return p->busy[PRICE_NICS]; }
static double (*const busy_of[PRICE_WIRES])(const struct price_part *) = {links_busy, nics_busy};

/* ---- a stage ---- */

void price_state(const struct price *p, const struct layout *l, struct price_state *out)
{
    struct work_state st;
    memset(out, 0, sizeof *out);
    work_state(p->work, l, &st);
    for (int i = 0; i < WORK_STATES; i++) {
        if (st.bytes[i] <= 0)
            continue;
        struct price_route r = price_route(
            p->machine, price_group(l, p->work->model, st.group[i]), st.kind[i]);
        for (int u = 0; u < WORK_UNITS; u++) {
            double n = p->work->unit_elements[u];
            double bytes = n * (u == UNIT_LAYER ? st.layer_bytes[i] : st.bytes[i]);
            out->sends = out->sends || st.each[i];
            if (n > 0)
                price_route_busy(&r, bytes, st.each[i] ? out->each[i][u] : out->step[i][u]);
        }
    }
}

/* Returns the larger number: fmax() is a call, and takes a tenth of a search here. */
static double larger(double a, double b) { return a > b ? a : b; }

/* Returns by how much messages exceed what hides them, on the kind of wire where that is most. */
static double exposed(const double busy[PRICE_WIRES], const double room[PRICE_WIRES])
{
    return larger(0, larger(busy[PRICE_LINKS] - room[PRICE_LINKS],
                            busy[PRICE_NICS] - room[PRICE_NICS]));
}

/* Returns what hides messages, on the kind of wire that they keep busy longest; 0: there are no
 * messages. */
static double room_of(const double busy[PRICE_WIRES], const double room[PRICE_WIRES])
{
    int x = busy[PRICE_NICS] > busy[PRICE_LINKS] ? PRICE_NICS : PRICE_LINKS;
    return busy[x] > 0 ? room[x] : 0;
}

static double longer(const double busy[PRICE_WIRES])
{ return larger(busy[PRICE_LINKS], busy[PRICE_NICS]); }

/* Adds `count` units whose gathers and scatters may hide under the forward q[0] and the backward
 * q[1], whose recomputation leaves wires free for `again` seconds; NULL: under nothing. */
static void unit_add(const struct price *p, const struct price_state *st, enum work_unit_id u,
                     double gathered, double count, const struct price_part *q,
                     const double again[PRICE_WIRES], struct unit_price *out)
{
    bool overlap = q && p->machine->overlaps && p->work->stack->gathers_overlap;
    double share = overlap ? p->machine->v[CONSTANT_GATHER_HIDDEN] : 0;
    const double *reduce = st->each[STATE_REDUCE][u];
    double first[PRICE_WIRES], second[PRICE_WIRES], both[PRICE_WIRES], forward[PRICE_WIRES],
        backward[PRICE_WIRES];
    if (!st->sends)
        return;
    for (int x = 0; x < PRICE_WIRES; x++) {
        first[x] = gathered * st->each[STATE_GATHER_FORWARD][u][x];
        second[x] = gathered * st->each[STATE_GATHER_BACKWARD][u][x];
        both[x] = second[x] + reduce[x];
        forward[x] = overlap ? share * larger(0, price_free(&q[0], x)) : 0;
        backward[x] = overlap ? share * larger(0, price_free(&q[1], x) + again[x]) : 0;
    }
    double g = longer(first) + longer(second), r = longer(reduce), e2 = exposed(second, backward),
           e1 = exposed(first, forward), e3 = fmin(r, fmax(0, exposed(both, backward) - e2)),
           left = fmax(0, room_of(reduce, backward) - (longer(second) - e2));
    out->gather[0] += count * e1, out->gather[1] += count * e2;
    out->gather_hidden += count * (g - e1 - e2);
    out->reduce += count * e3, out->reduce_hidden += count * (r - e3);
    out->under_backward += count * (longer(second) - e2 + r - e3);
    out->gather_under += count * (room_of(first, forward) + room_of(second, backward));
    out->reduce_under += count * left;
    if (longer(backward) <= 0)
        out->gather_alone += count * g, out->reduce_alone += count * r;
}

/* Sums `of` over what a stage recomputes for a micro-batch. */
static double again_sum(const struct price *p, const struct work_stage *s,
                        double (*of)(const struct price_part *))
{
    double again = larger(0, s->full - s->there) * of(&p->parts[WORK_LAYER_FULL]) +
                   larger(0, s->selective - s->there) * of(&p->parts[WORK_LAYER_SELECTIVE]);
    return again * p->machine->v[CONSTANT_AGAIN];
}

static void stage_units(const struct price *p, const struct price_state *st,
                        const double gathered[WORK_UNITS], struct stage_price *out)
{
    const struct price_part *q = p->parts;
    double again[PRICE_WIRES] = {0}, none[PRICE_WIRES] = {0};
    for (int x = 0; x < PRICE_WIRES && out->s.layers > 0; x++)
        again[x] = (out->again - out->again_busy[x]) / out->s.layers;
    unit_add(p, st, UNIT_LAYER, gathered[UNIT_LAYER], out->s.layers,
             &q[WORK_LAYER_FORWARD], again, &out->units);
    unit_add(p, st, UNIT_EACH, gathered[UNIT_EACH], out->s.each, NULL, none, &out->units);
    if (out->s.first)
        unit_add(p, st, UNIT_FIRST, gathered[UNIT_FIRST], 1, NULL, none, &out->units);
    if (out->s.last)
        unit_add(p, st, UNIT_LAST, gathered[UNIT_LAST], 1, &q[WORK_LAST_FORWARD], none,
                 &out->units);
}

/* Sums `of` over a stage's parts of a micro-batch, forward (back 0) or backward (1), without
 * recomputation. */
static double stage_sum(const struct price *p, const struct work_stage *s, int back,
                        double (*of)(const struct price_part *))
{
    const struct price_part *q = p->parts + back;
    return s->layers * of(&q[WORK_LAYER_FORWARD]) + s->each * of(&q[WORK_EACH_FORWARD]) +
           (s->first ? of(&q[WORK_FIRST_FORWARD]) : 0) + (s->last ? of(&q[WORK_LAST_FORWARD]) : 0);
}

/* Prices what a stage reads and writes of its state. Norms and clearing have rates of their own: a
 * norm only reads, and memory that is only written is still read into the caches before. All else
 * is priced at the update's rate, because like the update it moves whole arrays in the gradients'
 * type. */
static void moved_price(const struct price *p, const struct layout *l, struct stage_price *out)
{
    const struct price_machine *m = p->machine;
    struct work_moved moved;
    work_moved(p->work, l, &out->s, &moved);
    out->pieces = moved.cleared / m->clear_bytes + moved.each / m->update_bytes;
    out->packed = moved.packed / m->update_bytes;
    out->update = moved.update / m->update_bytes + moved.norm / m->norm_bytes;
}

/* Prices a stage that recomputes for `again` seconds at least. */
static void stage_price(const struct price *p, const struct layout *l,
                        const struct price_state *st, int kind, double again,
                        struct stage_price *out)
{
    struct stage_price r = {0};
    work_stage(p->work, l, p->cuts[kind], &r.s);
    r.again = fmax(again, again_sum(p, &r.s, seconds_of));
    for (int x = 0; x < PRICE_WIRES; x++) {
        r.again_busy[x] = again_sum(p, &r.s, busy_of[x]);
        r.busy[0][x] = stage_sum(p, &r.s, 0, busy_of[x]);
        r.busy[1][x] = stage_sum(p, &r.s, 1, busy_of[x]) + r.again_busy[x];
    }
    moved_price(p, l, &r);
    double f = stage_sum(p, &r.s, 0, seconds_of),
           b = stage_sum(p, &r.s, 1, seconds_of) + r.again + r.pieces;
    double send = p->parts[WORK_SEND].seconds;
    stage_units(p, st, p->gathered[kind], &r);
    r.forward_compute = f, r.backward_compute = b;
    r.computes = stage_sum(p, &r.s, 0, price_compute) + stage_sum(p, &r.s, 1, price_compute) +
                 r.again + r.pieces;
    r.forward = f + r.s.sends[0] * send + r.units.gather[0];
    r.backward = b + r.s.sends[1] * send + r.units.gather[1] + r.units.reduce;
    *out = r;
}

/* ---- the pipeline ---- */

static int classes_of(const struct price *p, const struct layout *l, const struct price_state *st,
                      double again, struct stage_class out[PRICE_STAGES])
{
    int n = 0;
    for (int i = 0; i < PRICE_STAGES; i++) {
        if (p->cuts[i] >= p->cuts[i + 1])
            continue;
        out[n] = (struct stage_class){.from = p->cuts[i], .to = p->cuts[i + 1]};
        stage_price(p, l, st, i, again, &out[n++].price);
    }
    return n;
}

/* ---- the step ---- */

static void message_terms(const struct price_part *p, double count, struct price_step *out)
{
    out->term[PRICE_TP] += count * p->tp;
    out->hidden[PRICE_TP] += count * p->tp_hidden;
    out->term[PRICE_CP] += count * p->cp;
    out->hidden[PRICE_CP] += count * p->cp_hidden;
    out->under[PRICE_TP] += count * p->tp_under;
    out->alone[PRICE_TP] += count * p->tp_alone;
    out->under[PRICE_CP] += count * p->cp_under;
    out->alone[PRICE_CP] += count * p->cp_alone;
    out->fixed[PRICE_CP] += count * p->cp_fixed;
    out->fixed[PRICE_TP] += count * p->tp_fixed;
}

static void part_terms(const struct price_part *p, double count, struct price_step *out)
{
    out->term[PRICE_GEMM] += count * p->gemm;
    out->term[PRICE_ATTENTION] += count * p->attention;
    out->term[PRICE_ELEMENTWISE] += count * p->elementwise;
    out->term[PRICE_INPUTS] += count * p->inputs;
    out->term[PRICE_LAUNCH] += count * p->launch;
    message_terms(p, count, out);
}

/* Adds the terms of a part that is recomputed: its messages belong to those of their own groups. */
static void again_terms(const struct price_part *p, double count, struct price_step *out)
{
    out->term[PRICE_RECOMPUTE] += count * price_compute(p);
    message_terms(p, count, out);
}

/* Adds the seconds that a part computes, by class, as a trial on CPUs measures them. */
static void part_classes(const struct price_part *p, double count, double class_s[PRICE_TERMS])
{
    class_s[PRICE_GEMM] += count * p->gemm;
    class_s[PRICE_ATTENTION] += count * p->attention;
    class_s[PRICE_ELEMENTWISE] += count * p->elementwise;
    class_s[PRICE_INPUTS] += count * p->inputs;
}

/* Sets the seconds that a stage computes in a step, by class, recomputation included. */
static void stage_classes(const struct price *p, const struct stage_price *s,
                          double class_s[PRICE_TERMS])
{
    const struct price_part *q = p->parts;
    double m = p->work->micro_batches, again = m * p->machine->v[CONSTANT_AGAIN];
    memset(class_s, 0, PRICE_TERMS * sizeof *class_s);
    for (int back = 0; back < 2; back++) {
        part_classes(&q[WORK_LAYER_FORWARD + back], m * s->s.layers, class_s);
        part_classes(&q[WORK_EACH_FORWARD + back], m * s->s.each, class_s);
        part_classes(&q[WORK_FIRST_FORWARD + back], s->s.first ? m : 0, class_s);
        part_classes(&q[WORK_LAST_FORWARD + back], s->s.last ? m : 0, class_s);
    }
    double inputs = class_s[PRICE_INPUTS]; /* they are not recomputed */
    part_classes(&q[WORK_LAYER_FULL], again * fmax(0, s->s.full - s->s.there), class_s);
    part_classes(&q[WORK_LAYER_SELECTIVE], again * fmax(0, s->s.selective - s->s.there), class_s);
    class_s[PRICE_INPUTS] = inputs;
    class_s[PRICE_ELEMENTWISE] += m * s->pieces + s->packed;
    class_s[PRICE_OPTIMIZER] = s->update;
}

/* Sets each class to that of the stage where it is longest. */
static void longest_classes(const struct price *p, const struct stage_class *c, int n,
                            double class_s[PRICE_TERMS])
{
    memset(class_s, 0, PRICE_TERMS * sizeof *class_s);
    for (int i = 0; i < n; i++) {
        double one[PRICE_TERMS];
        stage_classes(p, &c[i].price, one);
        for (int t = 0; t < PRICE_TERMS; t++)
            class_s[t] = fmax(class_s[t], one[t]);
    }
}

/* Splits the seconds of the busiest stage's micro-batches into terms. */
static void busiest_terms(const struct price *p, const struct stage_price *s,
                          struct price_step *out)
{
    const struct price_part *q = p->parts;
    double m = p->work->micro_batches, again = m * p->machine->v[CONSTANT_AGAIN];
    for (int back = 0; back < 2; back++) {
        part_terms(&q[WORK_LAYER_FORWARD + back], m * s->s.layers, out);
        part_terms(&q[WORK_EACH_FORWARD + back], m * s->s.each, out);
        part_terms(&q[WORK_FIRST_FORWARD + back], s->s.first ? m : 0, out);
        part_terms(&q[WORK_LAST_FORWARD + back], s->s.last ? m : 0, out);
    }
    double sends = s->s.sends[0] + s->s.sends[1];
    out->term[PRICE_PP] = m * sends * seconds_of(&q[WORK_SEND]);
    out->hidden[PRICE_PP] = m * sends * q[WORK_SEND].pp_hidden;
    out->fixed[PRICE_PP] = m * sends * q[WORK_SEND].pp_fixed;
    out->term[PRICE_ELEMENTWISE] += m * s->pieces;
    again_terms(&q[WORK_LAYER_FULL], again * fmax(0, s->s.full - s->s.there), out);
    again_terms(&q[WORK_LAYER_SELECTIVE], again * fmax(0, s->s.selective - s->s.there), out);
    out->term[PRICE_GATHER] = m * (s->units.gather[0] + s->units.gather[1]);
    out->hidden[PRICE_GATHER] = m * s->units.gather_hidden;
    out->term[PRICE_REDUCE] = m * s->units.reduce;
    out->hidden[PRICE_REDUCE] = m * s->units.reduce_hidden;
    out->under[PRICE_GATHER] = m * s->units.gather_under;
    out->under[PRICE_REDUCE] = m * s->units.reduce_under;
    out->alone[PRICE_GATHER] = m * s->units.gather_alone;
    out->alone[PRICE_REDUCE] = m * s->units.reduce_alone;
}

/* Adds for how long one message of the state keeps wires busy, over a stage's units, if it is sent
 * once a step. */
static void step_state(const struct price_state *st, const struct work_stage *s,
                       enum work_state_id id, double busy[PRICE_WIRES])
{
    for (int x = 0; x < PRICE_WIRES; x++)
        busy[x] += s->layers * st->step[id][UNIT_LAYER][x] + st->step[id][UNIT_EACH][x] +
                   (s->first ? st->step[id][UNIT_FIRST][x] : 0) +
                   (s->last ? st->step[id][UNIT_LAST][x] : 0);
}

/* Returns the seconds of sums done once a step over groups other than the replicas, for gradients
 * that are partial sums on each rank. */
static double once_seconds(const struct price *p, const struct layout *l,
                           const struct work_stage *s)
{
    struct work_message once[WORK_ONCE];
    double sum = 0;
    for (int i = work_once(p->work, l, s, once) - 1; i >= 0; i--)
        sum += once[i].count * price_message(p->machine,
                                             price_group(l, p->work->model, once[i].group),
                                             once[i].kind, once[i].bytes);
    return sum;
}

/* Holds what a step does once: its seconds, those that are hidden, and parts of under[] and alone[]
 * in struct price_step. */
struct once {
    double reduce, gather, elementwise, optimizer, reduce_hidden, gather_hidden, reduce_under,
        gather_under, reduce_alone;
    int64_t stage;
};

/* Sets the seconds for which what is sent once a step can hide under a stage's forward or backward:
 * a share of those in which its layers' messages leave a wire free, less what its units use. */
static void once_rooms(const struct stage_price *s, int back, double share,
                       double out[PRICE_WIRES])
{
    double pass = back ? s->backward_compute : s->forward_compute;
    for (int x = 0; x < PRICE_WIRES; x++)
        out[x] = larger(0, share * larger(0, pass - s->busy[back][x]) -
                               (back ? s->units.under_backward : 0));
}

/* Prices what a step does once: reducing gradients, gathering weights, the update. */
static struct once once_of(const struct price *p, const struct layout *l,
                           const struct price_state *st, const struct stage_price *s)
{
    const struct stack *k = p->work->stack;
    const double *v = p->machine->v;
    double reduces[PRICE_WIRES] = {0}, gathers[PRICE_WIRES] = {0}, under[PRICE_WIRES],
           ahead[PRICE_WIRES];
    step_state(st, &s->s, STATE_REDUCE, reduces), step_state(st, &s->s, STATE_REPLICAS, reduces);
    step_state(st, &s->s, STATE_GATHER_STEP, gathers);
    bool overlaps = p->machine->overlaps;
    once_rooms(s, 1, overlaps && k->gradients_overlap ? v[CONSTANT_REDUCE_HIDDEN] : 0, under);
    once_rooms(s, 0, overlaps && k->gathers_overlap ? v[CONSTANT_GATHER_HIDDEN] : 0, ahead);
    double reduce = longer(reduces), gather = longer(gathers);
    double unit = s->s.layers > 0 ? reduce / s->s.layers : reduce;
    double hidden = fmax(0, reduce - larger(unit, exposed(reduces, under))),
           hidden_gather = gather - exposed(gathers, ahead), others = once_seconds(p, l, &s->s);
    return (struct once){.reduce = reduce - hidden + others, .gather = gather - hidden_gather,
                         .elementwise = s->packed, .optimizer = s->update,
                         .reduce_hidden = hidden, .gather_hidden = hidden_gather,
                         .reduce_under = room_of(reduces, under),
                         .gather_under = room_of(gathers, ahead),
                         .reduce_alone = fmin(unit, reduce) + others};
}

static double once_sum(const struct once *o)
{ return o->reduce + o->gather + o->optimizer + o->elementwise; }

/* Returns what is done once a step by the stage where it takes longest. */
static struct once longest_once(const struct price *p, const struct layout *l,
                                const struct price_state *st, const struct stage_class *c, int n)
{
    struct once most = once_of(p, l, st, &c[0].price);
    most.stage = c[0].from;
    for (int i = 1; i < n; i++) {
        struct once one = once_of(p, l, st, &c[i].price);
        one.stage = c[i].from;
        if (once_sum(&one) > once_sum(&most))
            most = one;
    }
    return most;
}

/* Adds the once-a-step terms of the stage where they take longest, as if all stages had left the
 * pipeline together. */
static void slowest_once(const struct price *p, const struct layout *l,
                         const struct price_state *st, const struct stage_class *c, int n,
                         struct price_step *out)
{
    struct once best = longest_once(p, l, st, c, n);
    out->once_stage = best.stage;
    out->term[PRICE_REDUCE] += best.reduce, out->term[PRICE_GATHER] += best.gather;
    out->term[PRICE_ELEMENTWISE] += best.elementwise, out->term[PRICE_OPTIMIZER] += best.optimizer;
    out->hidden[PRICE_REDUCE] += best.reduce_hidden;
    out->hidden[PRICE_GATHER] += best.gather_hidden;
    out->under[PRICE_REDUCE] += best.reduce_under, out->under[PRICE_GATHER] += best.gather_under;
    out->alone[PRICE_REDUCE] += best.reduce_alone;
}

/* Returns how much longer the step takes because ranks share cores. */
static double contention_s(const struct price *p, const struct layout *l,
                           const struct stage_class *c, int n, const struct stage_price *s,
                           double bubble)
{
    double cores = p->machine->cores, ranks = (double)(l->dp * l->tp * l->cp),
           world = (double)layout_world(l), m = p->work->micro_batches, computes = 0, update = 0,
           most = 0;
    if (cores <= 0)
        return 0;
    for (int i = 0; i < n; i++) {
        computes += (double)(c[i].to - c[i].from) * c[i].price.computes;
        update += (double)(c[i].to - c[i].from) * c[i].price.update;
        most = fmax(most, c[i].price.update);
    }
    double mean = p->work->samples_of_step / (double)(l->dp * l->mbs);
    double shared = ranks * fmin(m, fmax(1, mean)) * computes / cores,
           alone = m * s->computes + bubble;
    return fmax(0, shared - alone) + fmax(0, ranks * update / cores - most) +
           (fmin(world, cores) - 1) * (p->machine->rank_loss * m * s->computes +
                                       p->machine->update_loss * most);
}

static double spread_seconds(const struct price *p, double sum)
{ return sum * p->machine->v[CONSTANT_SPREAD] * p->rounds; }

static void whole_terms(const struct price *p, struct price_step *out)
{
    double sum = 0;
    for (int t = 0; t < PRICE_SPREAD; t++)
        sum += out->term[t];
    out->term[PRICE_SPREAD] = spread_seconds(p, sum);
    out->term[PRICE_OVERHEAD] = p->machine->v[CONSTANT_STEP_S];
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

static void step_of(const struct price *p, const struct layout *l, const struct price_state *st,
                    const struct stage_class *c, int n, double pipeline_s, struct price_step *out)
{
    const struct stage_price *s = busiest(c, n);
    memset(out, 0, sizeof *out);
    out->stage = s->s.stage;
    busiest_terms(p, s, out);
    if (l->pp > 1)
        out->term[PRICE_BUBBLE] =
            fmax(0, pipeline_s - p->work->micro_batches * (s->forward + s->backward));
    slowest_once(p, l, st, c, n, out);
    out->term[PRICE_CONTENTION] = contention_s(p, l, c, n, s, out->term[PRICE_BUBBLE]);
    whole_terms(p, out);
}

void price_step(const struct price *p, const struct layout *l, struct price_step *out)
{
    struct price_state st;
    struct stage_class c[PRICE_STAGES];
    price_state(p, l, &st);
    int n = classes_of(p, l, &st, 0, c);
    step_of(p, l, &st, c, n, price_pipe_bound(p->work->micro_batches, l, c, n), out);
}

void price_bound(const struct price *p, const struct layout *l, const struct price_state *st,
                 struct price_step *out)
{
    struct stage_class c[PRICE_STAGES];
    int n = classes_of(p, l, st, 0, c);
    step_of(p, l, st, c, n, price_pipe_replay_bound(p->work->micro_batches, l, c, n), out);
}

/* Sets the seconds of a stage for a micro-batch, without those of its state, and no more of it. */
static void bare_stage(const struct price *p, const struct layout *l, int64_t stage, double again,
                       struct stage_price *out)
{
    struct work_stage s;
    work_stage(p->work, l, stage, &s);
    double send = p->parts[WORK_SEND].seconds;
    out->forward = stage_sum(p, &s, 0, seconds_of) + s.sends[0] * send;
    out->backward = stage_sum(p, &s, 1, seconds_of) + s.sends[1] * send + again;
}

static int bare_classes(const struct price *p, const struct layout *l, double again,
                        struct stage_class out[PRICE_STAGES])
{
    int n = 0;
    for (int i = 0; i < PRICE_STAGES; i++)
        if (p->cuts[i] < p->cuts[i + 1]) {
            out[n].from = p->cuts[i], out[n].to = p->cuts[i + 1];
            bare_stage(p, l, p->cuts[i], again, &out[n++].price);
        }
    return n;
}

double price_least(const struct price *p, const struct layout *l, const struct price_state *st,
                   int64_t vpp, double again)
{
    struct stage_class c[PRICE_STAGES];
    struct layout bare = *l;
    double m = p->work->micro_batches;
    bare.recompute = RECOMPUTE_NONE, bare.recompute_layers = 0;
    int n = st ? classes_of(p, &bare, st, again, c) : bare_classes(p, &bare, again, c);
    bare.vpp = vpp;
    /* one number of virtual stages, or as many micro-batches as are replayed with any of them */
    bool closer = l->vpp == vpp || price_pipe_batches(&bare, (int64_t)m) == (int64_t)m;
    double sum = l->pp > 1 ? (closer ? price_pipe_replay_bound : price_pipe_bound)(m, &bare, c, n)
                           : m * (c[0].price.forward + c[0].price.backward);
    if (st) {
        struct once once = longest_once(p, &bare, st, c, n);
        sum += once_sum(&once);
    }
    return sum + spread_seconds(p, sum) + p->machine->v[CONSTANT_STEP_S];
}

void price_bill(const struct price_machine *m, const struct model *model, const struct layout *l,
                const struct price_step *step, struct price_bill *out)
{
    static const struct { enum price_term term; enum traffic_group group; } messages[] = {
        {PRICE_TP, TRAFFIC_TP}, {PRICE_CP, TRAFFIC_CP}, {PRICE_PP, TRAFFIC_PP},
        {PRICE_GATHER, TRAFFIC_SHARD}, {PRICE_REDUCE, TRAFFIC_SHARD},
        {PRICE_REDUCE, TRAFFIC_REPLICA}};
    double box = (double)cluster_domain_devices(m->cluster);
    *out = (struct price_bill){0};
    memcpy(out->term, step->term, sizeof out->term);
    memcpy(out->hidden, step->hidden, sizeof out->hidden);
    memcpy(out->under, step->under, sizeof out->under);
    memcpy(out->alone, step->alone, sizeof out->alone);
    memcpy(out->fixed, step->fixed, sizeof out->fixed);
    for (size_t i = 0; i < ARRAY_LEN(messages); i++)
        if (price_group_leaves(price_group(l, model, messages[i].group), box))
            out->far[messages[i].term] = 1;
}

int price_replay(const struct price *p, const struct layout *l, struct price_step *out,
                 struct err *err)
{
    struct price_state st;
    struct stage_class c[PRICE_STAGES];
    int64_t chunks = l->pp * l->vpp;
    double *cost = malloc((size_t)chunks * 2 * sizeof *cost);
    if (!cost)
        return err_set(err, ERR_NOMEM, "out of memory for a pipeline of %lld chunks",
                       (long long)chunks);
    price_state(p, l, &st);
    int n = classes_of(p, l, &st, 0, c);
    double s = price_pipe_replay(l, (int64_t)p->work->micro_batches, c, n, cost);
    free(cost);
    if (s < 0)
        return err_set(err, ERR_NOMEM, "out of memory for the replay of a pipeline");
    step_of(p, l, &st, c, n, s, out);
    longest_classes(p, c, n, out->class_s);
    return 0;
}
