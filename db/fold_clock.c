/* This file stores the state of a run's clocks (fold/clock.h) between two ingests: the offsets
 * (run_clock), and the differences and readings from which they follow (fold_diff, fold_part). */
#include "db/fold_priv.h"

/* ---- loading ---- */

typedef int take_row(struct fold *f, int clock, struct store_query *q, struct err *err);

static int clock_take(struct fold *f, int clock, struct store_query *q, struct err *err)
{
    (void)err;
    if (clock != FOLD_NO_CLOCK)
        f->clocks.list[clock].was = store_num(q, 2);
    return 0;
}

static int diff_take(struct fold *f, int clock, struct store_query *q, struct err *err)
{
    struct fold_diff *d;
    int rc;
    if ((rc = fold_diff_get(&f->clocks, clock, store_int(q, 2), &d, err)) < 0)
        return rc;
    d->n = store_int(q, 3);
    return 0;
}

static int part_take(struct fold *f, int clock, struct store_query *q, struct err *err)
{
    struct fold_part *p;
    int rc;
    if ((rc = fold_part_get(&f->clocks, store_int(q, 2), clock, &p, err)) < 0)
        return rc;
    p->first_mono = p->first_was = store_num(q, 3);
    p->last_mono = store_num(q, 4);
    p->submit_mono = store_num(q, 5);
    p->start_mono = store_num(q, 6);
    return 0;
}

/* Calls `take` for every row of this run, with the clock that its first two columns name. */
static int rows_load(struct fold *f, const char *sql, take_row *take, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(f->db, sql, &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->run);
    while ((rc = store_next(q, err)) > 0) {
        int clock;
        if ((rc = fold_clock_get(&f->clocks, store_text(q, 0), store_text(q, 1), &clock, err)) < 0)
            break;
        if ((rc = take(f, clock, q, err)) < 0)
            break;
    }
    store_end(q);
    return rc;
}

int fold_clocks_load(struct fold *f, struct err *err)
{
    static const char clocks[] = "SELECT host, boot, offset_s FROM run_clock WHERE run = ?1";
    static const char diffs[] = "SELECT host, boot, ms, n FROM fold_diff WHERE run = ?1";
    static const char parts[] = "SELECT host, boot, attempt, first_mono, last_mono, submit_mono,"
                                " start_mono FROM fold_part WHERE run = ?1";
    int rc;
    if ((rc = rows_load(f, clocks, clock_take, err)) < 0)
        return rc;
    if ((rc = rows_load(f, diffs, diff_take, err)) < 0)
        return rc;
    if ((rc = rows_load(f, parts, part_take, err)) < 0)
        return rc;
    f->is_run = fold_clocks_is_run(&f->clocks);
    return 0;
}

/* ---- saving ---- */

static int row_put(struct store_query *q, const struct fold *f, int clock, struct err *err)
{
    bool none = clock == FOLD_NO_CLOCK;
    store_bind_text(q, 1, f->run);
    store_bind_text(q, 2, none ? "unknown" : f->clocks.list[clock].host);
    store_bind_text(q, 3, none ? "unknown" : f->clocks.list[clock].boot);
    int rc = store_next(q, err);
    store_reset(q);
    return rc;
}

static int offsets_save(struct fold *f, struct err *err)
{
    static const char sql[] = "INSERT OR REPLACE INTO run_clock(run, host, boot, offset_s)"
                              " VALUES (?1, ?2, ?3, ?4)";
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(f->db, sql, &q, err)) < 0)
        return rc;
    for (size_t i = 0; i < f->clocks.n; i++) {
        store_bind_num(q, 4, f->clocks.list[i].offset);
        if ((rc = row_put(q, f, (int)i, err)) < 0)
            break;
    }
    store_end(q);
    return rc;
}

static int diffs_save(struct fold *f, struct err *err)
{
    static const char sql[] = "INSERT OR REPLACE INTO fold_diff(run, host, boot, ms, n)"
                              " VALUES (?1, ?2, ?3, ?4, ?5)";
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(f->db, sql, &q, err)) < 0)
        return rc;
    for (size_t i = 0; i < f->clocks.n_diffs; i++) {
        const struct fold_diff *d = &f->clocks.diffs[i];
        if (!d->changed)
            continue;
        store_bind_int(q, 4, d->ms);
        store_bind_int(q, 5, d->n);
        if ((rc = row_put(q, f, d->clock, err)) < 0)
            break;
    }
    store_end(q);
    return rc;
}

static int parts_save(struct fold *f, struct err *err)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO fold_part(run, host, boot, attempt, first_mono, last_mono,"
        " submit_mono, start_mono) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(f->db, sql, &q, err)) < 0)
        return rc;
    for (size_t i = 0; i < f->clocks.n_parts; i++) {
        const struct fold_part *p = &f->clocks.parts[i];
        if (!p->changed)
            continue;
        store_bind_int(q, 4, p->attempt);
        store_bind_num(q, 5, p->first_mono);
        store_bind_num(q, 6, p->last_mono);
        store_bind_num(q, 7, p->submit_mono);
        store_bind_num(q, 8, p->start_mono);
        if ((rc = row_put(q, f, p->clock, err)) < 0)
            break;
    }
    store_end(q);
    return rc;
}

int fold_clocks_save(struct fold *f, struct err *err)
{
    int rc;
    if ((rc = offsets_save(f, err)) < 0)
        return rc;
    if ((rc = diffs_save(f, err)) < 0)
        return rc;
    return parts_save(f, err);
}
