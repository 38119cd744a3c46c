/* pack: joins samples of different lengths into packs with a bounded number of tokens, so that
 * every pack costs about the same.
 *
 * The packs are a pure function of lengths, limit and seed, so they are the same on every rank and
 * under every layout. The algorithm is best fit over a bounded number of open packs. Samples come
 * in a random order made for this purpose. Each goes into the open pack in which it leaves the
 * least room, or into a new one if it fits into none. A pack has at most PACK_SAMPLES_MAX samples.
 * When PACK_OPEN packs are open, the fullest is closed before a new one begins. Attention stays
 * inside a sample, so a pack costs the sum of its samples.
 *
 *     packs_build(tokens, n, 8192, seed, &p, err);
 *     for (int64_t i = p.first[k]; i < p.first[k + 1]; i++)
 *         use(p.members[i]);   // samples of pack k
 *     packs_release(&p);
 */
#ifndef PROFILES_PACK_H
#define PROFILES_PACK_H

#include <stdint.h>

#include "base/err.h"

enum { PACK_OPEN = 64, PACK_SAMPLES_MAX = 1 << 15 };
struct packs {
    int64_t n;
    int64_t *first;   /* [n + 1] */
    int64_t *members; /* [samples] sample numbers, pack by pack */
};
/* Builds the packs. Sample i has tokens[i] tokens, at least 1. ERR_INPUT names a sample longer than
 * `most`. */
int packs_build(const int64_t *tokens, int64_t n, int64_t most, uint64_t seed, struct packs *out,
                struct err *err);
void packs_release(struct packs *p); /* safe on a zeroed struct */
int64_t packs_bytes(const struct packs *p);

#endif
