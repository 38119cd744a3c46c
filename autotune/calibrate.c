/* The fit looks for the logarithms theta_k of the constants, each of which has a prior N(ln
 * prior_k, sd_k). A row gives one or two of these pieces of evidence:
 *
 *     time     ln measured - ln predicted(theta), with spread TIME_SPREAD, and Huber weights beyond
 *              two spreads
 *     peak     the same for bytes, with spread PEAK_SPREAD
 *     fitted   whether the row fitted or ran out of memory: a probit of z = ln(limit / predicted) /
 *              memory_sd, weighted by its Fisher information. A share OTHERWISE of rows fits, or
 *              does not, for reasons other than bytes
 *
 * Gauss-Newton: (J' W J + diag(1/sd^2)) delta = J' W r - (theta - prior)/sd^2, with derivatives by
 * differences. A step changes no theta_k by more than MOST_STEP. Values stay within a constant's
 * bounds. The inverse of the matrix gives the interval that holds with probability 0.9; what lies
 * beyond a bound is cut off. time_sd of a stack is the spread of the residuals, and its prior
 * counts like SPREAD_ROWS rows. Where a row leaves open its micro-batch, virtual stages or
 * recomputation, each round chooses them anew.
 */
#include "autotune/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/predict.h"

#define TIME_SPREAD 0.06
#define PEAK_SPREAD 0.05
#define MOST_STEP 0.4
#define SPREAD_ROWS 60.0 /* the prior counts as this many: rows outside the fit err more */
#define GOOD_WEIGHT 3.0 /* rejecting a layout that fits costs more than a trial that does not fit */
#define OTHERWISE 0.03 /* share of rows that fit, or not, for reasons other than bytes */
#define INTERVAL 1.645 /* 90 % of a normal lie within this many sds of its mean */
enum { ROUNDS = 14 };

struct fit_row {
    const struct table_case *c;
    struct work_weights weights;
    struct layout layout;
    int64_t item[CONSTANTS]; /* index of each constant in f->c->items */
};
struct fit {
    struct constants *c;
    struct constant before[CONSTANTS_MAX]; /* the first n_before constants, as they were */
    int64_t n_before;
    bool named[CONSTANTS_MAX]; /* constants on which a row depends */
    struct fit_row *rows;
    size_t n;
    struct predict_room *room;
    double *matrix, *gradient, *step; /* [k][k], [k], [k]; k = c->n */
    const struct told_rows *told; /* borrowed; NULL: no progress is reported */
};

static void values_of(const struct fit *f, const struct fit_row *r, double v[CONSTANTS])
{
    for (int i = 0; i < CONSTANTS; i++)
        v[i] = f->c->items[r->item[i]].value;
}

static int predict_row(struct fit *f, const struct fit_row *r, const double v[CONSTANTS],
                       struct predicted *out)
{
    f->room->weights = r->weights;
    return predict_layout(r->c, &r->layout, v, false, f->room, out, NULL);
}

/* ---- what a row tells ---- */

static bool tells_time(const struct table_case *c) { return c->measured_s > 0; }
static bool says_layout(const struct table_case *c)
{ return !c->any_mbs && !c->any_vpp && !c->any_recompute; }
static bool tells_peak(const struct table_case *c)
{ return c->peak_bytes > 0 && c->status == TABLE_OK && says_layout(c); }
static bool tells_fit(const struct table_case *c)
{ return !(c->peak_bytes > 0) && c->status != TABLE_FAILED && says_layout(c); }

bool calibrate_learns(const struct table_case *c)
{ return !c->skipped && (tells_time(c) || tells_peak(c) || tells_fit(c)); }

/* Returns the predicted bytes that correspond to the row's peak. A peak of allocated tensors
 * includes neither the process nor fragmentation. */
static double comparable_bytes(const struct table_case *c, const struct predicted *p)
{
    const double *b = p->footprint.bytes;
    return c->allocated ? p->bytes - b[HELD_PROCESS] - b[HELD_FRAGMENTATION] : p->bytes;
}

static double fit_z(const struct table_case *c, const struct predicted *p, double sd)
{
    return log((double)device_usable_bytes(&c->cluster.device) / p->bytes) / sd;
}

/* Holds the three predictions for a row that the fit compares with what the row says: logarithms of
 * time and bytes, and z. */
struct told { double time, bytes, z; };

