#include "autotune/search.h"

#include <math.h>
#include <stdlib.h>

const char *const trial_state_names[] = {
#define TRIAL_STATE_NAME(id, name) name,
    TRIAL_STATE_LIST(TRIAL_STATE_NAME)
#undef TRIAL_STATE_NAME
    NULL};

static bool plain(const struct layout *l)
{
    return l->zero == 0 && l->mbs == 1 && l->recompute == RECOMPUTE_NONE &&
           l->tp * l->cp * l->pp == 1;
}

/* Says whether a layout shards everything (ZeRO 3) over all data-parallel ranks and uses no other
 * technique. */
static bool fully_sharded(const struct layout *l)
{
    struct layout rest = *l;
    rest.zero = 0;
    return l->zero == 3 && l->dp > 1 && layout_shard_group(l) == l->dp && plain(&rest);
}

/* Returns the item with the most ranks of which such() is true; -1: there is none. */
static int64_t most_ranks(const struct search *s, bool (*such)(const struct layout *l))
{
    int64_t at = -1;
    for (int64_t i = 0; i < (int64_t)s->n; i++)
        if (such(&s->items[i].layout) &&
            (at < 0 || s->items[i].layout.dp > s->items[at].layout.dp))
            at = i;
    return at;
}

static int64_t item_of(const struct search *s, const struct layout *l)
{
    for (int64_t i = 0; i < (int64_t)s->n; i++)
        if (layout_equal(&s->items[i].layout, l))
            return i;
    return -1;
}

void search_init(struct search *s, struct search_item *items, size_t n,
                 const struct search_conf *conf)
{
    *s = (struct search){.items = items, .n = n, .conf = *conf, .best = -1, .again = -1};
    s->baseline = conf->baseline ? item_of(s, conf->baseline) : most_ranks(s, plain);
    s->corner = most_ranks(s, fully_sharded);
    fit_init(&s->fit);
}

double search_predict(const struct search *s, int64_t i, double scaled[PRICE_TERMS],
                      double *log_sd)
{
    return fit_step(&s->fit, &s->items[i].bill, scaled, log_sd);
}

double search_predict_trial(const struct search *s, int64_t i, double scaled[PRICE_TERMS],
                            double *log_sd)
{
    const struct search_item *c = &s->items[i];
    return fit_step(&s->fit, c->trial_bill ? c->trial_bill : &c->bill, scaled, log_sd);
}

double search_time(const struct search *s, int64_t i)
{
    const struct search_item *c = &s->items[i];
    if (!c->trial_bill)
        return c->measured_s;
    double more_s = search_predict(s, i, NULL, NULL) - search_predict_trial(s, i, NULL, NULL);
    return fmax(c->measured_s + more_s, 0.1 * c->measured_s);
}

double search_weighted(const struct search *s, int64_t i, double seconds)
{ return s->conf.gpu_hours ? seconds * (double)layout_world(&s->items[i].layout) : seconds; }

/* Returns the objective that a measured layout reaches. */
static double count_of(const struct search *s, int64_t i)
{ return search_weighted(s, i, search_time(s, i)); }

double search_limit(const struct search *s, int64_t i)
{
    if (s->conf.rank_bytes > 0)
        return s->conf.rank_bytes;
    return s->conf.limit_bytes / (double)layout_world(&s->items[i].layout);
}

/* Returns the probability that a layout fits, given the peaks measured so far. */
static double fit_chance(const struct search *s, int64_t i)
{ return memory_fits(&s->memory, s->items[i].planned_bytes, search_limit(s, i)); }

bool search_fits(const struct search *s, int64_t i)
{ return fit_chance(s, i) >= s->conf.min_fit; }

/* ---- which comes next ---- */

/* Says whether no layout of the first batch has the same degrees of parallelism. */
static bool differs(const struct search *s, const struct layout *l)
{
    for (int64_t i = 0; i < s->n_batch; i++) {
        const struct layout *b = &s->batch[i];
        if (l->tp == b->tp && l->cp == b->cp && l->pp == b->pp && l->dp == b->dp)
            return false;
    }
    return true;
}

