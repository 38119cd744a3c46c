#include "trainer/ops/cuda_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char library[] = "libreel-cuda.so";

/* Writes the path of the backend: beside the program, or what REEL_CUDA_LIBRARY says. */
static int backend_path(char path[PATH_MAX], struct err *err)
{
    const char *given = getenv("REEL_CUDA_LIBRARY");
    if (given && *given) {
        if (snprintf(path, PATH_MAX, "%s", given) >= PATH_MAX)
            return err_set(err, ERR_LIMIT, "REEL_CUDA_LIBRARY: the path is too long");
        return 0;
    }
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - sizeof library);
    if (n < 0)
        return err_set_errno(err, ERR_ENV, "/proc/self/exe: this program's own folder is unknown");
    path[n] = '\0';
    char *name = strrchr(path, '/');
    memcpy(name ? name + 1 : path, library, sizeof library);
    return 0;
}

int cuda_library_path(const char *name, char path[PATH_MAX], struct err *err)
{
    int rc;
    if ((rc = backend_path(path, err)) < 0)
        return rc;
    char *last = strrchr(path, '/'), *at = last ? last + 1 : path;
    size_t room = PATH_MAX - (size_t)(at - path);
    return (size_t)snprintf(at, room, "%s", name) < room
               ? 0
               : err_set(err, ERR_LIMIT, "REEL_CUDA_LIBRARY: the path is too long");
}

/* Returns whether the library was compiled with the same structs as this program. */
static bool is_ours(const struct cuda_backend *b)
{
    return b->dev_bytes == (int64_t)sizeof(struct dev) &&
           b->ops_bytes == (int64_t)sizeof(struct ops) &&
           b->coll_bytes == (int64_t)sizeof(struct coll_ops);
}

static int library_open(const struct cuda_backend **out, struct err *err)
{
    char path[PATH_MAX];
    cuda_backend_fn *entry;
    int rc;
    if ((rc = backend_path(path, err)) < 0)
        return rc;
    if (access(path, F_OK) < 0)
        return err_set_errno(err, ERR_ENV,
                             "%s: this build has no CUDA backend; build it where nvcc is "
                             "(make CUDA=1), or compute on the CPU (--device cpu)", path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return err_set(err, ERR_ENV, "the CUDA backend does not load: %s", dlerror());
    void *symbol = dlsym(handle, CUDA_BACKEND_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry); /* ISO C cannot convert it; POSIX promises the bits */
    if (!symbol || !is_ours(entry())) {
        dlclose(handle);
        return err_set(err, ERR_ENV,
                       "%s: the CUDA backend is of another build than this program: build and "
                       "install both together", path);
    }
    *out = entry();
    return 0;
}

int cuda_load(const struct cuda_backend **out, struct err *err)
{
    static const struct cuda_backend *loaded;
    int rc;
    if (!loaded && (rc = library_open(&loaded, err)) < 0)
        return rc;
    *out = loaded;
    return 0;
}
