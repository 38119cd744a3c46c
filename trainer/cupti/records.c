#include "trainer/cupti/records.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

int records_open(struct records *r, struct err *err)
{
    *r = (struct records){
        .activities = calloc(RECORDS_ACTIVITIES, sizeof *r->activities),
        .calls = calloc(RECORDS_CALLS, sizeof *r->calls),
        .ranges = calloc(RECORDS_RANGES, sizeof *r->ranges),
        .names = calloc(RECORDS_NAMES, sizeof *r->names),
        .slots = calloc(2 * RECORDS_NAMES, sizeof *r->slots)};
    if (r->activities && r->calls && r->ranges && r->names && r->slots &&
        (r->names[0].text = strdup(""))) {
        r->names[0].class = KERNEL_OTHER;
        r->n_names = 1;
        return 0;
    }
    records_close(r);
    return err_set(err, ERR_NOMEM, "no memory to record a GPU's activity");
}

void records_close(struct records *r)
{
    for (int64_t i = 0; i < r->n_names; i++)
        free(r->names[i].text);
    free(r->activities);
    free(r->calls);
    free(r->ranges);
    free(r->names);
    free(r->slots);
    *r = (struct records){0};
}

/* ---- names ---- */

/* Returns the number of a name. A name for which there is no room becomes "". */
static uint32_t name_of(struct records *r, const char *text)
{
    if (!text || !*text)
        return 0;
    uint32_t at = (uint32_t)(hash_64(text, strlen(text)) % (2 * RECORDS_NAMES));
    while (r->slots[at] && strcmp(r->names[r->slots[at]].text, text) != 0)
        at = (at + 1) % (2 * RECORDS_NAMES);
    if (r->slots[at])
        return r->slots[at];
    char *copy = r->n_names < RECORDS_NAMES ? strdup(text) : NULL;
    if (!copy)
        return 0;
    r->names[r->n_names] = (struct record_name){copy, kernel_class_of(copy)};
    r->slots[at] = (uint32_t)r->n_names++;
    return r->slots[at];
}

/* ---- recording ---- */

/* Says whether there is room for one more record; if not, counts that record as dropped. */
static bool has_room(struct records *r, int64_t n, int64_t most)
{
    r->dropped += n >= most;
    return n < most;
}

void records_activity(struct records *r, enum record_kind kind, const char *name, uint64_t start_ns,
                      uint64_t end_ns, uint32_t call)
{
    if (has_room(r, r->n_activities, RECORDS_ACTIVITIES) && end_ns >= start_ns)
        r->activities[r->n_activities++] = (struct record_activity){
            .start_ns = (int64_t)start_ns, .end_ns = (int64_t)end_ns,
            .call = call, .name = name_of(r, name), .kind = kind};
}

void records_call(struct records *r, uint32_t id, uint32_t thread, uint64_t at_ns)
{
    if (has_room(r, r->n_calls, RECORDS_CALLS))
        r->calls[r->n_calls++] =
            (struct record_call){.at_ns = (int64_t)at_ns, .id = id, .thread = thread};
}

void records_range_begin(struct records *r, uint32_t id, uint32_t thread, const char *name,
                        uint64_t at_ns)
{
    if (has_room(r, r->n_ranges, RECORDS_RANGES))
        r->ranges[r->n_ranges++] = (struct record_range){
            .start_ns = (int64_t)at_ns, .end_ns = INT64_MAX,
            .id = id, .thread = thread, .name = name_of(r, name)};
}

/* Ends the range of this id. It is searched from the end, because it mostly began recently. */
void records_range_end(struct records *r, uint32_t id, uint64_t at_ns)
{
    for (int64_t i = r->n_ranges; i-- > 0;)
        if (r->ranges[i].id == id && r->ranges[i].end_ns == INT64_MAX) {
            r->ranges[i].end_ns = (int64_t)at_ns;
            return;
        }
}

/* ---- joining ---- */

