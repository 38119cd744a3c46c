/* device: holds the options by which commands choose the device to compute on. */
#ifndef TRAINER_CMD_DEVICE_H
#define TRAINER_CMD_DEVICE_H

#include "base/opt.h"
#include "profiles/plan.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/compute.h"

extern const char *const device_kinds[]; /* auto, cpu, cuda */
extern const char *const device_products[]; /* own, openblas */
extern const char *const device_comms[]; /* auto, staged, nccl */

/* These options belong in the table of every command that computes. */
#define DEVICE_OPTS                                                                              \
    {"device", 0, OPT_ENUM, "NAME",                                                              \
     "compute on the CPU, or each rank on a GPU; auto: on GPUs where the run's "                 \
     "resources.gpus_per_node asks for them", .fallback = "auto", .choices = device_kinds},      \
    {"share-gpu", 0, OPT_BOOL, NULL, "several ranks may compute on one GPU (slow: for tests)"},  \
    {"blas", 0, OPT_ENUM, "NAME",                                                                \
     "the CPU's matrix products by our own kernels or OpenBLAS", .fallback = "own",              \
     .choices = device_products}

/* This option belongs in the table of a command whose ranks exchange device memory. */
#define DEVICE_COMM_OPT                                                                          \
    {"comm", 0, OPT_ENUM, "NAME",                                                                \
     "what GPUs exchange goes by NCCL, or is staged: through the host's memory, by MPI; auto: by " \
     "NCCL, and staged with --share-gpu or where this build has no NCCL",                        \
     .fallback = "auto", .choices = device_comms}

/* Chooses the device that the options name; if it is a GPU, also which one this rank uses. All
 * ranks of the world call it. gpus_per_node is the run's. ERR_ENV: there is no GPU to compute on;
 * the error says why. */
int device_take(const struct opt_values *v, int64_t gpus_per_node, struct comm *world,
                struct compute_conf *out, struct err *err);
/* Does the same as device_take, and chooses by --comm how ranks exchange device memory: by *coll,
 * or by MPI if that is NULL. ERR_ENV: ranks would share a GPU, which NCCL refuses. Logs a warning
 * if this build has no NCCL. */
int device_comm_take(const struct opt_values *v, int64_t gpus_per_node, struct comm *world,
                     struct compute_conf *out, const struct coll_ops **coll, struct err *err);
/* Sets the device's name in each of n plans that has none. */
void device_name(const struct compute_conf *c, struct plan *plans, int64_t n);

#endif
