#include "autotune/host_space.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

struct host_space {
    struct host_space_spec spec;
    struct param_list params;
    struct held_spec held;
    struct memory_kept kept; /* state of the layout that was predicted last */
    struct host host;
};

/* ---- opening ---- */

static int space_open(struct host_space *h, struct err *err)
{
    const struct space_spec *in = &h->spec.space;
    const struct run *run = h->spec.run;
    const struct work_spec work = {
        .model = in->model, .seq = in->seq, .gbs = in->gbs, .act = run->dtype,
        .ema = run->adamw.ema_decay > 0, .residual_wide = run->residual == RESIDUAL_F32,
        .moments_bf16 = run->moments == MOMENTS_BF16};
    int rc;
    if ((rc = finetune_params(in->model, &run->finetune, &h->params, err)) < 0)
        return rc;
    h->held = (struct held_spec){.model = in->model, .seq = in->seq, .gbs = in->gbs,
                                 .dtype = run->dtype, .ema = run->adamw.ema_decay > 0,
                                 .finetune = &run->finetune, .params = &h->params,
                                 .moments_bf16 = run->moments == MOMENTS_BF16,
                                 .residual_wide = run->residual == RESIDUAL_F32};
    return host_open(&h->host, &work, err);
}

struct host_space *host_space_new(const struct host_space_spec *spec, struct err *err)
{
    struct host_space *h = calloc(1, sizeof *h);
    if (!h) {
        err_set(err, ERR_NOMEM, "out of memory for a search of layouts");
        return NULL;
    }
    h->spec = *spec;
    h->spec.space.closed = true;
    if (space_open(h, err) < 0) {
        host_space_free(h);
        return NULL;
    }
    return h;
}

void host_space_free(struct host_space *h)
{
    if (!h)
        return;
    memory_kept_release(&h->kept);
    params_release(&h->params);
    free(h);
}

struct host *host_space_host(struct host_space *h) { return &h->host; }

/* ---- memory ---- */

/* Holds the bytes of a layout's fullest rank, and the probability that they fit. */
struct sized { double bytes, chance; };

static int size(const struct host_space *h, const struct layout *l, struct memory_kept *kept,
                struct sized *out, struct err *err)
{
    static const struct memory_learned nothing;
    struct memory_bytes b;
    int rc = memory_predict_next(&h->held, l, kept, &b, err);
    if (rc < 0)
        return rc;
    double limit = h->spec.memory_bytes / (double)layout_world(l);
    out->bytes = b.total;
    out->chance = h->spec.memory_bytes <= 0 ? 1 : memory_fits(&nothing, b.total, limit);
    return 0;
}

static bool may_fit(const struct host_space *h, const struct sized *s)
{ return s->chance >= h->spec.min_fit; }

/* Says whether nothing that recomputes more is worth a look. */
static bool surely_fits(const struct host_space *h, const struct sized *s)
{ return s->chance >= 1 - h->spec.min_fit; }

/* ---- recomputation ---- */

/* Is called for each layout that is sized. */
struct visitor {
    int (*visit)(void *ctx, const struct layout *l, const struct sized *size, struct err *err);
    void *ctx;
    struct memory_kept *kept;
};

static int size_and_visit(const struct host_space *h, const struct layout *l,
                          const struct visitor *v, struct sized *out, struct err *err)
{
    int rc;
    if ((rc = size(h, l, v->kept, out, err)) < 0)
        return rc;
    return v->visit(v->ctx, l, out, err);
}

/* Finds the fewest layers of a virtual stage, of `all`, that must be recomputed fully so that the
 * layout may fit; 0: none is enough. */
static int fewest_find(const struct host_space *h, struct layout l, int64_t all,
                       const struct visitor *v, int64_t *out, struct err *err)
{
    int64_t low = 0, high = all;
    struct sized s;
    int rc;
    l.recompute_layers = 0;
    if ((rc = size_and_visit(h, &l, v, &s, err)) < 0)
        return rc;
    for (*out = 0; may_fit(h, &s) && high - low > 1;) {
        struct sized some;
        l.recompute_layers = (low + high) / 2;
        if ((rc = size(h, &l, v->kept, &some, err)) < 0)
            return rc;
        *(may_fit(h, &some) ? &high : &low) = l.recompute_layers;
    }
    *out = may_fit(h, &s) ? high : 0;
    return 0;
}

/* Visits full recomputation of the fewest layers with which the layout may fit, and of more, up to
 * the first number with which it surely does. All layers are visited in any case. */
