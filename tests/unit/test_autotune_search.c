/* The search against a simulated machine (the model with other constants, plus noise), and how a
 * trial's end is classed. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/host.h"
#include "autotune/search.h"
#include "profiles/space.h"
#include "autotune/trial.h"
#include "base/philox.h"

enum { CASES = 100, MAX_TRIALS = 12 };
static const double NOISE = 0.01;

/* Truth: each term times a factor drawn for the case from its prior, each trial NOISE. */
static void truth_draw(uint64_t seed, double factor[PRICE_TERMS])
{
    struct fit prior;
    fit_init(&prior);
    for (int t = 0; t < PRICE_TERMS; t++)
        factor[t] =
            exp(sqrt(prior.cov[t][t]) * philox_normal_at(seed, PHILOX_TEST, 0, (uint64_t)t));
}

static double truth_of(const double factor[PRICE_TERMS], const double terms[PRICE_TERMS])
{
    double sum = 0;
    for (int t = 0; t < PRICE_TERMS; t++)
        sum += terms[t] * factor[t];
    return sum;
}

static void tell(struct search *s, int64_t i, double measured_s, double fastest_s)
{
    search_tell(s, i, &(struct search_outcome){.state = TRIAL_OK, .measured_s = measured_s,
                                               .fastest_s = fastest_s});
}

static struct search_item *items_make(const struct model *m, size_t *n)
{
    static const struct speed rates = {
        .gemm = {5e10, 1e11}, .attention = {3e10, 1e11}, .attention_backward = 2, .copy_bytes = 1e10,
        .input_s = {1e-9, 2e-9, 3e-9, 4e-9}, .update_bytes = 1e10, .norm_bytes = 1e10,
    .clear_bytes = 1e10, .move_bytes = 1e10, .rank_loss = 0.05,
        .link = {1e-6, 1e9}, .link_shared = {1e-6, 1e9}, .step_s = 1e-3};
    struct space_spec in = {m, {1, 8, 8}, 16, (const int64_t[]){1, 2, 4}, 3};
    struct work_spec spec = {.model = m, .seq = {1, 8, 8}, .gbs = 16, .act = DTYPE_F32,
                             .ema = true};
    static struct host host;
    struct held_spec memory = {m, {1, 8, 8}, 8, DTYPE_F32, true};
    struct space s = {0};
    struct err err;
    assert_ok(host_open(&host, &spec, &err), &err);
    assert_ok(host_set(&host, &rates, 4, &err), &err);
    assert_ok(space_build(&in, &s, &err), &err);
    struct search_item *items = calloc(s.n, sizeof *items);
    assert_non_null(items);
    for (size_t i = 0; i < s.n; i++) {
        struct memory_bytes bytes;
        struct price_step step;
        items[i].layout = s.items[i];
        assert_ok(host_price(&host, &s.items[i], &step, &err), &err);
        price_bill(&host.machine[0], m, &s.items[i], &step, &items[i].bill);
        assert_ok(memory_predict(&memory, &s.items[i], &bytes, &err), &err);
        items[i].planned_bytes = bytes.total;
    }
    *n = s.n;
    space_release(&s);
    return items;
}

static void finds_the_best(void **state)
{
    struct model m;
    struct err err;
    double trials = 0;
    size_t n;
    int close = 0;
    (void)state;
    assert_ok(model_load("dit-tiny", &m, &err), &err);
    struct search_item *untried = items_make(&m, &n), *items = calloc(n, sizeof *items);
    assert_non_null(items);
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        double factor[PRICE_TERMS];
        struct search_conf conf = {0.005, MAX_TRIALS, 0, 0.05};
        struct search s;
        double best = INFINITY;
        int64_t i, first = -1;
        truth_draw(seed, factor);
        memcpy(items, untried, n * sizeof *items);
        search_init(&s, items, n, &conf);
        s.fit.noise = NOISE;
        for (size_t k = 0; k < n; k++)
            best = fmin(best, truth_of(factor, items[k].bill.term));
        while ((i = search_next(&s)) >= 0) {
            first = first < 0 ? i : first;
            assert_int_equal(items[i].state, TRIAL_UNTRIED);
            double noise = 1 + NOISE * philox_normal_at(seed, PHILOX_TEST, 1, (uint64_t)i);
            tell(&s, i, truth_of(factor, items[i].bill.term) * noise, 0);
        }
        assert_int_equal(first, s.baseline);
        assert_non_null(s.stop_reason);
        /* never worse than the plain layout */
        assert_true(items[s.best].measured_s <= items[first].measured_s);
        close += truth_of(factor, items[s.best].bill.term) <= best * 1.01;
        trials += (double)s.trials / CASES;
    }
    free(items);
    free(untried);
    print_message("within 1 %% of the best of %zu in %d of %d, %.1f trials on average\n", n, close,
                  CASES, trials);
    assert_true(close >= CASES * 9 / 10);
}

