#include "trainer/watch/scan.h"

#include <math.h>

#include "base/bf16.h"
#include "base/num.h"

enum { TENSORS_MAX = 8 };

static bool row_finite(const void *row, enum dtype dtype, int64_t n)
{
    int64_t bad = 0;
    for (int64_t j = 0; j < n; j++)
        bad += dtype == DTYPE_F64   ? !isfinite(((const double *)row)[j])
               : dtype == DTYPE_F32 ? !isfinite(((const float *)row)[j])
                                    : !isfinite(bf16_value(((const uint16_t *)row)[j]));
    return bad == 0;
}

static bool all_finite(const struct tensor t[TENSORS_MAX])
{
    for (int k = 0; k < TENSORS_MAX; k++)
        for (int64_t i = 0; t[k].ptr && i < t[k].rows; i++)
            if (!row_finite(tensor_at(&t[k], i, 0), t[k].dtype, t[k].cols))
                return false;
    return true;
}

static void found_keep(struct scan *s, enum meter_kind op, bool made)
{
    s->found = (struct scan_found){
        .any = true,
        .made = made,
        .backward = s->ops->backward,
        .layer = s->ops->layer,
        .op = op,
        .call = s->calls,
    };
}

/* Returns the part of a buffer that these samples take. Buffers of latents are as long as the
 * largest micro-batch. */
static struct tensor cells(struct tensor t, const struct ops_sample *samples, int64_t n,
                           int64_t channels)
{
    int64_t end = 0;
    for (int64_t i = 0; i < n; i++)
        end = num_max_i64(end,
                          samples[i].cell + (int64_t)samples[i].t * samples[i].h * samples[i].w);
    return t.ptr ? tensor_cols(t, 0, end * channels) : t;
}
#define CELLS(t) cells(t, a->samples, a->n, a->channels)
#define NONE tensor_none()

/* Each operation that is scanned: X(name, (tensors it reads), (tensors it writes)). A tensor that
 * is added to is read as well. One that is read and written is looked at before and after. */
#define SCANNED_OPS(X)                                                                             \
    X(gemm, (a->a, a->b, a->beta != 0 ? a->c : NONE), (a->c, a->aux))                              \
    X(attn_fwd, (a->q, a->k, a->v), (a->o))                                                        \
    X(attn_bwd,                                                                                    \
      (a->q, a->k, a->v, a->o, a->d_o, a->accumulate_dq ? a->dq : NONE,                            \
       a->accumulate_dkv ? a->dk : NONE, a->accumulate_dkv ? a->dv : NONE),                        \
      (a->dq, a->dk, a->dv))                                                                       \
    X(lse_merge, (a->o, a->o_part), (a->o))                                                        \
    X(adaln_fwd, (a->x, a->branch, a->gate, a->shift, a->scale), (a->x_out, a->y))                 \
    X(adaln_bwd, (a->dy, a->dx, a->x_out, a->branch, a->gate, a->scale),                           \
      (a->dx, a->dbranch, a->dgate, a->dshift, a->dscale))                                         \
    X(headnorm_fwd, (a->src, a->gain), (a->dst))                                                   \
    X(headnorm_bwd, (a->src, a->gain, a->ddst, a->beta != 0 ? a->dgain : NONE),                    \
      (a->dsrc, a->dgain))                                                                         \
    X(rope, (NONE), (a->cos, a->sin))                                                              \
    X(act_fwd, (a->x), (a->y))                                                                     \
    X(act_bwd, (a->x, a->dy), (a->dx, a->y))                                                       \
    X(colsum, (a->x, a->beta != 0 ? a->out : NONE), (a->out))                                      \
    X(patchify,                                                                                    \
      (CELLS(a->latent), CELLS(a->noise), cells(a->cond, a->samples, a->n, a->cond_channels)),     \
      (a->tokens))                                                                                 \
    X(unpatchify, (a->tokens), (CELLS(a->out)))                                                    \
    X(loss, (a->tokens, CELLS(a->latent), CELLS(a->noise)), (a->dtokens))                          \
    X(normal, (NONE), (CELLS(a->out)))                                                             \
    X(sinusoid, (NONE), (a->out))                                                                  \
    X(copy, (a->src), (a->dst))                                                                    \
    X(axpy, (a->x, a->y), (a->y))                                                                  \
    X(permute, (a->src), (a->dst))                                                                 \
    X(table_fwd, (a->x, a->table), (a->x))                                                         \
    X(table_bwd, (a->dx, a->beta != 0 ? a->dtable : NONE), (a->dtable))

/* The others work on weights and gradients, whose numbers the optimizer looks at itself. */
#define UNSCANNED_OPS(X) X(draw, (NONE), (NONE)) X(adamw, (NONE), (NONE)) X(sumsq, (NONE), (NONE))

/* Each operation of the table must have an entry in one of these two lists. */
#define ENTRY(op, reads, writes) ENTRY_##op,
enum { SCANNED_OPS(ENTRY) UNSCANNED_OPS(ENTRY) ENTRIES };
#define CHECK(op, args)                                     \
    typedef struct args args_of_##op;                       \
    _Static_assert(ENTRY_##op < ENTRIES, #op " has no entry");
OPS_LIST(CHECK)

#define LIST(...) __VA_ARGS__
#define SCANNED(op, reads, writes)                                                               \
    static void scanned_##op(struct ops *o, struct dev_stream *stream, const args_of_##op *a)    \
    {                                                                                            \
        const struct tensor in[TENSORS_MAX] = {LIST reads}, out[TENSORS_MAX] = {LIST writes};    \
        struct scan *s = o->scan;                                                                \
        bool sane = s->found.any || all_finite(in);                                              \
        s->plain.op(o, stream, a);                                                               \
        if (!s->found.any && !all_finite(out))                                                   \
            found_keep(s, METER_OP_##op, sane);                                                  \
        s->calls++;                                                                              \
    }
SCANNED_OPS(SCANNED)

void scan_attach(struct scan *s, struct ops *o)
{
    BUG_ON(o->scan || !o->dev->host_memory);
    *s = (struct scan){.ops = o, .plain = *o};
    o->scan = s;
#define REPLACE(op, reads, writes) o->op = scanned_##op;
    SCANNED_OPS(REPLACE)
}

void scan_detach(struct scan *s)
{
    struct ops *o = s->ops;
#define RESTORE(op, reads, writes) o->op = s->plain.op;
    SCANNED_OPS(RESTORE)
    o->scan = NULL;
}