/* Returns the cumulative distribution function of the standard normal distribution. */
static double normal_below(double z) { return erfc(-z / sqrt(2)) / 2; }

/* Returns the expected improvement of a lognormally distributed time on limit_s. */
static double improvement(double limit_s, double predicted_s, double log_sd)
{
    double z = log(limit_s / predicted_s) / log_sd;
    return limit_s * normal_below(z) -
           predicted_s * exp(log_sd * log_sd / 2) * normal_below(z - log_sd);
}

static bool can_be_tried(const struct search *s, int64_t i)
{
    return i >= 0 && s->items[i].state == TRIAL_UNTRIED && search_fits(s, i);
}

/* Returns the variance of the part of ln(time) that no scale explains, learnt from the residuals of
 * the fit. */
static double unexplained(const struct fit *f)
{
    static const double PRIOR_SD = 0.015;
    double squares = PRIOR_SD * PRIOR_SD;
    for (int64_t i = 0; i < f->n; i++) {
        double off = f->log_measured[i] - log(fit_step(f, &f->bills[i], NULL, NULL));
        squares += off * off;
    }
    return squares / (double)(1 + f->n);
}

/* Holds the best measured layout, with which others are compared. */
struct rival { double predicted, counts, unexplained, slopes[FIT_SCALES]; };

static struct rival rival_of(const struct search *s)
{
    struct rival best = {0};
    if (s->best >= 0) {
        best.counts = count_of(s, s->best);
        best.predicted =
            search_weighted(s, s->best,
                            fit_slopes(&s->fit, &s->items[s->best].bill, best.slopes));
        best.unexplained = unexplained(&s->fit);
    }
    return best;
}

/* Predicts a layout relative to the best, once there is one. An error that both share does not
 * change their order, so *log_sd is the uncertainty of their difference. It comes from the scales
 * on which the two depend differently, and from the part that no scale explains. Layouts that
 * depend almost alike on all scales have most of that part in common. */
static double predict_beside(const struct search *s, int64_t i, const struct rival *best,
                             double *log_sd)
{
    static const double UNLIKE = 0.1; /* from this difference of shares on, nothing is in common */
    const struct price_bill *bill = &s->items[i].bill;
    double d[FIT_SCALES], apart = 0, var = 0;
    if (s->best < 0)
        return search_weighted(s, i, fit_step(&s->fit, bill, NULL, log_sd));
    double predicted = search_weighted(s, i, fit_slopes(&s->fit, bill, d));
    for (int t = 0; t < FIT_SCALES; t++)
        d[t] -= best->slopes[t], apart += t < PRICE_TERMS ? fabs(d[t]) : 0;
    var = best->unexplained * fmin(1, apart / UNLIKE);
    for (int t = 0; t < FIT_SCALES; t++)
        for (int u = 0; u < FIT_SCALES; u++)
            var += d[t] * s->fit.cov[t][u] * d[u];
    *log_sd = sqrt(var);
    return best->counts * predicted / best->predicted;
}

/* Returns the smallest optimistic end of all layouts that can be tried; INFINITY: there is none. */
static double least_end(const struct search *s)
{
    double least_s = INFINITY, log_sd;
    for (int64_t i = 0; i < (int64_t)s->n; i++)
        if (can_be_tried(s, i)) {
            double predicted_s = search_weighted(s, i, search_predict(s, i, NULL, &log_sd));
            least_s = fmin(least_s, predicted_s * exp(-SEARCH_SIGMAS * log_sd));
        }
    return least_s;
}

/* Names the layouts that may come next: all that may beat the best by the margin; of these, those
 * whose degrees differ from the first batch's; or all with such degrees, even if none may. */
enum wanted { WANTED_BETTER, WANTED_BETTER_OTHER, WANTED_OTHER };
#define FAR 1.5 /* no layout whose optimistic end is so many times that of the best is wanted */

/* Returns what a layout's optimistic end must beat. */
static double limit_of(const struct search *s, enum wanted wanted)
{
    if (s->best < 0)
        return FAR * least_end(s);
    return count_of(s, s->best) * (wanted == WANTED_OTHER ? FAR : 1 - s->conf.margin);
}

