#include "fold/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

static const char folding[] = "folding a run's clocks";

void fold_clocks_release(struct fold_clocks *c)
{
    free(c->list);
    free(c->diffs);
    free(c->parts);
    *c = (struct fold_clocks){0};
}

/* ---- adding events ---- */

int fold_clock_get(struct fold_clocks *c, const char *host, const char *boot, int *clock,
                   struct err *err)
{
    int rc, n = (int)c->n;
    *clock = FOLD_NO_CLOCK;
    if (strcmp(boot, "unknown") == 0 || strlen(boot) >= FOLD_BOOT_BYTES ||
        strlen(host) >= FOLD_HOST_BYTES)
        return 0;
    for (int i = 0; i < n; i++)
        if (strcmp(c->list[i].boot, boot) == 0 && strcmp(c->list[i].host, host) == 0) {
            *clock = i;
            return 0;
        }
    if ((rc = list_grow((void **)&c->list, c->n, &c->cap, sizeof *c->list, folding, err)) < 0)
        return rc;
    memset(&c->list[n], 0, sizeof c->list[n]);
    snprintf(c->list[n].host, FOLD_HOST_BYTES, "%s", host);
    snprintf(c->list[n].boot, FOLD_BOOT_BYTES, "%s", boot);
    c->list[n].was = NAN;
    c->n++;
    *clock = n;
    return 0;
}

static int diff_order(const struct fold_diff *d, int clock, int64_t ms)
{
    if (d->clock != clock)
        return d->clock < clock ? -1 : 1;
    return (d->ms > ms) - (d->ms < ms);
}

