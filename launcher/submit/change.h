/* change: handles a run file that differs from the existing run of its name.
 *
 * An allowed change takes effect with the next attempt (launcher/state/next.h). Any other change is
 * refused with its key and both values.
 *
 *     may change         checkpoint, budget, validation, resources, data.verify; the plan, of the
 *                        run or of a stage; the paths of the data and of the initial weights
 *     with --extend      more steps of the last stage, further stages
 *     with --change lr   adamw.lr, schedule: for the steps that are not done then
 *     never              everything else: model, data, batches, objective, optimizer, seed,
 *                        numerics, groups, adapters
 *
 * A run that is done can be changed only together with more steps, because otherwise no attempt
 * follows. Only keys that file or options name can change: a key that is left out keeps its value,
 * and the user gets a message.
 *
 * A change writes the event "changed" (revision, changes), and more steps write "extended"
 * (revision, from_steps, total_steps). The agent writes "change_taken" (revision) when it applies
 * them.
 */
#ifndef LAUNCHER_SUBMIT_CHANGE_H
#define LAUNCHER_SUBMIT_CHANGE_H

#include "base/str.h"
#include "launcher/submit/launch.h"

struct change_ask {
    const struct run *run;     /* from file and options; paths are absolute, and data fingerprints
                                * filled in */
    const struct plan *plan;
    bool plan_given;           /* true: an option gave the plan; false: it is the default plan */
    const cJSON *file;         /* the run file */
    const char *const *options; /* keys that options set, "resources.priority"; NULL-terminated */
    bool extend, rate;         /* --extend, --change lr */
    bool dry;                  /* only compare; write nothing */
};
/* Holds the result for the user. lines: one line for each change; the caller releases them. n:
 * number of changes. attempt: number of the first attempt that has them. */
struct change_told { struct str lines; int64_t n, attempt; };

/* Compares the file with the run, and saves the changes for the next attempt. ERR_INPUT: a change
 * is not allowed, or needs an option, or the run is done. */
int change_apply(const struct launch *l, const struct change_ask *ask, struct change_told *told,
                 struct err *err);

/* Tells whether this is the default plan: data parallelism, with nothing measured. It follows the
 * number of ranks; any other plan stays with its run. */
bool change_plan_is_plain(const struct plan *p);

#endif
