/* train_step: does one optimizer step: the micro-batches of this rank, the sums over ranks, and the
 * update. A spike skips the update, and gradients that are not finite are computed once more. */
#include "trainer/run/train_priv.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "trainer/state/fault.h"

/* ---- the batch ---- */

/* Describes this replica's share of a step. */
struct share {
    struct train *t;
    struct loader *loader;
    int64_t first_draw, gbs;
    uint64_t ordinal;
    double data_s;
    bool again; /* the step is computed for the second time */
    /* failed is the code of the first read that failed, or 0. The micro-batches are computed all
     * the same, in the order of the other ranks, and all agree on the failure at the step's end. */
    int failed;
    struct err err;
};

/* Holds what is known of the global batch from metadata and random choices alone. */
struct batch_facts { double norm, tokens, flops; };

/* Tells whether sample i of the batch counts in the divisor of the loss. All do, so that all ranks
 * divide by one number and gradients add up. (With a test's fault a rank counts only its own.) */
static bool in_norm(const struct train *t, int64_t gbs, int64_t i)
{
    int64_t replica = t->leg.sh.place.dp, first = layout_replica_first(t->leg.layout, gbs, replica);
    bool own = i >= first && i < first + layout_replica_samples(t->leg.layout, gbs, replica);
    return own || fault_active != FAULT_POINT_LOSS_NORM;
}

static struct batch_facts facts_of(const struct share *s)
{
    struct batch_facts f = {0};
    double elements = 0, samples = 0;
    for (int64_t i = 0; i < s->gbs; i++) {
        struct loader_draw d = loader_draw(s->loader, s->first_draw + i);
        bool counts = in_norm(s->t, s->gbs, i);
        elements += counts ? (double)d.elements : 0;
        samples += counts ? (double)d.samples : 0;
        f.tokens += (double)d.tokens;
        f.flops += loader_flops(s->loader, s->first_draw + i, s->ordinal);
    }
    f.norm = s->t->run->loss_norm == LOSS_NORM_SAMPLE ? samples : elements;
    return f;
}

/* Returns the first draw and the number of draws of a micro-batch of this replica. */
static int64_t micro_first(const struct share *s, int64_t micro, int64_t *n)
{
    const struct layout *l = s->t->leg.layout;
    int64_t replica = s->t->leg.sh.place.dp;
    *n = layout_micro_batch_samples(l, s->gbs, replica, micro);
    return s->first_draw + layout_replica_first(l, s->gbs, replica) + micro * l->mbs;
}

static int micro_batch(void *ctx, int64_t micro, struct batch *out, struct err *err)
{
    struct share *s = ctx;
    int64_t n, first = micro_first(s, micro, &n);
    double started = clock_mono_s();
    struct meter_start at = meter_begin(s->t->leg.compute.dev->meter);
    struct err why = {0};
    (void)err;
    *out = (struct batch){0};
    int rc = n ? loader_read(s->loader, first, n, s->ordinal, out, &why) : 0;
    if (rc < 0 && s->failed == 0)
        s->failed = rc, s->err = why;
    if (fault_active == FAULT_POINT_TRANSIENT && !s->again && out->n > 0)
        *(float *)out->samples[0].latent = NAN; /* a fault: this is the loader's own memory */
    s->data_s += clock_mono_s() - started;
    meter_end(s->t->leg.compute.dev->meter, at, METER_DATA, micro);
    return 0;
}

/* Describes this replica's share of a step's batch. */
static struct share share_of(struct train *t, int64_t step)
{
    int64_t stage = run_stage_at(t->run, step), first = run_stage_first(t->run, stage);
    return (struct share){
        .t = t, .loader = t->leg.loaders[stage],
        .first_draw = run_stage_draws(&t->run->stages[stage], step - first),
        .gbs = run_stage_gbs(&t->run->stages[stage], step - first),
        .ordinal = run_ordinal_at(t->run, first)};
}

