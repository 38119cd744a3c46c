/* plan: reads and writes a chosen layout with its prediction and evidence (`reel.plan/1`). The
 * tuner writes plans, launcher and trainer read them.
 *
 * Invariant, checked on save and load: the terms, when there are any, add up to predicted_step_s
 * (1e-6 relative). The format is the tables of plan.c.
 */
#ifndef PROFILES_PLAN_H
#define PROFILES_PLAN_H

#include "base/hash.h"
#include "profiles/hw.h"
#include "profiles/layout.h"

enum { PLAN_TERMS = 16, PLAN_MEMORY = 16, PLAN_EVIDENCE = 32, PLAN_FLAGS_BYTES = 2048,
       PLAN_ENVIRONMENT_BYTES = 1024, PLAN_INPUT_BYTES = 512 };
#define PLAN_STEP_S 1e9 /* the longest step that a plan may tell */
/* Holds a term of the predicted step. Where a machine was probed, it also has the work of a rank,
 * in the unit that `reel explain plan` names, and the measured rate that tells its time; else 0 and
 * "". */
struct plan_term { char name[32]; double seconds, work; char rate[32]; double value; };
struct plan_memory { char name[32]; int64_t bytes; };
struct plan {
    struct layout layout;
    char model[LIMIT_NAME_BYTES];
    char model_file[LIMIT_PATH_BYTES]; /* of a model that is not compiled in; else "" */
    struct seq seq;             /* tokens */
    int64_t gbs;
    enum dtype dtype;
    char device[LIMIT_NAME_BYTES];
    double peak_flops;          /* dense, one rank's device (CPU: of the cores of one rank) */
    char peak_source[LIMIT_NAME_BYTES];
    double predicted_step_s, predicted_at; /* UTC s; 0 when the plan is written by hand */
    int64_t predicted_bytes;    /* peak per rank */
    int64_t limit_bytes;        /* that a GPU could hold when it was predicted; 0: not recorded */
    int64_t encoder_bytes;      /* of them, those of frozen encoders; 0: none was named */
    bool ema;                   /* predicted for a run that keeps an average of the weights */
    bool residual_wide;         /* predicted for a run whose residual stream is f32 */
    bool moments_bf16;          /* predicted for a run whose moments are bf16 */
    double measured_step_s;     /* of the winning trial; 0 if never measured */
    /* The trial had this many replicas, and the contribution of the others is predicted; 0: it ran
     * the layout itself. */
    int64_t scaled_dp;
    int64_t n_terms;
    struct plan_term terms[PLAN_TERMS]; /* add up to predicted_step_s */
    /* where a machine was probed: the stage to which the terms belong, and what predicted_bytes are
     * made of */
    int64_t stage, n_memory;
    struct plan_memory memory[PLAN_MEMORY];
    int64_t n_evidence;
    char evidence[PLAN_EVIDENCE][40];   /* trial ids */
    struct hash128 model_hash;          /* model_hash(); zero when the plan is written by hand */
    /* the inputs of a prediction: "dgx-h100:8", a stack, a set of constants, or absolute paths of
     * their files; "" where a machine was probed */
    char cluster[PLAN_INPUT_BYTES], stack[PLAN_INPUT_BYTES], constants[PLAN_INPUT_BYTES];
    /* For another trainer: its adapter; the layout as its flags; and the environment that these
     * need, as arguments of env(1). Flags and environment are quoted for a shell where needed. All
     * three are "" for our own trainer. */
    char adapter[LIMIT_NAME_BYTES], flags[PLAN_FLAGS_BYTES], environment[PLAN_ENVIRONMENT_BYTES];
};
int plan_load(const char *path, struct plan *out, struct err *err);
int plan_parse(const char *text, size_t len, const char *name, struct plan *out, struct err *err);
int plan_save(const struct plan *p, const char *path, struct err *err); /* atomic */
void plan_write(const struct plan *p, struct json_out *o);

#endif