/* Returns the wanted layout with the greatest expected improvement, times its probability of
 * fitting; -1: there is none. Before anything was measured, and where layouts need not be better,
 * it is the one whose optimistic end is furthest below the limit. */
static int64_t most_promising(const struct search *s, enum wanted wanted, double *most)
{
    double limit_s = limit_of(s, wanted);
    int64_t at = -1;
    struct rival best = rival_of(s);
    *most = -INFINITY;
    for (int64_t i = 0; i < (int64_t)s->n; i++) {
        if (!can_be_tried(s, i) ||
            (wanted != WANTED_BETTER && !differs(s, &s->items[i].layout)))
            continue;
        double log_sd, predicted_s = predict_beside(s, i, &best, &log_sd),
                       end_s = predicted_s * exp(-SEARCH_SIGMAS * log_sd);
        double gain = wanted == WANTED_OTHER || s->best < 0
                          ? limit_s - end_s
                          : improvement(limit_s, predicted_s, log_sd);
        double worth = gain * fit_chance(s, i);
        if ((end_s <= limit_s || s->best < 0) && worth > *most)
            *most = worth, at = i;
    }
    return at;
}

/* Returns the most promising layout when one surprisingly slow measurement is ignored; -1: there is
 * none. The measured layout may be slow for a reason that no similar one shares, and must not keep
 * the search away from all of them. With more than MANY measurements, one decides too little. */
static int64_t promising_without_one(const struct search *s)
{
    static const double SURPRISE = 4;
    enum { MANY = 12 };
    double most = 0, worth;
    struct search *other = s->fit.n > 1 && s->fit.n <= MANY ? malloc(sizeof *other) : NULL;
    int64_t at = -1, i;
    if (!other)
        return -1;
    *other = *s;
    for (int64_t k = 0; k < s->fit.n; k++) {
        fit_without(&s->fit, k, &other->fit);
        if (fit_surprise(&other->fit, &s->fit.bills[k], s->fit.log_measured[k]) >= SURPRISE &&
            (i = most_promising(other, WANTED_BETTER, &worth)) >= 0 && worth > most)
            most = worth, at = i;
    }
    free(other);
    return at;
}

/* Returns half the width of the 90 % interval of a layout's ln(time). */
static double half_interval(const struct search *s, const struct search_item *c)
{
    return SEARCH_Z90 * s->fit.noise / sqrt((double)c->measures);
}

/* Says whether a layout's interval overlaps that of the best. */
static bool meets_best(const struct search *s, int64_t i)
{
    const struct search_item *c = &s->items[i], *best = &s->items[s->best];
    return c->state == TRIAL_OK && log(count_of(s, i)) - half_interval(s, c) <=
                                       log(count_of(s, s->best)) + half_interval(s, best);
}

/* Says whether contender a is measured again before b: it was measured less often, or as often and
 * is nearer to the best. */
static bool comes_before(const struct search *s, int64_t a, int64_t b)
{
    const struct search_item *x = &s->items[a], *y = &s->items[b];
    return x->measures != y->measures ? x->measures < y->measures : count_of(s, a) < count_of(s, b);
}

struct search_contenders search_contenders_find(const struct search *s)
{
    struct search_contenders c = {.next = -1};
    for (int64_t i = 0; i < (int64_t)s->n && s->best >= 0; i++) {
        if (!meets_best(s, i))
            continue;
        c.n++;
        if (s->items[i].measures >= s->conf.repeats)
            continue;
        c.left++;
        if (c.next < 0 || comes_before(s, i, c.next))
            c.next = i;
    }
    return c.n > 1 ? c : (struct search_contenders){.next = -1};
}

/* Returns the contender to measure again; -1: there is none, or enough trials were repeated. */
static int64_t contender(const struct search *s)
{
    bool may = s->contended < s->conf.max_trials * (s->conf.repeats - 1);
    return may ? search_contenders_find(s).next : -1;
}

/* Returns the baseline if other layouts were measured and it was not measured again after all of
 * them had been tried; else -1. */
