/* Checks, in check mode, whether all ranks start the same operations in the same order.
 *
 * For every other rank of the world, a rank keeps three rolling hashes, which must equal the other
 * rank's: one of the operations started in groups that both are in; one of messages from the lower
 * to the higher rank; and one of messages the other way. (One send_recv may be matched by several
 * of the other rank, so the two ranks agree on the order of messages in each direction only.) The
 * hash covers what both ranks know of an operation: group, kind, type, what, and the counts of all
 * ranks or, where they differ from pair to pair, of this pair. The last ORDER_KEPT operations of
 * each are kept as texts, so that comm_order_check can name the first difference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "trainer/comm/comm_priv.h"

enum { ORDER_KEPT = 32, ORDER_TEXT = 120, STREAMS = 3 };
enum stream_kind { OF_ALL, UPWARD, DOWNWARD };

struct stream {
    uint64_t hash;
    int64_t count;
    /* entry i is at i mod ORDER_KEPT; its hash covers all entries up to it */
    struct { uint64_t hash; char text[ORDER_TEXT]; } last[ORDER_KEPT];
};

struct comm_order {
    struct stream (*peers)[STREAMS]; /* [ranks of the world] */
};

void comm_order_free(struct comm_order *o)
{
    if (o)
        free(o->peers);
    free(o);
}

static int order_open(struct comm_world *world, struct err *err)
{
    if (world->order)
        return 0;
    struct comm_order *o = calloc(1, sizeof *o);
    if (o)
        o->peers = calloc((size_t)world->size, sizeof *o->peers);
    if (!o || !o->peers) {
        comm_order_free(o);
        return err_set(err, ERR_NOMEM, "no memory to check the order of operations among %d ranks",
                       world->size);
    }
    world->order = o;
    return 0;
}

/* ---- recording ---- */

/* Holds what is hashed of one operation; it must be the same on the peer. */
struct seen {
    uint64_t group, what, counts;
    int64_t kind, dtype, n, back, root;
};

static void stream_add(struct stream *s, const struct comm *c, const struct comm_op *op,
                       struct seen *e)
{
    uint64_t parts[] = {s->hash, hash_64(e, sizeof *e)};
    int64_t at = s->count++ % ORDER_KEPT;
    s->hash = s->last[at].hash = hash_64(parts, sizeof parts);
    snprintf(s->last[at].text, ORDER_TEXT, "%s '%s' of %lld %s in group %s (id %04x)",
             comm_kind_names[op->kind], op->what,
             (long long)(op->kind == COMM_ALL_TO_ALL ? e->n + e->back : e->n),
             dtype_name(op->dtype), c->axis, (unsigned)(c->id & 0xffff));
}

static struct stream *stream_of(struct comm *c, int peer, enum stream_kind k)
{
    return &c->world->order->peers[c->world_ranks[peer]][k];
}

static bool is_lower(const struct comm *c, int peer)
{
    return c->world_ranks[c->rank] < c->world_ranks[peer];
}

static void messages_add(struct comm *c, const struct comm_work *w, const struct comm_op *op,
                         struct seen *e)
{
    for (int i = 0; i < w->op.n_messages; i++) {
        const struct comm_message *m = &w->messages[i];
        e->n = m->n;
        if (m->peer != c->rank)
            stream_add(stream_of(c, m->peer, is_lower(c, m->peer) == m->send ? UPWARD : DOWNWARD),
                       c, op, e);
    }
}

int comm_order_add(struct comm *c, const struct comm_work *w, const struct comm_op *op,
                   struct err *err)
{
    int rc;
    if ((rc = order_open(c->world, err)) < 0)
        return rc;
    const int64_t *counts = op->kind == COMM_ALL_GATHER ? w->recv_n
                            : comm_reduces(op->kind)    ? w->send_n
                                                        : NULL;
    struct seen e = {
        .group = c->id, .what = hash_64(op->what, strlen(op->what)),
        .kind = op->kind, .dtype = op->dtype,
        .counts = counts ? hash_64(counts, (size_t)c->size * sizeof *counts) : 0, .n = op->n,
        .root = op->kind == COMM_BROADCAST ? op->root : 0
    };
    if (op->counts && counts) {
        e.n = 0;
        for (int r = 0; r < c->size; r++)
            e.n += counts[r];
    }
    if (op->kind == COMM_SEND_RECV)
        messages_add(c, w, op, &e);
    for (int r = 0; r < c->size && op->kind != COMM_SEND_RECV; r++) {
        if (r == c->rank)
            continue;
        if (op->kind == COMM_ALL_TO_ALL) {
            e.n = is_lower(c, r) ? w->send_n[r] : w->recv_n[r];
            e.back = is_lower(c, r) ? w->recv_n[r] : w->send_n[r];
        }
        stream_add(stream_of(c, r, OF_ALL), c, op, &e);
    }
    return 0;
}

