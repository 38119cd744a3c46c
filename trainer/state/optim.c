#include "trainer/state/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/state/fault.h"
#include "trainer/state/init.h"
#include "trainer/state/units.h"

int fault_active = FAULT_POINT_NONE;

/* ---- memory ---- */

int optim_state(const struct optim_conf *c, struct buffer_state *out, struct err *err)
{
    int rc = buffer_state_of(c->sh, c->params, c->layout, out, err);
    out->ema = c->run->adamw.ema_decay > 0;
    out->act = c->ops->act;
    out->stat = c->ops->stat;
    out->moments_bf16 = c->run->moments == MOMENTS_BF16;
    out->tp_bytes = c->tp_bytes;
    out->sums = c->sums;
    return rc;
}

/* Lists the memory for a step's numbers, one entry per block, as each is allocated by itself. */
static int numbers_list(struct buffer_list *memory, struct err *err)
{
    static const struct { const char *name; int64_t bytes; } blocks[] = {
        {"step block", sizeof(struct ops_step)}, {"health", sizeof(struct ops_health)},
        {"change", sizeof(struct ops_change)}};
    int rc;
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++)
        if ((rc = buffer_list_add(memory, blocks[i].name, BUFFER_WORK, DTYPE_BYTE, 1, 1,
                                  blocks[i].bytes, err)) < 0)
            return rc;
    return buffer_list_add_host(memory, "numbers of a step", BUFFER_WORK, BUFFER_PINNED, 1,
                                sizeof(struct optim_host), err);
}

int optim_memory(const struct optim_conf *c, struct buffer_list *memory, struct err *err)
{
    struct buffer_state state;
    int rc;
    if ((rc = optim_state(c, &state, err)) < 0)
        return rc;
    if ((rc = buffers_state(&state, memory, err)) < 0)
        return rc;
    if ((rc = units_memory(c->sh, memory, err)) < 0)
        return rc;
    return numbers_list(memory, err);
}

/* Reserves the scratch that groups need for sums. All sums are known here, so the memory is taken
 * now and not at a moment in a step that depends on timing. */
static int scratch_reserve(const struct optim_conf *c, struct err *err)
{
    const struct comm_grid *g = c->grid;
    struct comm *groups[BUFFER_GROUPS] = {g->shard, g->replica, g->tp, g->kv, g->pp};
    struct buffer_scratch scratch[BUFFER_GROUPS];
    struct buffer_state state;
    int rc;
    if ((rc = optim_state(c, &state, err)) < 0)
        return rc;
    buffers_scratch(&state, scratch);
    for (int i = 0; i < BUFFER_GROUPS; i++)
        if ((rc = comm_reserve(groups[i], (int)scratch[i].works, scratch[i].bytes, err)) < 0)
            return rc;
    return 0;
}

static int take_as(struct optim *o, const char *what, int64_t elements, enum dtype t, void **out,
                   struct err *err)
{
    return o->c.ops->dev->alloc(o->c.ops->dev, what, elements * dtype_bytes(t), out, err);
}

static int take(struct optim *o, const char *what, int64_t elements, void **out, struct err *err)
{
    return take_as(o, what, elements, o->c.ops->stat, out, err);
}

static int spans_open(struct optim *o, int64_t *pack, struct err *err)
{
    int rc;
    *pack = 0;
    for (enum piece_rule rule = 0; rule < PIECE_RULES; rule++) {
        if ((rc = piece_spans_build(o->c.sh, o->c.params, rule, &o->spans[rule], err)) < 0)
            return rc;
        if (rule != PIECE_ONCE)
            *pack = num_max_i64(*pack, o->spans[rule].elements);
    }
    return 0;
}

