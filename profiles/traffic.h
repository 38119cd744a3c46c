/* traffic: counts the bytes that a rank sends in one training step, operation by operation, by pure
 * arithmetic.
 *
 * The count is of bytes that leave this rank under the trainer's own algorithms
 * (trainer/comm/comm.h). A transport may cut them into messages but does not change their number.
 * Each rank of a group of g sends, in elements (n: those of the whole tensor):
 *
 *     all-gather       own part · (g - 1)
 *     reduce-scatter   all parts except its own
 *     all-reduce       both, of near-equal parts:  n - own part + own part · (g - 1)
 *     all-to-all       the parts for other ranks
 *     send             n; a receive is an operation of no bytes
 *
 * The table at the top of traffic.c says which tensor each operation moves. The count follows the
 * trainer's order of forwards and backwards (schedule.h), which decides what recomputation repeats,
 * and which unit's weights are still gathered under zero 3. It leaves out groups of one, scalars
 * (losses, norms, agreement: a few hundred bytes), and steps that skip their update.
 *
 *     struct traffic_list list;
 *     traffic_step(&(struct traffic_spec){.model = &m, .params = &params, .shards = &sh,
 *                                         .layout = &l, ...}, &list, err);
 *     traffic_bytes(&list, TRAFFIC_TP)
 *
 * The layout must have passed layout_check(), and `shards` must belong to a rank of it. Frozen
 * tensors move only as weights. Adapters add their own weights and gradients, but no operations
 * (trainer/dit/dit_lora.c). Errors: ERR_NOMEM.
 */
#ifndef PROFILES_TRAFFIC_H
#define PROFILES_TRAFFIC_H

#include "base/dtype.h"
#include "profiles/shard.h"

/* Names groups as the trainer does. */
enum traffic_group {
    /* rows and partial sums of a layer's branches, modulation, gradients of replicated tensors */
    TRAFFIC_TP,
    TRAFFIC_CP,      /* segments of spatial and temporal attention */
    TRAFFIC_A2A,     /* heads for tokens */
    TRAFFIC_RING,    /* keys and values */
    TRAFFIC_PP,      /* messages between stages; gradients of the conditioning */
    TRAFFIC_KV,      /* gradients of copied k/v heads */
    TRAFFIC_SHARD,   /* gradients and weights of units */
    TRAFFIC_REPLICA, /* own pieces of gradients */
    TRAFFIC_GROUPS,
};
extern const char *const traffic_group_names[]; /* "tp", … */
enum traffic_kind {
    TRAFFIC_ALL_GATHER,
    TRAFFIC_REDUCE_SCATTER,
    TRAFFIC_ALL_REDUCE,
    TRAFFIC_ALL_TO_ALL,
    TRAFFIC_SEND_RECV
};
extern const char *const traffic_kind_names[]; /* "all-gather", … */

struct traffic_micro {
    /* samples; 0: an empty micro-batch, whose operations move nothing, or sum zero elements */
    int64_t n;
    const struct seq *samples; /* extents in tokens */
};
struct traffic_spec {
    const struct model *model; /* borrowed, like all pointers here */
    const struct param_list *params;
    const struct shards *shards;
    const struct layout *layout;
    /* act: activations and gathered weights; stat: gradients, also those of modulations */
    enum dtype act, stat;
    const struct traffic_micro *micros;
    /* micro-batches that this rank runs, empty ones included; at least 1 */
    int64_t n_micros;
    bool residual_wide;        /* the residual stream and its gradient have type `stat` */
};

struct traffic {
    enum traffic_group group;
    enum traffic_kind kind;
    const char *what;   /* a literal: its name in the trainer's errors and traces */
    int64_t ops, bytes; /* operations that this rank starts, and bytes that it sends, in one step */
};
enum { TRAFFIC_MAX = 48 };
struct traffic_list {
    int64_t n;
    struct traffic items[TRAFFIC_MAX];
};

/* Holds how many of a sample's tokens are in the segments dealt to a cp rank (`all`), and how many
 * of these are in the rank's own span of tokens (`own`). */
struct traffic_dealt { int64_t all, own; };
/* Counts these tokens for spatial or temporal attention, and sample number i of a micro-batch. */
struct traffic_dealt traffic_dealt(struct seq q, int64_t cp, int64_t rank, int64_t i, bool spatial);
int traffic_step(const struct traffic_spec *spec, struct traffic_list *out, struct err *err);
int64_t traffic_bytes(const struct traffic_list *list, enum traffic_group group);

#endif
