/* The trials of a sweep go in this order. A row that is less likely than SCORE_CUT to fit is cut:
 * it is not tried at all. The others are tried by predicted time, the fastest first. A row that
 * runs out of memory rules out all rows of its kind (attention, norms, recomputation) for which at
 * least as many bytes are predicted. The trials end when a row within 1 % of the sweep's best is
 * found. A sweep in which all such rows are cut or ruled out has lost its winner.
 */
#include "autotune/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/interval.h"

#define SCORE_CUT 0.02
#define SCORE_NEAR 1.01

/* ---- ranks ---- */

struct ranked { double value; size_t at; };

static int by_value(const void *a, const void *b)
{
    double x = ((const struct ranked *)a)->value, y = ((const struct ranked *)b)->value;
    return x < y ? -1 : x > y;
}

/* Sets ranks[i] to the rank of values[i]; equal values get the mean of their ranks. */
static void ranks_of(const double *values, size_t n, struct ranked *work, double *ranks)
{
    for (size_t i = 0; i < n; i++)
        work[i] = (struct ranked){values[i], i};
    qsort(work, n, sizeof *work, by_value);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i; j < n && work[j].value <= work[i].value;)
            j++;
        for (size_t k = i; k < j; k++)
            ranks[work[k].at] = ((double)i + (double)j - 1) / 2;
    }
}

/* Returns 0 where all predictions y are equal, and NAN where all measurements x are. */
static double correlation(const double *x, const double *y, size_t n)
{
    double mean = ((double)n - 1) / 2, xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        xy += (x[i] - mean) * (y[i] - mean);
        xx += (x[i] - mean) * (x[i] - mean);
        yy += (y[i] - mean) * (y[i] - mean);
    }
    if (!(xx > 0))
        return NAN;
    return yy > 0 ? xy / sqrt(xx * yy) : 0;
}

static int spearman(const double *a, const double *b, size_t n, double *out, struct err *err)
{
    struct ranked *work = malloc((n + 1) * sizeof *work);
    double *ranks = malloc((2 * n + 1) * sizeof *ranks);
    int rc = 0;
    if (work && ranks) {
        ranks_of(a, n, work, ranks);
        ranks_of(b, n, work, ranks + n);
        *out = correlation(ranks, ranks + n, n);
    } else {
        rc = err_set(err, ERR_NOMEM, "out of memory for %zu ranks", n);
    }
    free(work);
    free(ranks);
    return rc;
}

/* ---- time ---- */

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double mean_of(const double *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    return n ? sum / (double)n : NAN;
}

static bool is_timed(const struct table_case *c)
{
    return !c->skipped && c->measured_s > 0;
}

/* Computes the errors of predicted times. `room` has space for 2 · t->n numbers. */
static void time_score(const struct table *t, const struct score_row *rows, double *room,
                       struct score *out)
{
    double *off = room, *ratio = room + t->n;
    size_t n = 0, held = 0, asked = 0;
    for (size_t i = 0; i < t->n; i++)
        if (is_timed(&t->cases[i])) {
            ratio[n] = rows[i].p.seconds / t->cases[i].measured_s;
            off[n] = 100 * fabs(ratio[n] - 1);
            asked += rows[i].sd > 0;
            held += rows[i].sd > 0 && fabs(log(ratio[n])) <= INTERVAL_SDS * rows[i].sd;
            n++;
        }
    out->interval_held_pct = asked ? 100 * (double)held / (double)asked : NAN;
    qsort(off, n, sizeof *off, by_number);
    qsort(ratio, n, sizeof *ratio, by_number);
    out->mape_pct = mean_of(off, n);
    out->p90_pct = n ? off[(size_t)ceil(0.9 * (double)n) - 1] : NAN;
    for (size_t i = 0; i < n; i++)
        off[i] = 100 * fabs(ratio[i] / ratio[n / 2] - 1);
    out->mape_scaled_pct = mean_of(off, n);
}

