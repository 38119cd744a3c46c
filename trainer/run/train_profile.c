/* train_profile: adds to a run what --profile and --trace ask for: time by kind in every step's
 * event, a table at the end, the trace. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "trainer/run/train_priv.h"

static bool measured(const struct train *t) { return t->conf->profile || t->conf->trace; }

/* Advances messages while the CPU computes. */
static void tick(void *ctx)
{
    struct train *t = ctx;
    meter_progress(t->leg.compute.dev->meter, t->conf->world);
}

int64_t train_profile_bytes(const struct train *t)
{
    int64_t timed = measured(t) && !t->leg.compute.dev->host_memory ? meter_timed_bytes() : 0;
    return timed + (t->conf->trace ? meter_bytes(METER_SPANS) : 0);
}

/* Tries, on rank 0 and before the first step, whether the trace file can be made, which is written
 * after the last step. */
static int trace_try(const char *path, struct err *err)
{
    struct file_pub file;
    int rc;
    if ((rc = file_pub_open(&file, path, err)) < 0)
        return rc;
    file_pub_abort(&file);
    return 0;
}

/* Allocates what this rank needs for measuring. */
static int profile_take(struct train *t, struct err *err)
{
    int rc;
    if (!(t->named = calloc(TRAIN_TIMES_MAX, sizeof *t->named)))
        return err_set(err, ERR_NOMEM, "out of memory");
    if ((rc = meter_open(&t->meter, t->conf->trace ? METER_SPANS : 0, err)) < 0)
        return rc;
    return t->conf->trace && t->conf->world->rank == 0 ? trace_try(t->conf->trace, err) : 0;
}

int train_profile_open(struct train *t, struct err *err)
{
    int rc;
    if (!measured(t))
        return 0;
    if ((rc = comm_agree(t->conf->world, profile_take(t, err), err)) < 0)
        return rc;
    return t->conf->trace ? trace_align(t->conf->world, &t->trace_clock, err) : 0;
}

int train_profile_attach(struct train *t, struct err *err)
{
    t->leg.compute.ops->tick = tick;
    t->leg.compute.ops->tick_ctx = t;
    if (!measured(t))
        return 0;
    return meter_attach(&t->meter, t->leg.compute.ops, t->leg.compute.stream, t->conf->world, err);
}

void train_profile_close(struct train *t)
{
    meter_close(&t->meter);
    free(t->named);
}

void train_profile_step_begin(struct train *t)
{
    double before[METER_KINDS];
    if (!measured(t))
        return;
    meter_step(&t->meter, 1, before); /* discards what was measured between the steps */
    meter_cpu_step(&t->meter, before);
}

void train_profile_step_end(struct train *t, struct record_step *s)
{
    if (!measured(t))
        return;
    double share = meter_step(&t->meter, s->step_s, t->step_kinds_s), cpu_s[METER_KINDS];
    meter_cpu_step(&t->meter, cpu_s);
    s->kinds_s = t->step_kinds_s;
    for (int k = 0; k < METER_KINDS; k++) {
        /* The first step counts only when it is the only one. */
        t->kinds_s[k] = t->step_kinds_s[k] + (t->n_times > 1 ? t->kinds_s[k] : 0);
        t->kinds_cpu_s[k] = cpu_s[k] + (t->n_times > 1 ? t->kinds_cpu_s[k] : 0);
    }
    if (t->n_times < TRAIN_TIMES_MAX)
        t->named[t->n_times] = share;
}

/* Orders kinds by time, the longest first; those without time are left out. */
static int order(const struct train *t, int kinds[METER_KINDS])
{
    int n = 0;
    for (int k = 0; k < METER_KINDS; k++) {
        if (t->kinds_s[k] <= 0)
            continue;
        int at = n++;
        for (; at > 0 && t->kinds_s[kinds[at - 1]] < t->kinds_s[k]; at--)
            kinds[at] = kinds[at - 1];
        kinds[at] = k;
    }
    return n;
}

/* Prints the time of a kind. CPU time of 0 was not measured. */
static void line_say(const struct train *t, const char *name, double seconds, double step_s,
                     double steps, double cpu_s)
{
    char line[128];
    int n = snprintf(line, sizeof line, "  %-20s %10.3f ms %5.1f %%", name, 1e3 * seconds / steps,
                     100 * seconds / steps / step_s);
    if (cpu_s > 0)
        snprintf(line + n, sizeof line - (size_t)n, " %10.3f ms CPU", 1e3 * cpu_s / steps);
    train_say(t, line);
}

static void table_say(const struct train *t, const struct train_report *r)
{
    int kinds[METER_KINDS], n = order(t, kinds);
    double steps = (double)(r->steps > 1 ? r->steps - 1 : 1), rest, step_s;
    const struct train_phases *p = &r->phases;
    if (!measured(t) || r->steps == 0)
        return;
    rest = step_s = p->data_s + p->forward_s + p->backward_s + p->optim_s + p->other_s +
                    (isnan(p->comm_s) ? 0 : p->comm_s);
    train_say(t, "time of a step on rank 0, mean:");
    for (int i = 0; i < n; i++) {
        line_say(t, meter_kind_names[kinds[i]], t->kinds_s[kinds[i]], step_s, steps,
                 t->kinds_cpu_s[kinds[i]]);
        rest -= t->kinds_s[kinds[i]] / steps;
    }
    line_say(t, "other", rest * steps, step_s, steps, 0);
    line_say(t, "step", step_s * steps, step_s, steps, 0);
}

int train_profile_end(struct train *t, const struct train_report *r, struct err *err)
{
    table_say(t, r);
    return t->conf->trace
               ? trace_write(t->conf->trace, &t->meter, &t->trace_clock, t->conf->world, err)
               : 0;
}
