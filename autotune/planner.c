#include "autotune/planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/interval.h"
#include "base/clock.h"
#include "base/num.h"
#include "profiles/catalog.h"
#include "profiles/flops.h"

static enum dtype act_of(const struct planner *p)
{ return p->ask.dtype == DTYPE_FP8 ? DTYPE_BF16 : p->ask.dtype; }

/* ---- inputs ---- */

/* Loads the cluster. If neither its file nor its name ("NAME:NODES") gives a number of nodes, the
 * description's max_nodes is the limit. */
static int cluster_open(struct planner *p, struct err *err)
{
    char one[LIMIT_PATH_BYTES];
    struct err with_nodes;
    if (cluster_load(p->ask.cluster, &p->cluster, &with_nodes) == 0) {
        p->most_nodes = p->cluster.nodes;
        return 0;
    }
    if (strlen(p->ask.cluster) + sizeof ":1" > sizeof one)
        return err_set(err, ERR_INPUT, "the cluster's name is longer than %zu bytes", sizeof one);
    snprintf(one, sizeof one, "%s:1", p->ask.cluster);
    int rc = cluster_load(one, &p->cluster, err);
    if (rc == 0)
        p->most_nodes = p->cluster.max_nodes;
    else if (strchr(p->ask.cluster, ':'))
        *err = with_nodes;
    return rc;
}

static int device_check(const struct planner *p, struct err *err)
{
    const struct device *d = &p->cluster.device;
    if (p->ask.dtype == DTYPE_FP8 && !(d->peak_flops[DTYPE_FP8] >= 1))
        return err_set(err, ERR_INPUT,
                       "the device %s has no fp8: give --dtype bf16, or a cluster whose device has "
                       "it", d->name);
    if (d->peak_flops[act_of(p)] >= 1 && d->memory_bytes_per_s >= 1)
        return 0;
    return err_set(err, ERR_INPUT,
                   "the device %s has no %s: nothing can be predicted for %s: give another --dtype "
                   "or a cluster whose device has it",
                   d->name, d->memory_bytes_per_s >= 1 ? "peak" : "memory bandwidth",
                   dtype_names[act_of(p)]);
}

static int inputs_open(struct planner *p, struct err *err)
{
    int rc;
    if (p->ask.loaded)
        p->model = *p->ask.loaded;
    else if ((rc = model_load(p->ask.model, &p->model, err)) < 0)
        return rc;
    if ((rc = cluster_open(p, err)) < 0)
        return rc;
    if ((rc = stack_load(p->ask.stack, &p->stack, err)) < 0)
        return rc;
    if ((rc = constants_load(p->ask.constants, &p->constants, err)) < 0)
        return rc;
    if ((rc = device_check(p, err)) < 0)
        return rc;
    return work_weights(&p->model, &p->weights, err);
}

static int planner_open(struct planner *p, struct err *err)
{
    struct flops flops;
    int rc = inputs_open(p, err);
    if (rc < 0)
        return rc;
    if ((rc = flops_reel_sample(&p->model, p->ask.seq, p->model.text_len, &flops, err)) < 0)
        return rc;
    p->sample_flops = flops.total;
    constants_resolve(&p->constants, &p->cluster.device, &p->stack, p->v);
    p->work = (struct work_spec){.model = &p->model,
                                 .weights = &p->weights,
                                 .stack = &p->stack,
                                 .seq = p->ask.seq,
                                 .gbs = p->ask.gbs,
                                 .act = act_of(p),
                                 .fp8 = p->ask.dtype == DTYPE_FP8,
                                 .ema = p->ask.ema,
                                 .residual_wide = p->ask.residual_wide,
                                 .moments_bf16 = p->ask.moments_bf16,
                                 .encoder_bytes = p->ask.encoder_bytes};
    price_machine(&p->cluster, p->v, act_of(p), p->work.fp8, &p->machine);
    return 0;
}

