/* This file folds one run's new events into its rows.
 *
 * The tables fold* keep the state from which the rows of run_clock and span follow. They grow with
 * attempts, writers and clocks, not with events. An ingest reads only its own new events, in two
 * passes. The first updates clocks and numbering. The second, which knows the clocks, turns events
 * into activities and lays them over the existing rows (db/fold_span.c).
 *
 * This gives the same rows as folding all events at once, unless a new event changes the result of
 * events that are already folded. There are three such cases; each is rare, and the first pass
 * detects each. In the first two the run is folded again from its first event:
 *     a clock's offset changed, or the beginning of an attempt on it or of the run, or the run got
 *     its first attempt or submission (the wall clock was stepped; an older log arrived late)
 *     a new event comes before a folded one of the same writer (a hole in a log was filled; a copy
 *     of the log held more)
 * The ingester also requests this when it has removed events. In the third only some attempts are:
 *     a new step comes before another execution of the same step that is already folded, which
 *     therefore is a replay
 * A row does not say whose activity it holds. So the attempt of that execution is folded again with
 * all attempts whose activities meet its own in time, and so on: their activities are taken out of
 * the rows, and all their events are read by the second pass.
 */
#include "db/fold.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "db/fold_priv.h"
#include "fold/end.h"

enum { ACTS = 4096, WHOLE = 1 };
static const char folding[] = "folding a run's events";

int fold_no_memory(const struct fold *f, struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory folding run %s", f->run);
}

/* ---- reading events ---- */

static enum fold_kind kind_of(const char *name)
{
    static const struct {
        const char *name;
        enum fold_kind kind;
    } table[] = {
        {"step", FOLD_STEP},           {"ckpt_saved", FOLD_SAVED},
        {"ckpt_loaded", FOLD_LOADED},  {"attempt_started", FOLD_STARTED},
        {"suspended", FOLD_SUSPENDED}, {"attempt_ended", FOLD_ENDED},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(name, table[i].name) == 0)
            return table[i].kind;
    return FOLD_OTHER;
}

/* Parameters ?2 and ?3 are the ids of the first and last new event; they are not bound when the
 * whole run is folded. The plus sign makes SQLite search by id instead of reading the whole run. */
#define COLUMNS "SELECT kind, attempt, writer, seq, host, boot, mono, wall"
#define TIMES ", started_at, seconds, cause, replayed, ended_ago_s, ended_at FROM fold_event"
#define NEWS " WHERE id BETWEEN ?2 AND ?3 AND +run = ?1 ORDER BY id"
#define ALL " WHERE run = ?1 ORDER BY attempt, writer, seq"
/* These are the events of attempt ?2. */
#define AGAIN " WHERE run = ?1 AND attempt = ?2 ORDER BY writer, seq"
/* Selects, besides the columns, the attempt of the first of those events that are already folded
 * (their ids are below ?2) and are later executions of the same step, in the order of attempt, seq
 * and writer; NULL if there is none. */
#define OVERTAKES \
    ", (SELECT o.attempt FROM step s JOIN step o ON o.run = s.run AND o.step = s.step" \
    " WHERE s.event = e.id AND o.event < ?2" \
    " AND (o.attempt, o.seq, o.writer) > (s.attempt, s.seq, s.writer)" \
    " ORDER BY o.attempt, o.seq, o.writer LIMIT 1) FROM event e"

static void event_read(struct store_query *q, bool times, struct fold_event *e)
{
    *e = (struct fold_event){.kind = kind_of(store_text(q, 0)),
                             .attempt = store_int(q, 1),
                             .writer = store_text(q, 2),
                             .seq = store_int(q, 3),
                             .clocks = {.kind = store_text(q, 0),
                                        .host = store_text(q, 4),
                                        .boot = store_text(q, 5),
                                        .mono = store_num(q, 6),
                                        .wall = store_num(q, 7)}};
    if (times) {
        e->started_at = store_num(q, 8);
        e->seconds = store_num(q, 9);
        e->cause = *store_text(q, 10) ? store_text(q, 10) : "unknown";
        e->replayed = store_int(q, 11);
        e->ended_ago_s = store_num(q, 12);
        e->ended_at = store_num(q, 13);
    } else {
        e->overtakes = store_column_type(q, 8) != STORE_NULL;
        e->overtaken = store_int(q, 8);
    }
}

