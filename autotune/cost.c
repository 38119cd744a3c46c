/* The terms of a data-parallel step on the slowest replica: n samples in m micro-batches, S tokens
 * a sample, D hidden, F ffn, L layers, P parameters, w bytes of an activation or weight, f of a
 * gradient or a number of the optimizer's, d replicas. G and A are the model FLOPs of n samples
 * (flops_reel/3: forward and backward) in matrices and in attention.
 *
 *     gemm         G / gemm_flops
 *     attention    A / attn_flops
 *     elementwise  n S L w (48 D + 10 F) / copy_bytes
 *                  about 16 passes over D and 3.3 over F forward, twice that backward. Six passes
 *                  over D of each sub-block are of the residual stream, of f bytes where that is
 *                  wide
 *     weight_io    m 2 P (w + f) / copy_bytes
 *                  weights forward and backward, gradients read and written
 *     recompute    (gemm + attention + elementwise) / 3
 *                  with full recompute: one more forward
 *     contention   (all above) (rank_loss (d - 1) + max(0, d / cores - 1))
 *     dp_reduce    (d - 1)/d P (f + (zero ? w : f)) / comm_bytes + 2 (d - 1) latency
 *                  reduce-scatter of gradients; all-gather of them, or of weights
 *     optimizer    P (2 f + (o f + x w) / (zero ? d : 1)) / copy_bytes
 *                  2: zeroing, norm; o = 7 (+ 2 with EMA): AdamW; x = 1 with masters
 *     launch       (n forward + backward operations: 60 L m) launch_s
 *     overhead     overhead_s
 *
 * The formulas are rough, and the scales that trials teach correct them. The counts 48, 10 and 60
 * are priors, found by counting the trainer's operations, not by measurement.
 *
 * The fit takes y_i = ln measured_i and f_i(theta) = ln(e^theta_all sum_t e^theta_t term_it). It is
 * a ridge regression with theta_k ~ N(0, sd_k): eight Gauss-Newton steps of (J' W J / noise^2 +
 * diag(1/sd^2)) delta = J' W r / noise^2 - theta / sd^2, where W are Huber weights at two sd of
 * noise. The inverse of the matrix is the covariance from which prediction intervals come.
 */
#include "autotune/cost.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "profiles/flops.h"
#include "profiles/params.h"

#define COST_NAME(id, name, sd, what) name,
const char *const cost_term_names[COST_TERMS] = {COST_TERM_LIST(COST_NAME)};
#define COST_SD(id, name, sd, what) sd,
static const double prior_sd[COST_SCALES] = {COST_TERM_LIST(COST_SD) 0.40};

/* Tell whether a layout has nothing that lacks terms yet. A line goes when its terms come. */
static bool no_tp(const struct layout *l) { return l->tp == 1; }
static bool no_cp(const struct layout *l) { return l->cp == 1; }
static bool no_pp(const struct layout *l) { return l->pp == 1; }
static bool zero_to_1(const struct layout *l) { return l->zero <= 1; }
static bool shards_over_dp(const struct layout *l)
{ return !l->zero || layout_shard_group(l) == l->dp; }
static bool whole_recompute(const struct layout *l)
{ return l->recompute != RECOMPUTE_SELECTIVE && l->recompute_layers == 0; }
const struct space_limit cost_limits[COST_LIMITS] = {
    {"tuner-tp", "the tuner cannot price tensor parallelism yet: tp must be 1", no_tp},
    {"tuner-cp", "the tuner cannot price context parallelism yet: cp must be 1", no_cp},
    {"tuner-pp", "the tuner cannot price pipeline parallelism yet: pp must be 1", no_pp},
    {"tuner-zero", "the tuner cannot price sharded gradients and weights yet: zero must be 0 or 1",
     zero_to_1},
    {"tuner-shard-group", "the tuner prices sharding over all of dp: fsdp must be 0",
     shards_over_dp},
    {"tuner-recompute",
     "the tuner prices recomputing all blocks or none: recompute must be none or full",
     whole_recompute},
};

