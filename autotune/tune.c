#include "autotune/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/learnt.h"
#include "autotune/trial_other.h"
#include "autotune/tune_priv.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/id.h"
#include "base/num.h"

#define MIN_FIT 0.05 /* layouts that fit with a smaller probability are not tried */
#define GIVE_UP 1.3  /* a trial ends early if each step is slower than this times the best */
/* A silence of START_S seconds before a trial's first sign of life counts as a hang: srun, MPI and
 * building the model take long on a busy machine. Later, QUIET_S plus the time of some steps is the
 * limit (quiet_of()). */
#define START_S 90
#define QUIET_S 20

/* ---- open: probe, list, predict ---- */

/* Says that the machine is being measured, which loads it for a while. */
static void probe_say(const struct tune_conf *c, int64_t ranks)
{
    char line[128];
    snprintf(line, sizeof line, "measuring the machine with %lld rank%s", (long long)ranks,
             ranks == 1 ? "" : "s");
    if (c->say)
        c->say(c->say_ctx, line);
}

static int machine_probe(struct tune *t, struct err *err)
{
    const struct tune_conf *c = &t->conf;
    struct probe_spec spec = {c->bin_dir, &c->run->model, c->seq, c->run->dtype, c->blas,
                              .say = c->say, .say_ctx = c->say_ctx};
    struct host *host = host_space_host(t->host);
    struct probe probes[3];
    int64_t most = 1;
    int rc;
    for (size_t i = 0; i < c->n_ranks; i++)
        most = num_max_i64(most, c->ranks[i]);
    /* The probe runs on one rank alone, on ranks with a core each, and on ranks that share cores,
     * where only messages are measured. */
    const int64_t ranks[] = {1, num_min_i64(most, num_max_i64(1, c->cores)), most};
    for (int i = 0; i < 3; i++) {
        probes[i] = probes[i > 0 ? i - 1 : 0];
        if (i > 0 && ranks[i] == ranks[i - 1])
            continue;
        probe_say(c, ranks[i]);
        spec.messages_only = i == 2;
        if ((rc = probe_run(c->sched, &spec, ranks[i], &probes[i], err)) < 0)
            return rc;
    }
    struct speed speed;
    probe_rates(&probes[0], &probes[1], &probes[2], &host->spec, &t->device, &speed);
    return host_set(host, &speed, c->cores, err);
}

/* Returns the bytes that each rank of a layout has. */
static double rank_limit(const struct tune *t, const struct layout *l)
{
    return t->conf.memory_bytes > 0 ? (double)t->conf.memory_bytes / (double)layout_world(l)
                                    : described_device_bytes(t->described);
}

static int none_fits(const struct tune *t, int64_t layouts, struct err *err)
{
    static const struct memory_learned nothing;
    double needs = memory_peak(&nothing, t->nearest_bytes), has = rank_limit(t, &t->nearest);
    char need[32], have[32], missing[32];
    struct str text = STR_INIT;
    layout_format(&t->nearest, &text);
    err_set(err, ERR_NO,
            "0 of %lld layouts fit the memory: the nearest, %s, needs %s of %s, so %s (%.0f bytes) "
            "are missing on each rank (it fits with probability %.2g, and %.2g is asked for): take "
            "more ranks with memory of their own, a smaller model or extent, or give --memory",
            (long long)layouts, text.p,
            num_format_bytes((int64_t)needs, need, sizeof need),
            num_format_bytes((int64_t)has, have, sizeof have),
            num_format_bytes((int64_t)(needs - has), missing, sizeof missing), ceil(needs - has),
            memory_fits(&nothing, t->nearest_bytes, has), MIN_FIT);
    str_release(&text);
    return ERR_NO;
}

/* Checks that at least one layout fits the memory. Otherwise there is no need to measure the
 * machine. */
static int fit_check(const struct tune *t, int64_t layouts, struct err *err)
{ return t->n_fit > 0 || layouts == 0 ? 0 : none_fits(t, layouts, err); }

