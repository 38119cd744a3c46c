/* hw: descriptions of devices, nodes and clusters (`reel.gpu/1`, `reel.cluster/1`): published peaks, memory, links, switch tree.
 *
 * Compiled-in: GPUs a100-sxm, h100-sxm, h200-sxm, b200; clusters dgx-a100, dgx-h100, dgx-h200, dgx-b200 (nodes given at use).
 * 'This CPU' is a device too: its peak is measured (FMA rate times the cores allotted) by `reel-train probe`.
 * The formats' essay is at the top of hw.c.
 */
#ifndef PROFILES_HW_H
#define PROFILES_HW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/json.h"
#include "base/limits.h"

struct device {
    char name[LIMIT_NAME_BYTES];
    char peak_source[LIMIT_NAME_BYTES]; /* "NVIDIA H100 datasheet, dense", "measured FMA rate x 2 cores" */
    double peak_flops[DTYPE_NUMBERS];   /* dense, by enum dtype; 0 = unknown: then no MFU is given */
    int64_t memory_bytes;
    double memory_bytes_per_s;
    double gemm_efficiency, attn_fwd_efficiency, attn_bwd_efficiency; /* of peak, priors; see autotune constants */
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
    struct device device;
    struct node_profile node;
    int64_t nodes;
    int64_t leaf_nodes;          /* nodes under one leaf switch; 0 = one flat switch */
    double spine_oversubscription; /* 1 = full bisection */
    int64_t max_nodes;           /* largest size the description holds for; 0 = any */
};

int device_load(const char *name_or_path, struct device *out, struct err *err);
int device_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct device *out, struct err *err);
void device_write(const struct device *d, struct json_out *o, const char *key);
/* "dgx-h100:8", "site.json" or "site.json:8"; nodes 0 in the file means the count must be given. */
int cluster_load(const char *spec, struct cluster *out, struct err *err);
int cluster_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct cluster *out, struct err *err);
void cluster_write(const struct cluster *c, struct json_out *o, const char *key);
int64_t cluster_devices(const struct cluster *c); /* nodes x devices */
/* Switches between two nodes: 0 same node, 1 same leaf (or flat), 3 through the spine. */
int cluster_hops(const struct cluster *c, int64_t node_a, int64_t node_b);
size_t device_names(const char *const **names);  /* compiled-in, ended by NULL; returns the count */
size_t cluster_names(const char *const **names);

#endif
