#include "launcher/state/gap.h"

#include <math.h>

static double between(double from, double to)
{
    return from > 0 && to > 0 ? fmax(0, to - from) : NAN;
}

static int64_t replayed(const struct run_attempt *a, const struct run_attempt *b)
{
    if (b->first_step < 0)
        return -1;
    return a->last_step >= b->first_step ? a->last_step - b->first_step + 1 : 0;
}

struct run_gap run_gap_of(const struct run_attempt *a, const struct run_attempt *b)
{
    double end = a->heard_at > 0 ? fmax(a->heard_at, a->signal_at) : a->ended_at;
    double from = a->signal_at > 0 ? a->signal_at : end;
    struct run_gap g = {
        .total = NAN,
        .stopping = between(from, end),
        .waiting = NAN,
        .starting = NAN,
        .load = NAN,
        .replayed = -1,
    };
    if (!b)
        return g;
    g.waiting = between(end, b->started_at);
    g.starting = between(b->started_at, b->first_step_at);
    g.load = b->load_s;
    g.replayed = replayed(a, b);
    g.total = g.stopping + g.waiting + g.starting;
    return g;
}
