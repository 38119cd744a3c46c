/* slab: takes bytes in bulk from files to device memory and back, through a piece of pinned host
 * memory. Where device memory is the host's there is no slab: a slab that is NULL gives the places
 * themselves, and copies nothing.
 *
 *     slab_new(dev, stream, &slab, err);             // NULL where device memory is the host's
 *     slab_place(slab, to, bytes, &at, err);         // at most slab_most_bytes; write there, then
 *     slab_send(slab, to, at, bytes);                // it goes to `to`
 *     slab_flush(slab, err);                         // and is there
 *     slab_fetch(slab, from, bytes, &at, err);       // what stands at `from`, until the next call
 *     slab_take(slab, to, from, bytes);              // to host memory of the caller's; slab_flush
 */
#ifndef TRAINER_STATE_SLAB_H
#define TRAINER_STATE_SLAB_H

#include "trainer/dev/dev.h"

struct slab;
int slab_new(struct dev *dev, struct dev_stream *stream, struct slab **out, struct err *err);
void slab_free(struct slab *s); /* NULL is fine. */
int64_t slab_bytes(const struct dev *dev); /* Returns what it takes, for the memory plan. */
int64_t slab_most_bytes(const struct slab *s); /* Returns the most that one call takes. */
int slab_place(struct slab *s, void *to, int64_t bytes, void **out, struct err *err);
void slab_send(struct slab *s, void *to, const void *from, int64_t bytes);
int slab_fetch(struct slab *s, const void *from, int64_t bytes, const void **out, struct err *err);
void slab_take(struct slab *s, void *to, const void *from, int64_t bytes); /* not of NULL */
int slab_flush(struct slab *s, struct err *err);

#endif
