/* This file holds the list of the layouts that the walk (stream.c) keeps, ordered by the bounds of
 * their steps, and decides which of them are replayed. */
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
    work_build(s->spec->work, &item->layout, &s->replay_work);
    price_parts(s->spec->machine, &s->replay_work, &s->replay_price);
    int rc = price_replay(&s->replay_price, &item->layout, &step, err);
    item->seconds = step.seconds;
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

/* Moves item i, whose time has grown, to its place among the first i. */
static void item_settle(struct stream_found *f, size_t i)
{
    struct stream_item item = f->items[i];
    for (; i > 0 && comes_after(&f->items[i - 1], &item); i--)
        f->items[i] = f->items[i - 1];
    f->items[i] = item;
}

int stream_settle(struct stream *s, struct err *err)
{
    struct stream_found *f = s->found;
    int rc;
    for (size_t i = 0; i < f->n; i++) {
        if (i >= s->most && f->items[s->most - 1].seconds <= f->items[i].seconds)
            break;
        if ((rc = item_replay(s, &f->items[i], err)) < 0)
            return rc;
        item_settle(f, i);
    }
    f->n = f->n < s->most ? f->n : s->most;
    return 0;
}

/* Makes room by replaying the kept layouts, and lowers the time to beat to just above that of the
 * last that stays, so that a layout of equal time is still let in. */
static void room_make(struct stream *s)
{
    if (s->rc == 0)
        s->rc = stream_settle(s, &s->err);
    s->found->n = num_min_i64((int64_t)s->found->n, (int64_t)s->most);
    s->cap = fmin(s->cap, s->found->items[s->most - 1].seconds * (1 + 1e-9));
}

/* ---- what is kept ---- */

void stream_keep(struct stream *s, const struct stream_item *item)
{
    struct stream_found *f = s->found;
    if (f->n == STREAM_ITEMS && s->most < STREAM_ITEMS)
        room_make(s);
    if (!(item->seconds < stream_worst(s)))
        return;
    size_t i = f->n < s->room ? f->n++ : s->room - 1;
    for (; i > 0 && comes_after(&f->items[i - 1], item); i--)
        f->items[i] = f->items[i - 1];
    f->items[i] = *item;
}