/* Reads the first micro-batch of the next step while a device computes this step. On a device that
 * runs every call at once this would gain nothing. */
static void next_read(struct share *s, int64_t next)
{
    struct train *t = s->t;
    struct dev *dev = t->leg.compute.dev;
    double started = clock_mono_s();
    if (dev->host_memory || next >= t->end_step ||
        next >= run_stage_first(t->run, t->leg.end_stage))
        return;
    struct meter_start at = meter_begin(dev->meter);
    struct share then = share_of(t, next);
    int64_t n, first = micro_first(&then, 0, &n);
    if (n > 0)
        loader_ahead(then.loader, first, n, then.ordinal);
    s->data_s += clock_mono_s() - started;
    meter_end(dev->meter, at, METER_DATA, 0);
}

/* Queues all micro-batches of this replica; gradients go into the units. If replicas have
 * collectives together, those with fewer micro-batches run empty ones. */
static int micro_batches(struct share *s, double inv_norm, struct err *err)
{
    struct train *t = s->t;
    const struct layout *l = t->leg.layout;
    int64_t n = layout_micro_batches(l, s->gbs, l->zero >= 2 ? 0 : t->leg.sh.place.dp);
    struct pipe_task w = {
        .micros = num_max_i64(1, n), .inv_norm = inv_norm, .batch = micro_batch, .ctx = s};
    int rc;
    units_begin(&t->leg.units, w.micros, l->vpp);
    if ((rc = pipe_run(&t->leg.pipe, &w, err)) < 0)
        return rc;
    units_flush(&t->leg.units);
    return units_failed(&t->leg.units, err);
}

int train_step_shapes(struct train *t, int64_t step, batch_shapes_fn *tell, void *ctx,
                      struct err *err)
{
    struct share s = share_of(t, step);
    int64_t micros = layout_micro_batches(t->leg.layout, s.gbs, t->leg.sh.place.dp);
    int rc = 0;
    for (int64_t micro = 0; micro < micros && rc == 0; micro++) {
        struct batch b;
        int64_t n, first = micro_first(&s, micro, &n);
        loader_describe(s.loader, first, n, s.ordinal, &b);
        rc = tell(ctx, &b, err);
    }
    return rc;
}

/* Waits for what is queued. loss[] gets this rank's part of the loss, and of the loss of clean
 * estimates. */
static int losses_take(struct share *s, double inv_norm, struct record_step *r, double loss[2],
                       struct err *err)
{
    struct train *t = s->t;
    const struct layout *l = t->leg.layout;
    struct pipe_result out;
    int rc;
    if ((rc = pipe_wait(&t->leg.pipe, &out, err)) < 0)
        return rc;
    /* Without sequence parallelism all tp ranks have the same loss, and only one of them counts. */
    double share = l->tp == 1 || l->sp || t->leg.sh.place.tp == 0 ? inv_norm : 0;
    loss[0] = out.loss_sum * share, loss[1] = out.loss_x0_sum * share;
    r->data_s = s->data_s;
    r->forward_s += out.times.stage_s + out.times.forward_s;
    r->backward_s += out.times.backward_s;
    r->optim_s += out.times.behind_s;
    return 0;
}

static int err_step(int64_t step, int status, struct err *err)
{
    err_context(err, "step %lld", (long long)step);
    return status;
}

/* Tells whether a trial is clearly too slow: no counted step (the first does not count) was as fast
 * as required. */
static bool hopeless(const struct train *t)
{
    bool slow = t->conf->trial && t->conf->give_up_s > 0 && t->n_times > TRAIN_GIVE_UP_STEPS;
    for (int64_t i = 1; slow && i < t->n_times; i++)
        slow = t->times[i] > t->conf->give_up_s;
    return slow;
}

/* ---- spikes ---- */

/* Returns the greatest norm of the gradients that is allowed; -1 if the loss is too great
 * already. */
