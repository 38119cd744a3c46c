/* This file lists what a rank keeps from step to step, the scratch of its sums, and the pinned
 * memory of its messages. */
#include "profiles/buffers.h"

#include "base/num.h"

int64_t buffers_span_bytes(const struct shards *sh)
{
    int64_t tensors = 0;
    for (int64_t i = 0; i < sh->n_tensors; i++)
        tensors += shards_trained(sh, i);
    return buffers_tensor_span_bytes(tensors);
}

int64_t buffers_tensor_span_bytes(int64_t tensors)
{ return tensors * SHARD_RANGES * BUFFER_SPAN_BYTES; }

int buffer_state_of(const struct shards *sh, const struct param_list *params,
                    const struct layout *l, struct buffer_state *out, struct err *err)
{
    *out = (struct buffer_state){.elements = sh->total,
                                 .trained = sh->trained,
                                 .group = sh->group,
                                 .zero = (int)l->zero,
                                 .replicas = l->dp * l->cp / sh->group,
                                 .unit = shards_most_elements(sh),
                                 .trained_unit = shards_most_trained(sh),
                                 .tp = l->tp,
                                 .tp_uneven = l->sp,
                                 .kv = sh->kv_copies,
                                 .pp = l->pp,
                                 .span_bytes = buffers_span_bytes(sh)};
    return piece_sum_elements(sh, params, out->pieces, err);
}

/* Returns the elements of the longest packed sum over tp, kv or pp. */
static int64_t pack_elements(const struct buffer_state *spec)
{
    return num_max_i64(spec->pieces[PIECE_SUM_TP],
                       num_max_i64(spec->pieces[PIECE_SUM_KV], spec->pieces[PIECE_SUM_PP]));
}

/* Removes the scratch of sums that a library computes: those of f64 and f32 whose parts are
 * equal. */
static void library_scratch(const struct buffer_state *spec,
                            struct buffer_scratch out[BUFFER_GROUPS])
{
    for (int i = 0; i < BUFFER_GROUPS; i++)
        out[i].bytes = 0;
    if (spec->tp_uneven || spec->act == DTYPE_BF16)
        out[BUFFER_TP].bytes = spec->tp_bytes;
}

/* Computes the scratch of each group. With zero 2 and 3 the gradients of two units are summed at a
 * time while others are computed. */
void buffers_scratch(const struct buffer_state *spec, struct buffer_scratch out[BUFFER_GROUPS])
{
    int64_t size = dtype_bytes(spec->stat), unit = spec->trained_unit * size;
    out[BUFFER_SHARD] = (struct buffer_scratch){spec->group, spec->zero >= 2 ? 2 : 0, unit};
    out[BUFFER_REPLICA] = (struct buffer_scratch){spec->replicas, 0, unit / spec->group};
    out[BUFFER_TP] =
        (struct buffer_scratch){spec->tp, 0,
                                num_max_i64(spec->tp_bytes, spec->pieces[PIECE_SUM_TP] * size)};
    out[BUFFER_KV] = (struct buffer_scratch){spec->kv, 0, spec->pieces[PIECE_SUM_KV] * size};
    out[BUFFER_PP] = (struct buffer_scratch){spec->pp, 0, spec->pieces[PIECE_SUM_PP] * size};
    if (spec->sums == SUMS_OF_LIBRARY)
        library_scratch(spec, out);
}

int64_t buffer_scratch_part_bytes(const struct buffer_scratch *s)
{
    int64_t part =
        s->ranks <= 1 ? 0 : num_round_up(num_ceil_div(s->bytes, s->ranks), BUFFER_PART_ALIGN_BYTES);
    return s->works > 0 ? part : num_min_i64(part, BUFFER_EXCHANGE_BYTES);
}

int64_t buffer_scratch_bytes(const struct buffer_scratch *s)
{
    return s->ranks <= 1 ? 0
                         : buffer_scratch_part_bytes(s) * (s->ranks - 1) * num_max_i64(1, s->works);
}

