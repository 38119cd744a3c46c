#include "trainer/state/sums.h"

#include <stdlib.h>
#include <string.h>

#include "profiles/piece.h"
#include "trainer/state/fault.h"

int sums_open(struct sums *s, const struct shards *sh, int zero, struct comm *shard,
              struct comm *replica, enum dtype dtype, struct dev_stream *stream, void *grads,
              struct err *err)
{
    *s = (struct sums){
        .sh = sh, .zero = zero, .shard = shard, .replica = replica,
        .stream = stream, .dtype = dtype, .grads = grads};
    s->started = calloc((size_t)sh->n_trained + 1, sizeof *s->started);
    return s->started ? 0
                      : err_set(err, ERR_NOMEM, "out of memory for the sums of %lld units",
                                (long long)sh->n_trained);
}

void sums_close(struct sums *s)
{
    free(s->started);
    *s = (struct sums){0};
}

/* ---- queues ---- */

static void push(struct sums *s, struct sums_queue *q, struct comm *c, const struct comm_op *op,
                 int64_t unit)
{
    BUG_ON(q->n == SUMS_FLIGHT);
    q->unit[q->n] = unit;
    q->work[q->n] = NULL;
    if (s->failed == 0)
        s->failed = comm_start(c, op, s->stream, &q->work[q->n], &s->err);
    q->n++;
}

static int64_t pop(struct sums *s, struct sums_queue *q, struct comm *c)
{
    int64_t unit = q->unit[0];
    if (s->failed == 0)
        s->failed = comm_wait(c, q->work[0], s->stream, &s->err);
    q->n--;
    memmove(q->unit, q->unit + 1, (size_t)q->n * sizeof *q->unit);
    memmove(q->work, q->work + 1, (size_t)q->n * sizeof *q->work);
    return unit;
}

/* ---- the two sums ---- */

static char *element(const struct sums *s, int64_t at)
{
    return (char *)s->grads + at * dtype_bytes(s->dtype);
}

static char *own_piece(const struct sums *s, int64_t unit)
{
    int64_t own = s->sh->units[unit].offset / s->sh->group;
    return element(s, s->zero < 2 ? piece_whole(s->sh, unit, own) : own);
}

static int64_t piece_elements(const struct sums *s, int64_t unit)
{
    return s->sh->units[unit].elements / s->sh->group;
}

static void scatter_start(struct sums *s, int64_t unit)
{
    struct comm_op op = {
        .kind = COMM_REDUCE_SCATTER, .what = "gradients of a unit",
        .send = element(s, s->sh->units[unit].offset), .recv = own_piece(s, unit),
        .n = piece_elements(s, unit), .dtype = s->dtype};
    push(s, &s->scatter, s->shard, &op, unit);
}

static void reduce_start(struct sums *s, int64_t unit)
{
    struct comm_op op = {
        .kind = COMM_ALL_REDUCE, .what = "gradients over replicas",
        .recv = own_piece(s, unit), .n = piece_elements(s, unit), .dtype = s->dtype};
    if (s->replica->size == 1 || fault_active == FAULT_POINT_SUM_REPLICA)
        return;
    if (s->reduce.n > SUMS_AHEAD)
        pop(s, &s->reduce, s->replica);
    push(s, &s->reduce, s->replica, &op, unit);
}

void sums_start(struct sums *s, int64_t unit)
{
    BUG_ON(s->started[unit]);
    s->started[unit] = true;
    if (s->zero >= 2 || fault_active == FAULT_POINT_SUM_UNIT) {
        reduce_start(s, unit);
        return;
    }
    scatter_start(s, unit);
    if (s->scatter.n > SUMS_AHEAD)
        reduce_start(s, pop(s, &s->scatter, s->shard));
}

int sums_finish(struct sums *s, struct err *err)
{
    for (int64_t k = 0; k < s->sh->n_trained; k++)
        if (!s->started[k])
            sums_start(s, k);
    while (s->scatter.n > 0)
        reduce_start(s, pop(s, &s->scatter, s->shard));
    while (s->reduce.n > 0)
        pop(s, &s->reduce, s->replica);
    memset(s->started, 0, (size_t)s->sh->n_trained * sizeof *s->started);
    return s->failed < 0 ? err_set(err, s->failed, "%s", s->err.text) : 0;
}
