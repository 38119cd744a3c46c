/* Plans the ranges of an operation (comm_priv.h), and makes the copies that cover its buffers.
 *
 * A work is covered when the host cannot touch the buffers, and in check mode. What is sent is
 * copied when the operation starts, and what comes is collected in memory of the work. In check
 * mode the destination holds NaN (0xff bytes) until the wait copies the result there, so a read
 * before the wait is seen whatever the timing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/comm/comm_priv.h"

/* ---- ranges ---- */

static int64_t part_n(const struct comm_op *op, int r)
{
    return op->counts ? op->counts[r] : op->n;
}
static int64_t part_at(const struct comm_op *op, int r)
{
    return op->counts ? op->at[r] : op->n * r;
}

static void plan_all_gather(struct comm_work *w, const struct comm_op *op, int rank, int size)
{
    w->src = op->send, w->dst = op->recv;
    for (int r = 0; r < size; r++) {
        w->send_n[r] = part_n(op, rank), w->send_at[r] = 0;
        w->recv_n[r] = part_n(op, r), w->recv_at[r] = part_at(op, r);
    }
}

static void plan_reduce_scatter(struct comm_work *w, const struct comm_op *op, int rank, int size)
{
    w->src = op->send, w->dst = op->recv;
    for (int r = 0; r < size; r++) {
        w->send_n[r] = part_n(op, r), w->send_at[r] = part_at(op, r);
        w->recv_n[r] = r == rank ? w->send_n[r] : 0, w->recv_at[r] = 0;
    }
}

static void plan_all_reduce(struct comm_work *w, const struct comm_op *op, int rank, int size)
{
    (void)rank;
    w->src = w->dst = op->recv;
    for (int r = 0; r < size; r++) {
        w->send_at[r] = w->recv_at[r] = op->n / size * r + num_min_i64(r, op->n % size);
        w->send_n[r] = w->recv_n[r] = op->n / size + (r < op->n % size);
    }
}

static void plan_all_to_all(struct comm_work *w, const struct comm_op *op, int rank, int size)
{
    BUG_ON(op->counts[rank] != op->recv_counts[rank]);
    w->src = op->send, w->dst = op->recv;
    for (int r = 0; r < size; r++) {
        w->send_n[r] = op->counts[r], w->send_at[r] = op->at[r];
        w->recv_n[r] = op->recv_counts[r], w->recv_at[r] = op->recv_at[r];
    }
}

static void plan_broadcast(struct comm_work *w, const struct comm_op *op, int rank, int size)
{
    BUG_ON(op->root < 0 || op->root >= size);
    w->src = w->dst = op->recv;
    for (int r = 0; r < size; r++)
        w->send_n[r] = rank == op->root && r != rank ? op->n : 0;
    w->recv_n[op->root] = rank == op->root ? 0 : op->n;
}

void comm_work_plan(struct comm_work *w, const struct comm_op *op)
{
    int rank = w->c->rank, size = w->c->size;
    size_t bytes = (size_t)size * sizeof(int64_t);
    BUG_ON(op->n < 0 || op->n_messages > COMM_MESSAGES || !op->what);
    BUG_ON(comm_reduces(op->kind) && op->dtype >= DTYPE_FP8);
    memset(w->send_n, 0, bytes), memset(w->send_at, 0, bytes),
        memset(w->recv_n, 0, bytes), memset(w->recv_at, 0, bytes);
    w->op = *op;
    w->op.counts = w->op.at = w->op.recv_counts = w->op.recv_at = NULL;
    w->op.messages = NULL;
    w->op.n_messages = op->kind == COMM_SEND_RECV ? op->n_messages : 0;
    w->src = NULL, w->dst = NULL;
    switch (op->kind) {
    case COMM_ALL_GATHER: plan_all_gather(w, op, rank, size); break;
    case COMM_REDUCE_SCATTER: plan_reduce_scatter(w, op, rank, size); break;
    case COMM_ALL_REDUCE: plan_all_reduce(w, op, rank, size); break;
    case COMM_ALL_TO_ALL: plan_all_to_all(w, op, rank, size); break;
    case COMM_BROADCAST: plan_broadcast(w, op, rank, size); break;
    case COMM_SEND_RECV:
        memcpy(w->messages, op->messages, (size_t)op->n_messages * sizeof *op->messages);
        break;
    case COMM_BARRIER: break;
    }
}

