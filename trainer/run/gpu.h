/* gpu: decides which GPU a rank computes on.
 *
 * The ranks of a host take its GPUs in order, the first rank the first one. If each process is
 * shown one GPU of its own (CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1), it takes that one. Two
 * ranks on one GPU are an error unless that is allowed: NCCL refuses it, and each would wait for
 * the other's kernels.
 */
#ifndef TRAINER_RUN_GPU_H
#define TRAINER_RUN_GPU_H

#include "trainer/comm/comm.h"
#include "trainer/ops/compute.h"
#include "trainer/ops/cuda_load.h"

/* Holds what a rank tells the others: its host as a hash, how many GPUs it sees, and which it
 * took. */
struct gpu_seat {
    uint64_t host;
    int64_t gpus;
    struct cuda_gpu gpu;
};

/* Returns, as an index from 0, which of the GPUs that a rank sees the rank takes. The ranks of a
 * host take the GPUs in turn. */
int gpu_index(const struct gpu_seat *seats, int rank);
/* Checks that no two ranks have taken the same GPU. ERR_ENV names the first two that have, and
 * gives the advice to start fewer ranks, or `advice`. */
int gpu_check(const struct gpu_seat *seats, int ranks, const char *advice, struct err *err);

/* Chooses this rank's GPU and fills in its index and name; all ranks call it. advice NULL: ranks
 * may have the same one. ERR_ENV: no backend, no driver, no GPU, or one GPU for several ranks. */
int gpu_choose(struct comm *world, const char *advice, struct compute_conf *out, struct err *err);

/* Sums the bytes that all ranks on this rank's GPU need of its memory; this rank needs `bytes`. All
 * ranks call it if `conf` says that ranks share GPUs. */
int gpu_wanted(struct comm *world, const struct compute_conf *conf, int64_t bytes, int64_t *all,
               struct err *err);

#endif
