/* change: handles a run file that differs from the existing run of its name.
 *
 * A change that may be made waits for the next attempt, and holds from then on
 * (launcher/state/next.h). Any other is refused with its key and both values.
 *
 *     may change         checkpoint, budget, validation, resources; the plan, of the run or of a
 *                        stage; where the data lie and what the weights began with
 *     with --extend      more steps of the last stage, stages after it
 *     with --change lr   adamw.lr, schedule: for the steps after those that the run has done by
 *                        then
 *     never              everything else: model, data, batches, objective, optimizer, seed,
 *                        numerics, groups, adapters
 *
 * A run that is done takes a change only together with more steps, because it has no other attempt
 * to come. Only keys that file or options name can change: a key that is left out stays as it is,
 * and the user is told so.
 *
 * Events: "changed" (revision, changes), "extended" (revision, from_steps, total_steps), the
 * agent's "change_taken" (revision).
 */
#ifndef LAUNCHER_SUBMIT_CHANGE_H
#define LAUNCHER_SUBMIT_CHANGE_H

#include "base/str.h"
#include "launcher/submit/launch.h"

struct change_ask {
    const struct run *run;     /* as file and options give it; paths absolute, data bound */
    const struct plan *plan;
    bool plan_given;           /* by an option; else it is the plan that is made without one */
    const cJSON *file;         /* the run file */
    const char *const *options; /* keys that options set, "resources.priority", NULL-ended */
    bool extend, rate;         /* --extend, --change lr */
    bool dry;                  /* only compare, and write nothing */
};
/* Holds the result for the user. lines: what has changed, a line each; the caller releases them. n:
 * number of changes. attempt: the first attempt in which they hold. */
struct change_told { struct str lines; int64_t n, attempt; };

/* Compares file and run, and leaves the changes to the next attempt. ERR_INPUT: a change may not be
 * made, or not without an option, or the run is done. */
int change_apply(const struct launch *l, const struct change_ask *ask, struct change_told *told,
                 struct err *err);

/* Is the plan the one that is made if none is given: data parallelism, nothing measured? It follows
 * the number of ranks; any other plan stays with its run. */
bool change_plan_is_plain(const struct plan *p);

#endif