#define AT(field) offsetof(struct cost_rates, field)
const struct cost_rate_info cost_rate_table[] = {
    {"gemm_flops", "FLOP/s", "probe: our gemm at the model's shapes", 1e6, 1e17, AT(gemm_flops)},
    {"attn_flops", "FLOP/s", "device profile: share of the peak", 1e6, 1e17, AT(attn_flops)},
    {"copy_bytes", "B/s", "probe: copy of 64 MiB, read plus written", 1e6, 1e15, AT(copy_bytes)},
    {"rank_loss", "1", "probe: gemm of one rank alone and among others", 0, 10, AT(rank_loss)},
    {"comm_latency_s", "s", "probe: all-reduce of 8 bytes", 0, 10, AT(comm_latency_s)},
    {"comm_bytes", "B/s", "probe: all-reduce of 8 MiB", 1e3, 1e15, AT(comm_bytes)},
    {"launch_s", "s", "prior: a call on the CPU", 0, 1, AT(launch_s)},
    {"overhead_s", "s", "prior", 0, 100, AT(overhead_s)},
    {NULL, NULL, NULL, 0, 0, 0},
};
#undef AT

struct cost_rates cost_rates_prior(const struct device *d, enum dtype dtype)
{
    double peak = d->peak_flops[dtype] > 0 ? d->peak_flops[dtype] : 1e10;
    double bytes = d->memory_bytes_per_s > 0 ? d->memory_bytes_per_s : 1e10;
    return (
        struct cost_rates){.gemm_flops = peak * (d->gemm_efficiency > 0 ? d->gemm_efficiency : 0.5),
                           .attn_flops =
                               peak * (d->attn_fwd_efficiency > 0 ? d->attn_fwd_efficiency : 0.25),
                           .copy_bytes = bytes,
                           .rank_loss = 0.05,
                           .comm_latency_s = 20e-6,
                           .comm_bytes = bytes / 8,
                           .launch_s = 1e-6,
                           .overhead_s = 2e-3};
}

static int rates_check(const struct cost_rates *r, struct err *err)
{
    for (const struct cost_rate_info *i = cost_rate_table; i->name; i++) {
        double v;
        memcpy(&v, (const char *)r + i->offset, sizeof v);
        if (!(v >= i->lo && v <= i->hi))
            return err_set(err, ERR_INPUT, "the rate %s is %g %s: give %g to %g", i->name, v,
                           i->unit, i->lo, i->hi);
    }
    return 0;
}

/* Computes the FLOPs of n samples in matrices and in attention. */
static int work_of(const struct cost_spec *spec, double n, double *matrices, double *attention,
                   struct err *err)
{
    struct flops f;
    int rc = flops_reel_sample(spec->model, spec->seq, spec->model->text_len, &f, err);
    if (rc < 0)
        return rc;
    *matrices = n * (f.linear + f.per_text + f.per_sample);
    *attention = n * (f.self_attn + f.cross_attn);
    return 0;
}

static int parameters_of(const struct model *m, double *out, struct err *err)
{
    struct param_list list;
    int rc = params_build(m, &list, err);
    if (rc < 0)
        return rc;
    *out = (double)list.total;
    params_release(&list);
    return 0;
}

static int inputs_check(const struct cost_rates *r, const struct layout *l, struct err *err)
{
    if (l->tp * l->cp * l->pp != 1)
        return err_set(err, ERR_INPUT,
                       "the cost of a layout with tp %lld, cp %lld, pp %lld is not modelled: give "
                       "1 for all three",
                       (long long)l->tp, (long long)l->cp, (long long)l->pp);
    return rates_check(r, err);
}

