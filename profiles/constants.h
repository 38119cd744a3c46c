/* constants: holds the numbers that are fitted and not derived: rates, shares, the part of the
 * messages' time that computation hides, bytes that no formula knows (`reel.constants/1`).
 *
 * A constant belongs to a device, to a stack, to both or to neither (enum constant_scope). So a
 * value learnt for a stack holds on other devices too, and one learnt for a device holds for other
 * stacks. Each has a prior, which holds until a file says otherwise. The priors of shares of a peak
 * come from the device's profile. One set is compiled in (profiles/constants/published.json), which
 * `reel calibrate` fitted to published measurements; a file given with --constants replaces it.
 *
 *     struct constants c;
 *     constants_load(NULL, &c, err);                     // the compiled-in set
 *     double v[CONSTANTS];
 *     constants_resolve(&c, &device, &stack, v);         // v[CONSTANT_GEMM_SHARE], ...
 *
 * A set carries its held-out error: how far off predictions were on rows that constants fitted in
 * the same way had not seen. No prediction depends on it. It counts only with the constants that it
 * was found for: constants_seal() notes their hash.
 */
#ifndef PROFILES_CONSTANTS_H
#define PROFILES_CONSTANTS_H

#include "base/hash.h"
#include "profiles/hw.h"
#include "profiles/stack.h"

enum constant_scope { SCOPE_ALL, SCOPE_DEVICE, SCOPE_STACK, SCOPE_BOTH };

/* Each entry gives id, name, unit, scope, prior (0: the device profile's), standard deviation of
 * the prior's logarithm, lo, hi, and meaning. */