static int64_t baseline_again(const struct search *s)
{
    int64_t base = s->baseline;
    bool early = base >= 0 && s->items[base].state == TRIAL_OK &&
                 (s->items[base].measures == 1 || s->baseline_early);
    return early && s->conf.repeats > 1 && s->fit.n > 1 ? base : -1;
}

/* Says why no layout comes next. */
static const char *stop_reason(const struct search *s)
{
    bool tried = true;
    for (int64_t i = 0; i < (int64_t)s->n; i++) {
        if (can_be_tried(s, i))
            return "no untried layout can beat the best by the margin";
        tried = tried && s->items[i].state != TRIAL_UNTRIED && s->items[i].state != TRIAL_SKIPPED;
    }
    return tried ? "every layout was tried" : "no untried layout fits the memory";
}

static int64_t measured(const struct search *s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += s->items[i].state == TRIAL_OK;
    return n;
}

static int64_t next_untried(struct search *s)
{
    int64_t at;
    double most;
    s->stop_reason = "the budget of trials is spent";
    if (s->trials >= s->conf.max_trials)
        return -1;
    s->stop_reason = NULL;
    if (can_be_tried(s, s->baseline))
        return s->baseline;
    if (can_be_tried(s, s->corner))
        return s->corner;
    if (s->n_batch < SEARCH_BATCH && (at = most_promising(s, WANTED_BETTER_OTHER, &most)) >= 0)
        return at;
    if ((at = most_promising(s, WANTED_BETTER, &most)) >= 0 ||
        (at = promising_without_one(s)) >= 0)
        return at;
    if (measured(s) < SEARCH_LEAST && (at = most_promising(s, WANTED_OTHER, &most)) >= 0)
        return at;
    s->stop_reason = stop_reason(s);
    return -1;
}

int64_t search_next(struct search *s)
{
    int64_t at;
    if (s->again >= 0)
        return s->again;
    if ((at = next_untried(s)) >= 0 || (at = contender(s)) >= 0)
        return at;
    return baseline_again(s);
}

static bool same_grid(const struct layout *a, const struct layout *b)
{
    return a->tp == b->tp && a->sp == b->sp && a->cp == b->cp && a->cp_kind == b->cp_kind &&
           a->pp == b->pp && a->vpp == b->vpp && a->dp == b->dp;
}

/* Skips layouts, on as many ranks or more, that would run out of memory too. On the same grid these
 * are all whose memory plan is as large. On another grid, the part that the plan underestimates may
 * be smaller, so a plan must be SEARCH_OOM times as large. */
static void skip_dominated(struct search *s, int64_t oom)
{
    const struct search_item *o = &s->items[oom];
    for (size_t i = 0; i < s->n; i++) {
        struct search_item *c = &s->items[i];
        if (c->state != TRIAL_UNTRIED || layout_world(&c->layout) < layout_world(&o->layout))
            continue;
        if (c->planned_bytes >= SEARCH_OOM * o->planned_bytes ||
            (c->planned_bytes >= o->planned_bytes && same_grid(&c->layout, &o->layout)))
            c->state = TRIAL_SKIPPED;
    }
}

/* ---- noise ---- */

/* Updates the noise with a difference of two logarithms that would be 0 without noise. */
static void noise_add(struct search *s, double difference)
{
    static const double PRIOR_SD = 0.03, PRIOR_N = 3;
    s->squares += difference * difference;
    s->n_squares++;
    s->fit.noise = sqrt((PRIOR_N * PRIOR_SD * PRIOR_SD + s->squares) / (PRIOR_N + s->n_squares));
}

/* Returns by how much the median step was slower than the fastest, as a logarithm. */
static double spread_of(const struct search_outcome *o)
{
    return o->fastest_s > 0 ? log(o->measured_s / o->fastest_s) : 0;
}

