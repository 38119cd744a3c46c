#include "trainer/run/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "trainer/run/train_priv.h"
#include "trainer/state/fault.h"

/* ---- a step ---- */

struct batch_facts { double norm, tokens, flops; }; /* of the global batch, from metadata and coins alone */

/* Does sample i of the batch count in what the loss is divided by? All do: ranks divide alike, so that gradients add up. */
static bool in_norm(const struct train *t, int64_t gbs, int64_t i)
{
    int64_t replica = t->leg.sh.place.dp, first = layout_replica_first(t->leg.layout, gbs, replica);
    bool own = i >= first && i < first + layout_replica_samples(t->leg.layout, gbs, replica);
    return own || fault_active != FAULT_POINT_LOSS_NORM;
}

static struct batch_facts facts_of(const struct train *t, const struct loader *l, int64_t first_draw, int64_t gbs, uint64_t ordinal)
{
    struct batch_facts f = {0};
    double elements = 0, samples = 0;
    for (int64_t i = 0; i < gbs; i++) {
        struct loader_draw d = loader_draw(l, first_draw + i);
        bool counts = in_norm(t, gbs, i);
        elements += counts ? (double)d.elements : 0;
        samples += counts ? (double)d.samples : 0;
        f.tokens += (double)d.tokens;
        f.flops += loader_flops(l, first_draw + i, ordinal);
    }
    f.norm = t->run->loss_norm == LOSS_NORM_SAMPLE ? samples : elements;
    return f;
}

/* This replica's part of a step. */
struct share {
    struct train *t;
    struct loader *loader;
    int64_t first_draw, gbs;
    uint64_t ordinal;
    double data_s;
    bool again; /* computed for the second time */
    int failed; /* of reading: the ranks go on in step, and agree on it at the step's end */
    struct err err;
};

static int micro_batch(void *ctx, int64_t micro, struct batch *out, struct err *err)
{
    struct share *s = ctx;
    const struct layout *l = s->t->leg.layout;
    int64_t replica = s->t->leg.sh.place.dp, n = layout_micro_batch_samples(l, s->gbs, replica, micro);
    int64_t first = s->first_draw + layout_replica_first(l, s->gbs, replica) + micro * l->mbs;
    double started = clock_mono_s();
    struct meter_mark at = meter_begin(s->t->leg.dev->meter);
    struct err why = {0};
    (void)err;
    *out = (struct batch){0};
    int rc = n ? loader_read(s->loader, first, n, s->ordinal, out, &why) : 0;
    if (rc < 0 && s->failed == 0)
        s->failed = rc, s->err = why;
    if (fault_active == FAULT_POINT_TRANSIENT && !s->again && out->n > 0)
        *(float *)out->samples[0].latent = NAN; /* the loader's */
    s->data_s += clock_mono_s() - started;
    meter_end(s->t->leg.dev->meter, at, METER_DATA, micro);
    return 0;
}

/* All micro-batches of this replica: gradients into the units, its part of the loss and of that of clean estimates. Where replicas
 * share collectives the short ones run empty ones. */
static int micro_batches(struct share *s, double inv_norm, struct record_step *r, double loss[2], struct err *err)
{
    struct train *t = s->t;
    const struct layout *l = t->leg.layout;
    int64_t n = layout_micro_batches(l, s->gbs, l->zero >= 2 ? 0 : t->leg.sh.place.dp);
    struct pipe_work w = {.micros = num_max_i64(1, n), .inv_norm = inv_norm, .batch = micro_batch, .ctx = s};
    struct pipe_result out = {0};
    units_begin(&t->leg.units, w.micros, l->vpp);
    int rc = pipe_run(&t->leg.pipe, &w, &out, err);
    units_flush(&t->leg.units);
    if (rc == 0)
        rc = units_failed(&t->leg.units, err);
    double share = l->tp == 1 || l->sp || t->leg.sh.place.tp == 0 ? inv_norm : 0; /* else tp ranks have the same */
    loss[0] = out.loss_sum * share, loss[1] = out.loss_x0_sum * share;
    r->data_s = s->data_s;
    r->forward_s += out.stage_s + out.forward_s;
    r->backward_s += out.backward_s;
    return rc;
}

