#include "trainer/watch/scan.h"

enum { TENSORS_MAX = 8 };

enum { READ, WRITTEN, SIDES }; /* the tensors that an operation reads, and that it writes */

/* Queues counting the numbers that are not finite in the tensors of one side. */
static void side_count(struct scan *s, struct dev_stream *stream,
                       const struct tensor t[TENSORS_MAX], int side)
{
    for (int k = 0; k < TENSORS_MAX; k++)
        if (t[k].ptr)
            s->plain.finite(s->ops, stream, &(struct ops_finite){t[k], s->bad + side});
}

/* Waits for the counts. An error is not returned: the device keeps it, and the caller's next sync
 * returns it. */
static void counts_take(struct scan *s, struct dev_stream *stream)
{
    struct dev *dev = s->ops->dev;
    struct err none;
    dev->copy(dev, s->told, s->bad, SIDES * (int64_t)sizeof *s->bad, DEV_D2H, stream);
    dev->stream_sync(dev, stream, &none);
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

static void written_look(struct scan *s, struct dev_stream *stream,
                         const struct tensor out[TENSORS_MAX], enum meter_kind op)
{
    struct dev *dev = s->ops->dev;
    side_count(s, stream, out, WRITTEN);
    counts_take(s, stream);
    if (s->told[WRITTEN] > 0)
        found_keep(s, op, s->told[READ] == 0);
    else if (s->told[READ] > 0)
        dev->fill(dev, s->bad, 0, SIDES * (int64_t)sizeof *s->bad, stream);
}

/* Returns the part of a buffer of latents that the samples occupy. */
static struct tensor cells(struct tensor t, int64_t elements)
{
    return t.ptr ? tensor_cols(t, 0, elements) : t;
}
#define CELLS(t) cells(t, a->cells * a->channels)
#define NONE tensor_none()

/* Lists the operations that are scanned: X(name, (tensors it reads), (tensors it writes)). A tensor
 * that is added to counts as read, too. One that is read and written is checked before and
 * after. */
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
      (CELLS(a->latent), CELLS(a->noise), cells(a->cond, a->cells * a->cond_channels)),     \
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

/* These operations are not scanned: they draw or check numbers, or update weights, whose numbers
 * the optimizer checks itself. */
#define UNSCANNED_OPS(X) X(draw, (NONE), (NONE)) X(adamw, (NONE), (NONE)) X(sumsq, (NONE), (NONE)) \
    X(finite, (NONE), (NONE))

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
        if (!s->found.any)                                                                       \
            side_count(s, stream, in, READ);                                                     \
        s->plain.op(o, stream, a);                                                               \
        if (!s->found.any)                                                                       \
            written_look(s, stream, out, METER_OP_##op);                                         \
        s->calls++;                                                                              \
    }
SCANNED_OPS(SCANNED)

int scan_memory(struct buffer_list *memory, struct err *err)
{
    int64_t bytes = SIDES * (int64_t)sizeof(int64_t);
    int rc;
    if ((rc = buffer_list_add(memory, "counts of a scan", BUFFER_WORK, DTYPE_BYTE, 1, 1, bytes,
                              err)) < 0)
        return rc;
    return buffer_list_add_host(memory, "counts of a scan on the host", BUFFER_WORK, BUFFER_PINNED,
                                1, bytes, err);
}

int scan_open(struct scan *s, struct ops *o, struct err *err)
{
    struct dev *dev = o->dev;
    int rc;
    *s = (struct scan){.ops = o};
    if ((rc = dev->alloc(dev, "counts of a scan", SIDES * (int64_t)sizeof *s->bad,
                         (void **)&s->bad, err)) < 0)
        return rc;
    return dev->alloc_host(dev, "counts of a scan", SIDES * (int64_t)sizeof *s->told,
                           (void **)&s->told, err);
}

void scan_close(struct scan *s)
{
    if (!s->ops)
        return;
    s->ops->dev->free(s->ops->dev, s->bad);
    s->ops->dev->free_host(s->ops->dev, s->told);
    *s = (struct scan){0};
}

void scan_attach(struct scan *s, struct dev_stream *stream)
{
    struct ops *o = s->ops;
    BUG_ON(o->scan);
    s->plain = *o;
    s->found = (struct scan_found){0};
    s->calls = 0;
    o->scan = s;
    o->dev->fill(o->dev, s->bad, 0, SIDES * (int64_t)sizeof *s->bad, stream);
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
