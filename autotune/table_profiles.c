#include <stdio.h>
#include <stdlib.h>

#include "autotune/table_priv.h"

static int devices_load(const char *const *names, struct table_profiles *p, struct err *err)
{
    for (size_t i = 0; i < p->n_devices; i++) {
        int rc = device_load(names[i], &p->devices[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int clusters_load(const char *const *names, struct table_profiles *p, struct err *err)
{
    for (size_t i = 0; i < p->n_clusters; i++) {
        char spec[LIMIT_NAME_BYTES];
        snprintf(spec, sizeof spec, "%s:1", names[i]);
        int rc = cluster_load(spec, &p->clusters[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int table_profiles_load(struct table_profiles *out, struct err *err)
{
    const char *const *devices, *const *clusters;
    struct table_profiles p = {.n_devices = device_names(&devices),
                               .n_clusters = cluster_names(&clusters)};
    int rc;
    p.devices = calloc(p.n_devices, sizeof *p.devices);
    p.clusters = calloc(p.n_clusters, sizeof *p.clusters);
    if (!p.devices || !p.clusters) {
        rc = err_set(err, ERR_NOMEM, "out of memory for the profiles of devices and clusters");
        goto out;
    }
    if ((rc = devices_load(devices, &p, err)) < 0)
        goto out;
    if ((rc = clusters_load(clusters, &p, err)) < 0)
        goto out;
    if ((rc = stacks_load(&p.stacks, err)) < 0)
        goto out;
    *out = p;
    p = (struct table_profiles){0}; /* the caller owns it now */
out:
    table_profiles_release(&p);
    return rc;
}

void table_profiles_release(struct table_profiles *p)
{
    free(p->devices);
    free(p->clusters);
    stacks_release(&p->stacks);
    *p = (struct table_profiles){0};
}