static int err_step(int64_t step, int status, struct err *err)
{
    err_context(err, "step %lld", (long long)step);
    return status;
}

/* A trial that is plainly too slow: no counted step, and the first is none, was as fast as asked for. */
static bool hopeless(const struct train *t)
{
    bool slow = t->conf->trial && t->conf->give_up_s > 0 && t->n_times > TRAIN_GIVE_UP_STEPS;
    for (int64_t i = 1; slow && i < t->n_times; i++)
        slow = t->times[i] > t->conf->give_up_s;
    return slow;
}

/* Rank 0: has a newer attempt been seen to write into the run's folder? Then this one ends at the next step, saving nothing. */
static bool is_replaced(const struct train *t) { return t->writer.lease && lease_is_lost(t->writer.lease); }

static void stop_record(struct train *t)
{
    if (!is_replaced(t))
        record_stop_seen(&t->record, *t->conf->stop, t->conf->stop_heard);
}

/* Collective, after everything: a newer attempt may be why something failed, and whoever was replaced has not ended by itself. */
static int replaced_judge(struct train *t, int status, struct err *err)
{
    struct err why = {0};
    struct comm *world = t->conf->world;
    if (t->conf->trial || world->broken)
        return status;
    int lost = comm_agree(world, t->writer.lease ? ckpt_writer_check(&t->writer, &why) : 0, &why);
    return lost == ERR_BUSY ? err_set(err, lost, "%s", why.text) : status;
}

/* ---- spikes ---- */

/* What the norm of the gradients may be at most; of a loss that is too great already, nothing. */
static double norm_limit(const struct train *t, double loss)
{
    double z = t->run->adamw.spike_z;
    const struct spike_history *h = &t->spikes;
    if (z == 0)
        return INFINITY;
    return loss > spike_limit(h->loss, h->n, z) ? -1 : spike_limit(h->norm, h->n, z);
}

/* Of a step just done: was it one, and what the next ones are measured by. */
static void spike_after(struct train *t, struct record_step *s)
{
    struct spike_history *h = &t->spikes;
    double z = t->run->adamw.spike_z;
    if (z == 0)
        return;
    s->loss_spike = s->loss > spike_limit(h->loss, h->n, z);
    if (s->skipped && !s->nonfinite && t->conf->world->rank == 0)
        log_msg(LOG_WARN, "step %lld is skipped: its %s is %g, adamw.spike_z %g allows %g after the last %lld steps", (long long)s->step,
                s->loss_spike ? "loss" : "gradient norm", s->loss_spike ? s->loss : s->grad_norm, z,
                spike_limit(s->loss_spike ? h->loss : h->norm, h->n, z), (long long)h->n);
    spike_note(h, s->loss, s->grad_norm);
}

/* ---- a step's computation ---- */

struct pass {
    double loss[2];
    bool stop, written; /* somebody was told to stop; all have written the checkpoint that is under way */
    bool space_back;    /* for a save that is owed */
    struct optim_result opt;
};

/* What is summed over all ranks between backward and update: losses, and how many ranks say so. */
enum { SUM_LOSS, SUM_LOSS_X0, SUM_STOP, SUM_FAILED, SUM_WRITTEN, SUM_SPACE_BACK };

