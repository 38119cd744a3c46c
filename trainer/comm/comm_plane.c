/* Manages the communicators and streams of a plane: how groups join and leave, and how an operation
 * is queued on a stream of messages and waited for. */
#include "trainer/comm/comm_plane.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/num.h"
#include "trainer/comm/comm_plane_priv.h"

int comm_plane_new(struct comm *world, struct dev *dev, const struct coll_ops *coll,
                   struct comm_plane **out, struct err *err)
{
    struct comm_plane *p = calloc(1, sizeof *p);
    int rc = p ? coll->check(err) : err_set(err, ERR_NOMEM, "no memory for %s", coll->name);
    if ((rc = comm_agree(world, rc, err)) < 0) {
        free(p);
        return rc;
    }
    *p = (struct comm_plane){.world = world, .dev = dev, .coll = coll};
    dev->watch = plane_watch;
    dev->watch_ctx = p;
    *out = p;
    return 0;
}

/* ---- streams of messages ---- */

static void queue_free(struct comm_plane *p, struct plane_queue *queue)
{
    struct dev *dev = p->dev;
    dev->free(dev, queue->block);
    for (int i = 0; i < PLANE_DEPTH; i++)
        if (queue->issued[i].over)
            dev->event_free(dev, queue->issued[i].over);
    if (queue->before)
        dev->event_free(dev, queue->before);
    if (queue->stream)
        dev->stream_free(dev, queue->stream);
    free(queue);
}

static int queue_fill(struct comm_plane *p, struct plane_queue *queue, const char *name,
                      enum dev_priority priority, struct err *err)
{
    struct dev *dev = p->dev;
    int rc;
    if ((rc = dev->stream_new(dev, name, priority, &queue->stream, err)) < 0)
        return rc;
    if ((rc = dev->event_new(dev, &queue->before, err)) < 0)
        return rc;
    for (int i = 0; i < PLANE_DEPTH; i++)
        if ((rc = dev->event_new(dev, &queue->issued[i].over, err)) < 0)
            return rc;
    return 0;
}

static int queue_new(struct comm_plane *p, const char *name, enum dev_priority priority,
                     struct plane_queue **out, struct err *err)
{
    struct plane_queue *queue = calloc(1, sizeof *queue);
    int rc;
    if (!queue)
        return err_set(err, ERR_NOMEM, "stream of %s: no memory", name);
    if ((rc = queue_fill(p, queue, name, priority, err)) < 0) {
        queue_free(p, queue);
        return rc;
    }
    queue->next = p->queues;
    *out = p->queues = queue;
    return 0;
}

static int queue_of(struct comm_plane *p, enum plane_kind kind, struct plane_queue **out,
                    struct err *err)
{
    bool sums = kind == PLANE_SUMS;
    int rc;
    if (!p->of[kind] &&
        (rc = queue_new(p, sums ? "sums" : "messages",
                       sums ? DEV_PRIORITY_NORMAL : DEV_PRIORITY_HIGH, &p->of[kind], err)) < 0)
        return rc;
    *out = p->of[kind];
    return 0;
}

void comm_plane_free(struct comm_plane *p)
{
    if (!p)
        return;
    BUG_ON(p->links);
    p->dev->watch = NULL;
    p->dev->watch_ctx = NULL;
    for (struct plane_queue *queue = p->queues, *next; queue; queue = next) {
        next = queue->next;
        queue_free(p, queue);
    }
    free(p);
}

/* ---- communicators ---- */

static struct plane_link *link_find(const struct comm *c, int from, int to)
{
    struct plane_link *l = c->world->plane ? c->world->plane->links : NULL;
    while (l && (l->c != c || l->from != from || l->to != to))
        l = l->next;
    return l;
}

struct plane_link *comm_plane_link(const struct comm *c, const struct comm_op *op,
                                   const struct dev_stream *s)
{
    if (!s || !c->world->plane || op->kind == COMM_BARRIER)
        return NULL;
    if (op->kind == COMM_SEND_RECV && op->n_messages == 1) {
        const struct comm_message *m = op->messages;
        struct plane_link *edge = link_find(c, m->send ? c->rank : m->peer,
                                            m->send ? m->peer : c->rank);
        if (edge)
            return edge;
    }
    return link_find(c, -1, -1);
}

