/* This file implements the clock of the simulated cluster, which goes from event to event of a
 * heap, and draws random times. */
#include "launcher/sched/sim_priv.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>

#include "base/philox.h"

double sim_draw(const struct sim *s, enum sim_draw what, int64_t i)
{
    return philox_uniform_at(s->conf.seed, PHILOX_TEST, (uint64_t)what, (uint64_t)i);
}

void sim_tell(struct sim *s, enum sim_what what, int64_t id, int detail)
{
    const struct sim_told told = {s->now_s, what, id, detail};
    if (s->conf.tell)
        s->conf.tell(s->conf.ctx, &told);
}

/* ---- the heap ---- */

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_s < b->at_s || (a->at_s == b->at_s && a->order < b->order);
}

static void heap_swap(struct sim_heap *h, size_t i, size_t j)
{
    struct sim_event e = h->v[i];
    h->v[i] = h->v[j];
    h->v[j] = e;
}

static void heap_push(struct sim_heap *h, struct sim_event e)
{
    if (h->n == h->cap) {
        h->cap = h->cap ? 2 * h->cap : 256;
        struct sim_event *v = realloc(h->v, h->cap * sizeof *v);
        if (!v)
            abort(); /* out of memory; this code runs in tests only */
        h->v = v;
    }
    size_t i = h->n++;
    h->v[i] = e;
    for (; i > 0 && is_before(&h->v[i], &h->v[(i - 1) / 2]); i = (i - 1) / 2)
        heap_swap(h, i, (i - 1) / 2);
}

static struct sim_event heap_pop(struct sim_heap *h)
{
    struct sim_event first = h->v[0];
    h->v[0] = h->v[--h->n];
    for (size_t i = 0, least;; i = least) {
        least = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < h->n; k++)
            if (is_before(&h->v[k], &h->v[least]))
                least = k;
        if (least == i)
            return first;
        heap_swap(h, i, least);
    }
}

void sim_plan(struct sim *s, double at_s, enum sim_tick tick, int64_t id, int64_t run)
{
    if (isfinite(at_s))
        heap_push(&s->heap, (struct sim_event){fmax(at_s, s->now_s), ++s->orders, tick, id, run});
}

/* ---- what happens ---- */

static void happen(struct sim *s, const struct sim_event *e)
{
    if (e->tick >= TICK_NODE_FAIL)
        sim_node_event(s, e);
    else if (e->tick >= TICK_STEP_END)
        sim_step_event(s, e);
    else
        sim_job_event(s, e);
}

/* Handles all events of the next point in time, and makes a pass. */
static void moment(struct sim *s)
{
    s->now_s = s->heap.v[0].at_s;
    while (s->heap.n > 0 && s->heap.v[0].at_s <= s->now_s) {
        struct sim_event e = heap_pop(&s->heap);
        happen(s, &e);
    }
    sim_pass(s);
}

void sim_run_until(struct sim *s, double until_s)
{
    sim_pass(s);
    while (s->heap.n > 0 && s->heap.v[0].at_s <= until_s)
        moment(s);
    s->now_s = fmax(s->now_s, until_s);
}

double sched_sim_now(const struct sched *s)
{
    return ((const struct sim *)s)->now_s;
}

void sched_sim_advance(struct sched *s, double seconds)
{
    sim_run_until(sim_of(s), sim_of(s)->now_s + seconds);
}

bool sched_sim_step(struct sched *s)
{
    struct sim *sim = sim_of(s);
    sim_pass(sim);
    if (sim->heap.n == 0)
        return false;
    moment(sim);
    return true;
}

/* ---- calls to the test's callbacks ---- */

struct sim_outcome sim_ask_run(struct sim *s, const struct sim_exec *exec)
{
    struct sim_outcome out = {0};
    if (s->conf.run)
        s->conf.run(s->conf.ctx, exec, &out);
    double u = sim_draw(s, SIM_DRAW_NOISE, ++s->runs);
    out.ends_in_s = fmax(0, out.ends_in_s) * exp(s->conf.noise * philox_normal_from_uniform(u));
    return out;
}

struct sim_outcome sim_ask_hear(struct sim *s, const struct sim_exec *exec, int signo,
                                const struct sim_outcome *now)
{
    struct sim_outcome out = *now, heard = *now;
    if (s->conf.hear)
        s->conf.hear(s->conf.ctx, exec, signo, &heard);
    if (signo == SIGKILL || (signo == SIGTERM && !s->conf.hear))
        return (struct sim_outcome){0, -1, signo};
    return signo == SIGSTOP || signo == SIGCONT ? out : heard;
}
