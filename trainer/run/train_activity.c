/* train_activity: measures how a GPU spends the steps of a trial. After the timed steps, two more
 * are run while CUPTI records (trainer/watch/activity.h), so that the timed ones are not disturbed
 * and the cost of recording can be seen. A trial that cannot be recorded says why; its times are
 * valid all the same. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "profiles/flops.h"
#include "profiles/speed.h"
#include "trainer/run/train_priv.h"

enum { STEPS = 2 };

/* Returns the FLOPs that backward recomputes, as a share of a step's model FLOPs. NaN: there is no
 * memory to count them. */
static double computed_again(const struct train *t)
{
    const struct model *m = &t->run->model;
    const struct plan *plan = t->leg.plan;
    struct work_weights weights;
    struct stack stack;
    struct flops f;
    struct err none;
    if (flops_reel_sample(m, plan->seq, m->text_len, &f, &none) < 0 ||
        stack_load("reel", &stack, &none) < 0 || work_weights(m, &weights, &none) < 0)
        return NAN;
    struct work_spec spec = {.model = m, .weights = &weights, .stack = &stack, .seq = plan->seq,
                             .gbs = plan->gbs, .act = plan->dtype};
    struct work w;
    work_build(&spec, t->leg.layout, &w);
    return speed_again(&w, t->leg.layout) / (f.total * w.samples);
}

static struct activity_facts facts_of(const struct train *t)
{
    double flops = t->flops / (double)(t->n_times > 1 ? t->n_times - 1 : 1) /
                   (double)t->conf->world->size;
    return (struct activity_facts){
        .rank = t->conf->world->rank, .steps = STEPS,
        .model_flops = flops, .hardware_flops = flops * (1 + computed_again(t)),
        .peak_flops = t->leg.plan->peak_flops};
}

/* Begins to record on this rank. *begun: the recording must be ended. */
static int begin(const struct activity_library **library, bool *begun, struct err *err)
{
    int rc;
    if ((rc = activity_load(library, err)) < 0)
        return rc;
    if ((rc = (*library)->begin(err)) < 0)
        return rc;
    *begun = true;
    return 0;
}

/* Runs steps that are not among the timed ones, on the data of the next steps, or of the last step
 * if there are no more. The table by kinds (--profile) stays that of the timed steps. */
static int steps_run(struct train *t, double *step_s, struct err *err)
{
    int64_t last = run_stage_first(t->run, t->leg.end_stage) - 1;
    double kinds_s[METER_KINDS];
    struct record_step s;
    bool stop;
    int rc = 0;
    memcpy(kinds_s, t->kinds_s, sizeof kinds_s);
    *step_s = 0;
    for (int i = 0; i < STEPS && rc == 0; i++) {
        rc = train_step_run(t, num_min_i64(t->next_step + i, last), &stop, &s, err);
        *step_s += s.step_s / STEPS;
    }
    memcpy(t->kinds_s, kinds_s, sizeof kinds_s);
    return rc;
}

/* Ends the recording on this rank, and writes its file. */
static int end(const struct train *t, const struct activity_library *library,
               struct activity_result *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct activity_facts facts = facts_of(t);
    snprintf(path, sizeof path, "%.4000s/activity-%d.json", t->conf->run_dir,
             t->conf->world->rank);
    return library->end(&facts, path, out, err);
}

/* Replaces times and rates by their means over the ranks; the numbers of recorded activities and of
 * dropped records are added up. */
static int ranks_mean(struct train *t, struct activity_result *r, struct err *err)
{
    struct timeline_sum *s = &r->sums;
    double *members[] = {&s->step_s, &s->idle_s, &s->comm_s, &s->exposed_s, &s->hidden_s,
                         &s->compute_s, &s->mfu, &s->hfu, &s->busy_hfu, &r->overhead_s};
    enum { MEMBERS = sizeof members / sizeof members[0] };
    double sums[MEMBERS + KERNEL_CLASSES + 2], size = t->conf->world->size;
    int rc;
    for (int i = 0; i < MEMBERS; i++)
        sums[i] = *members[i];
    memcpy(sums + MEMBERS, s->class_s, sizeof s->class_s);
    sums[MEMBERS + KERNEL_CLASSES] = (double)r->activities;
    sums[MEMBERS + KERNEL_CLASSES + 1] = (double)r->dropped;
    if ((rc = comm_sum(t->conf->world, sums, MEMBERS + KERNEL_CLASSES + 2, err)) < 0)
        return rc;
    for (int i = 0; i < MEMBERS; i++)
        *members[i] = sums[i] / size;
    for (int c = 0; c < KERNEL_CLASSES; c++)
        s->class_s[c] = sums[MEMBERS + c] / size;
    r->activities = (int64_t)sums[MEMBERS + KERNEL_CLASSES];
    r->dropped = (int64_t)sums[MEMBERS + KERNEL_CLASSES + 1];
    return 0;
}

/* Prints the time of a recorded step beside that of a timed one, to show the cost of recording. */
static void times_say(const struct train *t, const struct train_report *out)
{
    struct train_report timed = {.steps = out->steps};
    char line[200];
    train_means_report(t, &timed);
    snprintf(line, sizeof line,
             "%d steps were recorded: %.4g s each, where the timed ones took %.4g s (%+.1f %%)",
             STEPS, out->activity_step_s, timed.median_step_s,
             100 * (out->activity_step_s / timed.median_step_s - 1));
    train_say(t, line);
    if (out->activity.dropped > 0) {
        snprintf(line, sizeof line, "%lld records found no room: what they show is too little",
                 (long long)out->activity.dropped);
        train_say(t, line);
    }
}

static void refused_say(const struct train *t, struct train_report *out, const struct err *why)
{
    char line[ERR_TEXT_BYTES + 64];
    snprintf(line, sizeof line, "no step is recorded: %s", why->text);
    train_say(t, line);
    snprintf(out->activity_refused, sizeof out->activity_refused, "%s", why->text);
}

int train_activity_run(struct train *t, struct train_report *out, struct err *err)
{
    const struct activity_library *library = NULL;
    struct comm *world = t->conf->world;
    struct activity_result r, none;
    struct err why = {0}, not_said;
    bool begun = false;
    int rc;
    if (!t->leg.compute.dev->range_step || t->n_times == 0)
        return 0;
    if (comm_agree(world, begin(&library, &begun, &why), &why) < 0) {
        if (begun)
            library->end(&(struct activity_facts){.steps = 1}, NULL, &none, &not_said);
        refused_say(t, out, &why);
        return world->broken ? err_set(err, why.code, "%s", why.text) : 0;
    }
    /* If this fails, the process ends without ending the recording, which would wait for records
     * of a GPU that may be lost. */
    if ((rc = steps_run(t, &out->activity_step_s, err)) < 0)
        return rc;
    if (comm_agree(world, end(t, library, &r, &why), &why) < 0) {
        refused_say(t, out, &why);
        return world->broken ? err_set(err, why.code, "%s", why.text) : 0;
    }
    if ((rc = ranks_mean(t, &r, err)) < 0)
        return rc;
    out->activity = r;
    times_say(t, out);
    return 0;
}
