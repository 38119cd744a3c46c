/* This is the engine of the MPI backend: every operation is messages between all pairs of its
 * ranks, moved by polling.
 *
 * A comm_work is a small state machine. An exchange posts all its receives and sends at once, and
 * is done when all of them are. A reduction sends each rank its part in portions of
 * COMM_MESSAGE_BYTES, one message each, a window of `depth` portions at a time (comm_reserve). It
 * receives into a slot of the group's scratch, [every other rank][depth · portion]. When the
 * messages of all ranks have come, they are added up in rank order; this rank's part is read from
 * its source. Sending needs no slot and advances independently of receiving, so a reduction without
 * a slot delays only its own receives. An all-reduce exchanges the sums after its last sum.
 * Portions have one size, whatever the ranks reserved.
 *
 * A poll advances the operations of *all* groups, so two ranks may wait for the same ones in
 * different orders. All messages are sent in MPI's world. The tag tells the group and the number of
 * the operation in it, so messages of two operations never mix. send_recvs, in which not all ranks
 * of a group need take part, have one tag per group, and match in the order in which they were
 * started.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/num.h"
#include "trainer/comm/comm_mpi_peers.h"
#include "trainer/comm/comm_mpi_priv.h"
#include "trainer/comm/comm_plane.h"

enum {
    SUM_BLOCK = 512,   /* elements added up at a time: they stay in the first-level cache */
    NAMED_RANKS = 16,  /* the most ranks that a sentence names */
    /* polls before a wait looks at the clock and yields: small messages have come by then */
    EAGER_POLLS = 32,
    /* MPI sends at least this much at once; the sender of a longer message may wait for its
     * receive */
    EAGER_BYTES = 256,
};
/* A wait polls for this long, then it sleeps between polls. The time is shorter where ranks share
 * processors, because polling takes time from another rank that computes. A wait sleeps at once
 * while other processes use the processors too. */
static const double poll_alone_s = 0.2, poll_crowded_s = 2e-3;
/* A nap ends when the bell is rung, or after this part of the wait so far, within bounds. So a
 * message that rings no bell (comm_mpi_bells.h) is noticed with a delay that is small beside the
 * wait, and a long wait costs hardly any processor time. */
static const double nap_part = 1. / 64, nap_least_s = 50e-6, nap_most_s = 1e-3;
static const double look_s = 0.05; /* time between two checks whether the peers live */

static MPI_Datatype type_of(enum dtype t)
{
    switch (t) {
    case DTYPE_F64: return MPI_DOUBLE;
    case DTYPE_F32: return MPI_FLOAT;
    case DTYPE_BF16: return MPI_UINT16_T;
    case DTYPE_FP8:
    case DTYPE_BYTE: return MPI_UINT8_T;
    }
    return MPI_DATATYPE_NULL;
}

static struct mpi_work *own_of(const struct comm_work *w) { return w->self; }
static struct mpi_group *group_of(const struct comm_work *w) { return w->c->self; }

/* ---- messages ---- */

/* Rings the bell of a rank of w's group, which may be sleeping until this rank sends to it or
 * receives from it. */
static void ring(const struct comm_work *w, int peer)
{
    comm_bells_ring(comm_peers_bells(w->c->world->peers), w->c->world_ranks[peer]);
}

static int post_recv(struct comm_work *w, void *to, int64_t n, int peer)
{
    struct mpi_batch *b = &own_of(w)->recvs;
    int status = MPI_Irecv(to, (int)n, type_of(w->op.dtype), w->c->world_ranks[peer],
                           own_of(w)->tag, MPI_COMM_WORLD, &b->requests[b->n]);
    b->peers[b->n] = peer;
    b->n += status == MPI_SUCCESS, b->open += status == MPI_SUCCESS;
    if (n * dtype_bytes(w->op.dtype) > EAGER_BYTES)
        ring(w, peer);
    return status;
}

static int post_send(struct comm_work *w, const void *from, int64_t n, int peer)
{
    struct mpi_batch *b = &own_of(w)->sends;
    int status = MPI_Isend(from, (int)n, type_of(w->op.dtype), w->c->world_ranks[peer],
                           own_of(w)->tag, MPI_COMM_WORLD, &b->requests[b->n]);
    b->peers[b->n] = peer;
    b->n += status == MPI_SUCCESS, b->open += status == MPI_SUCCESS;
    ring(w, peer);
    return status;
}