typedef int event_fn(struct fold *f, const struct fold_event *e, struct err *err);

/* Calls fn for each event until it returns something other than 0. Returns that value, or 0.
 * The n numbers are parameters from ?2 on. */
static int events_each(struct fold *f, const char *sql, const int64_t *numbers, int n, bool times,
                       event_fn *fn, struct err *err)
{
    struct store_query *q = NULL;
    struct fold_event e;
    int rc = store_ask(f->db, sql, &q, err), result = 0;
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->run);
    for (int i = 0; i < n; i++)
        store_bind_int(q, 2 + i, numbers[i]);
    while (result == 0 && (rc = store_next(q, err)) > 0) {
        event_read(q, times, &e);
        result = fn(f, &e, err);
    }
    store_end(q);
    return rc < 0 ? rc : result;
}

/* ---- the first pass: clocks and numbering ---- */

static int writer_get(struct fold *f, int64_t attempt, const char *name, struct fold_writer **out,
                      struct err *err)
{
    for (size_t i = f->n_writers; i-- > 0;)
        if (f->writers[i].attempt == attempt && strcmp(f->writers[i].name, name) == 0) {
            *out = &f->writers[i];
            return 0;
        }
    int rc = list_grow((void **)&f->writers, f->n_writers, &f->cap_writers, sizeof *f->writers,
                       folding, err);
    if (rc < 0)
        return rc;
    struct fold_writer w = {.attempt = attempt,
                            .last_seq = INT64_MIN,
                            .name = arena_strdup(&f->arena, name),
                            .step_at = -INFINITY};
    if (!w.name)
        return fold_no_memory(f, err);
    f->writers[f->n_writers] = w;
    *out = &f->writers[f->n_writers++];
    return 0;
}

static int attempt_get(struct fold *f, int64_t number, struct fold_attempt **out, struct err *err)
{
    size_t at = f->n_attempts;
    while (at > 0 && f->attempts[at - 1].number >= number)
        at--;
    if (at == f->n_attempts || f->attempts[at].number != number) {
        int rc = list_grow((void **)&f->attempts, f->n_attempts, &f->cap_attempts,
                           sizeof *f->attempts, folding, err);
        if (rc < 0)
            return rc;
        memmove(f->attempts + at + 1, f->attempts + at, (f->n_attempts - at) * sizeof *f->attempts);
        f->attempts[at] = (struct fold_attempt){.number = number,
                                                .begin = INFINITY,
                                                .started = INFINITY,
                                                .first_step = INFINITY,
                                                .last = -INFINITY,
                                                .end = -INFINITY,
                                                .acts_from = INFINITY,
                                                .acts_to = -INFINITY};
        f->n_attempts++;
    }
    *out = &f->attempts[at];
    return 0;
}

static int clock_take(struct fold *f, const struct fold_event *e, struct err *err)
{
    struct fold_writer *w = NULL;
    struct fold_attempt *overtaken = NULL;
    struct fold_time at;
    int rc;
    if ((rc = writer_get(f, e->attempt, e->writer, &w, err)) < 0)
        return rc;
    if (e->seq <= w->last_seq)
        return WHOLE;
    if (e->overtakes && (rc = attempt_get(f, e->overtaken, &overtaken, err)) < 0)
        return rc;
    if (overtaken)
        overtaken->again = true;
    w->last_seq = e->seq;
    w->dirty = true;
    return fold_clocks_add(&f->clocks, &e->clocks, e->attempt, &at, err);
}

/* ---- the second pass: attempts and activities ---- */

