/* graphs: what a step queues again and again is queued once, as a graph of the device.
 *
 * The calls that go onto a stream are kept, in their order, until the program records an event
 * there, waits for one, syncs, or copies between host and device. The calls since then are a
 * bundle: operations with all their arguments, and copies and fills within the device. A bundle
 * that comes for the first time is queued call by call; when it comes again, with the same
 * arguments to the last byte, it is queued into a graph; and from then on the graph is launched in
 * its place. So each class of micro-batch (its slot and chunk, its extents and lengths, first or
 * later, which buffer) becomes two graphs, of its forward and of its backward, whose times are
 * taken by events between them, and the update two, between which the host decides. Messages of
 * ranks cut these again: a graph for each stretch between two.
 *
 * Forward and backward of a class could be one graph, with the events recorded inside it. They are
 * not: validation runs the forward alone, and in a pipeline each is followed by another
 * micro-batch's, so that there would be a graph for each pair that meets; and an event belongs to a
 * micro-batch of the step, not to its class, so that one graph would have to be given others before
 * each launch. To be saved is one launch a micro-batch, of microseconds. The host reads norms
 * between the parts of the update, and so no graph has both.
 *
 * Nobody names the classes, and what a graph does is what the calls would have done. What is never
 * the same twice, and bundles of a few calls, are queued as they are.
 *
 * As with everything that is queued, nobody sees when a call runs: arguments are read when it is
 * made, arrays of the host with them. Bundles are cut at a size, and the number of those that are
 * remembered is bounded; the one that was not met for longest goes first.
 *
 * When memory of the device is given back, all graphs are forgotten: an operation that replaces
 * what it works in, or drops what it queued, frees memory and so sees that no graph has it.
 *
 * A device that refuses to record a bundle is not asked again: its calls are queued, as all later
 * ones are, and graphs_refused says why.
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
    int64_t bundles;  /* of enough calls for a graph */
    int64_t captures; /* graphs that were made */
    int64_t launches;
};

/* Returns the bytes on the host that graphs_open takes, at most; 0: the device has no graphs. */
int64_t graphs_bytes(const struct dev *dev);
/* Puts calls that are kept in the place of the plain ones in the tables of device and operations.
 * ERR_NOMEM. The device has graphs. */
int graphs_open(struct ops *o, struct dev_stream *s, struct graphs **out, struct err *err);
/* Queues what is left, and restores the tables. NULL is fine. */
void graphs_close(struct graphs *g);
struct graphs_counts graphs_counts(const struct graphs *g);
/* Returns why the device made no graph, or NULL. */
const char *graphs_refused(const struct graphs *g);

#endif
