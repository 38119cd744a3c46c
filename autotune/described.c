#include "autotune/described.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/catalog.h"

/* The search considers this many candidates for each number of ranks. */
enum { EACH = STREAM_ITEMS };

struct described {
    struct described_spec spec;
    struct planner *planner;
};

int64_t described_trial(const struct layout *l, int64_t gbs, int64_t scale_down,
                        struct layout *out)
{
    struct layout trial = *l;
    if (scale_down == 0 || l->dp <= scale_down) {
        *out = trial;
        return gbs;
    }
    int64_t by = l->dp / scale_down;
    if (l->dp % scale_down || gbs % by || (l->fsdp && l->fsdp < scale_down && scale_down % l->fsdp))
        return 0;
    trial.dp = scale_down;
    if (trial.fsdp >= scale_down)
        trial.fsdp = 0;
    *out = trial;
    return gbs / by;
}

/* ---- opening ---- */

int described_place(const char *cluster, char *out, size_t size, struct err *err)
{
    char name[LIMIT_PATH_BYTES];
    const char *slash = strrchr(cluster, '/'), *nodes = strrchr(slash ? slash : cluster, ':');
    size_t n = nodes ? (size_t)(nodes - cluster) : strlen(cluster);
    int rc;
    nodes = nodes ? nodes : "";
    if (n >= sizeof name || strlen(nodes) >= size)
        return err_set(err, ERR_INPUT, "the cluster's name is longer than %zu bytes: give a "
                       "shorter one", sizeof name - 1);
    snprintf(name, sizeof name, "%.*s", (int)n, cluster);
    if ((rc = catalog_place(name, out, size - strlen(nodes), err)) < 0)
        return rc;
    snprintf(out + strlen(out), size - strlen(out), "%s", nodes);
    return 0;
}