/* Returns when an activity began, which `e` recorded after its end. A writer that read about the
 * activity in a log says, by its own clock, how long ago it ended. Otherwise the wall clock says
 * how long before the event it began, but not before its writer's previous step. */
static double activity_begin(const struct fold_event *e, double at, double previous_at)
{
    if (e->ended_ago_s >= 0)
        return at - e->ended_ago_s - e->seconds;
    return at - fold_ago_s(e->clocks.wall - e->started_at, e->seconds, at - previous_at);
}

static int end_take(struct fold *f, struct fold_attempt *a, const struct fold_event *e, double at,
                    struct err *err)
{
    struct fold_end known = {.writer = a->end_writer, .seq = a->end_seq};
    struct fold_end told = {.writer = e->writer, .seq = e->seq};
    if (a->end_writer && !fold_end_counts(&told, &known))
        return 0;
    a->end = e->ended_at > 0 ? e->ended_at : at;
    a->end_seq = e->seq;
    a->end_writer = arena_strdup(&f->arena, e->writer);
    a->down = arena_strdup(&f->arena, e->cause);
    return a->end_writer && a->down ? 0 : fold_no_memory(f, err);
}

static int activity_take(struct fold *f, struct fold_attempt *a, const struct fold_event *e,
                         int clock, double at, double *begin, struct err *err)
{
    static const int causes[] = {
        [FOLD_STEP] = C_TRAIN, [FOLD_SAVED] = C_SAVE, [FOLD_LOADED] = C_LOAD,
        [FOLD_SUSPENDED] = C_SUSPENDED};
    struct fold_writer *w = NULL;
    int rc = writer_get(f, e->attempt, e->writer, &w, err);
    if (rc < 0)
        return rc;
    double first_at = fold_clocks_first(&f->clocks, e->attempt, clock);
    *begin = activity_begin(e, at, fmax(w->step_at, first_at));
    double end = fmin(*begin + e->seconds, at);
    if (end > *begin) {
        f->acts[f->n_acts++] = (struct fold_interval){*begin, end,
                                                      e->replayed ? C_REPLAY : causes[e->kind]};
        a->acts_from = fmin(a->acts_from, *begin);
        a->acts_to = fmax(a->acts_to, end);
    }
    if (e->kind == FOLD_STEP)
        w->step_at = at;
    return 0;
}

static int event_take(struct fold *f, const struct fold_event *e, struct err *err)
{
    struct fold_attempt *a = NULL;
    bool activity = (e->kind == FOLD_STEP || e->kind == FOLD_SAVED || e->kind == FOLD_LOADED ||
                     e->kind == FOLD_SUSPENDED) &&
                    e->seconds >= 0;
    bool full = f->n_acts == ACTS || e->attempt != f->acts_attempt;
    int rc, clock;
    if ((rc = fold_clock_get(&f->clocks, e->clocks.host, e->clocks.boot, &clock, err)) < 0)
        return rc;
    double begin = INFINITY,
           at = fold_clocks_utc(&f->clocks, clock,
                                clock == FOLD_NO_CLOCK ? e->clocks.wall : e->clocks.mono);
    if (full && (rc = fold_spans_write(f, err)) < 0)
        return rc;
    f->acts_attempt = e->attempt;
    if ((rc = attempt_get(f, e->attempt, &a, err)) < 0)
        return rc;
    if (activity && (rc = activity_take(f, a, e, clock, at, &begin, err)) < 0)
        return rc;
    double first = e->kind == FOLD_STEP ? begin : INFINITY;
    a->begin = fmin(a->begin, fmin(at, first));
    if (e->kind == FOLD_STARTED)
        a->started = fmin(a->started, at);
    a->first_step = fmin(a->first_step, first);
    a->last = fmax(a->last, at);
    a->dirty = true;
    return e->kind == FOLD_ENDED ? end_take(f, a, e, at, err) : 0;
}

/* ---- what is kept ---- */