bool search_is_disturbed(const struct search *s, int64_t i, const struct search_outcome *o)
{
    enum { TAUGHT = 3 }; /* measurements before predictions are trusted, other models' too */
    double log_sd, predicted = search_predict_trial(s, i, NULL, &log_sd);
    if (o->state != TRIAL_OK || s->items[i].measures > 0 || s->conf.repeats < 2)
        return false;
    if (o->reused)
        return o->disturbed;
    return spread_of(o) > SEARCH_ODD_SIGMAS * s->fit.noise ||
           (s->fit.n + s->fit.earlier >= TAUGHT &&
            log(o->measured_s / predicted) > SEARCH_ODD_SIGMAS * log_sd);
}

/* Updates the noise from a measurement that is not disturbed, or from a repetition. */
static void measure_learn(struct search *s, struct search_item *item,
                          const struct search_outcome *o)
{
    if (o->fastest_s > 0)
        noise_add(s, spread_of(o));
    if (item->measures > 1 && !item->disturbed)
        noise_add(s, log(o->measured_s / item->measured_s) / sqrt(2));
    item->disturbed = false;
}

/* ---- how far off predictions were ---- */

static void off_learn(struct search *s, int64_t i, const struct search_outcome *o)
{
    double log_sd, predicted = search_predict_trial(s, i, NULL, &log_sd);
    double sds = fmin(SEARCH_OFF_SIGMAS, fabs(log(o->measured_s / predicted)) / log_sd);
    if (!isfinite(sds))
        return;
    s->off_squares += sds * sds;
    s->n_off++;
}

double search_width(const struct search *s)
{
    static const double PRIOR_N = 2; /* the sds count as this many predictions that held */
    return fmax(1, sqrt((PRIOR_N + s->off_squares) / (PRIOR_N + s->n_off)));
}

/* ---- outcomes ---- */

/* Records a layout's measurement. A disturbed one is not learnt from, and is repeated at once. */
static void measure_take(struct search *s, int64_t i, const struct search_outcome *o,
                         bool disturbed)
{
    struct search_item *item = &s->items[i];
    s->again = disturbed ? i : -1;
    if (disturbed)
        item->disturbed = true;
    else
        measure_learn(s, item, o);
    item->measured_s =
        item->measures > 1 ? fmin(item->measured_s, o->measured_s) : o->measured_s;
    if (!disturbed && o->class_s)
        fit_classes(&s->fit, item->class_s, o->class_s);
    if (!disturbed)
        fit_add(&s->fit, item->trial_bill ? item->trial_bill : &item->bill,
                     item->measured_s);
    if (s->best < 0 || count_of(s, i) < count_of(s, s->best))
        s->best = i;
}

/* Counts an outcome. Returns the state that the search acts on: for a repeated trial that did not
 * succeed, TRIAL_FAILED, which changes nothing. */
static enum trial_state outcome_count(struct search *s, struct search_item *item,
                                      const struct search_outcome *o)
{
    bool first = item->measures++ == 0, other = item - s->items != s->baseline;
    if (!o->reused && (first || !other))
        s->baseline_early = other;
    if (first) {
        if (s->n_batch < SEARCH_BATCH)
            s->batch[s->n_batch++] = item->layout;
        item->state = o->state;
        s->trials += !o->reused;
        return o->state;
    }
    s->repeated += !o->reused;
    s->contended += !o->reused && !item->disturbed && item->measures <= s->conf.repeats;
    return o->state == TRIAL_OK ? TRIAL_OK : TRIAL_FAILED;
}

void search_tell(struct search *s, int64_t i, const struct search_outcome *o)
{
    struct search_item *item = &s->items[i];
    bool interrupted = o->state == TRIAL_NODE || o->state == TRIAL_PREEMPTED,
         disturbed = search_is_disturbed(s, i, o);
    if (interrupted && item->interrupted++ < SEARCH_INTERRUPTIONS)
        return;
    if (s->again == i)
        s->again = -1;
    if (o->state == TRIAL_OK && !o->reused && !disturbed)
        off_learn(s, i, o);
    enum trial_state state = outcome_count(s, item, o);
    if (o->peak_bytes > 0)
        memory_learn(&s->memory, item->planned_bytes, o->peak_bytes);
    if (trial_is_oom(state))
        skip_dominated(s, i);
    if (state == TRIAL_OK)
        measure_take(s, i, o, disturbed);
}
