/* Builds the operations of comm.h from those of a table of collectives (coll.h).
 *
 * For equal parts the all-gather and reduce-scatter of the library behind the table (NCCL) are
 * used. Unequal parts are sends and receives in one group of calls. The library forms a sum only
 * where it can keep the promise of comm.h: f64 and f32, equal parts, and no conf.ordered. Otherwise
 * every rank receives the other ranks' numbers for the part that it sums, and adds them in rank
 * order with the device's own kernel. This sends as much data as a ring does. A part is exchanged
 * in pieces so small that those of all ranks fit into buffer_ordered_bytes. Pieces have one size on
 * all ranks, whatever they reserved.
 */
#include "base/num.h"
#include "trainer/comm/comm_plane_priv.h"

int plane_block_take(struct comm_plane *p, struct plane_queue *queue, int64_t bytes,
                     struct err *err)
{
    struct dev *dev = p->dev;
    int rc;
    if (queue->block_bytes >= bytes)
        return 0;
    if ((rc = dev->stream_sync(dev, queue->stream, err)) < 0)
        return rc;
    dev->free(dev, queue->block);
    queue->block = NULL;
    queue->block_bytes = 0;
    if ((rc = dev->alloc(dev, "others' parts of sums", bytes, &queue->block, err)) < 0)
        return rc;
    queue->block_bytes = bytes;
    return 0;
}

/* ---- groups of messages ---- */

/* Describes elements that are sent to, and elements that are received from, one rank. */
struct both { const char *send; char *recv; int64_t send_n, recv_n; };

static int both_queue(struct comm_plane *p, const struct plane_link *l, enum dtype t, int peer,
                      const struct both *b, struct err *err)
{
    const struct coll_ops *o = p->coll;
    int rc;
    if (b->recv_n > 0 &&
        (rc = o->recv(l->coll, b->recv, b->recv_n, t, peer, l->queue->stream, err)) < 0)
        return rc;
    return b->send_n > 0 ? o->send(l->coll, b->send, b->send_n, t, peer, l->queue->stream, err) : 0;
}

/* Ends a group of messages. rc is the result of queueing them. */
static int group_end(struct comm_plane *p, struct plane_link *l, int rc, struct err *err)
{
    struct err end = {0};
    int ended = p->coll->group_end(l->coll, &end);
    if (rc < 0)
        return rc;
    return ended < 0 ? err_set(err, ended, "%s", end.text) : plane_settle(p, l, "connects", err);
}

/* Says what goes to and comes from one rank in an exchange. */
typedef struct both both_fn(const struct comm_work *w, int peer, const void *ctx);

/* Queues an exchange between all ranks as one operation. */
static int exchange(struct comm_plane *p, struct plane_link *l, const struct comm_work *w,
                    both_fn *of, const void *ctx, struct err *err)
{
    int rc;
    if ((rc = p->coll->group_begin(l->coll, err)) < 0)
        return rc;
    for (int step = 1; step < l->size && rc == 0; step++) {
        int peer = (l->rank + step) % l->size;
        struct both b = of(w, peer, ctx);
        rc = both_queue(p, l, w->op.dtype, peer, &b, err);
    }
    return group_end(p, l, rc, err);
}

static struct both range_of(const struct comm_work *w, int r, const void *ctx)
{
    int64_t e = dtype_bytes(w->op.dtype);
    (void)ctx;
    return (struct both){w->src + w->send_at[r] * e, w->dst + w->recv_at[r] * e,
                         w->send_n[r], w->recv_n[r]};
}

static int messages(struct comm_plane *p, struct plane_link *l, const struct comm_work *w,
                    struct err *err)
{
    int rc;
    if ((rc = p->coll->group_begin(l->coll, err)) < 0)
        return rc;
    for (int i = 0; i < w->op.n_messages && rc == 0; i++) {
        const struct comm_message *m = &w->messages[i];
        struct both b = {m->buf, m->buf, m->send ? m->n : 0, m->send ? 0 : m->n};
        rc = both_queue(p, l, w->op.dtype, l->from < 0 ? m->peer : !l->rank, &b, err);
    }
    return group_end(p, l, rc, err);
}

/* ---- gathers ---- */

/* Tells whether all ranks have the same number of elements, stored one rank after the other. */
static bool is_even(const struct comm_work *w, const int64_t *n, const int64_t *at)
{
    for (int r = 0; r < w->c->size; r++)
        if (n[r] != n[0] || at[r] != r * n[0])
            return false;
    return true;
}