int64_t buffer_ordered_bytes(const struct buffer_scratch *s)
{
    int64_t part = s->ranks <= 1 ? 0
                                 : num_round_up(num_ceil_div(s->bytes, s->ranks),
                                                BUFFER_PART_ALIGN_BYTES);
    return num_min_i64(part, BUFFER_ORDERED_BYTES) * s->ranks;
}

/* Adds the memory that devices need to sum among themselves: one block for each stream of
 * messages. */
static int blocks_add(const struct buffer_scratch s[BUFFER_GROUPS], struct buffer_list *list,
                      struct err *err)
{
    int64_t sums = num_max_i64(buffer_ordered_bytes(&s[BUFFER_SHARD]),
                               num_max_i64(buffer_ordered_bytes(&s[BUFFER_REPLICA]),
                                           buffer_ordered_bytes(&s[BUFFER_PP]))),
            messages = num_max_i64(buffer_ordered_bytes(&s[BUFFER_TP]),
                                   buffer_ordered_bytes(&s[BUFFER_KV]));
    int rc;
    if ((rc = buffer_list_add(list, "others' parts of sums of gradients", BUFFER_COMM, DTYPE_BYTE,
                              1, 1, sums, err)) < 0)
        return rc;
    return buffer_list_add(list, "others' parts of sums of activations", BUFFER_COMM, DTYPE_BYTE, 1,
                           1, messages, err);
}

static int scratch_add(const struct buffer_state *spec, struct buffer_list *list, struct err *err)
{
    static const char *const names[BUFFER_GROUPS] = {"others' parts of sums in the shard group",
                                                     "others' parts of sums over replicas",
                                                     "others' parts of sums over tp",
                                                     "others' parts of sums of k/v heads",
                                                     "others' parts of sums over stages"};
    struct buffer_scratch scratch[BUFFER_GROUPS];
    int rc;
    buffers_scratch(spec, scratch);
    if (spec->sums != SUMS_OF_HOST)
        return blocks_add(scratch, list, err);
    for (int i = 0; i < BUFFER_GROUPS; i++)
        if ((rc = buffer_list_add_host(list, names[i], BUFFER_COMM, BUFFER_ON_HOST, 1,
                                       buffer_scratch_bytes(&scratch[i]), err)) < 0)
            return rc;
    return 0;
}

struct state_row {
    const char *name;
    enum buffer_category category;
    enum dtype dtype;
    int64_t count, elements;
};

/* Fills the rows. Two working buffers of each kind are in use at a time: one unit takes part in
 * computation while another arrives or leaves. */
static void rows_fill(const struct buffer_state *spec, struct state_row out[BUFFER_STATE_ROWS])
{
    int64_t all = spec->trained, own = all / spec->group, states = spec->zero < 1 ? all : own,
            weights = spec->zero == 3 ? 2 : 0, grads = spec->zero >= 2 ? 2 : 0;
    bool master = spec->act != spec->stat;
    enum dtype t = spec->stat, act = spec->act;
    BUG_ON(all % spec->group || spec->elements % spec->group);
    out[KEPT_WEIGHTS] = (struct state_row){
        "weights", BUFFER_WEIGHT, act, 1,
        spec->zero < 3 ? spec->elements : spec->elements / spec->group};
    out[KEPT_MASTERS] = (struct state_row){"master weights", BUFFER_OPTIM, t, master, states};
    out[KEPT_GRADS] =
        (struct state_row){"gradients", BUFFER_GRAD, t, 1, spec->zero < 2 ? all : own};
    out[KEPT_MOMENTS] = (struct state_row){
        "adamw m, v", BUFFER_OPTIM, spec->moments_bf16 ? DTYPE_BF16 : t, 2, states};
    out[KEPT_EMA] = (struct state_row){"ema", BUFFER_EMA, t, spec->ema, states};
    out[KEPT_SWAP] = (struct state_row){"exchange of weights and average", BUFFER_WORK, t,
                                        spec->ema && !master, BUFFER_SWAP_ELEMENTS};
    out[KEPT_SPANS] =
        (struct state_row){"table of updates", BUFFER_OPTIM, DTYPE_BYTE, 1, spec->span_bytes};
    out[KEPT_GATHERED] =
        (struct state_row){"gathered weights", BUFFER_WORK, act, weights, spec->unit};
    out[KEPT_UNIT_GRADS] =
        (struct state_row){"gradients of a unit", BUFFER_WORK, t, grads, spec->trained_unit};
    out[KEPT_UNIT_SUMS] = (struct state_row){"summed gradients of a unit", BUFFER_COMM, t, grads,
                                             spec->trained_unit / spec->group};
    out[KEPT_PACK] = (struct state_row){"partial sums", BUFFER_COMM, t, 1, pack_elements(spec)};
}

