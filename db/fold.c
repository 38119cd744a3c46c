#include "db/fold.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"

enum kind { K_OTHER, K_SUBMIT, K_STARTED, K_STEP, K_SAVED, K_LOADED, K_ENDED };
enum cause { C_TRAIN, C_REPLAY, C_SAVE, C_LOAD, C_START, C_QUEUE, C_DOWN, MAX_CAUSES = 64 }; /* C_DOWN + i: i-th reason met */
static const char *const cause_names[] = {"train", "replay", "save", "load", "start", "queue"};

struct item { /* one event */
    enum kind kind;
    int domain;        /* index into domains */
    int64_t attempt;
    bool replayed, same_writer; /* same writer as the item before */
    double mono, wall, at; /* at: on the run's clock */
    double started_at, seconds; /* steps, saves, loads; NaN where unknown */
    int down;          /* K_ENDED: cause index */
};
struct domain { /* a clock: one boot of one host */
    const char *host, *boot;
    double offset;
    size_t n;
    bool settled;
};
struct fold {
    struct store *db;
    const char *run;
    struct arena arena;
    struct item *items;
    size_t n, cap;
    struct domain *domains;
    int n_domains;
    struct fold_interval *intervals;
    size_t n_intervals;
    const char *down[MAX_CAUSES - C_DOWN - 1];
    int n_down;
};
#define C_OTHER (MAX_CAUSES - 1)

/* ---- loading ---- */

static enum kind kind_of(const char *name)
{
    static const struct {
        const char *name;
        enum kind kind;
    } table[] = {
        {"submit_intent", K_SUBMIT}, {"submitted", K_SUBMIT},    {"attempt_started", K_STARTED}, {"step", K_STEP},
        {"ckpt_saved", K_SAVED},     {"ckpt_loaded", K_LOADED},  {"attempt_ended", K_ENDED},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(name, table[i].name) == 0)
            return table[i].kind;
    return K_OTHER;
}

static int domain_find(struct fold *f, const char *host, const char *boot, struct err *err)
{
    for (int i = 0; i < f->n_domains; i++)
        if (strcmp(f->domains[i].host, host) == 0 && strcmp(f->domains[i].boot, boot) == 0)
            return i;
    struct domain *more = realloc(f->domains, (size_t)(f->n_domains + 1) * sizeof *more);
    if (!more)
        return err_set(err, ERR_NOMEM, "out of memory folding run %s", f->run);
    f->domains = more;
    more[f->n_domains] = (struct domain){.host = arena_strdup(&f->arena, host), .boot = arena_strdup(&f->arena, boot)};
    if (!more[f->n_domains].host || !more[f->n_domains].boot)
        return err_set(err, ERR_NOMEM, "out of memory folding run %s", f->run);
    return f->n_domains++;
}

/* The cause index of "down:<reason>"; too many different reasons share the last. */
static int down_find(struct fold *f, const char *reason)
{
    for (int i = 0; i < f->n_down; i++)
        if (strcmp(f->down[i], reason) == 0)
            return C_DOWN + i;
    if (f->n_down < (int)ARRAY_LEN(f->down)) {
        const char *copy = arena_strdup(&f->arena, reason);
        f->down[f->n_down++] = copy ? copy : "unknown";
    }
    return C_DOWN + f->n_down - 1;
}

static int item_add(struct fold *f, struct store_query *q, int64_t writer_change, struct err *err)
{
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 256;
        struct item *more = realloc(f->items, cap * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "out of memory folding run %s", f->run);
        f->items = more;
        f->cap = cap;
    }
    int domain = domain_find(f, store_text(q, 2), store_text(q, 3), err);
    if (domain < 0)
        return domain;
    struct item *it = &f->items[f->n++];
    *it = (struct item){.kind = kind_of(store_text(q, 0)), .domain = domain, .attempt = store_int(q, 1),
                        .mono = store_num(q, 4), .wall = store_num(q, 5), .started_at = store_num(q, 6),
                        .seconds = store_num(q, 7), .replayed = store_int(q, 9), .same_writer = !writer_change};
    if (it->kind == K_ENDED)
        it->down = down_find(f, *store_text(q, 8) ? store_text(q, 8) : "unknown");
    f->domains[domain].n++;
    return 0;
}

