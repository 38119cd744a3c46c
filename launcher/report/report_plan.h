/* report_plan: reads planned layouts for a report, from a file that `reel plan -o` (`reel.plan/1`)
 * or `reel plan --json` (`reel.plans/1`) wrote.
 *
 *     report_plans_load("plans.json", &plans, err);
 *     scope.plans = plans;                              // the page then shows them
 *     report_plans_free(plans);
 *
 * The errors are ERR_INPUT, which names the file and what is wrong in it, ERR_NOT_FOUND and
 * ERR_NOMEM.
 */
#ifndef LAUNCHER_REPORT_REPORT_PLAN_H
#define LAUNCHER_REPORT_REPORT_PLAN_H

#include "profiles/layout.h"
#include "profiles/plan.h"

struct report_planned {
    struct layout layout;
    /* NaN: not in the file. Nine of ten steps take between lo_s and hi_s. */
    double step_s, lo_s, hi_s, tokens_per_s_gpu, mfu, p_fits;
    double measured_s; /* of the trial on which the plan is based */
    int64_t bytes;     /* of the GPU with the most; 0: unknown */
    int64_t n_terms;
    struct plan_term terms[PLAN_TERMS];
};
struct report_plans {
    char model[LIMIT_NAME_BYTES];
    char cluster[PLAN_INPUT_BYTES], constants[PLAN_INPUT_BYTES];
    int64_t gpus, limit_bytes; /* limit_bytes of a GPU; 0: unknown */
    struct report_planned *items;
    size_t n;
};
/* Loads the file; *out is new. */
int report_plans_load(const char *path, struct report_plans **out, struct err *err);
void report_plans_free(struct report_plans *p); /* NULL is fine */

#endif