int fold_diff_get(struct fold_clocks *c, int clock, int64_t ms, struct fold_diff **out,
                  struct err *err)
{
    size_t low = 0, high = c->n_diffs;
    int rc;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (diff_order(&c->diffs[mid], clock, ms) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *out = &c->diffs[low];
    if (low < c->n_diffs && diff_order(*out, clock, ms) == 0)
        return 0;
    if ((rc = list_grow((void **)&c->diffs, c->n_diffs, &c->cap_diffs, sizeof *c->diffs, folding,
                        err)) < 0)
        return rc;
    *out = &c->diffs[low];
    memmove(*out + 1, *out, (c->n_diffs - low) * sizeof **out);
    memset(*out, 0, sizeof **out);
    (*out)->clock = clock;
    (*out)->ms = ms;
    c->n_diffs++;
    return 0;
}

/* Returns the place of the first part that is not before this one. */
static size_t part_place(const struct fold_clocks *c, int64_t attempt, int clock)
{
    size_t low = 0, high = c->n_parts;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct fold_part *p = &c->parts[mid];
        if (p->attempt < attempt || (p->attempt == attempt && p->clock < clock))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool part_is(const struct fold_clocks *c, size_t at, int64_t attempt, int clock)
{
    return at < c->n_parts && c->parts[at].attempt == attempt && c->parts[at].clock == clock;
}

int fold_part_get(struct fold_clocks *c, int64_t attempt, int clock, struct fold_part **out,
                  struct err *err)
{
    size_t at = part_place(c, attempt, clock);
    int rc;
    if (!part_is(c, at, attempt, clock)) {
        if ((rc = list_grow((void **)&c->parts, c->n_parts, &c->cap_parts, sizeof *c->parts,
                            folding, err)) < 0)
            return rc;
        struct fold_part *p = &c->parts[at];
        memmove(p + 1, p, (c->n_parts - at) * sizeof *p);
        memset(p, 0, sizeof *p);
        p->attempt = attempt;
        p->clock = clock;
        p->first_mono = p->submit_mono = p->start_mono = INFINITY;
        p->first_was = NAN;
        p->last_mono = -INFINITY;
        c->n_parts++;
    }
    *out = &c->parts[at];
    return 0;
}

static int diff_count(struct fold_clocks *c, int clock, const struct fold_reading *r,
                      struct err *err)
{
    int64_t ms = llround(fmax(-1e15, fmin(1e15, 1e3 * (r->wall - r->mono))));
    struct fold_diff *diff;
    int rc;
    if ((rc = fold_diff_get(c, clock, ms, &diff, err)) < 0)
        return rc;
    diff->n++;
    diff->changed = true;
    return 0;
}

static void part_add(struct fold_part *p, const char *kind, double at)
{
    p->first_mono = fmin(p->first_mono, at);
    p->last_mono = fmax(p->last_mono, at);
    if (strcmp(kind, "submit_intent") == 0 || strcmp(kind, "submitted") == 0)
        p->submit_mono = fmin(p->submit_mono, at);
    if (strcmp(kind, "attempt_started") == 0)
        p->start_mono = fmin(p->start_mono, at);
    p->changed = true;
}

int fold_clocks_add(struct fold_clocks *c, const struct fold_reading *reading, int64_t attempt,
                    struct fold_time *out, struct err *err)
{
    struct fold_part *part;
    int rc, clock = FOLD_NO_CLOCK;
    if (isfinite(reading->mono) &&
        (rc = fold_clock_get(c, reading->host, reading->boot, &clock, err)) < 0)
        return rc;
    double at = clock == FOLD_NO_CLOCK ? reading->wall : reading->mono;
    if ((rc = fold_part_get(c, attempt, clock, &part, err)) < 0)
        return rc;
    if (clock != FOLD_NO_CLOCK && (rc = diff_count(c, clock, reading, err)) < 0)
        return rc;
    part_add(part, reading->kind, at);
    *out = (struct fold_time){clock, at};
    return 0;
}

/* ---- settling ---- */

static void offsets_median(struct fold_clocks *c)
{
    for (size_t first = 0, end; first < c->n_diffs; first = end) {
        int64_t n = 0, below = 0;
        for (end = first; end < c->n_diffs && c->diffs[end].clock == c->diffs[first].clock; end++)
            n += c->diffs[end].n;
        size_t at = first;
        while (below + c->diffs[at].n <= n / 2)
            below += c->diffs[at++].n;
        c->list[c->diffs[first].clock].offset = 1e-3 * (double)c->diffs[at].ms;
    }
}

double fold_clocks_utc(const struct fold_clocks *c, int clock, double at)
{
    return clock == FOLD_NO_CLOCK ? at : at + c->list[clock].offset;
}

double fold_clocks_first(const struct fold_clocks *c, int64_t attempt, int clock)
{
    size_t at = part_place(c, attempt, clock);
    bool seen = clock != FOLD_NO_CLOCK && part_is(c, at, attempt, clock);
    return seen ? fold_clocks_utc(c, clock, c->parts[at].first_mono) : -INFINITY;
}

double fold_clocks_submitted(const struct fold_clocks *c)
{
    double t = INFINITY;
    for (size_t i = 0; i < c->n_parts; i++)
        t = fmin(t, fold_clocks_utc(c, c->parts[i].clock, c->parts[i].submit_mono));
    return isinf(t) ? -INFINITY : t;
}

/* Returns when the agent started this attempt; -infinity: it did not say so. */
static double attempt_started(const struct fold_clocks *c, int64_t attempt)
{
    double t = INFINITY;
    for (size_t i = part_place(c, attempt, FOLD_NO_CLOCK);
         i < c->n_parts && c->parts[i].attempt == attempt; i++)
        t = fmin(t, fold_clocks_utc(c, c->parts[i].clock, c->parts[i].start_mono));
    return isinf(t) ? -INFINITY : t;
}

double fold_clocks_last(const struct fold_clocks *c, int64_t attempt)
{
    double t = -INFINITY;
    for (size_t i = part_place(c, attempt, FOLD_NO_CLOCK);
         i < c->n_parts && c->parts[i].attempt == attempt; i++)
        t = fmax(t, fold_clocks_utc(c, c->parts[i].clock, c->parts[i].last_mono));
    return t;
}

/* Places a clock that is first met in this part, not before anything that came earlier. */
static void clock_place(struct fold_clocks *c, const struct fold_part *part, double floor_at)
{
    if (part->clock == FOLD_NO_CLOCK)
        return;
    struct fold_clock *clock = &c->list[part->clock];
    double begin = part->first_mono + clock->offset;
    if (!clock->settled && part->attempt > 0 && begin < floor_at)
        clock->offset += floor_at - begin;
    clock->settled = true;
}

/* Goes through the attempts in order, and in each to the host that started it first. */
static void offsets_order(struct fold_clocks *c)
{
    double floor_at = fold_clocks_submitted(c);
    for (size_t first = 0, end; first < c->n_parts; first = end) {
        int64_t attempt = c->parts[first].attempt;
        for (end = first; end < c->n_parts && c->parts[end].attempt == attempt; end++)
            if (isfinite(c->parts[end].start_mono))
                clock_place(c, &c->parts[end], floor_at);
        floor_at = fmax(floor_at, attempt_started(c, attempt));
        for (size_t i = first; i < end; i++)
            clock_place(c, &c->parts[i], floor_at);
        if (attempt > 0)
            floor_at = fmax(floor_at, fold_clocks_last(c, attempt));
    }
}

void fold_clocks_settle(struct fold_clocks *c)
{
    for (size_t i = 0; i < c->n; i++)
        c->list[i].settled = false;
    offsets_median(c);
    offsets_order(c);
}

void fold_clocks_span(const struct fold_clocks *c, double *from, double *to)
{
    *from = INFINITY;
    *to = -INFINITY;
    for (size_t i = 0; i < c->n_parts; i++) {
        *from = fmin(*from, fold_clocks_utc(c, c->parts[i].clock, c->parts[i].first_mono));
        *to = fmax(*to, fold_clocks_utc(c, c->parts[i].clock, c->parts[i].last_mono));
    }
}

bool fold_clocks_moved(const struct fold_clocks *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (!isnan(c->list[i].was) && c->list[i].was != c->list[i].offset)
            return true;
    for (size_t i = 0; i < c->n_parts; i++)
        if (c->parts[i].first_mono < c->parts[i].first_was)
            return true;
    return false;
}

bool fold_clocks_is_run(const struct fold_clocks *c)
{
    for (size_t i = 0; i < c->n_parts; i++)
        if (c->parts[i].attempt > 0 || isfinite(c->parts[i].submit_mono))
            return true;
    return false;
}

double fold_ago_s(double lag_s, double least_s, double room_s)
{
    return lag_s >= least_s && lag_s <= room_s ? lag_s : least_s;
}

double fold_rest_s(double end, double seconds, double rest_end, double rest_s)
{
    return fmax(0, fmin(end, rest_end) - fmax(end - seconds, rest_end - rest_s));
}
