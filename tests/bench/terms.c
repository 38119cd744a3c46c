/* terms: holds what the tuner's probe says of a layout's CPU time, class by class, against what a
 * trial measures before anything was learnt.
 *
 *     terms [--bin DIR] [--rounds N] [--seconds S] [--only TEXT] [--ranks N] [--rows FILE]
 *
 * The layouts are thirteen that are named here, and a covering set of those of at most --ranks ranks
 * (as many as there are processors), in which every legal combination of two settings' values
 * occurs: of dit-tiny, stdit-tiny and moviegen-tiny, every other one in bf16. In each round every
 * model is probed anew, as `reel tune` does it, and each of its layouts has one trial, so that what
 * else the machine does meets all layouts alike. No round is begun that would not end within
 * --seconds, judging by the longest before it. --only takes the layouts whose line has this text.
 *
 * A line has, for each class that is priced, the median over rounds of measured / priced. One that is
 * more than 15 % off has an asterisk; one of which the rounds show it has an exclamation mark: by the
 * sign test, so many of them lie beyond 15 % on that side that chance explains it in 2.5 % of cases
 * at most (six of six rounds, eight of nine). Between the two lies what the machine's own changes
 * do: a virtual machine's memory is now and then slower by half for a second, and meets a probe
 * or a trial alone. So lines follow that pool all rounds of all layouts which have a model, a type,
 * or a setting's value in common. The exit status is 1 if a pool is more than 15 % off, or a layout
 * has an exclamation mark.
 *
 * --rows FILE gets all measurements as CSV: round, model, type, layout, class, priced s, measured s;
 * and what ranks lose to each other by the probe.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "autotune/host.h"
#include "autotune/probe.h"
#include "autotune/trial.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "tests/lib/layout_set.h"

enum { ROUNDS = 31, GROUPS = 16, LAYOUTS = 64, POOLS = 64, POOLED = 4096 };
static const double OFF = 0.15;

/* Holds a model with its data, and the layouts that are tried of it. */
struct group {
    const char *model, *dtype, *extent; /* tokens of a sample */
    int64_t gbs;
    struct run run;
    struct seq seq;
    int n;
    struct layout layouts[LAYOUTS];
    double ratio[LAYOUTS][PRICE_TERMS][ROUNDS];
    int rounds[LAYOUTS];
};
static struct group groups[GROUPS];
static int n_groups;
static struct { const char *model, *dtype, *extent; int64_t gbs; const char *layout; } named[] = {
    {"dit-tiny", "f32", "1x16x16", 8, "dp=1,mbs=1"},
    {"dit-tiny", "f32", "1x16x16", 8, "dp=1,mbs=4"},
    {"dit-tiny", "bf16", "1x16x16", 8, "dp=1,mbs=2"},
    {"dit-tiny", "f32", "1x16x16", 8, "dp=2"},
    {"dit-tiny", "f32", "1x16x16", 8, "dp=2,zero=3"},
    {"dit-tiny", "bf16", "1x16x16", 8, "dp=2,zero=3"},
    {"dit-tiny", "f32", "1x16x16", 8, "cp=2,mbs=2"},
    {"stdit-tiny", "f32", "4x8x8", 4, "dp=2,mbs=2"},
    {"stdit-tiny", "bf16", "4x8x8", 4, "dp=1,mbs=2"},
    {"moviegen-tiny", "f32", "4x8x8", 4, "tp=2,sp=1,mbs=2"},
    {"moviegen-tiny", "f32", "4x8x8", 4, "pp=2,mbs=1"},
    {"moviegen-tiny", "f32", "4x8x8", 4, "dp=1,mbs=1,recompute=full"},
    {"dit-s", "f32", "1x16x16", 4, "dp=2"},
};

static const char *bin = "build/release", *only = "", *rows_path;
static int rounds = 9;
static double seconds = INFINITY;
static int64_t ranks_most, cores;
static struct sched *sched;
static struct host host;
static char dir[256];
static FILE *rows;

static struct err why;
#define must(call)                                        \
    do {                                                  \
        if ((call) < 0) {                                 \
            fprintf(stderr, "terms: %s\n", why.text);     \
            exit(2);                                      \
        }                                                 \
    } while (0)

/* ---- what is tried ---- */