/* Does forward, backward, update. */
static int pass_run(struct train *t, struct share *share, int64_t step, double norm, struct record_step *s, struct pass *p, struct err *err)
{
    int rc = micro_batches(share, 1 / norm, s, p->loss, err);
    if (rc < 0)
        return rc;
    double sums[] = {
        [SUM_LOSS] = p->loss[0],
        [SUM_LOSS_X0] = p->loss[1],
        [SUM_STOP] = *t->conf->stop || hopeless(t) || is_replaced(t),
        [SUM_FAILED] = share->failed < 0,
        [SUM_WRITTEN] = ckpt_async_written(&t->leg.async),
        [SUM_SPACE_BACK] = t->conf->world->rank == 0 && train_space_back(t),
    };
    if ((rc = comm_sum(t->conf->world, sums, ARRAY_LEN(sums), err)) < 0)
        return rc;
    if (sums[SUM_FAILED] > 0) {
        sums_finish(&t->leg.optim.sums, err); /* on their way since backward */
        *err = share->err;
        return comm_agree(t->conf->world, share->failed, err);
    }
    p->loss[0] = sums[SUM_LOSS], p->loss[1] = sums[SUM_LOSS_X0];
    p->stop = p->stop || sums[SUM_STOP] > 0;
    p->written = sums[SUM_WRITTEN] == t->conf->world->size;
    p->space_back = sums[SUM_SPACE_BACK] > 0;
    double update = clock_mono_s(), before = comm_waited_s(t->conf->world);
    struct meter_mark part = meter_begin(t->leg.dev->meter);
    if ((rc = optim_step(&t->leg.optim, step, norm_limit(t, p->loss[0]), &p->opt, err)) < 0 ||
        (p->opt.nonfinite && (rc = train_nonfinite_find(t, s, err)) < 0))
        return rc;
    units_forget(&t->leg.units);
    meter_span(t->leg.dev->meter, part, "optimizer", step);
    s->optim_s += clock_mono_s() - update - (comm_waited_s(t->conf->world) - before);
    return comm_order_check(t->conf->world, err);
}

static void pass_again_tell(const struct pass *p, const struct record_step *s)
{
    char place[RECORD_PLACE_BYTES], op[RECORD_PLACE_BYTES];
    const char *in = record_nonfinite(s, place);
    if (!p->opt.nonfinite && s->bad_rank < 0)
        log_msg(LOG_WARN, "step %lld: a sum of gradients over ranks was not finite, and is when computed again: if that comes again, have the "
                          "network tested", (long long)s->step);
    else if (p->opt.nonfinite)
        log_msg(LOG_WARN, "step %lld is skipped: a gradient is not finite, first met in %s, %s", (long long)s->step, in, record_found(s, op));
    else
        log_msg(LOG_WARN, "step %lld: a gradient of %s was not finite, and is when computed again: if that rank is named again, have its "
                          "memory and processor tested", (long long)s->step, in);
}

/* A step that was not finite has changed nothing: it is computed again, and looked at on the way. If it comes out finite the update is that of
 * the second time, and the first was a fault of the machine. */
static int pass_again(struct train *t, struct share *share, int64_t step, double norm, struct record_step *s, struct pass *p, struct err *err)
{
    struct scan scan;
    share->again = s->again = true;
    scan_attach(&scan, t->leg.ops);
    int rc = pass_run(t, share, step, norm, s, p, err);
    scan_detach(&scan);
    if (rc == 0 && p->opt.nonfinite)
        rc = train_found_find(t, scan.found, s, err);
    if (rc == 0 && t->conf->world->rank == 0)
        pass_again_tell(p, s);
    return rc;
}

