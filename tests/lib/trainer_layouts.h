/* trainer_layouts: makes a few steps of training on the ranks of a group under a layout, and
 * compares what comes out with one rank's, for the tests of layouts. The batch is of mixed shapes
 * and captions, in f64; all weights are random and not zero.
 *
 *     layouts_open(&argc, &argv);
 *     wanted_share(models_used) // one rank's outcomes, made by the ranks in turn and given to all
 *     wanted(model, clip)       // one of them; a process makes what was not shared, once
 *     layout_differs(group, model, &layout, clip, text) // three steps of the same under a layout
 *     return layouts_close(cmocka_run_group_tests(...));
 */
#ifndef TESTS_TRAINER_LAYOUTS_H
#define TESTS_TRAINER_LAYOUTS_H

#include "tests/lib/layout_set.h"
#include "tests/lib/trainer_run.h"

/* Opens the world: the ranks that mpirun started, or one alone. Operations are checked, and only
 * rank 0 prints. */
void layouts_open(int *argc, char ***argv);

/* Closes the world and returns the exit status. A rank that failed ends the others, which may wait
 * for it. */
int layouts_close(int failed);

enum { STEPS_MAX = 4 };
/* Says what a run is. A program may change it before its first run, on all ranks alike. */
struct layouts_conf {
    int64_t steps; /* of a run; 3 unless a program sets another number */
    bool scanned;  /* by operation, in the first step; true unless a program clears it */
    bool raw;      /* the first step's gradients are compared as well, before sums; likewise */
    /* Each layout is tried with the smallest model on which it is legal; false unless set. */
    bool least;
};
extern struct layouts_conf layouts_conf;

/* ---- models: heads and widths that eight tp ranks divide ---- */

/* The layouts of those before COVERED are all covered; the others meet some. */
enum {
    FULL, STDIT, MOVIEGEN, COVERED, SEPARATE = COVERED, FUSED, SINGLE, BARE, GROUPS, FROZEN, LORA,
    LORA_FULL, MODELS
};
struct model_case {
    const char *name;
    enum model_family family;
    enum model_adaln adaln;
    int64_t kv_heads;
    bool gated, text;
    int64_t cond_channels, layers;
    enum objective objective;
    enum loss_norm norm;
    bool tables;
    const char *finetune; /* groups of parameters, adapters */
};
extern const struct model_case models[MODELS];

/* Returns the model of a case, of at most as many layers and heads as the runs have at present. */
struct model model_of(const struct model_case *c);

/* Makes a run of layouts_conf.steps constant steps of AdamW, with clipping to a norm or without. */
void run_init_for(struct run *run, const struct model_case *c, bool clip);

/* ---- a step ---- */

/* Computes the gradients of all micro-batches of this replica, and of empty ones at the end where
 * others have more. Returns the loss of the batch. */
double gradients(struct rig *r, struct comm *part);

/* Makes step s: its gradients and the update. Unless gradient is NULL, the whole gradient of step 0
 * is put there: new, [list.total], tensor after tensor, summed by rules of this file's own. */
struct optim_result step_run(struct rig *r, struct comm *part, int64_t s, double *loss,
                             double **gradient);

/* ---- what a run gives, and its comparison ---- */

enum { GRADS, WEIGHTS, MOMENT1, MOMENT2, AVERAGE, STATES };
extern const char *const state_names[STATES];

/* This is what one rank that has everything gives. */
struct outcome {
    double *state[STATES]; /* [total], tensor after tensor */
    double loss[STEPS_MAX];
    struct optim_result step[STEPS_MAX];
};

/* `text` has room for 256 bytes and gets the first difference; without one it stays empty. A run
 * that is compared `soon` ends behind the first step that differs. */
struct compare { const struct outcome *want; char *text; bool soon; };

/* Returns the largest absolute difference of n numbers; infinity if one is NaN. b NULL: the largest
 * absolute value of a. */
double largest(const double *a, const double *b, int64_t n);

/* Splits the ranks that a layout needs, the first ones, from the rest of the world. Says whether
 * this rank is to run the layout; none is where the world has too few. The caller closes the part. */
bool layout_part(const struct layout *l, struct comm **part);

/* Says whether a rank of the part has a difference in its text; all of them ask. */
bool part_differs(struct comm *part, const char *text);

/* Compares loss and norms of step s, each to 1e-11 of what is wanted. */
void compare_step(struct compare *c, int64_t s, double loss, const struct optim_result *done);

/* Compares all that this rank holds of weights, moments and average, every tensor to 1e-11 of its
 * largest element. With `save` it puts the numbers there instead; then the rank has everything. */
void compare_states(struct compare *c, struct rig *r, struct outcome *save);

/* Makes the steps on `part`, and compares them with what is wanted or writes them to `save`. */
void run_layout(struct comm *part, const struct model_case *c, const struct layout *l, bool clip,
                struct compare *cmp, struct outcome *save);

/* Writes what one rank gives. The caller frees its states. */
void alone(int model, bool clip, struct outcome *out);

/* Returns what one rank gives on the CPU, whatever device is tried; each process makes it once, and
 * checks that every tensor that is trained has moved, and no other. */
const struct outcome *wanted(int model, bool clip);

/* Gives a model's outcome, which is made on the root, to all ranks of a group. */
void outcome_send(struct comm *part, struct outcome *o, int model, int root);

/* Makes the outcomes of the models that are used, with and without clipping: each rank of the world
 * some, which all get. */
void wanted_share(const bool used[LEN(models)]);

/* Returns a covering set of a model's legal layouts, and how many are legal. Rank 0 of the world
 * finds it for all. The caller frees v. */
struct candidates covering_given(const struct model *m, int ways, int64_t *n_legal);

/* Returns the layout as text, which is static. */
const char *layout_text(const struct layout *l);

/* Says whether a run under the layout differs from one rank's, and puts the first difference that
 * this rank finds into `text`. All ranks of the part get the same answer, as soon as a step
 * differs. */
bool layout_differs(struct comm *part, int model, const struct layout *l, bool clip,
                    char text[256]);

#endif
