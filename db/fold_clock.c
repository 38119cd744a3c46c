/* The clocks of a run.
 *
 * What is kept of each clock does not grow with the number of events: how often each difference of
 * wall and monotonic time was seen (in whole ms; a clock that is not stepped shows one or two), and
 * for each attempt the first and last reading. Sums of counts, minima and maxima do not depend on
 * the order in which events come, so the offsets do not either.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "db/fold_priv.h"

int fold_domain_find(struct fold *f, const char *host, const char *boot, struct err *err)
{
    for (size_t i = 0; i < f->n_domains; i++)
        if (strcmp(f->domains[i].boot, boot) == 0 && strcmp(f->domains[i].host, host) == 0)
            return (int)i;
    int rc = fold_grow((void **)&f->domains, f->n_domains, &f->cap_domains, sizeof *f->domains,
                       err);
    if (rc < 0)
        return rc;
    struct fold_domain d = {
        .host = arena_strdup(&f->arena, host), .boot = arena_strdup(&f->arena, boot), .was = NAN};
    if (!d.host || !d.boot)
        return fold_no_memory(f, err);
    f->domains[f->n_domains] = d;
    return (int)f->n_domains++;
}

/* ---- adding events ---- */

static int diff_order(const struct fold_diff *d, int domain, int64_t ms)
{
    if (d->domain != domain)
        return d->domain < domain ? -1 : 1;
    return (d->ms > ms) - (d->ms < ms);
}

static int diff_get(struct fold *f, int domain, int64_t ms, struct fold_diff **out, struct err *err)
{
    size_t low = 0, high = f->n_diffs;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (diff_order(&f->diffs[mid], domain, ms) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == f->n_diffs || diff_order(&f->diffs[low], domain, ms) != 0) {
        int rc = fold_grow((void **)&f->diffs, f->n_diffs, &f->cap_diffs, sizeof *f->diffs, err);
        if (rc < 0)
            return rc;
        memmove(f->diffs + low + 1, f->diffs + low, (f->n_diffs - low) * sizeof *f->diffs);
        f->diffs[low] = (struct fold_diff){.domain = domain, .ms = ms};
        f->n_diffs++;
    }
    *out = &f->diffs[low];
    return 0;
}

static int part_get(struct fold *f, int64_t attempt, int domain, struct fold_part **out,
                    struct err *err)
{
    size_t at = f->n_parts;
    while (at > 0 && (f->parts[at - 1].attempt > attempt ||
                      (f->parts[at - 1].attempt == attempt && f->parts[at - 1].domain >= domain)))
        at--;
    if (at == f->n_parts || f->parts[at].attempt != attempt || f->parts[at].domain != domain) {
        int rc = fold_grow((void **)&f->parts, f->n_parts, &f->cap_parts, sizeof *f->parts, err);
        if (rc < 0)
            return rc;
        memmove(f->parts + at + 1, f->parts + at, (f->n_parts - at) * sizeof *f->parts);
        f->parts[at] = (struct fold_part){attempt, domain, INFINITY, -INFINITY, INFINITY, false};
        f->n_parts++;
    }
    *out = &f->parts[at];
    return 0;
}

int fold_clock_add(struct fold *f, const struct fold_event *e, struct err *err)
{
    struct fold_diff *diff = NULL;
    struct fold_part *part = NULL;
    int64_t ms = llround(fmax(-1e15, fmin(1e15, 1e3 * (e->wall - e->mono))));
    int rc, domain;
    if ((domain = fold_domain_find(f, e->host, e->boot, err)) < 0)
        return domain;
    if ((rc = diff_get(f, domain, ms, &diff, err)) < 0)
        return rc;
    if ((rc = part_get(f, e->attempt, domain, &part, err)) < 0)
        return rc;
    diff->n++;
    part->first_mono = fmin(part->first_mono, e->mono);
    part->last_mono = fmax(part->last_mono, e->mono);
    if (e->kind == FOLD_SUBMIT)
        part->submit_mono = fmin(part->submit_mono, e->mono);
    diff->dirty = part->dirty = true;
    f->is_run = f->is_run || e->attempt > 0 || e->kind == FOLD_SUBMIT;
    return 0;
}

/* ---- settling ---- */

static void offsets_median(struct fold *f)
{
    for (size_t first = 0, end; first < f->n_diffs; first = end) {
        int64_t n = 0, below = 0;
        for (end = first; end < f->n_diffs && f->diffs[end].domain == f->diffs[first].domain; end++)
            n += f->diffs[end].n;
        size_t at = first;
        while (below + f->diffs[at].n <= n / 2)
            below += f->diffs[at++].n;
        f->domains[f->diffs[first].domain].offset = 1e-3 * (double)f->diffs[at].ms;
    }
}

double fold_submit_time(const struct fold *f)
{
    double t = INFINITY;
    for (size_t i = 0; i < f->n_parts; i++)
        t = fmin(t, f->parts[i].submit_mono + f->domains[f->parts[i].domain].offset);
    return isinf(t) ? -INFINITY : t;
}

/* Goes through the attempts in order. A clock that is first met in an attempt must not place it
 * before anything that came earlier. */
static void offsets_order(struct fold *f)
{
    double floor_at = fold_submit_time(f);
    for (size_t first = 0, end; first < f->n_parts; first = end) {
        int64_t attempt = f->parts[first].attempt;
        for (end = first; end < f->n_parts && f->parts[end].attempt == attempt; end++) {
            struct fold_domain *d = &f->domains[f->parts[end].domain];
            double begin = f->parts[end].first_mono + d->offset;
            if (!d->settled && attempt > 0 && begin < floor_at)
                d->offset += floor_at - begin;
            d->settled = true;
        }
        for (size_t i = first; i < end && attempt > 0; i++)
            floor_at = fmax(floor_at,
                            f->parts[i].last_mono + f->domains[f->parts[i].domain].offset);
    }
}