static int step_run(struct train *t, int64_t step, bool *stop, struct record_step *s, struct err *err)
{
    int64_t stage = run_stage_at(t->run, step), first = run_stage_first(t->run, stage);
    int64_t gbs = run_stage_gbs(&t->run->stages[stage], step - first), draw = run_stage_draws(&t->run->stages[stage], step - first);
    uint64_t ordinal = run_ordinal_at(t->run, first);
    double mono = clock_mono_s(), waited = comm_waited_s(t->conf->world);
    struct pass p = {0};
    if (step == first)
        t->spikes.n = 0;
    train_profile_step_begin(t);
    struct meter_mark whole = meter_begin(t->leg.dev->meter);
    *s = (struct record_step){.step = step, .started_at = clock_wall_s(), .lr = run_lr_at(t->run, step)};
    struct batch_facts facts = facts_of(t, t->leg.loaders[stage], draw, gbs, ordinal);
    struct share share = {.t = t, .loader = t->leg.loaders[stage], .first_draw = draw, .gbs = gbs, .ordinal = ordinal};
    int rc = pass_run(t, &share, step, facts.norm, s, &p, err);
    if (rc == 0 && p.opt.nonfinite && t->leg.dev->host_memory)
        rc = pass_again(t, &share, step, facts.norm, s, &p, err);
    if (rc < 0)
        return err_step(step, rc, err);
    s->comm_s = comm_waited_s(t->conf->world) - waited;
    meter_span(t->leg.dev->meter, whole, "step", step);
    s->step_s = clock_mono_s() - mono;
    s->other_s = s->step_s - s->data_s - s->forward_s - s->backward_s - s->comm_s - s->optim_s;
    s->loss = p.loss[0];
    s->loss_x0 = p.loss[1];
    s->grad_norm = p.opt.grad_norm;
    s->weight_norm = p.opt.weight_norm;
    s->update_norm = p.opt.update_norm;
    s->skipped = p.opt.skipped;
    s->nonfinite = p.opt.nonfinite;
    spike_after(t, s);
    s->tokens = facts.tokens;
    s->model_flops = facts.flops;
    s->mfu = t->peak_flops > 0 ? facts.flops / s->step_s / t->peak_flops : NAN;
    s->peak_bytes = train_resident_peak_bytes();
    train_profile_step_end(t, s);
    *stop = p.stop;
    t->leg.all_written = p.written;
    t->leg.space_back = p.space_back;
    return 0;
}

