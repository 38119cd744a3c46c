#include "trainer/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

int optim_plan(const struct flat *flat, const struct run *run, int zero, int dp_size, enum dtype t, struct buffer_list *plan,
               struct err *err)
{
    return buffers_state(&(struct buffer_state){flat->total, dp_size, zero, run->adamw.ema_decay > 0, t}, plan, err);
}

static int take(struct optim *o, const char *what, int64_t elements, void **out, struct err *err)
{
    return o->ops->dev->alloc(o->ops->dev, what, elements * dtype_bytes(o->ops->stat), out, err);
}

int optim_open(struct optim *o, const struct param_list *params, const struct flat *flat, const struct run *run, int zero,
               struct comm *dp, struct ops *ops, struct dev_stream *stream, struct err *err)
{
    BUG_ON(ops->act != ops->stat);
    *o = (struct optim){.params = params, .flat = flat, .run = run, .ops = ops, .stream = stream, .dp = dp, .zero = zero};
    o->shard = buffers_piece_elements(flat->total, dp->size);
    o->padded = o->shard * dp->size;
    o->own_first = zero ? o->shard * dp->rank : 0;
    o->own_n = zero ? o->shard : o->padded;
    int rc = take(o, "weights", o->padded, &o->weights, err);
    if (rc == 0)
        rc = take(o, "gradients", o->padded, &o->grads, err);
    if (rc == 0)
        rc = take(o, "adamw m", o->own_n, &o->m, err);
    if (rc == 0)
        rc = take(o, "adamw v", o->own_n, &o->v, err);
    if (rc == 0 && run->adamw.ema_decay > 0)
        rc = take(o, "ema", o->own_n, &o->ema, err);
    if (rc == 0)
        rc = ops->dev->alloc(ops->dev, "step block", sizeof *o->step, (void **)&o->step, err);
    if (rc == 0)
        rc = ops->dev->alloc(ops->dev, "health", sizeof *o->health, (void **)&o->health, err);
    if (rc == 0)
        rc = comm_reserve(dp, 1, buffers_exchange_bytes(dp->size, o->shard * dtype_bytes(ops->stat)), err);
    if (rc < 0)
        optim_close(o);
    return rc;
}

void optim_close(struct optim *o)
{
    if (!o->ops)
        return;
    void *all[] = {o->weights, o->grads, o->m, o->v, o->ema, o->step, o->health};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        o->ops->dev->free(o->ops->dev, all[i]);
    memset(o, 0, sizeof *o);
}

static struct tensor run_of(const struct optim *o, void *buffer, int64_t first, int64_t n)
{
    return tensor_of((char *)buffer + first * dtype_bytes(o->ops->stat), o->ops->stat, 1, n);
}

int optim_zero(struct optim *o, struct err *err)
{
    struct dev *dev = o->ops->dev;
    int64_t bytes = dtype_bytes(o->ops->stat);
    dev->zero(dev, o->weights, o->padded * bytes, o->stream);
    dev->zero(dev, o->grads, o->padded * bytes, o->stream);
    dev->zero(dev, o->m, o->own_n * bytes, o->stream);
    dev->zero(dev, o->v, o->own_n * bytes, o->stream);
    if (o->ema)
        dev->zero(dev, o->ema, o->own_n * bytes, o->stream);
    o->updates = 0;
    BUG_ON(!dev->host_memory); /* set-up and checkpoints read and write the buffers directly */
    return dev->stream_sync(dev, o->stream, err);
}

int optim_init(struct optim *o, struct err *err)
{
    int64_t bytes = dtype_bytes(o->ops->stat);
    int rc = optim_zero(o, err);
    if (rc < 0)
        return rc;
    flat_init(o->flat, o->params, o->run->seed, o->weights, o->ops->stat);
    if (o->ema)
        memcpy(o->ema, (char *)o->weights + o->own_first * bytes, (size_t)(o->own_n * bytes));
    return 0;
}