void fold_clocks_settle(struct fold *f)
{
    for (size_t i = 0; i < f->n_domains; i++)
        f->domains[i].settled = false;
    offsets_median(f);
    offsets_order(f);
    double submitted = fold_submit_time(f), first = INFINITY;
    f->until = -INFINITY;
    for (size_t i = 0; i < f->n_parts; i++) {
        double offset = f->domains[f->parts[i].domain].offset;
        first = fmin(first, f->parts[i].first_mono + offset);
        f->until = fmax(f->until, f->parts[i].last_mono + offset);
    }
    f->from = isfinite(submitted) ? submitted : first;
}

bool fold_clocks_moved(const struct fold *f)
{
    for (size_t i = 0; i < f->n_domains; i++)
        if (!isnan(f->domains[i].was) && f->domains[i].was != f->domains[i].offset)
            return true;
    return false;
}

/* ---- loading and saving ---- */

typedef int take_row(struct fold *f, int domain, struct store_query *q, struct err *err);

static int domain_take(struct fold *f, int domain, struct store_query *q, struct err *err)
{
    (void)err;
    f->domains[domain].was = store_num(q, 2);
    return 0;
}

static int diff_take(struct fold *f, int domain, struct store_query *q, struct err *err)
{
    struct fold_diff *d;
    int rc;
    if ((rc = diff_get(f, domain, store_int(q, 2), &d, err)) < 0)
        return rc;
    d->n = store_int(q, 3);
    return 0;
}

static int part_take(struct fold *f, int domain, struct store_query *q, struct err *err)
{
    struct fold_part *p;
    int rc = part_get(f, store_int(q, 2), domain, &p, err);
    if (rc < 0)
        return rc;
    p->first_mono = store_num(q, 3);
    p->last_mono = store_num(q, 4);
    p->submit_mono = store_num(q, 5);
    f->is_run = f->is_run || p->attempt > 0 || isfinite(p->submit_mono);
    return 0;
}

/* Gives every row of this run to `take`, with the clock that its first two columns name. */
static int rows_load(struct fold *f, const char *sql, take_row *take, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(f->db, sql, &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->run);
    while ((rc = store_next(q, err)) > 0) {
        int domain = fold_domain_find(f, store_text(q, 0), store_text(q, 1), err);
        if ((rc = domain < 0 ? domain : take(f, domain, q, err)) < 0)
            break;
    }
    store_end(q);
    return rc;
}

int fold_clocks_load(struct fold *f, struct err *err)
{
    static const char domains[] = "SELECT host, boot, offset_s FROM run_clock WHERE run = ?1";
    static const char diffs[] = "SELECT host, boot, ms, n FROM fold_diff WHERE run = ?1";
    static const char parts[] = "SELECT host, boot, attempt, first_mono, last_mono, submit_mono"
                                " FROM fold_part WHERE run = ?1";
    int rc;
    if ((rc = rows_load(f, domains, domain_take, err)) < 0)
        return rc;
    if ((rc = rows_load(f, diffs, diff_take, err)) < 0)
        return rc;
    return rows_load(f, parts, part_take, err);
}

static int row_put(struct store_query *q, const struct fold *f, const struct fold_domain *d,
                   struct err *err)
{
    store_bind_text(q, 1, f->run);
    store_bind_text(q, 2, d->host);
    store_bind_text(q, 3, d->boot);
    int rc = store_next(q, err);
    store_reset(q);
    return rc;
}

static int domains_save(struct fold *f, struct err *err)
{
    static const char sql[] = "INSERT OR REPLACE INTO run_clock(run, host, boot, offset_s)"
                              " VALUES (?1, ?2, ?3, ?4)";
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(f->db, sql, &q, err)) < 0)
        return rc;
    for (size_t i = 0; i < f->n_domains; i++) {
        store_bind_num(q, 4, f->domains[i].offset);
        if ((rc = row_put(q, f, &f->domains[i], err)) < 0)
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
    for (size_t i = 0; i < f->n_diffs; i++) {
        if (!f->diffs[i].dirty)
            continue;
        store_bind_int(q, 4, f->diffs[i].ms);
        store_bind_int(q, 5, f->diffs[i].n);
        if ((rc = row_put(q, f, &f->domains[f->diffs[i].domain], err)) < 0)
            break;
    }
    store_end(q);
    return rc;
}

static int parts_save(struct fold *f, struct err *err)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO fold_part(run, host, boot, attempt, first_mono, last_mono,"
        " submit_mono) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(f->db, sql, &q, err)) < 0)
        return rc;
    for (size_t i = 0; i < f->n_parts; i++) {
        const struct fold_part *p = &f->parts[i];
        if (!p->dirty)
            continue;
        store_bind_int(q, 4, p->attempt);
        store_bind_num(q, 5, p->first_mono);
        store_bind_num(q, 6, p->last_mono);
        store_bind_num(q, 7, p->submit_mono);
        if ((rc = row_put(q, f, &f->domains[p->domain], err)) < 0)
            break;
    }
    store_end(q);
    return rc;
}

int fold_clocks_save(struct fold *f, struct err *err)
{
    int rc;
    if ((rc = domains_save(f, err)) < 0)
        return rc;
    if ((rc = diffs_save(f, err)) < 0)
        return rc;
    return parts_save(f, err);
}
