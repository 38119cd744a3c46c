#include "tests/gpu/cases.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"

/* One element may be off by ONE_ELEMENT times the allowed L2 distance, relative to the largest
 * element. A result in bf16 may be BESIDE_CPU times as far from f64 as that of the CPU's table. */
static const double ONE_ELEMENT = 4, BESIDE_CPU = 1.25;
/* Replaces BESIDE_CPU where a table sums terms that it rounded to bf16: it rounds twice, not once,
 * and the errors differ by chance. */
static const double NARROW_BESIDE_CPU = 2;

static double l2_allowed(enum dtype t, double roundings)
{
    if (t == DTYPE_F64)
        return fmax(1e-12, roundings * 0x1p-53);
    return fmax(t == DTYPE_F32 ? 1e-5 : 4e-3, roundings * 0x1p-24);
}

static bool is_same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b); }

/* Puts the case, the output and the element before the error's sentence. Returns its code. */
static int refuse(const struct case_result *r, int k, int64_t at, struct err *err)
{
    const struct case_output *x = &r->out[k];
    return err_context(err, "%s, %s%s: output '%s' part %d (%ld, %ld) of [%ld, %ld]", r->c->op,
                       r->c->name, r->c->views ? ", views" : "", x->name, x->part,
                       (long)(at / (x->cols ? x->cols : 1)), (long)(at % (x->cols ? x->cols : 1)),
                       (long)x->rows, (long)x->cols);
}

static void shapes_check(const struct case_result *a, const struct case_result *b)
{
    BUG_ON(a->n != b->n);
    for (int k = 0; k < a->n; k++)
        BUG_ON(a->out[k].rows != b->out[k].rows || a->out[k].cols != b->out[k].cols);
}

int case_same(const struct case_result *got, const struct case_result *want, struct err *err)
{
    shapes_check(got, want);
    for (int k = 0; k < got->n; k++)
        for (int64_t i = 0; i < got->out[k].rows * got->out[k].cols; i++)
            if (!is_same(got->out[k].x[i], want->out[k].x[i])) {
                err_set(err, ERR_NO, "is %.17g, and should have the bits of %.17g",
                        got->out[k].x[i], want->out[k].x[i]);
                return refuse(got, k, i, err);
            }
    return 0;
}

struct case_distance case_distance(const struct case_output *got, const struct case_output *want)
{
    double apart = 0, size = 0, most_apart = 0, most = 0;
    for (int64_t i = 0; i < want->rows * want->cols; i++) {
        double g = got->x[i], w = want->x[i];
        if (!isfinite(w) && is_same(g, w))
            continue;
        if (!isfinite(w) || !isfinite(g))
            return (struct case_distance){INFINITY, INFINITY};
        apart += (g - w) * (g - w), size += w * w;
        most_apart = fmax(most_apart, fabs(g - w)), most = fmax(most, fabs(w));
    }
    if (apart == 0) /* also if both are 0, where a ratio would be NaN */
        return (struct case_distance){0, 0};
    return (struct case_distance){sqrt(apart / size), most_apart / most};
}

/* Returns the element with the largest error, or the first one whose error is NaN. */
static int64_t worst_of(const struct case_output *got, const struct case_output *want)
{
    int64_t worst = 0;
    double most = -1;
    for (int64_t i = 0; i < want->rows * want->cols; i++) {
        double e = is_same(got->x[i], want->x[i]) ? 0 : fabs(got->x[i] - want->x[i]);
        if (e != e)
            return i;
        if (e > most)
            worst = i, most = e;
    }
    return worst;
}

static double stored_as(const struct case_output *x, double v)
{
    if (x->stored == DTYPE_F64)
        return v;
    if (x->stored == DTYPE_F32)
        return (double)(float)v;
    return (double)bf16_value(x->by_f32 ? bf16_round((float)v) : bf16_round_double(v));
}

