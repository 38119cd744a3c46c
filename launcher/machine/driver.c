/* This file declares NVML's types and numbers from its manual (NVML API Reference Guide), because
 * NVML's header comes only with the CUDA toolkit. If a driver lacks a function, or a GPU does not
 * support it, its value stays unknown. */
#include "launcher/machine/driver.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *device_t;
struct pci_info {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
struct memory {
    unsigned long long total, free, used;
};
struct field_value {
    unsigned field, scope;
    long long timestamp, latency_us;
    int type, result;
    union {
        double number;
        unsigned count;
        unsigned long long large;
    } value;
};
enum {
    CLOCK_SM = 1,
    FIELD_LINK_MBPS = 90, /* NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON */
    REMOTE_GPU = 0,
    REMOTE_CPU = 1,
    REMOTE_SWITCH = 2,
    MAX_LINKS = 36
};

/* Lists the functions, which all return int: the name here, the library's name, the arguments. A
 * driver that lacks one of the first NEEDED functions is refused. */
#define NVML_FUNCTIONS(X)                                                                          \
    X(init, "nvmlInit_v2", (void))                                                                 \
    X(shutdown, "nvmlShutdown", (void))                                                            \
    X(release, "nvmlSystemGetDriverVersion", (char *, unsigned))                                   \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *))                                                \
    X(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, device_t *))                             \
    X(pci, "nvmlDeviceGetPciInfo_v3", (device_t, struct pci_info *))                               \
    X(model, "nvmlDeviceGetName", (device_t, char *, unsigned))                                    \
    X(memory, "nvmlDeviceGetMemoryInfo", (device_t, struct memory *))                              \
    X(clock, "nvmlDeviceGetApplicationsClock", (device_t, int, unsigned *))                        \
    X(clock_max, "nvmlDeviceGetMaxClockInfo", (device_t, int, unsigned *))                         \
    X(ecc, "nvmlDeviceGetEccMode", (device_t, int *, int *))                                       \
    X(mig, "nvmlDeviceGetMigMode", (device_t, unsigned *, unsigned *))                             \
    X(link_state, "nvmlDeviceGetNvLinkState", (device_t, unsigned, int *))                         \
    X(link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2", (device_t, unsigned, struct pci_info *))    \
    X(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", (device_t, unsigned, int *))               \
    X(fields, "nvmlDeviceGetFieldValues", (device_t, int, struct field_value *))
#define MEMBER(name, symbol, arguments) int(*name) arguments;
struct nvml {
    void *library;
    NVML_FUNCTIONS(MEMBER)
};
enum { NEEDED = 6 }; /* number of functions needed to identify GPUs */

static int library_open(struct nvml *n, struct err *err)
{
    *n = (struct nvml){.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!n->library)
        return err_set(err, ERR_NOT_FOUND, "there is no NVIDIA driver here: %s", dlerror());
    int k = 0;
    const char *missing = NULL;
#define LOAD(name, symbol, arguments)                                                              \
    *(void **)&n->name = dlsym(n->library, symbol);                                                \
    if (k++ < NEEDED && !n->name)                                                                  \
        missing = symbol;
    NVML_FUNCTIONS(LOAD)
    if (!missing)
        return 0;
    dlclose(n->library);
    return err_set(err, ERR_ENV, "the driver's libnvidia-ml.so.1 has no %s: it is too old",
                   missing);
}

static void pci_text(const struct pci_info *pci, char *text, size_t size)
{
    snprintf(text, size, "%04x:%02x:%02x.0", pci->domain, pci->bus, pci->device);
}

/* Writes into text where a link's other end is; "" if the driver does not say it. */
static void link_end(const struct nvml *n, device_t gpu, unsigned link, char *text, size_t size)
{
    struct pci_info pci = {0};
    int type = -1;
    text[0] = 0;
    if (n->link_type && n->link_type(gpu, link, &type) != 0)
        type = -1;
    if (type == REMOTE_SWITCH)
        snprintf(text, size, "switch");
    else if (type == REMOTE_CPU)
        snprintf(text, size, "cpu");
    else if (n->link_pci && n->link_pci(gpu, link, &pci) == 0)
        pci_text(&pci, text, size);
}