static struct told told_of(struct fit *f, const struct fit_row *r, const double v[CONSTANTS])
{
    struct predicted p = {0};
    BUG_ON(predict_row(f, r, v, &p) < 0);
    return (struct told){log(p.seconds), log(comparable_bytes(r->c, &p)),
                         fit_z(r->c, &p, v[CONSTANT_MEMORY_SD])};
}

/* ---- one round ---- */

/* Adds one equation to the normal equations: J holds the derivatives by the row's constants, and
 * `pull` is the weighted residual. */
static void equation_add(struct fit *f, const struct fit_row *r, const double J[CONSTANTS],
                         double pull, double weight)
{
    int64_t k = f->c->n;
    for (int a = 0; a < CONSTANTS; a++) {
        if (J[a] == 0)
            continue;
        f->gradient[r->item[a]] += J[a] * pull;
        for (int b = 0; b < CONSTANTS; b++)
            f->matrix[r->item[a] * k + r->item[b]] += weight * J[a] * J[b];
    }
}

static void residual_add(struct fit *f, const struct fit_row *r, const double J[CONSTANTS],
                         double residual, double spread)
{
    double sds = fabs(residual) / spread, weight = (sds <= 2 ? 1 : 2 / sds) / (spread * spread);
    equation_add(f, r, J, weight * residual, weight);
}

/* Adds the evidence that the row fitted, or ran out of memory: the slope of the log-likelihood and
 * its information. */
static void probit_add(struct fit *f, const struct fit_row *r, const double J[CONSTANTS], double z)
{
    double y = r->c->status == TABLE_OOM ? -1 : 1, at = fmax(-6, y * z);
    double sure = 1 - 2 * OTHERWISE, density = sure * exp(-at * at / 2) / sqrt(2 * M_PI);
    double told = OTHERWISE + sure * 0.5 * erfc(-at / sqrt(2));
    double weight = y > 0 ? GOOD_WEIGHT : 1;
    equation_add(f, r, J, weight * y * density / told,
                 weight * density * density / (told * (1 - told)));
}

static void row_add(struct fit *f, const struct fit_row *r)
{
    double v[CONSTANTS], Jt[CONSTANTS], Jb[CONSTANTS], Jz[CONSTANTS];
    const double h = 1e-3;
    values_of(f, r, v);
    struct told at = told_of(f, r, v);
    for (int i = 0; i < CONSTANTS; i++) {
        double was = v[i];
        v[i] = was * exp(h);
        struct told up = told_of(f, r, v);
        v[i] = was;
        Jt[i] = (up.time - at.time) / h, Jb[i] = (up.bytes - at.bytes) / h;
        Jz[i] = (up.z - at.z) / h;
    }
    if (tells_time(r->c))
        residual_add(f, r, Jt, log(r->c->measured_s) - at.time, TIME_SPREAD);
    if (tells_peak(r->c))
        residual_add(f, r, Jb, log(r->c->peak_bytes) - at.bytes, PEAK_SPREAD);
    if (tells_fit(r->c))
        probit_add(f, r, Jz, at.z);
}

static void priors_add(struct fit *f)
{
    int64_t k = f->c->n;
    memset(f->matrix, 0, (size_t)(k * k) * sizeof *f->matrix);
    for (int64_t i = 0; i < k; i++) {
        const struct constant *c = &f->c->items[i];
        double sd = constant_table[c->id].sd;
        f->matrix[i * k + i] = 1 / (sd * sd);
        f->gradient[i] = f->named[i] ? -log(c->value / c->prior) / (sd * sd) : 0;
    }
}

/* Factors the matrix in place into its lower Cholesky factor. It is positive definite: the priors
 * are on its diagonal. */
static void factor(double *a, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = a[i * k + j];
            for (int64_t m = 0; m < j; m++)
                sum -= a[i * k + m] * a[j * k + m];
            a[i * k + j] = i == j ? sqrt(sum) : sum / a[j * k + j];
        }
}

static void solve(const double *a, int64_t k, double *x)
{
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < i; j++)
            x[i] -= a[i * k + j] * x[j];
        x[i] /= a[i * k + i];
    }
    for (int64_t i = k - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < k; j++)
            x[i] -= a[j * k + i] * x[j];
        x[i] /= a[i * k + i];
    }
}

