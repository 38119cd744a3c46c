/* Let y_i be ln measured_i, and f_i(theta) the logarithm of the step's time that scales e^theta
 * predict. The fit is a ridge regression with theta_k ~ N(0, sd_k): eight Gauss-Newton steps of
 *
 *     (J' W J / noise^2 + diag(1/sd^2)) delta = J' W r / noise^2 - theta / sd^2
 *
 * where W are Huber weights at two sd of noise. fit_begin may set another mean and covariance for
 * the prior. The measured time of a class is a measurement of its theta alone: r_t = ln(measured /
 * priced), with standard deviation CLASS_SD, because the account of a layout's work may be wrong.
 * The inverse of the matrix is the covariance from which prediction intervals come.
 *
 * Scales turn a bill (price.h) into the time of a step by the rules below. s is the scale of the
 * term, and fix, link, net, hide and all are the scales FIT_FIXED, FIT_LINK, FIT_NET, FIT_HIDE and
 * FIT_ALL. C is the scaled seconds of compute divided by the unscaled ones.
 *
 *     compute      s term
 *     a message    s · fix · fixed
 *                  + max(m (alone - fixed), m (term - fixed + hidden) - C hide room)
 *                  where it has compute to hide under, else s · fix · fixed + m (term - fixed).
 *                  m = s · link inside a node and s · net where it leaves one, mixed by `far`. The
 *                  room is the seconds that were hidden if the message was hidden in part, or else
 *                  all seconds under which it could hide
 *     recompute    s term, times the growth of compute
 *     bubble       s term, times the growth of what a stage does for its micro-batches
 *     spread       s term, times the growth of all terms before it in enum price_term
 *     all others   s term
 *     step         all · (the sum)
 *
 * Near the point from which a message is not hidden entirely, a small error decides which of the
 * two derivatives is right. So J passes smoothly from one to the other there, over EDGE times the
 * message's seconds. The predicted times do not: they have the kink of max().
 */
#include "autotune/fit.h"

#include <math.h>
#include <string.h>

/* Says by how much a scale may be wrong before any trial: the standard deviation of ln(scale).
 * For a term whose price rests on constants, it is about what the uncertainties of these constants
 * (profiles/constants.h) give together. */
static const double prior_sd[FIT_SCALES] = {
    [PRICE_GEMM] = 0.15,      [PRICE_ATTENTION] = 0.30,  [PRICE_ELEMENTWISE] = 0.40,
    [PRICE_INPUTS] = 0.30,    [PRICE_RECOMPUTE] = 0.10,  [PRICE_LAUNCH] = 0.30,
    [PRICE_TP] = 0.40,        [PRICE_CP] = 0.25,         [PRICE_PP] = 0.25,
    [PRICE_BUBBLE] = 0.10,    [PRICE_GATHER] = 0.20,     [PRICE_REDUCE] = 0.20,
    [PRICE_OPTIMIZER] = 0.30, [PRICE_CONTENTION] = 0.70, [PRICE_SPREAD] = 0.80,
    [PRICE_OVERHEAD] = 0.90,  [FIT_ALL] = 0.25,          [FIT_LINK] = 0.30,
    [FIT_NET] = 0.40,         [FIT_FIXED] = 0.80,        [FIT_HIDE] = 0.30};
#define EDGE 0.1

/* ---- a step as scales make it ---- */

/* These are sets of terms, with one bit for each term. */
#define TERM(id) (1u << PRICE_##id)
#define COMPUTES (TERM(GEMM) | TERM(ATTENTION) | TERM(ELEMENTWISE) | TERM(INPUTS) | TERM(LAUNCH))
#define MESSAGES (TERM(TP) | TERM(CP) | TERM(PP) | TERM(GATHER) | TERM(REDUCE))
#define STAGED (COMPUTES | TERM(TP) | TERM(CP) | TERM(PP) | TERM(RECOMPUTE))
#define SPREADS (TERM(SPREAD) - 1)

struct step {
    double x[PRICE_TERMS];        /* seconds of each term */
    double slope[PRICE_TERMS];    /* derivative of x by the logarithm of the term's scale */
    double room[PRICE_TERMS];     /* seconds by which a message shortens when C grows by 1 */
    /* The derivatives of a message's x by the logarithms of FIT_LINK, FIT_NET and FIT_FIXED. */
    double link[PRICE_TERMS], net[PRICE_TERMS], fixed[PRICE_TERMS];
    double computes, pace;        /* unscaled seconds of compute; C */
    double again, bubble, spread; /* seconds of each for a second of the terms it follows */
    double sum;
};

static double sum_of(const double x[PRICE_TERMS], unsigned terms)
{
    double sum = 0;
    for (int t = 0; t < PRICE_TERMS; t++)
        sum += terms >> t & 1 ? x[t] : 0;
    return sum;
}

static double over(double a, double b) { return b > 0 ? a / b : 0; }