bool comm_plane_has(const struct comm *c) { return link_find(c, -1, -1); }

int64_t comm_plane_queued(const struct comm_plane *p, uint64_t id)
{
    const struct plane_link *l = p ? p->links : NULL;
    while (l && l->id != id)
        l = l->next;
    return l ? l->queued : -1;
}

/* Makes a communicator that is not open yet. */
static int link_new(const struct plane_link *as, struct plane_link **out, struct err *err)
{
    struct plane_link *l = malloc(sizeof *l);
    if (!l)
        return err_set(err, ERR_NOMEM, "group %s: no memory", as->c->axis);
    *l = *as;
    *out = l;
    return 0;
}

/* Opens a communicator, which it takes, and whose id all its ranks have got. After a failure of the
 * library the ranks no longer agree, so the world is broken. */
static int link_open(struct comm_plane *p, struct plane_link *l, const struct coll_id *id,
                     struct err *err)
{
    int rc;
    if ((rc = p->coll->open(p->dev, id, l->size, l->rank, l->c->axis, &l->coll, err)) < 0) {
        free(l);
        return plane_break(p, err);
    }
    uint64_t parts[] = {l->c->id, (uint64_t)l->from, (uint64_t)l->to};
    l->id = hash_64(parts, sizeof parts);
    l->next = p->links;
    p->links = l;
    if ((rc = plane_settle(p, l, "opens", err)) < 0)
        return plane_break(p, err);
    return 0;
}

/* Closes a communicator, or aborts it where its world is broken. */
static void link_close(struct comm_plane *p, struct plane_link *l)
{
    struct err err = {0};
    struct plane_link **at = &p->links;
    if (l->coll && !p->world->broken && p->dev->stream_sync(p->dev, l->queue->stream, &err) < 0)
        plane_break(p, &err);
    if (l->coll && !p->world->broken)
        p->coll->close(l->coll);
    else if (l->coll)
        p->coll->abort(l->coll);
    l->queue->over = l->queue->queued; /* entries of `issued` point at this link: forget them */
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    free(l);
}

void comm_plane_leave(struct comm *c)
{
    struct comm_plane *p = c->world->plane;
    for (struct plane_link *l = p ? p->links : NULL, *next; l; l = next) {
        next = l->next;
        if (l->c == c)
            link_close(p, l);
    }
}

/* ---- joining ----
 *
 * A library like NCCL connects two ranks when they first exchange data, and holds the host until
 * both are there. So each communicator does each of its operations once, with meaningless numbers,
 * before the steps rely on a host that does not wait. */

/* Does one operation of each kind. `x` has room for four numbers per rank. */
static int group_connect(struct comm *c, struct plane_queue *queue, double *x, int64_t *ones,
                         struct err *err)
{
    int64_t n = c->size, *at = ones + n;
    for (int64_t r = 0; r < n; r++)
        ones[r] = 1, at[r] = r;
    const struct comm_op ops[] = {
        {.kind = COMM_ALL_REDUCE, .recv = x, .n = n},
        {.kind = COMM_ALL_GATHER, .send = x, .recv = x + n, .n = 1},
        {.kind = COMM_REDUCE_SCATTER, .send = x, .recv = x + 2 * n, .n = 1},
        {.kind = COMM_ALL_TO_ALL, .send = x, .recv = x + 3 * n,
         .counts = ones, .at = at, .recv_counts = ones, .recv_at = at}};
    int rc;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        struct comm_op op = ops[i];
        op.what = "a connection", op.dtype = DTYPE_F64;
        if ((rc = comm_do(c, &op, queue->stream, err)) < 0)
            return rc;
    }
    return c->dev->stream_sync(c->dev, queue->stream, err);
}

/* Frees the memory that a stream's sums have needed until now. */
static void block_free(struct comm_plane *p, struct plane_queue *queue)
{
    p->dev->free(p->dev, queue->block);
    queue->block = NULL;
    queue->block_bytes = 0;
}

