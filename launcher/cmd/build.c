#include "launcher/cmd/build.h"

#include <stdio.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/num.h"
#include "launcher/machine/driver.h"

int build_programs_check(const char *bin_dir, struct err *err)
{
    static const char *const names[] = {"reel", "reel-train"};
    char path[LIMIT_PATH_BYTES + 16];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", bin_dir, names[i]);
        if (access(path, X_OK) != 0)
            return err_set_errno(err, ERR_ENV, "cannot run '%s', which the job needs", path);
    }
    return 0;
}

int build_gpus_check(const char *bin_dir, const struct run *run, const char *run_path,
                     struct err *err)
{
    long long gpus = run->resources.gpus_per_node, ranks = run->resources.ranks_per_node;
    char path[LIMIT_PATH_BYTES + 32];
    if (gpus == 0)
        return 0;
    snprintf(path, sizeof path, "%s/libreel-cuda.so", bin_dir);
    if (access(path, R_OK) != 0)
        return err_set(err, ERR_INPUT,
                       "%s: resources.gpus_per_node is %lld, and this build of reel-train has no "
                       "CUDA backend (%s): leave it out, or build where nvcc is", run_path, gpus,
                       path);
    if (gpus == ranks)
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: resources.gpus_per_node is %lld and ranks_per_node %lld: each rank "
                   "computes on one GPU, so give both the same number", run_path, gpus, ranks);
}

int build_here_check(const struct run *run, const char *run_path, struct err *err)
{
    struct driver d = {0};
    struct err why = {0};
    long long gpus = run->resources.gpus_per_node, n;
    if (gpus == 0)
        return 0;
    int rc = driver_read(&d, &why);
    n = (long long)d.n;
    driver_release(&d);
    if (rc == ERR_NOMEM)
        return err_set(err, rc, "%s", why.text);
    if (n >= gpus)
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: resources.gpus_per_node is %lld, and this machine, on which the job would "
                   "run, has %lld%s%s: leave it out, or launch where there are as many", run_path,
                   gpus, n, rc < 0 ? ": " : "", rc < 0 ? why.text : "");
}