#define CONSTANT_LIST(X)                                                                           \
    X(GEMM_SHARE, "gemm_share", "1", SCOPE_DEVICE, 0, 0.05, 0.05, 1,                               \
      "share of the peak that large matrix products reach in training")                            \
    X(GEMM_HALF, "gemm_half", "rows", SCOPE_DEVICE, 64, 0.40, 1, 4096,                             \
      "size of one side of a product at which half of that is reached")                            \
    X(RAGGED, "ragged", "1", SCOPE_ALL, 0.85, 0.20, 0.3, 1,                                        \
      "speed of a product of which a side is no multiple of 64, for each factor of 8 amiss")       \
    X(UNALIGNED_SHARE, "unaligned_share", "1", SCOPE_ALL, 0.039, 0.15, 0.01, 1,                    \
      "share of the bf16 peak at which an early cuBLAS multiplies heads that 8 does not divide")   \
    X(FP8_SHARE, "fp8_share", "1", SCOPE_DEVICE, 0.60, 0.20, 0.05, 1,                              \
      "share of the fp8 peak that products in fp8 reach")                                          \
    X(ATTENTION_FORWARD, "attention_forward", "1", SCOPE_DEVICE, 0, 0.15, 0.02, 1,                 \
      "share of the peak that fused attention reaches; over the profile's, it multiplies curves")  \
    X(ATTENTION_BACKWARD, "attention_backward", "1", SCOPE_DEVICE, 0, 0.15, 0.02, 1,               \
      "the same backward, counted as 2.5 times the forward")                                       \
    X(ATTENTION_HALF, "attention_half", "tokens", SCOPE_DEVICE, 400, 0.50, 1, 65536,               \
      "queries at which attention reaches half of that, where no curve says it")                   \
    X(ATTENTION_PACE, "attention_pace", "1", SCOPE_BOTH, 1, 0.25, 0.1, 10,                         \
      "seconds of fused attention of a stack on a device, what the shares say being 1")            \
    X(FLASH1_SHARE, "flash1_share", "1", SCOPE_ALL, 0.60, 0.25, 0.1, 1.5,                          \
      "speed of the first FlashAttention, the second's being 1")                                   \
    X(FLASH2_SHARE, "flash2_share", "1", SCOPE_DEVICE, 0.55, 0.20, 0.1, 1,                         \
      "speed of FlashAttention-2 on a device with fp8, that of its fastest kernel being 1")        \
    X(SCORES_SHARE, "scores_share", "1", SCOPE_ALL, 0.70, 0.30, 0.05, 1.5,                         \
      "share of the memory's bandwidth at which the matrix of scores is read and written")         \
    X(COPY_SHARE, "copy_share", "1", SCOPE_DEVICE, 0.75, 0.20, 0.05, 1,                            \
      "share of the memory's bandwidth that elementwise work reaches")                             \
    X(ELEMENTWISE, "elementwise", "1", SCOPE_STACK, 1, 0.40, 0.1, 10,                              \
      "elementwise bytes of a stack, those of the account being 1")                                \
    X(NORM_PASSES, "norm_passes", "1", SCOPE_STACK, 1, 0.50, 0.05, 10,                             \
      "bytes of norms in several operations, those of the account being 1")                        \
    X(COMPUTE, "compute", "1", SCOPE_BOTH, 1, 0.15, 0.3, 3,                                        \
      "seconds of compute of a stack on a device, what the shares say being 1")                    \
    X(AGAIN, "again", "1", SCOPE_STACK, 1, 0.10, 0.3, 3,                                           \
      "seconds of a recomputed forward, those of the first one being 1")                           \
    X(LINK_SHARE, "link_share", "1", SCOPE_DEVICE, 0.60, 0.30, 0.02, 1,                            \
      "share of the device links' bandwidth that collectives reach in training")                   \
    X(SUM_S, "sum_s", "s", SCOPE_BOTH, 40e-6, 0.80, 1e-6, 5e-3,                                    \
      "exposed seconds of one collective of a layer, besides its bytes")                           \
    X(SUM_HIDDEN, "sum_hidden", "1", SCOPE_STACK, 0.40, 0.40, 0.01, 1,                             \
      "share of those collectives that is hidden, where the stack does that")                      \
    X(NIC_SHARE, "nic_share", "1", SCOPE_BOTH, 0.60, 0.50, 0.01, 1,                                \
      "share of the network's bandwidth that collectives reach in training")                       \
    X(SEND_S, "send_s", "s", SCOPE_STACK, 60e-6, 0.80, 1e-6, 0.1,                                  \
      "exposed seconds of one message between stages, besides its bytes")                          \
    X(REDUCE_HIDDEN, "reduce_hidden", "1", SCOPE_STACK, 0.70, 0.30, 0.01, 1,                       \
      "share of a backward under which gradients are reduced, where the stack does that")          \
    X(GATHER_HIDDEN, "gather_hidden", "1", SCOPE_STACK, 0.70, 0.30, 0.01, 1,                       \
      "share of compute under which weights are gathered, where the stack does that")              \
    X(LAUNCH_S, "launch_s", "s", SCOPE_STACK, 8e-6, 0.50, 1e-7, 1e-3,                              \
      "seconds in which the host starts one operation")                                            \
    X(KERNEL_S, "kernel_s", "s", SCOPE_DEVICE, 6e-6, 0.30, 1e-8, 1e-3,                             \
      "seconds in which an operation fills the device and drains it, besides its work")            \
    X(STEP_S, "step_s", "s", SCOPE_STACK, 0.03, 1.00, 1e-5, 5,                                     \
      "seconds of a step in which nothing computes: data, logging, agreement")                     \
    X(SPREAD, "spread", "1", SCOPE_STACK, 0.004, 0.80, 1e-5, 0.1,                                  \
      "share by which ranks wait for the slowest one, for each doubling of nodes")                 \
    X(TIME_SD, "time_sd", "1", SCOPE_STACK, 0.12, 0.30, 0.005, 1,                                  \
      "standard deviation of ln(measured / predicted) step time")                                  \
    X(KEPT_STREAM, "kept_stream", "1", SCOPE_STACK, 1, 0.15, 0.2, 4,                               \
      "inputs of sub-blocks that are kept, those of the account being 1")                          \
    X(KEPT_INNER, "kept_inner", "1", SCOPE_STACK, 1, 0.15, 0.2, 4,                                 \
      "what sub-blocks keep inside, which tp divides, that of the account being 1")                \
    X(LOGITS, "logits", "1", SCOPE_STACK, 1, 0.30, 0.1, 4,                                         \
      "bytes of the logits at their peak, those of the account being 1")                           \
    X(FRAGMENTATION, "fragmentation", "1", SCOPE_STACK, 0.04, 0.60, 1e-4, 0.5,                     \
      "share of what comes and goes in a step that the allocator loses")                           \
    X(PROCESS_BYTES, "process_bytes", "B", SCOPE_STACK, 1.5e9, 0.40, 1e7, 2e10,                    \
      "bytes of context, libraries and communicators")                                             \
    X(MEMORY_SD, "memory_sd", "1", SCOPE_STACK, 0.06, 0.30, 0.005, 0.5,                            \
      "standard deviation of ln(measured / predicted) bytes")
