/* This file keeps the table of a run's time by cause up to date while the run goes on.
 *
 * Two kinds of intervals say how time was spent. Activities (steps, saves, loads, suspensions) come
 * with their events and never change. Phases (queue, start, down) follow from the attempts' bounds,
 * are few, and are listed anew each time. Activities come before phases in the order of causes. So
 * the rows themselves say which activity holds at a time, and new activities are laid over them.
 *
 * Only a window of the rows is read and written: from the row before the first change to the row
 * after the last. Nothing changed at its two ends, so the new rows continue the old ones as if all
 * had been cut together.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "db/fold_priv.h"

static const char *const cause_names[] = {"suspended", "train", "replay", "save",
                                          "load",      "start", "queue"};

/* ---- phases ---- */

static void phase_add(struct fold_phases *p, double from, double to, int cause, const char *down)
{
    if (to > from)
        p->list[p->n++] = (struct fold_phase){from, to, cause, down};
}

static const char *attempt_down(const struct fold_attempt *a)
{
    return a->end_writer ? a->down : "unknown";
}
static double attempt_begin(const struct fold_attempt *a)
{
    return isfinite(a->started) ? a->started : a->begin;
}
static double attempt_end(const struct fold_attempt *a) { return a->end_writer ? a->end : a->last; }

int fold_phases_make(const struct fold *f, double until, struct fold_phases *out, struct err *err)
{
    double submitted = fold_clocks_submitted(&f->clocks);
    const struct fold_attempt *before = NULL;
    *out = (struct fold_phases){malloc((2 * f->n_attempts + 2) * sizeof *out->list), 0};
    if (!out->list)
        return fold_no_memory(f, err);
    for (size_t i = 0; i < f->n_attempts; i++) {
        const struct fold_attempt *a = &f->attempts[i];
        double begin = attempt_begin(a);
        if (a->number < 1)
            continue;
        if (before)
            phase_add(out, attempt_end(before), begin, C_DOWN, attempt_down(before));
        else if (isfinite(submitted))
            phase_add(out, submitted, begin, C_QUEUE, NULL);
        phase_add(out, begin, fmin(a->first_step, attempt_end(a)), C_START, NULL);
        before = a;
    }
    if (!before && isfinite(submitted))
        phase_add(out, submitted, until, C_QUEUE, NULL);
    if (before && before->end_writer && strcmp(before->down, "done") != 0 &&
        strcmp(before->down, "cancel") != 0)
        phase_add(out, before->end, until, C_DOWN, before->down);
    return 0;
}

static bool phase_same(const struct fold_phase *a, const struct fold_phase *b)
{
    return a->from == b->from && a->to == b->to && a->cause == b->cause &&
           (a->down == b->down || strcmp(a->down, b->down) == 0);
}

/* ---- the window ---- */

struct window {
    double from, to;
};

static void window_hold(struct window *w, double from, double to)
{
    w->from = fmin(w->from, from);
    w->to = fmax(w->to, to);
}

/* Widens the window to contain all phases except those that both lists have in common at their
 * beginnings and at their ends. */
static void window_hold_phases(struct window *w, const struct fold_phases *a,
                               const struct fold_phases *b)
{
    size_t head = 0, tail = 0, least = a->n < b->n ? a->n : b->n;
    while (head < least && phase_same(&a->list[head], &b->list[head]))
        head++;
    while (tail < least - head && phase_same(&a->list[a->n - 1 - tail], &b->list[b->n - 1 - tail]))
        tail++;
    for (size_t i = head; i < a->n - tail; i++)
        window_hold(w, a->list[i].from, a->list[i].to);
    for (size_t i = head; i < b->n - tail; i++)
        window_hold(w, b->list[i].from, b->list[i].to);
}

/* Queries one row and returns its first column in *out, or `otherwise` if there is no row. */
static int edge_ask(struct fold *f, int query, double at, double otherwise, double *out,
                    struct err *err)
{
    struct store_query *q = f->q[query];
    store_bind_text(q, 1, f->run);
    store_bind_num(q, 2, at);
    int rc = store_next(q, err);
    *out = rc == 1 ? store_num(q, 0) : otherwise;
    store_reset(q);
    return rc < 0 ? rc : 0;
}

/* Clips the window to the run's time, and widens it to whole rows. */
static int window_settle(struct fold *f, struct window *w, struct err *err)
{
    double to = f->until;
    w->from = fmax(w->from, f->from);
    w->to = fmin(w->to, f->until);
    if (!(w->to > w->from))
        return 0;
    int rc;
    if ((rc = edge_ask(f, Q_SPAN_FIRST, w->from, f->from, &w->from, err)) < 0)
        return rc;
    if (w->to < f->done_to && (rc = edge_ask(f, Q_SPAN_LAST, w->to, f->until, &to, err)) < 0)
        return rc;
    w->to = to;
    return 0;
}