int buffers_state(const struct buffer_state *spec, struct buffer_list *list, struct err *err)
{
    struct state_row rows[BUFFER_STATE_ROWS];
    int rc;
    rows_fill(spec, rows);
    for (int i = 0; i < BUFFER_STATE_ROWS; i++)
        if ((rc = buffer_list_add(list, rows[i].name, rows[i].category, rows[i].dtype,
                                  rows[i].count, 1, rows[i].elements, err)) < 0)
            return rc;
    return scratch_add(spec, list, err);
}

void buffers_state_bytes(const struct buffer_state *spec, double bytes[BUFFER_STATE_ROWS])
{
    struct state_row rows[BUFFER_STATE_ROWS];
    int64_t copy;
    rows_fill(spec, rows);
    for (int i = 0; i < BUFFER_STATE_ROWS; i++)
        bytes[i] = rows[i].count == 0 ? 0
                   : buffer_copy_bytes(1, rows[i].elements, rows[i].dtype, &copy)
                       ? (double)(rows[i].count * copy)
                       : BUFFER_TOO_MANY_BYTES;
}

/* ---- messages that wait in pinned memory ---- */

int64_t buffer_stage_bytes(int64_t sent, int64_t received)
{
    return num_round_up(sent, BUFFER_PART_ALIGN_BYTES) +
           num_round_up(received, BUFFER_PART_ALIGN_BYTES);
}

/* Returns the bytes of pinned memory for a gather or scatter of `elements` in the shard group: this
 * rank's part on one side, all parts on the other. */
static int64_t parts_bytes(const struct buffer_state *spec, int64_t elements, enum dtype t)
{
    int64_t bytes = elements * dtype_bytes(t);
    return buffer_stage_bytes(bytes / spec->group, bytes);
}

/* Writes how many messages of the shard group are in flight at the same time, and their sizes. With
 * zero 3 the weights of two units arrive while the gradients of two units leave; the frozen part of
 * a unit comes in a message of its own. Otherwise gradients leave during backward, and gradients or
 * weights are gathered after it, which needs no more room. */
static void shard_stages(const struct buffer_state *spec, struct buffer_stage out[BUFFER_STAGES])
{
    bool all = spec->trained == spec->elements;
    if (spec->group <= 1)
        return;
    out[STAGES_SHARD] = (struct buffer_stage){spec->zero < 2 ? BUFFER_SUMS_FLIGHT : 2,
                                              parts_bytes(spec, spec->trained_unit, spec->stat)};
    if (spec->zero == 3)
        out[STAGES_GATHER] =
            (struct buffer_stage){all ? 2 : 4, parts_bytes(spec, spec->unit, spec->act)};
}

/* Returns the bytes of pinned memory for an all-reduce of this many bytes. */
static int64_t reduce_bytes(int64_t bytes) { return buffer_stage_bytes(bytes, bytes); }

static int64_t copy_bytes(const struct buffer_list *list, enum dit_buffer id)
{
    const struct buffer *b = &list->items[id];
    return b->count ? b->rows * b->cols * dtype_bytes(b->dtype) : 0;
}