struct planner *planner_new(const struct plan_ask *ask, struct err *err)
{
    struct planner *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(err, ERR_NOMEM, "out of memory for a plan");
        return NULL;
    }
    p->ask = *ask;
    if (planner_open(p, err) < 0) {
        free(p);
        return NULL;
    }
    return p;
}

void planner_free(struct planner *p) { free(p); }

/* ---- GPUs ---- */

static int gpus_refuse(const struct planner *p, int64_t gpus, struct err *err)
{
    int64_t each = p->cluster.node.devices, below = gpus / each * each, more = below + each;
    if (gpus < each)
        return err_set(err, ERR_INPUT,
                       "%lld GPUs do not divide a node of %s, which has %lld: give a divisor of "
                       "that, or a multiple",
                       (long long)gpus, p->cluster.name, (long long)each);
    return err_set(err, ERR_INPUT,
                   "%lld GPUs are no whole nodes: those of %s have %lld each: give %lld or %lld",
                   (long long)gpus, p->cluster.name, (long long)each, (long long)below,
                   (long long)more);
}

int planner_gpus(struct planner *p, int64_t gpus, struct err *err)
{
    int64_t each = p->cluster.node.devices, nodes = num_max_i64(1, gpus / each);
    if (gpus < 1 || (gpus < each ? each % gpus : gpus % each))
        return gpus_refuse(p, num_max_i64(gpus, 1), err);
    if ((p->most_nodes && nodes > p->most_nodes) || gpus > LIMIT_RANKS)
        return err_set(err, ERR_INPUT,
                       "%lld GPUs are %lld nodes of %s, which has %lld at most: give %lld GPUs or "
                       "fewer",
                       (long long)gpus, (long long)nodes, p->cluster.name,
                       (long long)p->most_nodes, (long long)(p->most_nodes * each));
    if (nodes > 1 && (p->cluster.node.nics == 0 || !(p->cluster.node.nic_bytes_per_s > 0)))
        return err_set(err, ERR_INPUT, "%s has no network between nodes: give %lld GPUs or fewer",
                       p->cluster.name, (long long)each);
    p->cluster.nodes = nodes;
    p->gpus = gpus;
    return 0;
}

void planner_gbs(struct planner *p, int64_t gbs) { p->ask.gbs = p->work.gbs = gbs; }

double planner_limit_bytes(const struct planner *p)
{
    return p->ask.memory_bytes > 0 ? (double)p->ask.memory_bytes / (double)p->gpus
                                   : (double)device_usable_bytes(&p->cluster.device);
}

static struct stream_spec stream_of(const struct planner *p)
{
    double room = footprint_room(p->v, planner_limit_bytes(p), p->ask.fits);
    return (struct stream_spec){.work = &p->work, .machine = &p->machine, .gpus = p->gpus,
                                .limit_bytes = room, .adapter = p->ask.adapter,
                                .one_order = p->stack.kind != STACK_REEL || p->ask.adapter};
}

/* ---- search ---- */

/* Says why no layout is legal: the rule that excluded most, and what to change. */
static int none_legal(const struct planner *p, const struct stream_found *found, struct err *err)
{
    int most = 0;
    int64_t all = 0;
    for (int i = 0; i < layout_rule_count(); i++) {
        all += found->excluded[i];
        most = found->excluded[i] > found->excluded[most] ? i : most;
    }
    return err_set(err, ERR_NO,
                   "no layout of %s is left on %lld GPUs with gbs %lld: %lld of %lld break the "
                   "rule %s: %s",
                   p->model.name, (long long)p->gpus, (long long)p->ask.gbs,
                   (long long)found->excluded[most], (long long)all, layout_rule_name(most),
                   layout_rule_sentence(most));
}

