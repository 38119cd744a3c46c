/* price: computes how long the work of a rank takes, as named terms that add up. Its functions are
 * pure.
 *
 * The account (profiles/work.h) says what is done; the machine (device, links, constants) says how
 * fast. A grid and micro-batch size are priced once, part by part. A layout's step is then a sum
 * over parts: the busiest stage's compute and messages, the bubble around it, what sharding the
 * state adds, the slowest stage's update. Seconds hidden under other work are given separately and
 * are not in the sum. The formulas are at the tops of price_part.c, price_pipe.c and price.c.
 *
 *     struct price_machine machine;
 *     price_machine(&cluster, v, dtype, fp8, &machine);    // v: from constants_resolve()
 *     struct price p;
 *     price_parts(&machine, &w, &p);                       // once for a grid and micro-batch size
 *     price_step(&p, &layout, &step);                      // for each zero, fsdp, recompute
 *     price_state(&p, &layout, &state);
 *     price_bound(&p, &layout, &state, &step);             // no further from the replay
 *     price_replay(&p, &layout, &step, err);               // exact: replays the schedule
 *
 * Invariants: terms are >= 0 and add up to the step; price_step() <= price_bound() <=
 * price_replay(); no higher bandwidth or rate of computation makes a replayed step longer. That of
 * price_step() may grow by millionths, as the stage whose sums of gradients take longest is not
 * always the busiest one, and then has less of a backward to hide them under.
 */
#ifndef AUTOTUNE_PRICE_H
#define AUTOTUNE_PRICE_H

#include "profiles/constants.h"
#include "profiles/speed.h"
#include "profiles/work.h"

/* Each line is X(id, name, what the term is). */
#define PRICE_TERM_LIST(X)                                                                         \
    X(GEMM, "gemm", "matrix products, forward and backward")                                       \
    X(ATTENTION, "attention", "attention, forward and backward")                                   \
    X(ELEMENTWISE, "elementwise", "norms, activations, residuals: bytes moved")                    \
    X(INPUTS, "inputs", "samples, noise and loss, where they were measured apart")                 \
    X(RECOMPUTE, "recompute", "forwards a second time, without their messages")                    \
    X(LAUNCH, "launch", "operations beside their work: each one's own, and waits for the host")    \
    X(TP, "tp", "sums of tensor-parallel ranks, those of repeated forwards too")                   \
    X(CP, "cp", "heads, keys and values between context-parallel ranks, repeated ones too")        \
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

enum price_depth { PRICE_OF_TOKENS, PRICE_OF_SAMPLES, PRICE_OF_TEXT, PRICE_DEPTHS };
struct price_machine {
    const struct cluster *cluster; /* borrowed */
    double v[CONSTANTS];
    double gemm_flops, attention_flops; /* FLOP/s: products at gemm_share, attention at its peak */
    double peak_flops;             /* peak FLOP/s of matrix products */
    double wide_gemm_flops, wide_peak_flops; /* the same of products that are never in fp8 */
    double copy_bytes;             /* bytes/s of elementwise work */
    double score_bytes;            /* bytes/s of the matrix of scores */
    /* bytes/s of norms of gradients, of the update, and of clearing gradients */
    double norm_bytes, update_bytes, clear_bytes;
    enum dtype act;                /* of activations */
    double act_bytes;              /* bytes of an activation's element */
    const struct speed *speed;     /* what a probe measured; borrowed; NULL: use the peaks */
    bool overlaps;                 /* messages travel while a rank computes */
    bool rings;                    /* each step of a ring adds a message's latency */
    /* For bounds: factors of products whose depth is a number of tokens, samples or caption tokens,
     * in place of price_ragged(). 0: that of the number itself. */
    double even[PRICE_DEPTHS];
    double cores; /* cores that ranks share (0: each has a device) */
    double rank_loss, update_loss; /* see struct speed */
};
void price_machine(const struct cluster *cluster, const double v[CONSTANTS], enum dtype dtype,
                   bool fp8, struct price_machine *out);

