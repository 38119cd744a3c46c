/* Plans the ranges of an operation (comm_priv.h), and makes the copies that cover its buffers.
 *
 * A comm_work that the backend carries (not the plane, comm_plane.h) is covered when the host
 * cannot access the buffers, and in check mode. What is sent is copied when the operation starts,
 * and what is received goes to a buffer of our own first. In check mode the destination holds NaN
 * (0xff bytes) until the wait copies the result there, so that a read before the wait always shows,
 * whatever the timing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/comm/comm_plane.h"
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

/* Copies the part that a rank gives itself. In a reduction of several ranks it does nothing,
 * because there this rank's part is added in rank order. */
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

/* Finds free pinned memory of at least `bytes` bytes: the smallest that is large enough, else the
 * smallest of all, which the caller lets grow. */
static struct comm_stage *stage_find(const struct comm *c, int64_t bytes)
{
    struct comm_stage *best = NULL;
    for (int i = 0; i <= COMM_WORKS; i++) {
        struct comm_stage *s = &c->stages[i];
        bool fits = s->bytes >= bytes, had = best && best->bytes >= bytes;
        if (!s->taken && (!best || (fits && !had) || (fits == had && s->bytes < best->bytes)))
            best = s;
    }
    BUG_ON(!best); /* there are as many stages as comm_works */
    return best;
}

static int stage_grow(struct comm *c, struct comm_stage *s, int64_t bytes, struct err *err)
{
    int rc;
    c->dev->free_host(c->dev, s->ptr);
    *s = (struct comm_stage){.ptr = NULL};
    if ((rc = c->dev->alloc_host(c->dev, "staged messages", bytes, &s->ptr, err)) < 0)
        return rc;
    s->bytes = bytes;
    return 0;
}

int comm_reserve_stages(struct comm *c, int n, int64_t bytes, struct err *err)
{
    int rc;
    if (!c->dev || c->dev->host_memory || c->size == 1 || comm_plane_has(c))
        return 0;
    for (int i = 0; i <= COMM_WORKS && n > 0 && bytes > 0; i++) {
        if (c->stages[i].bytes > 0)
            continue;
        if ((rc = stage_grow(c, &c->stages[i], bytes, err)) < 0)
            return rc;
        n--;
    }
    BUG_ON(n > 0 && bytes > 0);
    return 0;
}

/* Takes pinned memory for a staged comm_work. */
static int stage_take(struct comm_work *w, int64_t bytes, struct err *err)
{
    struct comm *c = w->c;
    struct comm_stage *s = stage_find(c, bytes);
    int rc;
    /* The last result may still be copied out of the memory that this comm_work will write. */
    if (s->given && (rc = c->dev->stream_sync(c->dev, s->given, err)) < 0)
        return rc;
    s->given = NULL;
    if (s->bytes < bytes && (rc = stage_grow(c, s, bytes, err)) < 0)
        return rc;
    s->taken = true;
    w->stage = s;
    return 0;
}

/* Allocates the copies, of `sent` and `received` elements; in pinned memory if the comm_work is
 * staged. */
static int blocks_take(struct comm_work *w, int64_t sent, int64_t received, struct err *err)
{
    int64_t e = dtype_bytes(w->op.dtype);
    int rc;
    if (w->staged) {
        if ((rc = stage_take(w, buffer_stage_bytes(sent * e, received * e), err)) < 0)
            return rc;
        w->src_copy = w->stage->ptr;
        w->dst_copy = w->src_copy + buffer_stage_bytes(sent * e, 0);
        return 0;
    }
    w->src_copy = malloc((size_t)(sent * e) + 1);
    w->dst_copy = malloc((size_t)(received * e) + 1);
    return w->src_copy && w->dst_copy
               ? 0
               : err_set(err, ERR_NOMEM,
                         "%s '%s': no memory for copies of what is sent and received",
                         comm_kind_names[w->op.kind], w->op.what);
}

void comm_stages_free(struct comm *c)
{
    for (int i = 0; i <= COMM_WORKS; i++) {
        if (c->stages[i].ptr)
            c->dev->free_host(c->dev, c->stages[i].ptr);
        c->stages[i] = (struct comm_stage){.ptr = NULL};
    }
}