static int ranks_check(struct described *d, struct err *err)
{
    for (size_t i = 0; i < d->spec.n_ranks; i++) {
        int rc = planner_gpus(d->planner, d->spec.ranks[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

struct described *described_new(const struct described_spec *spec, struct err *err)
{
    struct described *d = calloc(1, sizeof *d);
    if (!d) {
        err_set(err, ERR_NOMEM, "out of memory for a plan");
        return NULL;
    }
    d->spec = *spec;
    const struct plan_ask ask = {.loaded = spec->model, .cluster = spec->cluster,
                                 .stack = spec->stack, .seq = spec->seq, .gbs = spec->gbs,
                                 .dtype = spec->dtype, .fits = 0.5,
                                 .ema = spec->ema, .residual_wide = spec->residual_wide,
                                 .moments_bf16 = spec->moments_bf16,
                                 .memory_bytes = spec->memory_bytes,
                                 .adapter = spec->adapter};
    d->planner = planner_new(&ask, err);
    if (!d->planner || ranks_check(d, err) < 0) {
        described_free(d);
        return NULL;
    }
    return d;
}

void described_free(struct described *d)
{
    if (d)
        planner_free(d->planner);
    free(d);
}

const struct cluster *described_cluster(const struct described *d) { return &d->planner->cluster; }

const char *described_constants(const struct described *d) { return d->planner->constants.name; }

void described_key(const struct described *d, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 0);
    cluster_write(&d->planner->cluster, &o, NULL);
    str_addc(out, ' ');
    json_out_init(&o, out, 0);
    stack_write(&d->planner->stack, &o);
    str_addc(out, ' ');
    constants_format_values(&d->planner->constants, out);
}

double described_device_bytes(const struct described *d)
{ return (double)device_usable_bytes(&d->planner->cluster.device); }

/* ---- which layouts ---- */

/* Says whether a trial of the layout can be run. */
static bool can_be_tried(const struct described *d, const struct layout *l)
{
    struct layout trial;
    struct err ignored;
    int64_t gbs = described_trial(l, d->spec.gbs, d->spec.scale_down, &trial);
    const struct adapter_facts facts = {&trial, d->spec.model, d->spec.seq, gbs, 0, NULL};
    if (gbs > 0 && d->spec.adapter && adapter_broken_rule(d->spec.adapter, &facts) >= 0)
        return false;
    return gbs > 0 && planner_gpus(d->planner, layout_world(&trial), &ignored) == 0 &&
           layout_broken_rule(&trial, d->spec.model, d->spec.seq, gbs, layout_world(&trial)) < 0;
}

static void space_add(struct space *s, const struct layout *l)
{
    for (size_t i = 0; i < s->n; i++)
        if (layout_equal(&s->items[i], l))
            return;
    s->items[s->n++] = *l;
}

/* Counts the layouts that each rule excluded, in that rule's class. The classes of an adapter's
 * rules stand at the end. */
static void excluded_count(struct space *s, const struct adapter *a, const struct stream_found *f)
{
    for (int64_t i = 0; a && i < a->n_rules; i++) {
        struct space_excluded *e = &s->excluded[SPACE_CLASSES - 1 - i];
        e->rule = a->rules[i].rule, e->sentence = a->rules[i].because;
        e->count += f->refused[i];
    }
    for (int rule = 0; rule < layout_rule_count() && rule < SPACE_CLASSES; rule++) {
        struct space_excluded *e = &s->excluded[rule];
        e->rule = layout_rule_name(rule), e->sentence = layout_rule_sentence(rule);
        e->count += f->excluded[rule];
        s->visited += f->excluded[rule];
    }
    s->visited += f->legal;
}

/* Keeps only the classes that excluded something, and counts the layouts that are left. */
static void excluded_close(struct space *s)
{
    for (int rule = 0; rule < SPACE_CLASSES; rule++)
        if (s->excluded[rule].count > 0)
            s->excluded[s->n_excluded++] = s->excluded[rule];
    s->legal = s->visited;
    for (size_t i = 0; i < s->n_excluded; i++)
        s->legal -= s->excluded[i].count;
}

/* Says whether a search failed because layouts can run and none of them fits. */
static bool none_fits(int rc, const struct stream_found *f)
{ return rc == ERR_NO && f->nearest.bytes > 0; }

/* Adds the fastest layouts on this number of ranks. */
static int fastest_add(const struct described *d, int64_t ranks, struct stream_found *found,
                       struct space *s, struct err *err)
{
    int rc = planner_gpus(d->planner, ranks, err);
    if (rc < 0)
        return rc;
    rc = planner_search(d->planner, EACH, found, err);
    if (rc == 0 || none_fits(rc, found))
        excluded_count(s, d->spec.adapter, found);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < found->n; i++)
        if (can_be_tried(d, &found->items[i].layout))
            space_add(s, &found->items[i].layout);
    return 0;
}

/* Adds the fastest layouts on each number of ranks. Where none fits on any, the error is that of
 * the number on which the nearest is nearest. */
static int all_fastest_add(const struct described *d, struct stream_found *found, struct space *s,
                           struct err *err)
{
    double least = INFINITY;
    struct err why;
    bool any = false;
    for (size_t i = 0; i < d->spec.n_ranks; i++) {
        int rc = fastest_add(d, d->spec.ranks[i], found, s, &why);
        double needs = found->nearest.bytes / planner_limit_bytes(d->planner);
        if (rc < 0 && !none_fits(rc, found))
            return *err = why, rc;
        if (rc < 0 && needs < least)
            least = needs, *err = why;
        any = any || rc == 0;
    }
    return any ? 0 : ERR_NO;
}

/* Adds a layout of the caller to the candidates, if it is legal and a trial of it can be run. */
static void always_add(const struct described *d, const struct layout *l, struct space *s)
{
    int64_t world = layout_world(l);
    for (size_t i = 0; i < d->spec.n_ranks; i++)
        if (world == d->spec.ranks[i] && can_be_tried(d, l) &&
            layout_broken_rule(l, d->spec.model, d->spec.seq, d->spec.gbs, world) < 0)
            space_add(s, l);
}

static int list(const void *target, const struct layout *always, size_t n, struct space *out,
                struct err *err)
{
    const struct described *d = target;
    struct space s = {.room = n + d->spec.n_ranks * EACH};
    struct stream_found *found = calloc(1, sizeof *found);
    int rc = 0;
    s.items = calloc(s.room, sizeof *s.items);
    if (!found || !s.items)
        rc = err_set(err, ERR_NOMEM, "out of memory for a search of layouts");
    for (size_t i = 0; i < n && rc == 0; i++)
        always_add(d, &always[i], &s);
    if (rc == 0) // the space is released after an error
        rc = all_fastest_add(d, found, &s, err);
    free(found);
    excluded_close(&s);
    if (rc < 0)
        space_release(&s);
    else
        *out = s;
    return rc;
}

/* ---- predictions ---- */

static int planned_of(struct planner *p, const struct layout *l, int64_t gbs, struct planned *out,
                      struct err *err)
{
    int rc;
    planner_gbs(p, gbs);
    if ((rc = planner_gpus(p, layout_world(l), err)) < 0)
        return rc;
    return planner_predict(p, l, out, err);
}

static void bill_make(const struct planner *p, const struct planned *planned,
                      struct price_bill *out)
{
    price_bill(&p->machine, &p->model, &planned->layout, &planned->step, out);
}

static int predict(void *target, const struct layout *l, struct target_item *out, struct err *err)
{
    const struct described *d = target;
    struct planned planned;
    struct layout trial;
    int64_t gbs = described_trial(l, d->spec.gbs, d->spec.scale_down, &trial);
    int rc;
    if (gbs == 0)
        return err_set(err, ERR_INPUT, "--scale-down %lld does not divide the dp=%lld of a layout "
                       "and its samples: give another number",
                       (long long)d->spec.scale_down, (long long)l->dp);
    if ((rc = planned_of(d->planner, l, d->spec.gbs, &planned, err)) < 0)
        return rc;
    bill_make(d->planner, &planned, &out->bill);
    if (!layout_equal(l, &trial))
        rc = planned_of(d->planner, &trial, gbs, &planned, err);
    bill_make(d->planner, &planned, &out->trial_bill);
    planner_gbs(d->planner, d->spec.gbs);
    memcpy(out->class_s, planned.step.class_s, sizeof out->class_s);
    out->bytes = planned.footprint.total;
    return rc;
}

struct target described_target(struct described *d)
{
    static const struct target_ops ops = {list, predict};
    return (struct target){&ops, d};
}