/* Computes what the network's own work takes, without communication. */
static void compute_terms(const struct cost_spec *spec, const struct cost_rates *r,
                          const struct layout *l, double P, double t[COST_TERMS])
{
    const struct model *model = spec->model;
    double tokens = (double)layout_replica_samples(l, spec->gbs, 0) *
                    (double)seq_tokens(spec->seq),
           L = (double)model->layers, m = (double)layout_micro_batches(l, spec->gbs, 0);
    double w = (double)dtype_bytes(spec->dtype), f = (double)dtype_bytes(dtype_stat(spec->dtype));
    double stream = spec->residual_wide
                        ? 6 * (f - w) *
                              (double)((model_self_attentions(model) + model_has_cross(model) + 1) *
                                       model->hidden)
                        : 0;
    t[COST_ELEMENTWISE] = tokens * L *
                          (w * (48 * (double)model->hidden + 10 * (double)model->ffn) + stream) /
                          r->copy_bytes;
    t[COST_WEIGHT_IO] = m * 2 * P * (w + f) / r->copy_bytes;
    if (l->recompute == RECOMPUTE_FULL)
        t[COST_RECOMPUTE] = (t[COST_GEMM] + t[COST_ATTENTION] + t[COST_ELEMENTWISE]) / 3;
    t[COST_LAUNCH] = 60 * L * m * r->launch_s;
}

/* Computes what the ranks cost each other, and the update. */
static void rank_terms(const struct cost_spec *spec, const struct cost_rates *r,
                       const struct layout *l, double P, double t[COST_TERMS])
{
    double d = (double)l->dp, w = (double)dtype_bytes(spec->dtype),
           f = (double)dtype_bytes(dtype_stat(spec->dtype));
    double ranks_a_core = spec->cores > 0 ? d / (double)spec->cores : 1;
    double compute = t[COST_GEMM] + t[COST_ATTENTION] + t[COST_ELEMENTWISE] + t[COST_WEIGHT_IO] +
                     t[COST_RECOMPUTE];
    t[COST_CONTENTION] = compute * (r->rank_loss * (d - 1) + fmax(0, ranks_a_core - 1));
    if (l->dp > 1)
        t[COST_DP_REDUCE] = (d - 1) / d * P * (f + (l->zero ? w : f)) / r->comm_bytes +
                            2 * (d - 1) * r->comm_latency_s;
    t[COST_OPTIMIZER] = P *
                        (2 * f + ((spec->ema ? 9 : 7) * f + (w < f ? w : 0)) / (l->zero ? d : 1)) /
                        r->copy_bytes;
}

int cost_terms(const struct cost_spec *spec, const struct cost_rates *r, const struct layout *l,
               double terms[COST_TERMS], struct err *err)
{
    double matrices = 0, attention = 0, P = 0, t[COST_TERMS] = {0};
    double n = (double)layout_replica_samples(l, spec->gbs, 0);
    int rc;
    if ((rc = inputs_check(r, l, err)) < 0)
        return rc;
    if ((rc = work_of(spec, n, &matrices, &attention, err)) < 0)
        return rc;
    if ((rc = parameters_of(spec->model, &P, err)) < 0)
        return rc;
    t[COST_GEMM] = matrices / r->gemm_flops;
    t[COST_ATTENTION] = attention / r->attn_flops;
    compute_terms(spec, r, l, P, t);
    rank_terms(spec, r, l, P, t);
    t[COST_OVERHEAD] = r->overhead_s;
    memcpy(terms, t, sizeof t);
    return 0;
}

int cost_bound(const struct cost_spec *spec, const struct cost_rates *r, const struct layout *l,
               double *out, struct err *err)
{
    double matrices = 0, attention = 0, n = (double)layout_replica_samples(l, spec->gbs, 0);
    int rc;
    if ((rc = inputs_check(r, l, err)) < 0)
        return rc;
    if ((rc = work_of(spec, n, &matrices, &attention, err)) < 0)
        return rc;
    *out = (matrices + attention) / fmax(r->gemm_flops, r->attn_flops);
    return 0;
}

/* ---- learning ---- */

