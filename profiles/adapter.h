/* adapter: describes another trainer to the tuner (`reel.adapter/1`): how a layout becomes its
 * command line and environment, which layouts it cannot run, and how its log reports steps, memory
 * and failures.
 *
 * An adapter is data, as a stack is, and names the stack by which the trainer is predicted. It is
 * looked up by name among the compiled-in files (contrib/adapters/NAME.json) or read from a path.
 * No part of it is ever given to a shell: each word of an argument is one element of an argument
 * vector.
 *
 * Words hold expressions in braces, "{layers/pp/vpp}"; conditions compare expressions, "zero=1 &
 * dp>1". An expression is made of keys (ADAPTER_KEY_LIST), whole numbers, and * / % from left to
 * right. A division in braces must be exact. The keys cp_kind and recompute are compared with names
 * such as "ring" and "full", and in braces they become these names. {dir} is the folder of a trial.
 *
 *     struct adapter *a;
 *     adapter_load("megatron-lm", &a, err);
 *     struct adapter_facts facts = {&layout, &model, seq, gbs, steps, dir};
 *     if ((i = adapter_broken_rule(a, &facts)) < 0)
 *         adapter_words(a, &facts, true, &arena, &words, err);
 *     adapter_free(a);
 *
 * Errors: ERR_NOT_FOUND names the nearest adapter; ERR_INPUT names file, field and value.
 */
#ifndef PROFILES_ADAPTER_H
#define PROFILES_ADAPTER_H

#include "base/arena.h"
#include "base/hash.h"
#include "profiles/kernels.h"
#include "profiles/layout.h"
#include "profiles/plan.h"

/* Each entry gives id, name and meaning of a key. */
#define ADAPTER_KEY_LIST(X)                                                                        \
    X(TP, "tp", "tensor-parallel ranks")                                                           \
    X(SP, "sp", "1 with sequence parallelism")                                                     \
    X(CP, "cp", "context-parallel ranks")                                                          \
    X(CP_KIND, "cp_kind", "ring, a2a or 2d")                                                       \
    X(A2A_RANKS, "a2a_ranks", "those of cp that exchange heads")                                   \
    X(PP, "pp", "pipeline stages")                                                                 \
    X(VPP, "vpp", "virtual stages of a stage")                                                     \
    X(DP, "dp", "replicas")                                                                        \
    X(ZERO, "zero", "what is sharded, 0 to 3")                                                     \
    X(SHARD, "shard", "ranks that share one copy of it, of dp x cp; 1 with zero=0")                \
    X(MBS, "mbs", "samples of a micro-batch")                                                      \
    X(RECOMPUTE, "recompute", "none, selective or full")                                           \
    X(RECOMPUTE_LAYERS, "recompute_layers", "of each virtual stage with full; 0: all")             \
    X(RANKS, "ranks", "tp x cp x pp x dp")                                                         \
    X(GBS, "gbs", "samples of a step")                                                             \
    X(SEQ, "seq", "tokens of a sample")                                                            \
    X(LAYERS, "layers", "of the model")                                                            \
    X(KV_HEADS, "kv_heads", "of the model")                                                        \
    X(STEPS, "steps", "of a trial")
enum adapter_key {
#define ADAPTER_KEY_ENUM(id, name, what) ADAPTER_##id,
    ADAPTER_KEY_LIST(ADAPTER_KEY_ENUM)
#undef ADAPTER_KEY_ENUM
    ADAPTER_KEYS
};

enum {
    ADAPTER_ARGUMENTS = 64, ADAPTER_WORDS = 8, ADAPTER_RULES = 32, ADAPTER_PATTERNS = 16,
    ADAPTER_TIMERS = 32, ADAPTER_VARIABLES = 16,
    ADAPTER_OPERANDS = 6, ADAPTER_COMPARISONS = 6
};
/* Holds operands from left to right; the op of the first is '*'. */
struct adapter_expression {
    int n;
    struct { char op; int key; int64_t number; } operand[ADAPTER_OPERANDS]; /* key -1: a number */
};
struct adapter_condition { /* holds when all comparisons hold */
    int n;
    struct {
        char op[3];
        struct adapter_expression left, right;
    } comparison[ADAPTER_COMPARISONS];
};
/* Holds words that are added to the command where the condition holds. */
struct adapter_argument {
    struct adapter_condition when;
    bool trial; /* in trials only */
    int64_t n;
    const char *words[ADAPTER_WORDS];
};
/* Holds a variable that is set in the trainer's environment where the condition holds: NAME=VALUE;
 * or NAME alone for one that must not be set there. */