enum constant_id {
#define CONSTANT_ENUM(id, name, unit, scope, prior, sd, lo, hi, what) CONSTANT_##id,
    CONSTANT_LIST(CONSTANT_ENUM)
#undef CONSTANT_ENUM
    CONSTANTS
};
/* Describes a constant. A value must lie between lo and hi. */
struct constant_info {
    const char *name, *unit;
    enum constant_scope scope;
    double prior, sd, lo, hi;
    const char *what;
};
extern const struct constant_info constant_table[CONSTANTS];
/* Tells whether a constant is about memory; the others are about time. */
static inline bool constant_is_memory(enum constant_id id) { return id >= CONSTANT_KEPT_STREAM; }

struct constant {
    enum constant_id id;
    char device[LIMIT_NAME_BYTES], stack[LIMIT_NAME_BYTES]; /* "": any */
    char source[LIMIT_NAME_BYTES];
    double prior, value;
    double lo, hi; /* interval of probability 0.9, by the fit */
};
enum { HELD_OUT_DEVICES_BYTES = 512 };
/* Holds the held-out error of a set. Figures are those of autotune/score.h over all rows together;
 * NAN: no row contributes to one. */
struct held_out {
    char rule[LIMIT_NAME_BYTES];    /* what was held out of which fit; "": the error is not known */
    char of[LIMIT_NAME_BYTES];      /* the tables whose rows were judged */
    char because[LIMIT_NAME_BYTES]; /* why the error is not known; "": the file does not say */
    char devices[HELD_OUT_DEVICES_BYTES]; /* of these rows, "a100-sxm, h100-sxm"; "": not said */
    char hash[HASH_TEXT_BYTES];     /* of the constants that it is of, by constants_seal() */
    int64_t rows, sweeps, oom_rows;
    double mape_pct, spearman_mean, spearman_worst, oom_caught_pct, good_rejected_pct;
};
enum { CONSTANTS_MAX = 512 };
struct constants {
    char name[LIMIT_NAME_BYTES];
    struct held_out held_out;
    int64_t n;
    struct constant items[CONSTANTS_MAX];
};

/* Loads a file, or for NULL the compiled-in set. ERR_INPUT names an unknown constant with the
 * nearest one; ERR_NOT_FOUND says that there is no such set. */
int constants_load(const char *name_or_path, struct constants *out, struct err *err);
/* Appends the text of a file with these constants, one constant a line. */
void constants_format(const struct constants *c, struct str *out);
/* Appends the same without the held-out error, on which no prediction depends. */
void constants_format_values(const struct constants *c, struct str *out);
/* Tells whether a list of devices, separated by commas and any blanks, has this name. */
bool held_out_has(const char *list, const char *name);
/* Ties the held-out error to the present constants. A set whose file has others by then is loaded
 * without the error. */
void constants_seal(struct constants *c);
/* Writes the held-out error into a result: "held_out" is an object, or null beside the text
 * "held_out_because". With a device, "held_out_elsewhere" says that none of the rows is of it, or
 * is null. */
void held_out_write(const struct held_out *h, const struct device *d, struct json_out *o);
/* Appends it as a clause for people, without the line's end. d: the device predicted for; NULL: no
 * single one. */
void held_out_say(const struct held_out *h, const struct device *d, struct str *out);
/* Finds the values for a stack on a device: of each constant the most specific value in the set,
 * else its prior. */
void constants_resolve(const struct constants *c, const struct device *d, const struct stack *s,
                       double v[CONSTANTS]);
/* Returns the constant of the set that constants_resolve() takes, borrowed; NULL: the prior
 * holds. */
const struct constant *constants_best(const struct constants *c, enum constant_id id,
                                      const struct device *d, const struct stack *s);
/* Returns the set's constant for this device and stack, as far as its scope names them. A missing
 * one is added at its prior, and a missing prior is set; NULL when the set is full. */
struct constant *constants_at(struct constants *c, enum constant_id id, const struct device *d,
                              const struct stack *s);

#endif
