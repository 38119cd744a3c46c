/* This file writes the events of a tuning; base/events.def lists their fields. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autotune/learnt.h"
#include "autotune/tune_priv.h"
#include "autotune/tune_story.h"
#include "base/clock.h"
#include "base/events.h"

int tune_event_started(struct tune *t, struct err *err)
{
    struct evlog_event e;
    char seq[64];
    snprintf(seq, sizeof seq, "%lldx%lldx%lld", (long long)t->conf.seq.t, (long long)t->conf.seq.h,
             (long long)t->conf.seq.w);
    event_begin(t->log, &e, tune_started);
    event_text(&e, tune_started, model, t->conf.run->model.name);
    event_text(&e, tune_started, extent, seq);
    event_int(&e, tune_started, gbs, t->conf.run->stages[0].gbs);
    event_text(&e, tune_started, device, t->device.name);
    event_int(&e, tune_started, ranks, t->conf.ranks[t->conf.n_ranks - 1]);
    event_text(&e, tune_started, dtype, dtype_names[t->conf.run->dtype]);
    event_num(&e, tune_started, peak_flops, t->device.peak_flops[t->conf.run->dtype]);
    event_text(&e, tune_started, peak_source, t->device.peak_source);
    event_text(&e, tune_started, cluster, t->conf.cluster);
    event_text(&e, tune_started, stack, t->conf.stack);
    model_write(&t->conf.run->model, &e.out, EVENT_FIELD(tune_started, model_profile, TREE));
    event_text(&e, tune_started, learns, t->learns);
    return evlog_commit(t->log, &e, true, err);
}

/* Adds the interval of a prediction that holds 90 % of measurements, and the constants behind
 * it. */
static void event_interval(const struct tune *t, int64_t i, struct evlog_event *e)
{
    char constants[160];
    double log_sd, predicted = search_predict_trial(&t->search, i, NULL, &log_sd);
    double by = exp(SEARCH_Z90 * log_sd * search_width(&t->search));
    event_num(e, trial_predicted, predicted_lo_s, predicted / by);
    event_num(e, trial_predicted, predicted_hi_s, predicted * by);
    snprintf(constants, sizeof constants, "%s, fitted to %lld measurement%s",
             t->described ? described_constants(t->described) : "the probe's",
             (long long)t->search.fit.n, t->search.fit.n == 1 ? "" : "s");
    if (t->learnt > 0)
        snprintf(constants + strlen(constants), sizeof constants - strlen(constants),
                 " and %lld of earlier tunings", (long long)t->learnt);
    event_text(e, trial_predicted, constants, constants);
}

int tune_event_predicted(struct tune *t, int64_t i, const struct plan *p, struct err *err)
{
    struct evlog_event e;
    event_begin(t->log, &e, trial_predicted);
    event_text(&e, trial_predicted, trial, t->trial);
    layout_write(&p->layout, &e.out, EVENT_FIELD(trial_predicted, layout, TEXT));
    event_int(&e, trial_predicted, gbs, p->gbs);
    event_num(&e, trial_predicted, predicted_step_s, p->predicted_step_s);
    event_interval(t, i, &e);
    event_num(&e, trial_predicted, predicted_at, p->predicted_at);
    event_int(&e, trial_predicted, predicted_bytes, p->predicted_bytes);
    event_int(&e, trial_predicted, limit_bytes, (int64_t)search_limit(&t->search, i));
    json_obj_begin(&e.out, EVENT_FIELD(trial_predicted, terms, TREE));
    for (int64_t k = 0; k < p->n_terms; k++)
        json_put_num(&e.out, p->terms[k].name, p->terms[k].seconds);
    json_obj_end(&e.out);
    const struct search_item *item = &t->items[i];
    const struct price_bill *bill = item->trial_bill ? item->trial_bill : &item->bill;
    learnt_terms_write(EVENT_FIELD(trial_predicted, priced, TREE), bill->term, &e.out);
    learnt_terms_write(EVENT_FIELD(trial_predicted, priced_hidden, TREE), bill->hidden, &e.out);
    learnt_terms_write(EVENT_FIELD(trial_predicted, priced_under, TREE), bill->under, &e.out);
    learnt_terms_write(EVENT_FIELD(trial_predicted, priced_alone, TREE), bill->alone, &e.out);
    learnt_terms_write(EVENT_FIELD(trial_predicted, priced_fixed, TREE), bill->fixed, &e.out);
    learnt_terms_write(EVENT_FIELD(trial_predicted, priced_far, TREE), bill->far, &e.out);
    learnt_terms_write(EVENT_FIELD(trial_predicted, priced_class_s, TREE), item->class_s, &e.out);
    int rc = evlog_commit(t->log, &e, true, err);
    if (rc < 0)
        return rc;
    event_begin(t->log, &e, trial_started);
    event_text(&e, trial_started, trial, t->trial);
    event_num(&e, trial_started, started_at, clock_wall_s());
    return evlog_commit(t->log, &e, true, err);
}

