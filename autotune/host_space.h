/* host_space: lists and predicts the layouts of a search on the machine here.
 *
 * The layouts are those of profiles/space, met one after the other; none but the fastest is kept.
 * Parts are priced once for a grid and size of micro-batch, price_step()'s bound passes over what
 * cannot be among the fastest, and the others are replayed. As a search learns that one kind of
 * work is slower than was predicted, other degrees of parallelism come forward: so beside the
 * fastest for each number of ranks, the fastest few of each tp, cp, pp and dp are kept.
 *
 *     struct host_space *h = host_space_new(&spec, err);
 *     host_space_survey(h, &counts, err);        // before the probe: does any layout fit?
 *     host_set(host_space_host(h), &speed, cores, err);
 *     struct target t = host_space_target(h);    // target.h lists and predicts
 *     host_space_free(h);
 *
 * Errors: those of space.h and memory.h, ERR_NOMEM.
 */
#ifndef AUTOTUNE_HOST_SPACE_H
#define AUTOTUNE_HOST_SPACE_H

#include "autotune/host.h"
#include "autotune/target.h"
#include "profiles/run.h"

/* So many of the fastest are kept for each number of ranks, and of each tp, cp, pp and dp. */
enum { HOST_SPACE_BEST = 16384, HOST_SPACE_OF_DEGREES = 256 };

struct host_space_spec {
    struct space_spec space; /* borrows, as below */
    const struct run *run;   /* what of it decides work and memory */
    const struct layout *baseline; /* the caller's; NULL: none */
    double memory_bytes;     /* of the machine, shared by all ranks; 0: not known, all fit */
    double min_fit;          /* layouts that fit with a smaller probability are not listed */
    size_t best, of_degrees; /* so many are kept; 0: as above */
};
struct host_space;
/* Says what the legal layouts are like, all of them. */
struct host_space_survey {
    int64_t fit;             /* that many may fit */
    double least_bytes;      /* of a rank of the layout that takes the fewest */
    bool baseline;           /* the caller's is among them */
};
struct host_space *host_space_new(const struct host_space_spec *spec, struct err *err);
void host_space_free(struct host_space *h); /* NULL is fine */
struct host *host_space_host(struct host_space *h);
/* Counts the layouts and sizes each, by memory plans alone. *counts has no items. ERR_NO, with the
 * rule that excluded most, when none can run. */
int host_space_survey(const struct host_space *h, struct space *counts,
                      struct host_space_survey *out, struct err *err);
struct target host_space_target(struct host_space *h);

#endif