/* Says why the adapter's trainer can run none of the legal layouts. */
static int none_can_run(const struct planner *p, const struct stream_found *found, struct err *err)
{
    const struct adapter *a = p->ask.adapter;
    int64_t most = 0;
    for (int64_t i = 0; i < a->n_rules; i++)
        most = found->refused[i] > found->refused[most] ? i : most;
    return err_set(err, ERR_NO,
                   "adapter %s can run no layout of %s on %lld GPUs with gbs %lld: most are "
                   "excluded by %s: %s",
                   a->name, p->model.name, (long long)p->gpus, (long long)p->ask.gbs,
                   a->rules[most].rule, a->rules[most].because);
}

/* Returns the most GPUs that --gpus least tries. */
static int64_t gpus_most(const struct planner *p)
{ return (p->most_nodes ? p->most_nodes : 512) * p->cluster.node.devices; }

/* Refuses frozen encoders that leave no room on a GPU for any layout, because all layouts hold them
 * whole. */
static int encoders_check(const struct planner *p, struct err *err)
{
    double limit = stream_of(p).limit_bytes;
    if (!p->ask.encoder_bytes ||
        (double)p->ask.encoder_bytes + p->v[CONSTANT_PROCESS_BYTES] < limit)
        return 0;
    char takes[32], process[32], has[32];
    return err_set(err, ERR_NO,
                   "no layout of %s fits %s: the frozen encoders (--encoders) take %s of each GPU "
                   "and the process %s, under every layout, and a GPU can hold %s: give GPUs with "
                   "more memory, or encode beforehand, so that none are beside the model",
                   p->model.name, p->cluster.name,
                   num_format_bytes(p->ask.encoder_bytes, takes, sizeof takes),
                   num_format_bytes((int64_t)p->v[CONSTANT_PROCESS_BYTES], process,
                                    sizeof process),
                   num_format_bytes((int64_t)limit, has, sizeof has));
}

/* Returns what gives the layouts more memory. */
static const char *more_memory(const struct planner *p)
{
    if (p->ask.memory_bytes > 0)
        return "more --memory or a shorter --seq";
    return p->gpus < gpus_most(p)
               ? "more GPUs ('reel plan --gpus least' finds how many), a shorter --seq or GPUs "
                 "with more memory"
               : "a cluster of more nodes, a shorter --seq or GPUs with more memory";
}

static int none_fits(const struct planner *p, const struct stream_found *found, struct err *err)
{
    const struct stream_item *near = &found->nearest;
    double limit = stream_of(p).limit_bytes,
           fits = footprint_fits(&(struct footprint){.total = near->bytes}, p->v,
                                 planner_limit_bytes(p));
    char needs[32], has[32], missing[32];
    struct str text = STR_INIT;
    int rc = encoders_check(p, err);
    if (rc < 0)
        return rc;
    layout_format(&near->layout, &text);
    rc = err_set(err, ERR_NO,
                     "no layout of %s fits %lld GPU%s of %s: the nearest, %s, needs %s of %s, so "
                     "%s (%.0f bytes) are missing on each GPU (it fits with probability %.2g, and "
                     "%.3g is asked for): give %s",
                     p->model.name, (long long)p->gpus, p->gpus == 1 ? "" : "s", p->cluster.name,
                     text.p,
                     num_format_bytes((int64_t)near->bytes, needs, sizeof needs),
                     num_format_bytes((int64_t)limit, has, sizeof has),
                     num_format_bytes((int64_t)(near->bytes - limit), missing, sizeof missing),
                     near->bytes - limit, fits, p->ask.fits, more_memory(p));
    str_release(&text);
    return rc;
}

static int search(const struct planner *p, bool places, size_t most, struct stream_found *found,
                  struct err *err)
{
    struct stream_spec spec = stream_of(p);
    spec.places = places;
    int rc = stream_search(&spec, most, found, err);
    if (rc < 0 || found->n > 0)
        return rc;
    if (!found->legal)
        return none_legal(p, found, err);
    return found->nearest.bytes > 0 ? none_fits(p, found, err) : none_can_run(p, found, err);
}

int planner_search(const struct planner *p, size_t most, struct stream_found *found,
                   struct err *err)
{ return search(p, false, most, found, err); }

