/* validate: measures the loss on fixed draws, by noise level, under any layout.
 *
 * It takes the first `samples` of the validation data. Each is used once in each of `bins` equally
 * probable parts of the run's distribution of noise levels, at a quantile of the bin that is a
 * function of (seed, ordinal). Captions are never dropped. A bin's loss is the mean over samples of
 * each one's mean of w · (F - T)². So the mean over bins estimates the loss of training (with
 * loss_norm sample), and numbers of different steps, attempts and layouts can be compared. Only the
 * forward runs; weights and optimizer stay as they are, bit for bit.
 */
#ifndef TRAINER_RUN_VALIDATE_H
#define TRAINER_RUN_VALIDATE_H

#include <signal.h>

#include "trainer/data/loader.h"
#include "trainer/run/pipe.h"

struct validate {
    const struct run *run;        /* borrowed */
    struct loader *loader;        /* NULL: no validation */
    struct batch_sample *samples; /* [mbs] one micro-batch, with the bin's levels */
    int64_t most;                 /* the most draws in a pass of the pipeline */
    int64_t bin, first, n;        /* the current pass: its bin, first draw, number of draws */
    const struct layout *layout;
    struct layout_place place;
    /* failed is the code of the first read that failed, or 0. The micro-batches are computed all
     * the same, in the order of the other ranks, and all agree on the failure at the end. */
    int failed;
    struct err err;
};
struct validate_loss { double mean, bins[RUN_BINS_MAX]; };

/* Opens the validation's data. `most` is the number of draws that the pipeline can take at a time.
 * loader_open explains `set`. */
int validate_open(struct validate *v, const struct run *run, struct datasets *set,
                  const struct layout *layout, struct layout_place place, int64_t most, bool verify,
                  const struct comm *world, struct err *err);
void validate_close(struct validate *v); /* safe on a zeroed struct */
/* Calls `tell` with the shapes of this replica's micro-batches; reads no payloads. */
int validate_shapes(struct validate *v, batch_shapes_fn *tell, void *ctx, struct err *err);
/* Measures the loss; all ranks of the world call it. `counted` says whether this rank's loss counts
 * (it does not where tp ranks have the same one). Returns 1 on all ranks if it was given up because
 * *stop was set on one of them. */
int validate_run(struct validate *v, struct pipe *pipe, struct comm *world, bool counted,
                 const volatile sig_atomic_t *stop, struct validate_loss *out, struct err *err);

#endif