static double norm_limit(const struct train *t, double loss)
{
    double z = t->run->adamw.spike_z;
    const struct spike_history *h = &t->spikes;
    if (z == 0)
        return INFINITY;
    return loss > spike_limit(h->loss, h->n, z) ? -1 : spike_limit(h->norm, h->n, z);
}

/* Says whether the step just done was a spike, and notes it for the next steps. */
static void spike_after(struct train *t, struct record_step *s)
{
    struct spike_history *h = &t->spikes;
    double z = t->run->adamw.spike_z;
    if (z == 0)
        return;
    s->loss_spike = s->loss > spike_limit(h->loss, h->n, z);
    if (s->skipped && !s->nonfinite && t->conf->world->rank == 0)
        log_msg(LOG_WARN,
                "step %lld is skipped: its %s is %g, adamw.spike_z %g allows %g after the last "
                "%lld steps",
                (long long)s->step, s->loss_spike ? "loss" : "gradient norm",
                s->loss_spike ? s->loss : s->grad_norm, z,
                spike_limit(s->loss_spike ? h->loss : h->norm, h->n, z), (long long)h->n);
    spike_note(h, s->loss, s->grad_norm);
}

/* ---- a step's computation ---- */

struct pass {
    double loss[2];
    /* stop: a rank was asked to stop; written: all ranks have written their files of the checkpoint
     * that is under way. */
    bool stop, written;
    bool space_back; /* there is room for a save that is owed */
    struct optim_result opt;
};

/* These are summed over all ranks between backward and update: losses, and the number of ranks to
 * which each of the others applies. */
enum { SUM_LOSS, SUM_LOSS_X0, SUM_STOP, SUM_FAILED, SUM_WRITTEN, SUM_SPACE_BACK };

/* Holds when a part of a step began. At its end the part becomes a span of the trace, and part_end
 * returns its time on the host, without waits for messages. */
struct part { double at_s, waited_s; struct meter_start began; };
static struct part part_begin(const struct train *t)
{
    return (struct part){clock_mono_s(), comm_waited_s(t->conf->world),
                         meter_begin(t->leg.compute.dev->meter)};
}

static double part_end(const struct train *t, const struct part *p, const char *name, int64_t step)
{
    meter_span(t->leg.compute.dev->meter, p->began, name, step);
    return clock_mono_s() - p->at_s - (comm_waited_s(t->conf->world) - p->waited_s);
}

/* Queues forward, backward and the sums of gradients, and waits for them once, for losses and
 * norm. */
static int gradients_make(struct train *t, struct share *share, double norm, struct record_step *s,
                          struct pass *p, struct err *err)
{
    int rc;
    if ((rc = micro_batches(share, 1 / norm, err)) < 0)
        return rc;
    struct part part = part_begin(t);
    if ((rc = optim_sum(&t->leg.optim, err)) < 0)
        return rc;
    pipe_behind_end(&t->leg.pipe);
    double took = part_end(t, &part, "sums of gradients", s->step);
    s->optim_s += t->leg.compute.dev->host_memory ? took : 0; /* else it is in behind_s */
    next_read(share, s->step + 1);
    return losses_take(share, 1 / norm, s, p->loss, err);
}

/* Exchanges what the ranks must agree on before the update. */
static int pass_share(struct train *t, struct share *share, struct pass *p, struct err *err)
{
    double sums[] = {
        [SUM_LOSS] = p->loss[0],
        [SUM_LOSS_X0] = p->loss[1],
        [SUM_STOP] = *t->conf->stop || hopeless(t) || train_is_replaced(t),
        [SUM_FAILED] = share->failed < 0,
        [SUM_WRITTEN] = ckpt_async_written(&t->leg.async),
        [SUM_SPACE_BACK] = t->conf->world->rank == 0 && train_space_back(t),
    };
    int rc;
    if ((rc = comm_sum(t->conf->world, sums, ARRAY_LEN(sums), err)) < 0)
        return rc;
    if (sums[SUM_FAILED] > 0) {
        *err = share->err;
        return comm_agree(t->conf->world, share->failed, err);
    }
    p->loss[0] = sums[SUM_LOSS], p->loss[1] = sums[SUM_LOSS_X0];
    p->stop = p->stop || sums[SUM_STOP] > 0;
    p->written = sums[SUM_WRITTEN] == t->conf->world->size;
    p->space_back = sums[SUM_SPACE_BACK] > 0;
    return 0;
}

