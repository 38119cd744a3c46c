#include "trainer/watch/activity.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "trainer/ops/cuda_load.h"

/* Returns whether the library was built with the same structs as this program. */
static bool is_ours(const struct activity_library *l)
{
    return l->facts_bytes == (int64_t)sizeof(struct activity_facts) &&
           l->result_bytes == (int64_t)sizeof(struct activity_result);
}

static int library_open(const struct activity_library **out, struct err *err)
{
    char path[PATH_MAX];
    activity_library_fn *entry;
    int rc;
    if ((rc = cuda_library_path("libreel-cupti.so", path, err)) < 0)
        return rc;
    if (access(path, F_OK) < 0)
        return err_set_errno(err, ERR_ENV, "%s: this build has no recorder of a GPU's activity",
                             path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return err_set(err, ERR_ENV, "the recorder of a GPU's activity does not load: %s",
                       dlerror());
    void *symbol = dlsym(handle, ACTIVITY_LIBRARY_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry); /* POSIX promises the bits; ISO C has no conversion */
    if (!symbol || !is_ours(entry())) {
        dlclose(handle);
        return err_set(err, ERR_ENV, "%s: the recorder of a GPU's activity is of another build "
                       "than this program: build and install both together", path);
    }
    *out = entry();
    return 0;
}

int activity_load(const struct activity_library **out, struct err *err)
{
    static const struct activity_library *loaded;
    int rc;
    if (!loaded && (rc = library_open(&loaded, err)) < 0)
        return rc;
    *out = loaded;
    return 0;
}