/* Skipped steps left nothing behind but their number: what is saved can be looked at, or go on with another learning rate. */
static int health_check(struct train *t, const struct record_step *s, struct err *err)
{
    int64_t most = t->run->budget.nonfinite_steps;
    t->skips = s->nonfinite ? t->skips + 1 : 0;
    if (most == 0 || t->skips < most)
        return 0;
    char place[RECORD_PLACE_BYTES], op[RECORD_PLACE_BYTES];
    int rc = train_state_save(t, err);
    return rc < 0 ? rc : err_set(err, ERR_DIVERGED, "%lld steps in a row had a gradient that is not finite (last: step %lld, first met in %s, %s), the state "
                                 "is saved: lower the learning rate, or look at the data", (long long)most, (long long)s->step,
                                 record_nonfinite(s, place), record_found(s, op));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times without the first step, which pays for first touches: median, least, most. */
static double median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void times_report(const struct train *t, struct train_report *out)
{
    double *times = t->times;
    int64_t n = t->n_times;
    out->median_step_s = out->min_step_s = out->max_step_s = NAN;
    if (n > 1)
        times++, n--;
    if (n == 0)
        return;
    if (t->named)
        out->named_share = median(t->named + (t->n_times > 1), n);
    out->median_step_s = median(times, n);
    out->min_step_s = times[0];
    out->max_step_s = times[n - 1];
}

static void phases_add(struct train *t, const struct record_step *s)
{
    if (t->n_times == 1) { /* as with the times, the first step counts only when it is the only one */
        t->phases = (struct train_phases){0};
        t->tokens = t->flops = 0;
    }
    t->tokens += s->tokens;
    t->flops += s->model_flops;
    t->phases.data_s += s->data_s;
    t->phases.forward_s += s->forward_s;
    t->phases.backward_s += s->backward_s;
    t->phases.comm_s += s->comm_s;
    t->phases.optim_s += s->optim_s;
    t->phases.other_s += s->other_s;
    if (t->n_times < TRAIN_TIMES_MAX)
        t->times[t->n_times++] = s->step_s;
}

static void phases_report(const struct train *t, int64_t steps, struct train_report *out)
{
    double n = (double)(steps > 1 ? steps - 1 : 1);
    const struct train_phases *p = &t->phases;
    out->tokens = steps ? t->tokens / n : NAN;
    out->model_flops = steps ? t->flops / n : NAN;
    out->phases = (struct train_phases){p->data_s / n, p->forward_s / n, p->backward_s / n, p->comm_s / n, p->optim_s / n, p->other_s / n};
}

static int report_make(struct train *t, const struct record_step *last, struct train_report *out, struct err *err)
{
    double peak_bytes = (double)train_resident_peak_bytes(), most[2] = {peak_bytes, peak_bytes - (double)train_segments_bytes(t)};
    int rc = comm_max(t->conf->world, most, 2, err);
    out->next_step = t->next_step;
    out->loss = last->loss;
    out->grad_norm = last->grad_norm;
    out->taken_bytes = t->leg.dev->peak_bytes;
    out->peak_bytes = (int64_t)most[0];
    out->segments_bytes = (int64_t)(most[0] - most[1]);
    char line[160], planned[32], peak[32], segments[32];
    int n = snprintf(line, sizeof line, "memory of a rank: planned %s, resident at most %s",
                     num_format_bytes(out->planned_bytes, planned, sizeof planned), num_format_bytes(out->peak_bytes, peak, sizeof peak));
    if (out->segments_bytes > 0)
        snprintf(line + n, sizeof line - (size_t)n, ", of which MPI's messages took %s", num_format_bytes(out->segments_bytes, segments, sizeof segments));
    train_say(t, line);
    return rc;
}

/* Between steps: has any rank been asked to stop? At the boundary of a step its last exchange tells. */
static int stop_agree(struct train *t, bool *stop, struct err *err)
{
    double asked = *t->conf->stop || is_replaced(t) ? 1 : 0;
    int rc = comm_max(t->conf->world, &asked, 1, err);
    *stop = asked > 0;
    if (rc == 0 && *stop)
        stop_record(t);
    return rc;
}

/* ---- validation ---- */

/* 1: given up, as a rank is asked to stop. */
static int loss_measure(struct train *t, struct validate_loss *out, struct err *err)
{
    bool counted = t->leg.layout->tp == 1 || t->leg.layout->sp || t->leg.sh.place.tp == 0; /* else tp ranks have the same */
    return validate_run(&t->leg.validate, &t->leg.pipe, t->conf->world, counted, t->conf->stop, out, err);
}

static int average_measure(struct train *t, struct validate_loss *out, struct err *err)
{
    train_phase_set(t, "validate average");
    int rc = optim_average_swap(&t->leg.optim, err), back = 0;
    units_forget(&t->leg.units);
    if (rc == 0)
        rc = loss_measure(t, out, err);
    if (rc >= 0)
        back = optim_average_swap(&t->leg.optim, err);
    units_forget(&t->leg.units);
    return back < 0 ? back : rc;
}

static int validation(struct train *t, bool *stop, struct err *err)
{
    struct validate_loss loss, average;
    double wall = clock_wall_s(), mono = clock_mono_s();
    char line[160];
    train_phase_set(t, "validate");
    int rc = loss_measure(t, &loss, err);
    if (rc == 0 && t->leg.optim.ema)
        rc = average_measure(t, &average, err);
    train_phase_set(t, "step");
    t->owed = *stop = rc == 1;
    if (rc == 1)
        stop_record(t);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    int n = snprintf(line, sizeof line, "step %lld: validation loss %.6g", (long long)t->next_step, loss.mean);
    if (t->leg.optim.ema)
        snprintf(line + n, sizeof line - (size_t)n, ", of the average %.6g", average.mean);
    train_say(t, line);
    record_validation(&t->record, t->next_step, &t->run->validation, loss.bins, t->leg.optim.ema ? average.bins : NULL, wall, clock_mono_s() - mono);
    return 0;
}

static bool validation_due(const struct train *t)
{
    int64_t every = t->run->validation.every_steps;
    return t->leg.validate.loader && t->next_step > 0 && (t->next_step % every == 0 || t->next_step == run_total_steps(t->run));
}

/* Of the step before the next one, when it is due. Whoever is asked to stop owes it, and the next attempt begins with it. */
static int validation_try(struct train *t, bool *stop, struct err *err)
{
    t->owed = validation_due(t);
    return t->owed && !*stop ? validation(t, stop, err) : 0;
}

/* At the beginning of an attempt: the one before may have been asked to stop after it had validated, or before. */
static int validation_owed(struct train *t, bool *stop, struct err *err)
{
    bool found = false;
    if (!validation_due(t))
        return 0;
    int rc = comm_agree(t->conf->world, t->conf->world->rank == 0 ? record_has(t->conf->run_dir, "validation", t->next_step, &found, err) : 0, err);
    double told = found;
    if (rc == 0)
        rc = comm_max(t->conf->world, &told, 1, err);
    return rc < 0 || told > 0 ? rc : validation_try(t, stop, err);
}

/* ---- the attempt ---- */

/* A checkpoint of the step just done: in the background when training goes on. */
static int save_due(struct train *t, bool last, struct err *err)
{
    struct meter_mark at = meter_begin(t->leg.dev->meter);
    train_phase_set(t, "save");
    int rc = t->run->ckpt_async && !last ? train_save_begin(t, err) : train_state_save(t, err);
    train_phase_set(t, "step");
    meter_span(t->leg.dev->meter, at, "checkpoint", t->next_step);
    return rc;
}

/* How often to save follows from what steps and saves took. */
static int cadence_try(struct train *t, struct err *err)
{
    bool changed = false;
    if (t->conf->trial || t->run->ckpt_every_steps != 0 || !cadence_is_due(&t->cadence))
        return 0;
    int rc = cadence_decide(&t->cadence, t->conf->world, &changed, err);
    if (rc == 0 && changed)
        train_cadence_tell(t);
    return rc;
}

/* Is a checkpoint of the step just done due, the newest being of step `saved`, or none since it began there? */
static bool save_is_due(const struct train *t, int64_t saved)
{
    int64_t every = t->run->ckpt_every_steps;
    if (every == 0)
        return t->cadence.every_steps > 0 && t->next_step - saved >= t->cadence.every_steps;
    return every > 0 && t->next_step % every == 0;
}

/* Due after the step just done: validation, a checkpoint; saving takes time, in which a request to stop may come. */
static int between_steps(struct train *t, int64_t end, int64_t *saved, bool *stop, struct err *err)
{
    struct err why = {0};
    int rc = t->leg.all_written ? train_save_finish(t, err) : 0;
    if (rc == 0)
        rc = validation_try(t, stop, err);
    bool last = *stop || t->next_step == end;
    if (rc == 0 && !last)
        rc = cadence_try(t, err);
    if (rc < 0 || *saved == t->next_step || !(last || t->leg.space_back || save_is_due(t, *saved)))
        return rc;
    double begun = clock_mono_s();
    rc = save_due(t, last, &why);
    if (rc == ERR_FULL && !last)
        rc = train_save_put_off(t, &why);
    else if (rc < 0)
        return err_set(err, rc, "%s", why.text);
    *saved = t->next_step;
    if (!t->save_owed)
        cadence_saved(&t->cadence, clock_mono_s() - begun);
    return rc == 0 && !last ? stop_agree(t, stop, err) : rc; /* no further step, no further save */
}

enum { LINE_STEPS = 10 };

/* "step 120 of 400: loss 0.4312, 1.9e+04 tokens/s, MFU 51.2 %", rates since the last line. */
static void step_line_say(struct train *t, const struct record_step *s)
{
    char line[192], mfu[32] = "";
    double seconds = t->line.seconds;
    if (t->peak_flops > 0)
        snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * t->line.flops / seconds / t->peak_flops);
    snprintf(line, sizeof line, "step %lld of %lld: loss %.5g, %.4g tokens/s%s%s", (long long)s->step + 1, (long long)run_total_steps(t->run), s->loss,
             t->line.tokens / seconds, mfu, s->skipped ? ", skipped" : "");
    train_say(t, line);
    t->line.tokens = t->line.flops = t->line.seconds = 0;
    t->line.at_s = clock_mono_s();
}

