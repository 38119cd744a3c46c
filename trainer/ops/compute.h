/* compute: opens the device that this process computes on, with a stream and a table of operations.
 *
 * REEL_DEVICE in the environment names another device than conf does, for tests: cpu, far:SEED
 * (dev_far.h) or cuda:INDEX.
 *
 *     struct compute_conf conf = {.device = COMPUTE_CUDA, .gpu = 0, .dtype = DTYPE_BF16};
 *     struct compute d = {0};
 *     compute_open(&d, &conf, err);
 *     compute_close(&d);
 */
#ifndef TRAINER_OPS_COMPUTE_H
#define TRAINER_OPS_COMPUTE_H

#include "base/limits.h"
#include "trainer/ops/ops.h"

enum compute_device { COMPUTE_CPU, COMPUTE_CUDA };

struct compute_conf {
    enum compute_device device;
    int gpu;            /* index among the GPUs that this process may use, from 0 */
    char gpu_name[LIMIT_NAME_BYTES]; /* "NVIDIA H200" */
    /* This number is the same on all ranks that use this GPU. It is 0 if ranks may not share a
     * GPU. */
    uint64_t gpu_shared;
    bool poison;        /* dev.h */
    enum dtype dtype;   /* of activations */
    enum ops_blas blas; /* computes matrix products on the CPU */
    bool deterministic; /* ops.h */
    const char *gemm_table; /* GPU: a file; "": no table; NULL: the file REEL_GEMM_TABLE names */
    const char *attn;       /* GPU: in REEL_ATTN's syntax; NULL: the value of REEL_ATTN */
};

struct compute {
    struct dev *dev;
    struct dev_stream *stream;
    struct ops *ops;
};

/* Opens device, stream and table. After a failure the caller must call compute_close, too. */
int compute_open(struct compute *d, const struct compute_conf *conf, struct err *err);
/* Writes a sentence on cuDNN's plans for attention. Returns false if the table of operations makes
 * no plans. */
bool compute_attn_format(const struct compute *d, char *line, size_t n);
enum { COMPUTE_OWN_ATTN_LINE = 512 };
/* Writes how many calls of attention our own kernels computed because cuDNN does not compute them,
 * by reason. Returns false if there was no such call, or cuDNN is not used. */
bool compute_own_attn_format(const struct compute *d, char *line, size_t n);
void compute_close(struct compute *d); /* accepts a zeroed struct */

#endif