static void message_scale(const struct fit *f, const struct price_bill *b, int t, struct step *out)
{
    double far = b->far[t] * f->scale[FIT_NET],
           by = (1 - b->far[t]) * f->scale[FIT_LINK] + far, m = f->scale[t] * by;
    double fixed = f->scale[t] * f->scale[FIT_FIXED] * b->fixed[t],
           sent = m * fmax(0, b->term[t] - b->fixed[t]),
           whole = sent + m * b->hidden[t], slope = sent;
    if (b->under[t] > 0 && whole > 0) {
        bool seen = b->term[t] - b->alone[t] > 1e-9 * (b->term[t] + b->hidden[t]);
        double room = f->scale[FIT_HIDE] * (seen ? b->hidden[t] : b->under[t]),
               least = m * fmax(0, b->alone[t] - b->fixed[t]), rest = whole - room * out->pace,
               share = 1 / (1 + exp((least - rest) / (EDGE * whole)));
        sent = fmax(least, rest);
        slope = share * whole + (1 - share) * least;
        out->room[t] = share * room;
    }
    out->x[t] = fixed + sent;
    out->slope[t] = fixed + slope;
    out->net[t] = slope * far / by;
    out->link[t] = slope - out->net[t];
    out->fixed[t] = fixed;
}

/* Lengthens a term as much as the terms that it follows grew by their scales. Returns its seconds
 * for each second of theirs. */
static double follow(const struct price_bill *b, int t, unsigned followed, struct step *out)
{
    double before = sum_of(b->term, followed), each = over(out->x[t], before);
    if (before > 0)
        out->x[t] = each * sum_of(out->x, followed);
    return each;
}

static void step_scale(const struct fit *f, const struct price_bill *b, struct step *out)
{
    memset(out, 0, sizeof *out);
    for (int t = 0; t < PRICE_TERMS; t++)
        out->x[t] = f->scale[t] * b->term[t];
    out->computes = sum_of(b->term, COMPUTES);
    out->pace = out->computes > 0 ? sum_of(out->x, COMPUTES) / out->computes : 1;
    for (int t = 0; t < PRICE_TERMS; t++)
        if (MESSAGES >> t & 1)
            message_scale(f, b, t, out);
    out->again = follow(b, PRICE_RECOMPUTE, COMPUTES, out);
    out->bubble = follow(b, PRICE_BUBBLE, STAGED, out);
    out->spread = follow(b, PRICE_SPREAD, SPREADS, out);
    out->sum = sum_of(out->x, ~0u);
}

/* Writes the derivatives of the logarithm of the step's time by the logarithms of the scales. */
static void slopes_of(const struct step *s, double J[FIT_SCALES])
{
    double weight[PRICE_TERMS], hides = 0; /* what a second of a term adds to the step */
    memset(J, 0, FIT_SCALES * sizeof *J);
    for (int t = 0; t < PRICE_TERMS; t++) {
        weight[t] = SPREADS >> t & 1 ? 1 + s->spread : 1;
        weight[t] *= 1 + (STAGED >> t & 1 ? s->bubble : 0);
        if (COMPUTES >> t & 1)
            weight[t] += s->again * (1 + s->bubble) * (1 + s->spread);
        hides -= weight[t] * s->room[t];
    }
    for (int t = 0; t < PRICE_TERMS; t++) {
        bool message = MESSAGES >> t & 1;
        J[t] = weight[t] * (message ? s->slope[t] : s->x[t]);
        J[t] += COMPUTES >> t & 1 ? over(hides, s->computes) * s->x[t] : 0;
        J[t] = over(J[t], s->sum);
        J[FIT_NET] += over(weight[t] * s->net[t], s->sum);
        J[FIT_LINK] += over(weight[t] * s->link[t], s->sum);
        J[FIT_FIXED] += over(weight[t] * s->fixed[t], s->sum);
    }
    J[FIT_HIDE] = over(hides * s->pace, s->sum);
    J[FIT_ALL] = 1;
}

double fit_slopes(const struct fit *f, const struct price_bill *bill, double J[FIT_SCALES])
{
    struct step s;
    step_scale(f, bill, &s);
    slopes_of(&s, J);
    return f->scale[FIT_ALL] * s.sum;
}

double fit_step(const struct fit *f, const struct price_bill *bill, double scaled[PRICE_TERMS],
                double *log_sd)
{
    struct step s;
    double J[FIT_SCALES], var = f->noise * f->noise;
    step_scale(f, bill, &s);
    for (int t = 0; scaled && t < PRICE_TERMS; t++)
        scaled[t] = f->scale[FIT_ALL] * s.x[t];
    if (!log_sd)
        return f->scale[FIT_ALL] * s.sum;
    slopes_of(&s, J);
    for (int a = 0; a < FIT_SCALES; a++)
        for (int b = 0; b < FIT_SCALES; b++)
            var += J[a] * f->cov[a][b] * J[b];
    *log_sd = sqrt(var);
    return f->scale[FIT_ALL] * s.sum;
}

/* ---- learning ---- */

void fit_init(struct fit *f)
{
    *f = (struct fit){.noise = 0.03};
    for (int k = 0; k < FIT_SCALES; k++) {
        f->scale[k] = 1;
        f->cov[k][k] = prior_sd[k] * prior_sd[k];
        f->begin_info[k][k] = 1 / f->cov[k][k];
    }
}

