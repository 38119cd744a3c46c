#include "profiles/space.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

static void exclude(struct space *s, const char *rule, const char *sentence, int64_t count)
{
    for (size_t i = 0; i < s->n_excluded; i++)
        if (s->excluded[i].rule == rule) {
            s->excluded[i].count += count;
            return;
        }
    BUG_ON(s->n_excluded == SPACE_CLASSES);
    s->excluded[s->n_excluded++] = (struct space_excluded){rule, sentence, count};
}

/* Holds a walk over the grid: the function that it calls, and its counts. */
struct walk {
    const struct space_spec *spec;
    struct space *s;
    int (*meet)(void *ctx, const struct layout *l, struct err *err);
    void *ctx;
};

/* Adds a layout to the list of the space that the walk counts in. */
static int layout_add(void *space, const struct layout *l, struct err *err)
{
    struct space *s = space;
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        struct layout *items = realloc(s->items, room * sizeof *items);
        if (!items)
            return err_set(err, ERR_NOMEM, "out of memory for %zu layouts", room);
        s->items = items;
        s->room = room;
    }
    s->items[s->n++] = *l;
    return 0;
}

/* Returns the limit of the caller that a layout breaks; NULL: none. */
static const struct space_limit *broken_limit(const struct space_spec *spec,
                                              const struct layout *l)
{
    for (size_t i = 0; i < spec->n_limits; i++)
        if (!spec->limits[i].holds(l))
            return &spec->limits[i];
    return NULL;
}

/* Meets or excludes a layout, which is counted for `count` layouts. */
static int consider(struct walk *w, const struct layout *l, int64_t world, int64_t count,
                    struct err *err)
{
    const struct space_spec *spec = w->spec;
    struct space *s = w->s;
    const struct space_limit *limit = broken_limit(spec, l);
    int rule = layout_broken_rule(l, spec->model, spec->seq, spec->gbs, world);
    s->visited += count;
    if (rule >= 0) {
        exclude(s, layout_rule_name(rule), layout_rule_sentence(rule), count);
    } else if (limit) {
        exclude(s, limit->rule, limit->sentence, count);
    } else if (l->zero && layout_shard_group(l) == 1) {
        exclude(s, "zero-alone",
                "sharding over one rank is zero 0 by another name: zero must be 0 when dp or fsdp "
                "is 1", count);
    } else {
        s->legal += count;
        return w->meet(w->ctx, l, err);
    }
    return 0;
}

/* ---- the axes of which not every value is worth a look ---- */

const char *const space_axis_names[SPACE_THINNED] = {"vpp", "mbs", "recompute_layers",
                                                      "order"};
const char *const space_axis_sentences[SPACE_THINNED] = {
    "virtual stages other than 1, 2 and 4",
    "micro-batches beyond 8 samples that are neither a power of two nor a divisor of a replica's "
    "share",
    "full recomputation of the first layers only",
    "orders of ranks other than tp-cp-dp-pp",
};

static bool vpp_worth(int64_t vpp) { return vpp == 1 || vpp == 2 || vpp == 4; }

static bool mbs_worth(int64_t mbs, int64_t share)
{
    return mbs <= 8 || (mbs & (mbs - 1)) == 0 || share % mbs == 0;
}

/* Returns how many values recompute_layers has besides 0. The field counts layers of a virtual
 * stage. As many layers as the longest one has are not a value of their own, because 0 already
 * means all. */
static int64_t recompute_counts(const struct space_spec *spec, const struct layout *l)
{
    return num_ceil_div(spec->model->layers, l->pp * l->vpp) - 1;
}

static int64_t orders_of(const struct layout *l)
{
    int orders[LAYOUT_ORDERS];
    return layout_orders(l, orders);
}

/* Counts the legal layouts of one grid and way to shard that are passed over. No rule depends on
 * mbs or recompute as long as mbs is within a replica's share and recompute_layers within the
 * model's layers, so all of them are legal or none is. */
static void thinned_count(struct walk *w, struct layout l, int64_t world)
{
    const struct space_spec *spec = w->spec;
    struct space *s = w->s;
    int64_t share = num_ceil_div(spec->gbs, l.dp), partial = recompute_counts(spec, &l),
            kinds = RECOMPUTE_FULL + 1 + partial, worth = 0, orders = orders_of(&l);
    l.mbs = 1;
    if (spec->all || spec->closed ||
        layout_broken_rule(&l, spec->model, spec->seq, spec->gbs, world) >= 0 ||
        (l.zero && layout_shard_group(&l) == 1))
        return;
    if (!vpp_worth(l.vpp)) {
        s->thinned[SPACE_VPP] += share * kinds * orders;
        return;
    }
    for (int64_t mbs = 1; mbs <= share; mbs++)
        worth += mbs_worth(mbs, share);
    s->thinned[SPACE_MBS] += (share - worth) * kinds * orders;
    s->thinned[SPACE_RECOMPUTE_LAYERS] += worth * partial * orders;
    s->thinned[SPACE_ORDER] += worth * (kinds - partial) * (orders - 1);
}