static int buffers_take(struct optim *o, int64_t pack, struct err *err)
{
    struct dev *dev = o->c.ops->dev;
    bool master = o->c.ops->act != o->c.ops->stat;
    int rc;
    if ((rc = take_as(o, "weights", o->n_weights, o->c.ops->act, &o->weights, err)) < 0)
        return rc;
    if (master && (rc = take(o, "master weights", o->n_state, &o->master, err)) < 0)
        return rc;
    if ((rc = take(o, "gradients", o->n_grads, &o->grads, err)) < 0)
        return rc;
    if ((rc = take_as(o, "adamw m", o->n_state, o->moments, &o->m, err)) < 0)
        return rc;
    if ((rc = take_as(o, "adamw v", o->n_state, o->moments, &o->v, err)) < 0)
        return rc;
    if (o->c.run->adamw.ema_decay > 0 && (rc = take(o, "ema", o->n_state, &o->ema, err)) < 0)
        return rc;
    if (o->ema && !master &&
        (rc = take(o, "exchange of weights and average", BUFFER_SWAP_ELEMENTS, &o->swap, err)) < 0)
        return rc;
    if (pack > 0 && (rc = take(o, "partial sums", pack, &o->pack, err)) < 0)
        return rc;
    if ((rc = dev->alloc(dev, "step block", sizeof *o->step, (void **)&o->step, err)) < 0)
        return rc;
    if ((rc = dev->alloc(dev, "health", sizeof *o->health, (void **)&o->health, err)) < 0)
        return rc;
    if ((rc = dev->alloc(dev, "change", sizeof *o->change, (void **)&o->change, err)) < 0)
        return rc;
    if ((rc = dev->alloc_host(dev, "numbers of a step", sizeof *o->host, (void **)&o->host,
                              err)) < 0)
        return rc;
    return slab_new(dev, o->c.stream, &o->slab, err);
}

static int parts_open(struct optim *o, struct err *err)
{
    const struct optim_conf *c = &o->c;
    int64_t pack;
    int rc;
    if ((rc = spans_open(o, &pack, err)) < 0)
        return rc;
    if ((rc = buffers_take(o, pack, err)) < 0)
        return rc;
    if ((rc = scratch_reserve(c, err)) < 0)
        return rc;
    if ((rc = update_open(&o->update, c, err)) < 0)
        return rc;
    return sums_open(&o->sums, c->sh, (int)c->layout->zero, c->grid->shard, c->grid->replica,
                     c->ops->stat, c->stream, o->grads, err);
}

int optim_open(struct optim *o, const struct optim_conf *c, struct err *err)
{
    int64_t all = c->sh->trained, own = all / c->sh->group;
    BUG_ON(dtype_stat(c->ops->act) != c->ops->stat);
    BUG_ON(c->grid->shard->size != c->sh->group || c->grid->shard->rank != c->sh->group_rank);
    *o = (struct optim){
        .c = *c, .own = own,
        .n_weights = c->layout->zero < 3 ? c->sh->total : c->sh->total / c->sh->group,
        .n_grads = c->layout->zero < 2 ? all : own, .n_state = c->layout->zero < 1 ? all : own,
        .moments = c->run->moments == MOMENTS_BF16 ? DTYPE_BF16 : c->ops->stat};
    int rc;
    if ((rc = parts_open(o, err)) < 0)
        optim_close(o);
    return rc;
}

void optim_close(struct optim *o)
{
    if (!o->c.ops)
        return;
    void *all[] = {o->weights, o->master, o->grads, o->m,      o->v,     o->ema,
                   o->swap,    o->pack,   o->step,  o->health, o->change};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        o->c.ops->dev->free(o->c.ops->dev, all[i]);
    o->c.ops->dev->free_host(o->c.ops->dev, o->host);
    slab_free(o->slab);
    update_close(&o->update);
    sums_close(&o->sums);
    for (int rule = 0; rule < PIECE_RULES; rule++)
        piece_spans_release(&o->spans[rule]);
    memset(o, 0, sizeof *o);
}

static char *element(const struct optim *o, void *buffer, int64_t at)
{
    return (char *)buffer + at * dtype_bytes(o->c.ops->stat);
}

