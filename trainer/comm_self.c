/* The backend of one rank: copies where the two buffers differ, nothing else. */
#include <stdlib.h>
#include <string.h>

#include "trainer/comm.h"

static int self_all_gather(struct comm *c, const void *send, void *recv, int64_t n, enum dtype t, struct err *err)
{
    (void)c, (void)err;
    if (send != recv)
        memmove(recv, send, (size_t)(n * dtype_bytes(t)));
    return 0;
}

static int self_reduce_scatter(struct comm *c, void *buf, int64_t n, enum dtype t, struct err *err)
{
    (void)c, (void)buf, (void)n, (void)t, (void)err;
    return 0;
}

static int self_all_to_all(struct comm *c, const void *send, const int *send_n, const int *send_at, void *recv,
                           const int *recv_n, const int *recv_at, enum dtype t, struct err *err)
{
    (void)c, (void)err, (void)recv_n;
    int64_t e = dtype_bytes(t);
    memmove((char *)recv + recv_at[0] * e, (const char *)send + send_at[0] * e, (size_t)(send_n[0] * e));
    return 0;
}

static int self_send_recv(struct comm *c, const void *send, int64_t send_n, int to, void *recv, int64_t recv_n, int from,
                          enum dtype t, struct err *err)
{
    (void)c, (void)recv_n;
    if ((to < 0) != (from < 0))
        return err_set(err, ERR_STATE, "a world of one rank cannot send without receiving");
    if (to >= 0)
        memmove(recv, send, (size_t)(send_n * dtype_bytes(t)));
    return 0;
}

static int self_broadcast(struct comm *c, void *buf, int64_t bytes, int root, struct err *err)
{
    (void)c, (void)buf, (void)bytes, (void)root, (void)err;
    return 0;
}

static int self_barrier(struct comm *c, struct err *err)
{
    (void)c, (void)err;
    return 0;
}

static int self_split(struct comm *c, int color, int key, struct comm **out, struct err *err)
{
    (void)c, (void)color, (void)key;
    return comm_self_open(out, err);
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
        return err_set(err, ERR_NOMEM, "out of memory");
    *c = (struct comm){.name = "self", .size = 1, .all_gather = self_all_gather, .reduce_scatter = self_reduce_scatter,
                       .all_to_all = self_all_to_all, .send_recv = self_send_recv, .broadcast = self_broadcast,
                       .barrier = self_barrier, .split = self_split, .abort = self_abort, .close = self_close};
    *out = c;
    return 0;
}