/* ---- the grid ---- */

static int consider_recompute(struct walk *w, struct layout l, int64_t world, struct err *err)
{
    int rc;
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
        int64_t partial = w->spec->all && r == RECOMPUTE_FULL ? recompute_counts(w->spec, &l) : 0;
        l.recompute = (enum recompute)r;
        for (l.recompute_layers = 0; l.recompute_layers <= partial; l.recompute_layers++)
            if ((rc = consider(w, &l, world, 1, err)) < 0)
                return rc;
    }
    return 0;
}

/* Considers one layout for each number of micro-batches, and counts all that make it. */
static int consider_batches(struct walk *w, struct layout l, int64_t world, struct err *err)
{
    int64_t share = num_ceil_div(w->spec->gbs, l.dp), next,
            others = (RECOMPUTE_FULL + 1 + recompute_counts(w->spec, &l)) * orders_of(&l);
    int rc;
    for (l.mbs = 1; l.mbs <= share; l.mbs = next) {
        int64_t batches = num_ceil_div(share, l.mbs);
        next = batches > 1 ? num_ceil_div(share, batches - 1) : share + 1;
        if ((rc = consider(w, &l, world, (next - l.mbs) * others, err)) < 0)
            return rc;
    }
    return 0;
}

static int consider_mbs(struct walk *w, struct layout l, int64_t world, struct err *err)
{
    int64_t share = num_ceil_div(w->spec->gbs, l.dp);
    int rc;
    if (w->spec->closed)
        return consider_batches(w, l, world, err);
    for (l.mbs = 1; l.mbs <= share; l.mbs++)
        if ((w->spec->all || mbs_worth(l.mbs, share)) &&
            (rc = consider_recompute(w, l, world, err)) < 0)
            return rc;
    return 0;
}

/* Considers the ways to shard the state. */
static int consider_state(struct walk *w, struct layout l, int64_t world, struct err *err)
{
    int64_t group = l.dp * l.cp;
    int rc;
    for (l.zero = 0; l.zero <= 3; l.zero++)
        for (int64_t fsdp = 0; fsdp <= group && (fsdp == 0 || l.zero > 0); fsdp++) {
            if (fsdp == 1 || (fsdp && group % fsdp) || (fsdp && fsdp == l.dp))
                continue; /* one rank shards nothing; fsdp=dp is spelt 0 */
            l.fsdp = fsdp;
            thinned_count(w, l, world);
            if ((w->spec->all || w->spec->closed || vpp_worth(l.vpp)) &&
                (rc = consider_mbs(w, l, world, err)) < 0)
                return rc;
        }
    return 0;
}

/* Considers the variants of one grid: sp, the kind of cp, virtual stages. */
static int consider_grid(struct walk *w, struct layout l, int64_t world, struct err *err)
{
    int64_t vpp = l.pp > 1 ? num_max_i64(4, w->spec->model->layers / l.pp) : 1;
    int rc;
    for (l.sp = 0; l.sp <= (l.tp > 1); l.sp++)
        for (int k = CP_RING; k <= (l.cp > 1 ? CP_2D : CP_RING); k++)
            for (l.vpp = 1; l.vpp <= vpp; l.vpp++) {
                l.cp_kind = (enum cp_kind)k;
                if ((rc = consider_state(w, l, world, err)) < 0)
                    return rc;
            }
    return 0;
}

static int consider_orders(struct walk *w, struct layout l, int64_t world, struct err *err)
{
    int orders[LAYOUT_ORDERS], n = layout_orders(&l, orders), rc;
    for (int i = 0; i < (w->spec->all ? n : 1); i++) {
        l.order = orders[i];
        if ((rc = consider_grid(w, l, world, err)) < 0)
            return rc;
    }
    return 0;
}