static struct tensor span_of(const struct optim *o, void *buffer, int64_t first, int64_t n)
{
    return tensor_of(element(o, buffer, first), o->c.ops->stat, 1, n);
}

static struct tensor weights_of(const struct optim *o, int64_t first, int64_t n)
{
    enum dtype t = o->c.ops->act;
    return tensor_of((char *)o->weights + first * dtype_bytes(t), t, 1, n);
}

static struct tensor moments_of(const struct optim *o, void *buffer, int64_t first, int64_t n)
{
    return tensor_of((char *)buffer + first * dtype_bytes(o->moments), o->moments, 1, n);
}

int optim_zero(struct optim *o, struct err *err)
{
    struct dev *dev = o->c.ops->dev;
    int64_t bytes = dtype_bytes(o->c.ops->stat);
    dev->fill(dev, o->weights, 0, o->n_weights * dtype_bytes(o->c.ops->act), o->c.stream);
    if (o->master)
        dev->fill(dev, o->master, 0, o->n_state * bytes, o->c.stream);
    dev->fill(dev, o->grads, 0, o->n_grads * bytes, o->c.stream);
    dev->fill(dev, o->m, 0, o->n_state * dtype_bytes(o->moments), o->c.stream);
    dev->fill(dev, o->v, 0, o->n_state * dtype_bytes(o->moments), o->c.stream);
    if (o->ema)
        dev->fill(dev, o->ema, 0, o->n_state * bytes, o->c.stream);
    o->updates = 0;
    o->averaged = false;
    return dev->stream_sync(dev, o->c.stream, err);
}

/* ---- first weights ---- */

struct fill { struct optim *o; optim_values_fn *values; void *ctx; };
/* Describes a buffer to fill: its units are whole, or it holds own pieces only. */
struct filled { void *buffer; enum dtype dtype; bool whole; };

/* Draws initial values of tensor i, from global element `global` on, into `to`. */
static void span_draw(const struct fill *f, int64_t i, int64_t global, struct tensor to)
{
    const struct optim_conf *c = &f->o->c;
    struct ops_draw args = init_draw(&c->params->items[i], c->run->seed, global, to);
    c->ops->draw(c->ops, c->stream, &args);
}

/* Sets consecutive elements of tensor i, from global element `global` on, in the buffer `to`. */
static int span_set(const struct fill *f, int64_t i, int64_t global, struct tensor to,
                    struct err *err)
{
    enum { PIECE = 512 };
    double values[PIECE];
    for (int64_t done = 0, n; done < to.cols; done += n) {
        n = num_min_i64(to.cols - done, PIECE);
        struct tensor part = tensor_cols(to, done, n);
        void *at;
        int rc = f->values ? f->values(f->ctx, i, global + done, n, values, err) : 1;
        if (rc == 1) {
            span_draw(f, i, global + done, tensor_cols(to, done, to.cols - done));
            return 0;
        }
        if (rc < 0 || (rc = slab_place(f->o->slab, part.ptr, n * dtype_bytes(to.dtype), &at,
                                       err)) < 0)
            return rc;
        init_store(at, to.dtype, 0, values, n);
        slab_send(f->o->slab, part.ptr, at, n * dtype_bytes(to.dtype));
    }
    return 0;
}

/* Sets local elements first .. end-1 of tensor i, which begin at element `at` of a buffer, by their
 * global numbers. */
static int values_set(const struct fill *f, int64_t i, int64_t first, int64_t end,
                      const struct filled *to, int64_t at, struct err *err)
{
    int rc;
    for (int64_t j = first, n; j < end; j += n, at += n) {
        int64_t span,
            global = shard_to_global(&f->o->c.sh->tensors[i], &f->o->c.params->items[i], j, &span);
        n = num_min_i64(span, end - j);
        struct tensor part = tensor_of((char *)to->buffer + at * dtype_bytes(to->dtype),
                                       to->dtype, 1, n);
        if ((rc = span_set(f, i, global, part, err)) < 0)
            return rc;
    }
    return 0;
}

