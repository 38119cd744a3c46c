/* space: walks all reasonable layouts for a model, a batch and several numbers of ranks, and counts
 * why the others were excluded. The tuner considers each layout, the trainer lists them.
 *
 * The walk enumerates the whole grid. layout_broken_rule() says which layouts are not legal, and
 * the caller's named limits say which it cannot use; each excluded layout is counted under the rule
 * that excluded it. Each legal layout is met once. Unless `all` or `closed` is set, four axes are
 * thinned out for readers: vpp to 1, 2 and 4, micro-batches beyond 8 samples to powers of two and
 * divisors of a replica's share, recompute_layers to 0, the order of ranks to the default one. A
 * legal layout that is passed over in this way (limits are not considered) is counted under the
 * first axis, in that order, for which it is passed over.
 *
 * A search sets `closed`. Then the walk meets one layout for each grid, number of virtual stages,
 * way to shard and number of micro-batches: that of the smallest micro-batches, without
 * recomputation and in the default order. Larger micro-batches of the same number make the same
 * steps and hold more, and the caller finds out how much must be recomputed. All these layouts are
 * counted with the one that is met.
 *
 * A layout with two spellings is met under one: fsdp=0 instead of fsdp=dp and with zero=0,
 * recompute_layers=0 instead of as many as the longest virtual stage has, zero=0 instead of
 * sharding over one rank.
 *
 *     struct space_spec spec = {&model, seq, gbs, ranks, n_ranks, limits, n_limits};
 *     struct space space = {0};
 *     space_walk(&spec, meet, ctx, &space, err);   // only counts; calls meet for each layout
 *     space_build(&spec, &space, err);       // space.items[0..n), space.excluded[0..n_excluded)
 *     space_check(&spec, &space, err);       // for callers that need at least one layout
 *     space_release(&space);
 *
 * Errors: ERR_INPUT for no or bad numbers of ranks or gbs, ERR_NOMEM.
 */
#ifndef PROFILES_SPACE_H
#define PROFILES_SPACE_H

#include <stdbool.h>
#include <stddef.h>

#include "profiles/layout.h"

/* Describes a rule that excludes legal layouts which the caller cannot use. */
struct space_limit {
    const char *rule, *sentence; /* static */
    bool (*holds)(const struct layout *l);
};
struct space_spec {
    const struct model *model; /* borrowed */
    struct seq seq;            /* tokens of a sample */
    int64_t gbs;               /* samples of a step */
    const int64_t *ranks;      /* numbers of ranks to try, borrowed */
    size_t n_ranks;
    const struct space_limit *limits; /* borrowed; NULL: none */
    size_t n_limits;
    bool all; /* meet every value of every axis */
    bool closed; /* meet one layout for many: see above; not with `all` */
    /* The only layout to consider, on ranks[0] ranks; if it is not legal, the error names its
     * broken rule. NULL: all layouts. Borrowed. */
    const struct layout *only;
};
struct space_excluded {
    const char *rule, *sentence; /* static */
    int64_t count;
};
enum { SPACE_CLASSES = 64 };
enum space_thinned {
    SPACE_VPP, SPACE_MBS, SPACE_RECOMPUTE_LAYERS, SPACE_ORDER, SPACE_THINNED
};
/* These are the names of the axes, and sentences that say which of their values are passed over. */
extern const char *const space_axis_names[SPACE_THINNED],
    *const space_axis_sentences[SPACE_THINNED];
struct space {
    /* all layouts, by number of ranks and then in the order of the walk; or those that a caller
     * picked */
    struct layout *items;
    size_t n, room;
    int64_t legal; /* layouts that can run, met or counted with one that was met */
    struct space_excluded excluded[SPACE_CLASSES];
    size_t n_excluded;
    int64_t visited; /* legal + the sum of excluded[].count */
    int64_t thinned[SPACE_THINNED]; /* legal layouts that were not visited, by axis */
};
/* Calls `meet` for each layout in turn; a negative result of it ends the walk. Adds to the counts
 * of a zeroed space, and adds no items. */
int space_walk(const struct space_spec *spec,
               int (*meet)(void *ctx, const struct layout *l, struct err *err), void *ctx,
               struct space *counts, struct err *err);
/* Says whether a layout is legal for the caller on one of the numbers of ranks, and is named as the
 * walk names it. */
bool space_has(const struct space_spec *spec, const struct layout *l);
int space_build(const struct space_spec *spec, struct space *out, struct err *err);
/* Returns ERR_NO, and names the rule that excluded the most, when no layout is left. */
int space_check(const struct space_spec *spec, const struct space *s, struct err *err);
void space_release(struct space *s); /* safe on a zeroed struct */

#endif
