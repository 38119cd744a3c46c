/* This is the backend of a group of one rank. comm.c has copied the part that the rank gives
 * itself, so only messages to itself are left.
 */
#include <stdlib.h>
#include <string.h>

#include "trainer/comm/comm_priv.h"

/* Returns the k-th receive of the list; NULL if there is none. */
static const struct comm_message *receive_at(const struct comm_message *list, int n, int k)
{
    for (int i = 0; i < n; i++)
        if (!list[i].send && k-- == 0)
            return &list[i];
    return NULL;
}

static int messages_pass(const struct comm_message *list, int n, enum dtype t, struct err *err)
{
    int sends = 0;
    for (int i = 0; i < n; i++) {
        if (!list[i].send)
            continue;
        const struct comm_message *to = receive_at(list, n, sends++);
        if (!to || to->n != list[i].n)
            return err_set(err, ERR_STATE,
                           "a rank alone sends %lld elements to itself and receives %lld",
                           (long long)list[i].n, to ? (long long)to->n : 0LL);
        if (to->n)
            memmove(to->buf, list[i].buf, (size_t)(to->n * dtype_bytes(t)));
    }
    if (receive_at(list, n, sends))
        return err_set(err, ERR_STATE, "a rank alone waits for a message that it does not send");
    return 0;
}

static int self_start(struct comm *c, struct comm_work *w, struct err *err)
{
    (void)c;
    int rc;
    if ((rc = messages_pass(w->messages, w->op.n_messages, w->op.dtype, err)) < 0) {
        comm_work_uncover(w, false, NULL); /* nothing is in flight: *w can be used again */
        w->taken = false;
        return rc;
    }
    w->done = true;
    return 0;
}

static int self_wait(struct comm *c, struct comm_work *w, struct err *err)
{
    (void)c, (void)w, (void)err;
    return 0;
}

static void self_progress(struct comm *c)
{
    (void)c;
}

static int self_reserve(struct comm *c, int works, int64_t bytes, struct err *err)
{
    (void)c, (void)works, (void)bytes, (void)err;
    return 0;
}

static int self_split(struct comm *c, const char *axis, int rank, int size, const int *world_ranks,
                      int64_t number, struct comm **out, struct err *err)
{
    (void)rank, (void)size, (void)world_ranks, (void)number;
    return comm_self_new(c, axis, out, err);
}

static void self_abort(struct comm *c, int exit_code)
{
    if (c->parent)
        c->parent->backend->abort(c->parent, exit_code);
    _Exit(exit_code);
}

static void self_close(struct comm *c)
{
    (void)c;
}

/* Does nothing, because there is no other rank to ask. */
static int self_ask(struct comm *world, const struct comm_ask *ask)
{
    (void)world, (void)ask;
    return 0;
}
static bool self_answer(struct comm *world)
{
    (void)world;
    return false;
}

static const struct comm_backend self_backend = {
    "self", INT64_MAX,
    self_start, self_wait, self_progress, self_reserve,
    self_split, self_abort, self_close, self_ask, self_answer
};

int comm_self_new(struct comm *parent, const char *axis, struct comm **out, struct err *err)
{
    return comm_new(parent, &self_backend, axis, 0, 1,
                    parent ? &parent->world_ranks[parent->rank] : NULL, out, err);
}

int comm_self_open(struct comm **out, struct err *err)
{
    return comm_self_new(NULL, "world", out, err);
}