/* Items in the order attempt, writer, sequence. */
static int items_load(struct fold *f, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(f->db,
        "SELECT e.kind, e.attempt, e.host, e.boot, e.mono, e.wall,"
        " CASE WHEN e.kind = 'step' THEN s.started_at WHEN e.kind GLOB 'ckpt_*' THEN json_extract(e.json, '$.started_at') END,"
        " CASE WHEN e.kind = 'step' THEN s.step_s WHEN e.kind GLOB 'ckpt_*' THEN json_extract(e.json, '$.seconds') END,"
        " CASE WHEN e.kind = 'attempt_ended' THEN json_extract(e.json, '$.cause') END, s.replayed,"
        " lag(e.writer) OVER w IS NOT e.writer OR lag(e.attempt) OVER w IS NOT e.attempt"
        " FROM event e LEFT JOIN (SELECT event, started_at, step_s,"
        "  row_number() OVER (PARTITION BY step ORDER BY attempt, seq, writer) > 1 AS replayed FROM step WHERE run = ?1) s"
        "  ON s.event = e.id WHERE e.run = ?1 WINDOW w AS (ORDER BY e.attempt, e.writer, e.seq) ORDER BY e.attempt, e.writer, e.seq",
        &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->run);
    while ((rc = store_next(q, err)) > 0)
        if ((rc = item_add(f, q, store_int(q, 10), err)) < 0)
            break;
    store_end(q);
    return rc;
}

/* ---- clocks ---- */

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int offsets_median(struct fold *f, struct err *err)
{
    double *d = malloc((f->n + 1) * sizeof *d);
    if (!d)
        return err_set(err, ERR_NOMEM, "out of memory folding run %s", f->run);
    for (int k = 0; k < f->n_domains; k++) {
        size_t n = 0;
        for (size_t i = 0; i < f->n; i++)
            if (f->items[i].domain == k)
                d[n++] = f->items[i].wall - f->items[i].mono;
        qsort(d, n, sizeof *d, compare_double);
        f->domains[k].offset = d[n / 2];
    }
    free(d);
    return 0;
}

/* First submission on its host's clock; -infinity when nothing was submitted. */
static double submit_time(const struct fold *f)
{
    double t = INFINITY;
    for (size_t i = 0; i < f->n; i++)
        if (f->items[i].kind == K_SUBMIT)
            t = fmin(t, f->items[i].mono + f->domains[f->items[i].domain].offset);
    return isinf(t) ? -INFINITY : t;
}

/* Attempt by attempt: a clock first met here must not place it before what came earlier. */
static void offsets_order(struct fold *f)
{
    double floor_at = submit_time(f);
    for (size_t first = 0, end; first < f->n; first = end) {
        int64_t attempt = f->items[first].attempt;
        for (end = first; end < f->n && f->items[end].attempt == attempt; end++)
            ;
        for (int k = 0; k < f->n_domains; k++) {
            double begin = INFINITY, offset = f->domains[k].offset;
            for (size_t i = first; i < end; i++)
                if (f->items[i].domain == k)
                    begin = fmin(begin, f->items[i].mono + offset);
            if (isinf(begin))
                continue;
            if (!f->domains[k].settled && attempt > 0 && begin < floor_at)
                f->domains[k].offset += floor_at - begin;
            f->domains[k].settled = true;
        }
        for (size_t i = first; i < end; i++) {
            struct item *it = &f->items[i];
            it->at = it->mono + f->domains[it->domain].offset;
        }
        for (size_t i = first; i < end && attempt > 0; i++)
            floor_at = fmax(floor_at, f->items[i].at);
    }
}

/* ---- intervals ---- */

