/* held: lists every buffer of a rank of reel's own trainer under any layout, by pure arithmetic.
 *
 * The trainer allocates its buffers by the same functions (buffers.h), so prediction and allocation
 * agree. What a rank holds depends on its pipeline stage: how many micro-batches are in flight
 * there (schedule_in_flight), which layers it has, and whether it has the embedding or the head. It
 * does not depend on the rank's place along the other axes, whose parts have equal sizes or the
 * same bound. The list leaves out small things that only the trainer knows: indices, losses,
 * loaders. The size of its tiles is estimated. On GPUs some buffers are in device memory. The
 * others are in the host's memory: they hold messages and micro-batches that wait, and the copy
 * from which a checkpoint is written.
 *
 *     held_state(&spec, &layout, &params, stage, &kept, err);
 *     held_list(&spec, &layout, &kept, stage, &list, err);
 *     list.total      // bytes, without the process
 */
#ifndef PROFILES_HELD_H
#define PROFILES_HELD_H

#include "profiles/buffers.h"
#include "profiles/finetune.h"

struct held_spec {
    const struct model *model; /* borrowed, like all pointers here */
    struct seq seq;            /* tokens of a sample */
    int64_t gbs; /* samples of a step; 0: as many micro-batches as stages */
    enum dtype dtype;
    bool ema;
    const struct finetune *finetune; /* NULL: everything is trained */
    /* the model's list, which saves time when many layouts are listed; NULL: built for each */
    const struct param_list *params;
    bool moments_bf16, residual_wide;
    bool gpus;       /* ranks compute on GPUs */
    bool ckpt_async; /* checkpoints are written in the background, on GPUs from a copy */
};
/* These are the bytes of the trainer's tables on a GPU: partial sums, and the workspace of
 * products. */
enum { HELD_GPU_TABLE_BYTES = 64 << 20 };
/* Finds what a rank of a pipeline stage keeps from step to step, which does not depend on the
 * layout's mbs and recomputation. `params` comes from finetune_params() of the spec, or from
 * params_build() without one. Returns ERR_LIMIT for more than 2^62 elements, or ERR_NOMEM. */
int held_state(const struct held_spec *spec, const struct layout *l,
               const struct param_list *params, int64_t stage, struct buffer_state *out,
               struct err *err);
/* Lists the buffers of a rank of this stage; `kept` is from held_state(). Returns ERR_INPUT for a
 * model that is for planning only, ERR_LIMIT for more than 2^61 bytes. */
int held_list(const struct held_spec *spec, const struct layout *l,
              const struct buffer_state *kept, int64_t stage, struct buffer_list *list,
              struct err *err);

#endif