static void plain_items(struct search_item items[], int n)
{
    for (int k = 0; k < n; k++)
        items[k].layout = (struct layout){.tp = 1, .cp = 1, .pp = 1, .dp = n - k, .mbs = 1};
}

/* One layout's first measurement was disturbed: measured again, the search finds that it is the
 * best after all. */
static void measures_again(void **state)
{
    struct search_item items[4] = {
        {.bill.term = {1.00}}, {.bill.term = {1.05}}, {.bill.term = {1.08}}, {.bill.term = {1.3}}};
    static const double truth[] = {1.00, 0.97, 1.08, 1.3};
    struct search_conf conf = {.margin = -0.5, .max_trials = 4, .repeats = 3}; /* all are tried */
    struct search s;
    int64_t i, measured[4] = {0};
    (void)state;
    plain_items(items, 4);
    search_init(&s, items, 4, &conf);
    while ((i = search_next(&s)) >= 0)
        tell(&s, i, truth[i] * (measured[i]++ == 0 && i == 1 ? 1.06 : 1), 0);
    assert_int_equal(s.best, 1);
    assert_true(items[1].measured_s == 0.97);
    assert_int_equal(measured[0], 3);
    assert_int_equal(measured[1], 3);
    assert_int_equal(measured[3], 1); /* far off: once is enough */
    assert_int_equal(s.trials, 4);
    assert_int_equal(s.repeated, measured[0] + measured[1] + measured[2] - 3);
    assert_non_null(s.stop_reason);
}

static void oom_rules_out(void **state)
{
    struct model m;
    struct err err;
    struct search s;
    size_t n;
    struct search_conf conf = {0.02, 100, 0, 0.05};
    (void)state;
    assert_ok(model_load("dit-tiny", &m, &err), &err);
    struct search_item *items = items_make(&m, &n);
    search_init(&s, items, n, &conf);
    int64_t base = search_next(&s);
    search_tell(&s, base, &(struct search_outcome){.state = TRIAL_OOM_HOST});
    int ruled_out = 0, kept = 0, fewer = 0;
    for (size_t i = 0; i < n; i++) {
        const struct layout *l = &items[i].layout;
        double share = items[i].planned_bytes / items[base].planned_bytes;
        bool same = l->tp == 1 && l->cp == 1 && l->pp == 1 && l->dp == items[base].layout.dp;
        if (layout_world(l) < layout_world(&items[base].layout)) {
            assert_true(items[i].state != TRIAL_SKIPPED); /* its ranks may hold as much */
            fewer += share >= SEARCH_OOM;
        }
        if ((int64_t)i == base || layout_world(l) < layout_world(&items[base].layout))
            continue;
        assert_int_equal(items[i].state == TRIAL_SKIPPED,
                         share >= SEARCH_OOM || (same && share >= 1));
        ruled_out += items[i].state == TRIAL_SKIPPED;
        kept += share >= 1 && items[i].state != TRIAL_SKIPPED; /* of another grid */
    }
    assert_true(ruled_out > 0 && kept > 0 && fewer > 0);
    assert_int_equal(s.best, -1);
    conf.limit_bytes = 1; /* nothing fits, nor does the baseline */
    for (size_t i = 0; i < n; i++)
        items[i].state = TRIAL_UNTRIED;
    search_init(&s, items, n, &conf);
    assert_int_equal(search_next(&s), -1);
    assert_string_equal(s.stop_reason, "no untried layout fits the memory");
    free(items);
}

/* A trial whose steps differ is made again at once, and teaches nothing; one that is as slow again
 * is believed, and so is the machine's noise. */
