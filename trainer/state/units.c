#include "trainer/state/units.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/state/fault.h"

static int take(struct units *u, const char *what, int64_t elements, enum dtype t, void **out,
                struct err *err)
{
    return u->ops->dev->alloc(u->ops->dev, what, elements * dtype_bytes(t), out, err);
}

/* Allocates the working buffers number i. */
static int slot_take(struct units *u, int i, struct err *err)
{
    int rc;
    u->w[i].unit = u->g[i].unit = -1;
    if (u->zero == 3 &&
        (rc = take(u, "gathered weights", u->most, u->ops->act, &u->w[i].ptr, err)) < 0)
        return rc;
    if (u->zero < 2)
        return 0;
    if ((rc = take(u, "gradients of a unit", u->most_trained, u->ops->stat, &u->g[i].ptr, err)) < 0)
        return rc;
    return take(u, "summed gradients of a unit", u->most_trained / u->sh->group, u->ops->stat,
                &u->summed[i], err);
}

static int64_t health_bytes(const struct shards *sh)
{
    return (sh->n_trained + 1) * (int64_t)sizeof(struct ops_health);
}

int units_memory(const struct shards *sh, struct buffer_list *memory, struct err *err)
{
    int rc;
    if ((rc = buffer_list_add(memory, "health of units", BUFFER_WORK, DTYPE_BYTE, 1, 1,
                              health_bytes(sh), err)) < 0)
        return rc;
    return buffer_list_add_host(memory, "health of units on the host", BUFFER_WORK, BUFFER_PINNED,
                                1, health_bytes(sh), err);
}

static int places_take(struct units *u, struct err *err)
{
    const struct shards *sh = u->sh;
    struct dev *dev = u->ops->dev;
    int rc;
    u->written = calloc((size_t)sh->n_trained + 1, sizeof *u->written);
    u->left = calloc((size_t)sh->n_trained + 1, sizeof *u->left);
    if (!u->written || !u->left)
        return err_set(err, ERR_NOMEM, "out of memory for %lld units", (long long)sh->n_units);
    if ((rc = dev->alloc(dev, "health of units", health_bytes(sh), (void **)&u->health, err)) < 0)
        return rc;
    if ((rc = dev->alloc_host(dev, "health of units", health_bytes(sh), (void **)&u->told,
                              err)) < 0)
        return rc;
    for (int i = 0; i < 2; i++)
        if ((rc = slot_take(u, i, err)) < 0)
            return rc;
    return 0;
}

int units_open(struct units *u, const struct shards *sh, int zero, struct comm *shard_group,
               struct ops *ops, struct dev_stream *stream, void *weights, void *grads,
               struct err *err)
{
    *u = (struct units){
        .sh = sh, .zero = zero, .group = shard_group, .ops = ops, .stream = stream,
        .weights = weights, .grads = grads,
        .most = shards_most_elements(sh), .most_trained = shards_most_trained(sh)};
    int rc;
    if ((rc = places_take(u, err)) < 0)
        units_close(u);
    return rc;
}

void units_close(struct units *u)
{
    if (!u->ops)
        return;
    for (int i = 0; i < 2; i++) {
        u->ops->dev->free(u->ops->dev, u->w[i].ptr);
        u->ops->dev->free(u->ops->dev, u->g[i].ptr);
        u->ops->dev->free(u->ops->dev, u->summed[i]);
    }
    u->ops->dev->free(u->ops->dev, u->health);
    u->ops->dev->free_host(u->ops->dev, u->told);
    free(u->written);
    free(u->left);
    *u = (struct units){0};
}

static void *at(void *buffer, int64_t element, enum dtype t)
{
    return (char *)buffer + element * dtype_bytes(t);
}

static void start(struct units *u, const struct comm_op *op, struct comm_work **work)
{
    *work = NULL;
    if (u->failed == 0)
        u->failed = comm_start(u->group, op, u->stream, work, &u->err);
}