/* Adds the parts of a recorded step on GPUs. */
static void event_activity(struct evlog_event *e, const struct trial_result *r)
{
    if (!(r->recorded_step_s > 0))
        return;
    event_num(e, trial_ended, recorded_step_s, r->recorded_step_s);
    json_obj_begin(&e->out, EVENT_FIELD(trial_ended, class_s, TREE));
    for (int c = 0; c < KERNEL_CLASSES; c++)
        json_put_num(&e->out, kernel_class_names[c], r->class_s[c]);
    json_put_num(&e->out, KERNEL_NONE_NAME, r->idle_s);
    json_obj_end(&e->out);
    event_num(e, trial_ended, exposed_comm_s, r->exposed_s);
    event_num(e, trial_ended, hidden_comm_s, r->hidden_s);
    event_num(e, trial_ended, hfu, r->hfu);
    event_int(e, trial_ended, dropped, r->dropped);
}

/* Adds the CPU time of each class in a step. */
static void event_classes(struct evlog_event *e, const struct trial_result *r)
{
    if (!(r->class_cpu_s[PRICE_GEMM] > 0))
        return;
    json_obj_begin(&e->out, EVENT_FIELD(trial_ended, class_s, TREE));
    for (int t = 0; t < PRICE_TERMS; t++)
        if (r->class_cpu_s[t] > 0)
            json_put_num(&e->out, price_term_names[t], r->class_cpu_s[t]);
    json_obj_end(&e->out);
}

void tune_event_classes_read(const cJSON *event, double class_s[PRICE_TERMS])
{
    bool cpu = !json_member(event, "recorded_step_s");
    for (int t = 0; t < PRICE_TERMS; t++)
        class_s[t] = cpu ? json_num(json_member(event, "class_s"), price_term_names[t], 0) : 0;
}

int tune_event_trial_ended(struct tune *t, const struct plan *p, const struct trial_result *r,
                           bool disturbed, struct err *err)
{
    struct evlog_event e;
    int64_t world = layout_world(&p->layout);
    bool ok = r->state == TRIAL_OK;
    event_begin(t->log, &e, trial_ended);
    event_text(&e, trial_ended, trial, t->trial);
    event_text(&e, trial_ended, state, trial_state_names[r->state]);
    event_text(&e, trial_ended, cause, r->cause);
    event_text(&e, trial_ended, evidence, r->evidence[0] ? r->evidence : NULL);
    event_text(&e, trial_ended, node, r->node[0] ? r->node : NULL);
    event_num(&e, trial_ended, measured_step_s, ok ? r->step_s : NAN);
    event_num(&e, trial_ended, tokens, r->tokens);
    event_num(&e, trial_ended, model_flops, r->model_flops);
    event_num(&e, trial_ended, peak_flops, p->peak_flops * (double)world);
    event_num(&e, trial_ended, mfu, ok ? r->mfu : NAN);
    event_int(&e, trial_ended, peak_bytes, r->peak_bytes);
    event_int(&e, trial_ended, steps, r->steps);
    event_bool(&e, trial_ended, disturbed, disturbed);
    event_int(&e, trial_ended, gpus, world);
    event_activity(&e, r);
    event_classes(&e, r);
    return evlog_commit(t->log, &e, true, err);
}

int tune_event_trial_left(struct tune *t, struct err *err)
{ return tune_story_left(t->log, t->trial, err); }

bool tune_event_runs(const cJSON *event, bool before)
{
    const char *kind = json_text(event, "ev", "");
    return strcmp(kind, "trial_started") == 0 || (before && strcmp(kind, "trial_ended") != 0);
}

int tune_event_ended(struct tune *t, struct err *err)
{
    struct search_contenders close = search_contenders_find(&t->search);
    struct evlog_event e;
    event_begin(t->log, &e, tune_ended);
    event_text(&e, tune_ended, winner, t->search.best >= 0 ? t->trial_ids[t->search.best] : NULL);
    event_text(&e, tune_ended, reason, t->search.stop_reason);
    event_int(&e, tune_ended, contenders, close.n);
    event_int(&e, tune_ended, contenders_left, close.left);
    return evlog_commit(t->log, &e, true, err);
}
