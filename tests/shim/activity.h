/* What the shim's runtime tells its CUPTI of work that it queues: see cupti.c. */
#ifndef TESTS_SHIM_ACTIVITY_H
#define TESTS_SHIM_ACTIVITY_H

#include "trainer/dev/dev.h"

enum shim_activity_kind { SHIM_ACTIVITY_KERNEL, SHIM_ACTIVITY_COPY, SHIM_ACTIVITY_FILL };
struct shim_activity { bool on; enum shim_activity_kind kind; uint32_t call; const char *name; };

/* Notes the call that queues work, and queues what notes its start; .on false: nobody listens.
 * `kernel` is the function, or NULL; then `name` names it. */
struct shim_activity shim_activity_begin(struct dev_stream *s, enum shim_activity_kind kind,
                                         const void *kernel, const char *name);
/* Queues what notes its end. */
void shim_activity_end(struct dev_stream *s, struct shim_activity a);
/* Says whether what is queued goes into a graph: whoever listens when that is launched hears it. */
void shim_activity_graph(bool records);
/* Loads the library that CUDA_INJECTION64_PATH names, once, as CUDA's driver does. */
void shim_inject(void);

#endif