/* ---- memory ---- */

static void memory_score(const struct table *t, const struct score_row *rows, struct score *out)
{
    int64_t caught = 0, good = 0, rejected = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct table_case *c = &t->cases[i];
        bool fits = rows[i].p.p_fits >= 0.5;
        if (c->skipped)
            continue;
        out->oom_rows += c->status == TABLE_OOM;
        caught += c->status == TABLE_OOM && !fits;
        good += c->status == TABLE_OK;
        rejected += c->status == TABLE_OK && !fits;
    }
    out->oom_caught_pct = out->oom_rows ? 100 * (double)caught / (double)out->oom_rows : NAN;
    out->good_rejected_pct = good ? 100 * (double)rejected / (double)good : NAN;
}

/* ---- sweeps ---- */

/* Holds the rows of one sweep: the timed ones and those that ran out of memory. */
struct sweep {
    const struct table *t;
    const struct score_row *rows;
    size_t *at;            /* indices of its rows in the table */
    size_t n;
    bool *gone;            /* tried, cut or ruled out */
    double *measured, *predicted; /* of timed rows */
    size_t timed;
    double best_s;
};

/* A row of a sweep: its place in the table. */
struct member { const char *sweep; size_t at; };
/* A sweep's members: neighbours in a list that is sorted by sweep, then by place. */
struct span { const struct member *members; size_t n; };

static void sweep_fill(struct sweep *s, const struct span *span)
{
    s->n = s->timed = 0;
    s->best_s = INFINITY;
    for (size_t i = 0; i < span->n; i++) {
        size_t at = span->members[i].at;
        const struct table_case *c = &s->t->cases[at];
        if (c->skipped || (!is_timed(c) && c->status != TABLE_OOM))
            continue;
        s->at[s->n++] = at;
        if (is_timed(c)) {
            s->measured[s->timed] = c->measured_s;
            s->predicted[s->timed++] = s->rows[at].p.seconds;
            s->best_s = fmin(s->best_s, c->measured_s);
        }
    }
}

/* Returns the index in s->at of the row with the shortest predicted time that is not gone; s->n:
 * none is left. timed: only rows with a measured time. */
static size_t next_of(const struct sweep *s, bool timed)
{
    size_t best = s->n;
    for (size_t i = 0; i < s->n; i++) {
        if (s->gone[i] || (timed && !is_timed(&s->t->cases[s->at[i]])))
            continue;
        if (best == s->n ||
            s->rows[s->at[i]].p.seconds < s->rows[s->at[best]].p.seconds)
            best = i;
    }
    return best;
}

/* Returns the regret, in percent, of the best among the first `choices` by prediction. */
static double regret_of(struct sweep *s, int choices)
{
    double best = INFINITY;
    memset(s->gone, 0, s->n * sizeof *s->gone);
    for (int i = 0; i < choices; i++) {
        size_t k = next_of(s, true);
        if (k == s->n)
            break;
        s->gone[k] = true;
        best = fmin(best, s->t->cases[s->at[k]].measured_s);
    }
    return 100 * (best / s->best_s - 1);
}

static bool is_alike(const struct table_case *a, const struct table_case *b)
{
    return a->stack.attention == b->stack.attention &&
           a->stack.fused_norm == b->stack.fused_norm &&
           a->layout.recompute == b->layout.recompute;
}

static void rule_out(struct sweep *s, size_t k)
{
    const struct table_case *failed = &s->t->cases[s->at[k]];
    for (size_t i = 0; i < s->n; i++)
        if (is_alike(&s->t->cases[s->at[i]], failed) &&
            s->rows[s->at[i]].p.bytes >= s->rows[s->at[k]].p.bytes)
            s->gone[i] = true;
}

