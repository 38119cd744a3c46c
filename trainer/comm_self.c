/* The backend of one rank: copies where the two buffers differ, nothing else. */
#include <stdlib.h>
#include <string.h>

#include "trainer/comm.h"

static int self_all_gather(struct comm *c, const void *send, void *recv, int64_t n, enum dtype t, struct dev_stream *s,
                           struct err *err)
{
    int rc = comm_wait_stream(c, s, err);
    if (rc == 0 && send != recv)
        memmove(recv, send, (size_t)(n * dtype_bytes(t)));
    return rc;
}

/* The sum over one rank is what stands there. */
static int self_reduce(struct comm *c, void *buf, int64_t n, enum dtype t, struct dev_stream *s, struct err *err)
{
    (void)buf, (void)n, (void)t;
    return comm_wait_stream(c, s, err);
}

static int self_all_to_all(struct comm *c, const void *send, const int *send_n, const int *send_at, void *recv,
                           const int *recv_n, const int *recv_at, enum dtype t, struct dev_stream *s, struct err *err)
{
    int64_t e = dtype_bytes(t);
    int rc = comm_wait_stream(c, s, err);
    BUG_ON(send_n[0] != recv_n[0]);
    if (rc == 0)
        memmove((char *)recv + recv_at[0] * e, (const char *)send + send_at[0] * e, (size_t)(send_n[0] * e));
    return rc;
}

/* The k-th receive of the list, NULL if there is none. */
static const struct comm_message *receive_at(const struct comm_message *list, int n, int k)
{
    for (int i = 0; i < n; i++)
        if (!list[i].send && k-- == 0)
            return &list[i];
    return NULL;
}

static int self_send_recv(struct comm *c, const struct comm_message *list, int n, enum dtype t, struct dev_stream *s,
                          struct err *err)
{
    int sends = 0, rc = comm_wait_stream(c, s, err);
    for (int i = 0; i < n && rc == 0; i++) {
        if (!list[i].send)
            continue;
        const struct comm_message *to = receive_at(list, n, sends++);
        if (!to || to->n != list[i].n)
            return err_set(err, ERR_STATE, "a rank alone sends %lld elements to itself and receives %lld", (long long)list[i].n,
                           to ? (long long)to->n : 0LL);
        memmove(to->buf, list[i].buf, (size_t)(to->n * dtype_bytes(t)));
    }
    if (rc == 0 && receive_at(list, n, sends))
        return err_set(err, ERR_STATE, "a rank alone waits for a message that it does not send");
    return rc;
}

static int self_broadcast(struct comm *c, void *buf, int64_t bytes, int root, struct dev_stream *s, struct err *err)
{
    (void)buf, (void)bytes, (void)root;
    return comm_wait_stream(c, s, err);
}

static int self_barrier(struct comm *c, struct err *err)
{
    (void)c, (void)err;
    return 0;
}

static int self_split(struct comm *c, int color, int key, struct comm **out, struct err *err)
{
    (void)color, (void)key;
    int rc = comm_self_open(out, err);
    if (rc == 0)
        (*out)->dev = c->dev, (*out)->parent = c;
    return rc;
}

static void self_abort(struct comm *c, int exit_code)
{
    (void)c;
    _Exit(exit_code);
}

static void self_close(struct comm *c)
{
    free(c->scratch);
    free(c);
}

int comm_self_open(struct comm **out, struct err *err)
{
    struct comm *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, ERR_NOMEM, "out of memory opening the group of one rank");
    *c = (struct comm){.name = "self", .size = 1, .all_gather = self_all_gather, .reduce_scatter = self_reduce,
                       .all_reduce = self_reduce, .all_to_all = self_all_to_all, .send_recv = self_send_recv,
                       .broadcast = self_broadcast, .barrier = self_barrier, .split = self_split, .abort = self_abort,
                       .close = self_close};
    *out = c;
    return 0;
}
