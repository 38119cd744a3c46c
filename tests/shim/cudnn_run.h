/* cudnn_run: the graph of a plan of the stand-in for cuDNN, as it is run. */
#ifndef TESTS_SHIM_CUDNN_RUN_H
#define TESTS_SHIM_CUDNN_RUN_H

#include "cudnn.h"

enum { RUN_DIMS = 4, RUN_OPS = 32, RUN_IDS = 128 };

/* id 0: there is none. */
struct run_tensor {
    int64_t id, dim[RUN_DIMS], stride[RUN_DIMS];
    int64_t offset; /* the id of its ragged offsets, or 0 */
    cudnnDataType_t type;
    bool is_virtual, by_value;
};

/* m, n, k: lengths of the segments' rows, columns and terms that are there. */
struct run_op {
    cudnnBackendDescriptorType_t kind;
    cudnnPointwiseMode_t mode;
    int64_t axis;
    struct run_tensor a, b, t, y; /* x is a; of forward q, k, v, o */
    struct run_tensor m, n, k, stats, scale;
};

struct run_graph {
    struct run_op op[RUN_OPS];
    int n;
    int64_t workspace;
};

/* Says of the rows (axis 2) and columns (3) of each tensor the id of their lengths, 0: all there.
 * Returns false for a graph that leaves them open or contradicts itself. */
struct run_lengths { int64_t of[RUN_IDS][RUN_DIMS]; };
bool run_lengths_find(const struct run_graph *g, struct run_lengths *l);

/* A run of a plan: where the ids lie. Numbers of the host are read when it is queued. */
struct run {
    const struct run_graph *graph;
    void *at[RUN_IDS];
    float number[RUN_IDS];
    char *workspace;
};
void run_all(void *run);

#endif
