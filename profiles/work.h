/* work: accounts for what one rank does, sends and holds in a training step. Its functions are
 * pure, and only work_weights() allocates memory.
 *
 * Time and memory are predicted from this account alone (autotune/). So CPUs with MPI and clusters
 * of GPUs differ in device curves and links, and other trainers in their stacks, not in code; only
 * reel's own trainer has formulas of its own (work_reel.h, work_own.h). The account is cut into
 * *parts*, each of which is done as a whole: the forward of a layer, its backward, the additional
 * work of the first or the last stage. A grid (tp, sp, cp, cp_kind, pp, vpp, dp) and a micro-batch
 * size have one account. zero, fsdp, recompute and recompute_layers only decide how often a part is
 * done and which rank holds what: what they cost is a sum over the account's parts.
 *
 *     struct work w;
 *     work_build(&spec, &layout, &w);         // depends only on the grid and mbs
 *     for each zero, fsdp, recompute, recompute_layers:
 *         for each stage of interest:
 *             work_stage(&w, &layout, stage, &s);          // how often each part is done
 *             work_state(&w, &layout, &state);             // what sharding the state sends
 *             work_held(&w, &layout, &s, &scales, bytes);  // what the stage's rank holds
 *
 * Symbols in the comments: D hidden, F ffn, a heads, g kv_heads, d head dim, V vocab, S tokens of a
 * sample, x text tokens, b samples of a micro-batch, t tp, c cp, T = b·S/c tokens of a rank, w the
 * bytes of an activation. The formulas, with their sources, are at the top of work.c.
 */
#ifndef PROFILES_WORK_H
#define PROFILES_WORK_H

#include "base/dtype.h"
#include "profiles/buffers.h"
#include "profiles/layout.h"
#include "profiles/piece.h"
#include "profiles/shard.h"
#include "profiles/stack.h"
#include "profiles/traffic.h"

/* Names the weights that are gathered and reduced together, by their place in the model. */
enum work_unit_id { UNIT_LAYER, UNIT_FIRST, UNIT_LAST, UNIT_EACH, WORK_UNITS };
enum { WORK_TENSORS = 64, WORK_SUMS = 64 };
/* Holds the elements of a model's units: `split` are divided by tensor parallelism, `whole` are
 * on each of its ranks; and its units' tensors, those of a layer once. They are computed once for a
 * model, because the parameter list is allocated. */
struct work_weights {
    double split[WORK_UNITS], whole[WORK_UNITS];
    int n_tensors;
    struct work_tensor { enum work_unit_id unit; struct shard_kind kind; } tensors[WORK_TENSORS];
};
int work_weights(const struct model *m, struct work_weights *out, struct err *err);

/* Name the parts of a layer that selective recomputation may repeat; sets are made of them. */
enum work_again { WORK_AGAIN_ATTENTION = 1, WORK_AGAIN_MLP = 2 };
struct work_spec {
    const struct model *model; /* borrowed, like all pointers here */
    const struct work_weights *weights;
    const struct stack *stack;
    struct seq seq;            /* tokens of a sample */
    int64_t text;              /* tokens of its caption; 0: the model's text_len */
    int64_t gbs;
    enum dtype act;            /* activations, weights in use and messages */
    bool fp8;                  /* the layers' products are computed in fp8 */
    bool ema;                  /* an average of the weights is kept, in f32 */
    unsigned again;            /* set of work_again, by which 0 is attention alone */
    bool frozen;               /* weights get no gradients, but small adapters beside them (LoRA) */
    bool residual_wide;        /* reel: the residual stream and its gradient are f32 */
    bool moments_bf16;         /* reel: the optimizer's moments are bf16 */
    int64_t encoder_bytes;     /* bytes of frozen encoders on each rank */
};

/* Describes a matrix product [m, k] x [k, n], done `count` times. */
struct work_gemm { double m, n, k, count; };
/* Describes the attention of q queries to k keys by `heads` heads (samples times heads of this
 * rank). `pairs` is the number of (query, key) pairs of a head that are computed: q·k, or about
 * half of it with a causal mask. score_bytes are read and written in the matrix of scores, if it is
 * kept.
 *
 * one_pass: a backward of reel's trainer in bf16 that leaves dQ in f32, as the steps of a ring do.
 * On a CPU it makes five products. A dQ that is rounded takes a second pass over the scores, which
 * makes seven of them (trainer/ops/ops_cpu_attn_impl.h). */
struct work_attention {
    double q, k, heads, dim, pairs, score_bytes, count;
    bool backward, one_pass;
};
/* Names the compute that may go on while a message travels. */
enum work_hide { HIDE_NOTHING, HIDE_ATTENTION, HIDE_FORWARD, HIDE_BACKWARD };
/* Describes a message: `bytes` leave this rank in each of `count` operations of a group. */
struct work_message {
    enum traffic_group group;
    enum traffic_kind kind;
    enum work_hide hide;
    double bytes, count;
};