static int items_make(struct tune *t, struct err *err)
{
    t->items = calloc(t->space.n, sizeof *t->items);
    t->trial_ids = calloc(t->space.n, sizeof *t->trial_ids);
    if (t->conf.scale_down)
        t->trial_bills = calloc(t->space.n, sizeof *t->trial_bills);
    for (size_t i = 0; i < t->space.n && t->items; i++)
        t->items[i].layout = t->space.items[i];
    return t->items && t->trial_ids && (t->trial_bills || !t->conf.scale_down)
               ? 0 : err_set(err, ERR_NOMEM, "out of memory for %zu layouts", t->space.n);
}

/* Predicts the candidates. */
static int items_predict(struct tune *t, struct err *err)
{
    int rc;
    if ((rc = items_make(t, err)) < 0)
        return rc;
    for (size_t i = 0; i < t->space.n; i++) {
        struct search_item *item = &t->items[i];
        struct target_item p;
        if ((rc = target_predict(&t->target, &item->layout, &p, err)) < 0)
            return rc;
        item->bill = p.bill;
        memcpy(item->class_s, p.class_s, sizeof p.class_s);
        item->planned_bytes = p.bytes;
        if (t->trial_bills) {
            t->trial_bills[i] = p.trial_bill;
            item->trial_bill = &t->trial_bills[i];
        }
    }
    return 0;
}

/* Refuses the layout of --default: it has ranks that are not asked for, or breaks a rule, or is no
 * candidate for another reason. `layouts` are those that can run. */
static int baseline_refuse(const struct tune *t, int64_t layouts, struct err *err)
{
    const struct tune_conf *c = &t->conf;
    int64_t world = layout_world(c->baseline);
    size_t k = 0;
    while (k < c->n_ranks && c->ranks[k] != world)
        k++;
    if (k == c->n_ranks)
        return err_set(err, ERR_INPUT,
                       "--default has %lld rank%s, which --ranks does not name: give that number "
                       "there too, or another layout", (long long)world, world == 1 ? "" : "s");
    int rc = layout_check(c->baseline, &c->run->model, c->seq, c->run->stages[0].gbs, world, err);
    if (rc < 0)
        return err_context(err, "--default");
    return err_set(err, ERR_INPUT,
                   "--default is none of the %lld layouts that can run: give one that "
                   "'reel-train layouts --all' lists for these numbers of ranks",
                   (long long)layouts);
}

/* Begins the search over the predicted items. */
static int search_begin(struct tune *t, struct err *err)
{
    struct search_conf conf = {.margin = t->conf.margin,
                               .max_trials = t->conf.max_trials,
                               .limit_bytes = (double)t->conf.memory_bytes,
                               .gpu_hours = t->conf.gpu_hours,
                               .min_fit = MIN_FIT,
                               .repeats = t->conf.repeats,
                               .baseline = t->conf.baseline};
    if (t->described && t->conf.memory_bytes == 0)
        conf.rank_bytes = described_device_bytes(t->described);
    search_init(&t->search, t->items, t->space.n, &conf);
    if (t->conf.baseline && t->search.baseline < 0)
        return baseline_refuse(t, (int64_t)t->space.n, err);
    return 0;
}

/* Lists the layouts that are always candidates: those with which a search begins, and on a probed
 * machine those that earlier tunings with the same id tried. By the rates of this probe, which
 * differ a little, the latter need not be among the fastest. The caller frees *out. */
static int always_make(const struct tune *t, struct layout **out, size_t *n, struct err *err)
{
    const struct tune_conf *c = &t->conf;
    struct layout *list = NULL, plain = layout_default(), corner;
    int rc;
    *n = 0;
    if (t->host && (rc = tune_recorded(t, &list, n, err)) < 0)
        return rc;
    struct layout *all = realloc(list, (*n + 1 + 2 * c->n_ranks) * sizeof *all);
    if (!all) {
        free(list);
        return err_set(err, ERR_NOMEM, "out of memory for %zu layouts", *n);
    }
    if (c->baseline)
        all[(*n)++] = *c->baseline;
    for (size_t i = 0; i < c->n_ranks; i++) {
        plain.dp = c->ranks[i], corner = plain, corner.zero = 3;
        all[(*n)++] = plain, all[(*n)++] = corner;
    }
    *out = all;
    return 0;
}

