/* The terms of a step on CPUs. A stage's rank does, for each of m micro-batches of T tokens, the
 * parts of the account (work.h): each of its layers forward and backward, what is recomputed, the
 * conditioning once a chunk, the embedding on the first stage and the head on the last. A part
 * takes
 *
 *     gemm         (flops / gemm.flops_s + bytes / gemm.bytes_s) share(T)
 *     attention    the same by its own rates; backward attention_backward times as long
 *     elementwise  bytes / copy_bytes share(T); with zero 2 and 3 also gradients of units, which
 *                  are cleared, and own pieces added: f (1 + 3 / group) bytes of each element
 *     inputs       numbers of a micro-batch's latents · input_s, for each chunk
 *     tp, cp, pp   messages: count (steps latency_s + bytes / bytes_s), where an all-reduce of g
 *                  ranks has 2 (g - 1) steps, a send 1, all others g - 1; by the rates of ranks
 *                  with a core each, or of ranks that share cores. Messages move only inside MPI's
 *                  calls, so nothing hides them
 *
 * share(T) is what the probe found of micro-batches of T tokens: their working set lies in one
 * cache or another. Let x be the seconds of a micro-batch on a stage, X those of the busiest one, c
 * and C the part of them that is computation. N ranks share K cores; d, t, v are dp, tp·cp, vpp.
 *
 *     gather       what zero 3 gathers of weights, as two units are held at a time
 *                  (work_reel_gathers); with zero 2 and 3 gradients are scattered for each
 *                  micro-batch, too
 *     bubble       (sum over stages of x - X) / v: the pipeline fills and drains
 *     contention   max(0, d t m' (sum of c) / K - m C - bubble) + rank_loss (min(N, K) - 1) m C
 *                  where m' are the micro-batches of a mean replica: ranks that wait leave their
 *                  cores to others, so the step takes as long as the busiest rank or as all work on
 *                  all cores, whichever is more. The update is shared likewise
 *     dp_reduce    what zero says is sent once a step (work_state), and the partial sums over tp
 *                  and stages
 *     optimizer    (7 f + x w + 2 f with EMA) / update_bytes of each own element; w, f bytes of a
 *                  weight and of a statistic, x 1 with masters. Norms read gradients, f /
 *                  norm_bytes: once, before they are summed once more, with zero 2 and 3 after each
 *                  micro-batch
 *     overhead     overhead_s
 *
 * The fit takes y_i = ln measured_i and f_i(theta) = ln(e^theta_all sum_t e^theta_t term_it). It is
 * a ridge regression with theta_k ~ N(0, sd_k): eight Gauss-Newton steps of (J' W J / noise^2 +
 * diag(1/sd^2)) delta = J' W r / noise^2 - theta / sd^2, where W are Huber weights at two sd of
 * noise. The inverse of the matrix is the covariance from which prediction intervals come.
 */
#include "autotune/cost.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "profiles/work_reel.h"

#define COST_NAME(id, name, sd, what) name,
const char *const cost_term_names[COST_TERMS] = {COST_TERM_LIST(COST_NAME)};
#define COST_SD(id, name, sd, what) sd,
static const double prior_sd[COST_SCALES] = {COST_TERM_LIST(COST_SD) 0.25};

