/* train_classes: measures how CPUs spend a step of a trial. After the timed steps some more are run
 * with a meter, so that the timed ones are not disturbed. The result is the median CPU time of each
 * class on the rank where that is longest, as the probe's is (cmd/probe.c). The cost model of `reel
 * tune` learns from it class by class. */
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "trainer/run/train_priv.h"
#include "trainer/watch/meter_class.h"

enum { STEPS = 5 };
static const double ENOUGH_S = 0.5; /* no step is begun after this */

/* Measures a step that is not among the timed ones, on the data of the next step, or of the last
 * step if there is none. */
static int step_measure(struct train *t, double class_s[METER_CLASSES + 1], struct err *err)
{
    int64_t last = run_stage_first(t->run, t->leg.end_stage) - 1;
    double cpu_s[METER_KINDS];
    struct record_step s;
    bool stop;
    meter_cpu_step(&t->meter, cpu_s);
    int rc = train_step_run(t, num_min_i64(t->next_step, last), &stop, &s, err);
    if (rc < 0)
        return rc;
    meter_cpu_step(&t->meter, cpu_s);
    for (int k = 0; k < METER_KINDS; k++)
        class_s[meter_class_of(k)] += cpu_s[k];
    return 0;
}

/* Measures one step, and more while they are short, and keeps the median of each class: one short
 * step says little where other programs run. */
static int steps_measure(struct train *t, double class_s[METER_CLASSES + 1], struct err *err)
{
    double all[METER_CLASSES][STEPS], started_s = clock_mono_s(), passed_s = 0;
    int n = 0, rc;
    for (; n < STEPS && passed_s < ENOUGH_S; n++) {
        double one[METER_CLASSES + 1] = {0};
        if ((rc = step_measure(t, one, err)) < 0)
            return rc;
        for (int c = 0; c < METER_CLASSES; c++)
            all[c][n] = one[c];
        passed_s = clock_mono_s() - started_s;
        if ((rc = comm_max(t->conf->world, &passed_s, 1, err)) < 0)
            return rc;
    }
    for (int c = 0; c < METER_CLASSES; c++)
        class_s[c] = num_median(all[c], n);
    return 0;
}

static int meter_take(struct train *t, struct err *err)
{
    int rc = meter_open(&t->meter, 0, err);
    if (rc < 0)
        return rc;
    return meter_attach(&t->meter, t->leg.compute.ops, t->leg.compute.stream, t->conf->world, err);
}

int train_classes_run(struct train *t, struct train_report *out, struct err *err)
{
    double class_s[METER_CLASSES + 1] = {0};
    int rc;
    if (!t->leg.compute.dev->host_memory || t->n_times == 0 || t->conf->profile || t->conf->trace)
        return 0;
    if ((rc = comm_agree(t->conf->world, meter_take(t, err), err)) < 0)
        return rc;
    if ((rc = steps_measure(t, class_s, err)) < 0)
        return rc;
    meter_detach(&t->meter);
    if ((rc = comm_max(t->conf->world, class_s, METER_CLASSES, err)) < 0)
        return rc;
    memcpy(out->class_cpu_s, class_s, sizeof out->class_cpu_s);
    return 0;
}