/* Lists the candidates: the one layout that was given, or the fastest and those of
 * always_make(). */
static int layouts_list(struct tune *t, const struct space_spec *spec, struct err *err)
{
    struct layout *always = NULL;
    size_t n;
    int rc;
    space_release(&t->space);
    if (spec->only)
        return space_build(spec, &t->space, err);
    if ((rc = always_make(t, &always, &n, err)) < 0)
        return rc;
    if ((rc = target_list(&t->target, always, n, &t->space, err)) < 0)
        goto out;
    rc = space_check(spec, &t->space, err);
out:
    free(always);
    return rc;
}

static int described_open(struct tune *t, const struct space_spec *spec, struct err *err)
{
    const struct tune_conf *c = &t->conf;
    const struct described_spec described = {.cluster = c->cluster, .stack = c->stack,
                                             .model = spec->model,
                                             .seq = spec->seq,
                                             .gbs = spec->gbs,
                                             .dtype = c->run->dtype,
                                             .ema = c->run->adamw.ema_decay > 0,
                                             .residual_wide =
                                                 c->run->residual == RESIDUAL_F32,
                                             .moments_bf16 = c->run->moments == MOMENTS_BF16,
                                             .ranks = c->ranks,
                                             .n_ranks = c->n_ranks,
                                             .memory_bytes = c->memory_bytes,
                                             .scale_down = c->scale_down,
                                             .adapter = c->adapter};
    if (!(t->described = described_new(&described, err)))
        return err->code;
    t->target = described_target(t->described);
    t->device = described_cluster(t->described)->device;
    return 0;
}

/* Counts how many of a cluster's candidates may fit, and finds the one that is nearest to it. */
static int described_fit(struct tune *t, struct err *err)
{
    double least = INFINITY;
    t->n_looked = (int64_t)t->space.n, t->n_fit = 0;
    for (size_t i = 0; i < t->space.n; i++) {
        const struct search_item *item = &t->items[i];
        double share = item->planned_bytes / rank_limit(t, &item->layout);
        t->n_fit += search_fits(&t->search, (int64_t)i);
        if (share < least)
            least = share, t->nearest = item->layout, t->nearest_bytes = item->planned_bytes;
    }
    return fit_check(t, (int64_t)t->space.n, err);
}

/* Opens this machine: probes it, unless no layout fits its memory. */
static int probed_open(struct tune *t, const struct space_spec *spec, struct err *err)
{
    const struct host_space_spec host = {.space = *spec, .run = t->conf.run,
                                         .baseline = t->conf.baseline,
                                         .memory_bytes = (double)t->conf.memory_bytes,
                                         .min_fit = MIN_FIT};
    struct host_space_survey survey;
    int rc;
    if (!(t->host = host_space_new(&host, err)))
        return err->code;
    t->target = host_space_target(t->host);
    if ((rc = host_space_survey(t->host, &t->space, &survey, err)) < 0)
        return rc;
    t->n_looked = survey.looked, t->n_fit = survey.fit;
    t->nearest = survey.nearest, t->nearest_bytes = survey.nearest_bytes;
    if ((rc = fit_check(t, t->space.legal, err)) < 0)
        return rc;
    if (t->conf.baseline && !survey.baseline)
        return baseline_refuse(t, t->space.legal, err);
    return machine_probe(t, err);
}

/* Begins the fit from what earlier tunings learnt with the same host, stack and binary. */
static int learnt_take(struct tune *t, struct err *err)
{
    struct fit *earlier = calloc(1, sizeof *earlier);
    int rc;
    if (!earlier)
        return err_set(err, ERR_NOMEM, "out of memory");
    if ((rc = learnt_read(t->conf.home, t->id, t->learns, earlier, err)) == 0) {
        fit_begin(&t->search.fit, earlier);
        t->learnt = earlier->n;
    }
    free(earlier);
    return rc;
}

