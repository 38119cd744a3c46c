/* Plans the ranges of an operation (comm_priv.h), and makes the copies of check mode.
 *
 * Check mode hides the caller's buffers: what is sent is copied when the operation starts, and what
 * comes is collected in memory of the work. The destination holds NaN (0xff bytes) until the wait
 * copies the result there, so a read before the wait is seen whatever the timing.
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
void comm_work_own(struct comm_work *w)
{
    int r = w->c->rank;
    int64_t e = dtype_bytes(w->op.dtype);
    if (w->recv_n[r] == 0 || (comm_reduces(w->op.kind) && w->c->size > 1))
        return;
    const char *from = w->src + w->send_at[r] * e;
    char *to = w->dst + w->recv_at[r] * e;
    if (from != to)
        memmove(to, from, (size_t)(w->recv_n[r] * e));
}

/* ---- check mode ---- */

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

static char *block(int64_t elements, enum dtype t)
{
    return malloc((size_t)(elements * dtype_bytes(t)) + 1);
}

static void shift(int64_t *at, int size, int64_t by)
{
    for (int r = 0; r < size; r++)
        at[r] -= by;
}

/* Copies what is sent, and lets receives go to a block of our own. */
static int messages_cover(struct comm_work *w)
{
    int64_t e = dtype_bytes(w->op.dtype), n[2] = {0, 0};
    for (int i = 0; i < w->op.n_messages; i++)
        n[w->messages[i].send] += w->messages[i].n;
    w->src_copy = block(n[1], w->op.dtype);
    w->dst_copy = block(n[0], w->op.dtype);
    if (!w->src_copy || !w->dst_copy)
        return -1;
    char *at[2] = {w->dst_copy, w->src_copy};
    for (int i = 0; i < w->op.n_messages; i++) {
        struct comm_message *m = &w->messages[i];
        size_t bytes = (size_t)(m->n * e);
        w->real_bufs[i] = m->buf;
        if (m->send && bytes)
            memcpy(at[1], m->buf, bytes);
        m->buf = at[m->send];
        at[m->send] += bytes;
    }
    /* This comes after the copies, because a buffer may be sent and then received into. */
    for (int i = 0; i < w->op.n_messages; i++)
        if (!w->messages[i].send && w->messages[i].n)
            memset(w->real_bufs[i], 0xff, (size_t)(w->messages[i].n * e));
    return 0;
}

static int ranges_cover(struct comm_work *w)
{
    struct comm *c = w->c;
    int64_t e = dtype_bytes(w->op.dtype), src_first, src_end, dst_end;
    extent(w->send_n, w->send_at, c->size, &src_first, &src_end);
    extent(w->recv_n, w->recv_at, c->size, &w->dst_first, &dst_end);
    w->src_copy = block(src_end - src_first, w->op.dtype);
    w->dst_copy = block(dst_end - w->dst_first, w->op.dtype);
    if (!w->src_copy || !w->dst_copy)
        return -1;
    /* what all ranks get is copied once */
    for (int r = 0; r < c->size; r++)
        if (w->send_n[r] && (r == 0 || w->send_at[r] != w->send_at[r - 1] || w->send_n[r - 1] == 0))
            memcpy(w->src_copy + (w->send_at[r] - src_first) * e, w->src + w->send_at[r] * e,
                   (size_t)(w->send_n[r] * e));
    const char *own = w->op.kind == COMM_ALL_GATHER ? w->src : NULL;
    for (int r = 0; r < c->size; r++)
        if (w->recv_n[r] && w->dst + w->recv_at[r] * e != own)
            memset(w->dst + w->recv_at[r] * e, 0xff, (size_t)(w->recv_n[r] * e));
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
        (w->op.kind == COMM_SEND_RECV ? messages_cover(w) : ranges_cover(w)) == 0)
        return 0;
    comm_work_uncover(w, false);
    return err_set(err, ERR_NOMEM, "%s '%s': no memory for the copies of check mode",
                   comm_kind_names[w->op.kind], w->op.what);
}

static void result_give(struct comm_work *w)
{
    int64_t e = dtype_bytes(w->op.dtype);
    for (int i = 0; i < w->op.n_messages; i++)
        if (!w->messages[i].send && w->messages[i].n)
            memcpy(w->real_bufs[i], w->messages[i].buf, (size_t)(w->messages[i].n * e));
    for (int r = 0; r < w->c->size && w->op.kind != COMM_SEND_RECV; r++)
        if (w->recv_n[r])
            memcpy(w->real + (w->dst_first + w->recv_at[r]) * e, w->dst_copy + w->recv_at[r] * e,
                   (size_t)(w->recv_n[r] * e));
}

void comm_work_uncover(struct comm_work *w, bool give)
{
    if (give && w->dst_copy)
        result_give(w);
    free(w->src_copy);
    free(w->dst_copy);
    w->src_copy = w->dst_copy = NULL;
}
