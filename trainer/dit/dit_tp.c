/* Does the exchanges of tensor and sequence parallelism in the tp group.
 *
 * Rows: with sp each rank has a span of the packed tokens in the residual stream. A column-parallel
 * product needs the rows of all ranks (all-gather), and a row-parallel one leaves summands for the
 * rows of all ranks (reduce-scatter). Without sp every rank has all rows, and summands are
 * all-reduced.
 *
 * Columns of a modulation: rank r computes columns r · w .. (r + 1) · w - 1 of each unit, w = width
 * / tp. They are gathered rank by rank and then copied to their places.
 */
#include "trainer/dit/dit_priv.h"
#include "trainer/state/fault.h"

void dit_comm(struct dit *d, struct comm *c, const struct comm_op *op)
{
    if (d->failed == 0)
        d->failed = comm_do(c, op, d->stream, &d->err);
}

struct comm_work *dit_comm_start(struct dit *d, struct comm *c, const struct comm_op *op)
{
    struct comm_work *work = NULL;
    if (d->failed == 0)
        d->failed = comm_start(c, op, d->stream, &work, &d->err);
    return work;
}

void dit_comm_wait(struct dit *d, struct comm *c, struct comm_work *work)
{
    if (d->failed == 0)
        d->failed = comm_wait(c, work, d->stream, &d->err);
}

/* ---- rows ---- */

struct tensor dit_gather_rows(struct dit *d, struct tensor own, enum dit_buffer all,
                              struct comm_work **work)
{
    *work = NULL;
    if (!d->c.layout->sp)
        return own;
    struct tensor to = dit_tokens(d, all, 0);
    *work = dit_comm_start(d, d->c.grid->tp, &(struct comm_op){
        .kind = COMM_ALL_GATHER, .what = "token rows of tp ranks", .dtype = own.dtype,
        .send = own.ptr, .recv = to.ptr, .counts = d->part_n, .at = d->part_at
    });
    return to;
}

/* Computes rows first .. end-1 of a product. x holds just these rows, g.c and g.aux hold all
 * rows. */
static void gemm_rows(struct dit *d, struct ops_gemm g, struct tensor x, int64_t first, int64_t end)
{
    g.a = x;
    g.c = tensor_rows(g.c, first, end - first);
    if (g.aux.ptr)
        g.aux = tensor_rows(g.aux, first, end - first);
    if (end > first)
        d->o->gemm(d->o, d->stream, &g);
}

struct tensor dit_gemm_all(struct dit *d, struct ops_gemm g)
{
    struct comm_work *others;
    struct tensor own = dit_rows(d, DIT_NORMED, 0),
                  all = dit_gather_rows(d, own, DIT_NORMED_ALL, &others);
    int64_t first = d->c.layout->sp ? d->slot->now.r_first : 0, end = first + own.rows;
    gemm_rows(d, g, own, first, end);
    dit_rows_wait(d, others);
    gemm_rows(d, g, tensor_rows(all, 0, first), 0, first);
    gemm_rows(d, g, tensor_rows(all, end, all.rows - end), end, all.rows);
    return all;
}

void dit_rows_wait(struct dit *d, struct comm_work *work)
{
    dit_comm_wait(d, d->c.grid->tp, work);
}

struct tensor dit_partial(const struct dit *d, struct tensor own)
{
    return d->c.layout->sp ? dit_tokens(d, DIT_PARTIAL, 0) : own;
}

void dit_sum_tp(struct dit *d, struct tensor t, const char *what, int fault)
{
    if (d->c.layout->tp > 1 && fault_active != fault)
        dit_comm(d, d->c.grid->tp, &(struct comm_op){
            .kind = COMM_ALL_REDUCE, .what = what, .dtype = t.dtype,
            .recv = t.ptr, .n = t.rows * t.cols
        });
}

/* Returns where slice i of tp rank r's rows of the residual stream begins. */
static int64_t slice_first(const struct dit *d, int64_t r, struct dit_slice c, int64_t i)
{
    int64_t D = d->m->hidden;
    return d->part_at[r] / D + d->part_n[r] / D * i / c.of;
}

static int64_t parts(const struct dit *d) { return d->c.layout->sp ? d->c.layout->tp : 1; }

struct comm_work *dit_sum_rows(struct dit *d, struct tensor partial, struct tensor own,
                               struct dit_slice c, const char *what, int fault)
{
    bool sp = d->c.layout->sp;
    int64_t mine = sp ? d->place.tp : 0, D = d->m->hidden,
            from = slice_first(d, mine, c, c.i), to = slice_first(d, mine, c, c.i + 1);
    struct tensor into = tensor_rows(own, from - slice_first(d, mine, c, 0), to - from);
    if (fault_active == fault && sp)
        d->o->copy(d->o, d->stream,
                   &(struct ops_copy){tensor_rows(partial, from, to - from), into});
    if (fault_active == fault || d->c.layout->tp == 1)
        return NULL;
    struct comm_op op = {
        .kind = COMM_ALL_REDUCE, .what = what, .dtype = own.dtype,
        .recv = into.ptr, .n = (to - from) * D
    };
    for (int64_t r = 0; r < parts(d) && sp; r++) {
        d->slice_at[r] = slice_first(d, r, c, c.i) * D;
        d->slice_n[r] = slice_first(d, r, c, c.i + 1) * D - d->slice_at[r];
    }
    if (sp)
        op = (struct comm_op){
            .kind = COMM_REDUCE_SCATTER, .what = what, .dtype = own.dtype,
            .send = partial.ptr, .recv = into.ptr, .counts = d->slice_n, .at = d->slice_at
        };
    return dit_comm_start(d, d->c.grid->tp, &op);
}