int planner_rank(const struct planner *p, size_t most, struct stream_found *found,
                 struct err *err)
{ return search(p, true, most, found, err); }

static int faster_search(const struct planner *p, double beat_s, struct stream_found *found,
                         double *best_s, struct err *err)
{
    struct stream_spec spec = stream_of(p);
    bool fits = true;
    int rc;
    spec.beat_s = beat_s;
    if ((rc = stream_search(&spec, 1, found, err)) < 0)
        return rc;
    *best_s = found->n > 0 && found->items[0].seconds < beat_s ? found->items[0].seconds : INFINITY;
    if (found->n > 0)
        return 0;
    if (!p->ask.adapter && (rc = stream_any_fits(&spec, &fits, err)) < 0)
        return rc;
    return fits && !p->ask.adapter ? 0 : planner_search(p, 1, found, err);
}

int planner_faster(const struct planner *p, double beat_s, double *best_s, struct err *err)
{
    struct stream_found *found = calloc(1, sizeof *found);
    int rc = found ? faster_search(p, beat_s, found, best_s, err)
                   : err_set(err, ERR_NOMEM, "out of memory for a search of layouts");
    free(found);
    return rc;
}

/* Says why not even the greatest number of GPUs that --gpus least tried is enough. */
static int none_enough(const struct planner *p, struct err *err)
{
    struct stream_found *found = calloc(1, sizeof *found);
    int rc = found ? planner_search(p, 1, found, err)
                   : err_set(err, ERR_NOMEM, "out of memory for a search of layouts");
    free(found);
    return rc;
}

int planner_least(struct planner *p, struct err *err)
{
    int64_t each = p->cluster.node.devices, gpus = 1;
    int rc = encoders_check(p, err);
    if (rc < 0)
        return rc;
    for (; gpus <= gpus_most(p); gpus += gpus < each ? 1 : each) {
        bool fits;
        if (gpus < each && each % gpus)
            continue;
        if ((rc = planner_gpus(p, gpus, err)) < 0)
            return rc;
        struct stream_spec spec = stream_of(p);
        if ((rc = stream_any_fits(&spec, &fits, err)) < 0 || fits)
            return rc;
    }
    return none_enough(p, err);
}

/* ---- one layout ---- */

static int predict(const struct planner *p, struct work *w, struct planned *out, struct err *err)
{
    struct price price;
    int rc;
    work_build(&p->work, &out->layout, w);
    price_parts(&p->machine, w, &price);
    if ((rc = price_replay(&price, &out->layout, &out->step, err)) < 0)
        return rc;
    footprint_of(w, &out->layout, p->v, &out->footprint);
    double s = out->step.seconds, gpus = (double)p->gpus;
    out->lo_s = out->hi_s = NAN;
    out->tokens_per_s_gpu = (double)(p->ask.gbs * seq_tokens(p->ask.seq)) / s / gpus;
    out->mfu = p->sample_flops * (double)p->ask.gbs / s / gpus /
               p->cluster.device.peak_flops[act_of(p)];
    out->p_fits = footprint_fits(&out->footprint, p->v, planner_limit_bytes(p));
    return 0;
}

/* Refuses a layout that the trainer of the adapter, where there is one, cannot run. */
static int adapter_check(const struct planner *p, const struct layout *l, struct err *err)
{
    const struct adapter *a = p->ask.adapter;
    struct adapter_facts facts = {l, &p->model, p->ask.seq, p->ask.gbs, 0, NULL};
    int rule = a ? adapter_broken_rule(a, &facts) : -1;
    if (rule < 0)
        return 0;
    return err_set(err, ERR_INPUT, "adapter %s cannot run the layout: rule %s: %s", a->name,
                   a->rules[rule].rule, a->rules[rule].because);
}

