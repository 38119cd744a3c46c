#include "profiles/timeline.h"

#include <math.h>
#include <stdlib.h>

/* Describes the start (by 1) or end (by -1) of an activity. */
struct edge {
    int64_t at_ns;
    int class;
    int by; /* 1, -1 */
};

static int by_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static int items_check(const struct timeline *t, struct err *err)
{
    if (t->to_ns <= t->from_ns || t->steps < 1)
        return err_set(err, ERR_INPUT, "a timeline of %lld steps from %lld to %lld ns has no time",
                       (long long)t->steps, (long long)t->from_ns, (long long)t->to_ns);
    for (int64_t i = 0; i < t->n; i++)
        if (t->items[i].end_ns < t->items[i].start_ns)
            return err_set(err, ERR_INPUT, "activity %lld ends at %lld ns, before its start at "
                           "%lld ns", (long long)i, (long long)t->items[i].end_ns,
                           (long long)t->items[i].start_ns);
    return 0;
}

/* Lists the starts and ends of all activities within the steps, in order of time. Returns their
 * number. */
static int64_t edges_list(const struct timeline *t, struct edge *edges)
{
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const struct timeline_item *item = &t->items[i];
        int64_t start = item->start_ns > t->from_ns ? item->start_ns : t->from_ns,
                end = item->end_ns < t->to_ns ? item->end_ns : t->to_ns;
        if (start >= end)
            continue;
        edges[n++] = (struct edge){start, item->class, 1};
        edges[n++] = (struct edge){end, item->class, -1};
    }
    qsort(edges, (size_t)n, sizeof *edges, by_time);
    return n;
}

/* Adds a stretch of `ns`, during which running[c] activities of class c run, to the sum to which it
 * belongs. */
static void moment_add(struct timeline_sum *s, const int64_t running[KERNEL_CLASSES], double ns)
{
    int computing = 0;
    for (int c = 0; c < KERNEL_COMPUTES; c++)
        computing += running[c] > 0;
    for (int c = 0; c < KERNEL_COMPUTES; c++)
        s->class_s[c] += running[c] > 0 ? ns / computing : 0;
    if (computing)
        s->compute_s += ns;
    if (running[KERNEL_COMMUNICATION])
        *(computing ? &s->hidden_s : &s->exposed_s) += ns;
    else if (!computing)
        *(running[KERNEL_COPY] ? &s->class_s[KERNEL_COPY] : &s->idle_s) += ns;
}

/* Adds up the stretches between consecutive edges. */
static void edges_walk(const struct timeline *t, const struct edge *edges, int64_t n,
                       struct timeline_sum *s)
{
    int64_t running[KERNEL_CLASSES] = {0}, at = t->from_ns;
    for (int64_t i = 0; i < n; i++) {
        moment_add(s, running, (double)(edges[i].at_ns - at));
        running[edges[i].class] += edges[i].by;
        at = edges[i].at_ns;
    }
    moment_add(s, running, (double)(t->to_ns - at));
}

/* Converts nanoseconds of all steps to seconds of one step. */
static void sums_scale(struct timeline_sum *s, double by)
{
    for (int c = 0; c < KERNEL_CLASSES; c++)
        s->class_s[c] *= by;
    s->idle_s *= by;
    s->exposed_s *= by;
    s->hidden_s *= by;
    s->compute_s *= by;
    s->class_s[KERNEL_COMMUNICATION] = s->exposed_s;
    s->comm_s = s->exposed_s + s->hidden_s;
}

static double share(double flops, double seconds, double peak_flops)
{
    return flops > 0 && peak_flops > 0 && seconds > 0 ? flops / seconds / peak_flops : NAN;
}

int timeline_sums(const struct timeline *t, struct timeline_sum *out, struct err *err)
{
    struct timeline_sum s = {0};
    int rc;
    if ((rc = items_check(t, err)) < 0)
        return rc;
    struct edge *edges = malloc((size_t)(2 * t->n + 1) * sizeof *edges);
    if (!edges)
        return err_set(err, ERR_NOMEM, "no memory for a timeline of %lld activities",
                       (long long)t->n);
    edges_walk(t, edges, edges_list(t, edges), &s);
    free(edges);
    sums_scale(&s, 1e-9 / (double)t->steps);
    s.step_s = (double)(t->to_ns - t->from_ns) * 1e-9 / (double)t->steps;
    s.mfu = share(t->model_flops, s.step_s, t->peak_flops);
    s.hfu = share(t->hardware_flops, s.step_s, t->peak_flops);
    s.busy_hfu = share(t->hardware_flops, s.compute_s, t->peak_flops);
    *out = s;
    return 0;
}