static int consider_world(struct walk *w, int64_t world, struct err *err)
{
    struct layout l = layout_default();
    int rc;
    for (l.tp = 1; l.tp <= world; l.tp++)
        for (l.cp = 1; world % l.tp == 0 && l.cp <= world / l.tp; l.cp++)
            for (l.pp = 1; world / l.tp % l.cp == 0 && l.pp <= world / l.tp / l.cp; l.pp++) {
                if (world / l.tp / l.cp % l.pp != 0)
                    continue;
                l.dp = world / l.tp / l.cp / l.pp;
                if ((rc = consider_orders(w, l, world, err)) < 0)
                    return rc;
            }
    return 0;
}

static int spec_check(const struct space_spec *spec, struct err *err)
{
    if (spec->gbs < 1 || spec->gbs > 1 << 24)
        return err_set(err, ERR_INPUT, "gbs is %lld: give 1 to %d samples", (long long)spec->gbs,
                       1 << 24);
    if (spec->n_ranks < 1)
        return err_set(err, ERR_INPUT, "no number of ranks to try: give one or more");
    for (size_t i = 0; i < spec->n_ranks; i++) {
        if (spec->ranks[i] < 1 || spec->ranks[i] > LIMIT_RANKS)
            return err_set(err, ERR_INPUT, "ranks is %lld: give 1 to %d", (long long)spec->ranks[i],
                           LIMIT_RANKS);
        for (size_t k = 0; k < i; k++)
            if (spec->ranks[k] == spec->ranks[i])
                return err_set(err, ERR_INPUT, "ranks has %lld twice: give each number once",
                               (long long)spec->ranks[i]);
    }
    return 0;
}

/* Considers only the layout that the caller named. */
static int only_meet(struct walk *w, struct err *err)
{
    const struct space_spec *spec = w->spec;
    int rc = layout_check(spec->only, spec->model, spec->seq, spec->gbs, spec->ranks[0], err);
    if (rc < 0)
        return rc;
    w->s->visited++;
    w->s->legal++;
    return w->meet(w->ctx, spec->only, err);
}

int space_walk(const struct space_spec *spec,
               int (*meet)(void *ctx, const struct layout *l, struct err *err), void *ctx,
               struct space *counts, struct err *err)
{
    struct walk w = {spec, counts, meet, ctx};
    int rc;
    if ((rc = spec_check(spec, err)) < 0)
        return rc;
    if (spec->only)
        return only_meet(&w, err);
    for (size_t i = 0; i < spec->n_ranks; i++)
        if ((rc = consider_world(&w, spec->ranks[i], err)) < 0)
            return rc;
    return 0;
}

/* Says whether a layout has the name under which the walk would meet it. */
static bool plainly_named(const struct space_spec *spec, const struct layout *l)
{
    bool state = l->zero > 0 ? layout_shard_group(l) > 1 && l->fsdp != l->dp : l->fsdp == 0;
    return state && l->recompute_layers <= recompute_counts(spec, l) &&
           layout_order_plain(l) == l->order;
}

bool space_has(const struct space_spec *spec, const struct layout *l)
{
    bool ours = false;
    for (size_t i = 0; i < spec->n_ranks; i++)
        ours = ours || spec->ranks[i] == layout_world(l);
    return ours && plainly_named(spec, l) && !broken_limit(spec, l) &&
           layout_broken_rule(l, spec->model, spec->seq, spec->gbs, layout_world(l)) < 0;
}

int space_build(const struct space_spec *spec, struct space *out, struct err *err)
{
    struct space s = {0};
    int rc;
    if ((rc = space_walk(spec, layout_add, &s, &s, err)) < 0)
        goto out;
    *out = s;
    s = (struct space){0}; /* the caller owns it now */
out:
    space_release(&s);
    return rc;
}

/* Returns the rule that excluded the most layouts; NULL: none excluded any. */
static const struct space_excluded *most_excluded(const struct space *s)
{
    const struct space_excluded *most = NULL;
    for (size_t i = 0; i < s->n_excluded; i++)
        if (!most || s->excluded[i].count > most->count)
            most = &s->excluded[i];
    return most;
}

int space_check(const struct space_spec *spec, const struct space *s, struct err *err)
{
    const struct space_excluded *most = most_excluded(s);
    if (s->n > 0)
        return 0;
    if (!most)
        return err_set(err, ERR_NO, "no layout is left for model '%s', gbs %lld: the grid is empty",
                       spec->model->name, (long long)spec->gbs);
    return err_set(err, ERR_NO,
                   "no layout is left for model '%s', gbs %lld: %lld of %lld break the rule %s: %s",
                   spec->model->name, (long long)spec->gbs, (long long)most->count,
                   (long long)s->visited, most->rule, most->sentence);
}

void space_release(struct space *s)
{
    free(s->items);
    *s = (struct space){0};
}
