#include "trainer/cupti/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { LISTED = 60 }; /* the most kernels, operations or layers in a list, the longest first */

/* ---- the longest ---- */

/* Holds sums over all activities of one kernel name, range or layer. */
struct total {
    uint32_t name;
    int64_t calls, ns;
    int classes; /* bit c is set if an activity is of class c */
};

static int longest_first(const void *a, const void *b)
{
    const struct total *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static uint32_t kernel_key(const struct record_activity *a) { return a->name; }
static uint32_t range_key(const struct record_activity *a) { return a->range; }
static uint32_t layer_key(const struct record_activity *a) { return a->layer; }

/* Sums activities by key(activity), the number of a name. Returns how many totals have activities;
 * these come first, the longest first. */
static int64_t totals_make(const struct records *r, uint32_t (*key)(const struct record_activity *),
                           struct total *totals)
{
    int64_t n = 0;
    memset(totals, 0, (size_t)r->n_names * sizeof *totals);
    for (int64_t i = 0; i < r->n_activities; i++) {
        const struct record_activity *a = &r->activities[i];
        struct total *t = &totals[key(a)];
        t->name = key(a);
        t->calls++;
        t->ns += a->end_ns - a->start_ns;
        t->classes |= 1 << a->class;
    }
    qsort(totals, (size_t)r->n_names, sizeof *totals, longest_first);
    while (n < r->n_names && totals[n].calls > 0)
        n++;
    return n;
}

static void total_put(const struct records *r, const struct total *t, int64_t steps, bool kernel,
                      struct json_out *o)
{
    int class = 0;
    while (class < KERNEL_CLASSES - 1 && !(t->classes & 1 << class))
        class++;
    json_obj_begin(o, NULL);
    json_put_text(o, "name", r->names[t->name].text);
    if (kernel)
        json_put_text(o, "class", kernel_class_names[class]);
    json_put_num(o, "calls", (double)t->calls / (double)steps);
    json_put_num(o, "seconds", (double)t->ns * 1e-9 / (double)steps);
    json_obj_end(o);
}

static void totals_put(const struct records *r, const char *key,
                       uint32_t (*by)(const struct record_activity *), int64_t steps,
                       struct total *totals, struct json_out *o)
{
    int64_t n = totals_make(r, by, totals);
    json_arr_begin(o, key);
    for (int64_t i = 0; i < n && i < LISTED; i++)
        total_put(r, &totals[i], steps, by == kernel_key, o);
    json_arr_end(o);
}

/* ---- the file ---- */

static void sums_put(const struct timeline_sum *s, struct json_out *o)
{
    json_put_num(o, "step_s", s->step_s);
    json_obj_begin(o, "class_s");
    for (int c = 0; c < KERNEL_CLASSES; c++)
        json_put_num(o, kernel_class_names[c], s->class_s[c]);
    json_put_num(o, KERNEL_NONE_NAME, s->idle_s);
    json_obj_end(o);
    json_put_num(o, "compute_s", s->compute_s);
    json_put_num(o, "comm_s", s->comm_s);
    json_put_num(o, "exposed_s", s->exposed_s);
    json_put_num(o, "hidden_s", s->hidden_s);
    json_put_num(o, "mfu", s->mfu);
    json_put_num(o, "hfu", s->hfu);
    json_put_num(o, "busy_hfu", s->busy_hfu);
}

static void report_put(const struct records *r, const struct activity_facts *facts,
                       const struct activity_result *result, struct total *totals, struct str *text)
{
    struct json_out o;
    json_out_init(&o, text, 1);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.activity/1");
    json_put_int(&o, "rank", facts->rank);
    json_put_int(&o, "steps", result->steps);
    sums_put(&result->sums, &o);
    json_put_int(&o, "activities", result->activities);
    json_put_int(&o, "dropped", result->dropped);
    json_put_num(&o, "overhead_s", result->overhead_s);
    totals_put(r, "kernels", kernel_key, result->steps, totals, &o);
    totals_put(r, "operations", range_key, result->steps, totals, &o);
    totals_put(r, "layers", layer_key, result->steps, totals, &o);
    json_obj_end(&o);
    str_addc(text, '\n');
}

int report_write(const struct records *r, const struct activity_facts *facts,
                 const struct activity_result *result, const char *path, struct err *err)
{
    struct str text = STR_INIT;
    struct total *totals = malloc((size_t)r->n_names * sizeof *totals);
    int rc;
    if (!totals)
        return err_set(err, ERR_NOMEM, "no memory to sum a GPU's activity");
    report_put(r, facts, result, totals, &text);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    free(totals);
    return rc;
}