static void await(struct units *u, struct comm_work **work)
{
    if (*work && u->failed == 0)
        u->failed = comm_wait(u->group, *work, u->stream, &u->err);
    *work = NULL;
}

void units_begin(struct units *u, int64_t micros, int64_t chunks)
{
    memset(u->written, 0, (size_t)u->sh->n_trained * sizeof *u->written);
    u->ops->dev->fill(u->ops->dev, u->health, 0, u->sh->n_trained * (int64_t)sizeof *u->health,
                      u->stream);
    for (int64_t i = 0; i < u->sh->n_trained; i++)
        u->left[i] = micros == 0
                         ? -1
                         : micros * (u->sh->units[i].layer == PARAM_LAYER_COND ? chunks : 1);
}

/* ---- weights ---- */

static void gather_unit(struct units *u, int64_t unit, void *to, struct comm_work **work)
{
    const struct shard_unit *s = &u->sh->units[unit];
    struct comm_op op = {
        .kind = COMM_ALL_GATHER, .what = "weights of a unit",
        .dtype = u->ops->act, .n = s->elements / u->sh->group,
        .send = at(u->weights, s->offset / u->sh->group, u->ops->act), .recv = to};
    start(u, &op, work);
}

static void gather(struct units *u, struct unit_buffer *b, int64_t unit)
{
    const struct shard_unit *s = &u->sh->units[unit];
    b->unit = unit;
    gather_unit(u, unit, b->ptr, &b->work);
    if (s->sibling >= 0)
        gather_unit(u, s->sibling, at(b->ptr, s->elements, u->ops->act), &b->sibling);
}

static void await_both(struct units *u, struct unit_buffer *b)
{
    await(u, &b->work);
    await(u, &b->sibling);
}

void units_use(struct units *u, int64_t unit, int64_t next)
{
    if (u->zero < 3)
        return;
    int have = u->w[1].unit == unit;
    if (u->w[have].unit != unit) {
        await_both(u, &u->w[have]);
        gather(u, &u->w[have], unit);
    }
    await_both(u, &u->w[have]);
    if (next < 0 || u->w[!have].unit == next)
        return;
    await_both(u, &u->w[!have]);
    gather(u, &u->w[!have], next);
}

void *units_weights(struct units *u, int64_t unit)
{
    if (u->zero < 3)
        return at(u->weights, u->sh->units[unit].offset, u->ops->act);
    int64_t sibling = u->sh->units[unit].sibling;
    int have = u->w[1].unit == unit || (sibling >= 0 && u->w[1].unit == sibling);
    const struct unit_buffer *b = &u->w[have];
    BUG_ON(b->work || b->sibling || b->unit < 0 || (b->unit != unit && b->unit != sibling));
    return b->unit == unit ? b->ptr : at(b->ptr, u->sh->units[sibling].elements, u->ops->act);
}

void units_forget(struct units *u)
{
    for (int i = 0; i < 2; i++) {
        await_both(u, &u->w[i]);
        u->w[i].unit = -1;
    }
}

/* ---- gradients ---- */

static struct tensor row(void *ptr, enum dtype t, int64_t n)
{
    return tensor_of(ptr, t, 1, n);
}

/* Starts the unit's sums if its gradients of the last micro-batch are complete. */
static void complete(struct units *u, int64_t unit)
{
    if (u->left[unit] == 0 && u->sums && u->failed == 0)
        sums_start(u->sums, unit);
}

