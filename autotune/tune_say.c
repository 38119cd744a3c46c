/* This file reports the trials of a tuning as lines of progress. */
#include <math.h>
#include <stdio.h>

#include "autotune/tune_priv.h"
#include "base/num.h"

/* Reports how much of a recorded step was not computation. */
static void say_activity(const struct tune *t, const struct trial_result *r)
{
    char line[160];
    if (!(r->recorded_step_s > 0))
        return;
    snprintf(line, sizeof line,
             "  on the GPUs, of a step: idle %.1f %%, communication %.1f %% exposed and %.1f %% "
             "hidden", 100 * r->idle_s / r->recorded_step_s,
             100 * r->exposed_s / r->recorded_step_s, 100 * r->hidden_s / r->recorded_step_s);
    t->conf.say(t->conf.say_ctx, line);
}

void tune_say_trial(const struct tune *t, const struct plan *p, const struct trial_result *r)
{
    struct str line = STR_INIT;
    char predicted[32], measured[32];
    if (!t->conf.say)
        return;
    num_format_seconds_fine(p->predicted_step_s, predicted, sizeof predicted);
    num_format_seconds_fine(r->step_s, measured, sizeof measured);
    str_addf(&line, "trial %lld: ", (long long)(t->search.trials + t->search.repeated));
    layout_brief(&p->layout, &line);
    str_addf(&line, "  predicted %s", predicted);
    if (r->state == TRIAL_OK) {
        str_addf(&line, ", measured %s (%+.0f %%)", measured,
                 100 * (r->step_s / p->predicted_step_s - 1));
        if (isfinite(r->mfu))
            str_addf(&line, ", MFU %.1f %%", 100 * r->mfu);
        str_addf(&line, "%s%s", r->cause[0] ? ", " : "", r->cause);
    } else {
        str_addf(&line, ", %s: %s", trial_state_names[r->state], r->cause);
    }
    if (!line.failed)
        t->conf.say(t->conf.say_ctx, line.p);
    str_release(&line);
    say_activity(t, r);
}