static void group_run(struct group *g)
{
    struct run *r = &g->run;
    must(seq_parse(g->extent, "extent", &g->seq, &why));
    run_init(r);
    snprintf(r->name, sizeof r->name, "terms");
    must(model_load(g->model, &r->model, &why));
    r->dtype = strcmp(g->dtype, "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32;
    r->n_stages = 1;
    r->warmup_steps = 0;
    r->stages[0] = (struct run_stage){.gbs = g->gbs, .steps = 10};
    r->stages[0].data = arena_printf(&r->arena, "synthetic:%lldx%lldx%lld",
                                     (long long)(g->seq.t * r->model.patch_t),
                                     (long long)(g->seq.h * r->model.patch_h),
                                     (long long)(g->seq.w * r->model.patch_w));
    must(run_check(r, "terms", &why));
    must(run_bind_data(r, NULL, &why));
}

static struct group *group_of(const char *model, const char *dtype, const char *extent, int64_t gbs)
{
    for (int i = 0; i < n_groups; i++)
        if (strcmp(groups[i].model, model) == 0 && strcmp(groups[i].dtype, dtype) == 0)
            return &groups[i];
    struct group *g = &groups[n_groups++];
    g->model = model, g->dtype = dtype, g->extent = extent, g->gbs = gbs;
    group_run(g);
    return g;
}

static const char *layout_words(const struct layout *l)
{
    static struct str text;
    text.len = 0;
    layout_brief(l, &text);
    return text.p;
}

/* Adds a layout to a group, if it is wanted and not there. */
static void layout_put(struct group *g, const struct layout *l)
{
    char name[512];
    snprintf(name, sizeof name, "%s %s %s", g->model, g->dtype, layout_words(l));
    for (int i = 0; i < g->n; i++)
        if (layout_equal(&g->layouts[i], l))
            return;
    if (!strstr(name, only))
        return;
    BUG_ON(g->n == LAYOUTS);
    g->layouts[g->n++] = *l;
}

static void named_put(void)
{
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        struct layout l;
        must(layout_parse(named[i].layout, &l, &why));
        layout_put(group_of(named[i].model, named[i].dtype, named[i].extent, named[i].gbs), &l);
    }
}

/* Adds the layouts of a covering set, each in one of the two data types. */
static void covering_put(const char *model, const char *extent, int64_t gbs)
{
    struct group *in[] = {group_of(model, "f32", extent, gbs), group_of(model, "bf16", extent, gbs)};
    struct candidates all = legal(&in[0]->run.model), few = all;
    int64_t n = 0;
    for (int64_t i = 0; i < all.n; i++) {
        struct layout l = layout_of(all.v[i]);
        int64_t w = layout_world(&l);
        if (w <= ranks_most &&
            layout_broken_rule(&l, &in[0]->run.model, in[0]->seq, gbs, w) < 0)
            memmove(all.v[n++], all.v[i], sizeof *all.v);
    }
    few.n = n;
    few = covering(few, 2);
    for (int64_t i = 0; i < few.n; i++) {
        struct layout l = layout_of(few.v[i]);
        layout_put(in[i % 2], &l);
    }
    free(few.v);
    free(all.v);
}

/* ---- a round ---- */

static void group_probe(const struct group *g, int round)
{
    const struct probe_spec spec = {bin, &g->run.model, g->seq, g->run.dtype, "own"};
    struct probe_spec messages = spec;
    struct probe probes[3];
    struct device device;
    struct speed speed;
    int64_t most = 1;
    for (int i = 0; i < g->n; i++)
        most = num_max_i64(most, layout_world(&g->layouts[i]));
    messages.messages_only = true;
    must(probe_run(sched, &spec, 1, &probes[0], &why));
    probes[1] = probes[0];
    if (most > 1)
        must(probe_run(sched, &spec, num_min_i64(most, cores), &probes[1], &why));
    probes[2] = probes[1];
    if (most > cores)
        must(probe_run(sched, &messages, most, &probes[2], &why));
    probe_rates(&probes[0], &probes[1], &probes[2], &host.spec, &device, &speed);
    must(host_set(&host, &speed, cores, &why));
    if (rows)
        fprintf(rows, "%d,%s,%s,probe,gemm_loss,1,%.6g\n%d,%s,%s,probe,update_loss,1,%.6g\n", round,
                g->model, g->dtype, speed.loss.gemm, round, g->model, g->dtype, speed.loss.update);
}