int tune_open(struct tune *t, const struct tune_conf *conf, struct err *err)
{
    *t = (struct tune){.conf = *conf, .started_mono = clock_mono_s()};
    const struct space_spec spec = {&conf->run->model, conf->seq, conf->run->stages[0].gbs,
                                    conf->ranks, conf->n_ranks, .only = conf->layout};
    int rc;
    if ((rc = conf->cluster ? described_open(t, &spec, err) : probed_open(t, &spec, err)) < 0)
        return rc;
    if ((rc = tune_identify(t, err)) < 0)
        return rc;
    if ((rc = layouts_list(t, &spec, err)) < 0)
        return rc;
    if ((rc = items_predict(t, err)) < 0)
        return rc;
    if ((rc = search_begin(t, err)) < 0)
        return rc;
    if (t->described && (rc = described_fit(t, err)) < 0)
        return rc;
    return learnt_take(t, err);
}

void tune_release(struct tune *t)
{
    evlog_close(t->log);
    lease_drop(t->lease);
    space_release(&t->space);
    free(t->items);
    free(t->trial_ids);
    free(t->trial_bills);
    described_free(t->described);
    host_space_free(t->host);
    *t = (struct tune){0};
}

/* ---- plans ---- */

int64_t tune_trial_layout(const struct tune *t, int64_t i, struct layout *out)
{
    return described_trial(&t->items[i].layout, t->conf.run->stages[0].gbs, t->conf.scale_down,
                           out);
}

/* Returns the dense peak of one rank: a device's; on a probed machine a core's, or the rank's share
 * of one when ranks outnumber cores. */
static double rank_peak(const struct tune *t, const struct layout *l)
{
    if (t->described)
        return t->device.peak_flops[t->conf.run->dtype];
    double ranks = (double)layout_world(l), cores = (double)t->conf.cores;
    return t->device.peak_flops[t->conf.run->dtype] * fmin(1, cores / ranks);
}

static void evidence_add(struct plan *p, const char *trial)
{
    if (trial[0] && p->n_evidence < PLAN_EVIDENCE)
        snprintf(p->evidence[p->n_evidence++], sizeof p->evidence[0], "%s", trial);
}

/* Adds the cluster, stack, constants and settings of the run for which a plan was predicted. */
static void plan_describe(const struct tune *t, const struct plan *p, struct plan *out)
{
    if (!t->described)
        return;
    snprintf(out->cluster, sizeof out->cluster, "%s", t->conf.cluster);
    snprintf(out->stack, sizeof out->stack, "%s", t->conf.stack);
    snprintf(out->constants, sizeof out->constants, "%s", described_constants(t->described));
    out->ema = t->conf.run->adamw.ema_decay > 0;
    out->residual_wide = t->conf.run->residual == RESIDUAL_F32;
    out->moments_bf16 = t->conf.run->moments == MOMENTS_BF16;
    out->scaled_dp = t->conf.scale_down && p->layout.dp > t->conf.scale_down ? t->conf.scale_down
                                                                               : 0;
}

/* Shortens a step to what a plan may tell, less what rounding adds. A prediction that follows from
 * as long a measurement may be longer. */
static void plan_shorten(struct plan *p)
{
    double by = (1 - 1e-9) * PLAN_STEP_S / p->predicted_step_s;
    for (int64_t k = 0; k < p->n_terms; k++)
        p->terms[k].seconds *= by;
    p->predicted_step_s *= by;
}