/* Reads a GPU's active links. Links to the same end become one entry with their number,
 * "switch*18". */
static void links_read(const struct nvml *n, device_t gpu, struct driver_gpu *out)
{
    char ends[MAX_LINKS][24] = {{0}};
    struct field_value rate = {.field = FIELD_LINK_MBPS};
    for (unsigned i = 0; n->link_state && i < MAX_LINKS; i++) {
        int active = 0;
        if (n->link_state(gpu, i, &active) != 0)
            break;
        if (active)
            link_end(n, gpu, i, ends[i], sizeof ends[i]);
    }
    for (int i = 0; i < MAX_LINKS; i++) {
        int same = 0, before = 0;
        for (int k = 0; k < MAX_LINKS; k++)
            if (strcmp(ends[i], ends[k]) == 0) {
                same++;
                before += k < i;
            }
        if (ends[i][0] && !before)
            str_addf(&out->links, "%s%s*%d", out->links.len ? "," : "", ends[i], same);
    }
    if (out->links.len && n->fields && n->fields(gpu, 1, &rate) == 0 && rate.result == 0)
        out->link_mbps = rate.value.count;
}

static void gpu_read(const struct nvml *n, device_t gpu, struct driver_gpu *out)
{
    struct memory memory = {0};
    unsigned mig = 0, pending;
    int ecc = 0, next;
    if (n->model)
        n->model(gpu, out->model, sizeof out->model);
    if (n->memory && n->memory(gpu, &memory) == 0)
        out->memory_bytes = (int64_t)memory.total;
    if (!n->clock || n->clock(gpu, CLOCK_SM, &out->sm_mhz) != 0)
        out->sm_mhz = 0;
    if (!n->clock_max || n->clock_max(gpu, CLOCK_SM, &out->sm_max_mhz) != 0)
        out->sm_max_mhz = 0;
    out->ecc = n->ecc && n->ecc(gpu, &ecc, &next) == 0 ? ecc != 0 : -1;
    out->mig = n->mig && n->mig(gpu, &mig, &pending) == 0 ? mig != 0 : -1;
    links_read(n, gpu, out);
}

static int gpus_read(const struct nvml *n, struct driver *out, struct err *err)
{
    unsigned count = 0;
    if (n->release(out->release, sizeof out->release) != 0 || n->count(&count) != 0)
        return err_set(err, ERR_ENV, "the NVIDIA driver does not tell of its GPUs: see nvidia-smi");
    out->gpus = calloc(count + 1, sizeof *out->gpus);
    if (!out->gpus)
        return err_set(err, ERR_NOMEM, "out of memory for %u GPUs", count);
    for (unsigned i = 0; i < count; i++) {
        struct pci_info pci = {0};
        device_t gpu;
        /* A GPU that fell off the bus has no handle and is left out; topo_disagree reports it. */
        if (n->handle(i, &gpu) != 0 || n->pci(gpu, &pci) != 0)
            continue;
        pci_text(&pci, out->gpus[out->n].pci, sizeof out->gpus->pci);
        gpu_read(n, gpu, &out->gpus[out->n++]);
    }
    return 0;
}

int driver_read(struct driver *out, struct err *err)
{
    struct driver d = {0};
    struct nvml n;
    int rc;
    if ((rc = library_open(&n, err)) < 0)
        return rc;
    rc = n.init();
    if (rc != 0) {
        dlclose(n.library);
        return err_set(err, ERR_ENV,
                       "the NVIDIA driver cannot be asked (NVML error %d): see nvidia-smi", rc);
    }
    rc = gpus_read(&n, &d, err);
    n.shutdown();
    dlclose(n.library);
    if (rc < 0)
        driver_release(&d);
    else
        *out = d;
    return rc;
}

void driver_release(struct driver *d)
{
    for (size_t i = 0; i < d->n; i++)
        str_release(&d->gpus[i].links);
    free(d->gpus);
    *d = (struct driver){0};
}
