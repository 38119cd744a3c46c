/* Tells the device's operations (ops.h, attn_plan) which attention calls future micro-batches will
 * make, so that they can prepare for them. All layers make the same calls, in buffers of the same
 * shapes, so the calls of one layer are announced. */
#include "trainer/dit/dit_priv.h"

static int sub_plan(struct dit *d, const struct dit_sub *sub, int64_t layer, bool backward,
                    struct err *err)
{
    if (sub->kind == DIT_SELF)
        return dit_attention_plan(d, layer, sub->self, backward, err);
    if (sub->kind != DIT_CROSS)
        return 0;
    struct ops_attn a = dit_cross_attn(d, layer, backward);
    return d->o->attn_plan(d->o, &a, backward, err);
}

static int subs_plan(struct dit *d, int64_t layer, bool backward, struct err *err)
{
    int rc = 0;
    for (int64_t i = 0; i < d->n_subs && rc == 0; i++)
        rc = sub_plan(d, &d->subs[i], layer, backward, err);
    return rc;
}

int dit_attn_plan(struct dit *d, const struct batch *b, bool backward, struct err *err)
{
    int rc;
    BUG_ON(!d->o->attn_plan);
    dit_chunk_take(d, 0, 0);
    if ((rc = dit_lay_segments(d, b, err)) < 0)
        return rc;
    if ((rc = subs_plan(d, d->slot->first, false, err)) < 0)
        return rc;
    return backward ? subs_plan(d, d->slot->first, true, err) : 0;
}