static int64_t sum_but(const int64_t *n, int size, int but)
{
    int64_t sum = 0;
    for (int r = 0; r < size; r++)
        sum += r == but ? 0 : n[r];
    return sum;
}

int64_t comm_work_sent_bytes(const struct comm_work *w)
{
    const struct comm *c = w->c;
    int64_t n = sum_but(w->send_n, c->size, c->rank);
    if (w->op.kind == COMM_ALL_REDUCE)
        n += (c->size - 1) * w->recv_n[c->rank];
    for (int i = 0; i < w->op.n_messages; i++)
        n += w->messages[i].send && w->messages[i].peer != c->rank ? w->messages[i].n : 0;
    return n * dtype_bytes(w->op.dtype);
}

/* Copies what a rank gives itself. In a reduction of several ranks the own part is added in its
 * turn. */
void comm_work_own(struct comm_work *w, struct dev_stream *s)
{
    struct dev *dev = w->c->dev;
    int r = w->c->rank;
    int64_t e = dtype_bytes(w->op.dtype);
    if (w->recv_n[r] == 0 || (comm_reduces(w->op.kind) && w->c->size > 1))
        return;
    const char *from = w->src + w->send_at[r] * e;
    char *to = w->dst + w->recv_at[r] * e;
    if (from != to && s && dev && !dev->host_memory && !w->staged)
        dev->copy(dev, to, from, w->recv_n[r] * e, DEV_D2D, s);
    else if (from != to)
        memmove(to, from, (size_t)(w->recv_n[r] * e));
}

/* ---- covering ---- */

/* Finds the first element of some ranges and the end behind their last; 0, 0 when all are empty. */
static void extent(const int64_t *n, const int64_t *at, int size, int64_t *first, int64_t *end)
{
    *first = *end = 0;
    for (int r = 0; r < size; r++) {
        if (n[r] == 0)
            continue;
        *first = *end ? num_min_i64(*first, at[r]) : at[r];
        *end = num_max_i64(*end, at[r] + n[r]);
    }
}

/* Gives host memory of so many bytes, pinned where the work is staged. Returns whether there is. */
static bool block_take(struct comm_work *w, int which, int64_t bytes, char **out, struct err *err)
{
    struct dev *dev = w->c->dev;
    struct comm_stage *stage = &w->stages[which];
    if (!w->staged)
        return (*out = malloc((size_t)bytes + 1)) != NULL;
    if (stage->bytes < bytes) {
        dev->free_host(dev, stage->ptr);
        *stage = (struct comm_stage){0};
        if (dev->alloc_host(dev, "staged messages", bytes, &stage->ptr, err) < 0)
            return false;
        stage->bytes = bytes;
    }
    *out = stage->ptr;
    return true;
}

enum { SENT, RECEIVED }; /* the two blocks of a work */

static bool blocks_take(struct comm_work *w, int64_t sent, int64_t received, struct err *err)
{
    int64_t e = dtype_bytes(w->op.dtype);
    return block_take(w, SENT, sent * e, &w->src_copy, err) &&
           block_take(w, RECEIVED, received * e, &w->dst_copy, err);
}

void comm_stages_free(struct comm *c)
{
    for (int i = 0; i <= COMM_WORKS; i++) {
        struct comm_work *w = &c->works[i];
        for (int k = 0; k < 2; k++) {
            if (w->stages[k].ptr)
                c->dev->free_host(c->dev, w->stages[k].ptr);
            w->stages[k] = (struct comm_stage){0};
        }
        w->given = NULL;
    }
}

/* Copies from a buffer of the caller's to a block. */
static void source_copy(const struct comm_work *w, void *block, const void *from, int64_t bytes)
{
    struct dev *dev = w->c->dev;
    if (w->staged)
        dev->copy(dev, block, from, bytes, DEV_D2H, w->staged);
    else
        memcpy(block, from, (size_t)bytes);
}

/* Puts NaN into a destination of the caller's, in check mode. */
static void destination_hide(const struct comm_work *w, void *to, int64_t bytes)
{
    struct dev *dev = w->c->dev;
    if (!w->c->conf->check)
        return;
    if (w->staged)
        dev->fill(dev, to, 0xff, bytes, w->staged);
    else
        memset(to, 0xff, (size_t)bytes);
}