/* Writes the present prediction for item i: for its layout, or for what a trial of it runs. */
static void plan_predict(const struct tune *t, int64_t i, bool trial, struct plan *p)
{
    double scaled[PRICE_TERMS], sum = 0;
    if (trial)
        search_predict_trial(&t->search, i, scaled, NULL);
    else
        search_predict(&t->search, i, scaled, NULL);
    for (int k = 0; k < PRICE_TERMS; k++) {
        snprintf(p->terms[k].name, sizeof p->terms[k].name, "%s", price_term_names[k]);
        sum += p->terms[k].seconds = scaled[k];
    }
    p->n_terms = PRICE_TERMS;
    p->predicted_step_s = sum;
    if (sum > PLAN_STEP_S)
        plan_shorten(p);
    p->predicted_at = clock_wall_s();
    p->predicted_bytes = (int64_t)memory_peak(&t->search.memory, t->items[i].planned_bytes);
}

/* Writes the plan of item i with its present prediction. */
static void plan_of(const struct tune *t, int64_t i, struct plan *out)
{
    const struct run *run = t->conf.run;
    const struct search_item *item = &t->items[i];
    struct plan p = {.layout = item->layout,
                     .seq = t->conf.seq,
                     .gbs = run->stages[0].gbs,
                     .dtype = run->dtype,
                     .peak_flops = rank_peak(t, &item->layout),
                     .measured_step_s = item->measured_s > 0 ? search_time(&t->search, i) : 0,
                     .model_hash = model_hash(&run->model)};
    snprintf(p.model, sizeof p.model, "%s", run->model.name);
    snprintf(p.device, sizeof p.device, "%s", t->device.name);
    snprintf(p.peak_source, sizeof p.peak_source, "%s", t->device.peak_source);
    plan_predict(t, i, false, &p);
    plan_describe(t, &p, &p);
    evidence_add(&p, t->trial_ids[i]);
    for (size_t k = 0; k < t->space.n; k++)
        if ((int64_t)k != i)
            evidence_add(&p, t->trial_ids[k]);
    *out = p;
}

/* Adds the categories of a plan's bytes: those of the memory plan, and what trials held beside. */
static void plan_hold(const struct memory_bytes *b, struct plan *p)
{
    const struct { const char *name; double bytes; } parts[] = {
        {"weights", b->weights}, {"gradients", b->gradients}, {"optimizer", b->optimizer},
        {"ema", b->ema}, {"activations", b->activations}, {"work", b->work}, {"comm", b->comm},
        {"process", b->process}};
    int64_t rest = p->predicted_bytes;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        struct plan_memory *m = &p->memory[p->n_memory++];
        snprintf(m->name, sizeof m->name, "%s", parts[i].name);
        rest -= m->bytes = llround(parts[i].bytes);
    }
    p->memory[p->n_memory] = (struct plan_memory){"unplanned", rest};
    p->n_memory++;
}

/* Adds what the winner's price follows from on a probed machine, whose rates only this tuning
 * knows. */
static int plan_explain(struct tune *t, struct plan *p, struct err *err)
{
    struct host_explained e;
    struct memory_bytes bytes;
    int rc;
    if (!t->host)
        return 0;
    struct host *host = host_space_host(t->host);
    if ((rc = host_explain(host, &p->layout, &e, err)) < 0)
        return rc;
    if ((rc = host_space_memory(t->host, &p->layout, &bytes, err)) < 0)
        return rc;
    p->stage = e.stage;
    for (int k = 0; k < PRICE_TERMS; k++) {
        p->terms[k].work = e.work[k];
        if (!e.rate[k])
            continue;
        snprintf(p->terms[k].rate, sizeof p->terms[k].rate, "%s", e.rate[k]->name);
        p->terms[k].value = host_rate(&host->speed, e.rate[k]);
    }
    plan_hold(&bytes, p);
    return 0;
}

/* Turns an item's plan into that of its trial, which may be smaller. */
static void plan_trial(const struct tune *t, int64_t i, struct plan *p)
{
    p->gbs = tune_trial_layout(t, i, &p->layout);
    p->scaled_dp = 0;
    plan_predict(t, i, true, p);
}

/* ---- the loop ---- */