/* Checks an output that has one right answer: f64's, rounded to the type in which it is stored. */
static int exact_check(const struct case_result *got, int k, const struct case_output *want,
                       struct err *err)
{
    const struct case_output *x = &got->out[k];
    for (int64_t i = 0; i < x->rows * x->cols; i++)
        if (!is_same(x->x[i], stored_as(x, want->x[i]))) {
            err_set(err, ERR_NO, "is %.17g, and must be %.17g", x->x[i],
                    stored_as(x, want->x[i]));
            return refuse(got, k, i, err);
        }
    return 0;
}

/* Returns the relative L2 distance between an output and the same output rounded to bf16. */
static double rounding_of(const struct case_output *want)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < want->rows * want->cols; i++) {
        double w = want->x[i], off = (double)bf16_value(bf16_round_double(w)) - w;
        if (isfinite(w))
            apart += off * off, size += w * w;
    }
    return size > 0 ? sqrt(apart / size) : 0;
}

/* Returns the error that is allowed in view of the error of the CPU's table for bf16. Where the CPU
 * stores f32, its error is too small for a table that rounds terms to bf16; then the error of
 * rounding to bf16 takes its place. */
static double beside_cpu(const struct case_output *cpu, const struct case_output *want, bool narrow)
{
    if (!narrow)
        return BESIDE_CPU * case_distance(cpu, want).l2;
    return NARROW_BESIDE_CPU *
           (cpu->stored == DTYPE_BF16 ? case_distance(cpu, want).l2 : rounding_of(want));
}

static int near_check(const struct case_result *got, int k, const struct case_output *want,
                      const struct case_output *cpu, struct err *err)
{
    const struct case_output *x = &got->out[k];
    bool narrow = got->narrow && x->narrow_inside;
    enum dtype judged = narrow ? DTYPE_BF16 : x->judged;
    double most = l2_allowed(judged, x->roundings), allowed = most;
    struct case_distance d = case_distance(x, want);
    if (cpu && judged == DTYPE_BF16)
        allowed = fmin(most, fmax(beside_cpu(cpu, want, narrow),
                                  l2_allowed(DTYPE_F32, x->roundings)));
    if (d.l2 <= allowed && d.largest <= ONE_ELEMENT * most)
        return 0;
    int64_t at = worst_of(x, want);
    err_set(err, ERR_NO, "is %.9g, f64 %.9g; all are %.3g apart in L2, of which %.3g is allowed, "
            "and one %.3g of the largest, of which %.3g is", x->x[at], want->x[at], d.l2, allowed,
            d.largest, ONE_ELEMENT * most);
    return refuse(got, k, at, err);
}

/* Checks that stochastically rounded numbers equal those of f64, except for a few elements. */
static int random_check(const struct case_result *got, int k, const struct case_output *want,
                        struct err *err)
{
    const struct case_output *x = &got->out[k];
    int64_t n = x->rows * x->cols, others = 0, at = 0;
    for (int64_t i = 0; i < n; i++)
        if (!is_same(x->x[i], want->x[i]))
            others++, at = i;
    if (others <= 1 + n / 1000)
        return 0;
    err_set(err, ERR_NO, "is %.9g, f64 %.9g: %ld elements are not rounded by the same draws",
            x->x[at], want->x[at], (long)others);
    return refuse(got, k, at, err);
}

int case_near(const struct case_result *got, const struct case_result *want,
              const struct case_result *cpu, struct err *err)
{
    int rc;
    shapes_check(got, want);
    for (int k = 0; k < got->n; k++) {
        const struct case_output *beside = cpu ? &cpu->out[k] : NULL;
        if ((rc = got->out[k].exact ? exact_check(got, k, &want->out[k], err)
                                    : near_check(got, k, &want->out[k], beside, err)) < 0)
            return rc;
        if (got->out[k].at_random && (rc = random_check(got, k, &want->out[k], err)) < 0)
            return rc;
    }
    return 0;
}
