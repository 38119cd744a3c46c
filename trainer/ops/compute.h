/* compute: opens the device that this process computes on, with a stream and a table of operations.
 *
 * REEL_DEVICE in the environment names another device than conf does, for tests: far:SEED
 * (dev_far.h) or cuda:INDEX.
 *
 *     struct compute_conf conf = {.device = COMPUTE_CUDA, .gpu = 0, .dtype = DTYPE_BF16};
 *     struct compute d = {0};
 *     compute_open(&d, &conf, err);
 *     compute_close(&d);
 */
#ifndef TRAINER_OPS_COMPUTE_H
#define TRAINER_OPS_COMPUTE_H

#include "trainer/ops/ops.h"

enum compute_device { COMPUTE_CPU, COMPUTE_CUDA };

struct compute_conf {
    enum compute_device device;
    int gpu;            /* of those that this process may use, from 0 */
    /* It is a number that ranks on the same GPU share, where several may have one; else 0. */
    uint64_t gpu_shared;
    bool poison;        /* dev.h */
    enum dtype dtype;   /* of activations */
    enum ops_blas blas; /* of the CPU's products */
    bool deterministic; /* ops.h */
    const char *gemm_table; /* of a GPU's: a file, "": none, NULL: what REEL_GEMM_TABLE names */
    const char *attn;       /* of a GPU's: as REEL_ATTN has it; NULL: what it has */
};

struct compute {
    struct dev *dev;
    struct dev_stream *stream;
    struct ops *ops;
};

/* Opens what it can: after a failure the caller closes it, too. */
int compute_open(struct compute *d, const struct compute_conf *conf, struct err *err);
/* Writes a sentence on the plans by which attention was computed. Returns false where there are
 * none. */
bool compute_attn_format(const struct compute *d, char *line, size_t n);
enum { COMPUTE_OWN_ATTN_LINE = 512 };
/* Writes how many calls of attention were not the library's, by reason. Returns false where all
 * were, or there is no library. */
bool compute_own_attn_format(const struct compute *d, char *line, size_t n);
void compute_close(struct compute *d); /* is safe on a zeroed struct */

#endif