static void interval_add(struct fold *f, double from, double to, int cause)
{
    if (to > from)
        f->intervals[f->n_intervals++] = (struct fold_interval){from, to, cause};
}

/* When an activity recorded by `it` after its end had begun. The wall clock says how long before the event that was, unless
 * it was stepped between: then the activity is taken to have ended just before its event. */
static double activity_begin(const struct item *it, double previous_at)
{
    double lag = it->wall - it->started_at;
    if (!(lag >= it->seconds) || it->at - lag < previous_at)
        lag = it->seconds;
    return it->at - lag;
}

static void activities_add(struct fold *f, double *first_step)
{
    static const int causes[] = {[K_STEP] = C_TRAIN, [K_SAVED] = C_SAVE, [K_LOADED] = C_LOAD};
    double previous_at = -INFINITY;
    for (size_t i = 0; i < f->n; i++) {
        const struct item *it = &f->items[i];
        if (!it->same_writer)
            previous_at = -INFINITY;
        if (it->kind != K_STEP && it->kind != K_SAVED && it->kind != K_LOADED)
            continue;
        if (!(it->seconds >= 0))
            continue;
        double begin = activity_begin(it, previous_at);
        interval_add(f, begin, begin + it->seconds, it->replayed ? C_REPLAY : causes[it->kind]);
        if (it->kind == K_STEP) {
            previous_at = it->at;
            first_step[i] = begin;
        }
    }
}

struct bounds { /* of one attempt */
    double begin, end, first_step;
    int down;
    bool ended;
};

static struct bounds attempt_bounds(struct fold *f, size_t first, size_t end, const double *first_step)
{
    struct bounds b = {INFINITY, -INFINITY, INFINITY, 0, false};
    double last = -INFINITY;
    for (size_t i = first; i < end; i++) {
        const struct item *it = &f->items[i];
        b.begin = fmin(b.begin, it->kind == K_STARTED ? it->at : fmin(it->at, first_step[i]));
        last = fmax(last, it->at);
        b.first_step = fmin(b.first_step, first_step[i]);
        if (it->kind == K_ENDED && it->at > b.end) {
            b.end = it->at;
            b.down = it->down;
            b.ended = true;
        }
    }
    if (!b.ended) {
        b.end = last;
        b.down = down_find(f, "unknown");
    }
    return b;
}