/* ---- cutting it anew ---- */

struct cut {
    struct fold_interval *in;
    size_t n, cap;
    const char *down[C_OTHER - C_DOWN];
    int n_down;
};

static int cut_add(struct cut *c, double from, double to, int cause, struct err *err)
{
    int rc;
    if ((rc = list_grow((void **)&c->in, c->n, &c->cap, sizeof *c->in, "cutting a run's time",
                        err)) < 0)
        return rc;
    c->in[c->n++] = (struct fold_interval){from, to, cause};
    return 0;
}

/* Lists the reasons for being down in alphabetical order, so that which of two comes first does not
 * depend on the other reasons. If there are too many different ones, those of the last phases are
 * left out, and count as `other`. */
static void down_list(struct cut *c, const struct fold_phases *phases)
{
    for (size_t i = 0; i < phases->n; i++) {
        const char *reason = phases->list[i].down;
        int at = c->n_down;
        while (reason && at > 0 && strcmp(c->down[at - 1], reason) > 0)
            at--;
        if (!reason || (at > 0 && strcmp(c->down[at - 1], reason) == 0) ||
            c->n_down == (int)ARRAY_LEN(c->down))
            continue;
        memmove(c->down + at + 1, c->down + at, (size_t)(c->n_down - at) * sizeof *c->down);
        c->down[at] = reason;
        c->n_down++;
    }
}

static int down_find(const struct cut *c, const char *reason)
{
    for (int i = 0; i < c->n_down; i++)
        if (strcmp(c->down[i], reason) == 0)
            return C_DOWN + i;
    return C_OTHER;
}

/* Adds the activities in the window's rows. */
static int rows_read(struct fold *f, const struct window *w, struct cut *c, struct err *err)
{
    struct store_query *q = f->q[Q_SPAN_READ];
    int rc;
    store_bind_text(q, 1, f->run);
    store_bind_num(q, 2, w->from);
    store_bind_num(q, 3, w->to);
    while ((rc = store_next(q, err)) > 0) {
        const char *cause = store_text(q, 2);
        for (int i = C_SUSPENDED; i <= C_LOAD && rc >= 0; i++)
            if (strcmp(cause, cause_names[i]) == 0)
                rc = cut_add(c, store_num(q, 0), store_num(q, 1), i, err);
        if (rc < 0)
            break;
    }
    store_reset(q);
    return rc;
}

static int rows_drop(struct fold *f, const struct window *w, struct err *err)
{
    struct store_query *q = f->q[Q_SPAN_DROP];
    store_bind_text(q, 1, f->run);
    store_bind_num(q, 2, w->from);
    store_bind_num(q, 3, w->to);
    int rc = store_next(q, err);
    store_reset(q);
    return rc;
}