static int attempts_load(struct fold *f, struct err *err)
{
    struct store_query *q = NULL;
    struct fold_attempt *a;
    int rc = store_ask(f->db,
                       "SELECT attempt, begin_at, first_step_at, last_at, ended_at, ended_writer,"
                       " ended_seq, cause, started_at, acts_from, acts_to FROM fold_attempt"
                       " WHERE run = ?1 ORDER BY attempt",
                       &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->run);
    while ((rc = store_next(q, err)) > 0) {
        if ((rc = attempt_get(f, store_int(q, 0), &a, err)) < 0)
            break;
        *a = (struct fold_attempt){.number = a->number, .begin = store_num(q, 1),
                                   .first_step = store_num(q, 2), .last = store_num(q, 3),
                                   .end = store_num(q, 4), .end_seq = store_int(q, 6),
                                   .started = store_num(q, 8), .acts_from = store_num(q, 9),
                                   .acts_to = store_num(q, 10)};
        if (store_column_type(q, 5) == STORE_NULL)
            continue;
        a->end_writer = arena_strdup(&f->arena, store_text(q, 5));
        a->down = arena_strdup(&f->arena, store_text(q, 7));
        if (!a->end_writer || !a->down) {
            rc = fold_no_memory(f, err);
            break;
        }
    }
    store_end(q);
    return rc;
}

static int writers_load(struct fold *f, struct err *err)
{
    struct store_query *q = NULL;
    struct fold_writer *w;
    int rc = store_ask(f->db,
                       "SELECT attempt, writer, last_seq, step_at FROM fold_writer"
                       " WHERE run = ?1 ORDER BY attempt",
                       &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->run);
    while ((rc = store_next(q, err)) > 0) {
        if ((rc = writer_get(f, store_int(q, 0), store_text(q, 1), &w, err)) < 0)
            break;
        w->last_seq = store_int(q, 2);
        w->step_at = store_num(q, 3);
    }
    store_end(q);
    return rc;
}

/* Loads the state that the last fold of this run kept. f->known says whether there is any. */
static int kept_load(struct fold *f, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(f->db, "SELECT from_at, until_at FROM fold WHERE run = ?1", &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->run);
    if ((rc = store_next(q, err)) > 0) {
        f->known = true;
        f->from = store_num(q, 0);
        f->done_to = store_num(q, 1);
    }
    store_end(q);
    if (rc <= 0)
        return rc;
    if ((rc = fold_clocks_load(f, err)) < 0)
        return rc;
    if ((rc = attempts_load(f, err)) < 0)
        return rc;
    return writers_load(f, err);
}

static int attempts_save(struct fold *f, struct err *err)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO fold_attempt(run, attempt, begin_at, first_step_at, last_at,"
        " ended_at, ended_writer, ended_seq, cause, started_at, acts_from, acts_to)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(f->db, sql, &q, err)) < 0)
        return rc;
    for (size_t i = 0; i < f->n_attempts; i++) {
        const struct fold_attempt *a = &f->attempts[i];
        if (!a->dirty)
            continue;
        const double times[] = {a->begin, a->first_step, a->last, a->end};
        store_bind_text(q, 1, f->run);
        store_bind_int(q, 2, a->number);
        for (int k = 0; k < 4; k++)
            store_bind_num(q, 3 + k, times[k]);
        store_bind_text(q, 7, a->end_writer);
        store_bind_int(q, 8, a->end_seq);
        store_bind_text(q, 9, a->down);
        store_bind_num(q, 10, a->started);
        store_bind_num(q, 11, a->acts_from);
        store_bind_num(q, 12, a->acts_to);
        rc = store_next(q, err);
        store_reset(q);
        if (rc < 0)
            break;
    }
    store_end(q);
    return rc;
}

