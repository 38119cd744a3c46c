/* Stands in for NVIDIA's libnvidia-ml.so.1. The first line of the file REEL_TEST_NVML is the
 * driver's release, and each other line is a GPU:
 *     0000:01:00.0 85520809984 1980 1980 1 0 switch*18 NVIDIA H100 80GB HBM3
 * The fields are address, memory, SM clock, the highest SM clock, ECC, MIG (-1: not supported),
 * links ("-": none) and model. Without the file, initializing the library fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, MAX_GPUS = 16, MAX_LINKS = 18, MBPS = 26562 };
struct gpu {
    unsigned bus;
    long long memory;
    int sm, sm_max, ecc, mig, n_links;
    char ends[MAX_LINKS][24], model[96];
};
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};
static struct gpu gpus[MAX_GPUS];
static char release[96];
static unsigned n_gpus;

static void links_parse(struct gpu *g, char *text)
{
    for (char *word = strtok(text, ","); word && *word != '-'; word = strtok(NULL, ",")) {
        char *star = strchr(word, '*');
        int n = star ? atoi(star + 1) : 1;
        for (int i = 0; i < n && g->n_links < MAX_LINKS; i++)
            snprintf(g->ends[g->n_links++], sizeof g->ends[0], "%.*s",
                     (int)(star ? star - word : 23), word);
    }
}

int nvmlInit_v2(void)
{
    const char *path = getenv("REEL_TEST_NVML");
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[512], links[256];
    if (!f)
        return DRIVER_NOT_LOADED;
    if (fgets(release, sizeof release, f))
        release[strcspn(release, "\n")] = 0;
    for (n_gpus = 0; n_gpus < MAX_GPUS && fgets(line, sizeof line, f); n_gpus++) {
        struct gpu *g = &gpus[n_gpus];
        *g = (struct gpu){0};
        sscanf(line, "0000:%x:00.0 %lld %d %d %d %d %255s %95[^\n]", &g->bus, &g->memory, &g->sm,
               &g->sm_max, &g->ecc, &g->mig, links, g->model);
        links_parse(g, links);
    }
    fclose(f);
    return OK;
}
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "%s", release);
    return OK;
}
int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = n_gpus;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct gpu **gpu)
{
    *gpu = &gpus[i];
    return OK;
}
int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, struct pci *pci)
{
    *pci = (struct pci){.bus = gpu->bus};
    return OK;
}
int nvmlDeviceGetName(struct gpu *gpu, char *text, unsigned size)
{
    snprintf(text, size, "%s", gpu->model);
    return OK;
}
int nvmlDeviceGetMemoryInfo(struct gpu *gpu, unsigned long long memory[3])
{
    memory[0] = (unsigned long long)gpu->memory;
    return OK;
}
static int told(int value, int *out)
{
    *out = value;
    return value < 0 ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetApplicationsClock(struct gpu *gpu, int kind, int *mhz)
{
    return kind == 1 ? told(gpu->sm, mhz) : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxClockInfo(struct gpu *gpu, int kind, int *mhz)
{
    return kind == 1 ? told(gpu->sm_max, mhz) : NOT_SUPPORTED;
}
int nvmlDeviceGetEccMode(struct gpu *gpu, int *now, int *pending)
{
    *pending = 0;
    return told(gpu->ecc, now);
}
int nvmlDeviceGetMigMode(struct gpu *gpu, int *now, int *pending)
{
    *pending = 0;
    return told(gpu->mig, now);
}
int nvmlDeviceGetNvLinkState(struct gpu *gpu, unsigned link, int *active)
{
    *active = (int)link < gpu->n_links;
    return *active ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(struct gpu *gpu, unsigned link, int *type)
{
    const char *end = gpu->ends[link];
    *type = strcmp(end, "switch") == 0 ? 2 : strcmp(end, "cpu") == 0 ? 1 : 0;
    return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct gpu *gpu, unsigned link, struct pci *pci)
{
    *pci = (struct pci){0};
    return sscanf(gpu->ends[link], "0000:%x", &pci->bus) == 1 ? OK : NOT_SUPPORTED;
}
/* Fills in values of fields. In each entry the number of the field is at byte 0, the result of the
 * query at byte 28, and the value at byte 32. */
int nvmlDeviceGetFieldValues(struct gpu *gpu, int n, char *values)
{
    unsigned field, rate = MBPS;
    int result = OK;
    (void)gpu;
    memcpy(&field, values, sizeof field);
    if (n != 1 || field != 90)
        return NOT_SUPPORTED;
    memcpy(values + 28, &result, sizeof result);
    memcpy(values + 32, &rate, sizeof rate);
    return OK;
}
