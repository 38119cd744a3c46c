/* This file searches the space of layouts: which layouts are kept, and who walks which grids.
 *
 * Which layouts are kept. price_bound() never exceeds the time of the replay, price_replay(), and
 * is much cheaper. A first, coarse pass considers few virtual stages and ways to shard, and replays
 * until `most` layouts are no slower than the next bound. None of the best can be slower than the
 * slowest of these. A pass over the whole of the best grids (of NEAR_GRIDS layouts at least) lowers
 * that time. The last pass, over the whole space, keeps every layout whose price_bound() is below
 * that time, and replays them in the order of price_bound(), until `most` are no slower than the
 * next one's price_bound(). When STREAM_ITEMS are kept, they are replayed at once, and only the
 * best stay: the time to beat falls, and none of the best is lost. Where places are asked for,
 * `most` counts these, and the time to beat is the longest that a layout of the last place may take
 * (stream_keep.c).
 *
 * Who walks. The grids are divided into PARTS parts, whatever the number of processors, and each
 * part has a list of its own. So neither the result nor a count depends on time. Threads, one for
 * each processor, take the parts one by one. Then the lists become one.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/stream_priv.h"
#include "base/num.h"
#include "base/process.h"

enum { PARTS = 16, NEAR_GRIDS = 16 };

struct part {
    struct stream walk;
    struct stream_found found;
};
struct parts {
    struct part *v;  /* PARTS of them */
    struct stream_item *items; /* room for those of all parts */
    struct stream_cache *caches; /* one for each thread, PARTS of them */
    atomic_int next; /* the first part that nobody has taken */
    atomic_int threads;
};

static void *parts_walk(void *arg)
{
    struct parts *p = arg;
    struct stream_cache *cache = &p->caches[atomic_fetch_add(&p->threads, 1)];
    for (int i; (i = atomic_fetch_add(&p->next, 1)) < PARTS;) {
        p->v[i].walk.cache = cache;
        stream_walk(&p->v[i].walk);
    }
    return NULL;
}

/* Walks all parts. Where a thread cannot be started the others do its work. */
static void parts_share(struct parts *p)
{
    pthread_t threads[PARTS];
    int n = 0, most = (int)num_min_i64(proc_cpus(), PARTS) - 1;
    atomic_store(&p->next, 0);
    atomic_store(&p->threads, 0);
    while (n < most && pthread_create(&threads[n], NULL, parts_walk, p) == 0)
        n++;
    parts_walk(p);
    while (n > 0)
        pthread_join(threads[--n], NULL);
}

static void counts_add(struct stream_found *sum, const struct stream_found *f)
{
    sum->grids += f->grids, sum->legal += f->legal, sum->sized += f->sized;
    sum->priced += f->priced, sum->fit += f->fit, sum->replayed += f->replayed;
    sum->able += f->able, sum->opened += f->opened;
    for (int i = 0; i < STREAM_RULES; i++)
        sum->excluded[i] += f->excluded[i];
    for (int i = 0; i < ADAPTER_RULES; i++)
        sum->refused[i] += f->refused[i];
}

/* Walks the space with the settings of `all`, whose lists and counts become those of all parts. */
static int walk(struct stream *all, struct parts *p, struct err *err)
{
    struct stream_list list = {p->items, 0};
    int rc;
    memset(all->found, 0, sizeof *all->found);
    for (uint32_t i = 0; i < PARTS; i++) {
        struct part *part = &p->v[i];
        part->walk = *all;
        part->walk.part = i, part->walk.parts = PARTS, part->walk.grid = 0;
        part->walk.found = &part->found;
        memset(&part->found, 0, sizeof part->found);
    }
    parts_share(p);
    for (int i = 0; i < PARTS; i++) {
        const struct stream_found *f = &p->v[i].found;
        if (p->v[i].walk.rc < 0) {
            *err = p->v[i].walk.err;
            return p->v[i].walk.rc;
        }
        counts_add(all->found, f);
        memcpy(list.items + list.n, f->items, f->n * sizeof *f->items);
        list.n += f->n;
    }
    qsort(list.items, list.n, sizeof *list.items, stream_item_compare);
    if ((rc = stream_settle(all, &list, NULL, err)) < 0)
        return rc;
    all->found->n = list.n;
    memcpy(all->found->items, list.items, list.n * sizeof *list.items);
    return 0;
}