/* Sum over the data-parallel group: everywhere with zero 0, in the own piece with zero 1. */
static int grads_sum(struct optim *o, struct err *err)
{
    char *own = (char *)o->grads + o->own_first * dtype_bytes(o->ops->stat);
    struct comm_op op = {.kind = COMM_ALL_REDUCE, .what = "gradients", .recv = o->grads, .n = o->padded, .dtype = o->ops->stat};
    if (o->zero)
        op.kind = COMM_REDUCE_SCATTER, op.send = o->grads, op.recv = own, op.n = o->shard;
    return comm_do(o->dp, &op, o->stream, err);
}

/* Norm of the whole gradient: pieces are summed one by one and then in rank order, the same way for zero 0 and 1. */
static int health_take(struct optim *o, double *norm, double *bad, struct err *err)
{
    double sums[2] = {0, 0};
    int pieces = o->zero ? 1 : o->dp->size;
    for (int p = 0; p < pieces; p++) {
        struct ops_sumsq args = {.x = run_of(o, o->grads, o->own_first + p * o->shard, o->shard), .out = o->health};
        o->ops->sumsq(o->ops, o->stream, &args);
        int rc = o->ops->dev->stream_sync(o->ops->dev, o->stream, err);
        if (rc < 0)
            return rc;
        BUG_ON(!o->ops->dev->host_memory);
        sums[0] += o->health->sumsq;
        sums[1] += (double)o->health->nonfinite;
    }
    int rc = o->zero ? comm_sum(o->dp, sums, 2, err) : 0;
    *norm = sqrt(sums[0]);
    *bad = sums[1];
    return rc;
}

/* AdamW on what lies of tensor i in the own range. */
static void tensor_update(struct optim *o, int64_t i)
{
    const struct param *p = &o->params->items[i];
    int64_t first = num_max_i64(o->flat->offset[i], o->own_first);
    int64_t end = num_min_i64(o->flat->offset[i] + p->count, o->own_first + o->own_n);
    if (first >= end || !(p->flags & PARAM_TRAINABLE))
        return;
    struct ops_adamw args = {
        .step = o->step,
        .grad = run_of(o, o->grads, first, end - first),
        .master = run_of(o, o->weights, first, end - first),
        .m = run_of(o, o->m, first - o->own_first, end - first),
        .v = run_of(o, o->v, first - o->own_first, end - first),
        .ema = o->ema ? run_of(o, o->ema, first - o->own_first, end - first) : tensor_none(),
        .weight = tensor_none(),
        .beta1 = o->run->adamw.beta1,
        .beta2 = o->run->adamw.beta2,
        .eps = o->run->adamw.eps,
        .weight_decay = p->flags & PARAM_DECAY ? o->run->adamw.weight_decay : 0,
        .lr_scale = p->lr_scale,
        .ema_decay = o->run->adamw.ema_decay,
    };
    o->ops->adamw(o->ops, o->stream, &args);
}

static int weights_gather(struct optim *o, struct err *err)
{
    const char *own = (const char *)o->weights + o->own_first * dtype_bytes(o->ops->stat);
    return comm_do(o->dp, &(struct comm_op){.kind = COMM_ALL_GATHER, .what = "weights", .send = own, .recv = o->weights, .n = o->shard,
                                            .dtype = o->ops->stat}, o->stream, err);
}

int optim_step(struct optim *o, int64_t step, struct optim_result *out, struct err *err)
{
    double norm, bad, clip = o->run->adamw.clip_norm;
    int rc = grads_sum(o, err);
    if (rc < 0 || (rc = health_take(o, &norm, &bad, err)) < 0)
        return rc;
    bool skip = bad > 0 || !isfinite(norm);
    double t = (double)(o->updates + 1);
    *o->step = (struct ops_step){
        .lr = run_lr_at(o->run, step),
        .bias1 = 1 - pow(o->run->adamw.beta1, t),
        .bias2 = 1 - pow(o->run->adamw.beta2, t),
        .grad_scale = clip > 0 && norm > clip ? clip / norm : 1,
        .skip = skip,
    };
    for (int64_t i = 0; i < o->params->n && !skip; i++)
        tensor_update(o, i);
    if ((rc = o->ops->dev->stream_sync(o->ops->dev, o->stream, err)) < 0)
        return rc;
    o->updates += !skip;
    if (o->zero && !skip)
        rc = weights_gather(o, err);
    *out = (struct optim_result){norm, skip};
    return rc;
}