static void trial_do(const struct group *g, const struct layout *l, struct trial_result *out)
{
    const struct trial_conf conf = {.sched = sched, .bin_dir = bin, .dir = dir, .steps = 6,
                                    .start_s = 90, .quiet_s = 60, .blas = "own"};
    struct plan plan = {.layout = *l, .seq = g->seq, .gbs = g->gbs, .dtype = g->run.dtype,
                        .model_hash = model_hash(&g->run.model)};
    snprintf(plan.model, sizeof plan.model, "%s", g->run.model.name);
    snprintf(plan.device, sizeof plan.device, "cpu");
    must(trial_run(&conf, &g->run, &plan, out, &why));
    if (out->state != TRIAL_OK)
        fprintf(stderr, "terms: %s %s %s: %s\n", g->model, g->dtype, layout_words(l), out->cause);
    if (out->state == TRIAL_OK)
        file_remove_tree(dir, NULL);
}

static void layout_measure(struct group *g, int i, int round)
{
    struct trial_result r;
    struct price_step step;
    double priced[PRICE_TERMS];
    must(host_price(&host, &g->layouts[i], &step, &why));
    host_classes(&host, &g->layouts[i], &step, priced);
    trial_do(g, &g->layouts[i], &r);
    if (r.state != TRIAL_OK)
        return;
    for (int t = 0; t < PRICE_TERMS; t++)
        if (priced[t] > 0 && r.class_cpu_s[t] > 0) {
            g->ratio[i][t][g->rounds[i]] = r.class_cpu_s[t] / priced[t];
            if (rows)
                fprintf(rows, "%d,%s,%s,\"%s\",%s,%.6g,%.6g\n", round, g->model, g->dtype,
                        layout_words(&g->layouts[i]), price_term_names[t], priced[t],
                        r.class_cpu_s[t]);
        }
    g->rounds[i]++;
}

static void group_round(struct group *g, int round)
{
    const struct run *r = &g->run;
    const struct work_spec work = {.model = &r->model, .seq = g->seq, .gbs = g->gbs,
                                   .act = r->dtype, .ema = r->adamw.ema_decay > 0,
                                   .residual_wide = r->residual == RESIDUAL_F32};
    if (g->n == 0)
        return;
    must(host_open(&host, &work, &why));
    group_probe(g, round);
    for (int i = 0; i < g->n; i++)
        layout_measure(g, i, round);
}

/* ---- the answer ---- */

/* Holds the ratios of all layouts whose line has this word. */
struct pool {
    char word[64];
    double ratio[PRICE_TERMS][POOLED];
    int n[PRICE_TERMS];
};
static struct pool pools[POOLS];
static int n_pools;

static struct pool *pool_of(const char *word)
{
    for (int i = 0; i < n_pools; i++)
        if (strcmp(pools[i].word, word) == 0)
            return &pools[i];
    BUG_ON(n_pools == POOLS);
    snprintf(pools[n_pools].word, sizeof pools[n_pools].word, "%s", word);
    return &pools[n_pools++];
}

static void pool_add(const struct group *g, int i)
{
    char words[512], *rest = words;
    snprintf(words, sizeof words, "%s %s %s", g->model, g->dtype, layout_words(&g->layouts[i]));
    for (char *word; (word = strsep(&rest, " "));) {
        struct pool *p = pool_of(word);
        for (int t = 0; t < PRICE_TERMS; t++)
            for (int r = 0; r < g->rounds[i] && g->ratio[i][t][r] > 0; r++) {
                BUG_ON(p->n[t] == POOLED);
                p->ratio[t][p->n[t]++] = g->ratio[i][t][r];
            }
    }
}

/* Returns how many of n fair coins fall on one side in at most 2.5 % of cases; n + 1: not even all
 * of them (the sign test). */
static int sure_of(int n)
{
    double tail = 0, ways = 1; /* of n things, n - k taken */
    for (int k = n; k >= 0; k--) {
        tail += ways / pow(2, n);
        if (tail > 0.025)
            return k + 1;
        ways *= (double)k / (n - k + 1);
    }
    return 0;
}

/* Tells whether the rounds of a layout show that its median is off. */
static bool is_shown(const double *ratio, int n)
{
    int above = 0, below = 0;
    for (int i = 0; i < n; i++)
        above += ratio[i] > 1 + OFF, below += ratio[i] < 1 - OFF;
    return above >= sure_of(n) || below >= sure_of(n);
}

