#include "trainer/cmd/device.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "trainer/run/gpu.h"

enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
const char *const device_kinds[] = {"auto", "cpu", "cuda", NULL};
const char *const device_products[] = {"own", "openblas", NULL};
enum { COMM_AUTO, COMM_STAGED, COMM_NCCL };
const char *const device_comms[] = {"auto", "staged", "nccl", NULL};

static enum compute_device kind_of(const struct opt_values *v, int64_t gpus_per_node)
{
    int device = opt_enum(v, "device");
    if (device == DEVICE_AUTO)
        device = gpus_per_node > 0 ? DEVICE_CUDA : DEVICE_CPU;
    return device == DEVICE_CUDA ? COMPUTE_CUDA : COMPUTE_CPU;
}

/* Chooses the device by the options. advice is what the error tells a user who started several
 * ranks for one GPU (gpu.h). */
static int take(const struct opt_values *v, int64_t gpus_per_node, const char *advice,
                struct comm *world, struct compute_conf *out, struct err *err)
{
    int rc;
    *out = (struct compute_conf){
        .device = kind_of(v, gpus_per_node),
        .blas = opt_enum(v, "blas") == 1 ? OPS_BLAS_OPENBLAS : OPS_BLAS_OWN};
    if (out->device != COMPUTE_CUDA && opt_bool(v, "share-gpu"))
        return err_set(err, ERR_USAGE, "--share-gpu is for ranks that compute on GPUs: leave it "
                       "out, or add --device cuda");
    if (out->device != COMPUTE_CUDA)
        return 0;
    /* Streams that share one of a GPU's hardware queues wait for each other, so a message could
     * wait for work that waits for the message. There are 8 queues unless more are asked for (CUDA
     * C++ Programming Guide, "Environment Variables"). */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (out->blas == OPS_BLAS_OPENBLAS)
        return err_set(err, ERR_USAGE, "--blas openblas is for the CPU's products: leave it out "
                       "where GPUs compute");
    if ((rc = gpu_choose(world, advice, out, err)) < 0 && gpus_per_node > 0)
        return err_context(err, "resources.gpus_per_node is %lld", (long long)gpus_per_node);
    return rc;
}

/* Warns that the run asks for GPUs which are not used. */
static void idle_tell(const struct opt_values *v, int64_t gpus_per_node, const struct comm *world)
{
    if (world->rank == 0 && gpus_per_node > 0 && kind_of(v, gpus_per_node) == COMPUTE_CPU)
        log_msg(LOG_WARN, "resources.gpus_per_node is %lld, and with --device cpu no GPU computes: "
                "leave out one of them", (long long)gpus_per_node);
}

int device_take(const struct opt_values *v, int64_t gpus_per_node, struct comm *world,
                struct compute_conf *out, struct err *err)
{
    return take(v, gpus_per_node, opt_bool(v, "share-gpu") ? NULL : "give --share-gpu", world, out,
                err);
}

/* Warns that this build has no NCCL, so GPUs exchange data through the host's memory. */
static void staged_tell(const struct comm *world)
{
    if (world->rank == 0)
        log_msg(LOG_WARN, "the CUDA backend was built without NCCL: what GPUs exchange goes "
                "through the host's memory, which is slow (--comm staged asks for it without a "
                "word)");
}

int device_comm_take(const struct opt_values *v, int64_t gpus_per_node, struct comm *world,
                     struct compute_conf *out, const struct coll_ops **coll, struct err *err)
{
    const struct cuda_backend *cuda;
    int comm = opt_enum(v, "comm"), rc;
    bool shared = opt_bool(v, "share-gpu"),
         staged = comm == COMM_STAGED || (comm == COMM_AUTO && shared);
    const char *advice = comm == COMM_NCCL ? "give --share-gpu with --comm staged"
                         : shared          ? NULL
                                           : "give --share-gpu";
    if (opt_given(v, "comm") && kind_of(v, gpus_per_node) != COMPUTE_CUDA)
        return err_set(err, ERR_USAGE, "--comm is for ranks that compute on GPUs: leave it out, or "
                       "add --device cuda");
    if ((rc = take(v, gpus_per_node, advice, world, out, err)) < 0)
        return rc;
    idle_tell(v, gpus_per_node, world);
    *coll = NULL;
    if (out->device != COMPUTE_CUDA || staged || world->size == 1)
        return 0;
    if ((rc = cuda_load(&cuda, err)) < 0)
        return rc;
    if (!cuda->coll->open && comm == COMM_AUTO) {
        staged_tell(world);
        return 0;
    }
    *coll = cuda->coll;
    return 0;
}

void device_name(const struct compute_conf *c, struct plan *plans, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!*plans[i].device)
            snprintf(plans[i].device, sizeof plans[i].device, "%s",
                     c->device == COMPUTE_CPU ? "cpu" : c->gpu_name);
}
