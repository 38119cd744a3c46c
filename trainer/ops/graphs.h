/* graphs: replaces sequences of calls that a step queues repeatedly by graphs of the device.
 *
 * Calls on a stream are kept, in order, until the program records an event on that stream, waits
 * for one, syncs, copies between host and device, or frees device memory. The calls kept since the
 * last such moment are a bundle: operations with all their arguments, and copies and fills within
 * the device. A bundle that is seen for the first time is queued call by call. When it is seen
 * again, with arguments that are equal in every byte, it is captured as a graph. From then on the
 * graph is launched instead. So each class of micro-batch becomes two graphs, one of forward and
 * one of backward; events between them measure their times. Micro-batches are of one class if they
 * have the same slot, chunk, extents, lengths and buffers, and both or neither are the step's
 * first. The update becomes two graphs, because the host reads norms between them. Messages between
 * ranks split these graphs further: one graph for each stretch between two messages.
 *
 * Forward and backward of a class could be one graph with the events recorded inside it. They are
 * not, for two reasons. Validation runs forward alone, and in a pipeline the next pass belongs to
 * another micro-batch, so that each pair of classes would need its own graph. And events belong to
 * a micro-batch of the step, not to its class, so that they would have to be replaced in the graph
 * before each launch. The gain would be one launch per micro-batch, some microseconds.
 *
 * Classes are not declared: they follow from the bundles. A graph does what its calls would have
 * done. Bundles that never repeat, and bundles of a few calls, are queued call by call.
 *
 * Arguments and host arrays are copied when a call is made, as for every queued call, so the caller
 * sees no difference. The size of a bundle is bounded; a longer one is split. The number of
 * remembered bundles is bounded; the one not seen for the longest time is dropped first.
 *
 * When device memory is freed, all graphs are forgotten. So an operation that frees its workspace
 * can rely on it that no graph still uses this memory.
 *
 * If the device refuses to capture a bundle, its calls are queued one by one. From then on no graph
 * is captured or launched, and graphs_refused returns the reason.
 *
 *     graphs_open(ops, stream, &g, err);       // from here on ops->dev->graphs is g
 *     ... operations ...
 *     graphs_close(g);
 */
#ifndef TRAINER_OPS_GRAPHS_H
#define TRAINER_OPS_GRAPHS_H

#include "trainer/ops/ops.h"

struct graphs;

struct graphs_counts {
    int64_t bundles;  /* that had enough calls for a graph */
    int64_t captures; /* graphs that were captured */
    int64_t launches; /* of graphs */
};

/* Returns how many bytes of host memory graphs_open allocates; 0: the device has no graphs. */
int64_t graphs_bytes(const struct dev *dev);
/* Replaces the calls in the tables of device and operations by calls that are kept. The device must
 * have graphs. Returns ERR_NOMEM if memory runs out. */
int graphs_open(struct ops *o, struct dev_stream *s, struct graphs **out, struct err *err);
/* Queues the calls that are still kept, and restores the tables. NULL is allowed. */
void graphs_close(struct graphs *g);
struct graphs_counts graphs_counts(const struct graphs *g);
/* Returns why the device refused to capture a graph, or NULL if it did not refuse. */
const char *graphs_refused(const struct graphs *g);

#endif