#define AT(field) offsetof(struct cost_rates, field)
const struct cost_rate_info cost_rate_table[] = {
    {"gemm_flops", "FLOP/s", "probe: the model's products", 1e6, 1e17, AT(gemm.flops_s)},
    {"gemm_bytes", "B/s", "probe: the same, of operands and results", 1e6, 1e20, AT(gemm.bytes_s)},
    {"attention_flops", "FLOP/s", "probe: the model's attention", 1e6, 1e17, AT(attention.flops_s)},
    {"attention_bytes", "B/s", "probe: the same, of operands and results", 1e6, 1e20,
     AT(attention.bytes_s)},
    {"attention_backward", "1", "probe: backward, forward being 1", 0.1, 100,
     AT(attention_backward)},
    {"copy_bytes", "B/s", "probe: the model's elementwise operations", 1e6, 1e15, AT(copy_bytes)},
    {"input_s", "s", "probe: noise, samples and loss, for a number of a latent", 0, 1,
     AT(input_s)},
    {"update_bytes", "B/s", "probe: AdamW", 1e6, 1e15, AT(update_bytes)},
    {"norm_bytes", "B/s", "probe: the norm of gradients", 1e6, 1e15, AT(norm_bytes)},
    {"rank_loss", "1", "probe: products of one rank alone and among others", 0, 10, AT(rank_loss)},
    {"comm_latency_s", "s", "probe: all-reduce of 8 bytes, a core each", 0, 10,
     AT(comm.latency_s)},
    {"comm_bytes", "B/s", "probe: all-reduce of 8 MiB, a core each", 1e3, 1e15, AT(comm.bytes_s)},
    {"shared_latency_s", "s", "probe: all-reduce of 8 bytes, cores shared", 0, 10,
     AT(comm_shared.latency_s)},
    {"shared_bytes", "B/s", "probe: all-reduce of 8 MiB, cores shared", 1e3, 1e15,
     AT(comm_shared.bytes_s)},
    {"overhead_s", "s", "prior", 0, 100, AT(overhead_s)},
    {NULL, NULL, NULL, 0, 0, 0},
};
#undef AT