void dit_linear_sum(struct dit *d, struct tensor x, int64_t param, struct tensor own,
                    const char *what, int fault)
{
    struct tensor partial = dit_partial(d, own);
    struct comm_work *sums[LAYOUT_TP_SLICES];
    struct dit_slice c = {.of = layout_tp_slices(d->c.layout, x.rows)};
    for (; c.i < c.of; c.i++) {
        for (int64_t r = 0; r < parts(d); r++) {
            int64_t from = slice_first(d, r, c, c.i), n = slice_first(d, r, c, c.i + 1) - from;
            dit_linear(d, tensor_rows(x, from, n), param, tensor_rows(partial, from, n));
        }
        sums[c.i] = dit_sum_rows(d, partial, own, c, what, fault);
    }
    for (int64_t i = 0; i < c.of; i++)
        dit_rows_wait(d, sums[i]);
}

/* ---- columns of a modulation ---- */

int64_t dit_mod_width(const struct dit *d, const struct mod_unit *unit)
{
    return unit->width / d->c.layout->tp;
}

static int64_t own_width(const struct dit *d, const struct mod_unit *units, int64_t n)
{
    int64_t width = 0;
    for (int64_t i = 0; i < n; i++)
        width += dit_mod_width(d, &units[i]);
    return width;
}

/* Copies columns between `whole` [n, …] and rank r's part [n, own]. */
static void columns_copy(struct dit *d, struct tensor whole, struct tensor part,
                         const struct mod_unit *units, int64_t n, int64_t r, bool out)
{
    for (int64_t i = 0, at = 0; i < n; i++) {
        int64_t w = dit_mod_width(d, &units[i]);
        struct tensor a = tensor_cols(whole, units[i].col + r * w, w), b = tensor_cols(part, at, w);
        d->o->copy(d->o, d->stream, &(struct ops_copy){out ? a : b, out ? b : a});
        at += w;
    }
}

/* Returns rank r's [n, own] in a buffer that holds the parts of all ranks, one after the other. */
static struct tensor part_of(const struct dit *d, enum dit_buffer parts, int64_t own, int64_t r)
{
    struct tensor t = dit_buffer(d, parts, 0, d->slot->now.n * d->c.layout->tp);
    return tensor_of((char *)t.ptr + r * d->slot->now.n * own * dtype_bytes(t.dtype), t.dtype,
                     d->slot->now.n, own);
}

void dit_mod_gather(struct dit *d, struct tensor mod, const struct mod_unit *units, int64_t n)
{
    int64_t own = own_width(d, units, n), tp = d->c.layout->tp;
    struct tensor from = dit_buffer(d, DIT_MOD_OWN, 0, d->slot->now.n),
                  mine = part_of(d, DIT_MOD_PARTS, own, d->place.tp);
    /* The copy makes the columns dense: the final layer has fewer of them than the buffer. */
    d->o->copy(d->o, d->stream, &(struct ops_copy){tensor_cols(from, 0, own), mine});
    dit_comm(d, d->c.grid->tp, &(struct comm_op){
        .kind = COMM_ALL_GATHER, .what = "modulation", .dtype = mine.dtype,
        .n = d->slot->now.n * own, .send = mine.ptr, .recv = part_of(d, DIT_MOD_PARTS, own, 0).ptr
    });
    for (int64_t r = 0; r < tp; r++)
        columns_copy(d, mod, part_of(d, DIT_MOD_PARTS, own, r), units, n, r, false);
}

struct tensor dit_dmod_own(struct dit *d, struct tensor dmod, const struct mod_unit *units,
                           int64_t n)
{
    int64_t own = own_width(d, units, n);
    if (d->c.layout->tp == 1)
        return dmod;
    struct tensor to = tensor_of(dit_buffer(d, DIT_DMOD_OWN, 0, d->slot->now.n).ptr, dmod.dtype,
                                 d->slot->now.n, own);
    if (!d->c.layout->sp || fault_active == FAULT_POINT_SUM_MOD) {
        columns_copy(d, dmod, to, units, n, d->place.tp, true);
        return to;
    }
    for (int64_t r = 0; r < d->c.layout->tp; r++)
        columns_copy(d, dmod, part_of(d, DIT_DMOD_PARTS, own, r), units, n, r, true);
    dit_comm(d, d->c.grid->tp, &(struct comm_op){
        .kind = COMM_REDUCE_SCATTER, .what = "gradient of a modulation", .dtype = dmod.dtype,
        .send = part_of(d, DIT_DMOD_PARTS, own, 0).ptr, .recv = to.ptr, .n = d->slot->now.n * own
    });
    return to;
}