static int full_visit(const struct host_space *h, struct layout l, const struct visitor *v,
                      struct err *err)
{
    int64_t all = num_ceil_div(h->spec.space.model->layers, l.pp * l.vpp), first;
    struct sized s = {0, 0};
    int rc;
    l.recompute = RECOMPUTE_FULL;
    if ((rc = fewest_find(h, l, all, v, &first, err)) < 0)
        return rc;
    for (l.recompute_layers = first;
         first && l.recompute_layers < all && !surely_fits(h, &s); l.recompute_layers++)
        if ((rc = size_and_visit(h, &l, v, &s, err)) < 0)
            return rc;
    return 0;
}

/* Visits the layouts that differ from `bare`, which recomputes nothing, in recomputation alone, and
 * that no other one of them dominates. More recomputation takes longer; so it is looked at only
 * where less of it may not fit. */
static int recomputed_visit(const struct host_space *h, const struct layout *bare,
                            const struct visitor *v, struct err *err)
{
    struct layout l = *bare;
    struct sized s;
    int rc;
    if ((rc = size_and_visit(h, &l, v, &s, err)) < 0)
        return rc;
    if (surely_fits(h, &s))
        return 0;
    l.recompute = RECOMPUTE_SELECTIVE;
    if ((rc = size_and_visit(h, &l, v, &s, err)) < 0)
        return rc;
    return full_visit(h, l, v, err);
}

/* ---- survey ---- */

struct survey {
    const struct host_space *h;
    struct memory_kept kept;
    double least_bytes; /* of all ranks of out.nearest */
    struct host_space_survey out;
};

static int layout_survey(void *ctx, const struct layout *l, const struct sized *size,
                         struct err *err)
{
    struct survey *s = ctx;
    (void)err;
    s->out.looked++;
    s->out.fit += may_fit(s->h, size);
    if (size->bytes * (double)layout_world(l) < s->least_bytes) {
        s->least_bytes = size->bytes * (double)layout_world(l);
        s->out.nearest = *l, s->out.nearest_bytes = size->bytes;
    }
    return 0;
}

static int bare_survey(void *ctx, const struct layout *l, struct err *err)
{
    struct survey *s = ctx;
    const struct visitor v = {layout_survey, s, &s->kept};
    struct sized size;
    return s->h->spec.space.only ? size_and_visit(s->h, l, &v, &size, err)
                                 : recomputed_visit(s->h, l, &v, err);
}

int host_space_survey(const struct host_space *h, struct space *counts,
                      struct host_space_survey *out, struct err *err)
{
    struct survey survey = {.h = h, .least_bytes = INFINITY};
    struct space s = {0};
    int rc;
    survey.out.baseline = h->spec.baseline && space_has(&h->spec.space, h->spec.baseline);
    if ((rc = space_walk(&h->spec.space, bare_survey, &survey, &s, err)) < 0)
        goto out;
    if (s.legal == 0 && (rc = space_check(&h->spec.space, &s, err)) < 0)
        goto out;
    *counts = s;
    *out = survey.out;
out:
    memory_kept_release(&survey.kept);
    return rc;
}

/* ---- the best few ---- */

struct met { struct layout layout; double seconds; };
/* Is a heap of the fastest layouts so far, the slowest of them at the top. */
struct best { struct met *items; size_t n, room; };

/* Orders layouts by their number of ranks, then by their fields. */
static int by_ranks(const void *a, const void *b)
{
    const struct layout *x = a, *y = b;
    int64_t m = layout_world(x), n = layout_world(y);
    return m != n ? (m > n) - (m < n) : layout_compare(x, y);
}

static bool slower(const struct met *a, const struct met *b)
{
    return a->seconds != b->seconds ? a->seconds > b->seconds
                                    : by_ranks(&a->layout, &b->layout) > 0;
}

/* Returns the time that a further layout must beat. */
static double best_limit(const struct best *b)
{ return b->n < b->room ? INFINITY : b->items[0].seconds; }

static void swap(struct met *a, struct met *b)
{
    struct met other = *a;
    *a = *b, *b = other;
}

static void sink(struct best *b)
{
    for (size_t i = 0, k; (k = 2 * i + 1) < b->n; i = k) {
        k += k + 1 < b->n && slower(&b->items[k + 1], &b->items[k]);
        if (!slower(&b->items[k], &b->items[i]))
            return;
        swap(&b->items[k], &b->items[i]);
    }
}