static void result_copy(const struct comm_work *w, void *to, const void *block, int64_t bytes,
                        struct dev_stream *s)
{
    struct dev *dev = w->c->dev;
    if (w->staged)
        dev->copy(dev, to, block, bytes, DEV_H2D, s);
    else
        memcpy(to, block, (size_t)bytes);
}

static void shift(int64_t *at, int size, int64_t by)
{
    for (int r = 0; r < size; r++)
        at[r] -= by;
}

/* Copies what is sent, and lets receives go to a block of our own. */
static int messages_cover(struct comm_work *w, struct err *err)
{
    int64_t e = dtype_bytes(w->op.dtype), n[2] = {0, 0};
    for (int i = 0; i < w->op.n_messages; i++)
        n[w->messages[i].send] += w->messages[i].n;
    if (!blocks_take(w, n[1], n[0], err))
        return -1;
    char *at[2] = {w->dst_copy, w->src_copy};
    for (int i = 0; i < w->op.n_messages; i++) {
        struct comm_message *m = &w->messages[i];
        size_t bytes = (size_t)(m->n * e);
        w->real_bufs[i] = m->buf;
        if (m->send && bytes)
            source_copy(w, at[1], m->buf, m->n * e);
        m->buf = at[m->send];
        at[m->send] += bytes;
    }
    /* This comes after the copies, because a buffer may be sent and then received into. */
    for (int i = 0; i < w->op.n_messages; i++)
        if (!w->messages[i].send && w->messages[i].n)
            destination_hide(w, w->real_bufs[i], w->messages[i].n * e);
    return 0;
}

static int ranges_cover(struct comm_work *w, struct err *err)
{
    struct comm *c = w->c;
    int64_t e = dtype_bytes(w->op.dtype), src_first, src_end, dst_end;
    extent(w->send_n, w->send_at, c->size, &src_first, &src_end);
    extent(w->recv_n, w->recv_at, c->size, &w->dst_first, &dst_end);
    if (!blocks_take(w, src_end - src_first, dst_end - w->dst_first, err))
        return -1;
    /* what all ranks get is copied once */
    for (int r = 0; r < c->size; r++)
        if (w->send_n[r] && (r == 0 || w->send_at[r] != w->send_at[r - 1] || w->send_n[r - 1] == 0))
            source_copy(w, w->src_copy + (w->send_at[r] - src_first) * e,
                        w->src + w->send_at[r] * e, w->send_n[r] * e);
    const char *own = w->op.kind == COMM_ALL_GATHER ? w->src : NULL;
    for (int r = 0; r < c->size; r++)
        if (w->recv_n[r] && w->dst + w->recv_at[r] * e != own)
            destination_hide(w, w->dst + w->recv_at[r] * e, w->recv_n[r] * e);
    shift(w->send_at, c->size, src_first);
    shift(w->recv_at, c->size, w->dst_first);
    w->real = w->dst;
    w->src = w->src_copy;
    w->dst = w->dst_copy;
    return 0;
}

int comm_work_cover(struct comm_work *w, struct err *err)
{
    if (w->op.kind == COMM_BARRIER ||
        (w->op.kind == COMM_SEND_RECV ? messages_cover(w, err) : ranges_cover(w, err)) == 0)
        return 0;
    comm_work_uncover(w, false, NULL);
    return err_set(err, ERR_NOMEM, "%s '%s': no memory for copies of what is sent and received",
                   comm_kind_names[w->op.kind], w->op.what);
}

static void result_give(struct comm_work *w, struct dev_stream *s)
{
    int64_t e = dtype_bytes(w->op.dtype);
    for (int i = 0; i < w->op.n_messages; i++)
        if (!w->messages[i].send && w->messages[i].n)
            result_copy(w, w->real_bufs[i], w->messages[i].buf, w->messages[i].n * e, s);
    for (int r = 0; r < w->c->size && w->op.kind != COMM_SEND_RECV; r++)
        if (w->recv_n[r])
            result_copy(w, w->real + (w->dst_first + w->recv_at[r]) * e,
                        w->dst_copy + w->recv_at[r] * e, w->recv_n[r] * e, s);
}

void comm_work_uncover(struct comm_work *w, bool give, struct dev_stream *s)
{
    if (give && w->dst_copy)
        result_give(w, s);
    if (w->staged)
        w->given = s;
    else {
        free(w->src_copy);
        free(w->dst_copy);
    }
    w->src_copy = w->dst_copy = NULL;
    w->staged = NULL;
}