/* Fills in the messages of activations: over tp, a sum and the rows that are gathered at the same
 * time, or two slices of a sum; between stages, two sends and a receive; one message each over kv,
 * of the all-to-all and of the segments dealt over cp; two messages of the ring. */
static void activation_stages(const struct buffer_state *spec, const struct buffer_spec *dit,
                              const struct buffer_list *list,
                              struct buffer_stage out[BUFFER_STAGES])
{
    const struct layout *l = dit->layout;
    int64_t stat = dtype_bytes(spec->stat), pack = reduce_bytes(copy_bytes(list, DIT_CP_PACK)),
            a2a = layout_a2a_group(l, dit->model), ring = l->cp / a2a,
            tp = num_max_i64(num_max_i64(spec->tp_bytes, copy_bytes(list, DIT_MOD_PARTS)),
                             spec->pieces[PIECE_SUM_TP] * stat);
    if (l->tp > 1)
        out[STAGES_TP] = (struct buffer_stage){2, reduce_bytes(tp)};
    if (spec->kv > 1)
        out[STAGES_KV] =
            (struct buffer_stage){1, reduce_bytes(spec->pieces[PIECE_SUM_KV] * stat)};
    if (l->pp > 1)
        out[STAGES_PP] = (struct buffer_stage){
            3, num_max_i64(buffer_stage_bytes(copy_bytes(list, DIT_X), 0),
                           reduce_bytes(spec->pieces[PIECE_SUM_PP] * stat))};
    if (a2a > 1)
        out[STAGES_A2A] = (struct buffer_stage){1, pack};
    if (l->cp > 1 && buffers_dealt_tokens(dit) > 0)
        out[STAGES_CP] = (struct buffer_stage){1, pack};
    if (ring > 1)
        out[STAGES_RING] = (struct buffer_stage){
            2, reduce_bytes(num_max_i64(copy_bytes(list, DIT_CP_KV) / 2,
                                        copy_bytes(list, DIT_CP_DKV) / 3))};
}

void buffers_stages(const struct buffer_state *spec, const struct buffer_spec *dit,
                    const struct buffer_list *list, struct buffer_stage out[BUFFER_STAGES])
{
    for (int i = 0; i < BUFFER_STAGES; i++)
        out[i] = (struct buffer_stage){0, 0};
    shard_stages(spec, out);
    if (spec->replicas > 1)
        out[STAGES_REPLICA] = (struct buffer_stage){
            BUFFER_SUMS_FLIGHT,
            reduce_bytes(spec->trained_unit / spec->group * dtype_bytes(spec->stat))};
    activation_stages(spec, dit, list, out);
}

int buffers_stages_add(const struct buffer_stage stages[BUFFER_STAGES], struct buffer_list *list,
                       struct err *err)
{
    static const char *const names[BUFFER_STAGES] = {
        "staged weights of units", "staged gradients of units", "staged sums over replicas",
        "staged messages of tp", "staged sums of k/v heads", "staged messages of stages",
        "staged heads", "staged segments", "staged messages of the ring"};
    int rc;
    for (int i = 0; i < BUFFER_STAGES; i++)
        if ((rc = buffer_list_add_host(list, names[i], BUFFER_COMM, BUFFER_PINNED, stages[i].count,
                                       stages[i].bytes, err)) < 0)
            return rc;
    return 0;
}

enum { KIB = 1024, MIB = 1024 * KIB };

int64_t buffers_process_bytes(int64_t ranks)
{
    if (ranks <= 2)
        return ranks == 1 ? 19 * MIB / 4 : 99 * MIB / 8;
    return 61 * MIB / 4 + ranks * MIB / 8;
}

int64_t buffers_process_growth_bytes(int64_t ranks)
{
    return 512 * KIB + (ranks > 1 ? ranks * 64 * KIB : 0);
}
