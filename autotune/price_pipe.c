/* This file says how long a pipeline takes: by bounds, and by a replay of its schedule.
 *
 * There are pp stages and m micro-batches, and the layers of a stage are cut into v
 * chunks. Stage s takes f_s seconds for the forward of a micro-batch and b_s for its backward, each
 * with the messages that it sends: the receiver waits for the sender, and does not pay for the
 * message again. No schedule that keeps the order of schedule.h can end before any of these times:
 *
 *     for each s:  sum over i < s of (f_i + b_i)/v + m (f_s + b_s)
 *     v = 1:       sum of all (f_i + b_i) + (m - 1) b_s + max(0, m - pp + s) f_s
 *     any v:       sum of all (f_i + b_i) + (m - 1) max(f_0, b_0)/v
 *
 * The first holds because a stage has m forwards and m backwards to do, and must wait at both ends.
 * Before its first forward, each stage before it does the forward of a chunk, and after its last
 * backward, each of them does the backward of a chunk.
 *
 * The second holds because the first backward of stage s comes late: the micro-batch must first
 * have gone forward through all stages, and back through the stages after s. Until then stage s can
 * do no more than pp - s of its forwards. All others, and m - 1 backwards, are still to come.
 *
 * The third holds because micro-batches enter the first chunk, and leave it, one after the other.
 * Between the two each goes through all stages, however short their chunks are.
 *
 * price_step() takes the largest of them for the time of the pipeline.
 *
 * Where pp does not divide m, the last group of the interleaved schedule has only r micro-batches,
 * and its backwards wait in every chunk. price_bound() takes that into account by a fourth bound:
 *
 *     for each s:  sum over i < s of f_i/v + m f_s + (m - r + (r - 1 - 2 (pp - 1 - s))/v) b_s
 *                  + sum over i > s of f_i/v + sum of all b_i
 *
 * It follows the last micro-batch. When this begins its last forward on stage s, that stage has
 * done all its other forwards, and as many backwards as the bound counts: those of all full groups
 * and r - 1 more, less the 2 (pp - 1 - s) by which its warm-up is longer than that of the last
 * stage. From there the micro-batch goes forward through the stages after s, and back through all
 * chunks. Only the stages whose sum falls with v are considered, so that a sum with v holds for
 * fewer virtual stages too.
 *
 * price_replay() plays the schedule itself, event by event, and is never less than price_bound().
 * There are two events for each chunk and micro-batch. Where there are very many, it plays fewer
 * micro-batches (by a multiple of pp) and adds the difference between the bound for all of them and
 * the bound for those that were played.
 */
#include "autotune/price_pipe.h"

#include <math.h>

#include "base/num.h"
#include "profiles/schedule.h"

enum { REPLAY_EVENTS = 1 << 16 };

double price_pipe_bound(double m, const struct layout *l, const struct stage_class *c, int n)
{
    double v = (double)l->vpp, pp = (double)l->pp, all = 0, before = 0, most = 0;
    for (int i = 0; i < n; i++)
        all += (double)(c[i].to - c[i].from) * (c[i].price.forward + c[i].price.backward);
    most = all + (m - 1) * fmax(c[0].price.forward, c[0].price.backward) / v;
    for (int i = 0; i < n; i++) {
        double f = c[i].price.forward, b = c[i].price.backward, last = (double)(c[i].to - 1);
        double alike = last - (double)c[i].from;
        most = fmax(most, (before + alike * (f + b)) / v + m * (f + b));
        if (l->vpp == 1)
            most = fmax(most, all + (m - 1) * b + fmax(0, m - pp + last) * f);
        before += (alike + 1) * (f + b);
    }
    return most;
}

/* Returns the greatest of the fourth kind of bounds, for vpp 2 or more. */
static double last_batch_bound(double m, const struct layout *l, const struct stage_class *c, int n)
{
    double v = (double)l->vpp, pp = (double)l->pp, r = m - pp * (ceil(m / pp) - 1), all_f = 0,
           all_b = 0, most = 0;
    for (int i = 0; i < n; i++) {
        all_f += (double)(c[i].to - c[i].from) * c[i].price.forward;
        all_b += (double)(c[i].to - c[i].from) * c[i].price.backward;
    }
    for (int i = 0; i < n; i++) {
        double f = c[i].price.forward, b = c[i].price.backward,
               in_chunk = all_f - f + (r - 1 - 2 * (pp - (double)c[i].to)) * b;
        if (in_chunk > 0)
            most = fmax(most, in_chunk / v + m * f + (m - r) * b + all_b);
    }
    return most;
}

int64_t price_pipe_batches(const struct layout *l, int64_t m)
{
    int64_t most = num_max_i64(REPLAY_EVENTS / (2 * l->pp * l->vpp), 4 * l->pp);
    return m <= most ? m : m - num_ceil_div(m - most, l->pp) * l->pp;
}

double price_pipe_replay_bound(double m, const struct layout *l, const struct stage_class *c,
                               int n)
{
    double all = price_pipe_bound(m, l, c, n);
    if (l->vpp == 1)
        return all;
    double some = (double)price_pipe_batches(l, (int64_t)m);
    if (some == m)
        return fmax(all, last_batch_bound(m, l, c, n));
    double played = price_pipe_bound(some, l, c, n);
    return fmax(played, last_batch_bound(some, l, c, n)) + all - played;
}

double price_pipe_replay(const struct layout *l, int64_t m, const struct stage_class *c,
                         int n, double *cost)
{
    int64_t chunks = l->pp * l->vpp, some = price_pipe_batches(l, m);
    for (int i = 0; i < n; i++)
        for (int64_t s = c[i].from; s < c[i].to; s++)
            for (int64_t v = 0; v < l->vpp; v++) {
                cost[v * l->pp + s] = c[i].price.forward / (double)l->vpp;
                cost[chunks + v * l->pp + s] = c[i].price.backward / (double)l->vpp;
            }
    double s = schedule_replay(l->pp, l->vpp, some, cost, cost + chunks, 0);
    if (s < 0 || some == m)
        return s;
    return s + price_pipe_bound((double)m, l, c, n) - price_pipe_bound((double)some, l, c, n);
}
