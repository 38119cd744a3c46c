/* This file holds the list of the layouts that the walk (stream.c) keeps, ordered by the bounds of
 * their steps, and decides which of them are replayed.
 *
 * Where places are asked for (stream.h), all layouts of a place stay beside each other in the list
 * until the walk has met the last of them: a faster one may still come, from whose time on the
 * place then reaches less far. Places, taken from the fastest time on, are the fewest that hold all
 * times, so that a time that is added never makes them fewer. So no part of the space has a better
 * n-th place than the whole, and its time bounds the walk.
 */
#include "autotune/stream_priv.h"

#include <math.h>

#include "base/num.h"

double stream_worst(const struct stream *s)
{
    return s->found->n < s->room ? s->cap : fmin(s->cap, s->found->items[s->room - 1].seconds);
}

/* ---- replays ---- */

static int item_replay(struct stream *s, struct stream_item *item, struct err *err)
{
    struct price_step step;
    if (item->replayed)
        return 0;
    work_build(s->spec->work, &item->layout, &s->replay_work);
    price_parts(s->spec->machine, &s->replay_work, &s->replay_price);
    int rc = price_replay(&s->replay_price, &item->layout, &step, err);
    item->seconds = step.seconds;
    item->replayed = true;
    s->found->replayed++;
    return rc;
}

/* Tells whether a layout comes after another: it is slower, or as fast and met later. */
static bool comes_after(const struct stream_item *a, const struct stream_item *b)
{
    if (a->seconds != b->seconds)
        return a->seconds > b->seconds;
    return a->grid != b->grid ? a->grid > b->grid : a->met > b->met;
}

/* Moves item i, whose time has grown, to its place among the first i. Returns where that is. */
static size_t item_settle(struct stream_item *v, size_t i)
{
    struct stream_item item = v[i];
    for (; i > 0 && comes_after(&v[i - 1], &item); i--)
        v[i] = v[i - 1];
    v[i] = item;
    return i;
}

/* ---- places ---- */

/* Says whether layouts differ in their order and shard group alone, and hold the same bytes. */
static bool are_alike(const struct stream_item *a, const struct stream_item *b)
{
    struct layout x = a->layout;
    x.order = b->layout.order, x.fsdp = b->layout.fsdp;
    return a->grid == b->grid && a->bytes == b->bytes && layout_equal(&x, &b->layout);
}

/* Returns the time up to which layouts belong to the place of one that takes this long. */
static double place_end(const struct stream *s, double seconds)
{ return s->spec->places ? seconds * (1 + STREAM_ALIKE) : seconds; }

/* Sets which of the first n layouts, of those that are alike to v[of], lead a place. They are in
 * the order of their times. */
static void leads_set(const struct stream *s, struct stream_item *v, size_t n, size_t of)
{
    double end = -INFINITY;
    v[of].leads = true;
    for (size_t i = 0; i < n && s->spec->places; i++)
        if (i == of || are_alike(&v[i], &v[of])) {
            v[i].leads = v[i].seconds > end;
            end = v[i].leads ? place_end(s, v[i].seconds) : end;
        }
}

/* Returns the time of the last of the best places among the first n layouts; INFINITY: there are
 * fewer. */
static double last_place(const struct stream *s, const struct stream_item *v, size_t n)
{
    size_t places = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i].leads && ++places == s->most)
            return v[i].seconds;
    return INFINITY;
}

static int keys_of(const struct layout *l) { return (l->order != 0) + (l->fsdp != 0); }

/* Lets one layout stand for another of its place. */
static void twin_join(struct stream_item *leader, const struct stream_item *item)
{
    leader->twins += 1 + item->twins;
    if (item->seconds == leader->seconds && keys_of(&item->layout) < keys_of(&leader->layout))
        leader->layout = item->layout, leader->met = item->met;
}

/* Returns the layout among the first n that leads the place of an item; NULL: none does. */
static struct stream_item *leader_of(const struct stream *s, struct stream_item *v, size_t n,
                                     const struct stream_item *item)
{
    for (; n > 0; n--)
        if (v[n - 1].leads && item->seconds <= place_end(s, v[n - 1].seconds) &&
            are_alike(&v[n - 1], item))
            return &v[n - 1];
    return NULL;
}

/* Says whether the walk, which has come to `open`, may still meet a layout of an item's place. */
static bool is_open(const struct stream_item *item, const struct stream_item *open)
{
    const struct layout *a = &item->layout, *b = open ? &open->layout : NULL;
    return open && item->grid == open->grid && a->mbs == b->mbs && a->vpp == b->vpp &&
           a->zero == b->zero;
}

/* Drops all layouts but those of the best places. Of a place that is not open one layout stays. */
static void places_join(const struct stream *s, struct stream_list *list,
                        const struct stream_item *open)
{
    size_t n = 0, places = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct stream_item item = list->items[i];
        struct stream_item *leader =
            item.leads ? NULL : leader_of(s, list->items, n, &item);
        if (item.leads ? places++ < s->most : leader && is_open(&item, open))
            list->items[n++] = item;
        else if (leader)
            twin_join(leader, &item);
    }
    list->n = n;
}

int stream_settle(struct stream *s, struct stream_list *list, const struct stream_item *open,
                  struct err *err)
{
    struct stream_item *v = list->items;
    size_t n = 0;
    int rc;
    for (double end = INFINITY; n < list->n && v[n].seconds < end; n++) {
        if ((rc = item_replay(s, &v[n], err)) < 0)
            return rc;
        leads_set(s, v, n + 1, item_settle(v, n));
        end = place_end(s, last_place(s, v, n + 1));
    }
    list->n = n;
    places_join(s, list, open);
    return 0;
}

double stream_reach(const struct stream *s, const struct stream_list *list)
{
    double end = place_end(s, last_place(s, list->items, list->n));
    return end * (1 + 1e-9); /* a little above, so that layouts of equal time come in */
}

/* Makes room by replaying the kept layouts, and lowers the time to beat. */
static void room_make(struct stream *s, const struct stream_item *now)
{
    struct stream_list list = {s->found->items, s->found->n};
    if (s->rc == 0)
        s->rc = stream_settle(s, &list, now, &s->err);
    s->cap = fmin(s->cap, stream_reach(s, &list));
    if (list.n == STREAM_ITEMS) /* the places that are open fill the list */
        places_join(s, &list, NULL);
    s->found->n = num_min_i64((int64_t)list.n, STREAM_ITEMS - 1);
}

/* ---- what is kept ---- */

void stream_keep(struct stream *s, const struct stream_item *item)
{
    struct stream_found *f = s->found;
    if (f->n == STREAM_ITEMS && s->most < STREAM_ITEMS)
        room_make(s, item);
    if (!(item->seconds < stream_worst(s)))
        return;
    size_t i = f->n < s->room ? f->n++ : s->room - 1;
    for (; i > 0 && comes_after(&f->items[i - 1], item); i--)
        f->items[i] = f->items[i - 1];
    f->items[i] = *item;
}

int stream_item_compare(const void *a, const void *b)
{ return comes_after(a, b) ? 1 : -comes_after(b, a); }