static void step_line(struct train *t, const struct record_step *s, bool edge)
{
    t->line.tokens += s->tokens, t->line.flops += s->model_flops, t->line.seconds += s->step_s;
    bool due = t->conf->lines == TRAIN_LINES_TEN ? (s->step + 1) % LINE_STEPS == 0 : clock_mono_s() - t->line.at_s >= 1;
    if (t->conf->lines != TRAIN_LINES_NONE && (due || edge))
        step_line_say(t, s);
}

/* Runs to the end of the leg, or of the attempt. */
static int steps_run(struct train *t, struct train_report *out, bool *stop, struct record_step *s, struct err *err)
{
    int64_t end = num_min_i64(t->end_step, run_stage_first(t->run, t->leg.end_stage)), saved = t->next_step;
    int rc = stop_agree(t, stop, err); /* asked while we were starting: not even one step then */
    train_phase_set(t, "step");
    if (rc == 0 && out->steps == 0)
        rc = validation_owed(t, stop, err);
    while (t->next_step < end && !*stop && rc == 0) {
        if ((rc = step_run(t, t->next_step, stop, s, err)) < 0)
            return rc;
        record_step(&t->record, s);
        if (*stop)
            stop_record(t);
        t->next_step++;
        out->steps++;
        step_line(t, s, out->steps == 1 || *stop || t->next_step == end);
        phases_add(t, s);
        cadence_step(&t->cadence, s->step_s);
        rc = health_check(t, s, err);
        if (rc == 0)
            rc = between_steps(t, end, &saved, stop, err);
    }
    if (rc == 0)
        rc = train_save_finish(t, err); /* asked to stop while it was begun */
    if (rc == 0 && t->save_owed)
        rc = train_state_save(t, err);
    return rc < 0 ? rc : report_make(t, s, out, err);
}

