/* hw: describes devices, nodes and clusters (`reel.gpu/1`, `reel.cluster/1`): published peaks,
 * memory, links, switch tree.
 *
 * The files of profiles/gpus and profiles/clusters are compiled into the program; such a cluster
 * gets its number of nodes when it is named. The CPU that the program runs on is a device too:
 * `reel-train probe` measures its peak (FMA rate times the cores allotted). The formats are the
 * tables of hw.c.
 */
#ifndef PROFILES_HW_H
#define PROFILES_HW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/json.h"
#include "base/limits.h"
#include "profiles/curve.h"

struct device {
    char name[LIMIT_NAME_BYTES];
    /* "NVIDIA H100 datasheet, dense", "measured FMA rate x 2 cores" */
    char peak_source[LIMIT_NAME_BYTES];
    /* the names that its PCI function and its driver give it, "10de:2330", "NVIDIA H100 80GB HBM3";
     * several are separated by commas; "": not known */
    char pci_id[LIMIT_NAME_BYTES], driver_name[LIMIT_NAME_BYTES];
    /* dense, by enum dtype; 0 = unknown: then no MFU is given */
    double peak_flops[DTYPE_NUMBERS];
    int64_t memory_bytes;   /* what the driver reports as total */
    int64_t reserved_bytes; /* the driver's own part of it, which no program sees */
    double memory_bytes_per_s;
    /* to its peers inside a node, one direction; 0: unknown */
    double link_bytes_per_s;
    /* shares of the peak; starting values that measurements replace */
    double gemm_efficiency, attn_fwd_efficiency, attn_bwd_efficiency;
    struct curves curves; /* published values by size; predictions do not read them */
    bool cpu;
};
struct node_profile {
    int64_t devices;
    double link_bytes_per_s;  /* one direction, device to device inside the node */
    double link_latency_s;
    int64_t nics;
    double nic_bytes_per_s;   /* one direction, each */
    double nic_latency_s;
    int64_t cores;
    int64_t memory_bytes;
};
struct cluster {
    char name[LIMIT_NAME_BYTES];
    /* beginnings of what published tables name as the source of runs on it: "BLOOM-tr11, ..." */
    char sources[LIMIT_NAME_BYTES];
    struct device device;
    struct node_profile node;
    int64_t nodes;
    /* this many consecutive nodes, counted from node 0, share one NVLink domain: between their
     * devices no NIC is used, and node.link_bytes_per_s holds; 1: each node is a domain */
    int64_t domain_nodes;
    int64_t leaf_nodes;          /* nodes under one leaf switch; 0 = one flat switch */
    double spine_oversubscription; /* 1 = full bisection */
    double switch_latency_s;       /* of each further switch on the way; 0: not known */
    int64_t max_nodes;           /* largest size the description holds for; 0 = any */
};

/* Returns the memory that a program finds on an empty device. */
static inline int64_t device_usable_bytes(const struct device *d)
{ return d->memory_bytes - d->reserved_bytes; }
/* Tells whether a table's source is one of the cluster's. */
bool cluster_has_source(const struct cluster *c, const char *source);
int device_load(const char *name_or_path, struct device *out, struct err *err);
/* Finds the compiled-in device with this PCI id, else with this driver name (old drivers leave out
 * "NVIDIA "). ERR_NOT_FOUND: there is none. */
int device_find(const char *pci_id, const char *driver_name, struct device *out, struct err *err);
int device_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct device *out,
                struct err *err);
void device_write(const struct device *d, struct json_out *o, const char *key);
/* Loads "dgx-h100:8", "site.json" or "site.json:8". The number of nodes must be given if the file
 * says 0. */
int cluster_load(const char *spec, struct cluster *out, struct err *err);
void cluster_write(const struct cluster *c, struct json_out *o, const char *key);
int64_t cluster_devices(const struct cluster *c); /* nodes x devices */
int64_t cluster_domain_devices(const struct cluster *c); /* of a whole NVLink domain */
int64_t cluster_leaf_devices(const struct cluster *c); /* under one leaf; 0: the switch is flat */
/* Returns the number of network switches between two nodes: 0 for the same node and inside one
 * NVLink domain, 1 under one leaf (or a flat switch), 3 through the spine. */
int cluster_hops(const struct cluster *c, int64_t node_a, int64_t node_b);
/* Says over how many parts of a cluster a group of devices is spread. The members are first, first
 * + stride, ... Devices are numbered node by node. */
struct cluster_span {
    int64_t nodes, domains;     /* nodes and domains that have a member */
    int64_t in_node, in_domain; /* greatest number of members in one node, in one domain */
    int hops;                   /* greatest number of switches between members; 0: no NIC */
};
/* Returns the spread of n members, 1 or more, at a stride of 1 or more. Its running time grows with
 * the number of domains only if the stride does not divide the devices of a domain. */
struct cluster_span cluster_span(const struct cluster *c, int64_t first, int64_t stride, int64_t n);
/* Sets *names to the compiled-in names, ended by NULL; returns their number. */
size_t device_names(const char *const **names);
size_t cluster_names(const char *const **names);

#endif
