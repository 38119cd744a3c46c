/* This comment gives the order of a rank's steps and proves that it has no deadlock. All ranks do
 * their forwards in one sequence: in groups of pp micro-batches, in a group chunk by chunk, in a
 * chunk micro-batch by micro-batch. F(k) is the k-th forward. B(k) is the k-th backward, in the
 * same sequence with the chunks reversed. A rank does w forwards (the warm-up), then a forward and
 * a backward in turn, then the remaining backwards:
 *
 *     w = pp - rank - 1                              vpp 1
 *     w = 2·(pp - rank - 1) + (vpp - 1)·pp           vpp > 1 (Megatron-LM)
 *
 *     pp 2, vpp 2, m 2 (chunk.micro)   rank 0: F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1      w = 4
 *                                      rank 1: F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1      w = 2
 *
 * This order has no deadlock. Give rank r's steps the times
 *
 *     F(k): 2·(k - w) + c        B(k): 2·k + 1 + c      c = s·(pp - 1 - r), s = 1 for vpp 1, else 2
 *
 * These times grow along each rank's list. If every step waits only for steps with smaller times,
 * the lists cannot get stuck: of all steps not done, the one with the smallest time can run. Let
 * e = w(r) - w(r+1), which equals s, and let g = pp, the distance in the sequence from a
 * micro-batch in one chunk to the same micro-batch in the next. Then each wait is for a smaller
 * time:
 *
 *     F(k) of r+1 after F(k) of r                  2·e > s
 *     B(k) of r after B(k) of r+1                  s > 0
 *     F(k+g) of 0 after F(k) of pp-1               2·g + s·(pp-1) > 2·e·(pp-1),
 *                                                  only where vpp > 1: e = s = 2
 *     B(k+g) of pp-1 after B(k) of 0               2·g > s·(pp-1), likewise
 *     B of the last chunk after its own F          at most (vpp-1)·g = w further on in the sequence
 *
 * A send ends when its receiver has started to receive, and there is one send buffer for each kind.
 * So F(k+1) of r also waits until rank r+1 has done the step before its F(k), whose time is at
 * least 1 smaller than that of F(k): 2 + s > 2·e - 1. Likewise B(k+1) of r+1 waits for r:
 * 2 > s - 1; F(k+1) of pp-1 for F(k+g) of 0: 2 + s·(pp-1) > 2·g - 1; B(k+1) of 0 for B(k+g) of
 * pp-1: 2 + s·(pp-1) > 2·g - 1. The last two are why groups have pp micro-batches and not more.
 *
 * The proof still holds when micro-batches are left out: a step waits for steps of its own
 * micro-batch, and for the ends of earlier sends.
 */
#include "profiles/schedule.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/num.h"

/* ---- one rank's list, step by step ---- */

struct schedule_walk schedule_walk(int64_t pp, int64_t vpp, int64_t m, int64_t rank)
{
    BUG_ON(pp < 1 || vpp < 1 || m < 1 || rank < 0 || rank >= pp || (pp == 1 && vpp > 1));
    struct schedule_walk w = {.pp = pp, .vpp = vpp, .m = m, .total = num_round_up(m, pp) * vpp};
    w.warm = vpp == 1 ? pp - rank - 1 : 2 * (pp - rank - 1) + (vpp - 1) * pp;
    return w;
}

static struct pipe_step step_at(const struct schedule_walk *w, int kind, int64_t k)
{
    int64_t group = k / (w->pp * w->vpp), in_group = k % (w->pp * w->vpp), chunk = in_group / w->pp;
    return (struct pipe_step){.kind = kind,
                              .chunk = kind == PIPE_FORWARD ? chunk : w->vpp - 1 - chunk,
                              .micro = group * w->pp + in_group % w->pp};
}

bool schedule_next(struct schedule_walk *w, struct pipe_step *out)
{
    while (w->backwards < w->total) {
        bool forward = w->forwards < w->total && w->forwards - w->backwards <= w->warm;
        struct pipe_step s = forward ? step_at(w, PIPE_FORWARD, w->forwards++)
                                     : step_at(w, PIPE_BACKWARD, w->backwards++);
        if (s.micro < w->m) {
            *out = s;
            return true;
        }
    }
    return false;
}

int64_t schedule_length(int64_t pp, int64_t vpp, int64_t m)
{
    (void)pp;
    return 2 * vpp * m;
}

void schedule_build(int64_t pp, int64_t vpp, int64_t m, int64_t rank, struct pipe_step *out)
{
    struct schedule_walk w = schedule_walk(pp, vpp, m, rank);
    while (schedule_next(&w, out))
        out++;
}

/* Returns how many of the first n forwards of a rank's sequence are of micro-batches that exist. */
static int64_t forwards_there(const struct schedule_walk *w, int64_t n)
{
    int64_t in_last = w->m % w->pp, whole = (w->m - in_last) * w->vpp;
    if (n <= whole)
        return n;
    n -= whole;
    return whole + n / w->pp * in_last + num_min_i64(n % w->pp, in_last);
}

/* Counts those in flight when the warm-up and one more forward are done. From then on each further
 * forward comes after a backward, and absent micro-batches only make fewer. */
