/* driver: reads the release of NVIDIA's driver, and each GPU's model, memory, clocks, ECC, MIG and
 * NVLinks, through the driver's library NVML (libnvidia-ml.so.1). The library comes with the driver
 * and is loaded in driver_read, so reel can be built and run without it.
 *
 *     struct driver d;
 *     if (driver_read(&d, &why) == 0)  …  driver_release(&d);
 */
#ifndef LAUNCHER_MACHINE_DRIVER_H
#define LAUNCHER_MACHINE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct driver_gpu {
    char pci[24]; /* "0000:1b:00.0" */
    char model[96];
    int64_t memory_bytes;
    /* the SM clock that the driver sets for programs (applications clock), and the highest one,
     * MHz; 0: unknown */
    unsigned sm_mhz, sm_max_mhz;
    int ecc, mig; /* 1: on, 0: off, -1: unknown */
    /* the other ends of its active NVLinks with the links to each, "switch*18" or
     * "0000:1c:00.0*4,cpu*2"; "": none */
    struct str links;
    unsigned link_mbps; /* of one link, MB/s in one direction; 0: unknown */
};
struct driver {
    char release[96]; /* "550.54.15" */
    struct driver_gpu *gpus;
    size_t n;
};

/* Reads from the driver. ERR_NOT_FOUND: this machine has no NVML. ERR_ENV: the driver gave an
 * error, for example because its kernel module is not loaded. */
int driver_read(struct driver *out, struct err *err);
void driver_release(struct driver *d);

#endif