static void best_put(struct best *b, const struct met *m)
{
    if (b->n == b->room) {
        if (slower(&b->items[0], m)) {
            b->items[0] = *m;
            sink(b);
        }
        return;
    }
    b->items[b->n] = *m;
    for (size_t i = b->n++; i > 0 && slower(&b->items[i], &b->items[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&b->items[i], &b->items[(i - 1) / 2]);
}

/* ---- listing ---- */

/* Holds what the layouts of one grid and micro-batch size share, and the gathers of zero 3 with
 * `vpp` virtual stages. */
struct parts { int64_t mbs, vpp; struct work work; struct price price; };

struct listing {
    const struct host_space *h;
    struct layout now;           /* the layout that was met last */
    const struct parts *now_parts;
    struct memory_kept kept;
    struct best best, of_degrees;
    struct met *picked; /* the fastest of finished numbers of ranks and degrees */
    size_t n_picked, room;
    struct parts **parts;        /* n_parts of the present grid, with room for parts_room */
    size_t n_parts, parts_room;
};

static int picked_add(struct listing *s, const struct met *items, size_t n, struct err *err)
{
    if (s->n_picked + n > s->room) {
        size_t room = 2 * (s->n_picked + n);
        struct met *picked = realloc(s->picked, room * sizeof *picked);
        if (!picked)
            return err_set(err, ERR_NOMEM, "out of memory for %zu layouts", room);
        s->picked = picked, s->room = room;
    }
    memcpy(s->picked + s->n_picked, items, n * sizeof *items);
    s->n_picked += n;
    return 0;
}

static int best_close(struct listing *s, struct best *b, struct err *err)
{
    int rc = picked_add(s, b->items, b->n, err);
    b->n = 0;
    return rc;
}

static bool degrees_equal(const struct layout *a, const struct layout *b)
{ return a->tp == b->tp && a->cp == b->cp && a->pp == b->pp && a->dp == b->dp; }

/* Closes the lists of the grid, degrees or number of ranks that this layout no longer shares with
 * the one before. */
static int change_take(struct listing *s, const struct layout *l, struct err *err)
{
    const struct layout *now = &s->now;
    int rc;
    if (!degrees_equal(now, l) || now->sp != l->sp || now->cp_kind != l->cp_kind)
        s->n_parts = 0;
    if (!degrees_equal(now, l) && (rc = best_close(s, &s->of_degrees, err)) < 0)
        return rc;
    if (layout_world(now) != layout_world(l) && (rc = best_close(s, &s->best, err)) < 0)
        return rc;
    s->now = *l;
    return 0;
}

static int parts_more(struct listing *s, struct err *err)
{
    struct parts **parts = realloc(s->parts, (s->parts_room + 1) * sizeof *parts);
    if (parts)
        s->parts = parts, parts[s->parts_room] = malloc(sizeof **parts);
    if (!parts || !parts[s->parts_room])
        return err_set(err, ERR_NOMEM, "out of memory for the prices of a grid");
    s->parts_room++;
    return 0;
}

/* Finds the priced parts of a layout's grid and micro-batch size, or prices them. */
static int parts_find(struct listing *s, const struct layout *l, const struct parts **out,
                      struct err *err)
{
    size_t i = 0;
    int rc;
    while (i < s->n_parts && s->parts[i]->mbs != l->mbs)
        i++;
    if (i == s->parts_room && (rc = parts_more(s, err)) < 0)
        return rc;
    struct parts *p = s->parts[i];
    if (i == s->n_parts) {
        p->mbs = l->mbs, p->vpp = l->vpp;
        host_parts(&s->h->host, l, &p->work, &p->price);
        s->n_parts++;
    }
    if (l->zero == 3 && p->vpp != l->vpp)
        price_gathers(&p->price, l->vpp), p->vpp = l->vpp;
    *out = p;
    return 0;
}

/* Says whether a layout cannot be among the fastest by the bound of its step. */
static bool too_slow(const struct listing *s, const struct layout *l)
{
    static const double ROUNDING = 1 - 1e-9;
    struct price_step step;
    price_step(&s->now_parts->price, l, &step);
    return step.seconds * ROUNDING >= fmax(best_limit(&s->best), best_limit(&s->of_degrees));
}

/* Adds a layout to each list of the fastest if it may fit and is faster than the slowest one
 * there. */
static int layout_list(void *ctx, const struct layout *l, const struct sized *size,
                       struct err *err)
{
    struct listing *s = ctx;
    struct met met = {*l, 0};
    struct price_step step;
    int rc;
    if (!may_fit(s->h, size) || too_slow(s, l))
        return 0;
    if ((rc = price_replay(&s->now_parts->price, l, &step, err)) < 0)
        return rc;
    met.seconds = step.seconds;
    best_put(&s->best, &met);
    best_put(&s->of_degrees, &met);
    return 0;
}

/* Lists the layouts that differ from `l` in recomputation alone. None of them is faster than l,
 * which recomputes nothing. */
static int bare_list(void *ctx, const struct layout *l, struct err *err)
{
    struct listing *s = ctx;
    const struct visitor v = {layout_list, s, &s->kept};
    int rc;
    if ((rc = change_take(s, l, err)) < 0)
        return rc;
    if ((rc = parts_find(s, l, &s->now_parts, err)) < 0)
        return rc;
    return too_slow(s, l) ? 0 : recomputed_visit(s->h, l, &v, err);
}

/* Makes the picked layouts the items of the space, sorted, each of them once. */
static int items_take(struct listing *s, struct space *out, struct err *err)
{
    if (s->n_picked > 0)
        qsort(s->picked, s->n_picked, sizeof *s->picked, by_ranks); /* the layout comes first */
    out->room = s->n_picked + 1;
    if (!(out->items = malloc(out->room * sizeof *out->items)))
        return err_set(err, ERR_NOMEM, "out of memory for %zu layouts", out->room);
    for (size_t i = 0; i < s->n_picked; i++)
        if (i == 0 || !layout_equal(&s->picked[i].layout, &s->picked[i - 1].layout))
            out->items[out->n++] = s->picked[i].layout;
    return 0;
}

static int listing_open(struct listing *s, struct err *err)
{
    const struct host_space_spec *spec = &s->h->spec;
    s->best.room = spec->best ? spec->best : HOST_SPACE_BEST;
    s->of_degrees.room = spec->of_degrees ? spec->of_degrees : HOST_SPACE_OF_DEGREES;
    s->best.items = malloc(s->best.room * sizeof *s->best.items);
    s->of_degrees.items = malloc(s->of_degrees.room * sizeof *s->of_degrees.items);
    return s->best.items && s->of_degrees.items
               ? 0 : err_set(err, ERR_NOMEM, "out of memory for a search of layouts");
}

static void listing_close(struct listing *s)
{
    for (size_t i = 0; i < s->parts_room; i++)
        free(s->parts[i]);
    memory_kept_release(&s->kept);
    free(s->parts);
    free(s->picked);
    free(s->best.items);
    free(s->of_degrees.items);
}

/* Picks those of the n layouts that are legal. */
static int always_pick(struct listing *s, const struct layout *always, size_t n, struct err *err)
{
    int rc;
    for (size_t i = 0; i < n; i++) {
        const struct met met = {always[i], 0};
        if (space_has(&s->h->spec.space, &always[i]) && (rc = picked_add(s, &met, 1, err)) < 0)
            return rc;
    }
    return 0;
}

static int list_into(struct listing *s, const struct layout *always, size_t n, struct space *out,
                     struct err *err)
{
    int rc;
    if ((rc = listing_open(s, err)) < 0)
        return rc;
    if ((rc = always_pick(s, always, n, err)) < 0)
        return rc;
    if ((rc = space_walk(&s->h->spec.space, bare_list, s, out, err)) < 0)
        return rc;
    if ((rc = best_close(s, &s->of_degrees, err)) < 0)
        return rc;
    if ((rc = best_close(s, &s->best, err)) < 0)
        return rc;
    return items_take(s, out, err);
}

static int list(const void *target, const struct layout *always, size_t n, struct space *out,
                struct err *err)
{
    struct listing s = {.h = target};
    struct space space = {0};
    int rc;
    if ((rc = list_into(&s, always, n, &space, err)) < 0)
        goto out;
    *out = space;
    space = (struct space){0}; /* the caller owns it now */
out:
    space_release(&space);
    listing_close(&s);
    return rc;
}

/* ---- one layout ---- */

int host_space_memory(struct host_space *h, const struct layout *l, struct memory_bytes *out,
                      struct err *err)
{ return memory_predict_next(&h->held, l, &h->kept, out, err); }

static int predict(void *target, const struct layout *l, struct target_item *out, struct err *err)
{
    struct host_space *h = target;
    struct memory_bytes bytes;
    struct price_step step;
    int rc;
    if ((rc = host_space_memory(h, l, &bytes, err)) < 0)
        return rc;
    if ((rc = host_price(&h->host, l, &step, err)) < 0)
        return rc;
    price_bill(&h->host.machine[0], h->host.spec.model, l, &step, &out->bill);
    out->trial_bill = out->bill;
    host_classes(&h->host, l, &step, out->class_s);
    out->bytes = bytes.total;
    return 0;
}

struct target host_space_target(struct host_space *h)
{
    static const struct target_ops ops = {list, predict};
    return (struct target){&ops, h};
}