/* Checks a layout, builds its work in *w, and predicts its time and memory. */
static int check_and_predict(const struct planner *p, const struct layout *l, struct work *w,
                             struct planned *out, struct err *err)
{
    struct planned planned = {.layout = *l};
    int rc;
    if ((rc = layout_check(l, &p->model, p->ask.seq, p->ask.gbs, p->gpus, err)) < 0)
        return rc;
    if ((rc = adapter_check(p, l, err)) < 0)
        return rc;
    if ((rc = predict(p, w, &planned, err)) < 0)
        return rc;
    *out = planned;
    return 0;
}

int planner_predict(const struct planner *p, const struct layout *l, struct planned *out,
                    struct err *err)
{
    struct work *w = malloc(sizeof *w);
    int rc = w ? check_and_predict(p, l, w, out, err)
               : err_set(err, ERR_NOMEM, "out of memory for a plan");
    free(w);
    return rc;
}

/* Sets the interval of a layout whose work is built. */
static void interval_set(const struct planner *p, const struct work *w, struct planned *io)
{
    const struct interval_of of = {.constants = &p->constants, .v = p->v, .cluster = &p->cluster,
                                   .stack = &p->stack, .act = act_of(p), .fp8 = p->work.fp8};
    double by = exp(INTERVAL_SDS * interval_sd(&of, w, &io->layout));
    io->lo_s = io->step.seconds / by, io->hi_s = io->step.seconds * by;
}

int planner_interval(const struct planner *p, struct planned *io, struct err *err)
{
    struct work *w = malloc(sizeof *w);
    if (!w)
        return err_set(err, ERR_NOMEM, "out of memory for a plan");
    work_build(&p->work, &io->layout, w);
    interval_set(p, w, io);
    free(w);
    return 0;
}

/* ---- what a layout's terms are made of ---- */

/* Tells whether a term's rate is told by a constant: the time of the others follows from terms that
 * stand beside them. CONSTANT_COMPUTE slows all computation alike, and so tells no term apart. */
static bool has_constant(enum price_term t, enum constant_id id)
{
    return t != PRICE_INPUTS && t != PRICE_CONTENTION && t != PRICE_BUBBLE &&
           id != CONSTANT_COMPUTE && !constant_is_memory(id);
}

/* Returns the seconds of a term's work, hidden ones too. */
static double whole_term(const struct price_step *s, int t) { return s->term[t] + s->hidden[t]; }

/* Prices a layout once more with one constant lowered by a hundredth. */
static int lowered_price(const struct planner *p, const struct work *w, const struct layout *l,
                         int id, struct price_step *out, struct err *err)
{
    struct price_machine machine;
    struct price price;
    double v[CONSTANTS];
    memcpy(v, p->v, sizeof v);
    v[id] *= 0.99;
    price_machine(&p->cluster, v, act_of(p), p->work.fp8, &machine);
    price_parts(&machine, w, &price);
    return price_replay(&price, l, out, err);
}

/* Finds the constant that changes each term's seconds most, the first of those that change it
 * alike: the prices themselves say whether a message waits for links, NICs or its start. */
static int constants_find(const struct planner *p, const struct work *w, const struct layout *l,
                          const struct price_step *now, int constant[PRICE_TERMS], struct err *err)
{
    double most[PRICE_TERMS];
    int rc = 0;
    for (int t = 0; t < PRICE_TERMS; t++)
        most[t] = 1e-5, constant[t] = -1;
    for (int id = 0; id < CONSTANTS && rc == 0; id++) {
        struct price_step s;
        rc = lowered_price(p, w, l, id, &s, err);
        for (int t = 0; t < PRICE_TERMS && rc == 0; t++) {
            double by = fabs(whole_term(&s, t) / whole_term(now, t) - 1);
            if (has_constant((enum price_term)t, (enum constant_id)id) && by > 1.001 * most[t])
                most[t] = by, constant[t] = id;
        }
    }
    return rc;
}

