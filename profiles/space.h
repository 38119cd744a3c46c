/* space: every layout worth a thought for a model, a batch and some numbers of ranks, and why the others were left out. The tuner
 * searches it, the trainer lists it.
 *
 * The idea: enumerate the whole grid, ask layout_broken_rule() for legality and the caller's named limits for what it cannot
 * use (cost_limits: what the tuner cannot price), and count each excluded class under the rule that excluded it. Each legal layout is met once.
 * Three axes are thinned out unless `all`: vpp to 1, 2 and 4, micro-batches beyond 8 samples to powers of two and divisors of a replica's
 * share, recompute_layers to 0. What is legal there, limits apart, is counted by axis, the first one in that order. Layouts with two
 * names have one here: fsdp=0 for fsdp=dp and under zero=0, recompute_layers=0 for as many as the longest virtual stage has, zero=0 over one
 * rank.
 *
 *     struct space_spec spec = {&model, seq, gbs, ranks, n_ranks, limits, n_limits};
 *     struct space space = {0};
 *     space_build(&spec, &space, err);       // space.items[0..n), space.excluded[0..n_excluded)
 *     space_check(&spec, &space, err);       // where none left is an error
 *     space_release(&space);
 *
 * Errors: ERR_INPUT for no or bad numbers of ranks or gbs, ERR_NOMEM.
 */
#ifndef PROFILES_SPACE_H
#define PROFILES_SPACE_H

#include <stdbool.h>
#include <stddef.h>

#include "profiles/layout.h"

/* What a caller cannot use, beside what is not legal. */
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
    bool all; /* every value of every axis */
};
struct space_excluded {
    const char *rule, *sentence; /* static */
    int64_t count;
};
enum { SPACE_CLASSES = 64 };
enum space_thinned { SPACE_VPP, SPACE_MBS, SPACE_RECOMPUTE_LAYERS, SPACE_THINNED };
extern const char *const space_axis_names[SPACE_THINNED], *const space_axis_sentences[SPACE_THINNED]; /* which values are passed over */
struct space {
    struct layout *items; /* by ranks, then by the grid's order */
    size_t n, room;
    struct space_excluded excluded[SPACE_CLASSES];
    size_t n_excluded;
    int64_t visited; /* n + the sum of the counts */
    int64_t thinned[SPACE_THINNED]; /* legal, not visited */
};
int space_build(const struct space_spec *spec, struct space *out, struct err *err);
/* ERR_NO when nothing is left. */
int space_check(const struct space_spec *spec, const struct space *s, struct err *err);
void space_release(struct space *s); /* safe on a zeroed struct */

#endif
