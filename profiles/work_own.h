/* work_own: computes what a rank of reel's own trainer holds, as held_list() lists it (held.h), but
 * without a list, so that a search can size thousands of layouts.
 *
 * The arithmetic is the list's: sums over the same tables of buffers (buffers_dit_totals,
 * buffers_state_bytes), tensors cut by shard_tensor_cut(), partial sums by piece_rule_range(). All
 * layers are alike and everything is trained, so a stage's flat buffer is a number of equal units.
 * Only the device's side is counted. The account's scales (struct work_scales) are for trainers of
 * which less is known, and are not used.
 */
#ifndef PROFILES_WORK_OWN_H
#define PROFILES_WORK_OWN_H

#include "profiles/work.h"

/* Computes how a grid cuts the model's tensors. */
void work_own_cut(const struct work_spec *spec, const struct layout *l, struct work_cut *out);
/* Adds up the buffers of a micro-batch, out->micro. Where nothing can be cut, there are too many
 * bytes. */
void work_own_micro(const struct work_spec *spec, const struct layout *l, struct work *out);
/* Computes work_padding_bytes(). */
double work_own_padding(const struct work *w, const struct layout *l);
/* Computes the bytes of work_held(). */
void work_own_held(const struct work *w, const struct layout *l, const struct work_stage *s,
                   double bytes[WORK_HELD]);

#endif