static int writers_save(struct fold *f, struct err *err)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO fold_writer(run, attempt, writer, last_seq, step_at)"
        " VALUES (?1, ?2, ?3, ?4, ?5)";
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(f->db, sql, &q, err)) < 0)
        return rc;
    for (size_t i = 0; i < f->n_writers; i++) {
        if (!f->writers[i].dirty)
            continue;
        store_bind_text(q, 1, f->run);
        store_bind_int(q, 2, f->writers[i].attempt);
        store_bind_text(q, 3, f->writers[i].name);
        store_bind_int(q, 4, f->writers[i].last_seq);
        store_bind_num(q, 5, f->writers[i].step_at);
        rc = store_next(q, err);
        store_reset(q);
        if (rc < 0)
            break;
    }
    store_end(q);
    return rc;
}

static int kept_save(struct fold *f, struct err *err)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO fold(run, from_at, until_at) VALUES (?1, ?2, ?3)";
    struct store_query *q = NULL;
    int rc;
    if ((rc = fold_clocks_save(f, err)) < 0)
        return rc;
    if ((rc = attempts_save(f, err)) < 0)
        return rc;
    if ((rc = writers_save(f, err)) < 0)
        return rc;
    if ((rc = store_ask(f->db, sql, &q, err)) < 0)
        return rc;
    store_bind_text(q, 1, f->run);
    store_bind_num(q, 2, f->from);
    store_bind_num(q, 3, f->done_to);
    rc = store_next(q, err);
    store_end(q);
    return rc;
}

static int kept_drop(struct store *db, const char *run, struct err *err)
{
    static const char *const sql[] = {
        "DELETE FROM span WHERE run = ?1",        "DELETE FROM run_clock WHERE run = ?1",
        "DELETE FROM fold WHERE run = ?1",        "DELETE FROM fold_diff WHERE run = ?1",
        "DELETE FROM fold_part WHERE run = ?1",   "DELETE FROM fold_attempt WHERE run = ?1",
        "DELETE FROM fold_writer WHERE run = ?1",
    };
    int rc;
    for (size_t i = 0; i < ARRAY_LEN(sql); i++)
        if ((rc = store_each(db, sql[i], run, NULL, NULL, err)) < 0)
            return rc;
    return 0;
}

/* ---- the whole ---- */

static void fold_release(struct fold *f)
{
    fold_spans_close(f);
    arena_release(&f->arena);
    fold_clocks_release(&f->clocks);
    free(f->attempts);
    free(f->writers);
    free(f->acts);
}

/* Computes the clocks, and the time that the run's spans cover. */
static void clocks_settle(struct fold *f)
{
    double first;
    fold_clocks_settle(&f->clocks);
    f->is_run = fold_clocks_is_run(&f->clocks);
    f->from = fold_clocks_submitted(&f->clocks);
    fold_clocks_span(&f->clocks, &first, &f->until);
    if (!isfinite(f->from))
        f->from = first;
}

/* ---- folding attempts again ---- */

static bool attempts_meet(const struct fold_attempt *a, const struct fold_attempt *b)
{
    return a->acts_from <= b->acts_to && b->acts_from <= a->acts_to;
}

/* Marks with each marked attempt all whose activities meet its own. Returns 0; or WHOLE when it is
 * not known for one of them where its activities lie. */
static int again_spread(struct fold *f)
{
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < f->n_attempts; i++) {
            const struct fold_attempt *a = &f->attempts[i];
            if (a->again && isinf(a->acts_from) && a->acts_from < 0)
                return WHOLE;
            for (size_t k = 0; a->again && k < f->n_attempts; k++) {
                more |= !f->attempts[k].again && attempts_meet(a, &f->attempts[k]);
                f->attempts[k].again |= attempts_meet(a, &f->attempts[k]);
            }
        }
    }
    return 0;
}

/* Says whether the attempt of this number is folded again. */
static bool is_again(const struct fold *f, int64_t number)
{
    for (size_t i = f->n_attempts; i-- > 0;)
        if (f->attempts[i].number == number)
            return f->attempts[i].again;
    return false;
}