static int events_open(struct tune *t, struct err *err)
{
    char events[LIMIT_PATH_BYTES + 32], lock[LIMIT_PATH_BYTES + 32];
    struct evlog_ids ids = {t->id, 0, "tune", NULL};
    int rc;
    snprintf(events, sizeof events, "%s/events", t->dir);
    snprintf(lock, sizeof lock, "%s/tuning", t->dir);
    if ((rc = file_mkdirs(events, err)) < 0)
        return rc;
    /* Two processes may tune for the same question at the same time. */
    if ((rc = lease_take(lock, 0.05, &t->lease, err)) < 0)
        return rc;
    if ((rc = evlog_open(events, &ids, &t->log, err)) < 0)
        return rc;
    return tune_reuse(t, err);
}

/* Returns the trial's run: the first stage alone, with steps enough for the trial and a warm-up. */
static struct run trial_run_of(const struct tune *t, const struct plan *plan)
{
    struct run run = *t->conf.run;
    run.n_stages = 1;
    run.stages[0].gbs = plan->gbs;
    run.stages[0].steps =
        num_max_i64(run.stages[0].steps, num_max_i64(t->conf.trial_steps, run.warmup_steps));
    return run;
}

/* Returns the step time above which a trial gives up, because its remaining steps are not worth
 * measuring. Trials that are smaller than their layouts measure all steps, because their times do
 * not compare directly. */
static double give_up_of(const struct tune *t, int64_t i)
{
    int64_t best = t->search.best;
    if (best < 0 || t->trial_bills)
        return 0;
    return GIVE_UP * search_weighted(&t->search, best, t->items[best].measured_s) /
           search_weighted(&t->search, i, 1);
}

/* Returns for how long a trial may be silent between steps. It is generous before anything was
 * measured, because predictions may then be far off. */
static double quiet_of(const struct tune *t, const struct plan *p)
{
    double step_s =
        t->search.best >= 0 ? 4 * t->items[t->search.best].measured_s : 30 * p->predicted_step_s;
    return t->conf.quiet_s > 0 ? t->conf.quiet_s : QUIET_S + step_s;
}

/* Adds a lost node to those that later trials avoid. */
static void node_mark(struct tune *t, const char *node)
{
    size_t n = strlen(t->lost);
    if (!node[0] || n + strlen(node) + 2 > sizeof t->lost)
        return;
    snprintf(t->lost + n, sizeof t->lost - n, "%s%s", n ? "," : "", node);
    t->n_lost++;
}

/* Returns how many nodes the ranks of a trial take. */
static int64_t nodes_taken(const struct tune *t, const struct layout *l)
{
    int64_t ranks = layout_world(l), each = 1;
    if (t->described)
        each = num_max_i64(1, described_cluster(t->described)->node.devices);
    return num_min_i64(t->conf.nodes, num_ceil_div(ranks, each));
}

/* Checks that enough nodes are left for a trial, because on fewer nodes it would measure something
 * else, and that another trainer's command names no lost node, because no layout can start then. */
static int nodes_check(struct tune *t, const struct layout *l, struct err *err)
{
    const char *word =
        t->n_lost > 0 && t->conf.adapter ? other_names_node(t->conf.argv, t->lost) : NULL;
    if (word)
        return err_set(err, ERR_TEMP,
                       "'%s' in the command names a node that is lost (%s): name others, or ask "
                       "again when it is back, where what was measured is taken over",
                       word, t->lost);
    int64_t left = t->conf.nodes - t->n_lost, taken = nodes_taken(t, l);
    t->short_of_nodes = t->conf.nodes > 0 && t->n_lost > 0 && taken > left;
    return !t->short_of_nodes
               ? 0
               : err_set(err, ERR_TEMP,
                         "%lld of %lld nodes are left, without %s, and the next trial takes %lld: "
                         "ask again in another allocation, where what was measured is taken over",
                         (long long)left, (long long)t->conf.nodes, t->lost, (long long)taken);
}

