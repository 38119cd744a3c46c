/* slab: moves large amounts of bytes between files and device memory, through a piece of pinned
 * host memory. Where device memory is host memory there is no slab: with a slab that is NULL, the
 * places in memory are used directly and nothing is copied.
 *
 *     slab_new(dev, stream, &slab, err);             // NULL where device memory is host memory
 *     slab_place(slab, to, bytes, &at, err);         // at most slab_most_bytes; write at `at`
 *     slab_send(slab, to, at, bytes);                // then queue the copy to `to`
 *     slab_flush(slab, err);                         // wait for all copies
 *     slab_fetch(slab, from, bytes, &at, err);       // `at` holds what is at `from`, until the
 *                                                    // next call
 *     slab_take(slab, to, from, bytes);              // to host memory; wait by slab_flush
 */
#ifndef TRAINER_STATE_SLAB_H
#define TRAINER_STATE_SLAB_H

#include "trainer/dev/dev.h"

struct slab;
int slab_new(struct dev *dev, struct dev_stream *stream, struct slab **out, struct err *err);
void slab_free(struct slab *s); /* NULL is fine. */
int64_t slab_bytes(const struct dev *dev); /* Returns the bytes of a slab, for the memory plan. */
int64_t slab_most_bytes(const struct slab *s); /* Returns the most bytes that one call can move. */
int slab_place(struct slab *s, void *to, int64_t bytes, void **out, struct err *err);
void slab_send(struct slab *s, void *to, const void *from, int64_t bytes);
int slab_fetch(struct slab *s, const void *from, int64_t bytes, const void **out, struct err *err);
void slab_take(struct slab *s, void *to, const void *from, int64_t bytes); /* s is not NULL */
int slab_flush(struct slab *s, struct err *err);

#endif