/* Inverts a symmetric positive definite matrix by Gauss-Jordan without pivoting, which is safe for
 * such a matrix. */
static void invert(double a[FIT_SCALES][FIT_SCALES], double out[FIT_SCALES][FIT_SCALES])
{
    memset(out, 0, sizeof(double) * FIT_SCALES * FIT_SCALES);
    for (int i = 0; i < FIT_SCALES; i++)
        out[i][i] = 1;
    for (int c = 0; c < FIT_SCALES; c++) {
        double pivot = a[c][c];
        for (int k = 0; k < FIT_SCALES; k++)
            a[c][k] /= pivot, out[c][k] /= pivot;
        for (int r = 0; r < FIT_SCALES; r++) {
            double by = a[r][c];
            for (int k = 0; r != c && k < FIT_SCALES; k++)
                a[r][k] -= by * a[c][k], out[r][k] -= by * out[c][k];
        }
    }
}

/* Between models, and between days, a scale differs by this share of its prior's standard
 * deviation. */
#define OTHER_MODEL 0.3

void fit_begin(struct fit *f, const struct fit *earlier)
{
    double cov[FIT_SCALES][FIT_SCALES];
    if (earlier->n == 0)
        return;
    f->earlier = earlier->n;
    memcpy(cov, earlier->cov, sizeof cov);
    for (int k = 0; k < FIT_SCALES; k++)
        cov[k][k] += OTHER_MODEL * OTHER_MODEL * prior_sd[k] * prior_sd[k];
    memcpy(f->cov, cov, sizeof cov);
    memcpy(f->begin, earlier->log_scale, sizeof f->begin);
    memcpy(f->log_scale, earlier->log_scale, sizeof f->log_scale);
    memcpy(f->scale, earlier->scale, sizeof f->scale);
    invert(cov, f->begin_info);
}

#define CLASS_SD 0.1

void fit_classes(struct fit *f, const double priced_s[PRICE_TERMS],
                 const double measured_s[PRICE_TERMS])
{
    for (int t = 0; t < PRICE_TERMS; t++)
        if (priced_s[t] > 0 && measured_s[t] > 0 && isfinite(measured_s[t])) {
            f->class_log[t] += log(measured_s[t] / priced_s[t]);
            f->class_n[t]++;
        }
}

static void gauss_newton(struct fit *f)
{
    double A[FIT_SCALES][FIT_SCALES], g[FIT_SCALES], J[FIT_SCALES];
    memcpy(A, f->begin_info, sizeof A);
    for (int a = 0; a < FIT_SCALES; a++) {
        g[a] = 0;
        for (int b = 0; b < FIT_SCALES; b++)
            g[a] += A[a][b] * (f->begin[b] - f->log_scale[b]);
    }
    for (int t = 0; t < PRICE_TERMS; t++) {
        A[t][t] += f->class_n[t] / (CLASS_SD * CLASS_SD);
        g[t] += (f->class_log[t] - f->class_n[t] * f->log_scale[t]) / (CLASS_SD * CLASS_SD);
    }
    for (int64_t i = 0; i < f->n; i++) {
        double residual = f->log_measured[i] - log(fit_slopes(f, &f->bills[i], J));
        double sds = fabs(residual) / f->noise, weight = sds <= 2 ? 1 : 2 / sds;
        weight /= f->noise * f->noise;
        for (int a = 0; a < FIT_SCALES; a++) {
            g[a] += weight * J[a] * residual;
            for (int b = 0; b < FIT_SCALES; b++)
                A[a][b] += weight * J[a] * J[b];
        }
    }
    invert(A, f->cov);
    for (int a = 0; a < FIT_SCALES; a++)
        for (int b = 0; b < FIT_SCALES; b++)
            f->log_scale[a] += f->cov[a][b] * g[b];
    for (int a = 0; a < FIT_SCALES; a++)
        f->scale[a] = exp(f->log_scale[a]);
}

static void solve(struct fit *f)
{
    for (int i = 0; i < 8; i++)
        gauss_newton(f);
}

void fit_add(struct fit *f, const struct price_bill *bill, double measured_s)
{
    double priced_s = fit_step(f, bill, NULL, NULL);
    if (!(measured_s > 0) || !isfinite(measured_s) || !(priced_s > 0) || !isfinite(priced_s) ||
        f->n == FIT_MAX)
        return;
    f->bills[f->n] = *bill;
    f->log_measured[f->n++] = log(measured_s);
    solve(f);
}

void fit_without(const struct fit *f, int64_t left_out, struct fit *out)
{
    int64_t last = f->n - 1;
    *out = *f;
    out->bills[left_out] = f->bills[last];
    out->log_measured[left_out] = f->log_measured[last];
    out->n = last;
    solve(out);
}

double fit_surprise(const struct fit *without, const struct price_bill *bill, double log_measured)
{
    double log_sd, step_s = fit_step(without, bill, NULL, &log_sd);
    return (log_measured - log(step_s)) / log_sd;
}