/* Sets all of a tensor in a buffer of whole units, or its own piece in a buffer of own pieces. */
static int tensor_set(const struct fill *f, int64_t i, const struct filled *to, struct err *err)
{
    const struct shard_tensor *t = &f->o->c.sh->tensors[i];
    struct piece own = piece_of(f->o->c.sh, shards_unit_of(f->o->c.sh, i), t, 0, t->count);
    if (to->whole)
        return values_set(f, i, 0, t->count, to, t->offset, err);
    return values_set(f, i, own.local, own.local + own.n, to, own.at, err);
}

int optim_fill(struct optim *o, optim_values_fn *values, void *ctx, struct err *err)
{
    struct fill f = {o, values, ctx};
    bool whole = o->c.layout->zero < 1;
    struct filled weights = {o->weights, o->c.ops->act, o->c.layout->zero < 3};
    struct filled trained[] = {{o->master, o->c.ops->stat, whole}, {o->ema, o->c.ops->stat, whole}};
    int rc;
    if ((rc = optim_zero(o, err)) < 0)
        return rc;
    for (int64_t i = 0; i < o->c.sh->n_tensors; i++) {
        if (o->c.sh->tensors[i].unit >= 0 && (rc = tensor_set(&f, i, &weights, err)) < 0)
            return rc;
        for (int k = 0; k < 2; k++)
            if (trained[k].buffer && shards_trained(o->c.sh, i) &&
                (rc = tensor_set(&f, i, &trained[k], err)) < 0)
                return rc;
    }
    return slab_flush(o->slab, err);
}

int optim_init(struct optim *o, struct err *err) { return optim_fill(o, NULL, NULL, err); }

/* ---- gradients ---- */

/* Returns where unit `unit`'s own elements, from `at` on, lie in the gradients. */
static char *own_grads(const struct optim *o, int64_t unit, int64_t at)
{
    return element(o, o->grads, o->c.layout->zero < 2 ? piece_whole(o->c.sh, unit, at) : at);
}

static int64_t unit_own(const struct optim *o, int64_t unit)
{
    return o->c.sh->units[unit].offset / o->c.sh->group;
}
static int64_t unit_piece(const struct optim *o, int64_t unit)
{
    return o->c.sh->units[unit].elements / o->c.sh->group;
}

/* Copies all spans of one rule to or from the packing buffer. */
static void pack_copy(struct optim *o, const struct piece_spans *spans, bool out)
{
    struct dev *dev = o->c.ops->dev;
    int64_t at = 0, bytes = dtype_bytes(o->c.ops->stat);
    for (int64_t i = 0; i < spans->n; i++) {
        const struct piece_span *r = &spans->items[i];
        char *grads = own_grads(o, r->unit, r->at), *packed = element(o, o->pack, at);
        dev->copy(dev, out ? grads : packed, out ? packed : grads, r->n * bytes, DEV_D2D,
                  o->c.stream);
        at += r->n;
    }
}

/* Sums the partial sums of one rule over one axis, in one all-reduce. */
static int axis_sum(struct optim *o, struct comm *axis, enum piece_rule rule, const char *what,
                    struct err *err)
{
    const struct piece_spans *spans = &o->spans[rule];
    struct comm_op op = {
        .kind = COMM_ALL_REDUCE, .what = what,
        .recv = o->pack, .n = spans->elements, .dtype = o->c.ops->stat};
    if (spans->n == 0 || axis->size == 1)
        return 0;
    pack_copy(o, spans, false);
    int rc;
    if ((rc = comm_do(axis, &op, o->c.stream, err)) < 0)
        return rc;
    pack_copy(o, spans, true);
    return 0;
}

