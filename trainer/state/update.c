#include "trainer/state/update.h"

#include <stdlib.h>

#include "base/num.h"
#include "trainer/state/optim.h"

_Static_assert(sizeof(struct ops_adamw_span) == BUFFER_SPAN_BYTES, "the memory plan counts it");

/* Returns how many of n elements, from local element `first` of tensor t on, this rank counts in
 * global norms. Each element of the model is counted on exactly one rank. */
static int64_t counted(const struct optim_conf *c, const struct shard_tensor *t, int64_t first,
                       int64_t n)
{
    bool once = c->grid->replica->rank == 0 && (c->layout->zero > 0 || c->grid->shard->rank == 0);
    return once ? num_max_i64(0, num_min_i64(n, t->own_rows * t->cols - first)) : 0;
}

/* Returns how many elements follow in a tensor's range of rows, from element `local` on. */
static int64_t range_left(const struct shard_tensor *t, int64_t local)
{
    int64_t end = 0;
    for (int i = 0; end <= local; i++)
        end += t->n_rows[i] * t->cols;
    return end - local;
}

/* Cuts a span of tensor i, which begins at its local element `first`, wherever the numbers that its
 * elements have in the model are not consecutive or regular by rows. Moments of bf16 are rounded by
 * these numbers. Returns how many spans result. */
static int64_t span_cut(const struct optim_conf *c, int64_t i, int64_t first,
                        struct ops_adamw_span all, struct ops_adamw_span *out)
{
    const struct shard_tensor *t = &c->sh->tensors[i];
    const struct param *p = &c->params->items[i];
    int64_t cols = param_cols(p), spans = 0;
    for (int64_t done = 0, n; done < all.n; done += n) {
        int64_t span, global = shard_to_global(t, p, first + done, &span);
        struct ops_adamw_span s = all;
        n = num_min_i64(all.n - done, t->cols == cols ? span : range_left(t, first + done));
        s.grad += done, s.master += done, s.state += done, s.weight += done;
        s.n = n;
        s.counted = num_max_i64(0, num_min_i64(n, all.counted - done));
        s.first += (uint64_t)global;
        if (t->cols != cols)
            s.col = (first + done) % t->cols, s.row = t->cols, s.skip = cols - t->cols;
        out[spans++] = s;
    }
    return spans;
}

/* Lists the spans of tensor i that this rank updates: all of it, or its own piece. In the model,
 * the tensor's elements have the numbers from `number` on. Returns how many spans there are. */
static int64_t tensor_spans(const struct optim_conf *c, int64_t i, int64_t number,
                            struct ops_adamw_span *out)
{
    const struct param *p = &c->params->items[i];
    const struct shard_tensor *t = &c->sh->tensors[i];
    struct piece own = piece_of(c->sh, shards_unit_of(c->sh, i), t, 0, t->count);
    int64_t zero = c->layout->zero;
    if (zero == 0)
        own = (struct piece){.at = t->offset, .n = t->count};
    int64_t whole = t->offset + own.local;
    struct ops_adamw_span s = {
        .grad = zero < 2 ? whole : own.at,
        .state = own.at,
        .weight = zero < 3 ? whole : own.at,
        .n = own.n,
        .counted = counted(c, t, own.local, own.n),
        .first = (uint64_t)number,
        .weight_decay = p->flags & PARAM_DECAY ? c->run->adamw.weight_decay : 0,
        .lr_scale = p->lr_scale,
    };
    s.master = c->ops->act != c->ops->stat ? s.state : s.weight;
    if (c->run->moments == MOMENTS_BF16)
        return span_cut(c, i, own.local, s, out);
    *out = s;
    return s.n > 0;
}

static void unit_list(struct update *u, const struct optim_conf *c, int64_t k)
{
    const struct shard_unit *unit = &c->sh->units[k];
    int64_t end = unit->first_param + unit->n_params, number = 0, n = u->first[k];
    for (int64_t i = 0; i < end; number += c->params->items[i++].count)
        if (i >= unit->first_param && c->sh->tensors[i].unit == k)
            n += tensor_spans(c, i, number, u->host + n);
    u->first[k + 1] = n;
}

int update_open(struct update *u, const struct optim_conf *c, struct err *err)
{
    int64_t n = c->sh->n_trained, bytes = buffers_span_bytes(c->sh);
    int rc;
    *u = (struct update){.dev = c->ops->dev};
    u->host = calloc(1, (size_t)bytes + 1);
    u->first = calloc((size_t)n + 1, sizeof *u->first);
    if (!u->host || !u->first)
        return err_set(err, ERR_NOMEM, "out of memory for the updates of %lld units", (long long)n);
    if ((rc = u->dev->alloc(u->dev, "table of updates", bytes, (void **)&u->device, err)) < 0)
        return rc;
    for (int64_t k = 0; k < n; k++)
        unit_list(u, c, k);
    BUG_ON(u->first[n] * (int64_t)sizeof *u->host > bytes);
    u->dev->copy(u->dev, u->device, u->host, u->first[n] * (int64_t)sizeof *u->host, DEV_H2D,
                 c->stream);
    return 0;
}

void update_close(struct update *u)
{
    if (!u->dev)
        return;
    u->dev->free(u->dev, u->device);
    free(u->host);
    free(u->first);
    *u = (struct update){0};
}

int64_t update_spans(const struct update *u, int64_t k, const struct ops_adamw_span **device,
                     const struct ops_adamw_span **host)
{
    *device = u->device + u->first[k];
    *host = u->host + u->first[k];
    return u->first[k + 1] - u->first[k];
}
