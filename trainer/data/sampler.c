#include "trainer/data/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

const char *const sampler_names[] = {"euler", "heun", "res", NULL};

double sampler_level(const struct sampler *p, int64_t i)
{
    double most = pow(p->level_max, 1 / p->rho), least = pow(p->level_min, 1 / p->rho);
    if (i >= p->steps)
        return 0;
    return p->steps == 1 ? p->level_max
                         : pow(most + (double)i / (double)(p->steps - 1) * (least - most), p->rho);
}

/* Holds the state of sampling: the sample, and the clean estimates of this step and the one
 * before. */
struct walk {
    const struct sampler *p;
    double *x, *clean, *before; /* heun keeps its first slope in before */
    int64_t n;
    double h_before; /* 0: no step yet */
};

static int euler_step(struct walk *w, double from, double to)
{
    for (int64_t j = 0; j < w->n; j++)
        w->x[j] += (to - from) / from * (w->x[j] - w->clean[j]);
    return 0;
}

/* Does a step of Heun's method: an Euler step, whose slope is kept in w->before, and a correction
 * of x by the slope at the step's end. */
static int heun_step(struct walk *w, double from, double to, struct err *err)
{
    double *d = w->before;
    int rc;
    for (int64_t j = 0; j < w->n; j++) {
        d[j] = (w->x[j] - w->clean[j]) / from;
        w->x[j] += (to - from) * d[j];
    }
    if (to == 0)
        return 0;
    if ((rc = w->p->denoise(w->p->ctx, w->x, to, w->clean, err)) < 0)
        return rc;
    for (int64_t j = 0; j < w->n; j++)
        w->x[j] += (to - from) / 2 * ((w->x[j] - w->clean[j]) / to - d[j]);
    return 0;
}

static int res_step(struct walk *w, double from, double to)
{
    double *last = w->clean;
    if (to == 0) {
        memcpy(w->x, last, (size_t)w->n * sizeof *w->x);
        return 0;
    }
    double h = log(from / to), decay = to / from, phi1 = -expm1(-h) / h,
           phi2 = (expm1(-h) + h) / (h * h);
    double back = w->h_before > 0 ? phi2 * h / w->h_before : 0;
    for (int64_t j = 0; j < w->n; j++)
        w->x[j] =
            decay * w->x[j] + h * ((phi1 + back) * last[j] - (back != 0 ? back * w->before[j] : 0));
    w->clean = w->before; /* the next estimate overwrites the older one */
    w->before = last;
    w->h_before = h;
    return 0;
}

static int step(struct walk *w, double from, double to, struct err *err)
{
    int rc = w->p->denoise(w->p->ctx, w->x, from, w->clean, err);
    if (rc < 0)
        return rc;
    switch (w->p->kind) {
    case SAMPLER_EULER: return euler_step(w, from, to);
    case SAMPLER_HEUN: return heun_step(w, from, to, err);
    case SAMPLER_RES: return res_step(w, from, to);
    }
    BUG_ON(true);
}

int sampler_run_part(const struct sampler *p, int64_t first, int64_t end, double *x, int64_t n,
                     double *scratch, struct err *err)
{
    struct walk w = {.p = p, .x = x, .clean = scratch, .before = scratch + n, .n = n};
    int rc;
    for (int64_t i = first; i < end; i++)
        if ((rc = step(&w, sampler_level(p, i), sampler_level(p, i + 1), err)) < 0)
            return rc;
    return 0;
}

int sampler_run(const struct sampler *p, double *x, int64_t n, double *scratch, struct err *err)
{
    return sampler_run_part(p, 0, p->steps, x, n, scratch, err);
}