/* Returns the device's curve of a layer's attention backward, or else forward. */
static const struct curve *attention_curve(const struct planner *p, const struct work *w)
{
    const struct curve *found = NULL;
    for (int i = WORK_LAYER_BACKWARD; i >= WORK_LAYER_FORWARD && !found; i--)
        if (w->parts[i].n_attentions > 0)
            found = price_attention_curve(&p->machine, w->stack->attention,
                                          &w->parts[i].attentions[0]);
    return found;
}

int planner_explain(const struct planner *p, const struct layout *l, struct explained *out,
                    struct err *err)
{
    struct work *w = malloc(sizeof *w);
    struct price price;
    int rc = w ? check_and_predict(p, l, w, &out->planned, err)
               : err_set(err, ERR_NOMEM, "out of memory for a plan");
    if (rc == 0) {
        interval_set(p, w, &out->planned);
        price_parts(&p->machine, w, &price);
        price_work(&price, l, &out->planned.step, out->work);
        out->attention = attention_curve(p, w);
        rc = constants_find(p, w, l, &out->planned.step, out->constant, err);
    }
    free(w);
    return rc;
}

/* ---- as a plan ---- */

/* Writes the cluster's name or absolute path with its number of nodes, "NAME:NODES", so that
 * cluster_load() can load it again. */
static int cluster_name(const struct planner *p, char *out, size_t size, struct err *err)
{
    char name[LIMIT_PATH_BYTES];
    const char *slash = strrchr(p->ask.cluster, '/'),
               *colon = strrchr(slash ? slash : p->ask.cluster, ':');
    snprintf(name, sizeof name, "%.*s",
             (int)(colon ? colon - p->ask.cluster : (ptrdiff_t)strlen(p->ask.cluster)),
             p->ask.cluster);
    int rc = catalog_place(name, out, size - sizeof ":1048576", err);
    if (rc == 0)
        snprintf(out + strlen(out), size - strlen(out), ":%lld", (long long)p->cluster.nodes);
    return rc;
}

/* Writes the names of all inputs of a prediction, so that it can be repeated from any folder. */
static int inputs_name(const struct planner *p, struct plan *out, struct err *err)
{
    const char *set = p->ask.constants ? p->ask.constants : p->constants.name;
    int rc;
    if (catalog_is_path(p->ask.model) &&
        (rc = catalog_place(p->ask.model, out->model_file, sizeof out->model_file, err)) < 0)
        return rc;
    if ((rc = catalog_place(p->ask.stack, out->stack, sizeof out->stack, err)) < 0 ||
        (rc = catalog_place(set, out->constants, sizeof out->constants, err)) < 0)
        return rc;
    return cluster_name(p, out->cluster, sizeof out->cluster, err);
}

int planner_plan(const struct planner *p, const struct planned *planned, struct plan *out,
                 struct err *err)
{
    const struct device *d = &p->cluster.device;
    *out = (struct plan){.layout = planned->layout,
                         .seq = p->ask.seq,
                         .gbs = p->ask.gbs,
                         .dtype = p->ask.dtype,
                         .peak_flops = d->peak_flops[act_of(p)],
                         .predicted_step_s = planned->step.seconds,
                         .predicted_at = clock_wall_s(),
                         .predicted_bytes = (int64_t)planned->footprint.total,
                         .limit_bytes = (int64_t)planner_limit_bytes(p),
                         .encoder_bytes = p->ask.encoder_bytes,
                         .ema = p->ask.ema,
                         .residual_wide = p->ask.residual_wide,
                         .moments_bf16 = p->ask.moments_bf16,
                         .model_hash = model_hash(&p->model)};
    snprintf(out->model, sizeof out->model, "%s", p->model.name);
    snprintf(out->device, sizeof out->device, "%s", d->name);
    snprintf(out->peak_source, sizeof out->peak_source, "%s", d->peak_source);
    for (int t = 0; t < PRICE_TERMS; t++) {
        struct plan_term *term = &out->terms[out->n_terms++];
        snprintf(term->name, sizeof term->name, "%s", price_term_names[t]);
        term->seconds = planned->step.term[t];
    }
    return inputs_name(p, out, err);
}