static int gather(struct comm_plane *p, struct plane_link *l, struct comm_work *w, struct err *err)
{
    int64_t n = w->recv_n[l->rank];
    int rc;
    if (is_even(w, w->recv_n, w->recv_at) && n > 0) {
        const char *own = w->src + w->send_at[l->rank] * dtype_bytes(w->op.dtype);
        if ((rc = p->coll->all_gather(l->coll, own, w->dst, n, w->op.dtype, l->queue->stream,
                                      err)) < 0)
            return rc;
        return plane_settle(p, l, "connects", err);
    }
    comm_work_own(w, l->queue->stream);
    return exchange(p, l, w, range_of, NULL, err);
}

/* ---- sums ---- */

static bool is_librarys(const struct comm_work *w)
{
    return !w->c->conf->ordered && (w->op.dtype == DTYPE_F64 || w->op.dtype == DTYPE_F32);
}

/* Describes the pieces that are exchanged at a time: elements at .. at + most - 1 of each part,
 * which are received in block. */
struct pieces { int64_t at, most; char *block; };

/* Returns how many elements of a part of n are in the pieces. */
static int64_t in_pieces(const struct pieces *s, int64_t n)
{
    return num_max_i64(0, num_min_i64(s->most, n - s->at));
}

static struct both exchanged_piece(const struct comm_work *w, int r, const void *ctx)
{
    const struct pieces *s = ctx;
    int64_t e = dtype_bytes(w->op.dtype), own = in_pieces(s, w->recv_n[w->c->rank]);
    return (struct both){w->src + (w->send_at[r] + s->at) * e, s->block + r * own * e,
                         in_pieces(s, w->send_n[r]), own};
}

static int pieces_sum(struct comm_plane *p, struct plane_link *l, const struct comm_work *w,
                      const struct pieces *s, struct err *err)
{
    int64_t e = dtype_bytes(w->op.dtype), n = in_pieces(s, w->recv_n[l->rank]);
    int rc;
    if ((rc = exchange(p, l, w, exchanged_piece, s, err)) < 0)
        return rc;
    if (n > 0)
        p->coll->sum_parts(p->dev, s->block, n, l->size,
                           w->src + (w->send_at[l->rank] + s->at) * e, l->rank,
                           w->dst + (w->recv_at[l->rank] + s->at) * e, n, w->op.dtype,
                           l->queue->stream);
    return 0;
}

/* Forms the sum of this rank's part in rank order. */
static int ordered_sum(struct comm_plane *p, struct plane_link *l, const struct comm_work *w,
                       struct err *err)
{
    int64_t e = dtype_bytes(w->op.dtype), most = 0;
    struct pieces s = {.most = BUFFER_ORDERED_BYTES / e};
    int rc;
    for (int r = 0; r < l->size; r++)
        most = num_max_i64(most, w->send_n[r]);
    if ((rc = plane_block_take(p, l->queue, in_pieces(&s, w->recv_n[l->rank]) * e * l->size,
                               err)) < 0)
        return rc;
    for (s.block = l->queue->block; s.at < most; s.at += s.most)
        if ((rc = pieces_sum(p, l, w, &s, err)) < 0)
            return rc;
    return 0;
}

static int reduce_scatter(struct comm_plane *p, struct plane_link *l, const struct comm_work *w,
                          struct err *err)
{
    int64_t n = w->recv_n[l->rank];
    int rc;
    if (!is_librarys(w) || !is_even(w, w->send_n, w->send_at) || n == 0)
        return ordered_sum(p, l, w, err);
    if ((rc = p->coll->reduce_scatter(l->coll, w->src, w->dst, n, w->op.dtype, l->queue->stream,
                                      err)) < 0)
        return rc;
    return plane_settle(p, l, "connects", err);
}

static int all_reduce(struct comm_plane *p, struct plane_link *l, struct comm_work *w,
                      struct err *err)
{
    int own = l->rank, rc;
    if (is_librarys(w) && w->op.n > 0) {
        if ((rc = p->coll->all_reduce(l->coll, w->dst, w->dst, w->op.n, w->op.dtype,
                                      l->queue->stream, err)) < 0)
            return rc;
        return plane_settle(p, l, "connects", err);
    }
    if ((rc = ordered_sum(p, l, w, err)) < 0)
        return rc;
    for (int r = 0; r < l->size; r++)
        w->send_n[r] = w->recv_n[own], w->send_at[r] = w->recv_at[own];
    return gather(p, l, w, err);
}

int plane_issue(struct comm_plane *p, struct plane_link *l, struct comm_work *w, struct err *err)
{
    switch (w->op.kind) {
    case COMM_SEND_RECV: return messages(p, l, w, err);
    case COMM_ALL_GATHER: return gather(p, l, w, err);
    case COMM_REDUCE_SCATTER: return reduce_scatter(p, l, w, err);
    case COMM_ALL_REDUCE: return all_reduce(p, l, w, err);
    case COMM_ALL_TO_ALL:
    case COMM_BROADCAST: comm_work_own(w, l->queue->stream); break;
    case COMM_BARRIER: break;
    }
    return exchange(p, l, w, range_of, NULL, err);
}