static int axes_sum(struct optim *o, struct err *err)
{
    const struct comm_grid *g = o->c.grid;
    const struct {
        struct comm *axis;
        enum piece_rule rule;
        enum fault_point fault;
        const char *what;
    } sums[] = {
        {g->tp, PIECE_SUM_TP, FAULT_POINT_SUM_TP, "gradients of what tp replicates"},
        {g->kv, PIECE_SUM_KV, FAULT_POINT_SUM_KV, "gradients of copied k/v heads"},
        {g->pp, PIECE_SUM_PP, FAULT_POINT_SUM_PP, "gradients of the conditioning"},
    };
    int rc;
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (fault_active != (int)sums[i].fault &&
            (rc = axis_sum(o, sums[i].axis, sums[i].rule, sums[i].what, err)) < 0)
            return rc;
    return 0;
}

/* Begins to gather trained unit k, from the pieces of the shard group, into a whole buffer. */
static int gather_start(struct optim *o, int64_t k, void *buffer, enum dtype t, const char *what,
                        struct comm_work **work, struct err *err)
{
    int64_t bytes = dtype_bytes(t);
    struct comm_op op = {
        .kind = COMM_ALL_GATHER, .what = what,
        .send = (char *)buffer + piece_whole(o->c.sh, k, unit_own(o, k)) * bytes,
        .recv = (char *)buffer + o->c.sh->units[k].offset * bytes,
        .n = unit_piece(o, k), .dtype = t};
    return comm_start(o->c.grid->shard, &op, o->c.stream, work, err);
}

static int weights_start(struct optim *o, int64_t k, struct comm_work **work, struct err *err)
{
    return gather_start(o, k, o->weights, o->c.ops->act, "weights of a unit", work, err);
}

static int grads_start(struct optim *o, int64_t k, struct comm_work **work, struct err *err)
{
    return gather_start(o, k, o->grads, o->c.ops->stat, "summed gradients of a unit", work, err);
}

static int gather_wait(struct optim *o, struct comm_work **work, struct err *err)
{
    struct comm_work *w = *work;
    *work = NULL;
    return comm_wait(o->c.grid->shard, w, o->c.stream, err);
}

static int weights_gather(struct optim *o, struct err *err)
{
    int rc;
    for (int64_t k = 0; k < o->c.sh->n_trained; k++) {
        struct comm_work *work = NULL;
        if ((rc = weights_start(o, k, &work, err)) < 0)
            return rc;
        if ((rc = gather_wait(o, &work, err)) < 0)
            return rc;
    }
    return 0;
}

/* Exchanges n elements of the weights from `weight` on and of the average from `at` on. */
static void span_swap(struct optim *o, int64_t weight, int64_t at, int64_t n)
{
    struct dev *dev = o->c.ops->dev;
    int64_t size = dtype_bytes(o->c.ops->stat);
    for (int64_t i = 0; i < n; i += BUFFER_SWAP_ELEMENTS) {
        int64_t bytes = num_min_i64(BUFFER_SWAP_ELEMENTS, n - i) * size;
        void *w = weights_of(o, weight + i, 0).ptr, *e = element(o, o->ema, at + i);
        dev->copy(dev, o->swap, w, bytes, DEV_D2D, o->c.stream);
        dev->copy(dev, w, e, bytes, DEV_D2D, o->c.stream);
        dev->copy(dev, e, o->swap, bytes, DEV_D2D, o->c.stream);
    }
}

/* Switches the weights, where masters exist, between master and average: rounds them from the
 * average or, if they hold the average already, from the masters. */
static void span_round(struct optim *o, int64_t weight, int64_t at, int64_t n)
{
    struct ops_copy args = {
        .src = span_of(o, o->averaged ? o->master : o->ema, at, n),
        .dst = weights_of(o, weight, n)};
    o->c.ops->copy(o->c.ops, o->c.stream, &args);
}

