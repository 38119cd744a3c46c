/* loader: makes a pack of samples from a draw. Order, shapes and counts follow from the index
 * alone, before any payload is read.
 *
 * A stage draws gbs packs a step; the ordinal of a draw is its place in the run's global order,
 * over all stages. Within a stage of n packs, draw number k takes pack permute(seed, epoch, n, k
 * mod n) of epoch k / n: every pack once an epoch, whatever the number of ranks. A pack is one
 * sample, or with the stage's pack_tokens as many as fit (profiles/pack.h). The loader therefore
 * has no state but the step, and resuming is exact, on other ranks too. Sample j of a pack has the
 * ordinal draw + j · 2^48.
 *
 * These follow from (seed, ordinal) and a sample's shape: its noise level; whether its caption is
 * dropped; in a model with cond_channels, whether it is given its first frames (as latents, then a
 * mask that is 1 where they are given); and a padding mask (1 in valid cells). A latent that the
 * patch does not divide is padded with zeros at the far end of each axis; padding counts neither in
 * the loss nor in its norm.
 *
 * Each data-parallel replica reads only its own samples (loader_source.h). Nothing is allocated
 * after loader_open.
 */
#ifndef TRAINER_DATA_LOADER_H
#define TRAINER_DATA_LOADER_H

#include "profiles/run.h"
#include "trainer/data/batch.h"

struct loader;

enum { LOADER_MEMBER_SHIFT = 48 }; /* bit of an ordinal at which the member number begins */
/* Ordinals from this one on are outside the run's order of draws; validation uses them. */
#define LOADER_FIXED_ORDINAL (UINT64_C(1) << 63)

/* Holds the most that one micro-batch of mbs packs can contain, over the whole dataset; the memory
 * plan needs it. segment: the largest seq_longest_segment() of a sample. */
struct loader_bounds { int64_t tokens, samples, text_tokens, latent_elements, segment; };

/* Opens the data of a stage; the run is borrowed. loader_source_open explains `set`, `verify`, rank
 * and world. ERR_CORRUPT names shard and remedy. */
int loader_open(const struct run *run, const struct run_stage *stage, struct datasets *set,
                int64_t mbs, bool verify, int rank, int world, struct loader **out,
                struct err *err);
void loader_close(struct loader *l);

struct loader_bounds loader_bounds(const struct loader *l);
/* Returns the bytes of host memory that the loader holds, for the memory plan. */
int64_t loader_bytes(const struct loader *l);

/* Describes a draw as far as it is known without reading it. `elements` is the number of latent
 * elements that count in the loss. */
struct loader_draw { int64_t pack, samples, elements, tokens; };
/* Describes a draw, given by its number within the stage. */
struct loader_draw loader_draw(const struct loader *l, int64_t draw);

/* Returns the model FLOPs of a draw (profiles/flops.h) with the captions that its samples keep.
 * ordinal_base is as for loader_read. */
double loader_flops(const struct loader *l, int64_t draw, uint64_t ordinal_base);
int64_t loader_packs(const struct loader *l); /* Returns the packs of an epoch. */
/* Returns the index in the dataset of a pack's sample number `member`. */
int64_t loader_sample(const struct loader *l, int64_t pack, int64_t member);

/* Reads draws first .. first+n-1 of the stage (n <= mbs) into out->samples (borrowed until the next
 * call). `ordinal_base` is the ordinal of the stage's draw 0. With loss_norm sample, each sample's
 * loss_weight is 1 / its elements. On failure *out has the right samples and shapes, which follow
 * from the index, but arbitrary payloads: so this rank and the ranks that share its micro-batch
 * still run the same operations in the same order. */
int loader_read(struct loader *l, int64_t first, int64_t n, uint64_t ordinal_base,
                struct batch *out, struct err *err);

/* Describes draws first .. first+n-1 as loader_read does, by the index alone: *out has no
 * payloads. */
void loader_describe(struct loader *l, int64_t first, int64_t n, uint64_t ordinal_base,
                     struct batch *out);

/* Reads draws first .. first+n-1 ahead, while a device computes, so that loader_read with the same
 * arguments returns them at once. Earlier batches become invalid. After a failure here, or
 * if other draws are asked for, loader_read reads by itself. */
void loader_ahead(struct loader *l, int64_t first, int64_t n, uint64_t ordinal_base);

#endif