/* Says where a group of ranks lies: size[0] ranks, each stride[0] after the one before, and
 * size[1] such rows, each stride[1] after the one before. stride[0] <= stride[1]. Groups of the
 * same shape follow each other up to rank `world`; 0: there is one group. */
struct price_group { double size[2], stride[2], world; };
struct price_group price_row(double size, double stride); /* a group of one row */
/* Returns where a layout's group lies. Shard groups that cut through rows of cp ranks may have
 * ranks that lie further apart than this says. */
struct price_group price_group(const struct layout *l, const struct model *m,
                               enum traffic_group group);
/* Says whether some group of this shape has ranks in more than one domain of `domain` neighbouring
 * ranks. */
bool price_group_leaves(struct price_group g, double domain);
/* Holds the seconds of each byte that leaves a rank, on the links and on the NICs (a message takes
 * the longer of the two), and the latency of a message. */
struct price_route { double link_s, nic_s, latency_s; };
struct price_route price_route(const struct price_machine *m, struct price_group g,
                               enum traffic_kind kind);
/* The wires on which messages travel. Those of a kind follow each other; those of two kinds may
 * travel at the same time. */
enum price_wire { PRICE_LINKS, PRICE_NICS, PRICE_WIRES };
/* Writes for how long a message keeps each kind of wire busy; it takes the longer of these. */
void price_route_busy(const struct price_route *r, double bytes, double out[PRICE_WIRES]);
/* Caches the routes of a grid's messages: its parts have many of one group and kind, and they do
 * not depend on the micro-batch size. Nothing in `of` counts where `known` is false. */
struct price_routes {
    bool known[TRAFFIC_GROUPS][TRAFFIC_SEND_RECV + 1];
    struct price_route of[TRAFFIC_GROUPS][TRAFFIC_SEND_RECV + 1];
};
/* Returns the seconds of one operation in which `bytes` leave each rank of a group, without the
 * operation's fixed cost (CONSTANT_SUM_S or CONSTANT_SEND_S). All ranks of a node send at the same
 * time and share its NICs. */
double price_message(const struct price_machine *m, struct price_group g, enum traffic_kind kind,
                     double bytes);

/* Returns the factor by which a side of this many elements slows a product: tensor cores and memory
 * sectors are fastest at multiples of 64, and slowest where 8 does not divide the side. Where
 * context-parallel ranks have unequal numbers of tokens, the side is their mean: a fraction, which
 * 8 does not divide either. */
double price_ragged(const struct price_machine *m, double side);

/* Returns the curve of the device from which attention of this kind and shape is priced; NULL: it
 * is priced by constants alone. A curve of one point says nothing about sizes, one in another dtype
 * is of another kernel, and all are of the device's fastest kernel. */
const struct curve *price_attention_curve(const struct price_machine *m, enum stack_attention kind,
                                          const struct work_attention *a);

/* Holds the seconds of one part. */
struct price_part {
    double gemm, attention, elementwise, inputs, launch;
    double tp, tp_hidden, cp, cp_hidden, pp, pp_hidden;
    double tp_fixed, cp_fixed, pp_fixed; /* seconds of messages that do not depend on bytes */
    double tp_under, tp_alone, cp_under, cp_alone; /* parts of under[] and alone[] of a step */
    double seconds;                      /* of all its computation and messages */
    double busy[PRICE_WIRES]; /* seconds for which its messages keep each kind of wire busy */
    double idle; /* seconds in which it waits for the host and hides no sums, but may a ring */
};
static inline double price_compute(const struct price_part *p)
{
    return p->gemm + p->attention + p->elementwise + p->inputs + p->launch;
}
/* Returns for how long a part, as it computes or waits for its messages, leaves a kind of wire
 * free. */
