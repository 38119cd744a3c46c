#include "trainer/state/spike.h"

#include <math.h>
#include <string.h>

void spike_note(struct spike_history *h, double loss, double norm)
{
    if (!isfinite(loss) || !isfinite(norm))
        return;
    if (h->n == SPIKE_STEPS) {
        h->n--;
        memmove(h->loss, h->loss + 1, (size_t)h->n * sizeof *h->loss);
        memmove(h->norm, h->norm + 1, (size_t)h->n * sizeof *h->norm);
    }
    h->loss[h->n] = loss;
    h->norm[h->n++] = norm;
}

double spike_limit(const double *values, int64_t n, double z)
{
    double mean = 0, squares = 0;
    if (n < SPIKE_LEAST)
        return INFINITY;
    for (int64_t i = 0; i < n; i++)
        mean += values[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    return mean + z * fmax(sqrt(squares / (double)(n - 1)), SPIKE_FLOOR * fabs(mean));
}