static bool in_leg(const struct train *t, int64_t step)
{
    int64_t stage = run_stage_at(t->run, step);
    return stage >= t->leg.first_stage && stage < t->leg.end_stage;
}

static void attempt_bounds(struct train *t)
{
    int64_t total = run_total_steps(t->run), most = t->conf->max_steps;
    if (t->end_step < 0)
        t->end_step = most > 0 && t->next_step + most < total ? t->next_step + most : total;
    if (t->conf->trial) /* there is no checkpoint for the next leg */
        t->end_step = num_min_i64(t->end_step, run_stage_first(t->run, t->leg.end_stage));
}

/* Runs one leg, that of the next step. *more: there are steps left to do, in another one. */
static int leg_run(struct train *t, struct train_report *out, bool *stop, bool *more, struct err *err)
{
    struct record_step s = {.loss = NAN, .grad_norm = NAN, .weight_norm = NAN, .update_norm = NAN, .tokens = NAN, .model_flops = NAN};
    int rc = train_open(t, t->next_step, err);
    out->planned_bytes = num_max_i64(out->planned_bytes, t->leg.memory.total);
    out->process_bytes = num_max_i64(out->process_bytes, t->leg.process_bytes);
    if (rc == 0)
        rc = train_state_load(t, err);
    if (rc == 0 && in_leg(t, t->next_step)) { /* else the newest checkpoint was damaged, and an older one lies elsewhere */
        attempt_bounds(t);
        record_started(&t->record, t->run, t->leg.plan, t->next_step, t->peak_flops);
        rc = steps_run(t, out, stop, &s, err);
    }
    *more = rc == 0 && !*stop && (t->end_step < 0 || t->next_step < t->end_step);
    train_close(t);
    return rc;
}

