#include "autotune/price_work.h"

#include <math.h>
#include <string.h>

const char *const price_work_units[PRICE_TERMS] = {
    "FLOP", "FLOP", "B", "numbers", "FLOP", "operations", "B", "B", "B", "stages", "B", "B", "B",
    "s", "s", "steps"};

static double attention_flops(const struct work_part *p)
{
    double sum = 0;
    for (int i = 0; i < p->n_attentions; i++) {
        const struct work_attention *a = &p->attentions[i];
        sum += a->count * (a->backward ? 2.5 : 1) * 4 * a->pairs * a->heads * a->dim;
    }
    return sum;
}

static double gemm_flops(const struct work_part *p)
{
    double sum = 0;
    for (int i = 0; i < p->n_gemms; i++)
        sum += 2 * p->gemms[i].count * p->gemms[i].m * p->gemms[i].n * p->gemms[i].k;
    return sum;
}

static enum price_term term_of(enum traffic_group group)
{
    return group == TRAFFIC_TP ? PRICE_TP : group == TRAFFIC_PP ? PRICE_PP : PRICE_CP;
}

static void messages_add(const struct work_part *p, double count, double out[PRICE_TERMS])
{
    for (int i = 0; i < p->n_messages; i++)
        out[term_of(p->messages[i].group)] += count * p->messages[i].count * p->messages[i].bytes;
}

static void part_add(const struct work_part *p, double count, double out[PRICE_TERMS])
{
    out[PRICE_GEMM] += count * gemm_flops(p);
    out[PRICE_ATTENTION] += count * attention_flops(p);
    out[PRICE_ELEMENTWISE] += count * (p->bytes + p->input_bytes + p->sum_bytes);
    for (int i = 0; i < WORK_INPUTS; i++)
        out[PRICE_INPUTS] += count * p->inputs[i];
    out[PRICE_LAUNCH] += count * p->kernels;
    messages_add(p, count, out);
}

/* Returns how often a stage does a part for each micro-batch, without recomputation. */
static double part_count(const struct work_stage *s, int part)
{
    switch (part) {
    case WORK_LAYER_FORWARD:
    case WORK_LAYER_BACKWARD: return s->layers;
    case WORK_FIRST_FORWARD:
    case WORK_FIRST_BACKWARD: return s->first;
    case WORK_LAST_FORWARD:
    case WORK_LAST_BACKWARD: return s->last;
    case WORK_EACH_FORWARD:
    case WORK_EACH_BACKWARD: return s->each;
    case WORK_SEND: return s->sends[0] + s->sends[1];
    default: return 0;
    }
}

/* Holds the stage that is busiest, and the one where what is done once a step takes longest. */
struct work_stages { struct work_stage busiest, once; };

/* Returns the bytes of a message of the state on the stage whose time counts. */
static double state_bytes(const struct work *w, const struct work_state *st, enum work_state_id id,
                          const struct work_stages *stages)
{
    const struct work_stage *s = st->each[id] ? &stages->busiest : &stages->once;
    double less = (st->bytes[id] - st->layer_bytes[id]) * s->layers * w->unit_elements[UNIT_LAYER];
    return (st->bytes[id] * work_stage_elements(w, s) - less) *
           (st->each[id] ? w->micro_batches : 1);
}

/* Returns the bytes of sums done once a step over groups other than the replicas. */
static double once_bytes(const struct work *w, const struct layout *l, const struct work_stage *s)
{
    struct work_message once[WORK_ONCE];
    double sum = 0;
    for (int i = work_once(w, l, s, once) - 1; i >= 0; i--)
        sum += once[i].count * once[i].bytes;
    return sum;
}

/* Sets the bytes that sharding the state sends, and those of the update. Adds those that each
 * micro-batch moves to clear and add up gradients. */
static void state_add(const struct work *w, const struct layout *l,
                      const struct work_stages *stages, double out[PRICE_TERMS])
{
    struct work_state st;
    struct work_moved each, once;
    work_state(w, l, &st);
    out[PRICE_GATHER] = state_bytes(w, &st, STATE_GATHER_FORWARD, stages) +
                        state_bytes(w, &st, STATE_GATHER_BACKWARD, stages) +
                        state_bytes(w, &st, STATE_GATHER_STEP, stages);
    out[PRICE_REDUCE] = state_bytes(w, &st, STATE_REDUCE, stages) +
                        state_bytes(w, &st, STATE_REPLICAS, stages) +
                        once_bytes(w, l, &stages->once);
    work_moved(w, l, &stages->busiest, &each);
    work_moved(w, l, &stages->once, &once);
    out[PRICE_OPTIMIZER] = once.norm + once.update;
    out[PRICE_ELEMENTWISE] += w->micro_batches * (each.cleared + each.each) + once.packed;
}

/* Adds what a stage computes and sends once more. */
static void again_add(const struct price *p, const struct work_stage *s, double out[PRICE_TERMS])
{
    for (int i = WORK_LAYER_SELECTIVE; i <= WORK_LAYER_FULL; i++) {
        const struct work_part *part = &p->work->parts[i];
        double again = p->work->micro_batches *
                       fmax(0, (i == WORK_LAYER_FULL ? s->full : s->selective) - s->there);
        out[PRICE_RECOMPUTE] += again * (gemm_flops(part) + attention_flops(part));
        messages_add(part, again * p->machine->v[CONSTANT_AGAIN], out);
    }
}

static double seconds_before(const struct price_step *step, int t)
{
    double sum = 0;
    for (int i = 0; i < t; i++)
        sum += step->term[i];
    return sum;
}

void price_work(const struct price *p, const struct layout *l, const struct price_step *step,
                double out[PRICE_TERMS])
{
    const struct work *w = p->work;
    struct work_stages s;
    memset(out, 0, PRICE_TERMS * sizeof *out);
    work_stage(w, l, step->stage, &s.busiest);
    work_stage(w, l, step->once_stage, &s.once);
    for (int i = 0; i < WORK_PARTS; i++)
        part_add(&w->parts[i], w->micro_batches * part_count(&s.busiest, i), out);
    again_add(p, &s.busiest, out);
    state_add(w, l, &s, out);
    out[PRICE_BUBBLE] = (double)(l->pp - 1);
    out[PRICE_CONTENTION] = seconds_before(step, PRICE_CONTENTION);
    out[PRICE_SPREAD] = seconds_before(step, PRICE_SPREAD);
    out[PRICE_OVERHEAD] = 1;
}