struct adapter_variable {
    struct adapter_condition when;
    const char *text;
};
/* Describes layouts that the trainer cannot run, and why. */
struct adapter_rule {
    struct adapter_condition when;
    const char *rule, *because;
};
/* Describes one of the trainer's own timers. The first group of its pattern matches the time that
 * it took in a step, in units of unit_s seconds. */
struct adapter_timer {
    const char *pattern;
    double unit_s;
    enum kernel_class class;
};

struct adapter {
    char name[LIMIT_NAME_BYTES], stack[LIMIT_NAME_BYTES];
    const char *format, *step_pattern; /* of step_lines.h; one of them is NULL */
    const char *memory_pattern;        /* its group is the peak in units; NULL: none */
    double memory_unit_bytes;
    double start_s; /* seconds of silence before the first step until it counts as a hang */
    int64_t n_arguments, n_variables, n_rules, n_timers, n_oom_device, n_oom_host;
    struct adapter_argument arguments[ADAPTER_ARGUMENTS];
    struct adapter_variable variables[ADAPTER_VARIABLES];
    struct adapter_rule rules[ADAPTER_RULES];
    struct adapter_timer timers[ADAPTER_TIMERS];
    const char *oom_device[ADAPTER_PATTERNS], *oom_host[ADAPTER_PATTERNS];
    struct hash128 hash; /* of the whole content of its file */
    struct arena arena;  /* owns the texts */
};
/* Holds the facts for which a command line is made. */
struct adapter_facts {
    const struct layout *layout; /* borrowed, like the model */
    const struct model *model;
    struct seq seq;
    int64_t gbs, steps;
    const char *dir; /* folder of a trial; NULL: none */
};

/* Loads an adapter by name or path into a new *out; "megatron" is megatron-lm. */
int adapter_load(const char *name_or_path, struct adapter **out, struct err *err);
void adapter_free(struct adapter *a); /* NULL is fine */
/* Returns the index of the first rule that excludes the layout, -1: none does. */
int adapter_broken_rule(const struct adapter *a, const struct adapter_facts *f);
/* Returns the index of the first rule that excludes the layout and names none of these keys (bits
 * 1 << enum adapter_key), so that it excludes all layouts that differ in them alone; -1: none. */
int adapter_broken_rule_without(const struct adapter *a, const struct adapter_facts *f,
                                uint32_t keys);
/* Refuses a layout whose ranks do not follow each other in the default order. `text` is the layout
 * as the user gave it, and the error names its order as it stands there: several orders may place
 * the ranks alike. NULL: the layout has no such text. */
int adapter_check_order(const struct adapter *a, const struct layout *l, const char *text,
                        struct err *err);
/* Makes the trainer's flags for a layout, NULL-ended, in the arena. For a trial they include those
 * that only trials have. ERR_INPUT: a rule excludes the layout, its order of ranks is not the
 * default, or a division is not exact. */
int adapter_words(const struct adapter *a, const struct adapter_facts *f, bool trial,
                  struct arena *arena, const char ***out, struct err *err);
/* Makes the changes to the trainer's environment for a layout, NULL-ended, in the arena: NAME=VALUE
 * is set, a NAME alone is removed. No name occurs twice. */
int adapter_environment(const struct adapter *a, const struct adapter_facts *f,
                        struct arena *arena, const char ***out, struct err *err);
/* Says whether both texts name the same variable: "A=1" and "A" do. */
bool adapter_same_variable(const char *a, const char *b);
/* Writes into a plan the adapter's name, and the plan's layout as flags and environment of the
 * trainer. */
int adapter_plan(const struct adapter *a, const struct model *m, struct plan *p, struct err *err);

#endif