/* queue, start, down: what an attempt's place among the others says. `until` is the last event's time. */
static void phases_add(struct fold *f, double submitted, double until, const double *first_step)
{
    struct bounds before = {.begin = NAN};
    size_t first = 0, end;
    while (first < f->n && f->items[first].attempt < 1)
        first++;
    for (; first < f->n; first = end) {
        for (end = first; end < f->n && f->items[end].attempt == f->items[first].attempt; end++)
            ;
        struct bounds b = attempt_bounds(f, first, end, first_step);
        if (!isnan(before.begin))
            interval_add(f, before.end, b.begin, before.down);
        else if (isfinite(submitted))
            interval_add(f, submitted, b.begin, C_QUEUE);
        interval_add(f, b.begin, fmin(b.first_step, b.end), C_START);
        before = b;
    }
    if (isnan(before.begin) && isfinite(submitted))
        interval_add(f, submitted, until, C_QUEUE);
    if (!isnan(before.begin) && before.ended && strcmp(f->down[before.down - C_DOWN], "done") &&
        strcmp(f->down[before.down - C_DOWN], "cancel"))
        interval_add(f, before.end, until, before.down);
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

size_t fold_sweep(const struct fold_interval *in, size_t n, double from, double to, int none, struct fold_edge *edges,
                  struct fold_span *out)
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

/* ---- writing ---- */

static int clocks_write(struct fold *f, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(f->db, "INSERT INTO run_clock(run, host, boot, offset_s) VALUES (?1, ?2, ?3, ?4)", &q, err);
    for (int i = 0; i < f->n_domains && rc == 0; i++) {
        store_bind_text(q, 1, f->run);
        store_bind_text(q, 2, f->domains[i].host);
        store_bind_text(q, 3, f->domains[i].boot);
        store_bind_num(q, 4, f->domains[i].offset);
        rc = store_next(q, err);
        store_reset(q);
    }
    store_end(q);
    return rc;
}

static int spans_write(struct fold *f, const struct fold_span *spans, size_t n, struct err *err)
{
    struct store_query *q = NULL;
    char name[96];
    int rc = store_ask(f->db, "INSERT INTO span(run, n, cause, from_at, to_at, seconds) VALUES (?1, ?2, ?3, ?4, ?5, ?6)", &q, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        int c = spans[i].cause;
        snprintf(name, sizeof name, "%s%s", c < C_DOWN ? cause_names[c] : c == C_OTHER ? "other" : "down:",
                 c >= C_DOWN && c != C_OTHER ? f->down[c - C_DOWN] : "");
        store_bind_text(q, 1, f->run);
        store_bind_int(q, 2, (int64_t)i);
        store_bind_text(q, 3, name);
        store_bind_num(q, 4, spans[i].from);
        store_bind_num(q, 5, spans[i].to);
        store_bind_num(q, 6, spans[i].to - spans[i].from);
        rc = store_next(q, err);
        store_reset(q);
    }
    store_end(q);
    return rc;
}

static int spans_make(struct fold *f, struct err *err)
{
    size_t max = 4 * f->n + 8; /* an activity an event; queue, start and two downs an attempt */
    double submitted = submit_time(f), from = INFINITY, until = -INFINITY;
    double *first_step = malloc((f->n + 1) * sizeof *first_step); /* when the step of item i began; infinity */
    struct fold_edge *edges = malloc(2 * max * sizeof *edges);
    struct fold_span *spans = malloc((2 * max + 1) * sizeof *spans);
    f->intervals = malloc(max * sizeof *f->intervals);
    int rc = 0;
    if (!first_step || !edges || !spans || !f->intervals) {
        rc = err_set(err, ERR_NOMEM, "out of memory folding run %s", f->run);
        goto out;
    }
    for (size_t i = 0; i < f->n; i++) {
        first_step[i] = INFINITY;
        from = fmin(from, f->items[i].at);
        until = fmax(until, f->items[i].at);
    }
    activities_add(f, first_step);
    phases_add(f, submitted, until, first_step);
    size_t n = fold_sweep(f->intervals, f->n_intervals, isfinite(submitted) ? submitted : from, until, C_OTHER, edges, spans);
    rc = spans_write(f, spans, n, err);
out:
    free(first_step);
    free(edges);
    free(spans);
    free(f->intervals);
    return rc;
}

/* Runs have attempts or a submission; tunings and curations have neither, and no spans. */
static bool is_run(const struct fold *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->items[i].attempt > 0 || f->items[i].kind == K_SUBMIT)
            return true;
    return false;
}

static int rows_drop(struct store *db, const char *run, struct err *err)
{
    static const char *const sql[] = {"DELETE FROM span WHERE run = ?1", "DELETE FROM run_clock WHERE run = ?1"};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(sql) && rc == 0; i++) {
        struct store_query *q = NULL;
        if ((rc = store_ask(db, sql[i], &q, err)) == 0) {
            store_bind_text(q, 1, run);
            rc = store_next(q, err);
        }
        store_end(q);
    }
    return rc;
}

int fold_run(struct store *db, const char *run, struct err *err)
{
    struct fold f = {.db = db, .run = run};
    int rc = rows_drop(db, run, err);
    if (rc == 0)
        rc = items_load(&f, err);
    if (rc == 0)
        rc = offsets_median(&f, err);
    if (rc == 0) {
        offsets_order(&f);
        rc = clocks_write(&f, err);
    }
    if (rc == 0 && is_run(&f))
        rc = spans_make(&f, err);
    arena_release(&f.arena);
    free(f.items);
    free(f.domains);
    return rc;
}
