/* probe_model: measures what a model's own operations take on one rank, class by class, in CPU
 * time.
 *
 * A model of one layer, of the width asked for, does forward and backward of micro-batches of
 * several sizes: a part of a sample, one sample, some. The meter tells what each kind of operation
 * took (watch/meter.h); the least of some repetitions counts. CPU time and not wall time is taken,
 * so that ranks which share cores measure their own work.
 *
 * Sizes go from small to large (profiles/probe_size.h). None is begun that by the one before takes
 * more than a few seconds, or with which all of them would take more than some. What is left out is
 * predicted at the rates of the largest that was measured.
 *
 *     probe_model_run(&compute, &spec, &views, err);
 */
#ifndef TRAINER_CMD_PROBE_MODEL_H
#define TRAINER_CMD_PROBE_MODEL_H

#include "profiles/probe_size.h"
#include "trainer/ops/compute.h"

/* Names the classes under which operations are counted: products; attention forward, backward;
 * norms, activations and copies; samples, noise, positions and loss. */
enum probe_class {
    PROBE_GEMM, PROBE_ATTN_FWD, PROBE_ATTN_BWD, PROBE_ELEMENTWISE, PROBE_INPUTS, PROBE_CLASSES
};
extern const char *const probe_class_names[]; /* "gemm_s", … */

/* A micro-batch and what it took. */
struct probe_view {
    struct probe_size size;
    double seconds[PROBE_CLASSES];
    double wall_s; /* of a micro-batch on this rank, the longest of those that count */
};
struct probe_views {
    int n;
    struct probe_view view[PROBE_SIZES];
    int64_t update_elements;
    double update_s, norm_s; /* of AdamW, and of the norm of gradients, over so many elements */
};
struct probe_model_spec {
    struct model model;
    struct seq seq; /* tokens of a sample */
    enum dtype dtype;
};
/* Measures them. ERR_INPUT: the model cannot be trained, or its extent is not one. */
int probe_model_run(struct compute *compute, const struct probe_model_spec *spec,
                    struct probe_views *out, struct err *err);

#endif