static int batch_test(struct comm_work *w, struct mpi_batch *b)
{
    struct mpi_group *g = group_of(w);
    int done = 0;
    if (b->open == 0)
        return MPI_SUCCESS;
    int status = MPI_Testsome(b->n, b->requests, &done, g->indices, g->statuses);
    for (int i = 0; status == MPI_ERR_IN_STATUS && i < done; i++)
        if (g->statuses[i].MPI_ERROR != MPI_SUCCESS && g->statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            return g->statuses[i].MPI_ERROR;
    if (status != MPI_SUCCESS)
        return status;
    BUG_ON(done == MPI_UNDEFINED);
    b->open -= done;
    w->c->world->completed += done;
    return MPI_SUCCESS;
}

/* ---- exchange ---- */

static int exchange_post(struct comm_work *w)
{
    int64_t e = dtype_bytes(w->op.dtype);
    int size = w->c->size, rank = w->c->rank, status = MPI_SUCCESS;
    bool empty = w->op.kind == COMM_BARRIER; /* its empty messages are sent all the same */
    own_of(w)->sends.n = own_of(w)->recvs.n = 0;
    for (int step = 1; step < size && status == MPI_SUCCESS; step++) {
        int r = (rank + size - step) % size;
        if (w->recv_n[r] || empty)
            status = post_recv(w, empty ? NULL : w->dst + w->recv_at[r] * e, w->recv_n[r], r);
    }
    for (int step = 1; step < size && status == MPI_SUCCESS; step++) {
        int r = (rank + step) % size;
        if (w->send_n[r] || empty)
            status = post_send(w, empty ? NULL : w->src + w->send_at[r] * e, w->send_n[r], r);
    }
    return status;
}

static int messages_post(struct comm_work *w)
{
    int status = MPI_SUCCESS;
    own_of(w)->sends.n = own_of(w)->recvs.n = 0;
    for (int i = 0; i < w->op.n_messages && status == MPI_SUCCESS; i++) {
        const struct comm_message *m = &w->messages[i];
        if (m->n)
            status = m->send ? post_send(w, m->buf, m->n, m->peer)
                             : post_recv(w, m->buf, m->n, m->peer);
    }
    return status;
}

/* ---- reduction ---- */

static int64_t portion_of(const struct comm_work *w)
{
    return COMM_MESSAGE_BYTES / dtype_bytes(w->op.dtype);
}
static int64_t window_of(const struct comm_work *w) { return portion_of(w) * group_of(w)->depth; }

static int64_t longest_part(const struct comm_work *w)
{
    int64_t most = 0;
    for (int r = 0; r < w->c->size; r++)
        most = num_max_i64(most, r == w->c->rank ? 0 : w->send_n[r]);
    return most;
}

/* Sends the next window of every other rank's part. */
static int parts_send(struct comm_work *w)
{
    struct mpi_work *m = own_of(w);
    int64_t e = dtype_bytes(w->op.dtype), end = m->sent + window_of(w), portion = portion_of(w);
    int status = MPI_SUCCESS;
    m->sends.n = 0;
    for (int64_t at = m->sent; at < end; at += portion)
        for (int step = 1; step < w->c->size && status == MPI_SUCCESS; step++) {
            int r = (w->c->rank + step) % w->c->size;
            int64_t n = num_min_i64(portion, w->send_n[r] - at);
            if (n > 0)
                status = post_send(w, w->src + (w->send_at[r] + at) * e, n, r);
        }
    m->sent = end;
    return status;
}

static char *slot_of(const struct comm_work *w)
{
    const struct mpi_group *g = group_of(w);
    return g->scratch + own_of(w)->slot * comm_mpi_slot_bytes(w->c, g->depth);
}

/* Returns the index of rank r's part in a slot, which has no place for this rank's own part. */
static int64_t place_of(int r, int rank) { return r - (r > rank); }

static bool slot_take(struct comm_work *w)
{
    struct mpi_group *g = group_of(w);
    for (int i = 0; i < g->slots && own_of(w)->slot < 0; i++)
        if (!g->slot_taken[i])
            g->slot_taken[i] = true, own_of(w)->slot = i;
    return own_of(w)->slot >= 0;
}

static void slot_give(struct comm_work *w)
{
    if (own_of(w)->slot >= 0)
        group_of(w)->slot_taken[own_of(w)->slot] = false;
    own_of(w)->slot = -1;
}

/* Receives the next window of this rank's part from every other rank. Rank r's numbers begin at
 * element place_of(r) · arriving of the slot. */
static int part_receive(struct comm_work *w)
{
    struct mpi_work *m = own_of(w);
    int64_t e = dtype_bytes(w->op.dtype), portion = portion_of(w);
    int status = MPI_SUCCESS;
    if (!slot_take(w))
        return MPI_SUCCESS;
    m->recvs.n = 0;
    m->arriving = num_min_i64(window_of(w), w->recv_n[w->c->rank] - m->got);
    for (int64_t at = 0; at < m->arriving; at += portion)
        for (int step = 1; step < w->c->size && status == MPI_SUCCESS; step++) {
            int r = (w->c->rank + w->c->size - step) % w->c->size;
            status = post_recv(w, slot_of(w) + (place_of(r, w->c->rank) * m->arriving + at) * e,
                               num_min_i64(portion, m->arriving - at), r);
        }
    return status;
}

/* Adds up n elements of all ranks in rank order: own[0..n-1] and the other ranks' in the slot. The
 * sums are formed in type SUM and rounded once. out may be own. */
#define SUM_RANKS(name, T, SUM, WIDEN, ROUND)                                                      \
    static void name(T *out, const T *own, const T *slot, int64_t n, int rank, int size)           \
    {                                                                                              \
        SUM sum[SUM_BLOCK];                                                                        \
        for (int64_t at = 0; at < n; at += SUM_BLOCK) {                                            \
            int64_t k = num_min_i64(SUM_BLOCK, n - at);                                            \
            const T *first = (rank == 0 ? own : slot) + at;                                        \
            for (int64_t i = 0; i < k; i++)                                                        \
                sum[i] = WIDEN(first[i]);                                                          \
            for (int r = 1; r < size; r++) {                                                       \
                const T *from = r == rank ? own + at : slot + place_of(r, rank) * n + at;          \
                for (int64_t i = 0; i < k; i++)                                                    \
                    sum[i] += WIDEN(from[i]);                                                      \
            }                                                                                      \
            for (int64_t i = 0; i < k; i++)                                                        \
                out[at + i] = ROUND(sum[i]);                                                       \
        }                                                                                          \
    }
#define AS_IS(x) (x)
SUM_RANKS(sum_ranks_f64, double, double, AS_IS, AS_IS)
SUM_RANKS(sum_ranks_f32, float, float, AS_IS, AS_IS)
SUM_RANKS(sum_ranks_bf16, uint16_t, float, bf16_value, bf16_round)

/* Adds up elements got .. got + arriving-1 of this rank's part, which have come from all ranks. */
static void part_sum(struct comm_work *w)
{
    struct mpi_work *m = own_of(w);
    int rank = w->c->rank, size = w->c->size;
    int64_t e = dtype_bytes(w->op.dtype);
    void *out = w->dst + (w->recv_at[rank] + m->got) * e;
    const void *own = w->src + (w->send_at[rank] + m->got) * e, *slot = slot_of(w);
    switch (w->op.dtype) {
    case DTYPE_F64: sum_ranks_f64(out, own, slot, m->arriving, rank, size); break;
    case DTYPE_F32: sum_ranks_f32(out, own, slot, m->arriving, rank, size); break;
    case DTYPE_BF16: sum_ranks_bf16(out, own, slot, m->arriving, rank, size); break;
    case DTYPE_FP8:
    case DTYPE_BYTE: BUG_ON(true);
    }
    m->got += m->arriving;
    m->arriving = 0;
}

/* Sends this rank's sum to all ranks. All parts were sent, so the sources may be overwritten. */
static int sums_exchange(struct comm_work *w)
{
    int rank = w->c->rank;
    w->src = w->dst;
    for (int r = 0; r < w->c->size; r++)
        w->send_n[r] = w->recv_n[rank], w->send_at[r] = w->recv_at[rank];
    return exchange_post(w);
}

static int reduction_advance(struct comm_work *w)
{
    struct mpi_work *m = own_of(w);
    int64_t part = w->recv_n[w->c->rank];
    int status = MPI_SUCCESS;
    if (m->recvs.open == 0 && m->arriving > 0)
        part_sum(w);
    if (m->recvs.open == 0 && m->got < part)
        status = part_receive(w);
    if (m->got == part)
        /* The sends that are still open need no slot, so the next reduction can receive. */
        slot_give(w);
    if (status == MPI_SUCCESS && m->sends.open == 0 && m->sent < longest_part(w))
        status = parts_send(w);
    if (status != MPI_SUCCESS || m->got < part || m->sends.open > 0 || m->sent < longest_part(w))
        return status;
    m->reducing = false;
    return w->op.kind == COMM_ALL_REDUCE ? sums_exchange(w) : MPI_SUCCESS;
}

/* ---- operations in flight ---- */

static int work_advance(struct comm_work *w)
{
    struct mpi_work *m = own_of(w);
    int status = batch_test(w, &m->recvs);
    /* an exchange's sends are tested once its receives are done: usually they are done by then */
    if (status == MPI_SUCCESS && (m->reducing || m->recvs.open == 0))
        status = batch_test(w, &m->sends);
    if (status == MPI_SUCCESS && m->reducing)
        status = reduction_advance(w);
    w->done = status == MPI_SUCCESS && !m->reducing && m->sends.open == 0 && m->recvs.open == 0;
    return status;
}

static void flight_drop(struct comm_work *w)
{
    struct comm_work **at = &w->c->world->flight;
    while (*at && *at != w)
        at = &own_of(*at)->next;
    if (*at)
        *at = own_of(w)->next;
}

static void flight_add(struct comm_work *w)
{
    struct comm_work **at = &w->c->world->flight;
    while (*at)
        at = &own_of(*at)->next;
    own_of(w)->next = NULL;
    *at = w;
}

/* Advances every comm_work in flight, the oldest first. *failed is the one that failed. */
static int flight_advance(struct comm_world *world, struct comm_work **failed)
{
    for (struct comm_work *w = world->flight, *next; w; w = next) {
        next = own_of(w)->next;
        int status = work_advance(w);
        if (w->done || status != MPI_SUCCESS)
            flight_drop(w);
        if (status != MPI_SUCCESS) {
            *failed = w;
            return status;
        }
    }
    return MPI_SUCCESS;
}

int comm_mpi_start(struct comm *c, struct comm_work *w, struct err *err)
{
    struct mpi_work *m = own_of(w);
    bool messages = w->op.kind == COMM_SEND_RECV;
    m->tag = group_of(w)->first_tag +
             (messages ? COMM_TAG_MESSAGE
                       : (int)(group_of(w)->sequence++ % COMM_TAGS_NUMBERED));
    m->sends.n = m->sends.open = m->recvs.n = m->recvs.open = 0;
    m->sent = m->got = m->arriving = 0;
    m->slot = -1;
    m->reducing = comm_reduces(w->op.kind) && c->size > 1;
    int status = m->reducing ? reduction_advance(w)
                 : messages  ? messages_post(w)
                             : exchange_post(w);
    int rc;
    if ((rc = comm_mpi_checked(c, status, comm_kind_names[w->op.kind], err)) < 0) {
        slot_give(w);
        return rc;
    }
    flight_add(w);
    return 0;
}

/* ---- waiting ---- */

/* Writes "2, 5": the world ranks of a batch's open messages, each once. */
static void open_ranks(const struct comm *c, const struct mpi_batch *b, char *text, size_t size)
{
    int named = 0, more = 0;
    size_t n = 0;
    text[0] = 0;
    for (int r = 0; r < c->size; r++) {
        bool open = false;
        for (int i = 0; i < b->n && !open; i++)
            open = b->requests[i] != MPI_REQUEST_NULL && b->peers[i] == r;
        more += open && named == NAMED_RANKS;
        if (!open || named == NAMED_RANKS || n >= size)
            continue;
        n += (size_t)snprintf(text + n, size - n, "%s%d", named++ ? ", " : "", c->world_ranks[r]);
    }
    if (more && n < size)
        snprintf(text + n, size - n, " and %d more", more);
}

/* Returns w if it has an open message; else the oldest comm_work in flight that has one, or w if
 * none has. A reduction that waits for a slot has no open message itself. */
static struct comm_work *open_work(struct comm_work *w)
{
    const struct mpi_work *m = own_of(w);
    if (m->sends.open + m->recvs.open > 0)
        return w;
    for (struct comm_work *o = w->c->world->flight; o; o = own_of(o)->next)
        if (own_of(o)->sends.open + own_of(o)->recvs.open > 0)
            return o;
    return w;
}

static int wait_late(struct comm_work *w, double waited_s, struct err *err)
{
    struct comm_work *o = open_work(w);
    batch_test(o, &own_of(o)->sends);
    char from[200], to[200], behind[128] = "", missing[480];
    open_ranks(o->c, &own_of(o)->recvs, from, sizeof from);
    open_ranks(o->c, &own_of(o)->sends, to, sizeof to);
    snprintf(missing, sizeof missing, "%s%s%s%s%s", from[0] ? "no data from rank " : "", from,
             from[0] && to[0] ? ", " : "", to[0] ? "not taken by rank " : "", to);
    if (o != w)
        snprintf(behind, sizeof behind, " (behind %s '%s' in group %s)",
                 comm_kind_names[o->op.kind], o->op.what, o->c->axis);
    comm_break(w->c);
    flight_drop(w);
    return err_set(err, ERR_TEMP,
                   "%s '%s' in group %s of %d ranks, seen from rank %d of the world%s, is not done "
                   "after %.3g s: %s: one of them, or one that they wait for, hangs or is gone: "
                   "end all ranks and start the run again",
                   comm_kind_names[w->op.kind], w->op.what, w->c->axis, w->c->size,
                   w->c->world_ranks[w->c->rank], behind, waited_s, missing);
}

/* Fails if a rank's process has ended. It is called while nothing moves, and looks at most once in
 * look_s. */
static int peers_check(struct comm_work *w, double *looked, double now, struct err *err)
{
    struct comm_gone gone;
    if (now - *looked < look_s)
        return 0;
    *looked = now;
    comm_mpi_news_hear(w->c->world);
    if (!comm_peers_gone(w->c->world->peers, 0, &gone))
        return 0;
    comm_break(w->c);
    flight_drop(w);
    return err_set(err, ERR_TEMP,
                   COMM_GONE "rank %d waited for %s '%s' in group %s of %d ranks: run it again "
                             "from what was saved",
                   COMM_GONE_ARGS(gone), w->c->world_ranks[w->c->rank],
                   comm_kind_names[w->op.kind], w->op.what, w->c->axis, w->c->size);
}

/* Leaves the processor to others until the next poll. `heard` is the bell's count before the last
 * poll, and nothing has moved since `moved`. */
static void give_way(const struct comm_world *world, uint32_t heard, double moved, double now)
{
    double poll_s = comm_peers_crowded(world->peers) ? poll_crowded_s : poll_alone_s;
    if (now - moved < poll_s && !comm_peers_disturbed(world->peers, now))
        sched_yield();
    else
        comm_bells_sleep(comm_peers_bells(world->peers), world->rank, heard,
                         fmin(fmax(nap_part * (now - moved), nap_least_s), nap_most_s));
}

int comm_mpi_wait(struct comm *c, struct comm_work *w, struct err *err)
{
    double entered = clock_mono_s(), moved = entered, looked = entered,
           deadline_s = c->conf->deadline_s;
    int64_t completed = c->world->completed;
    struct comm_work *failed = NULL;
    for (int polls = 0;; polls += polls < EAGER_POLLS) {
        uint32_t heard = comm_bells_heard(comm_peers_bells(c->world->peers), c->world->rank);
        int status = flight_advance(c->world, &failed);
        if (status != MPI_SUCCESS) {
            comm_break(c);
            return comm_mpi_checked(failed->c, status, comm_kind_names[failed->op.kind], err);
        }
        if (w->done)
            return 0;
        if (polls < EAGER_POLLS)
            continue;
        if (comm_plane_poll(c->world->plane, err) < 0) {
            comm_break(c);
            flight_drop(w);
            return ERR_TEMP;
        }
        double now = clock_mono_s();
        if (completed != c->world->completed)
            completed = c->world->completed, moved = now;
        if (deadline_s > 0 && now - entered > deadline_s)
            return wait_late(w, now - entered, err);
        if (now - moved > poll_crowded_s && peers_check(w, &looked, now, err) < 0)
            return ERR_TEMP;
        give_way(c->world, heard, moved, now);
    }
}

/* Advances all operations. A failure breaks the group, and the next call returns the error. */
void comm_mpi_progress(struct comm *c)
{
    struct comm_work *failed = NULL;
    int status = flight_advance(c->world, &failed);
    if (status != MPI_SUCCESS)
        comm_mpi_checked(failed->c, status, comm_kind_names[failed->op.kind], &c->world->failure);
}