static void disturbed(void **state)
{
    struct search_item items[2] = {{.bill.term = {1}},
                                   {.bill.term = {[PRICE_GEMM] = 0.9, [PRICE_CP] = 0.2}}};
    struct search_conf conf = {.max_trials = 2, .repeats = 2};
    const struct search_outcome odd = {.state = TRIAL_OK, .measured_s = 1.4, .fastest_s = 1};
    struct search s;
    (void)state;
    plain_items(items, 2);
    search_init(&s, items, 2, &conf);
    double noise = s.fit.noise;
    assert_int_equal(search_next(&s), 0);
    assert_true(search_is_disturbed(&s, 0, &odd));
    search_tell(&s, 0, &odd);
    assert_true(s.fit.n == 0 && s.fit.noise == noise && s.best == 0);
    assert_int_equal(search_next(&s), 0);
    assert_false(search_is_disturbed(&s, 0, &odd));
    search_tell(&s, 0, &odd);
    assert_true(s.fit.n == 1 && s.fit.noise > 2 * noise && items[0].measured_s == 1.4);
    assert_int_equal(s.trials, 1);
    assert_int_equal(s.repeated, 1);
    assert_int_equal(search_next(&s), 1);
    tell(&s, 1, 0.4, 0);
    assert_int_equal(search_next(&s), 0); /* at the end, though it was repeated at the begin */
    tell(&s, 0, 1.4, 0);
    assert_int_equal(search_next(&s), -1);
}

/* A first trial is disturbed by what was learnt before this search: the layout is measured again at
 * once, and not learnt from. */
static void disturbed_at_first(void **state)
{
    (void)state;
    for (int taught = 0; taught < 2; taught++) {
        struct search_item items[2] = {{.bill.term = {1}}, {.bill.term = {1.05}}};
        struct search_conf conf = {.margin = 0.01, .max_trials = 2, .repeats = 2};
        struct fit earlier;
        struct search s;
        plain_items(items, 2);
        search_init(&s, items, 2, &conf);
        fit_init(&earlier);
        for (int k = 0; k < 3 * taught; k++)
            fit_add(&earlier, &items[k % 2].bill, 0.5 * items[k % 2].bill.term[PRICE_GEMM]);
        fit_begin(&s.fit, &earlier);
        assert_int_equal(search_next(&s), 0);
        tell(&s, 0, 1, 0);
        assert_int_equal(search_next(&s), taught ? 0 : 1);
        assert_int_equal(s.fit.n, !taught);
    }
}

/* A search ended after a disturbed trial and before its repeat. The next one makes it; without the
 * word of the first it would believe 1.4 s. A repeat that is on record too is not made again. */
static void disturbed_before(void **state)
{
    const struct search_conf conf = {.max_trials = 2, .repeats = 2};
    struct search_outcome odd = {.state = TRIAL_OK, .measured_s = 1.4, .reused = true};
    (void)state;
    for (int repeat = 0; repeat < 2; repeat++) {
        struct search_item items[2] = {{.bill.term = {1}},
                                       {.bill.term = {[PRICE_GEMM] = 0.9, [PRICE_CP] = 0.2}}};
        struct search s;
        plain_items(items, 2);
        search_init(&s, items, 2, &conf);
        odd.disturbed = true;
        search_tell(&s, 0, &odd);
        assert_true(s.fit.n == 0 && items[0].disturbed);
        odd.disturbed = false;
        if (repeat)
            search_tell(&s, 0, &odd);
        assert_int_equal(search_next(&s), repeat);
        assert_true(s.fit.n == repeat && s.trials == 0);
    }
}

/* Noise decides who is a contender, and the baseline is measured again at the end. */
static void contenders(void **state)
{
    static const double truth[] = {2, 1, 1.05};
    (void)state;
    for (int quiet = 0; quiet < 2; quiet++) {
        struct search_item items[3] = {{.bill.term = {2}}, {.bill.term = {1}}, {.bill.term = {1.05}}};
        struct search_conf conf = {.margin = -0.5, .max_trials = 3, .repeats = 2};
        struct search s;
        int64_t i, last = -1, measured[3] = {0};
        plain_items(items, 3);
        search_init(&s, items, 3, &conf);
        for (int k = 0; k < 400 * quiet; k++)
            s.n_squares++; /* so many differences of 0 */
        while ((i = search_next(&s)) >= 0) {
            tell(&s, i, truth[i], quiet ? truth[i] : 0);
            measured[last = i]++;
        }
        assert_int_equal(last, 0);
        assert_int_equal(measured[0], 2);
        assert_int_equal(measured[1], quiet ? 1 : 2);
        assert_int_equal(measured[2], quiet ? 1 : 2);
    }
}