/* Does forward, backward, update. */
static int pass_run(struct train *t, struct share *share, int64_t step, double norm,
                    struct record_step *s, struct pass *p, struct err *err)
{
    int rc;
    if ((rc = gradients_make(t, share, norm, s, p, err)) < 0)
        return rc;
    if ((rc = pass_share(t, share, p, err)) < 0)
        return rc;
    struct part part = part_begin(t);
    if ((rc = optim_update(&t->leg.optim, step, norm_limit(t, p->loss[0]), &p->opt, err)) < 0 ||
        (p->opt.nonfinite && (rc = train_nonfinite_find(t, s, err)) < 0))
        return rc;
    units_forget(&t->leg.units);
    s->optim_s += part_end(t, &part, "optimizer", s->step);
    return comm_order_check(t->conf->world, err);
}

static void pass_again_tell(const struct pass *p, const struct record_step *s)
{
    char place[RECORD_PLACE_BYTES], op[RECORD_PLACE_BYTES];
    const char *in = record_nonfinite(s, place);
    if (!p->opt.nonfinite && s->bad_rank < 0)
        log_msg(LOG_WARN,
                "step %lld: a sum of gradients over ranks was not finite, and is when computed "
                "again: if that comes again, have the network tested",
                (long long)s->step);
    else if (p->opt.nonfinite)
        log_msg(LOG_WARN, "step %lld is skipped: a gradient is not finite, first met in %s, %s",
                (long long)s->step, in, record_found(s, op));
    else
        log_msg(LOG_WARN,
                "step %lld: a gradient of %s was not finite, and is when computed again: if that "
                "rank is named again, have its memory and processor tested",
                (long long)s->step, in);
}

/* Computes a step again that was not finite and therefore changed nothing, and scans it meanwhile.
 * If it is finite this time, the second computation makes the update, and the first was a fault of
 * the machine. */
static int pass_again(struct train *t, struct share *share, int64_t step, double norm,
                      struct record_step *s, struct pass *p, struct err *err)
{
    struct scan *scan = &t->leg.scan;
    share->again = s->again = true;
    scan_attach(scan, t->leg.compute.stream);
    int rc = pass_run(t, share, step, norm, s, p, err);
    scan_detach(scan);
    if (rc < 0)
        return rc;
    if (p->opt.nonfinite && (rc = train_found_find(t, scan->found, s, err)) < 0)
        return rc;
    if (t->conf->world->rank == 0)
        pass_again_tell(p, s);
    return 0;
}

/* Makes the phases of a step add up to the step's time. On a device that queues they are measured
 * by its clock, and may contain waits for messages. If they are longer than the step without its
 * messages, they are scaled down to that. Data that was read while the device computed costs the
 * step nothing. */
static void phases_close(const struct train *t, struct record_step *s)
{
    double comm_s = isnan(s->comm_s) ? 0 : s->comm_s, room = s->step_s - comm_s,
           busy = s->forward_s + s->backward_s + s->optim_s;
    if (!t->leg.compute.dev->host_memory) {
        double share = busy > room ? fmax(room, 0) / busy : 1;
        s->forward_s *= share, s->backward_s *= share, s->optim_s *= share;
        busy *= share;
        s->data_s = fmin(s->data_s, fmax(room - busy, 0));
    }
    s->other_s = room - busy - s->data_s;
}