static inline double price_free(const struct price_part *p, enum price_wire x)
{ return p->seconds - p->busy[x]; }
enum { PRICE_STAGES = 4 };
struct price {
    const struct price_machine *machine;
    const struct work *work;
    struct price_part parts[WORK_PARTS];
    int64_t cuts[PRICE_STAGES + 1]; /* kind i: stages cuts[i] to cuts[i + 1] - 1, of equal work */
    /* The share of forwards and backwards that must gather the weights first: the others find them
     * still gathered. */
    double gathered[PRICE_STAGES][WORK_UNITS];
    double rounds; /* how often twice as many nodes wait for the slowest, from one node on */
};
void price_parts(const struct price_machine *m, const struct work *w, struct price *out);
/* Names the parts ids.from to ids.to - 1. */
struct price_ids { int from, to; };
/* Do the same as price_parts() in two or more calls: the first prices some parts. price_least()
 * needs all parts, but not price_gathers(), whose time goes into walks of the schedule. */
void price_terms(const struct price_machine *m, const struct work *w, struct price_ids ids,
                 struct price_routes *routes, struct price *out);
void price_gathers(struct price *p, int64_t vpp); /* with this many virtual stages */
/* Prices parts of other->work, which `other` has priced, after its grid was given another order of
 * ranks: only the seconds of messages change. */
void price_reorder(const struct price *other, struct price_ids ids, struct price_routes *routes,
                   struct price *out);

struct price_step {
    double seconds;              /* the sum of the terms */
    int64_t stage;               /* the busiest stage, to which the terms belong, */
    int64_t once_stage;          /* but what is done once a step, where that takes longest */
    double term[PRICE_TERMS];
    double hidden[PRICE_TERMS];  /* seconds of each that other work hides */
    double under[PRICE_TERMS];   /* seconds of compute under which its messages could hide */
    double alone[PRICE_TERMS];   /* seconds of each one's messages that nothing can hide */
    double fixed[PRICE_TERMS];   /* seconds of each that do not depend on bytes */
    /* price_replay() only: the seconds that each class computes, recomputation included, on the
     * stage where it is longest; 0: none. The classes are those that a trial on CPUs measures, and
     * it too reports each one's longest rank. */
    double class_s[PRICE_TERMS];
};
/* Holds what a fit needs to predict how long a step takes at other rates. */
struct price_bill {
    double term[PRICE_TERMS], hidden[PRICE_TERMS], under[PRICE_TERMS], alone[PRICE_TERMS],
        fixed[PRICE_TERMS];      /* copied from a struct price_step */
    double far[PRICE_TERMS];     /* share of each one's messages that leaves the NVLink domain */
};
void price_bill(const struct price_machine *m, const struct model *model, const struct layout *l,
                const struct price_step *step, struct price_bill *out);
/* Holds the seconds of each message of the state for each unit: in every micro-batch, on each kind
 * of wire, or once a step. They depend on the grid, zero and fsdp alone. */
struct price_state {
    double each[WORK_STATES][WORK_UNITS][PRICE_WIRES], step[WORK_STATES][WORK_UNITS][PRICE_WIRES];
    bool sends; /* each[] may be above 0 */
};
void price_state(const struct price *p, const struct layout *l, struct price_state *out);
/* Prices a layout of the grid in closed form. The result never exceeds the replay's. */
void price_step(const struct price *p, const struct layout *l, struct price_step *out);
/* Does the same, with a pipeline that may be longer. The constants of predictions were fitted with
 * price_step(), and a search wants the bound that is closest to the replay. */
void price_bound(const struct price *p, const struct layout *l, const struct price_state *st,
                 struct price_step *out);
/* Returns a lower bound on the step for l->vpp to `vpp` virtual stages, of which each recomputes
 * for `again` seconds at least for each micro-batch. Where st is NULL it holds for every way to
 * shard the state: messages of the state and updates are left out. Else it holds for all ways whose
 * messages take no less than st, whose stages gather no less than p->gathered, and whose updates
 * move no less than those of l. */
double price_least(const struct price *p, const struct layout *l, const struct price_state *st,
                   int64_t vpp, double again);
/* Prices a layout by replaying the schedule stage by stage. ERR_NOMEM: there is no memory for the
 * replay. */
int price_replay(const struct price *p, const struct layout *l, struct price_step *out,
                 struct err *err);

#endif