/* Returns how many trials a sweep takes. *lost says that its winner was never tried. */
static int64_t trials_of(struct sweep *s, bool *lost)
{
    int64_t trials = 0;
    *lost = false;
    for (size_t i = 0; i < s->n; i++)
        s->gone[i] = s->rows[s->at[i]].p.p_fits < SCORE_CUT;
    for (;;) {
        size_t k = next_of(s, false);
        if (k == s->n) {
            *lost = true;
            return trials;
        }
        const struct table_case *c = &s->t->cases[s->at[k]];
        s->gone[k] = true;
        trials++;
        if (c->status == TABLE_OOM)
            rule_out(s, k);
        else if (c->measured_s <= SCORE_NEAR * s->best_s)
            return trials;
    }
}

static int sweep_score(struct sweep *s, struct score *out, struct err *err)
{
    double rho = 0;
    bool lost;
    int rc = spearman(s->measured, s->predicted, s->timed, &rho, err);
    if (rc < 0)
        return rc;
    double trials = (double)trials_of(s, &lost);
    bool first = out->sweeps++ == 0;
    if (isfinite(rho)) {
        out->spearman_mean = (out->ranked ? out->spearman_mean : 0) + rho;
        out->spearman_worst = out->ranked++ ? fmin(out->spearman_worst, rho) : rho;
    }
    out->regret1_mean_pct = (first ? 0 : out->regret1_mean_pct) + regret_of(s, 1);
    out->regret3_mean_pct = (first ? 0 : out->regret3_mean_pct) + regret_of(s, 3);
    out->trials_mean = (first ? 0 : out->trials_mean) + trials;
    out->trials_worst = first ? trials : fmax(out->trials_worst, trials);
    out->winner_pruned += lost;
    return 0;
}

static int by_sweep(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int names = strcmp(x->sweep, y->sweep);
    return names ? names : (x->at > y->at) - (x->at < y->at);
}

static int by_first(const void *a, const void *b)
{
    size_t x = ((const struct span *)a)->members->at, y = ((const struct span *)b)->members->at;
    return (x > y) - (x < y);
}

/* Lists the rows of sweeps, sorted. Returns how many there are. */
static size_t members_list(const struct table *t, struct member *members)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (*t->cases[i].sweep)
            members[n++] = (struct member){t->cases[i].sweep, i};
    qsort(members, n, sizeof *members, by_sweep);
    return n;
}

/* Cuts the list into sweeps, which come in the order of their first rows. Returns their number. */
static size_t spans_list(const struct member *members, size_t n, struct span *spans)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(members[i].sweep, members[i - 1].sweep) != 0)
            spans[count++].members = &members[i];
        spans[count - 1].n = (size_t)(&members[i] - spans[count - 1].members) + 1;
    }
    qsort(spans, count, sizeof *spans, by_first);
    return count;
}

/* Turns the sums over sweeps into means. */
static void means_set(struct score *out)
{
    double n = (double)out->sweeps;
    if (out->sweeps == 0)
        return;
    out->spearman_mean /= (double)out->ranked, out->trials_mean /= n;
    out->regret1_mean_pct /= n, out->regret3_mean_pct /= n;
}

static int sweeps_score(struct sweep *s, struct score *out, struct err *err)
{
    struct member *members = malloc((s->t->n + 1) * sizeof *members);
    struct span *spans = malloc((s->t->n + 1) * sizeof *spans);
    int rc = 0;
    if (!members || !spans) {
        rc = err_set(err, ERR_NOMEM, "out of memory for the sweeps of %s", s->t->name);
        goto out;
    }
    size_t n = spans_list(members, members_list(s->t, members), spans);
    for (size_t i = 0; i < n; i++) {
        sweep_fill(s, &spans[i]);
        if (s->timed >= SCORE_SWEEP && (rc = sweep_score(s, out, err)) < 0)
            goto out;
    }
    means_set(out);
out:
    free(members);
    free(spans);
    return rc;
}

/* ---- a table ---- */

