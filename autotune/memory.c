#include "autotune/memory.h"

#include <math.h>

#include "profiles/shard.h"

/* Elements of the trainer's tiles for matrix products and attention, and of the wider numbers that
 * it computes with in place of narrow ones. */
enum { TILE_ELEMENTS = 512 * 1024, WIDENED_ELEMENTS = 768 * 1024 };

/* What the trainer's tables take on a GPU (sums in parts, and the workspace of products), the slab
 * by which files cross, and what CUDA's libraries take a process, as loading them showed. */
enum { GPU_TABLE_BYTES = 64 << 20, GPU_SLAB_BYTES = 1 << 20, GPU_LIBRARY_BYTES = 155000000 };

static int state_of(const struct memory_spec *spec, const struct layout *l, int64_t tp_bytes,
                    const struct param_list *params, struct buffer_state *out, struct err *err)
{
    struct shards sh = {0};
    int rc;
    if ((rc = shards_build(spec->model, params, l, 0, &sh, err)) < 0)
        return rc;
    if ((rc = buffer_state_of(&sh, params, l, out, err)) < 0)
        goto out;
    out->ema = spec->ema, out->moments_bf16 = spec->moments_bf16;
    out->act = spec->dtype, out->stat = dtype_stat(spec->dtype);
    out->tp_bytes = tp_bytes;
out:
    shards_release(&sh);
    return rc;
}

/* Returns the bytes of the own pieces that a checkpoint has of a rank. */
static int64_t saved_copy_bytes(const struct memory_spec *spec, const struct buffer_state *s)
{
    int64_t stat = dtype_bytes(s->stat),
            moment = s->moments_bf16 ? dtype_bytes(DTYPE_BF16) : stat;
    return s->elements / s->group * stat +
           s->trained / s->group * (2 * moment + (spec->ema ? stat : 0));
}

/* Adds what ranks on GPUs hold on the host. `list` begins with what buffers_dit lists. */
static int pinned_add(const struct memory_spec *spec, const struct buffer_spec *dit,
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

/* Adds the state of rank 0, which holds the embedding besides its layers. */
static int state_add(const struct memory_spec *spec, const struct layout *l,
                     const struct buffer_spec *dit, struct buffer_list *list, struct err *err)
{
    struct param_list params;
    struct buffer_state state = {0};
    int rc = spec->finetune ? finetune_params(spec->model, spec->finetune, &params, err)
                          : params_build(spec->model, &params, err);
    if (rc < 0)
        return rc;
    if ((rc = state_of(spec, l, buffers_tp_sum_bytes(dit), &params, &state, err)) < 0)
        goto out;
    if ((rc = buffers_state(&state, list, err)) < 0)
        goto out;
    rc = pinned_add(spec, dit, &state, list, err);
out:
    params_release(&params);
    return rc;
}

static double bytes_of(const struct buffer_list *list, enum buffer_category category)
{
    return (double)buffer_list_bytes(list, category);
}

static int buffers_add(const struct memory_spec *spec, const struct layout *l,
                       struct buffer_list *list, struct err *err)
{
    const struct model *m = spec->model;
    struct buffer_spec buffers = {m,
                                  spec->dtype,
                                  dtype_stat(spec->dtype),
                                  seq_tokens(spec->seq) * l->mbs,
                                  l->mbs,
                                  m->text_len * l->mbs,
                                  l,
                                  1,
                                  seq_longest_segment(spec->seq),
                                  spec->finetune ? spec->finetune->lora.rank : 0,
                                  spec->residual_wide};
    int64_t tiles = TILE_ELEMENTS + (spec->dtype == DTYPE_BF16 ? WIDENED_ELEMENTS : 0);
    int rc;
    if ((rc = buffers_dit(&buffers, list, err)) < 0)
        return rc;
    if ((rc = state_add(spec, l, &buffers, list, err)) < 0)
        return rc;
    if (spec->gpus)
        return buffer_list_add(list, "tables", BUFFER_WORK, DTYPE_BYTE, 1, 1, GPU_TABLE_BYTES, err);
    return buffer_list_add(list, "tiles", BUFFER_WORK, dtype_stat(spec->dtype), 1, 1, tiles, err);
}

int memory_predict(const struct memory_spec *spec, const struct layout *l, struct memory_bytes *out,
                   struct err *err)
{
    struct buffer_list list = {0};
    int rc;
    if ((rc = buffers_add(spec, l, &list, err)) < 0)
        return rc;
    int64_t ranks = layout_world(l);
    struct memory_bytes b = {
        .process = (double)(buffers_process_bytes(ranks) + buffers_process_growth_bytes(ranks) +
                            (spec->gpus ? GPU_LIBRARY_BYTES : 0))};
    b.weights = bytes_of(&list, BUFFER_WEIGHT);
    b.gradients = bytes_of(&list, BUFFER_GRAD);
    b.optimizer = bytes_of(&list, BUFFER_OPTIM);
    b.ema = bytes_of(&list, BUFFER_EMA);
    b.activations = bytes_of(&list, BUFFER_SAVED) + bytes_of(&list, BUFFER_INPUT);
    b.work = bytes_of(&list, BUFFER_WORK);
    b.comm = bytes_of(&list, BUFFER_COMM);
    b.total = (double)list.total + b.process;
    b.device = spec->gpus ? (double)list.sides[BUFFER_ON_DEVICE] : 0;
    b.host = b.total - b.device;
    *out = b;
    return 0;
}

/* Stands for the loader's buffers and a BLAS library, before any trial. */
#define OVERHEAD_PRIOR_BYTES (4.0 * 1024 * 1024)

void memory_learn(struct memory_learned *m, double planned_bytes, double peak_bytes)
{
    double over = peak_bytes - planned_bytes;
    m->n++;
    m->overhead_sum += over;
}

double memory_peak(const struct memory_learned *m, double planned_bytes)
{
    double over = m->n ? m->overhead_sum / (double)m->n : OVERHEAD_PRIOR_BYTES;
    /* `over` is negative when planned pages are never touched */
    return fmax(planned_bytes + over, planned_bytes / 2);
}

double memory_fits(const struct memory_learned *m, double planned_bytes, double limit_bytes)
{
    if (limit_bytes <= 0)
        return 1; /* no limit known */
    double sd = m->n ? 0.04 : 0.10;
    return 0.5 * erfc(log(memory_peak(m, planned_bytes) / limit_bytes) / (sd * sqrt(2)));
}