/* Waits for the sum of working buffer i, and adds it to this rank's piece or stores it there. */
static void collect(struct units *u, int i)
{
    struct unit_buffer *g = &u->g[i];
    if (g->unit < 0)
        return;
    const struct shard_unit *s = &u->sh->units[g->unit];
    enum dtype t = u->ops->stat;
    int64_t piece = s->elements / u->sh->group;
    struct tensor sum = row(u->summed[i], t, piece),
                  own = row(at(u->grads, s->offset / u->sh->group, t), t, piece);
    await(u, &g->work);
    int64_t unit = g->unit, layer = u->ops->layer;
    bool backward = u->ops->backward;
    u->ops->layer = s->layer, u->ops->backward = true; /* not the layer being computed meanwhile */
    if (u->written[unit])
        u->ops->axpy(u->ops, u->stream, &(struct ops_axpy){sum, own, 1});
    else
        u->ops->copy(u->ops, u->stream, &(struct ops_copy){sum, own});
    u->ops->layer = layer, u->ops->backward = backward;
    u->written[unit] = true;
    g->unit = -1;
    if (u->g[!i].unit != unit) /* else gradients of another micro-batch are still being summed */
        complete(u, unit);
}

/* Returns the number of a unit's working buffer: the buffer that it already has, or the one whose
 * last use is longer ago. */
static int working(struct units *u, int64_t unit)
{
    for (int i = 0; i < 2; i++)
        if (u->g[i].unit == unit && !u->g[i].work)
            return i;
    int i = u->turn;
    u->turn = !i;
    collect(u, i);
    return i;
}

void *units_grads(struct units *u, int64_t unit)
{
    if (u->zero < 2)
        return at(u->grads, u->sh->units[unit].offset, u->ops->stat);
    int i = working(u, unit);
    if (u->g[i].unit != unit) { /* the gaps between tensors are summed as well */
        u->ops->dev->fill(u->ops->dev, u->g[i].ptr, 0,
                          u->sh->units[unit].elements * dtype_bytes(u->ops->stat), u->stream);
        u->g[i].unit = unit;
    }
    return u->g[i].ptr;
}

double units_beta(const struct units *u, int64_t unit)
{
    return u->zero < 2 && u->written[unit] ? 1 : 0;
}

/* ---- whose numbers were not finite ---- */

/* Queues a check of n gradients for numbers that are not finite. */
static void look(struct units *u, int64_t unit, void *grads, int64_t n)
{
    if (n > 0)
        u->ops->sumsq(u->ops, u->stream,
                      &(struct ops_sumsq){row(grads, u->ops->stat, n), u->health + unit, true});
}

/* Queues such a check, with look, of elements first .. end-1 of whole gradients. */
static void look_between(struct units *u, int64_t unit, int64_t first, int64_t end)
{
    look(u, unit, at(u->grads, first, u->ops->stat), end - first);
}

/* Finds the first part of a unit, at or after `from`, that is a partial sum over tp, kv or pp. A
 * part that begins before `from` is cut there. Returns false if there is none. */
static bool partial_find(const struct units *u, int64_t unit, int64_t from, int64_t *first,
                         int64_t *end)
{
    *first = INT64_MAX;
    for (int rule = PIECE_SUM_TP; rule < PIECE_RULES; rule++)
        for (int64_t i = 0; i < u->spans[rule].n; i++) {
            const struct piece_span *s = &u->spans[rule].items[i];
            int64_t begin = s->unit == unit ? piece_whole(u->sh, unit, s->at) : 0;
            if (s->unit != unit || begin + s->n <= from || begin >= *first)
                continue;
            *first = begin > from ? begin : from;
            *end = begin + s->n;
        }
    return *first < INT64_MAX;
}

/* Checks a unit whose gradients no data-parallel sum overwrites: either the parts that sums over
 * tp, kv and pp overwrite, or all other parts. */
static void partials_look(struct units *u, int64_t unit, bool overwritten)
{
    const struct shard_unit *s = &u->sh->units[unit];
    int64_t from = s->offset, first, end;
    for (; partial_find(u, unit, from, &first, &end); from = end)
        look_between(u, unit, overwritten ? first : from, overwritten ? end : first);
    if (!overwritten)
        look_between(u, unit, from, s->offset + s->elements);
}

/* Checks a unit with whole gradients: either the part that sums over ranks will overwrite, because
 * after a sum a bad number cannot be traced to a rank; or the rest, which stays this rank's own. */