/* The step of the newest checkpoint, whatever it is worth: its leg is tried first. */
static int newest_step(struct train *t, struct err *err)
{
    double step = !t->conf->trial && t->conf->world->rank == 0 ? (double)ckpt_newest_step(t->conf->run_dir) : 0;
    int rc = comm_max(t->conf->world, &step, 1, err);
    t->next_step = (int64_t)step;
    return rc;
}

/* Rank 0: the run's folder, made if need be, is this attempt's. */
static int folder_take(struct train *t, struct err *err)
{
    int rc = file_mkdirs(t->conf->run_dir, err);
    if (rc == 0)
        rc = owner_take(t->conf->run_dir, t->conf->attempt, &t->writer.lease, err);
    return rc < 0 ? rc : record_open(&t->record, t->conf->run_dir, t->conf->attempt, err);
}

static int attempt_open(struct train *t, struct err *err)
{
    int rc = train_plans_check(t, err);
    if (rc == 0 && !(t->times = calloc(TRAIN_TIMES_MAX, sizeof *t->times)))
        rc = err_set(err, ERR_NOMEM, "out of memory");
    if (rc == 0 && !t->conf->trial && t->conf->world->rank == 0)
        rc = folder_take(t, err);
    rc = comm_agree(t->conf->world, rc, err);
    if (rc == 0)
        rc = train_profile_open(t, err);
    return rc < 0 ? rc : newest_step(t, err);
}

/* Says of a run that was done before this attempt how it gets longer. */
static void done_say(const struct train *t)
{
    char line[200];
    snprintf(line, sizeof line,
             "nothing to do: the run is done, its %lld steps are saved; it goes on when it gets "
             "more of them (stages[].steps of its file, or --steps with --model)",
             (long long)t->next_step);
    train_say(t, line);
}

int train_run(const struct train_conf *conf, struct train_report *out, struct err *err)
{
    struct train t = {.conf = conf, .run = conf->run, .end_step = -1, .config_hash = run_config_hash(conf->run),
                      .writer = {.run_dir = conf->run_dir, .attempt = conf->attempt}};
    bool stop = false, more = true;
    *out = (struct train_report){.loss = NAN, .grad_norm = NAN, .tokens = NAN, .model_flops = NAN, .mfu = NAN, .median_step_s = NAN,
                                 .min_step_s = NAN, .max_step_s = NAN, .named_share = NAN, .phases = {NAN, NAN, NAN, NAN, NAN, NAN}};
    cadence_init(&t.cadence, conf->mtbf_s, conf->save_s, conf->run->resources.nodes);
    int rc = attempt_open(&t, err);
    while (rc == 0 && more)
        rc = leg_run(&t, out, &stop, &more, err);
    rc = replaced_judge(&t, rc, err);
    times_report(&t, out);
    phases_report(&t, out->steps, out);
    out->mfu = t.peak_flops > 0 ? out->model_flops / out->median_step_s / t.peak_flops : NAN;
    if (rc == 0)
        out->end = t.next_step == run_total_steps(t.run) && !t.owed ? TRAIN_DONE : stop ? TRAIN_STOPPED : TRAIN_LIMIT;
    if (rc == 0 && out->end == TRAIN_DONE && out->steps == 0 && !conf->trial)
        done_say(&t);
    bool refused = rc == ERR_INPUT && out->steps == 0;
    const char *failed = rc == ERR_FULL ? "disk_full" : refused ? "refused" : "error";
    const char *reason = rc < 0 ? failed : out->end == TRAIN_DONE ? "done" : "stop";
    if (refused && !t.record.log && conf->world->rank == 0 && !conf->trial)
        record_rejected(conf->run_dir, conf->attempt, err->text);
    record_ended(&t.record, t.next_step, reason, rc < 0 ? err->text : "");
    if (rc == 0)
        rc = train_profile_end(&t, out, err);
    train_profile_close(&t);
    record_close(&t.record);
    lease_drop(t.writer.lease);
    free(t.times);
    return rc;
}