static void step_take(struct fit *f)
{
    int64_t k = f->c->n;
    memcpy(f->step, f->gradient, (size_t)k * sizeof *f->step);
    solve(f->matrix, k, f->step);
    for (int64_t i = 0; i < k; i++) {
        struct constant *c = &f->c->items[i];
        const struct constant_info *info = &constant_table[c->id];
        double by = fmin(fmax(f->step[i], -MOST_STEP), MOST_STEP);
        c->value = fmin(fmax(c->value * exp(by), info->lo), info->hi);
    }
}

/* Chooses micro-batch, virtual stages and recomputation anew for rows that leave them open. */
static int layouts_choose(struct fit *f, struct err *err)
{
    for (size_t i = 0; i < f->n; i++) {
        struct fit_row *r = &f->rows[i];
        double v[CONSTANTS];
        struct predicted p;
        values_of(f, r, v);
        f->room->weights = r->weights;
        int rc = predict_case(r->c, v, false, f->room, &p, err);
        if (rc < 0)
            return rc;
        r->layout = p.layout;
    }
    return 0;
}

static int rounds(struct fit *f, struct err *err)
{
    int64_t done = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int rc = layouts_choose(f, err);
        if (rc < 0)
            return rc;
        priors_add(f);
        for (size_t k = 0; k < f->n; k++) {
            row_add(f, &f->rows[k]);
            table_told(f->told, ++done, ROUNDS * (int64_t)f->n);
        }
        factor(f->matrix, f->c->n);
        step_take(f);
    }
    return 0;
}

/* ---- after the fit ---- */

static bool is_told(const struct fit *f, int64_t i)
{
    const struct constant *k = &f->c->items[i];
    return f->named[i] && log(k->hi / k->lo) < 0.98 * 2 * INTERVAL * constant_table[k->id].sd;
}

/* Returns a constant whose interval ends at the constant's bounds. */
static struct constant bounded(const struct constant *k)
{
    struct constant out = *k;
    out.lo = fmax(k->lo, constant_table[k->id].lo);
    out.hi = fmin(k->hi, constant_table[k->id].hi);
    return out;
}

/* Puts back the constants about which the rows say nothing: their interval is still that of the
 * prior. One that was not there before is dropped, since a prior holds without an entry too. The
 * others get their bounds. Returns how many were fitted. */
static int64_t untold_restore(struct fit *f)
{
    int64_t n = 0, fitted = 0;
    for (int64_t i = 0; i < f->c->n; i++) {
        bool told = is_told(f, i);
        fitted += told;
        if (told || i < f->n_before)
            f->c->items[n++] = told ? bounded(&f->c->items[i]) : f->before[i];
    }
    f->c->n = n;
    return fitted;
}

/* Sets the intervals from the factored matrix of the last round. */
static void intervals_set(struct fit *f, const char *source)
{
    int64_t k = f->c->n;
    for (int64_t i = 0; i < k; i++) {
        struct constant *c = &f->c->items[i];
        memset(f->step, 0, (size_t)k * sizeof *f->step);
        f->step[i] = 1;
        solve(f->matrix, k, f->step);
        double wide = INTERVAL * sqrt(f->step[i]);
        c->lo = c->value * exp(-wide);
        c->hi = c->value * exp(wide);
        snprintf(c->source, sizeof c->source, "%.*s", LIMIT_NAME_BYTES - 1, source);
    }
}

/* Sets a stack's time_sd to the spread of the residuals, computed from their absolute values, so
 * that outliers change it little. */
static void spread_set(struct fit *f, int64_t k, struct calibrate_report *out, double *squares)
{
    struct constant *c = &f->c->items[k];
    double sum = 0, rows = 0;
    for (size_t i = 0; i < f->n; i++) {
        const struct fit_row *r = &f->rows[i];
        double v[CONSTANTS];
        if (r->item[CONSTANT_TIME_SD] != k || !tells_time(r->c))
            continue;
        values_of(f, r, v);
        double off = log(r->c->measured_s) - told_of(f, r, v).time;
        sum += fabs(off), rows += 1;
        *squares += off * off;
        out->timed++;
    }
    if (rows == 0)
        return;
    double all = rows + SPREAD_ROWS, wide = INTERVAL / sqrt(2 * all);
    double sd = (sum * sqrt(M_PI / 2) + SPREAD_ROWS * c->prior) / all;
    c->value = fmin(fmax(sd, constant_table[c->id].lo), constant_table[c->id].hi);
    c->lo = c->value * exp(-wide), c->hi = c->value * exp(wide);
}