static void part_look(struct units *u, int64_t unit, bool overwritten)
{
    const struct shard_unit *s = &u->sh->units[unit];
    int64_t piece = s->elements / u->sh->group, own = s->offset + piece * u->sh->group_rank;
    if (!u->sums || !u->spans) { /* it is not known what is summed over ranks */
        if (overwritten)
            look_between(u, unit, s->offset, s->offset + s->elements);
        return;
    }
    if (u->sh->group == 1 && u->sums->replica->size == 1) {
        partials_look(u, unit, overwritten);
    } else if (overwritten) {
        look_between(u, unit, own, own + piece);
    } else {
        look_between(u, unit, s->offset, own);
        look_between(u, unit, own + piece, s->offset + s->elements);
    }
}

int units_nonfinite(struct units *u, int64_t *unit, struct err *err)
{
    struct dev *dev = u->ops->dev;
    int64_t found = -1, place = INT64_MIN;
    int rc;
    for (int64_t i = 0; u->zero < 2 && i < u->sh->n_trained; i++)
        part_look(u, i, false);
    dev->copy(dev, u->told, u->health, u->sh->n_trained * (int64_t)sizeof *u->health, DEV_D2H,
              u->stream);
    if ((rc = dev->stream_sync(dev, u->stream, err)) < 0)
        return rc;
    for (int64_t i = 0; i < u->sh->n_trained; i++) {
        /* Backward goes from the head down to the first layer. */
        int64_t layer = u->sh->units[i].layer, at = layer == PARAM_LAYER_HEAD ? INT64_MAX : layer;
        if (u->told[i].nonfinite > 0 && at > place)
            found = i, place = at;
    }
    *unit = found;
    return 0;
}

void units_done(struct units *u, int64_t unit)
{
    if (unit >= u->sh->n_trained)
        return;
    u->left[unit]--;
    if (u->zero < 2) {
        u->written[unit] = true;
        if (u->left[unit] == 0)
            part_look(u, unit, true);
        complete(u, unit);
        return;
    }
    const struct shard_unit *s = &u->sh->units[unit];
    void *from = units_grads(u, unit);
    int i = from == u->g[1].ptr;
    look(u, unit, from, s->elements);
    struct comm_op op = {
        .kind = COMM_REDUCE_SCATTER, .what = "gradients of a unit", .dtype = u->ops->stat,
        .send = from, .recv = u->summed[i], .n = s->elements / u->sh->group};
    if (fault_active == FAULT_POINT_SUM_UNIT)
        u->ops->copy(
            u->ops, u->stream,
            &(struct ops_copy){row(at(from, op.n * u->sh->group_rank, op.dtype), op.dtype, op.n),
                               row(op.recv, op.dtype, op.n)});
    else
        start(u, &op, &u->g[i].work);
    if (u->failed)
        u->g[i].unit = -1;
}

void units_flush(struct units *u)
{
    enum dtype t = u->ops->stat;
    for (int64_t i = 0; i < u->sh->n_trained && u->zero < 2; i++)
        if (u->written[i] && u->left[i] != 0) /* units_done could not know which one was the last */
            part_look(u, i, true);
    for (int64_t i = 0; i < u->sh->n_trained && u->zero < 2; i++)
        if (!u->written[i]) /* this rank had no sample */
            u->ops->dev->fill(u->ops->dev, at(u->grads, u->sh->units[i].offset, t), 0,
                              u->sh->units[i].elements * dtype_bytes(t), u->stream);
    for (int i = 0; i < 2 && u->zero >= 2; i++)
        collect(u, i);
}

int units_failed(struct units *u, struct err *err)
{
    if (u->failed < 0)
        return err_set(err, u->failed, "%s", u->err.text);
    /* Check this before a broken group is used. */
    return u->sums && u->sums->failed < 0 ? err_set(err, u->sums->failed, "%s", u->sums->err.text)
                                          : 0;
}