static int group_try(struct comm_plane *p, struct comm *c, struct plane_queue *queue,
                     struct err *err)
{
    int64_t *ones = calloc(2 * (size_t)c->size, sizeof *ones);
    void *x = NULL;
    int rc = ones ? p->dev->alloc(p->dev, "a connection", 4 * 8 * (int64_t)c->size, &x, err)
                  : err_set(err, ERR_NOMEM, "group %s: no memory", c->axis);
    if ((rc = comm_agree(c, rc, err)) == 0)
        rc = group_connect(c, queue, x, ones, err);
    p->dev->free(p->dev, x);
    block_free(p, queue);
    free(ones);
    c->ops = c->sent_bytes = 0;
    return rc;
}

int comm_plane_join(struct comm *c, enum plane_kind kind, struct err *err)
{
    struct comm_plane *p = c->world->plane;
    struct plane_link as = {.c = c, .from = -1, .to = -1, .rank = c->rank, .size = c->size},
                      *link = NULL;
    struct coll_id id = {{0}};
    int rc;
    if (!p || c->size == 1)
        return 0;
    rc = c->rank == 0 ? p->coll->id(&id, err) : 0;
    if (rc == 0) /* all ranks agree on it below */
        rc = queue_of(p, kind, &as.queue, err);
    if (rc == 0) /* likewise */
        rc = link_new(&as, &link, err);
    if ((rc = comm_agree(c, rc, err)) < 0)
        goto out;
    if ((rc = comm_broadcast_bytes(c, &id, sizeof id, 0, err)) < 0)
        goto out;
    rc = link_open(p, link, &id, err);
    link = NULL;
    if (rc < 0)
        goto out;
    rc = group_try(p, c, as.queue, err);
out:
    free(link);
    return rc;
}

/* Sends one number along an edge, or receives it on the edge's other rank. */
static int edge_connect(struct comm *c, struct plane_queue *queue, int peer, bool send, void *x,
                        struct err *err)
{
    struct comm_message m = {x, 1, peer, send};
    struct comm_op op = {
        .kind = COMM_SEND_RECV, .what = "a connection", .dtype = DTYPE_F64,
        .messages = &m, .n_messages = 1};
    int rc;
    if ((rc = comm_do(c, &op, queue->stream, err)) < 0)
        return rc;
    return c->dev->stream_sync(c->dev, queue->stream, err);
}

/* Describes the edges of this rank, in the order in which it opens them: to and from the next rank
 * and the previous one. */
struct edges {
    int n;
    struct edge { struct plane_link *link; struct coll_id id; } at[4]; /* link: NULL once opened */
    void *x; /* device memory of one number */
};

/* Makes what is needed to open an edge, while the ranks can still agree on a failure. */
static int edge_make(struct comm_plane *p, struct comm *c, int from, int to, struct edges *e,
                     struct err *err)
{
    struct plane_link as = {.c = c, .from = from, .to = to, .rank = c->rank != from, .size = 2};
    struct edge *made = &e->at[e->n++];
    int rc;
    if (c->rank == from && (rc = p->coll->id(&made->id, err)) < 0)
        return rc;
    if ((rc = queue_new(p, "an edge", DEV_PRIORITY_HIGH, &as.queue, err)) < 0)
        return rc;
    return link_new(&as, &made->link, err);
}

/* Makes the two edges between ranks k and k + 1 of a group, if this rank is one of the two. */
static int pair_make(struct comm_plane *p, struct comm *c, int k, struct edges *e, struct err *err)
{
    int next = (k + 1) % c->size, rc;
    if (c->rank != k && c->rank != next)
        return 0;
    if ((rc = edge_make(p, c, k, next, e, err)) < 0)
        return rc;
    return edge_make(p, c, next, k, e, err);
}

/* Lists the pairs in one order on all ranks, so that the ranks do not wait in a circle: first the
 * pairs that begin with an even rank, which can be opened at the same time, then the others. */