/* Begins a search over seven layouts within 0.6 %, on a machine whose noise is 1.8 %. The first is
 * the baseline and the fastest. */
static void seven_begin(struct search *s, struct search_item items[7], int64_t max_trials)
{
    enum { SEEN = 400 }; /* so many differences that single trials change the noise little */
    static const double noise = 0.018;
    struct search_conf conf = {.margin = -0.5, .max_trials = max_trials, .repeats = 2};
    memset(items, 0, 7 * sizeof *items);
    plain_items(items, 7);
    for (int k = 0; k < 7; k++)
        items[k].bill.term[PRICE_GEMM] = 1 + 0.001 * k;
    search_init(s, items, 7, &conf);
    s->squares = SEEN * noise * noise, s->n_squares = SEEN;
    s->fit.noise = noise;
}

/* Every contender is measured twice, however many there are. A disturbed trial's repeat is at no
 * other's cost. */
static void all_contenders(void **state)
{
    (void)state;
    for (int n_odd = 0; n_odd <= 3; n_odd += 3) {
        struct search_item items[7];
        struct search s;
        int64_t i, measured[7] = {0};
        seven_begin(&s, items, 12);
        while ((i = search_next(&s)) >= 0) {
            bool odd = i > 0 && i <= n_odd && measured[i] == 0;
            double truth = items[i].bill.term[PRICE_GEMM];
            measured[i]++;
            tell(&s, i, truth * (odd ? 1.3 : 1), truth);
        }
        for (int k = 0; k < 7; k++)
            assert_int_equal(measured[k], 2);
        assert_int_equal(s.trials, 7);
        assert_int_equal(s.repeated, 7);
        assert_int_equal(search_contenders_find(&s).n, 7);
        assert_int_equal(search_contenders_find(&s).left, 0);
        assert_int_equal(s.best, 0);
    }
}

/* Earlier searches left more contenders than one of two trials takes: the nearest are measured, and
 * the search knows how many it leaves. */
static void contenders_left(void **state)
{
    struct search_item items[7];
    struct search s;
    int64_t i;
    (void)state;
    seven_begin(&s, items, 2);
    for (int k = 6; k >= 0; k--)
        search_tell(&s, k, &(struct search_outcome){.state = TRIAL_OK, .reused = true,
                                                    .measured_s = items[k].bill.term[0]});
    assert_int_equal(search_contenders_find(&s).left, 7);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(i = search_next(&s), k);
        tell(&s, i, items[i].bill.term[0], 0);
    }
    assert_int_equal(search_next(&s), -1);
    assert_true(s.trials == 0 && s.repeated == 2);
    assert_int_equal(search_contenders_find(&s).n, 7);
    assert_int_equal(search_contenders_find(&s).left, 5);
}

/* The first batch: the caller's default, the corner that shards all, then what differs most
 * promisingly; then the greatest expected improvement, which a wide interval may promise. */
static void first_batch(void **state)
{
    static const struct layout layouts[] = {
        {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .mbs = 1},
        {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .mbs = 2},
        {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .mbs = 1, .zero = 3},
        {.tp = 2, .cp = 1, .pp = 1, .dp = 2, .mbs = 1},
        {.tp = 2, .cp = 1, .pp = 1, .dp = 2, .mbs = 2},
        {.tp = 1, .cp = 1, .pp = 4, .dp = 1, .mbs = 1},
    };
    static const int64_t order[] = {1, 2, 4, 5};
    struct search_item items[ARRAY_LEN(layouts)] = {0};
    struct search_conf conf = {.max_trials = 9, .baseline = &layouts[1]};
    struct search s;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        items[i].layout = layouts[i];
        items[i].bill.term[PRICE_GEMM] = 1 - 0.01 * (double)i;
    }
    items[5].bill.term[PRICE_GEMM] = 0.925, items[5].bill.term[PRICE_CONTENTION] = 0.06;
    search_init(&s, items, ARRAY_LEN(items), &conf);
    for (size_t k = 0; k < ARRAY_LEN(order); k++) {
        assert_int_equal(search_next(&s), order[k]);
        const double *term = items[order[k]].bill.term;
        tell(&s, order[k], term[PRICE_GEMM] + term[PRICE_CONTENTION], 0);
    }
    conf.baseline = NULL;
    search_init(&s, items, ARRAY_LEN(items), &conf);
    assert_int_equal(s.baseline, 0);
    conf.baseline = &(struct layout){.tp = 4, .cp = 1, .pp = 1, .dp = 1, .mbs = 1};
    search_init(&s, items, ARRAY_LEN(items), &conf);
    assert_int_equal(s.baseline, -1);
}