enum work_part_id {
    WORK_LAYER_FORWARD,
    WORK_LAYER_BACKWARD,
    WORK_LAYER_SELECTIVE, /* what selective recomputation repeats */
    WORK_LAYER_FULL,      /* what full recomputation repeats */
    WORK_FIRST_FORWARD,   /* embedding of tokens or patches */
    WORK_FIRST_BACKWARD,
    WORK_LAST_FORWARD,    /* last norm, head and loss */
    WORK_LAST_BACKWARD,
    WORK_EACH_FORWARD,    /* conditioning, which every stage computes for itself */
    WORK_EACH_BACKWARD,
    WORK_SEND,            /* a message over one boundary between stages, in one direction */
    WORK_PARTS
};
extern const char *const work_part_names[WORK_PARTS];

/* Names what inputs are made of, each with its own number of numbers. */
enum work_input {
    INPUT_SAMPLES, /* numbers of latents that are read and get noise */
    INPUT_ANGLES,  /* cosines and sines of tokens' positions */
    INPUT_PATCHES, /* numbers of tokens' patches */
    INPUT_LOSS,    /* numbers of tokens' results that are compared */
    WORK_INPUTS
};

enum { WORK_GEMMS = 32, WORK_ATTENTIONS = 4, WORK_MESSAGES = 16 };
struct work_part {
    int n_gemms, n_attentions, n_messages;
    double bytes;      /* read and written by elementwise work: norms, activations, residuals */
    double copied;     /* part of them that copies or adds arrays; only of reel's trainer */
    double input_bytes; /* by work on latents, whose numbers are counted as well */
    double norm_bytes; /* further bytes of norms that are several operations */
    double sum_bytes;  /* further bytes of adding up gradients of weights */
    double kernels;    /* operations that the host starts */
    double inputs[WORK_INPUTS]; /* numbers of each */
    struct work_gemm gemms[WORK_GEMMS]; /* from here on, only as many as the counts say are set */
    struct work_attention attentions[WORK_ATTENTIONS];
    struct work_message messages[WORK_MESSAGES];
};

/* Holds the bytes that the forward of one layer and micro-batch keeps for its backward. */
struct work_kept {
    double none, selective, full;
    double stream; /* part of none and selective that each tp rank has whole, or divided with sp */
};

/* Holds how tp, sp and pp cut the tensors of reel's own trainer (work_own.h). */
struct work_cut {
    bool cuts; /* every rank gets as much, as the rules of layout.h demand */
    /* of a unit on this rank: elements before its padding, and tensors */
    int64_t elements[WORK_UNITS], tensors[WORK_UNITS];
    /* which elements of a unit are partial sums by a rule */
    int n_sums;
    struct work_sum {
        enum work_unit_id unit;
        enum piece_rule rule;
        int64_t from, to;
    } sums[WORK_SUMS];
};

struct work {
    struct layout grid;        /* the layout with which it was built */
    const struct stack *stack; /* kept from the spec, like the model */
    const struct model *model;
    double micro_batches;      /* m, of the busiest replica */
    double samples;            /* of a micro-batch */
    double samples_of_step;
    double tokens;             /* T */
    struct work_part parts[WORK_PARTS];
    double unit_elements[WORK_UNITS]; /* weights on this rank, after tp */
    /* what trainers but reel's own hold besides their state */
    struct work_kept kept;     /* of a layer */
    double layer_work;         /* bytes used inside one layer's backward, besides kept ones */
    double each_kept;          /* bytes kept of the conditioning on each stage, for a micro-batch */
    double first_kept;         /* bytes kept before the layers, for a micro-batch */
    double logits;             /* bytes of the logits at their peak; of a video model's output */
    double boundary;           /* bytes of a message between stages */
    bool frozen;             /* weights have neither gradients nor an optimizer */
    double weight_bytes, gradient_bytes, optimizer_bytes, ema_bytes, act_bytes,
        stat_bytes, moment_bytes; /* bytes of an element; stat_bytes of reel's gradients */
    double encoder_bytes;
    /* of a layer's weight: bytes of its copies in fp8, and of the weight when it is gathered */
    double copy_bytes, gather_bytes;
    /* reel's trainer: elements of gradients that are partial sums over tp; in the first and last
     * unit only with sp */
    double partial[WORK_UNITS];
    /* the account is of reel's trainer and of a model that it trains: only then are the following
     * set, from which its bytes are computed */
    bool own;
    enum dtype act;
    struct buffer_totals micro; /* of a micro-batch */
    struct work_cut cut;
};
/* Computes the work of a grid and micro-batch size. The layout's tp, cp, pp, vpp, dp and mbs are 1
 * or more. */
