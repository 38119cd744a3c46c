/* traffic: the bytes a rank sends in one training step, operation by operation, by pure arithmetic.
 *
 * "Sent" is what leaves this rank under the trainer's own algorithms (trainer/comm/comm.h), which a transport may cut into messages but
 * not change. For a group of g ranks, in elements:
 *
 *     all-gather       own part · (g - 1)
 *     reduce-scatter   all parts but the own one
 *     all-reduce       both, of near-equal parts:  n - own part + own part · (g - 1)
 *     all-to-all       what goes to others
 *     send             n; a receive is an operation of no bytes
 *
 * The lines of a step: which tensor each operation moves is the table at the top of traffic.c. It follows the trainer's order of
 * forwards and backwards (schedule.h), because what is repeated by recomputation, and which unit's weights are still there under
 * zero 3, depend on it. Left out: a group of one; scalars (losses, norms, agreement: a few hundred bytes); a step that skips its update.
 *
 *     struct traffic_list list;
 *     traffic_step(&(struct traffic_spec){.model = &m, .params = &params, .shards = &sh, .layout = &l, ...}, &list, err);
 *     traffic_bytes(&list, TRAFFIC_TP)
 *
 * The layout has passed layout_check(), and `shards` are a rank's of it. What is frozen moves as weights alone; adapters add their own
 * weights and gradients, no operation (trainer/dit/dit_lora.c). Errors: ERR_NOMEM.
 */
#ifndef PROFILES_TRAFFIC_H
#define PROFILES_TRAFFIC_H

#include "base/dtype.h"
#include "profiles/shard.h"

/* Named as the trainer names its groups. */
enum traffic_group {
    TRAFFIC_TP,      /* rows and summands of a layer, modulation, partial sums of replicated tensors */
    TRAFFIC_CP,      /* segments of spatial and temporal attention */
    TRAFFIC_A2A,     /* heads for tokens */
    TRAFFIC_RING,    /* keys and values */
    TRAFFIC_PP,      /* between stages; partial sums of the conditioning */
    TRAFFIC_KV,      /* partial sums of copied k/v heads */
    TRAFFIC_SHARD,   /* gradients and weights of units */
    TRAFFIC_REPLICA, /* own pieces of gradients */
    TRAFFIC_GROUPS,
};
extern const char *const traffic_group_names[]; /* "tp", … */
enum traffic_kind { TRAFFIC_ALL_GATHER, TRAFFIC_REDUCE_SCATTER, TRAFFIC_ALL_REDUCE, TRAFFIC_ALL_TO_ALL, TRAFFIC_SEND_RECV };
extern const char *const traffic_kind_names[]; /* "all-gather", … */

struct traffic_micro {
    int64_t n;                 /* samples; 0: an empty micro-batch, whose operations move nothing or sums of nothing */
    const struct seq *samples; /* extents in tokens */
};
struct traffic_spec {
    const struct model *model; /* borrowed, like all pointers here */
    const struct param_list *params;
    const struct shards *shards;
    const struct layout *layout;
    enum dtype act, stat;      /* activations and gathered weights; gradients, modulation's gradients */
    const struct traffic_micro *micros;
    int64_t n_micros;          /* that this rank runs, empty ones included; at least 1 */
    bool residual_wide;        /* the residual stream and its gradient are of stat */
};

struct traffic {
    enum traffic_group group;
    enum traffic_kind kind;
    const char *what;   /* as in errors and traces of the trainer; a literal */
    int64_t ops, bytes; /* started by this rank, sent by it, in one step */
};
enum { TRAFFIC_MAX = 48 };
struct traffic_list {
    int64_t n;
    struct traffic items[TRAFFIC_MAX];
};

int traffic_step(const struct traffic_spec *spec, struct traffic_list *out, struct err *err);
int64_t traffic_bytes(const struct traffic_list *list, enum traffic_group group);
int64_t traffic_group_size(const struct layout *l, const struct model *m, enum traffic_group group);

#endif