/* A machine that is slower than its rates say is so for all layouts: one that is predicted to be
 * slower than the best by terms of the same shares is not tried, one of other shares is. */
static void shared_errors_cancel(void **state)
{
    struct search_item items[4] = {{.bill.term = {1}},
                                   {.bill.term = {1.1}},
                                   {.bill.term = {[PRICE_GEMM] = 0.7, [PRICE_TP] = 0.4}},
                                   {.bill.term = {[PRICE_GEMM] = 0.7, [PRICE_CP] = 0.45}}};
    struct search_conf conf = {.max_trials = 4, .repeats = 1};
    struct search s;
    (void)state;
    plain_items(items, 4);
    search_init(&s, items, 4, &conf);
    for (int i = 0; i < 4; i += 1 + (i == 0)) {
        assert_int_equal(search_next(&s), i);
        tell(&s, i, i ? 1.6 : 1.4, 0);
    }
    assert_int_equal(search_next(&s), -1);
    assert_int_equal(items[1].state, TRIAL_UNTRIED);
}

/* The first layout takes what was predicted. Three that divide the work in another way are predicted
 * to be too slow to be tried, but take half as long: two are looked at all the same, and these tell
 * of the third. One that is predicted to take three times as long is never looked at. */
static void others_are_looked_at(void **state)
{
    static const double predicted[] = {1, 1.12, 1.13, 1.1, 3}, truth[] = {1, 0.56, 0.55, 0.5, 1.5};
    struct search_item items[ARRAY_LEN(truth)] = {0};
    struct search_conf conf = {.max_trials = 9, .repeats = 1};
    struct search s;
    int64_t i;
    (void)state;
    plain_items(items, ARRAY_LEN(items));
    for (size_t k = 0; k < ARRAY_LEN(items); k++) {
        items[k].layout.tp = 1 << k, items[k].layout.dp = 16 >> k;
        items[k].bill.term[PRICE_GEMM] = predicted[k];
    }
    conf.baseline = &items[0].layout;
    search_init(&s, items, ARRAY_LEN(items), &conf);
    while ((i = search_next(&s)) >= 0)
        tell(&s, i, truth[i], 0);
    assert_int_equal(s.best, 3);
    assert_int_equal(items[4].state, TRIAL_UNTRIED);
}

/* By GPU-hours the slower step on half of the ranks is the better one. */
static void gpu_hours(void **state)
{
    static const double truth[] = {1, 1.5};
    (void)state;
    for (int hours = 0; hours < 2; hours++) {
        struct search_item items[2] = {{.bill.term = {1}}, {.bill.term = {1.5}}};
        struct search_conf conf = {.margin = -0.9, .max_trials = 2, .gpu_hours = hours};
        struct search s;
        int64_t i;
        plain_items(items, 2);
        search_init(&s, items, 2, &conf);
        while ((i = search_next(&s)) >= 0)
            tell(&s, i, truth[i], 0);
        assert_int_equal(s.trials, 2);
        assert_int_equal(s.best, hours);
    }
}

