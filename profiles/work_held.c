/* This file sums up what a rank holds from its account (work.h). */
#include "profiles/work.h"

#include <math.h>
#include <string.h>

#include "profiles/work_own.h"

#define WORK_HELD_NAME(id, name) name,
const char *const work_held_names[WORK_HELD] = {WORK_HELD_LIST(WORK_HELD_NAME)};
#undef WORK_HELD_NAME

static double largest_unit(const struct work *w, const struct work_stage *s)
{
    double n = w->unit_elements[UNIT_LAYER];
    if (s->first)
        n = fmax(n, w->unit_elements[UNIT_FIRST]);
    return s->last ? fmax(n, w->unit_elements[UNIT_LAST]) : n;
}

/* Adds the copies of layers' weights in fp8: of all weights, or of gathered ones. */
static void held_copies(const struct work *w, const struct layout *l, const struct work_stage *s,
                        double bytes[WORK_HELD])
{
    double layer = w->unit_elements[UNIT_LAYER] * w->copy_bytes;
    if (l->zero == 3)
        bytes[HELD_GATHERED] += layer * fmax(1, (double)w->stack->units_gathered);
    else
        bytes[HELD_PARAMETERS] += s->layers * layer;
}

static void held_state(const struct work *w, const struct layout *l, const struct work_stage *s,
                       double bytes[WORK_HELD])
{
    double n = work_stage_elements(w, s), g = l->zero ? (double)layout_shard_group(l) : 1;
    bytes[HELD_PARAMETERS] = n * w->weight_bytes / (l->zero == 3 ? g : 1);
    bytes[HELD_GRADIENTS] = n * w->gradient_bytes / (l->zero >= 2 ? g : 1);
    bytes[HELD_OPTIMIZER] = n * w->optimizer_bytes / g;
    bytes[HELD_EMA] = n * w->ema_bytes / g;
    held_copies(w, l, s, bytes);
    if (l->zero == 3 && g > 1)
        bytes[HELD_GATHERED] +=
            largest_unit(w, s) * w->act_bytes * (double)w->stack->units_gathered;
    if (l->zero >= 2 && g > 1)
        bytes[HELD_GATHERED] += largest_unit(w, s) * (double)w->stack->reduce_bytes;
}

/* Sets the larger of the bytes held at the end of the last stage's forward and in one layer's
 * backward. The logits are freed before the first layer's backward begins, and an allocator can
 * give their few large blocks back whole. A part of a layer's blocks, which are shared with tensors
 * that live on, may stay reserved beside the logits. */
static void held_peak(const struct work *w, const struct work_kept *k, const struct work_stage *s,
                      double logits, double bytes[WORK_HELD])
{
    double again = s->full > 0        ? k->none - k->full
                   : s->selective > 0 ? k->none - k->selective
                                      : 0;
    double layer = w->layer_work + fmax(0, again);
    double beside = w->stack->layer_stays * layer;
    bool end = s->last && logits + beside > layer;
    bytes[HELD_LOGITS] = end ? logits : 0;
    bytes[HELD_WORKSPACE] = end ? beside : layer;
}

/* Computes the bytes of a trainer of which only the stack's facts are known. */
static void held_of_stack(const struct work *w, const struct layout *l, const struct work_stage *s,
                          const struct work_scales *scales, double bytes[WORK_HELD])
{
    struct work_kept k = w->kept;
    k.none = scales->stream * k.stream + scales->inner * (k.none - k.stream);
    k.selective = scales->stream * k.stream + scales->inner * (k.selective - k.stream);
    double plain = s->layers - s->full - s->selective;
    double each = plain * k.none + s->selective * k.selective + s->full * k.full +
                  (s->first ? w->first_kept : 0) + w->each_kept;
    held_state(w, l, s, bytes);
    bytes[HELD_ACTIVATIONS] = s->in_flight * each;
    bytes[HELD_BUFFERS] = l->pp > 1 ? 4 * w->boundary : 0;
    held_peak(w, &k, s, w->logits * scales->logits, bytes);
}

void work_held(const struct work *w, const struct layout *l, const struct work_stage *s,
               const struct work_scales *scales, double bytes[WORK_HELD])
{
    memset(bytes, 0, WORK_HELD * sizeof *bytes);
    if (w->own)
        work_own_held(w, l, s, bytes);
    else
        held_of_stack(w, l, s, scales, bytes);
    bytes[HELD_ENCODERS] = w->encoder_bytes;
}

double work_padding_bytes(const struct work *w, const struct layout *l)
{ return w->own ? work_own_padding(w, l) : 0; }