int64_t schedule_in_flight(int64_t pp, int64_t vpp, int64_t m, int64_t rank)
{
    struct schedule_walk w = schedule_walk(pp, vpp, m, rank);
    return forwards_there(&w, num_min_i64(w.warm + 1, w.total));
}

/* ---- replay ---- */

/* Holds the known times of one step (a global chunk and micro-batch), in seconds; negative: not
 * known yet. */
struct event {
    double end_s,
        taken_s; /* when the step is done; when its output has arrived at the next chunk's rank */
};

struct stage {
    struct schedule_walk walk;
    struct pipe_step step;     /* the stage's next step */
    bool more;
    double free_s;             /* when the step before it ended */
    /* by kind, the event whose output was last in the send buffer; NULL: none */
    struct event *last[2];
};

struct replay {
    int64_t pp, vpp, m;
    const double *cost_s[2];
    double send_s;
    struct event *events; /* [kind][global chunk][micro] */
    struct stage *stages; /* [pp] */
};

static struct event *event_of(const struct replay *r, int kind, int64_t g, int64_t micro)
{
    return &r->events[(kind * r->pp * r->vpp + g) * r->m + micro];
}

/* Returns the step whose output this one needs, NULL for the first forward. */
static struct event *input_of(const struct replay *r, int kind, int64_t g, int64_t micro)
{
    int64_t last = r->pp * r->vpp - 1;
    if (kind == PIPE_FORWARD)
        return g ? event_of(r, PIPE_FORWARD, g - 1, micro) : NULL;
    return g < last ? event_of(r, PIPE_BACKWARD, g + 1, micro)
                    : event_of(r, PIPE_FORWARD, g, micro);
}

static bool is_sent(const struct replay *r, int kind, int64_t g)
{
    return kind == PIPE_FORWARD ? g < r->pp * r->vpp - 1 : g > 0;
}

/* Starts the receive of the step's input. Returns whether it has arrived, or will arrive at a known
 * time. */
static bool receive(const struct replay *r, struct stage *s, struct event *input, bool own,
                    double *start_s)
{
    if (!input || own)
        return true;
    if (input->end_s < 0)
        return false;
    if (input->taken_s < 0)
        input->taken_s = (input->end_s > s->free_s ? input->end_s : s->free_s) + r->send_s;
    *start_s = input->taken_s;
    return true;
}

/* Does the stage's next step if the times of everything that it waits for are known. Returns
 * whether it did. */
static bool stage_advance(const struct replay *r, int64_t rank)
{
    struct stage *s = &r->stages[rank];
    int kind = s->step.kind;
    int64_t g = s->step.chunk * r->pp + rank;
    double start_s = s->free_s;
    bool own = kind == PIPE_BACKWARD && g == r->pp * r->vpp - 1;
    if (!s->more || !receive(r, s, input_of(r, kind, g, s->step.micro), own, &start_s))
        return false;
    if (is_sent(r, kind, g) && s->last[kind]) {
        if (s->last[kind]->taken_s < 0)
            return false;
        start_s = start_s > s->last[kind]->taken_s ? start_s : s->last[kind]->taken_s;
    }
    struct event *e = event_of(r, kind, g, s->step.micro);
    e->end_s = s->free_s = start_s + r->cost_s[kind][g];
    if (is_sent(r, kind, g))
        s->last[kind] = e;
    s->more = schedule_next(&s->walk, &s->step);
    return true;
}

static double replay_run(const struct replay *r)
{
    double end_s = 0;
    bool moved = true;
    for (int64_t i = 0; i < r->pp; i++) {
        r->stages[i] = (struct stage){.walk = schedule_walk(r->pp, r->vpp, r->m, i)};
        r->stages[i].more = schedule_next(&r->stages[i].walk, &r->stages[i].step);
    }
    for (int64_t i = 0; i < 2 * r->pp * r->vpp * r->m; i++)
        r->events[i] = (struct event){-1, -1};
    while (moved) {
        moved = false;
        for (int64_t i = 0; i < r->pp; i++)
            while (stage_advance(r, i))
                moved = true;
    }
    for (int64_t i = 0; i < r->pp; i++) {
        BUG_ON(r->stages[i].more); /* a deadlock: see the proof above */
        end_s = r->stages[i].free_s > end_s ? r->stages[i].free_s : end_s;
    }
    return end_s;
}

double schedule_replay(int64_t pp, int64_t vpp, int64_t m, const double *forward_s,
                       const double *backward_s, double send_s)
{
    struct replay r = {.pp = pp,
                       .vpp = vpp,
                       .m = m,
                       .cost_s = {forward_s, backward_s},
                       .send_s = send_s};
    double end_s = -1;
    r.events = calloc((size_t)(2 * pp * vpp * m), sizeof *r.events);
    r.stages = calloc((size_t)pp, sizeof *r.stages);
    if (r.events && r.stages)
        end_s = replay_run(&r);
    free(r.events);
    free(r.stages);
    return end_s;
}

double schedule_bubble(int64_t pp, int64_t vpp, int64_t m)
{
    return (double)(pp - 1) / (double)(vpp * m);
}