void work_build(const struct work_spec *spec, const struct layout *l, struct work *out);
/* Does the same in two steps, for a search that considers many micro-batch sizes: work_cut() once
 * for a grid, then work_rebuild() for each size. work_rebuild_times() leaves out what only
 * work_held() needs. */
void work_cut(const struct work_spec *spec, const struct layout *l, struct work *out);
void work_rebuild(const struct work_spec *spec, const struct layout *l, struct work *out);
void work_rebuild_times(const struct work_spec *spec, const struct layout *l, struct work *out);

/* Holds how often a stage does each part for one micro-batch. */
struct work_stage {
    int64_t stage;
    double layers;      /* in all its chunks */
    double each;        /* conditionings: reel's trainer computes one for each chunk */
    double selective, full; /* layers recomputed selectively or fully */
    double there;       /* of these, layers whose activations are still in memory */
    bool first, last;   /* it has the embedding; it has the head */
    double sends[2];    /* messages that it sends to other stages: forward, backward */
    /* micro-batches whose activations it holds, each counted over all its layers: kept bytes are
     * in_flight · layers · kept */
    double in_flight;
};
void work_stage(const struct work *w, const struct layout *l, int64_t stage,
                struct work_stage *out);

/* Names the messages of one unit that sharding the state causes. Each moves one whole unit; `each`
 * says whether it comes with every micro-batch or once a step. */
enum work_state_id {
    STATE_GATHER_FORWARD,  /* weights before the forward */
    STATE_GATHER_BACKWARD, /* weights before the backward */
    STATE_REDUCE,          /* gradients over the shard group, or all replicas */
    STATE_REPLICAS,        /* own parts of gradients over a shard group's replicas */
    STATE_GATHER_STEP,     /* weights after the update */
    WORK_STATES
};
struct work_state {
    bool each[WORK_STATES];
    /* bytes that leave this rank for one element of a unit, and of a layer, whose weights may be
     * gathered in fp8; 0: no such message */
    double bytes[WORK_STATES], layer_bytes[WORK_STATES];
    enum traffic_group group[WORK_STATES];
    enum traffic_kind kind[WORK_STATES];
};
void work_state(const struct work *w, const struct layout *l, struct work_state *out);
/* Writes the other messages that a stage sends once a step: sums of gradients that are partial sums
 * over tensor-parallel ranks or over stages. Returns their number. Only reel's trainer has them. */
enum { WORK_ONCE = 2 };
int work_once(const struct work *w, const struct layout *l, const struct work_stage *s,
              struct work_message out[WORK_ONCE]);
/* Holds the bytes of the state that a stage reads and writes. */
struct work_moved {
    double cleared; /* in gradients that each micro-batch clears */
    double each;   /* for each micro-batch: gradients are added to own pieces */
    double packed; /* to sum gradients that are partial sums, for a step */
    double norm;   /* in norms of gradients, for a step */
    double update; /* in the update, for a step */
};
void work_moved(const struct work *w, const struct layout *l, const struct work_stage *s,
                struct work_moved *out);

/* Names the bytes of a rank by purpose. Those of the account end with encoders;
 * autotune/footprint.h adds the rest, which depends on the process and its allocator. */
#define WORK_HELD_LIST(X)                                                                          \
    X(PARAMETERS, "parameters")                                                                    \
    X(GRADIENTS, "gradients")                                                                      \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(EMA, "ema")                                                                                  \
    X(ACTIVATIONS, "activations")                                                                  \
    X(GATHERED, "gathered")                                                                        \
    X(LOGITS, "logits")                                                                            \
    X(BUFFERS, "buffers")                                                                          \
    X(WORKSPACE, "workspace")                                                                      \
    X(ENCODERS, "encoders")                                                                        \
    X(FRAGMENTATION, "fragmentation")                                                              \
    X(PROCESS, "process")
enum work_held_id {
#define WORK_HELD_ENUM(id, name) HELD_##id,
    WORK_HELD_LIST(WORK_HELD_ENUM)
#undef WORK_HELD_ENUM
    WORK_HELD
};
extern const char *const work_held_names[WORK_HELD];
/* Holds the factors by which a stack keeps more than the formulas say; reel's trainer keeps what
 * they say. */
struct work_scales { double stream, inner, logits; };
void work_held(const struct work *w, const struct layout *l, const struct work_stage *s,
               const struct work_scales *scales, double bytes[WORK_HELD]);
/* Returns the most bytes that a stage holds because units are padded to divide into the pieces of a
 * shard group: without them, a larger group never holds more. */
double work_padding_bytes(const struct work *w, const struct layout *l);
/* Returns the elements of weights that a stage holds whole, after tp. */
double work_stage_elements(const struct work *w, const struct work_stage *s);

#endif