/* Records how item i's trial ended, and tells the search. */
static int result_take(struct tune *t, int64_t i, const struct plan *plan,
                       const struct trial_result *r, struct err *err)
{
    const struct search_outcome outcome = {.state = r->state, .measured_s = r->step_s,
                                           .fastest_s = r->min_step_s,
                                           .peak_bytes = (double)r->peak_bytes,
                                           .class_s = r->class_cpu_s};
    int rc;
    bool disturbed = search_is_disturbed(&t->search, i, &outcome);
    if ((rc = tune_event_trial_ended(t, plan, r, disturbed, err)) < 0)
        return rc;
    search_tell(&t->search, i, &outcome);
    tune_trial_name(t, i, r->step_s);
    node_mark(t, r->node);
    tune_say_trial(t, plan, r);
    return 0;
}

static int measure(struct tune *t, int64_t i, struct err *err)
{
    char dir[LIMIT_PATH_BYTES + 64];
    struct id id;
    struct plan plan;
    struct trial_result result;
    int rc;
    if ((rc = id_random(&id, err)) < 0)
        return rc;
    id_format(id, t->trial);
    plan_of(t, i, &plan);
    plan_trial(t, i, &plan);
    if ((rc = nodes_check(t, &plan.layout, err)) < 0)
        return rc;
    struct run run = trial_run_of(t, &plan);
    snprintf(dir, sizeof dir, "%s/trials/%s", t->dir, t->trial);
    struct trial_other other = {.adapter = t->conf.adapter, .argv = t->conf.argv,
                                .memory_bytes = t->device.memory_bytes};
    if (t->described)
        other.node_ranks = described_cluster(t->described)->node.devices;
    struct trial_conf conf = {.sched = t->conf.sched,
                              .bin_dir = t->conf.bin_dir,
                              .dir = dir,
                              .steps = t->conf.trial_steps,
                              .give_up_s = give_up_of(t, i),
                              .start_s = t->conf.start_s > 0 ? t->conf.start_s : START_S,
                              .quiet_s = quiet_of(t, &plan),
                              .limit_bytes = (int64_t)search_limit(&t->search, i),
                              .exclude = t->n_lost > 0 ? t->lost : NULL,
                              .blas = t->conf.blas,
                              .stop = t->conf.stop};
    if (other.adapter &&
        (rc = other_trial(&other, &run.model, &plan, t->conf.own_sched, &conf, err)) < 0)
        return rc;
    if ((rc = tune_event_predicted(t, i, &plan, err)) < 0)
        return rc;
    if ((rc = trial_run(&conf, &run, &plan, &result, err)) < 0) {
        tune_event_trial_left(t, NULL);
        return rc;
    }
    return result_take(t, i, &plan, &result, err);
}

/* Measures one layout after the other until the search, the time or the user ends it. */
static int trials_run(struct tune *t, struct err *err)
{
    int64_t i;
    int rc;
    while ((i = search_next(&t->search)) >= 0) {
        if (t->conf.stop && *t->conf.stop)
            return err_set(err, ERR_TEMP, "asked to stop after %lld trials",
                           (long long)t->search.trials);
        if (t->conf.budget_s > 0 && clock_mono_s() - t->started_mono > t->conf.budget_s) {
            t->search.stop_reason = "the time budget is spent";
            return 0;
        }
        if ((rc = measure(t, i, err)) < 0)
            return rc;
    }
    return 0;
}

int tune_search(struct tune *t, struct plan *winner, struct err *err)
{
    int rc;
    if ((rc = events_open(t, err)) < 0)
        return rc;
    if ((rc = tune_event_started(t, err)) < 0)
        return rc;
    if ((rc = trials_run(t, err)) < 0)
        return rc;
    if ((rc = tune_event_ended(t, err)) < 0)
        return rc;
    if (t->search.best < 0)
        return err_set(err, ERR_NO, "no trial came to its end (%s): see the logs under %s/trials",
                       t->search.stop_reason, t->dir);
    plan_of(t, t->search.best, winner);
    winner->limit_bytes = (int64_t)search_limit(&t->search, t->search.best);
    return plan_explain(t, winner, err);
}