/* A trial that is smaller than its layout teaches what ran, and the model adds what is missing. */
static void smaller_trials(void **state)
{
    static const struct price_bill one = {.term = {0.8}}, two = {.term = {1}};
    struct search_item items[2] = {
        {.bill.term = {[PRICE_GEMM] = 0.8, [PRICE_REDUCE] = 0.6}, .trial_bill = &one},
        {.bill.term = {[PRICE_GEMM] = 1}, .trial_bill = &two}};
    struct search_conf conf = {.margin = -0.9, .max_trials = 2};
    struct search s;
    int64_t i;
    (void)state;
    plain_items(items, 2);
    search_init(&s, items, 2, &conf);
    while ((i = search_next(&s)) >= 0)
        tell(&s, i, 2 * items[i].trial_bill->term[PRICE_GEMM], 0);
    assert_int_equal(s.trials, 2);
    assert_int_equal(s.best, 1); /* although its trial was the slower one */
    assert_true(search_time(&s, 1) == 2);
    assert_true(search_time(&s, 0) > 1.6 + 0.6 && search_time(&s, 0) < 1.6 + 1.3);
    assert_true(search_predict_trial(&s, 0, NULL, NULL) < search_predict(&s, 0, NULL, NULL));
}

/* A layout whose trial was interrupted is tried again, but not for ever. */
static void interrupted(void **state)
{
    struct search_item items[2] = {{.bill.term = {1}}, {.bill.term = {2}}};
    struct search_conf conf = {.max_trials = 4};
    struct search s;
    (void)state;
    plain_items(items, 2);
    search_init(&s, items, 2, &conf);
    for (int k = 0; k <= SEARCH_INTERRUPTIONS; k++) {
        assert_int_equal(search_next(&s), 0);
        assert_int_equal(s.trials, 0);
        search_tell(&s, 0,
                    &(struct search_outcome){.state = k ? TRIAL_NODE : TRIAL_PREEMPTED});
    }
    assert_int_equal(items[0].state, TRIAL_NODE);
    assert_int_equal(search_next(&s), 1);
}

/* Every rank that comes so far says this. */
#define PLANNED                                                                                    \
    "reel-train: info: memory plan of a rank:\nreel-train: info:   activations        3.88 MiB\n" \
    "reel-train: info:   total              73.3 MiB\n"

struct class_row {
    struct trial_end end;
    const char *log;
    enum trial_state state;
    const char *says, *evidence;
};

static void class_check(size_t i, const struct class_row *r)
{
    char cause[256], evidence[OOM_EVIDENCE_BYTES];
    enum trial_state got = trial_classify(&r->end, r->log, cause, evidence);
    if (got != r->state || !strstr(cause, r->says))
        fail_msg("row %zu: %s, '%s' does not say '%s'", i, trial_state_names[got], cause, r->says);
    if (trial_is_oom(got) != (evidence[0] != '\0') ||
        !strstr(evidence, r->evidence ? r->evidence : ""))
        fail_msg("row %zu: evidence is '%s'", i, evidence);
}

#define NCCL_FULL                                                                                  \
    "n3:7:9 [3] include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'\nKeyError: x\n"

