/* profile: makes a `reel.cluster/1` of machines that topo has read and of the switches above them,
 * for cluster_load.
 *
 * The profile describes the largest group of machines with the same GPUs, links, cores and NICs.
 * Other machines are left out. Each value that does not come from the machines, or is unknown,
 * becomes a note of one sentence on its own line:
 *
 *   devices  the GPUs, known by PCI id or name; without GPUs the cores
 *   links    topo_links_bytes_per_s, but no more than the datasheet's rate; the datasheet's if
 *            neither hwloc nor the driver knows about links; GPUs without links use PCI
 *   NICs     those that are some GPU's nearest, or without GPUs the fastest; the rate of their
 *            ports, or else that of their PCI links
 *   leaves   the most frequent number of nodes below a switch; one flat switch if there is only one
 *
 * Latencies are NCCL's tuning constants (its Simple protocol: 3.4 us by NVLink, 5.7 by PCI, 14 by
 * network); between cores it is 1 us.
 */
#ifndef LAUNCHER_MACHINE_PROFILE_H
#define LAUNCHER_MACHINE_PROFILE_H

#include "launcher/machine/topo.h"
#include "profiles/hw.h"

struct profile_node {
    const char *name, *path;  /* the switches above it, "spine/leaf0"; "": unknown */
    const struct topo *topo;
};
struct profile_ask {
    const char *name;              /* of the cluster */
    const struct profile_node *nodes; /* in the order of their switches */
    size_t n;
    const struct device *device;   /* NULL: found by the GPUs' PCI id or name */
    double nic_bytes_per_s;        /* 0: taken from the NICs */
};

/* Makes the profile and adds the notes. ERR_INPUT: the GPUs are unknown, or there are none and no
 * device is given, or there are several nodes and the rate of their NICs is unknown. */
int profile_make(const struct profile_ask *ask, struct cluster *out, struct str *notes,
                 struct err *err);

#endif