static void count_row(const struct table_case *c, struct score *out)
{
    out->used += !c->skipped;
    out->skipped += c->skipped != NULL;
    out->assumed += !c->skipped && c->assumed;
    if (!c->skipped)
        return;
    int i = 0;
    while (i < out->n_reasons && strcmp(out->reasons[i].because, c->skipped) != 0)
        i++;
    BUG_ON(i == SCORE_REASONS);
    out->n_reasons = i == out->n_reasons ? i + 1 : out->n_reasons;
    out->reasons[i].because = c->skipped;
    out->reasons[i].count++;
}

int score_predict(const struct table *t, const struct constants *c, const struct told_rows *told,
                  struct score_row *rows, struct err *err)
{
    struct predict_room *room = malloc(sizeof *room);
    int rc = room ? 0 : err_set(err, ERR_NOMEM, "out of memory for predictions");
    for (size_t i = 0; i < t->n && rc == 0; i++) {
        const struct table_case *k = &t->cases[i];
        double v[CONSTANTS];
        table_told(told, (int64_t)i + 1, (int64_t)t->n);
        if (k->skipped)
            continue;
        constants_resolve(c, &k->cluster.device, &k->stack, v);
        if ((rc = predict_open(k, room, err)) == 0)
            rc = predict_case(k, v, true, room, &rows[i].p, err);
    }
    free(room);
    return rc;
}

int score_rows(const struct table *t, struct score_row *rows, struct score *out, struct err *err)
{
    struct score s = {.file = t->name, .spearman_mean = NAN, .spearman_worst = NAN,
                      .regret1_mean_pct = NAN, .regret3_mean_pct = NAN,
                      .trials_mean = NAN, .trials_worst = NAN};
    double *room = malloc((2 * t->n + 1) * sizeof *room);
    size_t *at = malloc((t->n + 1) * sizeof *at);
    bool *gone = malloc(t->n + 1);
    struct sweep sweep = {.t = t, .rows = rows, .at = at, .gone = gone, .measured = room};
    int rc;
    if (!room || !at || !gone) {
        rc = err_set(err, ERR_NOMEM, "out of memory for %s", t->name);
        goto out;
    }
    sweep.predicted = room + t->n;
    for (size_t i = 0; i < t->n; i++)
        count_row(&t->cases[i], &s);
    time_score(t, rows, room, &s);
    memory_score(t, rows, &s);
    if ((rc = sweeps_score(&sweep, &s, err)) < 0)
        goto out;
    *out = s;
out:
    free(room);
    free(at);
    free(gone);
    return rc;
}

/* Sets the standard deviations of rows with a time. Their predictions stand. */
static int intervals_set(const struct table *t, const struct constants *c, struct score_row *rows,
                         struct err *err)
{
    struct predict_room *room = malloc(sizeof *room);
    int rc = room ? 0 : err_set(err, ERR_NOMEM, "out of memory for intervals");
    for (size_t i = 0; i < t->n && rc == 0; i++) {
        const struct table_case *k = &t->cases[i];
        const struct layout *l = &rows[i].p.layout;
        double v[CONSTANTS];
        struct predicted same;
        struct interval_of of = {.constants = c, .v = v, .cluster = &k->cluster,
                                 .stack = &k->stack, .act = DTYPE_BF16, .fp8 = k->fp8};
        if (!is_timed(k))
            continue;
        constants_resolve(c, &k->cluster.device, &k->stack, v);
        if ((rc = predict_open(k, room, err)) < 0 ||
            (rc = predict_layout(k, l, v, false, room, &same, err)) < 0)
            break;
        rows[i].sd = interval_sd(&of, &room->work, l);
    }
    free(room);
    return rc;
}

int score_table(const struct table *t, const struct constants *c, const struct told_rows *told,
                struct score_row *rows, struct score *out, struct err *err)
{
    int rc;
    if ((rc = score_predict(t, c, told, rows, err)) < 0 ||
        (rc = intervals_set(t, c, rows, err)) < 0)
        return rc;
    return score_rows(t, rows, out, err);
}
