/* train_report: reports an attempt's steps: a line of a step, means and medians, memory. */
#include "trainer/run/train_priv.h"

#include <math.h>
#include <stdio.h>

#include "base/num.h"

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
        out->named_share = num_median(t->named + (t->n_times > 1), n);
    out->median_step_s = num_median(times, n);
    out->min_step_s = times[0];
    out->max_step_s = times[n - 1];
}

void train_phases_add(struct train *t, const struct record_step *s)
{
    /* As in `times`, the first step counts only if it is the only one. */
    if (t->n_times == 1) {
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
    if (t->n_times == TRAIN_TIMES_MAX)
        return;
    if (t->conf->times_s)
        t->conf->times_s[t->n_times] = s->step_s;
    t->times[t->n_times++] = s->step_s;
}

static void phases_report(const struct train *t, int64_t steps, struct train_report *out)
{
    double n = (double)(steps > 1 ? steps - 1 : 1);
    const struct train_phases *p = &t->phases;
    out->tokens = steps ? t->tokens / n : NAN;
    out->model_flops = steps ? t->flops / n : NAN;
    out->phases = (struct train_phases){
        .data_s = p->data_s / n, .forward_s = p->forward_s / n, .backward_s = p->backward_s / n,
        .comm_s = p->comm_s / n, .optim_s = p->optim_s / n, .other_s = p->other_s / n};
}

void train_means_report(const struct train *t, struct train_report *out)
{
    out->n_times = t->n_times;
    times_report(t, out);
    phases_report(t, out->steps, out);
}

/* Returns the bytes of a device's own memory that are not free; 0: unknown, or host memory. */
static int64_t used_bytes(struct dev *dev)
{
    int64_t left, total;
    struct err none = {0};
    return dev->host_memory || dev->memory(dev, &left, &total, &none) < 0 ? 0 : total - left;
}

int train_report_make(struct train *t, const struct record_step *last, struct train_report *out,
                      struct err *err)
{
    double peak_bytes = (double)train_resident_peak_bytes(),
           most[2] = {peak_bytes, peak_bytes - (double)train_mpi_bytes(t)};
    int rc = comm_max(t->conf->world, most, 2, err);
    out->next_step = t->next_step;
    out->loss = last->loss;
    out->grad_norm = last->grad_norm;
    out->step_syncs = t->step_syncs;
    if (t->leg.graphs) {
        struct graphs_counts counts = graphs_counts(t->leg.graphs);
        out->graphs = counts.captures;
        out->graph_launches = counts.launches;
    }
    struct dev *dev = t->leg.compute.dev;
    out->used_bytes = used_bytes(dev);
    out->taken_bytes = dev->peak_bytes;
    out->taken_pinned_bytes = dev->host_peak_bytes;
    out->peak_bytes = (int64_t)most[0];
    out->mpi_bytes = (int64_t)(most[0] - most[1]);
    char line[COMPUTE_OWN_ATTN_LINE], planned[32], peak[32], messages[32];
    int n = snprintf(line, sizeof line, "memory of a rank: planned %s, resident at most %s",
                     num_format_bytes(out->planned_bytes, planned, sizeof planned),
                     num_format_bytes(out->peak_bytes, peak, sizeof peak));
    if (out->mpi_bytes > 0)
        snprintf(line + n, sizeof line - (size_t)n, ", of which MPI's messages took %s",
                 num_format_bytes(out->mpi_bytes, messages, sizeof messages));
    train_say(t, line);
    if (compute_attn_format(&t->leg.compute, line, sizeof line))
        train_say(t, line);
    if (compute_own_attn_format(&t->leg.compute, line, sizeof line))
        train_say(t, line);
    return rc;
}

/* ---- lines ---- */

/* Prints "step 120 of 400: loss 0.4312, 1.9e+04 tokens/s, MFU 51.2 %". The loss is the step's own.
 * The rates are those of the steps since the last line, without what was done between steps. */
static void step_line_say(struct train *t, const struct record_step *s)
{
    char line[192], mfu[32] = "";
    double seconds = t->line.seconds;
    if (t->peak_flops > 0)
        snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * t->line.flops / seconds / t->peak_flops);
    snprintf(line, sizeof line, "step %lld of %lld: loss %.5g, %.4g tokens/s%s%s",
             (long long)s->step + 1, (long long)run_total_steps(t->run), s->loss,
             t->line.tokens / seconds, mfu, s->skipped ? ", skipped" : "");
    train_say(t, line);
    t->line.tokens = t->line.flops = t->line.seconds = 0;
}

void train_step_line(struct train *t, const struct record_step *s, bool edge)
{
    int64_t interval = t->conf->log_interval;
    t->line.tokens += s->tokens, t->line.flops += s->model_flops, t->line.seconds += s->step_s;
    if (interval > 0 && (edge || (s->step + 1) % interval == 0))
        step_line_say(t, s);
}
