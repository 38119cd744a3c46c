/* The fit takes y_i = ln measured_i and f_i(theta) = ln(e^theta_all sum_t e^theta_t term_it). It is
 * a ridge regression with theta_k ~ N(0, sd_k): eight Gauss-Newton steps of (J' W J / noise^2 +
 * diag(1/sd^2)) delta = J' W r / noise^2 - theta / sd^2, where W are Huber weights at two sd of
 * noise. fit_begin may set another mean and covariance for the prior. The measured time of a class
 * is a measurement of its theta alone: r_t = ln(measured / priced), with standard deviation
 * CLASS_SD, because the account of a layout's work may be wrong. The inverse of the matrix is the
 * covariance from which prediction intervals come.
 */
#include "autotune/fit.h"

#include <math.h>
#include <string.h>

/* Says by how much a term may be wrong before any trial: the standard deviation of ln(scale). */
static const double prior_sd[FIT_SCALES] = {
    [PRICE_GEMM] = 0.15,        [PRICE_ATTENTION] = 0.20, [PRICE_ELEMENTWISE] = 0.20,
    [PRICE_INPUTS] = 0.30,      [PRICE_RECOMPUTE] = 0.20, [PRICE_LAUNCH] = 0.30,
    [PRICE_TP] = 0.65,          [PRICE_CP] = 0.40,        [PRICE_PP] = 0.50,
    [PRICE_BUBBLE] = 0.40,      [PRICE_GATHER] = 0.70,       [PRICE_REDUCE] = 0.70,
    [PRICE_OPTIMIZER] = 0.30,   [PRICE_CONTENTION] = 0.70, [PRICE_SPREAD] = 0.70,
    [PRICE_OVERHEAD] = 0.70,    [PRICE_TERMS] = 0.25};

void fit_init(struct fit *f)
{
    *f = (struct fit){.noise = 0.03};
    for (int k = 0; k < FIT_SCALES; k++) {
        f->cov[k][k] = prior_sd[k] * prior_sd[k];
        f->begin_info[k][k] = 1 / f->cov[k][k];
    }
}

/* Returns the sum of the scaled terms without "all". J takes the derivative of its logarithm. */
static double forward(const struct fit *f, const double terms[PRICE_TERMS],
                      double J[FIT_SCALES])
{
    double sum = 0;
    for (int t = 0; t < PRICE_TERMS; t++)
        sum += J[t] = exp(f->log_scale[t]) * terms[t];
    for (int t = 0; t < PRICE_TERMS; t++)
        J[t] = sum > 0 ? J[t] / sum : 0;
    J[PRICE_TERMS] = 1;
    return sum;
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
    memcpy(cov, earlier->cov, sizeof cov);
    for (int k = 0; k < FIT_SCALES; k++)
        cov[k][k] += OTHER_MODEL * OTHER_MODEL * prior_sd[k] * prior_sd[k];
    memcpy(f->cov, cov, sizeof cov);
    memcpy(f->begin, earlier->log_scale, sizeof f->begin);
    memcpy(f->log_scale, earlier->log_scale, sizeof f->log_scale);
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
        double residual =
            f->log_measured[i] - log(forward(f, f->terms[i], J)) - f->log_scale[PRICE_TERMS];
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
}

static void solve(struct fit *f)
{
    for (int i = 0; i < 8; i++)
        gauss_newton(f);
}

void fit_add(struct fit *f, const double terms[PRICE_TERMS], double measured_s)
{
    if (!(measured_s > 0) || !isfinite(measured_s) || f->n == FIT_MAX)
        return;
    memcpy(f->terms[f->n], terms, sizeof f->terms[0]);
    f->log_measured[f->n++] = log(measured_s);
    solve(f);
}

void fit_without(const struct fit *f, int64_t left_out, struct fit *out)
{
    int64_t last = f->n - 1;
    *out = *f;
    memcpy(out->terms[left_out], f->terms[last], sizeof f->terms[last]);
    out->log_measured[left_out] = f->log_measured[last];
    out->n = last;
    solve(out);
}

double fit_step(const struct fit *f, const double terms[PRICE_TERMS],
                 double scaled[PRICE_TERMS], double *log_sd)
{
    double J[FIT_SCALES], all = exp(f->log_scale[PRICE_TERMS]), sum = forward(f, terms, J) * all,
                           var = f->noise * f->noise;
    for (int a = 0; a < FIT_SCALES; a++)
        for (int b = 0; b < FIT_SCALES; b++)
            var += J[a] * f->cov[a][b] * J[b];
    for (int t = 0; scaled && t < PRICE_TERMS; t++)
        scaled[t] = exp(f->log_scale[t]) * terms[t] * all;
    if (log_sd)
        *log_sd = sqrt(var);
    return sum;
}
