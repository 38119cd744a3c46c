/* tune_world: simulates clusters on which searches for the best layout are tried.
 *
 * A world is a model on a cluster whose constants nobody knows: each is drawn by the seed around
 * the value that the tuner believes, as wide as the table of constants says. What a layout takes,
 * and what memory it needs, follows from the drawn constants by the account of its work. A trial is
 * a step of a job on a simulated Slurm-like cluster (launcher/sched/sim.h): it has noise, runs out
 * of memory where the truth says so, hangs, loses its node, or its job is preempted, each by a draw.
 * The functions end the test where something of their own fails.
 *
 *     world_make(&w, seed);
 *     while ((i = the search's next layout) >= 0) outcome = world_trial(&w, i);
 *     world_release(&w);
 */
#ifndef TESTS_TUNE_WORLD_H
#define TESTS_TUNE_WORLD_H

#include "autotune/price.h"
#include "autotune/trial.h"
#include "launcher/sched/sched.h"
#include "profiles/space.h"

enum { WORLD_CASES = 7, WORLD_STEPS = 5 };

/* Says what is trained on what. The world of a seed has case seed % WORLD_CASES. */
struct world_case {
    const char *model, *cluster, *stack;
    struct seq seq;
    int64_t gpus, gbs;
};

/* Holds the facts that are the same for all seeds of a case. */
struct world_known {
    bool made;
    struct model model;
    struct cluster cluster;
    struct stack stack;
    struct space space;
    double v[CONSTANTS];         /* what the tuner believes */
    struct price_bill *bills;    /* of each layout, by that */
    double *bytes;
    struct work_weights weights;
};

struct world {
    uint64_t seed;
    const struct world_case *of;
    struct world_known *known;
    const struct layout *layouts;
    size_t n;
    double v[CONSTANTS];         /* the truth */
    double *seconds, *bytes;     /* of each layout; INFINITY where it runs out of memory */
    double best_s;
    /* the cluster on which trials run */
    struct sched *sched;
    char job[SCHED_ID_BYTES];
    int64_t at, tries;           /* the present layout; trials, with those that came to nothing */
    int node;                    /* one of the trial's */
    int hangs, nodes_lost, preempted, ooms, jobs;
};
struct world_outcome {
    enum trial_state state;
    double measured_s, peak_bytes;
};

/* Prices and sizes each layout with these constants. Writes bills and seconds unless they are NULL:
 * the arrays have an element for each of the known space's layouts. */
void world_price(const struct world_known *k, const struct world_case *of,
                 const double v[CONSTANTS], struct price_bill *bills, double *seconds,
                 double *bytes);

/* Tries layout i until the trial tells something of it. What it says is the truth: out of memory
 * only where the layout does not fit. */
struct world_outcome world_trial(struct world *w, int64_t i);

/* Makes a world, and a job on its cluster that has room for the case's GPUs. The seed decides all
 * that is drawn. The caller releases it; what is known of a case stays for its other seeds. */
void world_make(struct world *w, uint64_t seed);
void world_release(struct world *w);

#endif