struct cost_rates cost_rates_prior(const struct device *d, enum dtype dtype)
{
    double peak = d->peak_flops[dtype] > 0 ? d->peak_flops[dtype] : 1e10;
    double bytes = d->memory_bytes_per_s > 0 ? d->memory_bytes_per_s : 1e10;
    double gemm = peak * (d->gemm_efficiency > 0 ? d->gemm_efficiency : 0.5),
           attention = peak * (d->attn_fwd_efficiency > 0 ? d->attn_fwd_efficiency : 0.25);
    return (struct cost_rates){.gemm = {gemm, 1e20}, .attention = {attention, 1e20},
                               .attention_backward = 2.5, .copy_bytes = bytes, .input_s = 50e-9,
                               .update_bytes = bytes, .norm_bytes = bytes, .rank_loss = 0.05,
                               .comm = {20e-6, bytes / 8}, .comm_shared = {20e-6, bytes / 8},
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

int cost_spec_open(struct cost_spec *spec, struct err *err)
{
    int rc;
    if ((rc = stack_load("reel", &spec->stack, err)) < 0)
        return rc;
    return work_weights(spec->model, &spec->weights, err);
}

void cost_work(const struct cost_spec *spec, const struct layout *l, struct work *out)
{
    struct work_spec w = {.model = spec->model, .weights = &spec->weights, .stack = &spec->stack,
                          .seq = spec->seq, .gbs = spec->gbs, .act = spec->dtype,
                          .ema = spec->ema, .residual_wide = spec->residual_wide};
    work_build(&w, l, out);
}

/* ---- seconds of a part ---- */

struct cost_sums cost_part_sums(const struct work *w, enum work_part_id part)
{
    const struct work_part *p = &w->parts[part];
    /* what the embedding reads and writes is in the inputs' time */
    struct cost_sums s = {.bytes = part == WORK_FIRST_FORWARD ? 0 : p->bytes};
    for (int i = 0; i < p->n_gemms; i++) {
        const struct work_gemm *g = &p->gemms[i];
        s.gemm_flops += 2 * g->m * g->n * g->k * g->count;
        s.gemm_bytes += (g->m * g->k + g->k * g->n + 2 * g->m * g->n) * g->count * w->act_bytes;
    }
    for (int i = 0; i < p->n_attentions; i++) {
        const struct work_attention *a = &p->attentions[i];
        double width = a->dim * a->heads * a->count;
        s.attn_flops[a->backward] += 4 * a->pairs * width;
        s.attn_bytes[a->backward] += 2 * (a->q + a->k) * width * w->act_bytes;
    }
    return s;
}

static double mix(double a, double b, double at) { return a + (b - a) * at; }

/* Interpolates the shares between the probe's micro-batches, by the logarithm of their tokens; past
 * either end they are those of the end. */
static struct cost_curve_point share_at(const struct cost_rates *r, double tokens)
{
    int i = 1;
    if (r->n_curve == 0)
        return (struct cost_curve_point){tokens, 1, 1, 1};
    while (i < r->n_curve - 1 && r->curve[i].tokens < tokens)
        i++;
    const struct cost_curve_point *a = &r->curve[r->n_curve > 1 ? i - 1 : 0],
                                  *b = &r->curve[r->n_curve > 1 ? i : 0];
    double at = b->tokens > a->tokens ? log(tokens / a->tokens) / log(b->tokens / a->tokens) : 0;
    at = fmin(1, fmax(0, at));
    return (struct cost_curve_point){tokens, mix(a->gemm, b->gemm, at),
                                     mix(a->attention, b->attention, at),
                                     mix(a->elementwise, b->elementwise, at)};
}

static double pair_s(const struct cost_pair *rate, double flops, double bytes)
{
    return flops / rate->flops_s + bytes / rate->bytes_s;
}

/* Seconds of a part, or of what a stage does for a micro-batch. */
struct seconds { double gemm, attention, elementwise, inputs, again, tp, cp, pp, gather; };

static double computes(const struct seconds *s)
{
    return s->gemm + s->attention + s->elementwise + s->inputs + s->again;
}

static double all(const struct seconds *s)
{
    return computes(s) + s->tp + s->cp + s->pp + s->gather;
}

static double steps_of(enum traffic_kind kind, double ranks)
{
    return kind == TRAFFIC_SEND_RECV ? 1 : (kind == TRAFFIC_ALL_REDUCE ? 2 : 1) * (ranks - 1);
}

static double message_s(const struct cost_comm *c, enum traffic_kind kind, double ranks,
                        double bytes, double count)
{
    return count * (steps_of(kind, ranks) * c->latency_s + bytes / c->bytes_s);
}

/* A step is priced from this, which is made once for a layout. */
struct pricing {
    const struct cost_spec *spec;
    const struct cost_rates *r;
    const struct cost_comm *comm;
    const struct layout *l;
    struct work w;
    struct work_state state;
    struct seconds parts[WORK_PARTS];
};

static struct seconds part_s(const struct pricing *pricing, enum work_part_id part)
{
    const struct cost_rates *r = pricing->r;
    const struct work *w = &pricing->w;
    struct cost_curve_point share = share_at(r, w->tokens);
    struct cost_sums sums = cost_part_sums(w, part);
    const struct work_part *p = &w->parts[part];
    struct seconds s = {0};
    s.gemm = share.gemm * pair_s(&r->gemm, sums.gemm_flops, sums.gemm_bytes);
    for (int back = 0; back < 2; back++)
        s.attention += share.attention * (back ? r->attention_backward : 1) *
                       pair_s(&r->attention, sums.attn_flops[back], sums.attn_bytes[back]);
    s.elementwise = share.elementwise * sums.bytes / r->copy_bytes;
    for (int i = 0; i < p->n_messages; i++) {
        const struct work_message *m = &p->messages[i];
        double ranks = (double)traffic_group_size(pricing->l, w->model, m->group);
        *(m->group == TRAFFIC_TP ? &s.tp : m->group == TRAFFIC_PP ? &s.pp : &s.cp) +=
            message_s(pricing->comm, m->kind, ranks, m->bytes, m->count);
    }
    return s;
}

static void add(struct seconds *to, struct seconds part, double times)
{
    to->gemm += times * part.gemm;
    to->attention += times * part.attention;
    to->elementwise += times * part.elementwise;
    to->tp += times * part.tp;
    to->cp += times * part.cp;
    to->pp += times * part.pp;
}

/* ---- a stage ---- */

static void pricing_open(struct pricing *p, const struct cost_spec *spec,
                         const struct cost_rates *r, const struct layout *l)
{
    p->spec = spec, p->r = r, p->l = l;
    p->comm = layout_world(l) <= spec->cores ? &r->comm : &r->comm_shared;
    cost_work(spec, l, &p->w);
    work_state(&p->w, l, &p->state);
    for (int id = 0; id < WORK_PARTS; id++)
        p->parts[id] = part_s(p, (enum work_part_id)id);
}

/* Returns the seconds in which the messages of a stage's state are sent: those of each micro-batch,
 * or those of the step. */
static double state_s(const struct pricing *p, const struct work_stage *s, bool each)
{
    double more = each ? (double)p->l->vpp - 1 : 0, /* chunks have the conditioning each */
           elements = work_stage_elements(&p->w, s) + more * p->w.unit_elements[UNIT_EACH],
           units = s->layers + 1 + s->first + s->last + more, seconds = 0;
    for (int id = STATE_REDUCE; id < WORK_STATES; id++) {
        double ranks = (double)traffic_group_size(p->l, p->spec->model, p->state.group[id]);
        if (p->l->zero == 0 && p->state.group[id] == TRAFFIC_REPLICA)
            ranks = (double)(p->l->dp * p->l->cp);
        if (p->state.each[id] == each && p->state.bytes[id] > 0)
            seconds += message_s(p->comm, p->state.kind[id], ranks,
                                 p->state.bytes[id] * elements / units, units);
    }
    return seconds;
}

/* Returns the seconds in which the weights of units are gathered for a micro-batch. */
static double gathers_s(const struct pricing *p, const struct work_stage *s)
{
    double times[WORK_UNITS], each = p->state.bytes[STATE_GATHER_FORWARD], seconds = 0;
    if (each == 0)
        return 0;
    work_reel_gathers(&p->w, p->l, s->stage, times);
    for (int id = 0; id < WORK_UNITS; id++)
        seconds += message_s(p->comm, TRAFFIC_ALL_GATHER, (double)layout_shard_group(p->l),
                             each * p->w.unit_elements[id], times[id]);
    return seconds / p->w.micro_batches;
}

/* Returns the seconds in which gradients of units are cleared and own pieces added up, where ranks
 * keep pieces alone. */
static double pieces_s(const struct pricing *p, const struct work_stage *s)
{
    double stat = (double)dtype_bytes(dtype_stat(p->spec->dtype)),
           group = (double)layout_shard_group(p->l);
    return p->l->zero < 2 ? 0
                          : work_stage_elements(&p->w, s) * stat * (1 + 3 / group) /
                                p->r->copy_bytes;
}

/* Sums up what a stage does for a micro-batch. */
static struct seconds stage_s(const struct pricing *p, const struct work_stage *s)
{
    const struct model *m = p->spec->model;
    double chunks = (double)p->l->vpp, ends = s->first + s->last;
    double numbers = p->w.samples * (double)(seq_tokens(p->spec->seq) * m->latent_channels *
                                             model_patch_cells(m));
    struct seconds sum = {.inputs = chunks * numbers * p->r->input_s}, again = {0};
    add(&sum, p->parts[WORK_LAYER_FORWARD], s->layers);
    add(&sum, p->parts[WORK_LAYER_BACKWARD], s->layers);
    add(&sum, p->parts[WORK_EACH_FORWARD], chunks);
    add(&sum, p->parts[WORK_EACH_BACKWARD], chunks);
    add(&sum, p->parts[WORK_FIRST_FORWARD], s->first);
    add(&sum, p->parts[WORK_FIRST_BACKWARD], s->first);
    add(&sum, p->parts[WORK_LAST_FORWARD], s->last);
    add(&sum, p->parts[WORK_LAST_BACKWARD], s->last);
    add(&sum, p->parts[WORK_SEND], 2 * chunks - ends);
    add(&again, p->parts[WORK_LAYER_FULL], fmax(0, s->full - s->there));
    add(&again, p->parts[WORK_LAYER_SELECTIVE], fmax(0, s->selective - s->there));
    sum.again = all(&again);
    sum.elementwise += pieces_s(p, s);
    sum.gather = gathers_s(p, s) + state_s(p, s, true);
    return sum;
}

/* ---- once a step ---- */

/* Returns the seconds of the sums of what tp ranks and stages hold in part. */
static double partial_s(const struct pricing *p, const struct work_stage *s)
{
    const struct work_weights *k = &p->spec->weights;
    double stat = (double)dtype_bytes(dtype_stat(p->spec->dtype)), t = (double)p->l->tp,
           pp = (double)p->l->pp, tokens = p->l->sp ? s->first * k->whole[UNIT_FIRST] +
                                                          s->last * k->whole[UNIT_LAST] : 0;
    double tp = s->layers * k->whole[UNIT_LAYER] + tokens, each = p->w.unit_elements[UNIT_EACH],
           seconds = 0;
    if (p->l->tp > 1)
        seconds += message_s(p->comm, TRAFFIC_ALL_REDUCE, t, 2 * (t - 1) / t * tp * stat, 1);
    if (p->l->pp > 1 && each > 0)
        seconds += message_s(p->comm, TRAFFIC_ALL_REDUCE, pp, 2 * (pp - 1) / pp * each * stat, 1);
    return seconds;
}

static double optimizer_s(const struct pricing *p, const struct work_stage *s)
{
    double w = (double)dtype_bytes(p->spec->dtype),
           f = (double)dtype_bytes(dtype_stat(p->spec->dtype)),
           group = (double)layout_shard_group(p->l), elements = work_stage_elements(&p->w, s);
    double own = elements / (p->l->zero >= 1 ? group : 1), normed = elements;
    if (p->l->zero >= 1)
        normed = elements * (p->l->zero >= 2 ? p->w.micro_batches : 1) + own;
    else if (p->l->dp * p->l->cp > 1)
        normed = 2 * elements;
    return own * ((p->spec->ema ? 9 : 7) * f + (w < f ? w : 0)) / p->r->update_bytes +
           normed * f / p->r->norm_bytes;
}

/* These are sums over all stages. */
struct total { double all, computes, optimizer; };

/* Returns how much longer the step takes because ranks share the machine. */
static double contention_s(const struct pricing *p, const struct seconds *busiest,
                           const struct total *total, double bubble, double optimizer)
{
    double cores = (double)num_max_i64(1, p->spec->cores), world = (double)layout_world(p->l),
           ranks = (double)(p->l->dp * p->l->tp * p->l->cp), m = p->w.micro_batches;
    double mean = (double)p->spec->gbs / (double)(p->l->dp * p->l->mbs);
    double alone = m * computes(busiest) + bubble,
           shared = ranks * fmin(m, fmax(1, mean)) * total->computes / cores;
    double update = fmax(0, ranks * total->optimizer / cores - optimizer);
    return fmax(0, shared - alone) + update +
           p->r->rank_loss * (fmin(world, cores) - 1) * m * computes(busiest);
}

static void terms_fill(const struct pricing *p, const struct seconds *b, const struct total *total,
                       double t[COST_TERMS])
{
    double m = p->w.micro_batches;
    t[COST_GEMM] = m * b->gemm, t[COST_ATTENTION] = m * b->attention;
    t[COST_ELEMENTWISE] = m * b->elementwise, t[COST_INPUTS] = m * b->inputs;
    t[COST_RECOMPUTE] = m * b->again;
    t[COST_TP] = m * b->tp, t[COST_CP] = m * b->cp, t[COST_PP] = m * b->pp;
    t[COST_GATHER] = m * b->gather;
    t[COST_BUBBLE] = fmax(0, total->all - all(b)) / (double)p->l->vpp;
    t[COST_CONTENTION] = contention_s(p, b, total, t[COST_BUBBLE], t[COST_OPTIMIZER]);
    t[COST_OVERHEAD] = p->r->overhead_s;
}

int cost_terms(const struct cost_spec *spec, const struct cost_rates *r, const struct layout *l,
               double terms[COST_TERMS], struct err *err)
{
    struct pricing p;
    struct seconds busiest = {0};
    struct total total = {0};
    double t[COST_TERMS] = {0};
    int rc;
    if ((rc = rates_check(r, err)) < 0)
        return rc;
    pricing_open(&p, spec, r, l);
    for (int64_t i = 0; i < l->pp; i++) {
        struct work_stage stage;
        work_stage(&p.w, l, i, &stage);
        struct seconds s = stage_s(&p, &stage);
        double optimizer = optimizer_s(&p, &stage);
        total.all += all(&s), total.computes += computes(&s), total.optimizer += optimizer;
        if (all(&s) > all(&busiest))
            busiest = s;
        t[COST_OPTIMIZER] = fmax(t[COST_OPTIMIZER], optimizer);
        t[COST_DP_REDUCE] = fmax(t[COST_DP_REDUCE],
                                 state_s(&p, &stage, false) + partial_s(&p, &stage));
    }
    terms_fill(&p, &busiest, &total, t);
    memcpy(terms, t, sizeof t);
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
