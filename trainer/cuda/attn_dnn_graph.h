/* attn_dnn_graph: builds attention as a graph of cuDNN's operations and makes its plan (cuDNN 9
 * Backend API, "Graph API"). Backward follows the pattern that the library's engines recognise
 * (cuDNN Frontend, scaled_dot_product_flash_attention.h).
 *
 *     attn_plan_make(&class, device, 0, &plan, why)
 *     ... attn_plan_queue(handle, stream, &plan, n, ids, at, workspace)
 *     attn_plan_free(&plan)
 *
 * A plan is made for a device descriptor: that of a handle, or one from a JSON text, with which
 * plans can be tried on a machine without a GPU.
 */
#ifndef TRAINER_CUDA_ATTN_DNN_GRAPH_H
#define TRAINER_CUDA_ATTN_DNN_GRAPH_H

#include <cudnn.h>

#include "trainer/cuda/attn_dnn.h"

/* These are the ids of the tensors in a variant pack. Tensor t has id ATTN_ID_TENSOR + t, its
 * ragged offsets ATTN_ID_OFFSET + t. */
enum attn_id {
    ATTN_ID_TENSOR = 1,
    ATTN_ID_OFFSET = ATTN_ID_TENSOR + ATTN_TENSORS,
    ATTN_ID_Q_LEN = ATTN_ID_OFFSET + ATTN_TENSORS,
    ATTN_ID_K_LEN,
    ATTN_ID_SCALE, ATTN_ID_ONE, ATTN_ID_NOTHING, /* host scalars: scale, 1, -inf */
    ATTN_ID_VIRTUAL, /* from here on: virtual tensors, which are not in memory */
};

struct attn_plan {
    cudnnBackendDescriptor_t plan;
    int64_t workspace_bytes;
    int64_t engine;
};

/* Makes the descriptor of a handle's device. */
cudnnStatus_t attn_device_make(cudnnHandle_t handle, cudnnBackendDescriptor_t *out);

enum { ATTN_WHY = 512 };
/* Makes a plan by the first engine that accepts the graph, in the library's order from proposal
 * `first` on (0: all). On failure returns the status of the last error and writes the library's
 * message to `why`. */
cudnnStatus_t attn_plan_make(const struct attn_class *c, cudnnBackendDescriptor_t device,
                             int64_t first, struct attn_plan *out, char why[ATTN_WHY]);
void attn_plan_free(struct attn_plan *p);
/* Returns whether a status is a failure of the machine, not a refusal of the graph. */
bool attn_plan_failed(cudnnStatus_t st);
/* Queues a plan. `at` has the addresses of the n ids; those of scalars are in host memory. */
cudnnStatus_t attn_plan_queue(cudnnHandle_t handle, cudaStream_t s, const struct attn_plan *p,
                              int64_t n, const int64_t *ids, void *const *at, void *workspace);

#endif