void cost_fit_init(struct cost_fit *f)
{
    *f = (struct cost_fit){.noise = 0.03};
    for (int k = 0; k < COST_SCALES; k++)
        f->cov[k][k] = prior_sd[k] * prior_sd[k];
}

/* Returns the sum of the scaled terms without "all". J takes the derivative of its logarithm. */
static double forward(const struct cost_fit *f, const double terms[COST_TERMS],
                      double J[COST_SCALES])
{
    double sum = 0;
    for (int t = 0; t < COST_TERMS; t++)
        sum += J[t] = exp(f->log_scale[t]) * terms[t];
    for (int t = 0; t < COST_TERMS; t++)
        J[t] = sum > 0 ? J[t] / sum : 0;
    J[COST_TERMS] = 1;
    return sum;
}

/* Inverts a symmetric positive definite matrix by Gauss-Jordan without pivoting, which is safe for
 * such a matrix. */
static void invert(double a[COST_SCALES][COST_SCALES], double out[COST_SCALES][COST_SCALES])
{
    memset(out, 0, sizeof(double) * COST_SCALES * COST_SCALES);
    for (int i = 0; i < COST_SCALES; i++)
        out[i][i] = 1;
    for (int c = 0; c < COST_SCALES; c++) {
        double pivot = a[c][c];
        for (int k = 0; k < COST_SCALES; k++)
            a[c][k] /= pivot, out[c][k] /= pivot;
        for (int r = 0; r < COST_SCALES; r++) {
            double by = a[r][c];
            for (int k = 0; r != c && k < COST_SCALES; k++)
                a[r][k] -= by * a[c][k], out[r][k] -= by * out[c][k];
        }
    }
}

static void gauss_newton(struct cost_fit *f)
{
    double A[COST_SCALES][COST_SCALES] = {{0}}, g[COST_SCALES], J[COST_SCALES];
    for (int k = 0; k < COST_SCALES; k++) {
        A[k][k] = 1 / (prior_sd[k] * prior_sd[k]);
        g[k] = -f->log_scale[k] * A[k][k];
    }
    for (int64_t i = 0; i < f->n; i++) {
        double residual =
            f->log_measured[i] - log(forward(f, f->terms[i], J)) - f->log_scale[COST_TERMS];
        double sds = fabs(residual) / f->noise, weight = sds <= 2 ? 1 : 2 / sds;
        weight /= f->noise * f->noise;
        for (int a = 0; a < COST_SCALES; a++) {
            g[a] += weight * J[a] * residual;
            for (int b = 0; b < COST_SCALES; b++)
                A[a][b] += weight * J[a] * J[b];
        }
    }
    invert(A, f->cov);
    for (int a = 0; a < COST_SCALES; a++)
        for (int b = 0; b < COST_SCALES; b++)
            f->log_scale[a] += f->cov[a][b] * g[b];
}

void cost_fit_add(struct cost_fit *f, const double terms[COST_TERMS], double measured_s)
{
    if (!(measured_s > 0) || !isfinite(measured_s) || f->n == COST_FIT_MAX)
        return;
    memcpy(f->terms[f->n], terms, sizeof f->terms[0]);
    f->log_measured[f->n++] = log(measured_s);
    for (int i = 0; i < 8; i++)
        gauss_newton(f);
}

double cost_step(const struct cost_fit *f, const double terms[COST_TERMS],
                 double scaled[COST_TERMS], double *log_sd)
{
    double J[COST_SCALES], all = exp(f->log_scale[COST_TERMS]), sum = forward(f, terms, J) * all,
                           var = f->noise * f->noise;
    for (int a = 0; a < COST_SCALES; a++)
        for (int b = 0; b < COST_SCALES; b++)
            var += J[a] * f->cov[a][b] * J[b];
    for (int t = 0; scaled && t < COST_TERMS; t++)
        scaled[t] = exp(f->log_scale[t]) * terms[t] * all;
    if (log_sd)
        *log_sd = sqrt(var);
    return sum;
}
