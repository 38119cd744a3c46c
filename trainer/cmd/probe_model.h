/* probe_model: measures the time that a model's own operations take on one rank, class by class:
 * the CPU's or, on a device that queues its work, the device's.
 *
 * A model of one layer, as wide as the given model, computes forward and backward of micro-batches
 * of several sizes: a part of a sample, one sample, several samples. The meter measures each kind
 * of operation (watch/meter.h); the median of several repetitions counts, because a step has
 * quick and slow ones. On CPUs it is CPU time and not wall time, so that ranks which share cores
 * measure their own work only.
 *
 * Sizes go from small to large (profiles/probe_size.h). A size is left out, with all larger ones,
 * if it is expected, from the size before it, to take more than a few seconds, or would make the
 * whole take too long. Sizes that are left out are predicted with the rates of the largest measured
 * one.
 *
 *     probe_model_views(&compute, &spec, &views, err);
 *     probe_model_update(&compute, &spec, world, &views, err);    // on all ranks
 */
#ifndef TRAINER_CMD_PROBE_MODEL_H
#define TRAINER_CMD_PROBE_MODEL_H

#include "profiles/probe_size.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/compute.h"

/* Names the classes of operations: matrix products; attention forward and backward; norms,
 * activations and copies; and, of inputs, samples with their noise, angles of positions, patches,
 * and the loss. */
enum probe_class {
    PROBE_GEMM, PROBE_ATTN_FWD, PROBE_ATTN_BWD, PROBE_ELEMENTWISE, PROBE_SAMPLES, PROBE_ANGLES,
    PROBE_PATCHES, PROBE_LOSS, PROBE_CLASSES
};
extern const char *const probe_class_names[]; /* "gemm_s", … */

/* Describes a micro-batch and holds the time of each class in it. */
struct probe_view {
    struct probe_size size;
    double seconds[PROBE_CLASSES];
    double wall_s; /* the longest counted micro-batch on this rank */
};
struct probe_views {
    int n;
    struct probe_view view[PROBE_SIZES];
    int64_t update_elements;
    /* over update_elements, the times of AdamW, of the norm, of clearing gradients, and of copying
     * them */
    double update_s, norm_s, clear_s, move_s;
};
struct probe_model_spec {
    struct model model;
    struct seq seq; /* tokens of a sample */
    enum dtype dtype;
};
/* Measures all sizes. ERR_INPUT: the model cannot be trained, or seq does not suit it. */
int probe_model_views(struct compute *compute, const struct probe_model_spec *spec,
                      struct probe_views *out, struct err *err);
/* Measures the update, which all ranks of `world` make at the same time, each after a micro-batch,
 * and sets its members of *out; of the views there, at least one, it takes the micro-batch's size.
 * Collective over `world`. */
int probe_model_update(struct compute *compute, const struct probe_model_spec *spec,
                       struct comm *world, struct probe_views *out, struct err *err);

#endif
