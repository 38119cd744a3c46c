#include "trainer/cmd/device.h"

#include <stddef.h>

#include "trainer/run/gpu.h"

enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
const char *const device_kinds[] = {"auto", "cpu", "cuda", NULL};
const char *const device_products[] = {"own", "openblas", NULL};

int device_take(const struct opt_values *v, int64_t gpus_per_node, struct comm *world,
                struct compute_conf *out, struct err *err)
{
    int device = opt_enum(v, "device"), rc;
    if (device == DEVICE_AUTO)
        device = gpus_per_node > 0 ? DEVICE_CUDA : DEVICE_CPU;
    *out = (struct compute_conf){
        .device = device == DEVICE_CUDA ? COMPUTE_CUDA : COMPUTE_CPU,
        .blas = opt_enum(v, "blas") == 1 ? OPS_BLAS_OPENBLAS : OPS_BLAS_OWN};
    if (device != DEVICE_CUDA && opt_bool(v, "share-gpu"))
        return err_set(err, ERR_USAGE, "--share-gpu is for ranks that compute on GPUs: leave it "
                       "out, or add --device cuda");
    if (device != DEVICE_CUDA)
        return 0;
    if (out->blas == OPS_BLAS_OPENBLAS)
        return err_set(err, ERR_USAGE, "--blas openblas is for the CPU's products: leave it out "
                       "where GPUs compute");
    if ((rc = gpu_choose(world, opt_bool(v, "share-gpu"), out, err)) < 0 && gpus_per_node > 0)
        return err_context(err, "resources.gpus_per_node is %lld", (long long)gpus_per_node);
    return rc;
}
