/* cudnn_run: runs the graph of a plan of the stand-in for cuDNN. */
#ifndef TESTS_SHIM_CUDNN_RUN_H
#define TESTS_SHIM_CUDNN_RUN_H

#include "cudnn.h"

enum { RUN_DIMS = 4, RUN_OPS = 32, RUN_IDS = 128 };

/* Describes a tensor of a graph. With id 0, an operation has no such tensor. */
struct run_tensor {
    int64_t id, dim[RUN_DIMS], stride[RUN_DIMS];
    int64_t offset; /* the id of its ragged offsets, or 0 */
    cudnnDataType_t type;
    bool is_virtual, by_value;
};

/* Describes an operation. The tensors m, n and k hold the number of rows, columns and terms of each
 * segment. */
struct run_op {
    cudnnBackendDescriptorType_t kind;
    cudnnPointwiseMode_t mode;
    int64_t axis;
    struct run_tensor a, b, t, y; /* a is the input x; for forward: q, k, v, o */
    struct run_tensor m, n, k, stats, scale;
};

struct run_graph {
    struct run_op op[RUN_OPS];
    int n;
    int64_t workspace;
};

/* Finds, for the rows (axis 2) and columns (axis 3) of each tensor, the id of the tensor with their
 * lengths; 0: the full extent. Returns false for a graph that leaves them open or contradicts
 * itself. */
struct run_lengths { int64_t of[RUN_IDS][RUN_DIMS]; };
bool run_lengths_find(const struct run_graph *g, struct run_lengths *l);

/* Holds a run of a plan: the pointers of the ids. Host scalars are read when it is queued. */
struct run {
    const struct run_graph *graph;
    void *at[RUN_IDS];
    float number[RUN_IDS];
    char *workspace;
};
void run_all(void *run);

#endif
