/* stream: walks every legal layout of a model on a number of GPUs, grid by grid, and keeps the best
 * few that fit. It never holds the whole space in memory.
 *
 * A grid is (tp, sp, cp, cp_kind, pp, dp, order). Its parts are priced once for each micro-batch
 * size, and are added up for each vpp, zero, fsdp and recompute. Micro-batch sizes and virtual
 * stages do not come from a list: bounds end each loop, beyond which no layout can be among the
 * best. The walk passes over layouts that are dominated (a kept layout is at least as fast and
 * fits) or cannot fit; they count among the legal ones. The bounds stand at the top of stream.c.
 *
 *     struct stream_spec spec = {&work, &machine, gpus, limit_bytes};
 *     struct stream_found found;                  // large: keep it in static or heap memory
 *     stream_search(&spec, 10, &found, err);      // found.items[0..n), the fastest first
 *
 * With spec.places, what is found are the best places of a ranking. A place has one or more layouts
 * of the same bytes, which differ in nothing but the order of ranks and the shard group, and none
 * of which takes longer than the fastest by more than STREAM_ALIKE. That one stands for all; of
 * those of exactly one time, the one with the fewest keys.
 *
 * Layouts of equal time keep the order of the walk, so the result does not depend on how many are
 * kept. All processors that this process may use share the walk; result and counts do not depend on
 * their number. Errors: ERR_NOMEM.
 */
#ifndef AUTOTUNE_STREAM_H
#define AUTOTUNE_STREAM_H

#include "autotune/footprint.h"
#include "autotune/price.h"
#include "profiles/adapter.h"

struct stream_spec {
    const struct work_spec *work; /* borrowed, like the machine */
    const struct price_machine *machine;
    int64_t gpus;
    double limit_bytes;           /* the largest footprint that a GPU may have */
    double beat_s;  /* only layouts that take less are looked for, s; 0: any */
    bool one_order; /* only the default order of ranks is considered */
    const struct adapter *adapter; /* adapter of the trainer that must run the layouts; NULL: any */
    bool places;    /* the best places are looked for, not the best layouts */
};
#define STREAM_ALIKE 1e-4
struct stream_item {
    struct layout layout;
    double seconds; /* of the schedule's replay, or of its lower bound until then */
    double bytes;   /* of the fullest rank */
    int64_t grid;   /* place of its grid in the walk */
    int64_t met;    /* its place among those of its grid that were kept */
    int64_t twins;  /* other layouts for which it stands, with spec.places */
    bool replayed;  /* `seconds` is of the replay */
    bool leads;     /* it is the fastest of its place, or places are not asked for */
};
enum { STREAM_ITEMS = 1024, STREAM_PLACES = STREAM_ITEMS / 4, STREAM_RULES = 64 };
struct stream_found {
    size_t n;
    struct stream_item items[STREAM_ITEMS];
    int64_t grids;             /* legal grids, each counted once for each vpp */
    int64_t legal;             /* layouts on them: priced, or passed over as dominated */
    int64_t opened;            /* grids whose layers were priced, counted for each such size */
    int64_t sized, priced;     /* layouts whose bytes and whose time were computed */
    int64_t fit;               /* of the sized ones, those within limit_bytes */
    int64_t replayed;
    int64_t excluded[STREAM_RULES]; /* layouts that break rule i of layout.h */
    /* The walk met refused[i] layouts that the adapter's rule i excludes, each counted for one
     * rule, and `able` layouts that break none. Grids that a rule excludes are met whole. */
    int64_t refused[ADAPTER_RULES], able;
    /* If no layout fits, this is the one that holds the fewest bytes, of those that the adapter's
     * trainer can run. bytes 0: there is none, or beat_s is set. */
    struct stream_item nearest;
};
/* Finds the best `most` layouts, or places (of these at most STREAM_PLACES). found->n is 0 where no
 * layout fits, found->legal is 0 where none is legal. */
int stream_search(const struct stream_spec *spec, size_t most, struct stream_found *found,
                  struct err *err);
/* Says whether any layout fits, that is, whether stream_search would find one. It stops at the
 * first that does. */
int stream_any_fits(const struct stream_spec *spec, bool *fits, struct err *err);

#endif
