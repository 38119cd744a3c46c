/* price: tells how long the work of a rank takes, as named terms that add up. Pure.
 *
 * The account (profiles/work.h) says what is done; the machine (device, links, constants) how fast.
 * A grid and micro-batch size are priced once, part by part. A layout's step is then a sum over
 * parts: the busiest stage's compute and messages, the bubble around it, what sharding the state
 * adds, the slowest stage's update. What is hidden under other work is told apart and is not in the
 * sum. The essays with the formulas are at the tops of price_part.c and price.c.
 *
 *     struct price_machine machine;
 *     price_machine(&cluster, v, dtype, fp8, &machine);    // v: constants_resolve()'s
 *     struct price p;
 *     price_parts(&machine, &w, &p);                       // once for a grid and micro-batch size
 *     price_step(&p, &layout, &step);                      // for each zero, fsdp, recompute
 *     price_replay(&p, &layout, &step);                    // survivors: the schedule itself
 *
 * Invariants: terms are >= 0 and add up to the step; price_step() <= price_replay(); no bandwidth
 * or rate that grows makes a step longer.
 */
#ifndef AUTOTUNE_PRICE_H
#define AUTOTUNE_PRICE_H

#include "profiles/constants.h"
#include "profiles/speed.h"
#include "profiles/work.h"

/* id, name, what it is */
#define PRICE_TERM_LIST(X)                                                                         \
    X(GEMM, "gemm", "matrix products, forward and backward")                                       \
    X(ATTENTION, "attention", "attention, forward and backward")                                   \
    X(ELEMENTWISE, "elementwise", "norms, activations, residuals: bytes moved")                    \
    X(INPUTS, "inputs", "samples, noise and loss, where they were measured apart")                 \
    X(RECOMPUTE, "recompute", "forwards a second time, with their messages")                       \
    X(LAUNCH, "launch", "operations beside their work: each one's own, and waits for the host")    \
    X(TP, "tp", "sums of tensor-parallel ranks")                                                   \
    X(CP, "cp", "heads, keys and values between context-parallel ranks")                           \
    X(PP, "pp", "messages between stages")                                                         \
    X(BUBBLE, "bubble", "the busiest stage waits for the others")                                  \
    X(GATHER, "gather", "weights gathered")                                                        \
    X(REDUCE, "reduce", "gradients summed over replicas")                                          \
    X(OPTIMIZER, "optimizer", "the update: bytes moved")                                           \
    X(CONTENTION, "contention", "ranks that share cores, memory and clocks slow each other")       \
    X(SPREAD, "spread", "ranks wait for the slowest")                                              \
    X(OVERHEAD, "overhead", "once a step: data, logging, agreement")
enum price_term {
#define PRICE_ENUM(id, name, what) PRICE_##id,
    PRICE_TERM_LIST(PRICE_ENUM)
#undef PRICE_ENUM
    PRICE_TERMS
};
extern const char *const price_term_names[PRICE_TERMS];

struct price_machine {
    const struct cluster *cluster; /* borrowed */
    double v[CONSTANTS];
    double gemm_flops, attention_flops; /* peaks, FLOP/s; of gemm's, the share is applied */
    double peak_flops;             /* of products, whole */
    double copy_bytes;             /* bytes/s of elementwise work */
    double score_bytes;            /* bytes/s of the matrix of scores */
    double norm_bytes, update_bytes; /* bytes/s of norms of gradients, and of the update */
    double act_bytes;              /* of an activation */
    const struct speed *speed;     /* what a probe measured of it, borrowed; NULL: peaks hold */
    bool overlaps;                 /* messages travel while a rank computes */
    bool rings;                    /* a message's latency is that of each step of a ring */
    double cores, rank_loss;       /* which ranks share, speed.h's; 0: each has its own device */
};
void price_machine(const struct cluster *cluster, const double v[CONSTANTS], enum dtype dtype,
                   bool fp8, struct price_machine *out);

/* Says where a group of ranks lies: size[0] ranks, each stride[0] behind the one before, and
 * size[1] such rows, each stride[1] behind the one before. stride[0] <= stride[1]. */
struct price_group { double size[2], stride[2]; };
struct price_group price_row(double size, double stride); /* of one row */
/* Returns it for a layout's group. Of shard groups that cut through rows of cp ranks, some lie less
 * close together than is said. */
struct price_group price_group(const struct layout *l, const struct model *m,
                               enum traffic_group group);
/* Says whether some group of the kind has ranks in more than one box of so many neighbours. */
bool price_group_leaves(struct price_group g, double box);
/* Holds the seconds that a byte leaving each rank takes on the links and on the NICs, the slower of
 * which counts, and those that a message takes besides. */
struct price_route { double link_s, nic_s, latency_s; };
struct price_route price_route(const struct price_machine *m, struct price_group g,
                               enum traffic_kind kind);
double price_route_seconds(const struct price_route *r, double bytes);
/* Returns the seconds of one operation in which `bytes` leave each rank of a group, besides its
 * fixed cost. All ranks of a node send at the same time and share its NICs. */
double price_message(const struct price_machine *m, struct price_group g, enum traffic_kind kind,
                     double bytes);

/* Seconds of one part. */
struct price_part {
    double gemm, attention, elementwise, inputs, launch;
    double tp, tp_hidden, cp, cp_hidden, pp, pp_hidden;
};
enum { PRICE_STAGES = 4 };
struct price {
    const struct price_machine *machine;
    const struct work *work;
    struct price_part parts[WORK_PARTS];
    int64_t cuts[PRICE_STAGES + 1]; /* kind i are the stages from cuts[i] on, alike in work */
    /* of gathers before each forward and backward, the share that there is: others find the weights
     * still there */
    double gathered[PRICE_STAGES][WORK_UNITS];
};
void price_parts(const struct price_machine *m, const struct work *w, struct price *out);
/* Do the same in two calls: price_least() wants the first alone, and walks of the schedule are most
 * of the second. */
void price_terms(const struct price_machine *m, const struct work *w, struct price *out);
void price_gathers(struct price *p);
/* Prices the same work once more, after the order of its grid was changed: messages alone take
 * another time. */
void price_reorder(const struct price *other, struct price *out);

struct price_step {
    double seconds;              /* the sum of the terms */
    int64_t stage;               /* the busiest one, whose terms these are */
    double term[PRICE_TERMS];
    double hidden[PRICE_TERMS];  /* seconds of each that other work hides */
    double again[PRICE_TERMS];   /* of `recompute`, what each class computes */
};
/* Writes what each class computes in a step that was priced, recomputed or not; 0: none. These are
 * the classes that a trial on CPUs measures. */
void price_classes(const struct price_step *step, double class_s[PRICE_TERMS]);
/* Prices a layout of the grid in closed form. The result never exceeds the replay's. */
void price_step(const struct price *p, const struct layout *l, struct price_step *out);
/* Returns what no way to keep the state takes less than: the grid's step without messages of the
 * state, updates and recomputation, but for `again` seconds a micro-batch on the last stage. */
double price_least(const struct price *p, const struct layout *l, double again);
/* Prices it by replaying the schedule stage by stage. ERR_NOMEM. */
int price_replay(const struct price *p, const struct layout *l, struct price_step *out,
                 struct err *err);

#endif
