#include "launcher/state/pace.h"

#include <math.h>
#include <stdlib.h>

static const double LEAD_LEAST_S = 60;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pace_save_s(const struct run_state *s)
{
    double *saves = calloc((size_t)s->n_attempts + 1, sizeof *saves), p99 = 0;
    size_t n = 0;
    for (int64_t i = 0; saves && i < s->n_attempts; i++)
        if (s->attempts[i].save_s > 0)
            saves[n++] = s->attempts[i].save_s;
    if (n) {
        qsort(saves, n, sizeof *saves, by_size);
        p99 = saves[(size_t)ceil(0.99 * (double)n) - 1];
    }
    free(saves);
    return p99;
}

static bool is_failure(const struct run_attempt *a)
{
    switch (a->cause) {
    case CAUSE_CRASH:
    case CAUSE_NODE_FAIL:
    case CAUSE_HANG: return true;
    case CAUSE_PREEMPT:
    case CAUSE_TIME_LIMIT: return !a->stopped && a->first_step_at > 0;
    default: return false;
    }
}

double pace_mtbf_s(const struct run_state *s)
{
    const double least_s = 1; /* checkpoints do not help a run that fails within a second */
    double trained_s = 0;
    int64_t failures = 0;
    for (int64_t i = 0; i < s->n_attempts; i++) {
        const struct run_attempt *a = &s->attempts[i];
        double end = a->ended_at > 0 ? a->ended_at : s->last_event_at;
        trained_s += a->first_step_at > 0 ? fmax(0, end - a->first_step_at) : 0;
        failures += is_failure(a);
    }
    return failures ? fmax(least_s, trained_s / (double)failures) : 0;
}

double pace_lead_s(double time_limit_s, double save_s, double step_s)
{
    return fmin(fmax(LEAD_LEAST_S, 2 * save_s + step_s), time_limit_s / 2);
}
