#include "launcher/state/told.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"

void told_release(struct told_list *l)
{
    free(l->list);
    *l = (struct told_list){0};
}

static int told_order(const struct told *a, const struct told *b)
{
    if (a->attempt != b->attempt)
        return a->attempt < b->attempt ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return (a->time.event.clock > b->time.event.clock) -
           (a->time.event.clock < b->time.event.clock);
}

static size_t told_place(const struct told_list *l, const struct told *t)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (told_order(&l->list[mid], t) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int told_add(struct told_list *l, const struct told *t, struct err *err)
{
    size_t at = told_place(l, t);
    int rc;
    if (at < l->n && told_order(&l->list[at], t) == 0) {
        if (t->time.event.at < l->list[at].time.event.at)
            l->list[at] = *t;
        return 0;
    }
    if ((rc = list_grow((void **)&l->list, l->n, &l->cap, sizeof *l->list, "folding a run's times",
                        err)) < 0)
        return rc;
    memmove(l->list + at + 1, l->list + at, (l->n - at) * sizeof *l->list);
    l->list[at] = *t;
    l->n++;
    return 0;
}

double told_utc(const struct fold_clocks *c, int64_t attempt, const struct told_time *t)
{
    double at = fold_clocks_utc(c, t->event.clock, t->event.at);
    double room_s = at - fold_clocks_first(c, attempt, t->event.clock);
    return at - (t->exact ? t->ago_s : fold_ago_s(t->ago_s, t->least_s, room_s));
}
