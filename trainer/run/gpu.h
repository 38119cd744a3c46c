/* gpu: which GPU a rank computes on.
 *
 * The ranks of a host take its GPUs in order, the first rank the first one. Where each process is
 * shown GPUs of its own (CUDA_VISIBLE_DEVICES, srun --gpus-per-task), it takes the first of them.
 * That two ranks have the same GPU is an error unless it is allowed: NCCL refuses it, and both
 * would wait for each other's kernels.
 */
#ifndef TRAINER_RUN_GPU_H
#define TRAINER_RUN_GPU_H

#include "trainer/comm/comm.h"
#include "trainer/ops/compute.h"
#include "trainer/ops/cuda_load.h"

/* A rank tells the others this: its host by a hash, how many GPUs it sees, and which it took. */
struct gpu_seat {
    uint64_t host;
    int64_t gpus;
    struct cuda_gpu gpu;
};

/* Returns the number, from 0, of the GPU that a rank takes of those it sees: the ranks before it on
 * its host take theirs first, in turn. */
int gpu_index(const struct gpu_seat *seats, int rank);
/* Checks that no two ranks have taken the same GPU. ERR_ENV names the first two who have, and gives
 * the `advice` to start fewer, "or ...". */
int gpu_check(const struct gpu_seat *seats, int ranks, const char *advice, struct err *err);

/* Chooses this rank's GPU and fills in which it is; all ranks call it. advice NULL: ranks may have
 * the same one. ERR_ENV: no backend, no driver, no GPU, or one for several ranks. */
int gpu_choose(struct comm *world, const char *advice, struct compute_conf *out, struct err *err);

/* Gives how much the ranks that have this rank's GPU want to take of its memory, this one `bytes`.
 * Collective where `conf` says that ranks share GPUs. */
int gpu_wanted(struct comm *world, const struct compute_conf *conf, int64_t bytes, int64_t *all,
               struct err *err);

#endif