int optim_average_swap(struct optim *o, struct err *err)
{
    /* true if weights and average are both whole, or both own pieces */
    bool alike = o->c.layout->zero == 0 || o->c.layout->zero == 3;
    void (*run)(struct optim *, int64_t weight, int64_t at, int64_t n) = o->master ? span_round
                                                                                   : span_swap;
    BUG_ON(!o->ema);
    if (alike)
        run(o, 0, 0, o->n_state);
    for (int64_t k = 0; k < o->c.sh->n_trained && !alike; k++)
        run(o, piece_whole(o->c.sh, k, unit_own(o, k)), unit_own(o, k), unit_piece(o, k));
    o->averaged = !o->averaged;
    return alike ? 0 : weights_gather(o, err);
}

/* ---- norm ---- */

static void run_measure(struct optim *o, int64_t unit, int64_t at, int64_t n)
{
    struct tensor x = tensor_of(own_grads(o, unit, at), o->c.ops->stat, 1, n);
    struct ops_sumsq args = {.x = x, .out = o->health, .accumulate = true};
    o->c.ops->sumsq(o->c.ops, o->c.stream, &args);
}

/* Adds this rank's part to the sum of squares: its own pieces if it is in the first replica,
 * without copies that another rank counts. */
static void own_measure(struct optim *o)
{
    const struct piece_spans *once = &o->spans[PIECE_ONCE];
    if (fault_active == FAULT_POINT_COUNT_ONCE) {
        for (int64_t k = 0; k < o->c.sh->n_trained; k++)
            run_measure(o, k, unit_own(o, k), unit_piece(o, k));
    } else if (o->c.grid->replica->rank == 0) {
        for (int64_t i = 0; i < once->n; i++)
            run_measure(o, once->items[i].unit, once->items[i].at, once->items[i].n);
    }
}

/* Queues the measurement of this rank's part of the norm, and the copy of it to the host. */
static void health_queue(struct optim *o)
{
    struct dev *dev = o->c.ops->dev;
    dev->fill(dev, o->health, 0, sizeof *o->health, o->c.stream);
    own_measure(o);
    dev->copy(dev, &o->host->health, o->health, sizeof *o->health, DEV_D2H, o->c.stream);
}

/* Sums over all ranks the measurements, which a sync of the stream has brought to the host. */
static int health_sum(struct optim *o, double *norm, double *bad, struct err *err)
{
    double sums[2] = {o->host->health.sumsq, (double)o->host->health.nonfinite};
    int rc = comm_sum(o->c.world, sums, 2, err);
    *norm = sqrt(sums[0]);
    *bad = sums[1];
    return rc;
}

/* ---- update ---- */

static void unit_update(struct optim *o, int64_t k)
{
    const struct run *r = o->c.run;
    struct tensor weights = weights_of(o, 0, o->n_weights);
    struct ops_adamw args = {
        .step = o->step,
        .grad = span_of(o, o->grads, 0, o->n_grads),
        .master = o->master ? span_of(o, o->master, 0, o->n_state) : weights,
        .m = moments_of(o, o->m, 0, o->n_state),
        .v = moments_of(o, o->v, 0, o->n_state),
        .ema = o->ema ? span_of(o, o->ema, 0, o->n_state) : tensor_none(),
        .weight = o->master ? weights : tensor_none(),
        .seed = r->seed,
        .beta1 = r->adamw.beta1, .beta2 = r->adamw.beta2, .eps = r->adamw.eps,
        .ema_decay = r->adamw.ema_decay,
        .change = o->change,
    };
    args.n = update_spans(&o->update, k, &args.spans, &args.host_spans);
    if (args.n > 0)
        o->c.ops->adamw(o->c.ops, o->c.stream, &args);
}

/* Updates with zero 0: every rank updates everything, each unit while the gradients of the next one
 * are gathered. */