static int rows_add(struct fold *f, const struct cut *c, const struct fold_span *spans, size_t n,
                    struct err *err)
{
    struct store_query *q = f->q[Q_SPAN_ADD];
    char name[96];
    int rc;
    for (size_t i = 0; i < n; i++) {
        int cause = spans[i].cause;
        snprintf(name, sizeof name, "%s%s",
                 cause < C_DOWN     ? cause_names[cause]
                 : cause == C_OTHER ? "other"
                                    : "down:",
                 cause >= C_DOWN && cause != C_OTHER ? c->down[cause - C_DOWN] : "");
        store_bind_text(q, 1, f->run);
        store_bind_num(q, 2, spans[i].from);
        store_bind_num(q, 3, spans[i].to);
        store_bind_text(q, 4, name);
        store_bind_num(q, 5, spans[i].to - spans[i].from);
        rc = store_next(q, err);
        store_reset(q);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int cut_fill(struct fold *f, const struct window *w, const struct fold_phases *phases,
                    bool keep, struct cut *c, struct err *err)
{
    int rc;
    if (keep && (rc = rows_read(f, w, c, err)) < 0)
        return rc;
    down_list(c, phases);
    for (size_t i = 0; i < f->n_acts; i++)
        if ((rc = cut_add(c, f->acts[i].from, f->acts[i].to, f->acts[i].cause, err)) < 0)
            return rc;
    for (size_t i = 0; i < phases->n; i++) {
        const struct fold_phase *p = &phases->list[i];
        int cause = p->cause == C_DOWN ? down_find(c, p->down) : p->cause;
        if (p->to > w->from && p->from < w->to &&
            (rc = cut_add(c, p->from, p->to, cause, err)) < 0)
            return rc;
    }
    return 0;
}

/* Cuts the window anew. `keep` says whether the activities in its rows stay. */
static int window_cut(struct fold *f, const struct window *w, const struct fold_phases *phases,
                      bool keep, struct err *err)
{
    struct cut c = {0};
    struct fold_edge *edges = NULL;
    struct fold_span *spans = NULL;
    int rc;
    if ((rc = cut_fill(f, w, phases, keep, &c, err)) < 0)
        goto out;
    edges = malloc((2 * c.n + 1) * sizeof *edges);
    spans = malloc((2 * c.n + 1) * sizeof *spans);
    if (!edges || !spans) {
        rc = fold_no_memory(f, err);
        goto out;
    }
    size_t n = fold_sweep(c.in, c.n, w->from, w->to, C_OTHER, edges, spans);
    if ((rc = rows_drop(f, w, err)) < 0)
        goto out;
    rc = rows_add(f, &c, spans, n, err);
out:
    free(edges);
    free(spans);
    free(c.in);
    return rc;
}

int fold_spans_write(struct fold *f, struct err *err)
{
    struct window w = {INFINITY, -INFINITY};
    struct fold_phases now;
    int rc = f->is_run ? fold_phases_make(f, f->until, &now, err) : 0;
    if (rc < 0 || !f->is_run)
        return rc;
    for (size_t i = 0; i < f->n_acts; i++)
        window_hold(&w, f->acts[i].from, f->acts[i].to);
    window_hold_phases(&w, &f->phases, &now);
    if (f->done_to < f->until)
        window_hold(&w, isfinite(f->done_to) ? f->done_to : f->from, f->until);
    if ((rc = window_settle(f, &w, err)) < 0)
        goto out;
    if (w.to > w.from && (rc = window_cut(f, &w, &now, true, err)) < 0)
        goto out;
    f->n_acts = 0;
    f->done_to = f->until;
out:
    free(f->phases.list);
    f->phases = now;
    return rc;
}

int fold_spans_strip(struct fold *f, const struct fold_attempt *a, struct err *err)
{
    struct window w = {a->acts_from, fmin(a->acts_to, f->done_to)};
    int rc;
    if (!f->is_run)
        return 0;
    if ((rc = window_settle(f, &w, err)) < 0)
        return rc;
    return w.to > w.from ? window_cut(f, &w, &f->phases, false, err) : 0;
}

int fold_spans_open(struct fold *f, struct err *err)
{
    static const char *const sql[N_SPAN_QUERIES] = {
        [Q_SPAN_FIRST] = "SELECT from_at FROM span WHERE run = ?1 AND from_at < ?2"
                         " ORDER BY from_at DESC LIMIT 1",
        [Q_SPAN_LAST] =
            "SELECT to_at FROM span WHERE run = ?1 AND from_at <= ?2 ORDER BY from_at DESC LIMIT 1",
        [Q_SPAN_READ] = "SELECT from_at, to_at, cause FROM span"
                        " WHERE run = ?1 AND from_at >= ?2 AND from_at < ?3",
        [Q_SPAN_DROP] = "DELETE FROM span WHERE run = ?1 AND from_at >= ?2 AND from_at < ?3",
        [Q_SPAN_ADD] =
            "INSERT INTO span(run, from_at, to_at, cause, seconds) VALUES (?1, ?2, ?3, ?4, ?5)",
    };
    int rc;
    for (int i = 0; i < N_SPAN_QUERIES; i++)
        if ((rc = store_ask(f->db, sql[i], &f->q[i], err)) < 0)
            return rc;
    return 0;
}

void fold_spans_close(struct fold *f)
{
    for (int i = 0; i < N_SPAN_QUERIES; i++)
        store_end(f->q[i]);
    free(f->phases.list);
}

/* ---- the sweep ---- */

static int compare_edge(const void *a, const void *b)
{
    const struct fold_edge *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int cause_now(const int *counts, int none)
{
    for (int c = 0; c < MAX_CAUSES; c++)
        if (counts[c] > 0)
            return c;
    return none;
}

size_t fold_sweep(const struct fold_interval *in, size_t n, double from, double to, int none,
                  struct fold_edge *edges, struct fold_span *out)
{
    int counts[MAX_CAUSES] = {0};
    size_t n_edges = 0, n_out = 0;
    for (size_t i = 0; i < n; i++) {
        double a = fmax(in[i].from, from), b = fmin(in[i].to, to);
        if (!(b > a))
            continue;
        edges[n_edges++] = (struct fold_edge){a, in[i].cause, 1};
        edges[n_edges++] = (struct fold_edge){b, in[i].cause, -1};
    }
    qsort(edges, n_edges, sizeof *edges, compare_edge);
    double at = from;
    for (size_t i = 0; i <= n_edges; i++) {
        double next = i < n_edges ? edges[i].at : to;
        if (next > at) {
            int cause = cause_now(counts, none);
            if (n_out && out[n_out - 1].cause == cause)
                out[n_out - 1].to = next;
            else
                out[n_out++] = (struct fold_span){at, next, cause};
            at = next;
        }
        if (i < n_edges)
            counts[edges[i].cause] += edges[i].delta;
    }
    return n_out;
}