static void spreads_set(struct fit *f, struct calibrate_report *out)
{
    double squares = 0, squares_bytes = 0;
    int64_t peaks = 0;
    for (int64_t k = 0; k < f->c->n; k++)
        if (f->c->items[k].id == CONSTANT_TIME_SD)
            spread_set(f, k, out, &squares);
    for (size_t i = 0; i < f->n; i++) {
        const struct fit_row *r = &f->rows[i];
        double v[CONSTANTS];
        if (!tells_peak(r->c))
            continue;
        values_of(f, r, v);
        double off = log(r->c->peak_bytes) - told_of(f, r, v).bytes;
        squares_bytes += off * off;
        peaks++;
    }
    out->time_rms = out->timed ? sqrt(squares / (double)out->timed) : NAN;
    out->memory_rms = peaks ? sqrt(squares_bytes / (double)peaks) : NAN;
}

/* ---- set-up ---- */

static int row_open(struct fit *f, const struct table_case *c, struct err *err)
{
    struct fit_row *r = &f->rows[f->n];
    int rc = work_weights(&c->model, &r->weights, err);
    if (rc < 0)
        return rc;
    r->c = c;
    r->layout = c->layout;
    for (int i = 0; i < CONSTANTS; i++) {
        const struct constant *k =
            constants_at(f->c, (enum constant_id)i, &c->cluster.device, &c->stack);
        if (!k)
            return err_set(err, ERR_LIMIT, "more than %d constants: give fewer tables at a time",
                           CONSTANTS_MAX);
        r->item[i] = k - f->c->items;
        f->named[r->item[i]] = true;
    }
    f->n++;
    return 0;
}

static int fit_open(struct fit *f, const struct table *tables, size_t n, struct err *err)
{
    size_t rows = 1;
    int rc;
    for (size_t i = 0; i < n; i++)
        rows += tables[i].n;
    f->n_before = f->c->n;
    memcpy(f->before, f->c->items, (size_t)f->c->n * sizeof *f->before);
    f->rows = calloc(rows, sizeof *f->rows);
    f->room = calloc(1, sizeof *f->room);
    f->matrix = calloc((size_t)CONSTANTS_MAX * CONSTANTS_MAX, sizeof *f->matrix);
    f->gradient = calloc(CONSTANTS_MAX, sizeof *f->gradient);
    f->step = calloc(CONSTANTS_MAX, sizeof *f->step);
    if (!f->rows || !f->room || !f->matrix || !f->gradient || !f->step)
        return err_set(err, ERR_NOMEM, "out of memory for %zu rows", rows);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < tables[i].n; k++)
            if (!tables[i].cases[k].skipped &&
                (rc = row_open(f, &tables[i].cases[k], err)) < 0)
                return rc;
    return 0;
}

static bool learns_any(const struct fit *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (calibrate_learns(f->rows[i].c))
            return true;
    return false;
}

static void fit_release(struct fit *f)
{
    free(f->rows);
    free(f->room);
    free(f->matrix);
    free(f->gradient);
    free(f->step);
    free(f);
}

int calibrate_tables(const struct table *tables, size_t n, const char *source,
                     const struct told_rows *told, struct constants *c,
                     struct calibrate_report *out, struct err *err)
{
    struct fit *f = calloc(1, sizeof *f);
    struct calibrate_report report = {0};
    int rc;
    if (!f)
        return err_set(err, ERR_NOMEM, "out of memory for a fit");
    f->c = c, f->told = told;
    if ((rc = fit_open(f, tables, n, err)) < 0)
        goto out;
    if (!learns_any(f)) {
        rc = err_set(err, ERR_INPUT,
                     "%s: there is no row to learn from: give a table with rows that 'reel score' "
                     "does not skip, and that ran or ran out of memory", source);
        goto out;
    }
    if ((rc = rounds(f, err)) < 0)
        goto out;
    intervals_set(f, source);
    spreads_set(f, &report);
    for (size_t i = 0; i < f->n; i++)
        report.fitted_memory += tells_peak(f->rows[i].c) || tells_fit(f->rows[i].c);
    report.constants = untold_restore(f);
    *out = report;
out:
    fit_release(f);
    return rc;
}