static int update_gathered(struct optim *o, struct err *err)
{
    struct comm_work *work[2] = {0};
    int64_t n = o->c.sh->n_trained;
    int rc;
    if (n > 0 && (rc = grads_start(o, 0, &work[0], err)) < 0)
        return rc;
    for (int64_t k = 0; k < n; k++) {
        if (k + 1 < n && (rc = grads_start(o, k + 1, &work[(k + 1) % 2], err)) < 0)
            return rc;
        if ((rc = gather_wait(o, &work[k % 2], err)) < 0)
            return rc;
        unit_update(o, k);
    }
    return 0;
}

/* Updates own pieces, with zero 1, 2 and 3. With 1 and 2 each unit's weights are gathered while the
 * next unit is updated. */
static int update_own(struct optim *o, struct err *err)
{
    struct comm_work *work[2] = {0};
    int64_t n = o->c.sh->n_trained;
    int rc;
    for (int64_t k = 0; k < n; k++) {
        unit_update(o, k);
        if (o->c.layout->zero == 3)
            continue;
        if ((rc = gather_wait(o, &work[k % 2], err)) < 0)
            return rc;
        if ((rc = weights_start(o, k, &work[k % 2], err)) < 0)
            return rc;
    }
    for (int64_t k = n; k < n + 2; k++)
        if ((rc = gather_wait(o, &work[k % 2], err)) < 0)
            return rc;
    return 0;
}

static void step_block_set(struct optim *o, int64_t step, double norm)
{
    double clip = o->c.run->adamw.clip_norm, t = (double)(o->updates + 1);
    struct dev *dev = o->c.ops->dev;
    o->host->step = (struct ops_step){
        .lr = run_lr_at(o->c.run, step),
        .bias1 = 1 - pow(o->c.run->adamw.beta1, t),
        .bias2 = 1 - pow(o->c.run->adamw.beta2, t),
        .grad_scale = clip > 0 && norm > clip ? clip / norm : 1,
        .update = (uint64_t)o->updates + 1,
    };
    dev->copy(dev, o->step, &o->host->step, sizeof *o->step, DEV_H2D, o->c.stream);
}

/* Updates with gradients whose global norm is `norm`. */
static int update(struct optim *o, int64_t step, double norm, struct optim_result *out,
                  struct err *err)
{
    struct dev *dev = o->c.ops->dev;
    int rc;
    step_block_set(o, step, norm);
    dev->fill(dev, o->change, 0, sizeof *o->change, o->c.stream);
    if ((rc = o->c.layout->zero == 0 ? update_gathered(o, err) : update_own(o, err)) < 0)
        return rc;
    o->updates++;
    dev->copy(dev, &o->host->change, o->change, sizeof *o->change, DEV_D2H, o->c.stream);
    if ((rc = dev->stream_sync(dev, o->c.stream, err)) < 0)
        return rc;
    double sums[2] = {o->host->change.weight_sumsq, o->host->change.update_sumsq};
    if ((rc = comm_sum(o->c.world, sums, 2, err)) < 0)
        return rc;
    out->weight_norm = sqrt(sums[0]);
    out->update_norm = sqrt(sums[1]);
    return 0;
}

int optim_sum(struct optim *o, struct err *err)
{
    int rc;
    if ((rc = sums_finish(&o->sums, err)) < 0)
        return rc;
    if ((rc = axes_sum(o, err)) < 0)
        return rc;
    health_queue(o);
    return 0;
}

int optim_update(struct optim *o, int64_t step, double norm_limit, struct optim_result *out,
                 struct err *err)
{
    double norm = 0, bad = 0;
    int rc;
    if ((rc = health_sum(o, &norm, &bad, err)) < 0)
        return rc;
    bool nonfinite = bad > 0 || !isfinite(norm), skip = nonfinite || norm > norm_limit;
    BUG_ON(o->averaged);
    *out = (struct optim_result){
        .grad_norm = norm,
        .weight_norm = NAN, .update_norm = NAN,
        .skipped = skip, .nonfinite = nonfinite};
    return skip ? rc : update(o, step, norm, out, err);
}