/* ---- comparing ---- */

/* Names two ranks of the group, the lower first, and the stream in which they differ. */
struct difference { int a, b, stream; };

static bool difference_find(const uint64_t *all, int size, struct difference *out)
{
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++)
            for (int k = 0; k < STREAMS; k++)
                if (all[(a * size + b) * STREAMS + k] != all[(b * size + a) * STREAMS + k]) {
                    *out = (struct difference){a, b, k};
                    return true;
                }
    return false;
}

static const char *text_at(const struct stream *s, int64_t i)
{
    return i < s->count ? s->last[i % ORDER_KEPT].text : "nothing more";
}

static int difference_tell(const struct comm *c, const struct stream *a, const struct stream *b,
                           const struct difference *d, struct err *err)
{
    int64_t most = num_max_i64(a->count, b->count), first = num_max_i64(0, most - ORDER_KEPT),
            i = first;
    while (i < a->count && i < b->count &&
           a->last[i % ORDER_KEPT].hash == b->last[i % ORDER_KEPT].hash)
        i++;
    /* earlier entries are no longer kept, so they may have differed already */
    bool older = i == first && first > 0;
    return err_set(err, ERR_STATE,
                   "ranks %d and %d of the world do not start the same operations in the same "
                   "order: operation %lld of those they share%s is %s on rank %d and %s on rank %d",
                   c->world_ranks[d->a], c->world_ranks[d->b], (long long)i + 1,
                   older ? " (perhaps one before already)" : "", text_at(a, i),
                   c->world_ranks[d->a], text_at(b, i), c->world_ranks[d->b]);
}

static int stream_share(struct comm *c, int from, int other, int stream, struct stream *out,
                        struct err *err)
{
    if (c->rank == from)
        *out = *stream_of(c, other, (enum stream_kind)stream);
    struct comm_op op = {
        .kind = COMM_BROADCAST, .what = "order",
        .recv = out, .n = (int64_t)sizeof *out, .root = from, .dtype = DTYPE_BYTE
    };
    return comm_do_quietly(c, &op, false, err);
}

static int hashes_gather(struct comm *c, uint64_t *mine, uint64_t *all, struct err *err)
{
    for (int r = 0; r < c->size; r++)
        for (int k = 0; k < STREAMS; k++)
            mine[r * STREAMS + k] = r == c->rank ? 0 : stream_of(c, r, (enum stream_kind)k)->hash;
    struct comm_op op = {
        .kind = COMM_ALL_GATHER, .what = "order",
        .send = mine, .recv = all,
        .n = (int64_t)sizeof *mine * c->size * STREAMS, .dtype = DTYPE_BYTE
    };
    return comm_do_quietly(c, &op, false, err);
}

int comm_order_check(struct comm *world, struct err *err)
{
    struct comm *c = world;
    size_t row = (size_t)c->size * STREAMS;
    struct difference d;
    if (!c->conf->check || c->size == 1)
        return 0;
    uint64_t *mine = calloc(row * (size_t)(c->size + 1), sizeof *mine);
    struct stream *two = calloc(2, sizeof *two);
    int rc;
    if (!mine || !two) {
        rc = err_set(err, ERR_NOMEM, "no memory to compare the order of operations");
        goto out;
    }
    if ((rc = order_open(c->world, err)) < 0)
        goto out;
    if ((rc = hashes_gather(c, mine, mine + row, err)) < 0)
        goto out;
    if (!difference_find(mine + row, c->size, &d))
        goto out;
    if ((rc = stream_share(c, d.a, d.b, d.stream, &two[0], err)) < 0)
        goto out;
    if ((rc = stream_share(c, d.b, d.a, d.stream, &two[1], err)) < 0)
        goto out;
    rc = difference_tell(c, &two[0], &two[1], &d, err);
out:
    free(mine);
    free(two);
    return rc;
}
