/* loader: from a draw ordinal to a sample. Order, shapes and counts follow from the index alone, before any payload is read.
 *
 * A stage draws gbs samples a step; the ordinal of a draw is its place in the run's global order, over all stages. Within a stage
 * draw number k takes sample permute(seed, epoch, n, k mod n) of epoch k / n: every sample once an epoch, whatever the
 * number of ranks. The loader therefore has no state but the step: resuming, or resuming on other ranks, is exact.
 *
 * Each data-parallel replica reads only its own samples. Payloads are read by offset from the shard, checked (npy header, shape,
 * finite values) and normalised by the dataset's mean and deviation. Nothing is allocated after loader_open.
 */
#ifndef TRAINER_LOADER_H
#define TRAINER_LOADER_H

#include "profiles/run.h"
#include "trainer/dit.h"

struct loader;

/* The most one micro-batch of mbs samples can hold, over the whole dataset: what the memory plan needs. */
struct loader_bounds { int64_t tokens, samples, text_tokens, latent_elements, segment; }; /* segment: of one sample, seq_longest_segment() */

/* Opens stage `stage` of the run. Shards this process may read are compared with the index: size always, content hash when
 * `verify` (each rank checks the shards i with i mod world = rank). ERR_CORRUPT names shard and remedy. */
int loader_open(const struct run *run, int64_t stage, int64_t mbs, bool verify, int rank, int world, struct loader **out,
                struct err *err);
void loader_close(struct loader *l);

struct loader_bounds loader_bounds(const struct loader *l);
int64_t loader_bytes(const struct loader *l); /* host memory it holds, for the plan */

/* What is known of a draw without reading it. */
struct loader_draw { int64_t sample; struct seq seq; int64_t elements, tokens; double flops; };
struct loader_draw loader_draw(const struct loader *l, int64_t draw); /* draw: number within the stage */

/* Read draws first .. first+n-1 of the stage (n <= mbs) into out->samples (borrowed until the next call). `ordinal_base` is
 * the ordinal of the stage's draw 0. With loss_norm sample each sample's loss_weight is 1 / its elements. On failure *out has the right
 * samples and shapes, which the index alone gives, and any payload: the ranks that compute with it together stay in step. */
int loader_read(struct loader *l, int64_t first, int64_t n, uint64_t ordinal_base, struct batch *out, struct err *err);

#endif
