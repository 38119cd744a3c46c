/* activity: declares the calls by which the shim's runtime reports the work that it queues to its
 * CUPTI (cupti.c). */
#ifndef TESTS_SHIM_ACTIVITY_H
#define TESTS_SHIM_ACTIVITY_H

#include "trainer/dev/dev.h"

enum shim_activity_kind { SHIM_ACTIVITY_KERNEL, SHIM_ACTIVITY_COPY, SHIM_ACTIVITY_FILL };
struct shim_activity { bool on; enum shim_activity_kind kind; uint32_t call; const char *name; };

/* Records the call that queues work, and queues a record of its start; .on is false if no
 * subscriber listens. `kernel` is the function, or NULL; then `name` is the name. */
struct shim_activity shim_activity_begin(struct dev_stream *s, enum shim_activity_kind kind,
                                         const void *kernel, const char *name);
/* Queues a record of the end of the work. */
void shim_activity_end(struct dev_stream *s, struct shim_activity a);
/* Sets whether work is being captured into a graph. Such work is always recorded, because a
 * subscriber may listen when the graph is launched. */
void shim_activity_graph(bool records);
/* Loads the library that CUDA_INJECTION64_PATH names, once, as CUDA's driver does. */
void shim_inject(void);

#endif
