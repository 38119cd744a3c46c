#include "autotune/host.h"

#include <math.h>
#include <string.h>

#include "autotune/price_work.h"
#include "base/num.h"

int host_open(struct host *h, const struct work_spec *spec, struct err *err)
{
    int rc;
    h->spec = *spec;
    if ((rc = stack_load("reel", &h->stack, err)) < 0)
        return rc;
    if ((rc = work_weights(spec->model, &h->weights, err)) < 0)
        return rc;
    h->spec.stack = &h->stack, h->spec.weights = &h->weights;
    return 0;
}

/* Makes a machine from measured rates. Real work reached them, so constants that take a share of a
 * peak are 1. */
static void machine_make(struct host *h, const struct speed_link *link, struct cluster *cluster,
                         struct price_machine *out)
{
    double v[CONSTANTS] = {0};
    *cluster = (struct cluster){
        .name = "host", .nodes = 1, .domain_nodes = 1,
        .node = {.devices = LIMIT_RANKS, .link_bytes_per_s = link->bytes_s,
                 .link_latency_s = link->latency_s}};
    cluster->device = (struct device){.name = "cpu", .cpu = true,
                                      .memory_bytes_per_s = h->speed.copy_bytes};
    v[CONSTANT_LINK_SHARE] = v[CONSTANT_COPY_SHARE] = v[CONSTANT_AGAIN] = 1;
    v[CONSTANT_STEP_S] = h->speed.step_s;
    price_machine(cluster, v, h->spec.act, false, out);
    out->speed = &h->speed;
    out->norm_bytes = h->speed.norm_bytes, out->update_bytes = h->speed.update_bytes;
    out->clear_bytes = h->speed.clear_bytes;
    out->overlaps = false, out->rings = true;
    out->cores = h->cores;
    out->rank_loss = h->speed.rank_loss, out->update_loss = h->speed.loss.update;
}

static void machines_make(struct host *h)
{
    machine_make(h, &h->speed.link, &h->cluster[0], &h->machine[0]);
    machine_make(h, &h->speed.link_shared, &h->cluster[1], &h->machine[1]);
}

int host_set(struct host *h, const struct speed *speed, int64_t cores, struct err *err)
{
    int rc = speed_check(speed, err);
    if (rc < 0)
        return rc;
    h->speed = *speed;
    h->cores = (double)num_max_i64(1, cores);
    machines_make(h);
    return 0;
}

void host_parts(const struct host *h, const struct layout *l, struct work *work,
                struct price *price)
{
    bool shared = (double)layout_world(l) > h->cores;
    work_build(&h->spec, l, work);
    price_parts(&h->machine[shared], work, price);
}

int host_price(struct host *h, const struct layout *l, struct price_step *out, struct err *err)
{
    host_parts(h, l, &h->work, &h->price);
    return price_replay(&h->price, l, out, err);
}

double host_rate(const struct speed *s, const struct speed_info *info)
{
    double v;
    memcpy(&v, (const char *)s + info->offset, sizeof v);
    return v;
}

/* Prices a layout with one rate lowered by a hundredth. */
static int lowered_price(struct host *h, const struct layout *l, const struct speed_info *info,
                         struct price_step *out, struct err *err)
{
    const struct speed all = h->speed;
    double v = 0.99 * host_rate(&all, info);
    memcpy((char *)&h->speed + info->offset, &v, sizeof v);
    machines_make(h);
    int rc = host_price(h, l, out, err);
    h->speed = all;
    machines_make(h);
    return rc;
}

/* Finds the rates that change the terms most, the first of those that change one alike. */
static int rates_find(struct host *h, const struct layout *l, const struct price_step *now,
                      const struct speed_info *rate[PRICE_TERMS], struct err *err)
{
    double most[PRICE_TERMS];
    int rc;
    for (int t = 0; t < PRICE_TERMS; t++)
        most[t] = 1e-5, rate[t] = NULL;
    for (const struct speed_info *i = speed_table; i->name; i++) {
        struct price_step s;
        if ((rc = lowered_price(h, l, i, &s, err)) < 0)
            return rc;
        for (int t = 0; t < PRICE_TERMS; t++) {
            double by = fabs(s.term[t] / now->term[t] - 1);
            if (t != PRICE_BUBBLE && by > 1.001 * most[t])
                most[t] = by, rate[t] = i;
        }
    }
    return 0;
}

int host_explain(struct host *h, const struct layout *l, struct host_explained *out,
                 struct err *err)
{
    struct host_explained e;
    struct price_step step;
    int rc;
    if ((rc = host_price(h, l, &step, err)) < 0)
        return rc;
    e.stage = step.stage;
    price_work(&h->price, l, &step, e.work);
    if ((rc = rates_find(h, l, &step, e.rate, err)) < 0)
        return rc;
    *out = e;
    return 0;
}

/* Returns how many other cores compute, on average, while the busiest rank computes. Stages wait as
 * long as the bubble lasts, in which their cores have nothing to do unless ranks share them. */
static double others_beside(const struct host *h, const struct layout *l,
                            const struct price_step *step)
{
    double world = (double)layout_world(l), others = fmin(world, h->cores) - 1, busy = 0;
    if (l->pp == 1 || world > h->cores)
        return others;
    for (int t = 0; t < PRICE_BUBBLE; t++)
        busy += step->term[t];
    double of_other_stages = (world - world / (double)l->pp) / (world - 1);
    return others * (1 - of_other_stages * fmin(1, step->term[PRICE_BUBBLE] / busy));
}

void host_classes(const struct host *h, const struct layout *l, const struct price_step *step,
                  double class_s[PRICE_TERMS])
{
    const struct speed_loss *loss = &h->speed.loss;
    double others = others_beside(h, l, step);
    memcpy(class_s, step->class_s, sizeof step->class_s);
    class_s[PRICE_GEMM] *= 1 + loss->gemm * others;
    class_s[PRICE_ATTENTION] *= 1 + loss->attention * others;
    class_s[PRICE_ELEMENTWISE] *= 1 + loss->elementwise * others;
    class_s[PRICE_INPUTS] *= 1 + loss->inputs * others;
    class_s[PRICE_OPTIMIZER] *= 1 + loss->update * (fmin((double)layout_world(l), h->cores) - 1);
}