/* Holds how many medians were printed, are off, and are shown to be off. */
struct counts { int all, off, shown; };

/* Prints the medians of a line; its rounds are independent of each other, or are not. */
static void medians_print(double *ratio, const int *n, int stride, bool apart, struct counts *c)
{
    for (int t = 0; t < PRICE_TERMS; t++) {
        double *r = ratio + (ptrdiff_t)t * stride, m = n[t] ? num_median(r, n[t]) : 0;
        if (!(m > 0))
            continue;
        bool off = fabs(m - 1) > OFF, shown = apart && is_shown(r, n[t]);
        printf("  %s %.2f%s", price_term_names[t], m, shown ? "!" : off ? "*" : "");
        c->all++, c->off += off, c->shown += shown;
    }
    printf("\n");
}

static void layout_print(struct group *g, int i, struct counts *c)
{
    int n[PRICE_TERMS];
    for (int t = 0; t < PRICE_TERMS; t++)
        n[t] = g->rounds[i];
    printf("%-14s%-5s%-52s", g->model, g->dtype, layout_words(&g->layouts[i]));
    medians_print(&g->ratio[i][0][0], n, ROUNDS, true, c);
}

/* Prints all lines. Returns whether something is off. */
static bool answer_print(void)
{
    struct counts each = {0}, pooled = {0};
    for (int i = 0; i < n_groups; i++)
        for (int k = 0; k < groups[i].n; k++) {
            pool_add(&groups[i], k);
            layout_print(&groups[i], k, &each);
        }
    for (int i = 0; i < n_pools; i++) {
        printf("all of %-24s", pools[i].word);
        medians_print(&pools[i].ratio[0][0], pools[i].n, POOLED, false, &pooled);
    }
    printf("%d of %d medians of %d rounds are more than 15 %% off, %d of them by the sign test; "
           "of %d pooled medians %d\n", each.off, each.all, rounds, each.shown, pooled.all,
           pooled.off);
    return pooled.off > 0 || each.shown > 0;
}

static void options_read(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--bin") == 0)
            bin = value;
        else if (strcmp(name, "--rounds") == 0)
            rounds = atoi(value);
        else if (strcmp(name, "--seconds") == 0)
            seconds = atof(value);
        else if (strcmp(name, "--only") == 0)
            only = value;
        else if (strcmp(name, "--ranks") == 0)
            ranks_most = atoi(value);
        else if (strcmp(name, "--rows") == 0)
            rows_path = value;
        else
            rounds = 0;
    }
    if (argc % 2 == 0 || rounds < 1 || rounds > ROUNDS) {
        fprintf(stderr, "usage: terms [--bin DIR] [--rounds N] [--seconds S] [--only TEXT] "
                        "[--ranks N] [--rows FILE]\n");
        exit(2);
    }
}

/* Makes the rounds. Returns how many there were time for. */
static int rounds_make(void)
{
    double started_s = clock_mono_s(), longest_s = 0;
    int round = 0;
    for (; round < rounds; round++) {
        double begun_s = clock_mono_s();
        if (round > 0 && begun_s + longest_s > started_s + seconds)
            break;
        for (int i = 0; i < n_groups; i++)
            group_round(&groups[i], round);
        longest_s = fmax(longest_s, clock_mono_s() - begun_s);
    }
    return round;
}

int main(int argc, char **argv)
{
    char home[] = "/tmp/reel-terms.XXXXXX", path[4096];
    cores = sysconf(_SC_NPROCESSORS_ONLN);
    ranks_most = cores;
    options_read(argc, argv);
    if (!mkdtemp(home) || !realpath(bin, path))
        return 2;
    bin = path;
    snprintf(dir, sizeof dir, "%s/trial", home);
    rows = rows_path ? fopen(rows_path, "w") : NULL;
    must(sched_open("local", home, &sched, &why));
    named_put();
    covering_put("dit-tiny", "1x16x16", 8);
    covering_put("stdit-tiny", "4x8x8", 4);
    covering_put("moviegen-tiny", "4x8x8", 4);
    rounds = rounds_make();
    bool off = answer_print();
    sched_close(sched);
    file_remove_tree(home, NULL);
    return off;
}
