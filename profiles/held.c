/* This file lists the buffers that a rank holds: those of the model, of the state, tiles or on GPUs
 * tables, whose sizes are estimated, and on GPUs pinned buffers. */
#include "profiles/held.h"

#include <string.h>

#include "profiles/schedule.h"
#include "profiles/shard.h"

/* These are the elements of the trainer's tiles for matrix products and attention, and of the wider
 * copies that it computes with in place of bf16 numbers. */
enum { TILE_ELEMENTS = 512 * 1024, WIDENED_ELEMENTS = 768 * 1024 };

/* These are the bytes of the pinned slab through which files pass. */
enum { GPU_SLAB_BYTES = 1 << 20 };

int held_state(const struct held_spec *spec, const struct layout *l,
               const struct param_list *params, int64_t stage, struct buffer_state *out,
               struct err *err)
{
    struct shards sh = {0};
    int64_t rank = layout_rank(l, (struct layout_place){.pp = stage});
    int rc;
    if ((rc = shards_build(spec->model, params, l, rank, &sh, err)) < 0)
        return rc;
    if ((rc = buffer_state_of(&sh, params, l, out, err)) < 0)
        goto out;
    out->ema = spec->ema, out->moments_bf16 = spec->moments_bf16;
    out->act = spec->dtype, out->stat = dtype_stat(spec->dtype);
out:
    shards_release(&sh);
    return rc;
}

/* Returns the bytes of a rank's own pieces that a checkpoint saves. */
static int64_t saved_copy_bytes(const struct held_spec *spec, const struct buffer_state *s)
{
    int64_t stat = dtype_bytes(s->stat),
            moment = s->moments_bf16 ? dtype_bytes(DTYPE_BF16) : stat;
    return s->elements / s->group * stat +
           s->trained / s->group * (2 * moment + (spec->ema ? stat : 0));
}

/* Adds the pinned buffers of ranks on GPUs. `list` must begin with the buffers of buffers_dit. */
static int pinned_add(const struct held_spec *spec, const struct buffer_spec *dit,
                      const struct buffer_state *state, struct buffer_list *list, struct err *err)
{
    struct buffer_stage stages[BUFFER_STAGES];
    int64_t copy = spec->ckpt_async ? saved_copy_bytes(spec, state) : 0;
    int rc;
    if (!spec->gpus)
        return 0;
    buffers_stages(state, dit, list, stages);
    if ((rc = buffers_stages_add(stages, list, err)) < 0)
        return rc;
    if ((rc = buffer_list_add_host(list, "staged micro-batches", BUFFER_INPUT, BUFFER_PINNED, 2,
                                   buffers_staged_bytes(dit), err)) < 0)
        return rc;
    return buffer_list_add_host(list, "files", BUFFER_WORK, BUFFER_PINNED, 1,
                                GPU_SLAB_BYTES + copy, err);
}

/* Returns the micro-batches of the first replica, which has the most. */
static int64_t micro_batches(const struct held_spec *spec, const struct layout *l)
{
    return spec->gbs > 0 ? layout_micro_batches(l, spec->gbs, 0) : l->pp;
}

static struct buffer_spec micro_of(const struct held_spec *spec, const struct layout *l,
                                   int64_t stage)
{
    const struct model *m = spec->model;
    return (struct buffer_spec){
        .model = m, .act = spec->dtype, .stat = dtype_stat(spec->dtype),
        .tokens = seq_tokens(spec->seq) * l->mbs, .samples = l->mbs,
        .text_tokens = m->text_len * l->mbs,
        .layout = l, .slots = schedule_in_flight(l->pp, l->vpp, micro_batches(spec, l), stage),
        .segment_tokens = seq_longest_segment(spec->seq),
        .lora_rank = spec->finetune ? spec->finetune->lora.rank : 0,
        .residual_wide = spec->residual_wide};
}

static int tables_add(const struct held_spec *spec, struct buffer_list *list, struct err *err)
{
    int64_t tiles = TILE_ELEMENTS + (spec->dtype == DTYPE_BF16 ? WIDENED_ELEMENTS : 0);
    if (spec->gpus)
        return buffer_list_add(list, "tables", BUFFER_WORK, DTYPE_BYTE, 1, 1, HELD_GPU_TABLE_BYTES,
                               err);
    return buffer_list_add(list, "tiles", BUFFER_WORK, dtype_stat(spec->dtype), 1, 1, tiles, err);
}

int held_list(const struct held_spec *spec, const struct layout *l,
              const struct buffer_state *kept, int64_t stage, struct buffer_list *list,
              struct err *err)
{
    struct buffer_spec micro = micro_of(spec, l, stage);
    struct buffer_state state = *kept;
    int rc;
    list->n = list->total = 0; /* items from n on are never read */
    memset(list->sides, 0, sizeof list->sides);
    state.tp_bytes = buffers_tp_sum_bytes(&micro);
    if ((rc = buffers_dit(&micro, list, err)) < 0)
        return rc;
    if ((rc = buffers_state(&state, list, err)) < 0)
        return rc;
    if ((rc = pinned_add(spec, &micro, &state, list, err)) < 0)
        return rc;
    return tables_add(spec, list, err);
}