static void classes(void **state)
{
    static const struct class_row rows[] = {
        {{{.ended = true}}, "", TRIAL_OK, ""},
        {{{.exit_code = -1}, .silent_s = 31}, "x", TRIAL_HANG, "no sign of life for 31 s"},
        {{{.node_lost = "n7"}}, "x", TRIAL_NODE, "node n7 was lost"},
        {{{.ended = true, .lost = true, .exit_code = -1}}, "", TRIAL_FAILED, "watched"},
        {{{.ended = true, .exit_code = -1, .exit_signal = 9}}, "step 1\n", TRIAL_FAILED, "step 1"},
        {{{.ended = true, .exit_code = -1, .exit_signal = 9}, .oom_evidence = "the kernel says"},
         "step 1\n", TRIAL_OOM_HOST, "step 1", "the kernel says"},
        {{{.ended = true, .exit_code = 5}, .oom_evidence = "vmstat"}, "", TRIAL_FAILED,
         "exit code 5"},
        {{{.ended = true, .exit_code = 75}, .oom_evidence = "memory.events", .oom_own = true},
         "reel-train: rank 1 is gone\n", TRIAL_OOM_HOST, "rank 1", "memory.events"},
        {{{.ended = true, .exit_code = 137}}, "", TRIAL_FAILED, "killed by SIGKILL"},
        {{{.ended = true, .exit_code = 137}},
         "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n", TRIAL_OOM_HOST, "oom_kill",
         "Detected 1 oom_kill"},
        {{{.ended = true, .exit_code = 1}}, "reel-train: out of memory by plan: a rank needs 2 GiB\n",
         TRIAL_OOM_HOST, "needs 2 GiB"},
        {{{.ended = true, .exit_code = 1}},
         "reel-train: out of memory by plan: a rank needs 2 GiB of the device, the limit is 1 GiB\n",
         TRIAL_OOM_DEVICE, "of the device"},
        {{{.ended = true, .exit_code = 5}},
         "reel-train: GPU 0 (H100): blocks: no memory for 7 bytes: 3 of 9 are free and 6 ours\n",
         TRIAL_OOM_DEVICE, "GPU 0"},
        {{{.ended = true, .exit_code = 1}}, "torch.OutOfMemoryError: CUDA out of memory.\n",
         TRIAL_OOM_DEVICE, "CUDA"},
        {{{.ended = true, .exit_code = 3}}, "a\nreel-train: bad field\nmpirun noise\n", TRIAL_FAILED,
         "bad field"},
        {{{.ended = true, .exit_code = 3}},
         "reel-train: layout 'tp=3': tp must divide the attention heads (4)\n", TRIAL_ILLEGAL,
         "must divide"},
        {{{.ended = true, .exit_code = 6}},
         "reel-train: 3 steps in a row had a gradient that is not finite\n", TRIAL_NONFINITE,
         "not finite"},
        {{{.ended = true, .exit_code = 75}}, "reel-train: told to stop\n", TRIAL_PREEMPTED, "told"},
        {{{.ended = true, .exit_code = -1, .exit_signal = 15}}, "", TRIAL_PREEMPTED, "SIGTERM"},
        {{{.ended = true, .exit_code = 5}}, "", TRIAL_FAILED, "exit code 5"},
        {{{.ended = true, .exit_code = -1, .exit_signal = 11}}, "one\ntwo\n", TRIAL_FAILED,
         "killed by SIGSEGV, after: two"},
        {{{.ended = true, .exit_code = -1, .exit_signal = 9}}, PLANNED, TRIAL_FAILED,
         "killed by SIGKILL"},
        {{{.ended = true, .exit_code = 139}}, PLANNED "[n1:7] Signal: Segmentation fault (11)\n",
         TRIAL_FAILED, "killed by SIGSEGV, after: [n1:7] Signal"},
        {{{.ended = true, .exit_code = 5}}, PLANNED, TRIAL_FAILED, "exit code 5"},
        {{{.ended = true, .exit_code = 5}}, PLANNED "reel-train: error: disk: no memory for 9\n",
         TRIAL_OOM_HOST, "disk"},
        {{{.ended = true, .exit_code = 5}},
         PLANNED "reel-train: warning: no memory for 9 bytes of cache\nreel-train: bad disk\n",
         TRIAL_FAILED, "bad disk"},
        {{{.ended = true, .exit_code = 1}}, "RuntimeError: CUDA_ERROR_OUT_OF_MEMORY\n",
         TRIAL_OOM_DEVICE, "RuntimeError"},
        {{{.ended = true, .exit_code = 1}}, "W0 cache oom_kill OUT_OF_MEMORY, out of memory\n",
         TRIAL_FAILED, "cache"},
        {{{.ended = true, .exit_code = 1}}, NCCL_FULL, TRIAL_OOM_DEVICE, "KeyError", "NCCL WARN"},
        /* it went on after these, and ended of something else */
        {{{.ended = true, .exit_code = 1}},
         "WARNING: CUDA out of memory while a workspace grew\nTypeError: no such key\n",
         TRIAL_FAILED, "no such key"},
        {{{.ended = true, .exit_code = 1}},
         "CUDA out of memory, falling back to a smaller one\nbad_alloc: will retry\nKeyError: x\n",
         TRIAL_FAILED, "KeyError"},
        {{{.ended = true, .exit_code = 1}},
         "CUDA out of memory, retrying\ntorch.OutOfMemoryError: CUDA out of memory.\n",
         TRIAL_OOM_DEVICE, "OutOfMemoryError", "torch.OutOfMemoryError"},
        {{{.ended = true, .exit_code = 3}},
         "reel-train: error: the layout needs 4 ranks, 3 started\n", TRIAL_FAILED, "3 started"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        class_check(i, &rows[i]);
}

/* What hardly fits is not tried for a small gain: it would most likely run out of memory. */
static void doubtful_waits(void **state)
{
    static const char *const layouts[] = {"tp=2,dp=2", "tp=4"};
    struct search_item items[2] = {0};
    struct search s;
    struct err err;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_ok(layout_parse(layouts[i], &items[i].layout, &err), &err);
        items[i].bill.term[PRICE_GEMM] = i ? 1 : 0.97;
        items[i].planned_bytes = i ? 5e10 : 10.5e10; /* one in three, and surely */
    }
    struct search_conf conf = {.margin = 0.02, .max_trials = 5, .rank_bytes = 1e11, .min_fit = 0.05};
    search_init(&s, items, 2, &conf);
    assert_true(search_fits(&s, 0));
    assert_int_equal(search_next(&s), 1);
}

/* A layout may be slow for a reason that the others of its class do not share: they are tried. */
static void one_slow_layout(void **state)
{
    static const char *const layouts[] = {"dp=4", "tp=2,dp=2", "tp=4"};
    static const double compute_s[] = {1, 0.4, 0.6}, sums_s[] = {0, 0.3, 0.25},
                        truth[] = {1, 1.9, 0.85};
    struct search_item items[3] = {0};
    struct search_conf conf = {.margin = 0.02, .max_trials = 5, .repeats = 1};
    struct search s;
    struct err err;
    int64_t i;
    (void)state;
    for (int k = 0; k < 3; k++) {
        assert_ok(layout_parse(layouts[k], &items[k].layout, &err), &err);
        items[k].bill.term[PRICE_GEMM] = compute_s[k], items[k].bill.term[PRICE_TP] = sums_s[k];
    }
    search_init(&s, items, 3, &conf);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(search_next(&s), k);
        tell(&s, k, truth[k], 0);
    }
    /* by the sums of the second layout, the third one would be no better than the first */
    assert_true(search_predict(&s, 2, NULL, NULL) > 1.1);
    while ((i = search_next(&s)) >= 0)
        tell(&s, i, truth[i], 0);
    assert_int_equal(s.best, 2);
}