/* Walks grids alone, and replays what it kept: the best `keep`, or all that are wanted if these are
 * more. Lowers the time to beat to that of the last that is wanted. */
static int cap_lower(struct stream *s, size_t keep, struct err *err)
{
    size_t most = s->most;
    struct stream_list list;
    int rc;
    memset(s->found, 0, sizeof *s->found);
    s->grid = 0;
    s->most = keep > most ? keep : most;
    stream_walk(s);
    list = (struct stream_list){s->found->items, s->found->n};
    if (s->rc == 0)
        s->rc = stream_settle(s, &list, NULL, &s->err);
    s->found->n = list.n;
    s->most = most;
    s->cap = fmin(s->cap, stream_reach(s, &list));
    if ((rc = s->rc) < 0)
        *err = s->err;
    return rc;
}

/* Lists the grids of the best layouts, at most `most` of them. Returns how many. */
static size_t grids_of(const struct stream_found *f, int64_t *grids, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n && n < most; i++) {
        size_t k = 0;
        while (k < n && grids[k] != f->items[i].grid)
            k++;
        if (k == n)
            grids[n++] = f->items[i].grid;
    }
    return n;
}

/* Finds a time that none of the best `most` layouts exceeds, if as many were found: first by a
 * coarse pass, then by the whole of the best grids of that. This is short, and one list is bounded
 * sooner than many: nobody shares it. */
static int cap_find(struct stream *s, struct err *err)
{
    int64_t grids[NEAR_GRIDS];
    int rc;
    s->parts = 1, s->room = STREAM_ITEMS, s->coarse = true;
    s->cap = s->spec->beat_s > 0 ? s->spec->beat_s : INFINITY;
    if ((rc = cap_lower(s, NEAR_GRIDS, err)) < 0)
        return rc;
    s->coarse = false;
    s->only = grids, s->n_only = grids_of(s->found, grids, NEAR_GRIDS);
    if (s->n_only > 0 && (rc = cap_lower(s, 1, err)) < 0)
        return rc;
    s->only = NULL, s->n_only = 0;
    return 0;
}

int stream_search(const struct stream_spec *spec, size_t most, struct stream_found *found,
                  struct err *err)
{
    struct stream *s = malloc(sizeof *s);
    struct parts parts = {.v = malloc(PARTS * sizeof *parts.v),
                          .items = malloc(PARTS * sizeof *parts.v->found.items * STREAM_ITEMS),
                          .caches = calloc(PARTS, sizeof *parts.caches)};
    int rc = 0;
    BUG_ON(most < 1 || most > (spec->places ? STREAM_PLACES : STREAM_ITEMS));
    if (!s || !parts.v || !parts.items || !parts.caches) {
        rc = err_set(err, ERR_NOMEM, "out of memory for a search of layouts");
        goto out;
    }
    *s = (struct stream){.spec = spec, .found = found, .most = most, .even = *spec->machine,
                         .cache = parts.caches};
    if ((rc = cap_find(s, err)) < 0 || (rc = walk(s, &parts, err)) < 0)
        goto out;
    s->grid = 0;
    if (found->n == 0 && !(spec->beat_s > 0))
        stream_nearest_walk(s); /* it is short, and what is found early bounds all the rest */
out:
    free(parts.v);
    free(parts.items);
    free(parts.caches);
    free(s);
    return rc;
}

int stream_any_fits(const struct stream_spec *spec, bool *fits, struct err *err)
{
    struct part *p = calloc(1, sizeof *p);
    struct stream_cache *cache = calloc(1, sizeof *cache);
    int rc = 0;
    if (!p || !cache) {
        rc = err_set(err, ERR_NOMEM, "out of memory for a search of layouts");
        goto out;
    }
    p->walk = (struct stream){.spec = spec, .found = &p->found, .parts = 1, .room = 1,
                              .cap = INFINITY, .first_only = true, .cache = cache};
    stream_walk(&p->walk);
    *fits = p->found.fit > 0;
out:
    free(cache);
    free(p);
    return rc;
}