/* Copies the results of the step into its record. */
static void step_fill(const struct train *t, const struct pass *p, const struct batch_facts *facts,
                      struct record_step *s)
{
    phases_close(t, s);
    s->loss = p->loss[0];
    s->loss_x0 = p->loss[1];
    s->grad_norm = p->opt.grad_norm;
    s->weight_norm = p->opt.weight_norm;
    s->update_norm = p->opt.update_norm;
    s->skipped = p->opt.skipped;
    s->nonfinite = p->opt.nonfinite;
    s->tokens = facts->tokens;
    s->model_flops = facts->flops;
    s->mfu = t->peak_flops > 0 ? facts->flops / s->step_s / t->peak_flops : NAN;
    s->peak_bytes = train_resident_peak_bytes();
}

/* Says once why a device makes no graphs. Steps are correct without them, too. */
static void graphs_tell(struct train *t)
{
    const char *why = t->leg.graphs ? graphs_refused(t->leg.graphs) : NULL;
    if (!why || t->leg.graphs_told)
        return;
    t->leg.graphs_told = true;
    log_msg(LOG_WARN, "steps are queued call by call (--graphs off does so without a word): %s",
            why);
}

static void step_range(const struct train *t, int64_t step)
{
    struct dev *dev = t->leg.compute.dev;
    if (dev->range_step)
        dev->range_step(dev, step);
}

int train_step_run(struct train *t, int64_t step, bool *stop, struct record_step *s,
                   struct err *err)
{
    struct share share = share_of(t, step);
    int64_t syncs = t->leg.compute.dev->syncs;
    double mono = clock_mono_s(), waited = comm_waited_s(t->conf->world);
    struct pass p = {0};
    int rc;
    if (step == run_stage_first(t->run, run_stage_at(t->run, step)))
        t->spikes.n = 0;
    train_profile_step_begin(t);
    step_range(t, step);
    struct meter_start whole = meter_begin(t->leg.compute.dev->meter);
    *s = (struct record_step){
        .step = step, .started_at = clock_wall_s(), .lr = run_lr_at(t->run, step)};
    struct batch_facts facts = facts_of(&share);
    if ((rc = pass_run(t, &share, step, facts.norm, s, &p, err)) < 0)
        return err_step(step, rc, err);
    if (p.opt.nonfinite && (rc = pass_again(t, &share, step, facts.norm, s, &p, err)) < 0)
        return err_step(step, rc, err);
    step_range(t, -1);
    /* Where devices exchange data, the host does not wait for it, and nothing measures it. */
    s->comm_s = train_exchanges(t) ? NAN : comm_waited_s(t->conf->world) - waited;
    meter_span(t->leg.compute.dev->meter, whole, "step", step);
    s->step_s = clock_mono_s() - mono;
    step_fill(t, &p, &facts, s);
    spike_after(t, s);
    train_profile_step_end(t, s);
    t->step_syncs = num_max_i64(t->step_syncs, t->leg.compute.dev->syncs - syncs);
    graphs_tell(t);
    *stop = p.stop;
    t->leg.all_written = p.written;
    t->leg.space_back = p.space_back;
    return 0;
}

/* Counts the last steps that were not finite. They changed nothing in the state but this count. So
 * the checkpoint can be inspected, or training can go on from it with another learning rate. */
int train_health_check(struct train *t, const struct record_step *s, struct err *err)
{
    int64_t most = t->run->budget.nonfinite_steps;
    t->skips = s->nonfinite ? t->skips + 1 : 0;
    if (most == 0 || t->skips < most)
        return 0;
    char place[RECORD_PLACE_BYTES], op[RECORD_PLACE_BYTES];
    int rc = train_state_save(t, err);
    if (rc < 0)
        return rc;
    return err_set(err, ERR_DIVERGED,
                   "%lld steps in a row had a gradient that is not finite (last: step %lld, first "
                   "met in %s, %s), the state is saved: lower the learning rate, or look at the "
                   "data",
                   (long long)most, (long long)s->step, record_nonfinite(s, place),
                   record_found(s, op));
}