/* Intervals are as wide as they say while predictions hold, and wider where they did not. */
static void widths(void **state)
{
    struct search_item items[2] = {{.bill.term = {1}}, {.bill.term = {[PRICE_GEMM] = 1}}};
    struct search_conf conf = {.max_trials = 2, .repeats = 1};
    struct search s;
    double log_sd, predicted;
    (void)state;
    plain_items(items, 2);
    search_init(&s, items, 2, &conf);
    assert_close(search_width(&s), 1, 1e-12, "nothing was measured");
    tell(&s, 0, search_predict(&s, 0, NULL, NULL), 0);
    assert_close(search_width(&s), 1, 1e-12, "it was as predicted");
    predicted = search_predict(&s, 1, NULL, &log_sd);
    tell(&s, 1, predicted * exp(-3 * log_sd), 0);
    assert_close(search_width(&s), sqrt((2 + 9) / 4.0), 1e-9, "one of two was 3 sds off");
    predicted = search_predict(&s, 1, NULL, &log_sd);
    tell(&s, 1, predicted * exp(50 * log_sd), 0);
    assert_close(search_width(&s), sqrt((2 + 9 + 16) / 5.0), 1e-9, "no more than 4 count");
    search_tell(&s, 1, &(struct search_outcome){.state = TRIAL_FAILED});
    assert_close(search_width(&s), sqrt((2 + 9 + 16) / 5.0), 1e-9, "a failure tells no time");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_the_best),
                                       cmocka_unit_test(doubtful_waits),
                                       cmocka_unit_test(one_slow_layout),
                                       cmocka_unit_test(oom_rules_out),
                                       cmocka_unit_test(measures_again),
                                       cmocka_unit_test(interrupted), cmocka_unit_test(disturbed),
                                       cmocka_unit_test(disturbed_before),
                                       cmocka_unit_test(disturbed_at_first),
                                       cmocka_unit_test(contenders),
                                       cmocka_unit_test(all_contenders),
                                       cmocka_unit_test(contenders_left),
                                       cmocka_unit_test(first_batch),
                                       cmocka_unit_test(shared_errors_cancel),
                                       cmocka_unit_test(others_are_looked_at),
                                       cmocka_unit_test(gpu_hours),
                                       cmocka_unit_test(smaller_trials),
                                       cmocka_unit_test(classes), cmocka_unit_test(widths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