/* Takes the attempts to be folded again out of the rows and of the state of their writers. */
static int again_strip(struct fold *f, struct err *err)
{
    int rc;
    for (size_t i = 0; i < f->n_attempts; i++)
        if (f->attempts[i].again && (rc = fold_spans_strip(f, &f->attempts[i], err)) < 0)
            return rc;
    for (size_t i = 0; i < f->n_writers; i++)
        if (is_again(f, f->writers[i].attempt))
            f->writers[i].step_at = -INFINITY;
    return 0;
}

/* Takes an event of an attempt that is not folded again as a whole. */
static int news_take(struct fold *f, const struct fold_event *e, struct err *err)
{
    return is_again(f, e->attempt) ? 0 : event_take(f, e, err);
}

/* Makes the second pass over the events of the attempts to be folded again, and over the other new
 * ones. */
static int second_pass(struct fold *f, const struct fold_news *news, struct err *err)
{
    const char *sql = news->whole ? COLUMNS TIMES ALL : COLUMNS TIMES NEWS;
    const int64_t ids[] = {news->first_id, news->last_id};
    int rc;
    if ((rc = again_strip(f, err)) < 0)
        return rc;
    for (size_t i = 0; i < f->n_attempts; i++)
        if (f->attempts[i].again &&
            (rc = events_each(f, COLUMNS TIMES AGAIN, &f->attempts[i].number, 1, true, event_take,
                              err)) < 0)
            return rc;
    return events_each(f, sql, ids, news->whole ? 0 : 2, true, news_take, err);
}

/* Folds the new events into the kept state. Returns 0; WHOLE when the kept state is no longer valid
 * (then nothing was written); or <0. */
static int fold_on(struct fold *f, const struct fold_news *news, struct err *err)
{
    static const char first_whole[] = COLUMNS ", NULL FROM event" ALL;
    static const char first_known[] = COLUMNS OVERTAKES NEWS;
    /* If nothing is folded yet, no new event can come before a folded one. */
    static const char first_unknown[] = COLUMNS ", NULL FROM event" NEWS;
    const char *first = news->whole ? first_whole : f->known ? first_known : first_unknown;
    const int64_t ids[] = {news->first_id, news->last_id};
    double from = f->from;
    bool was_run = f->is_run;
    int rc;
    if (!f->known && (rc = kept_drop(f->db, f->run, err)) < 0)
        return rc;
    if ((rc = events_each(f, first, ids, news->whole ? 0 : 2, false, clock_take, err)) != 0)
        return rc;
    clocks_settle(f);
    if (f->known && (fold_clocks_moved(&f->clocks) || f->from != from || f->is_run != was_run))
        return WHOLE;
    if ((rc = again_spread(f)) != 0)
        return rc;
    if ((rc = fold_spans_open(f, err)) < 0)
        return rc;
    if (was_run && (rc = fold_phases_make(f, f->done_to, &f->phases, err)) < 0)
        return rc;
    if ((rc = second_pass(f, news, err)) < 0)
        return rc;
    if ((rc = fold_spans_write(f, err)) < 0)
        return rc;
    return kept_save(f, err);
}

static int fold_try(struct store *db, const char *run, const struct fold_news *news,
                    struct err *err)
{
    struct fold f = {
        .db = db, .run = run, .done_to = -INFINITY, .from = INFINITY, .until = -INFINITY};
    int rc;
    if (!(f.acts = malloc(ACTS * sizeof *f.acts)))
        return fold_no_memory(&f, err);
    if (!news->whole && (rc = kept_load(&f, err)) < 0)
        goto out;
    rc = fold_on(&f, news, err);
out:
    fold_release(&f);
    return rc;
}

int fold_run(struct store *db, const char *run, const struct fold_news *news, struct err *err)
{
    int rc = fold_try(db, run, news, err);
    return rc == WHOLE ? fold_try(db, run, &(struct fold_news){.whole = true}, err) : rc;
}