static int edges_make(struct comm_plane *p, struct comm *c, bool around, struct edges *e,
                      struct err *err)
{
    int pairs = around && c->size > 2 ? c->size : c->size - 1, rc;
    for (int odd = 0; odd < 2; odd++)
        for (int k = odd; k < pairs; k += 2)
            if ((rc = pair_make(p, c, k, e, err)) < 0)
                return rc;
    return p->dev->alloc(p->dev, "a connection", 8, &e->x, err);
}

/* Gives the edge's id to its other rank, or gets it from there, and opens the edge. */
static int edge_open(struct comm_plane *p, struct edge *e, void *x, struct err *err)
{
    struct plane_link *l = e->link;
    struct comm *c = l->c;
    bool send = c->rank == l->from;
    int peer = send ? l->to : l->from, rc;
    struct comm_message m = {&e->id, sizeof e->id, peer, send};
    struct comm_op tell = {
        .kind = COMM_SEND_RECV, .what = "an edge", .dtype = DTYPE_BYTE,
        .messages = &m, .n_messages = 1};
    struct plane_queue *queue = l->queue;
    if ((rc = comm_do(c, &tell, NULL, err)) < 0)
        return rc;
    e->link = NULL;
    if ((rc = link_open(p, l, &e->id, err)) < 0)
        return rc;
    return edge_connect(c, queue, peer, send, x, err);
}

static int edges_open(struct comm_plane *p, struct edges *e, struct err *err)
{
    int rc;
    for (int i = 0; i < e->n; i++)
        if ((rc = edge_open(p, &e->at[i], e->x, err)) < 0)
            return rc;
    return 0;
}

int comm_plane_edges(struct comm *c, bool around, struct err *err)
{
    struct comm_plane *p = c->world->plane;
    struct edges e = {0};
    int rc;
    if (!p || c->size == 1)
        return 0;
    rc = edges_make(p, c, around, &e, err);
    if ((rc = comm_agree(c, rc, err)) < 0)
        goto out;
    rc = edges_open(p, &e, err);
    rc = comm_agree(c, rc, err);
out:
    for (int i = 0; i < e.n; i++)
        free(e.at[i].link);
    p->dev->free(p->dev, e.x);
    c->ops = c->sent_bytes = 0;
    return rc;
}

/* ---- operations ---- */

/* Notes the operation that was just queued, and records an event after it. */
static void work_note(struct comm_plane *p, struct plane_link *l, struct comm_work *w)
{
    struct plane_queue *queue = l->queue;
    struct plane_issued *i = &queue->issued[queue->queued % PLANE_DEPTH];
    w->place = queue->queued++;
    i->link = l;
    i->kind = w->op.kind, i->what = w->op.what;
    i->bytes = w->sent_bytes;
    i->number = ++l->queued, i->order = p->queued++;
    i->at_s = clock_mono_s();
    p->dev->event_record(p->dev, i->over, queue->stream);
}

int comm_plane_start(struct comm_work *w, struct dev_stream *s, struct err *err)
{
    struct comm_plane *p = w->c->world->plane;
    struct plane_link *l = w->link;
    int rc;
    if ((rc = plane_room(p, l->queue, err)) < 0)
        return rc;
    p->dev->event_record(p->dev, l->queue->before, s);
    p->dev->event_wait(p->dev, l->queue->stream, l->queue->before);
    if ((rc = plane_issue(p, l, w, err)) < 0)
        return plane_break(p, err);
    work_note(p, l, w);
    return 0;
}

/* Makes a stream wait for an operation. One that was seen to be over needs no wait, and its event
 * may belong to a later operation by now. */
int comm_plane_wait(const struct comm_work *w, struct dev_stream *s)
{
    struct comm_plane *p = w->c->world->plane;
    struct plane_queue *queue = w->link->queue;
    if (w->place >= queue->over)
        p->dev->event_wait(p->dev, s, queue->issued[w->place % PLANE_DEPTH].over);
    return 0;
}

int comm_plane_reserve(struct comm *c, int64_t bytes, struct err *err)
{
    struct buffer_scratch s = {c->size, 0, bytes};
    return plane_block_take(c->world->plane, link_find(c, -1, -1)->queue, buffer_ordered_bytes(&s),
                            err);
}