static int order(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int calls_by_time(const void *a, const void *b)
{
    const struct record_call *x = a, *y = b;
    return x->thread != y->thread ? order(x->thread, y->thread) : order(x->at_ns, y->at_ns);
}

static int calls_by_id(const void *a, const void *b)
{
    return order(((const struct record_call *)a)->id, ((const struct record_call *)b)->id);
}

/* Orders ranges so that each comes after the ranges that enclose it. */
static int ranges_by_time(const void *a, const void *b)
{
    const struct record_range *x = a, *y = b;
    if (x->thread != y->thread)
        return order(x->thread, y->thread);
    return x->start_ns != y->start_ns ? order(x->start_ns, y->start_ns)
                                      : order(y->end_ns, x->end_ns);
}

static bool begins(const struct records *r, uint32_t name, const char *with)
{
    return strncmp(r->names[name].text, with, strlen(with)) == 0;
}

enum { DEPTH = 64 }; /* the most ranges inside each other; deeper ones are left out */
struct nest { const struct record_range *open[DEPTH]; int depth; };

/* Leaves the open ranges that have ended at this moment or belong to another thread. */
static void nest_leave(struct nest *s, uint32_t thread, int64_t at_ns)
{
    while (s->depth > 0 && (s->open[s->depth - 1]->thread != thread ||
                            s->open[s->depth - 1]->end_ns <= at_ns))
        s->depth--;
}

static void call_name(const struct records *r, const struct nest *s, struct record_call *c)
{
    c->range = s->depth > 0 ? s->open[s->depth - 1]->name : 0;
    c->layer = 0;
    for (int i = s->depth; i-- > 0 && !c->layer;)
        if (begins(r, s->open[i]->name, "layer"))
            c->layer = s->open[i]->name;
}

/* Finds for each call the innermost range of its thread in which it lies, and its layer. */
static void calls_name(struct records *r)
{
    struct nest s = {0};
    int64_t m = 0;
    qsort(r->calls, (size_t)r->n_calls, sizeof *r->calls, calls_by_time);
    qsort(r->ranges, (size_t)r->n_ranges, sizeof *r->ranges, ranges_by_time);
    for (int64_t i = 0; i < r->n_calls; i++) {
        struct record_call *c = &r->calls[i];
        for (; m < r->n_ranges && (r->ranges[m].thread < c->thread ||
                                  (r->ranges[m].thread == c->thread &&
                                   r->ranges[m].start_ns <= c->at_ns)); m++) {
            nest_leave(&s, r->ranges[m].thread, r->ranges[m].start_ns);
            if (s.depth < DEPTH)
                s.open[s.depth++] = &r->ranges[m];
        }
        nest_leave(&s, c->thread, c->at_ns);
        call_name(r, &s, c);
    }
}

static enum kernel_class class_of(const struct records *r, const struct record_activity *a)
{
    if (a->kind != RECORD_KERNEL)
        return a->kind == RECORD_PEER_COPY ? KERNEL_COMMUNICATION : KERNEL_COPY;
    return kernel_class_in_range(r->names[a->name].class, r->names[a->range].class);
}

void records_join(struct records *r)
{
    calls_name(r);
    qsort(r->calls, (size_t)r->n_calls, sizeof *r->calls, calls_by_id);
    for (int64_t i = 0; i < r->n_activities; i++) {
        struct record_activity *a = &r->activities[i];
        const struct record_call key = {.id = a->call},
                                 *c = bsearch(&key, r->calls, (size_t)r->n_calls, sizeof *c,
                                              calls_by_id);
        a->range = c ? c->range : 0;
        a->layer = c ? c->layer : 0;
        a->class = class_of(r, a);
    }
}

/* ---- steps ---- */

static void steps_widen(struct records_steps *s, int64_t from_ns, int64_t to_ns)
{
    s->from_ns = s->n == 0 || from_ns < s->from_ns ? from_ns : s->from_ns;
    s->to_ns = s->n == 0 || to_ns > s->to_ns ? to_ns : s->to_ns;
    s->n++;
}

struct records_steps records_steps(const struct records *r)
{
    struct records_steps s = {0};
    for (int64_t i = 0; i < r->n_ranges; i++)
        if (begins(r, r->ranges[i].name, "step") && r->ranges[i].end_ns != INT64_MAX)
            steps_widen(&s, r->ranges[i].start_ns, r->ranges[i].end_ns);
    if ((s.named = s.n > 0))
        return s;
    for (int64_t i = 0; i < r->n_activities; i++)
        steps_widen(&s, r->activities[i].start_ns, r->activities[i].end_ns);
    s.n = s.n > 0;
    return s;
}
