/* stream: meets every legal layout of a model on some number of GPUs, grid by grid, and keeps the
 * best few that fit. No array over the space exists.
 *
 * A grid is (tp, sp, cp, cp_kind, pp, dp, order). Its parts are priced once for each micro-batch
 * size, and are added up over vpp, zero, fsdp and recompute. Micro-batch sizes and virtual stages
 * are not taken from a list: an admissible bound closes them. What is passed over is dominated,
 * that is, a kept layout is at least as fast and fits, or nothing of the kind fits; it is counted
 * among the legal layouts. The essay with the bounds stands at the top of stream.c.
 *
 *     struct stream_spec spec = {&work, &machine, gpus, limit_bytes};
 *     struct stream_found found;                  // large: it belongs in static or heap memory
 *     stream_search(&spec, 10, &found, err);      // found.items[0..n), the fastest first
 *
 * Layouts of equal time are ordered as they are met: the result does not depend on how many are
 * kept. Errors: ERR_NOMEM.
 */
#ifndef AUTOTUNE_STREAM_H
#define AUTOTUNE_STREAM_H

#include "autotune/footprint.h"
#include "autotune/price.h"
#include "profiles/adapter.h"

struct stream_spec {
    const struct work_spec *work; /* borrowed, as the machine */
    const struct price_machine *machine;
    int64_t gpus;
    double limit_bytes;           /* that a GPU's footprint may have */
    bool one_order; /* ranks stand in the default order alone */
    bool all; /* every layout that a grid has is priced and nothing is closed: the bench's */
    const struct adapter *adapter; /* of the trainer that must be able to run it; NULL: any can */
};
struct stream_item {
    struct layout layout;
    double seconds; /* by the schedule's replay; less, while it is only a bound */
    double bytes;   /* of the fullest rank */
};
enum { STREAM_ITEMS = 1024, STREAM_RULES = 64 };
struct stream_found {
    size_t n;
    struct stream_item items[STREAM_ITEMS];
    int64_t grids;             /* legal ones, with their virtual stages */
    int64_t legal;             /* layouts on them: priced, or passed over as dominated */
    int64_t sized, priced;     /* layouts whose bytes and whose time were computed */
    int64_t fit;               /* of the sized ones, those within limit_bytes */
    int64_t replayed;
    int64_t excluded[STREAM_RULES]; /* layouts that break rule i of layout.h */
    /* of those that were met: the adapter's rule i excludes so many, and no rule of it so many */
    int64_t refused[ADAPTER_RULES], able;
    struct stream_item nearest; /* where nothing fits: the layout of the fewest bytes */
};
/* Finds the `most` best. found->n is 0 where no layout fits, found->legal is 0 where none is
 * legal. */
int stream_search(const struct stream_spec *spec, size_t most, struct stream_found *found,
                  struct err *err);
/* Says whether a layout fits, without which found->n is 0; it stops at the first one that does. */
int stream_any_fits(const struct stream_spec *spec, bool *fits, struct err *err);

#endif