/* Copies from a buffer of the caller to a block. */
static void source_copy(const struct comm_work *w, void *block, const void *from, int64_t bytes)
{
    struct dev *dev = w->c->dev;
    if (w->staged)
        dev->copy(dev, block, from, bytes, DEV_D2H, w->staged);
    else
        memcpy(block, from, (size_t)bytes);
}

/* Fills a destination of the caller with NaN, in check mode. */
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

/* Copies what is sent, and redirects receives to a block of our own. */
static int messages_cover(struct comm_work *w, struct err *err)
{
    int64_t e = dtype_bytes(w->op.dtype), n[2] = {0, 0};
    for (int i = 0; i < w->op.n_messages; i++)
        n[w->messages[i].send] += w->messages[i].n;
    int rc;
    if ((rc = blocks_take(w, n[1], n[0], err)) < 0)
        return rc;
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

/* Copies what is sent to the block, without gaps; what all ranks get is copied once. With the block
 * NULL nothing is copied or changed. Returns how many elements the block needs. */
static int64_t sources_pack(struct comm_work *w, char *block)
{
    int64_t e = dtype_bytes(w->op.dtype), used = 0, last_at = -1, last_n = 0;
    for (int r = 0; r < w->c->size; r++) {
        int64_t n = w->send_n[r], at = w->send_at[r];
        if (n == 0)
            continue;
        bool again = at == last_at && n == last_n;
        if (!again && block)
            source_copy(w, block + used * e, w->src + at * e, n * e);
        used += again ? 0 : n;
        last_at = at, last_n = n;
        if (block)
            w->send_at[r] = used - n;
    }
    return used;
}

/* Redirects what comes from each rank to the block, without gaps. */
static void destinations_pack(struct comm_work *w)
{
    int64_t e = dtype_bytes(w->op.dtype), used = 0;
    const char *own = w->op.kind == COMM_ALL_GATHER ? w->src : NULL;
    for (int r = 0; r < w->c->size; r++) {
        if (w->recv_n[r] && w->dst + w->recv_at[r] * e != own)
            destination_hide(w, w->dst + w->recv_at[r] * e, w->recv_n[r] * e);
        w->real_at[r] = w->recv_at[r];
        w->recv_at[r] = used;
        used += w->recv_n[r];
    }
}

static int ranges_cover(struct comm_work *w, struct err *err)
{
    int64_t received = sum_but(w->recv_n, w->c->size, -1);
    int rc;
    if ((rc = blocks_take(w, sources_pack(w, NULL), received, err)) < 0)
        return rc;
    sources_pack(w, w->src_copy);
    destinations_pack(w);
    w->real = w->dst;
    w->src = w->src_copy;
    w->dst = w->dst_copy;
    return 0;
}

int comm_work_cover(struct comm_work *w, struct err *err)
{
    int rc;
    if (w->op.kind == COMM_BARRIER)
        return 0;
    if ((rc = w->op.kind == COMM_SEND_RECV ? messages_cover(w, err) : ranges_cover(w, err)) < 0)
        comm_work_uncover(w, false, NULL);
    return rc;
}

static void result_give(struct comm_work *w, struct dev_stream *s)
{
    int64_t e = dtype_bytes(w->op.dtype);
    for (int i = 0; i < w->op.n_messages; i++)
        if (!w->messages[i].send && w->messages[i].n)
            result_copy(w, w->real_bufs[i], w->messages[i].buf, w->messages[i].n * e, s);
    for (int r = 0; r < w->c->size && w->op.kind != COMM_SEND_RECV; r++)
        if (w->recv_n[r])
            result_copy(w, w->real + w->real_at[r] * e,
                        w->dst_copy + w->recv_at[r] * e, w->recv_n[r] * e, s);
}

void comm_work_uncover(struct comm_work *w, bool give, struct dev_stream *s)
{
    if (give && w->dst_copy)
        result_give(w, s);
    if (w->stage) {
        w->stage->given = s;
        w->stage->taken = false;
    } else if (!w->staged) {
        free(w->src_copy);
        free(w->dst_copy);
    }
    w->src_copy = w->dst_copy = NULL;
    w->stage = NULL;
    w->staged = NULL;
}
