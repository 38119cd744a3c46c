/* Replaces nccl.c in a build without NCCL: no communicator opens. */
#include "trainer/cuda/cuda_priv.h"

static int none_check(struct err *err)
{
    return err_set(err, ERR_ENV,
                   "NCCL: the CUDA backend was built without it: build it where nccl.h is (make "
                   "NCCL_HOME=FOLDER), or let what GPUs exchange go through the host's memory "
                   "(--comm staged)");
}

const struct coll_ops coll_nccl = {.name = "NCCL", .check = none_check};
