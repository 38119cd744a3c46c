/* This file makes the cases of the optimizer's step, and of counts and sums over gradients. */
#include "tests/gpu/cases_lab.h"

#include <math.h>

enum { LONG = 9001 };

/* ---- sums and counts ---- */

struct look_case {
    const char *name;
    int64_t rows, cols;
    enum lab_class class;
    int bad;   /* how many numbers are not finite */
    bool add;
};
static const struct look_case look_cases[] = {
    {"odd", 3, 37, LAB_STAT, 0, false},        {"some are not finite", 3, 37, LAB_STAT, 5, false},
    {"added", 3, 37, LAB_STAT, 4, true},       {"even", 65, 64, LAB_ACT, 0, false},
    {"long, added", 2, LONG, LAB_ACT, 7, true}, {"one number", 1, 1, LAB_STAT, 0, false},
    {"one NaN", 1, 1, LAB_STAT, 1, true},      {"no numbers", 0, 7, LAB_STAT, 0, false},
    {"no numbers, added", 0, 7, LAB_ACT, 0, true}, {"wide", 7, 33, LAB_WIDE, 3, true},
};

/* Returns the input, in which `bad` numbers are infinite or NaN: the first, the last, and some
 * between. */
static struct tensor look_input(struct lab *l, const struct look_case *c)
{
    static const double kinds[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    struct tensor x = lab_in(l, "x", c->class, c->rows, c->cols);
    int64_t last = c->rows * c->cols - 1;
    for (int k = 0; k < c->bad; k++) {
        int64_t at = c->bad == 1 ? 0 : k * last / (c->bad - 1);
        lab_put(l, x, at / c->cols, at % c->cols, kinds[k % 3]);
    }
    return x;
}

static void sumsq_make(struct lab *l, const void *data)
{
    const struct look_case *c = data;
    const struct ops_health before = {0.25, 2};
    struct tensor x = look_input(l, c);
    struct ops_health *h = lab_bytes(l, "out", c->add ? &before : NULL, (int64_t)sizeof *h);
    lab_out(l, "sum of squares", 0, tensor_of(&h->sumsq, DTYPE_F64, 1, 1))->judged = l->o->stat;
    lab_count(l, "not finite", &h->nonfinite);
    LAB_CALL(l, sumsq, (struct ops_sumsq){x, h, c->add});
}
LAB_CASES(sumsq, look_cases, sumsq_make)

static const struct look_case finite_cases[] = {
    {"f64", 3, 37, LAB_F64, 5, true},          {"f32", 3, 37, LAB_F32, 5, true},
    {"bf16", 3, 37, LAB_BF16, 5, true},        {"f64, all are", 2, LONG, LAB_F64, 0, true},
    {"f32, all are", 66, 64, LAB_F32, 0, true}, {"bf16, all are", 2, LONG, LAB_BF16, 0, true},
    {"one NaN", 1, 1, LAB_ACT, 1, true},       {"long", 3, LONG, LAB_ACT, 9, true},
    {"no numbers", 0, 7, LAB_ACT, 0, true},
};

static void finite_make(struct lab *l, const void *data)
{
    const struct look_case *c = data;
    const int64_t before = 10;
    struct tensor x = look_input(l, c);
    if (c->class == LAB_F64) /* finite, and past the largest float */
        lab_put(l, x, c->rows - 1, 1, 1e300);
    int64_t *bad = lab_bytes(l, "bad", &before, (int64_t)sizeof before);
    lab_count(l, "bad", bad);
    LAB_CALL(l, finite, (struct ops_finite){x, bad});
}
LAB_CASES(finite, finite_cases, finite_make)

/* ---- AdamW ---- */

struct adamw_case {
    const char *name;
    int64_t n, counted;
    enum lab_class moments;
    bool ema, weight, weight_is_master, change, skip;
    uint64_t first, update;
    double decay, lr_scale;
    int64_t cut; /* elements of a span; 0: there is one span */
    int64_t col, row, others; /* col, row and skip of the spans */
};
enum { SPANS_MAX = 8 };
static const struct adamw_case adamw_cases[] = {
    {.name = "all", .n = 4133, .counted = 4133, .moments = LAB_STAT, .ema = true, .weight = true,
     .change = true, .update = 3, .decay = 0.1, .lr_scale = 2},
    {.name = "some are counted", .n = LONG, .counted = LONG - 11, .moments = LAB_STAT,
     .ema = true, .weight = true, .change = true, .update = 3, .decay = 0.1, .lr_scale = 1},
    {.name = "nothing is counted", .n = 67, .moments = LAB_STAT, .weight = true,
     .update = 9, .lr_scale = 1},
    {.name = "no weight, no average", .n = 129, .counted = 50, .moments = LAB_STAT,
     .change = true, .update = 1, .decay = 0.1, .lr_scale = 1},
    {.name = "weight is master", .n = 1030, .counted = 1030, .moments = LAB_STAT, .weight = true,
     .weight_is_master = true, .change = true, .update = 4, .decay = 0.1, .lr_scale = 0.5},
    {.name = "rounded moments", .n = 2049, .counted = 2049, .moments = LAB_BF16, .ema = true,
     .weight = true, .change = true, .update = 3, .decay = 0.1, .lr_scale = 2},
    {.name = "rounded moments, a part", .n = 1001, .counted = 7, .moments = LAB_BF16,
     .weight = true, .change = true, .first = (UINT64_C(5) << 32) + 7, .update = 70000,
     .decay = 0.1, .lr_scale = 2},
    {.name = "skipped", .n = 133, .counted = 133, .moments = LAB_STAT, .ema = true,
     .weight = true, .change = true, .skip = true, .update = 3, .decay = 0.1, .lr_scale = 2},
    {.name = "skipped, rounded moments", .n = 133, .counted = 133, .moments = LAB_BF16,
     .weight = true, .change = true, .skip = true, .update = 3, .decay = 0.1, .lr_scale = 2},
    {.name = "spans", .n = 4133, .counted = 3001, .moments = LAB_STAT, .ema = true, .weight = true,
     .change = true, .update = 3, .decay = 0.1, .lr_scale = 2, .cut = 1030},
    {.name = "spans, rounded moments", .n = 4133, .counted = 4133, .moments = LAB_BF16,
     .ema = true, .weight = true, .change = true, .first = 3, .update = 3, .decay = 0.1,
     .lr_scale = 2, .cut = 1029},
    {.name = "columns, rounded moments", .n = 2100, .counted = 2000, .moments = LAB_BF16,
     .weight = true, .change = true, .first = 5, .update = 3, .decay = 0.1, .lr_scale = 2,
     .cut = 700, .col = 30, .row = 33, .others = 69},
    {.name = "one element", .n = 1, .counted = 1, .moments = LAB_STAT, .ema = true,
     .weight = true, .change = true, .update = 3, .decay = 0.1, .lr_scale = 2},
};

/* Returns second moments, which are not negative. */
static struct tensor squares_in(struct lab *l, const struct adamw_case *c)
{
    struct tensor v = lab_in(l, "v", c->moments, 1, c->n);
    for (int64_t j = 0; j < c->n; j++)
        lab_put(l, v, 0, j, 0.05 + fabs(lab_get(l, v, 0, j)));
    return v;
}

static void change_put(struct lab *l, struct ops_adamw *a)
{
    const struct ops_change before = {0.5, 0.125};
    a->change = lab_bytes(l, "change", &before, (int64_t)sizeof before);
    lab_out(l, "squares of weights", 0,
            tensor_of(&a->change->weight_sumsq, DTYPE_F64, 1, 1))->judged = l->o->stat;
    lab_out(l, "squares of updates", 0,
            tensor_of(&a->change->update_sumsq, DTYPE_F64, 1, 1))->judged = l->o->stat;
}

/* Makes the table of spans. Gradients and weights lie in reverse order. Each span has a weight
 * decay of its own, and its part of the `counted` elements. */
static void spans_put(struct lab *l, const struct adamw_case *c, struct ops_adamw *a)
{
    struct ops_adamw_span spans[SPANS_MAX];
    int64_t cut = c->cut ? c->cut : c->n;
    for (int64_t at = 0; at < c->n; at += cut, a->n++) {
        int64_t n = cut < c->n - at ? cut : c->n - at,
                other = c->weight_is_master ? at : c->n - at - n, counted = c->counted - at;
        spans[a->n] = (struct ops_adamw_span){
            .grad = other, .master = at, .state = at, .weight = other,
            .n = n, .counted = counted < 0 ? 0 : counted < n ? counted : n,
            .first = c->first + (uint64_t)(at * (a->n + 1)),
            .col = c->col, .row = c->row, .skip = c->others,
            .weight_decay = c->decay * (double)(a->n + 1), .lr_scale = c->lr_scale};
    }
    a->spans = lab_bytes(l, "spans", spans, a->n * (int64_t)sizeof *spans);
    a->host_spans = lab_host(l, a->spans);
}

static void adamw_make(struct lab *l, const void *data)
{
    const struct adamw_case *c = data;
    const struct ops_step step = {.lr = 0.1, .bias1 = 1 - pow(0.9, 5), .bias2 = 1 - pow(0.99, 5),
                                  .grad_scale = 0.5, .update = c->update, .skip = c->skip};
    struct ops_adamw a = {.step = lab_bytes(l, "step", &step, (int64_t)sizeof step), .seed = 5,
                          .grad = lab_in(l, "grad", LAB_STAT, 1, c->n),
                          .master = lab_in(l, "master", LAB_STAT, 1, c->n),
                          .m = lab_in(l, "m", c->moments, 1, c->n), .v = squares_in(l, c),
                          .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .ema_decay = 0.95};
    spans_put(l, c, &a);
    lab_out(l, "master", 0, a.master);
    lab_out(l, "m", 0, a.m)->at_random = c->moments == LAB_BF16;
    lab_out(l, "v", 0, a.v)->at_random = c->moments == LAB_BF16;
    if (c->ema) {
        a.ema = lab_in(l, "ema", LAB_STAT, 1, c->n);
        lab_out(l, "ema", 0, a.ema);
    }
    if (c->weight) {
        a.weight = c->weight_is_master ? a.master : lab_new(l, "weight", LAB_ACT, 1, c->n);
        lab_out(l, "weight", 0, a.weight);
    }
    if (c->change)
        change_put(l, &a);
    LAB_CALL(l, adamw, a);
}
LAB_CASES(adamw, adamw_cases, adamw_make)
