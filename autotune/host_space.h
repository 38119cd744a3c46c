/* host_space: lists and predicts the layouts of a search on this machine. It implements target.h.
 *
 * It walks the closed space of profiles/space and keeps only the fastest layouts. Parts are priced
 * once for a grid and micro-batch size. Layouts that cannot be among the fastest by the bound of
 * price_step() are passed over. Of the others those are sized and replayed that recompute no more
 * than they must: nothing, if that surely fits; else also selective recomputation, and full
 * recomputation of the fewest layers that may fit, and of more until they surely fit. When a
 * search learns that one kind of work is slower than predicted, layouts with other degrees of
 * parallelism become the best. So the fastest few of each (tp, cp, pp, dp) are kept too, besides
 * the fastest for each number of ranks.
 *
 *     struct host_space *h = host_space_new(&spec, err);
 *     host_space_survey(h, &counts, &survey, err);   // before the probe: counts those that may fit
 *     host_set(host_space_host(h), &speed, cores, err);
 *     struct target t = host_space_target(h);    // target.h lists and predicts
 *     host_space_free(h);
 *
 * Errors: those of space.h and memory.h, ERR_NOMEM.
 */
#ifndef AUTOTUNE_HOST_SPACE_H
#define AUTOTUNE_HOST_SPACE_H

#include "autotune/host.h"
#include "autotune/memory.h"
#include "autotune/target.h"
#include "profiles/run.h"

/* This many of the fastest layouts are kept for each number of ranks, and for each (tp, cp, pp,
 * dp). */
enum { HOST_SPACE_BEST = 16384, HOST_SPACE_OF_DEGREES = 256 };

struct host_space_spec {
    struct space_spec space; /* its pointers are borrowed, like those below */
    const struct run *run;   /* its data types, EMA and finetuning decide work and memory */
    const struct layout *baseline; /* of the caller; NULL: none */
    double memory_bytes;     /* of the machine, shared by all ranks; 0: not known, all fit */
    double min_fit;          /* layouts that fit with a smaller probability are not listed */
    size_t best, of_degrees; /* numbers of layouts kept; 0: the values above */
};
struct host_space;
/* Sums up all legal layouts. */
struct host_space_survey {
    int64_t looked;          /* how many were sized: the others recompute more than they must */
    int64_t fit;             /* how many of these may fit */
    struct layout nearest;   /* the one whose ranks together need the fewest bytes */
    double nearest_bytes;    /* of a rank of it */
    bool baseline;           /* the caller's baseline is among the legal ones */
};
struct host_space *host_space_new(const struct host_space_spec *spec, struct err *err);
void host_space_free(struct host_space *h); /* NULL is fine */
struct host *host_space_host(struct host_space *h);
/* Counts the layouts and sizes those that recompute no more than they must, from memory plans,
 * without a probe. *counts has no items.
 * Returns ERR_NO, and names the rule that excluded the most, if no layout can run. */
int host_space_survey(const struct host_space *h, struct space *counts,
                      struct host_space_survey *out, struct err *err);
/* Predicts the bytes of a layout's fullest rank, as the target does. */
int host_space_memory(struct host_space *h, const struct layout *l, struct memory_bytes *out,
                      struct err *err);
struct target host_space_target(struct host_space *h);

#endif
