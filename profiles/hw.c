/* This file reads and writes the formats reel.gpu/1 and reel.cluster/1. The tables below say what
 * each field means; `reel format device` and `reel format cluster` are made from them.
 *
 * Peaks are dense, per device. A dtype left out, or 0, is unknown, and then no MFU is given for it.
 * Efficiencies are priors in (0, 1]: starting values that measurements replace. Those of matrix
 * products come from the best cases in github.com/stas00/ml-engineering (A100 271, H100 and H200
 * 795, B200 1745, B300 1769, GB200 1822 TFLOP/s; GB300 has B300's share). Those of attention come
 * from FlashAttention-3's table (H100), from cuDNN 9.19's (H200, GB200, GB300; GB200's row also
 * stands for B200, GB300's for B300), and from "about 70 %" for FlashAttention-2 on A100.
 *
 * Each curve names its source. Curves are medians: of SimuMax's per-shape efficiencies (A100 PCIe,
 * B200), of cudnn-frontend's attention and norm benchmarks (H200, GB200, GB300), of nccl-tests'
 * tables in ml-engineering. A device without published values has the shares of the device with the
 * same processors, and its source says so. On B200 the smallest side of a product predicts its
 * efficiency better than its FLOPs (held-out error of single shapes 9.4 against 10.5 %; 11 % by
 * the nearest of all shapes); on A100 the FLOPs are better (4.7 against 5.2 %).
 *
 * Memory is what nvidia-smi prints. The driver's own part is that minus the total capacity that
 * PyTorch prints (79.15, 39.39, 79.10, 139.80, 178.35 GiB on A100 80, A100 40, H100, H200, B200;
 * B200's for the other Blackwells). It varies between drivers by 0.2 GiB.
 *
 * PCI ids are from the pci.ids database of 2023; newer devices are recognised by the name that
 * their driver gives them.
 *
 * NVL72 racks have 18 nodes of 4 devices in one NVLink domain; elsewhere a node is a domain.
 *
 * The switch tree has two levels: nodes [k·leaf_nodes, (k+1)·leaf_nodes) share leaf k, and all
 * leaves share the spine. For DGX, a scalable unit of NVIDIA's reference designs is one leaf group
 * (20 nodes for A100, 32 after). Latencies are NCCL's own tuning constants for its Simple protocol
 * on NVLink and network. That of a switch is from the datasheet of the Quantum QM8790, which DGX
 * A100 uses, 130 ns; it also stands for later switches.
 */
#include "profiles/hw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "profiles/catalog.h"
#include "profiles/field.h"
#include "profiles/format.h"

size_t device_names(const char *const **names)
{
    *names = catalog_gpu_names;
    return catalog_count(&catalog_gpus);
}

size_t cluster_names(const char *const **names)
{
    *names = catalog_cluster_names;
    return catalog_count(&catalog_clusters);
}

/* ---- devices ---- */

struct device_text {
    const char *name, *peak_source, *pci_id, *driver_name;
    struct device d;
};

#define AT(field) offsetof(struct device_text, field)
static const struct json_field device_fields[] = {
    {"schema", JSON_ANY, 0, .optional = true, .help = "\"reel.gpu/1\""},
    {"name", JSON_TEXT, AT(name), .optional = false, .help = "of the device"},
    {"peak_source", JSON_TEXT, AT(peak_source), .optional = false,
     .help = "where the peaks are from"},
    {"pci_id", JSON_TEXT, AT(pci_id), .optional = true,
     .help = "vendor and device of its PCI function, \"10de:2330\"; several with a comma between; "
             "reel topo knows it by this"},
    {"driver_name", JSON_TEXT, AT(driver_name), .optional = true,
     .help = "what its driver calls it, \"NVIDIA H100 80GB HBM3\"; likewise"},
    {"peak_flops", JSON_ANY, 0, .optional = false,
     .help = "object: dense peaks of one device, FLOP/s"},
    {"memory_bytes", JSON_INT, AT(d.memory_bytes), .min = 1, .max = 0x1p50,
     .help = "what the driver reports as total"},
    {"reserved_bytes", JSON_INT, AT(d.reserved_bytes), .optional = true, .min = 0, .max = 0x1p50,
     .help = "what the driver keeps of it: the rest is what a program sees as total"},
    {"memory_bytes_per_s", JSON_NUM, AT(d.memory_bytes_per_s), .min = 0, .max = 1e18,
     .help = "the datasheet's"},
    {"link_bytes_per_s", JSON_NUM, AT(d.link_bytes_per_s), .optional = true, .min = 0, .max = 1e18,
     .help = "to its peers inside a node, one direction; 0: unknown"},
    {"gemm_efficiency", JSON_NUM, AT(d.gemm_efficiency), .min = 1e-3, .max = 1,
     .help = "share of the peak that large bf16 matrix products reach; a starting value, as "
             "the next two"},
    {"attn_fwd_efficiency", JSON_NUM, AT(d.attn_fwd_efficiency), .min = 1e-3, .max = 1,
     .help = "the same for fused attention, head dim 128, no mask, 8k tokens"},
    {"attn_bwd_efficiency", JSON_NUM, AT(d.attn_bwd_efficiency), .min = 1e-3, .max = 1,
     .help = "and its backward, counted as 2.5 times the forward's FLOPs"},
    {"curves", JSON_ANY, 0, .optional = true,
     .help = "array of at most 20 curves: what others measured at each size; predictions read "
             "those of attention"},
    {"cpu", JSON_BOOL, AT(d.cpu), .optional = true, .help = "a processor, whose peak is measured"},
};
#undef AT
#define PEAK(dtype)                                                                                \
    offsetof(struct device, peak_flops) + (dtype) * sizeof(double), .optional = true,              \
        .min = 0, .max = 1e20
static const struct json_field peak_fields[] = {
    {"f64", JSON_NUM, PEAK(DTYPE_F64), .help = "0 or left out: unknown, and no MFU is given"},
    {"f32", JSON_NUM, PEAK(DTYPE_F32), .help = "likewise"},
    {"bf16", JSON_NUM, PEAK(DTYPE_BF16), .help = "likewise"},
    {"fp8", JSON_NUM, PEAK(DTYPE_FP8), .help = "likewise"},
};
#undef PEAK

int device_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct device *out,
                struct err *err)
{
    struct device_text t = {0};
    const cJSON *peak_flops = json_member(obj, "peak_flops");
    char peaks[LIMIT_NAME_BYTES];
    int rc;
    field_path(peaks, sizeof peaks, path, "peak_flops");
    if ((rc = json_read(doc, obj, path, device_fields, ARRAY_LEN(device_fields), NULL, &t,
                        err)) < 0)
        return rc;
    if ((rc = json_read(doc, peak_flops, peaks, peak_fields, ARRAY_LEN(peak_fields), NULL, &t.d,
                        err)) < 0)
        return rc;
    if ((rc = catalog_check_inner_schema(&catalog_gpus, doc, obj, path, err)) < 0)
        return rc;
    if ((rc = field_copy_text(t.d.name, sizeof t.d.name, t.name, doc, path, "name", err)) < 0)
        return rc;
    if ((rc = field_copy_text(t.d.peak_source, sizeof t.d.peak_source, t.peak_source, doc, path,
                              "peak_source", err)) < 0)
        return rc;
    if (t.pci_id && (rc = field_copy_text(t.d.pci_id, sizeof t.d.pci_id, t.pci_id, doc, path,
                                          "pci_id", err)) < 0)
        return rc;
    if (t.driver_name && (rc = field_copy_text(t.d.driver_name, sizeof t.d.driver_name,
                                               t.driver_name, doc, path, "driver_name", err)) < 0)
        return rc;
    if (t.d.reserved_bytes >= t.d.memory_bytes)
        return err_set(err, ERR_INPUT,
                       "%s: device %s reserves %lld of its %lld bytes: give a reserved_bytes below "
                       "memory_bytes",
                       doc->name, t.d.name, (long long)t.d.reserved_bytes,
                       (long long)t.d.memory_bytes);
    if ((rc = curves_read(doc, obj, path, &t.d.curves, err)) < 0)
        return rc;
    *out = t.d;
    return 0;
}

void device_write(const struct device *d, struct json_out *o, const char *key)
{
    json_obj_begin(o, key);
    json_put_text(o, "schema", catalog_gpus.schema);
    json_put_text(o, "name", d->name);
    json_put_text(o, "peak_source", d->peak_source);
    if (d->pci_id[0])
        json_put_text(o, "pci_id", d->pci_id);
    if (d->driver_name[0])
        json_put_text(o, "driver_name", d->driver_name);
    json_obj_begin(o, "peak_flops");
    for (int i = 0; dtype_names[i]; i++)
        json_put_num(o, dtype_names[i], d->peak_flops[i]);
    json_obj_end(o);
    json_put_int(o, "memory_bytes", d->memory_bytes);
    json_put_int(o, "reserved_bytes", d->reserved_bytes);
    json_put_num(o, "memory_bytes_per_s", d->memory_bytes_per_s);
    json_put_num(o, "link_bytes_per_s", d->link_bytes_per_s);
    json_put_num(o, "gemm_efficiency", d->gemm_efficiency);
    json_put_num(o, "attn_fwd_efficiency", d->attn_fwd_efficiency);
    json_put_num(o, "attn_bwd_efficiency", d->attn_bwd_efficiency);
    curves_write(&d->curves, o);
    json_put_bool(o, "cpu", d->cpu);
    json_obj_end(o);
}

int device_load(const char *name_or_path, struct device *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = catalog_open(&catalog_gpus, name_or_path, &doc, err)) < 0)
        return rc;
    rc = device_read(&doc, doc.root, "", out, err);
    json_release(&doc);
    return rc;
}

/* Says whether a list separated by commas contains this word. */
static bool in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; n > 0 && *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || !p[n]))
            return true;
    return false;
}

int device_find(const char *pci_id, const char *driver_name, struct device *out, struct err *err)
{
    const char *const *names;
    char whole[LIMIT_NAME_BYTES];
    struct device d;
    size_t n = device_names(&names);
    int rc;
    snprintf(whole, sizeof whole, "NVIDIA %s", driver_name);
    for (int by_name = 0; by_name < 2; by_name++)
        for (size_t i = 0; i < n; i++) {
            if ((rc = device_load(names[i], &d, err)) < 0)
                return rc;
            if (by_name ? in_list(d.driver_name, driver_name) || in_list(d.driver_name, whole)
                        : in_list(d.pci_id, pci_id)) {
                *out = d;
                return 0;
            }
        }
    return err_set(err, ERR_NOT_FOUND, "no device is known as '%s', PCI %s", driver_name, pci_id);
}

/* ---- clusters ---- */

struct cluster_text {
    const char *name, *sources;
    struct cluster c;
};

#define AT(field) offsetof(struct cluster_text, c.field)
static const struct json_field cluster_fields[] = {
    {"schema", JSON_ANY, 0, .optional = true, .help = "\"reel.cluster/1\""},
    {"name", JSON_TEXT, offsetof(struct cluster_text, name), .optional = false,
     .help = "of the cluster"},
    {"device", JSON_ANY, 0, .optional = false,
     .help = "name of a compiled-in device, or an object reel.gpu/1"},
    {"nodes", JSON_INT, AT(nodes), .min = 0, .max = LIMIT_RANKS,
     .help = "machines; 0: given at use, as dgx-h100:8"},
    {"max_nodes", JSON_INT, AT(max_nodes), .optional = true, .min = 0, .max = LIMIT_RANKS,
     .help = "the description holds up to so many; 0: any number"},
    {"node", JSON_ANY, 0, .optional = false, .help = "object: one machine"},
    {"domain_nodes", JSON_INT, AT(domain_nodes), .optional = true, .min = 1, .max = LIMIT_RANKS,
     .help = "consecutive nodes, counted from node 0, whose devices share one NVLink domain: "
             "between them link_bytes_per_s holds and no network interface is used"},
    {"leaf_nodes", JSON_INT, AT(leaf_nodes), .optional = true, .min = 0, .max = LIMIT_RANKS,
     .help = "nodes under one leaf switch, counted from node 0; 0: one flat switch"},
    {"spine_oversubscription", JSON_NUM, AT(spine_oversubscription), .optional = true, .min = 1,
     .max = 1000,
     .help = "a leaf's downlink over its uplink bandwidth; 1: full bisection"},
    {"switch_latency_s", JSON_NUM, AT(switch_latency_s), .optional = true, .min = 0, .max = 1,
     .help = "of one more switch on the way: between leaves there are three; 0: not known"},
    {"sources", JSON_TEXT, offsetof(struct cluster_text, sources), .optional = true,
     .help = "beginnings of what published tables name as the source of runs on it, parted by "
             "commas"},
};
#undef AT
#define AT(field) offsetof(struct node_profile, field)
static const struct json_field node_fields[] = {
    {"devices", JSON_INT, AT(devices), .min = 1, .max = 4096, .help = "in it"},
    {"link_bytes_per_s", JSON_NUM, AT(link_bytes_per_s), .min = 1, .max = 1e18,
     .help = "device to device inside the node, one direction (of processors: memory)"},
    {"link_latency_s", JSON_NUM, AT(link_latency_s), .min = 0, .max = 1,
     .help = "of one message there"},
    {"nics", JSON_INT, AT(nics), .min = 0, .max = 4096, .help = "network interfaces"},
    {"nic_bytes_per_s", JSON_NUM, AT(nic_bytes_per_s), .min = 0, .max = 1e18,
     .help = "of each, one direction"},
    {"nic_latency_s", JSON_NUM, AT(nic_latency_s), .min = 0, .max = 1,
     .help = "of one message to another node"},
    {"cores", JSON_INT, AT(cores), .min = 1, .max = 1 << 20, .help = "of its processors"},
    {"memory_bytes", JSON_INT, AT(memory_bytes), .min = 1, .max = 0x1p50, .help = "of the host"},
};
#undef AT

static const struct cluster_text cluster_defaults = {.sources = "",
                                                     .c.domain_nodes = 1,
                                                     .c.spine_oversubscription = 1};

static int cluster_device(const struct json_doc *doc, const cJSON *obj, const char *path,
                          struct device *out, struct err *err)
{
    const cJSON *device = json_member(obj, "device");
    char where[LIMIT_NAME_BYTES];
    field_path(where, sizeof where, path, "device");
    if (!cJSON_IsString(device))
        return device_read(doc, device, where, out, err);
    int rc = device_load(device->valuestring, out, err);
    return rc < 0 ? err_context(err, "%s: %s", doc->name, where) : 0;
}

static int cluster_rules(const struct cluster *c, const char *where, struct err *err)
{
    if (c->max_nodes && c->nodes > c->max_nodes)
        return err_set(err, ERR_INPUT,
                       "%s: cluster %s has %lld nodes, its description holds for 1 to %lld: give "
                       "fewer",
                       where, c->name, (long long)c->nodes, (long long)c->max_nodes);
    if (c->leaf_nodes % c->domain_nodes != 0)
        return err_set(err, ERR_INPUT,
                       "%s: cluster %s has domains of %lld nodes and leaves of %lld: give a "
                       "leaf_nodes that domain_nodes divides",
                       where, c->name, (long long)c->domain_nodes, (long long)c->leaf_nodes);
    if (c->nodes != 1 && (c->node.nics == 0 || c->node.nic_bytes_per_s < 1))
        return err_set(err, ERR_INPUT,
                       "%s: cluster %s has several nodes but no network: give node.nics and "
                       "node.nic_bytes_per_s of 1 or more",
                       where, c->name);
    return 0;
}

static int cluster_read(const struct json_doc *doc, const cJSON *obj, const char *path,
                        struct cluster *out, struct err *err)
{
    struct cluster_text t = cluster_defaults;
    char node[LIMIT_NAME_BYTES];
    int rc;
    field_path(node, sizeof node, path, "node");
    if ((rc = json_read(doc, obj, path, cluster_fields, ARRAY_LEN(cluster_fields), NULL, &t,
                        err)) < 0)
        return rc;
    if ((rc = catalog_check_inner_schema(&catalog_clusters, doc, obj, path, err)) < 0)
        return rc;
    if ((rc = field_copy_text(t.c.name, sizeof t.c.name, t.name, doc, path, "name", err)) < 0)
        return rc;
    if (*t.sources && (rc = field_copy_text(t.c.sources, sizeof t.c.sources, t.sources, doc, path,
                                            "sources", err)) < 0)
        return rc;
    if ((rc = json_read(doc, json_member(obj, "node"), node, node_fields, ARRAY_LEN(node_fields),
                        NULL, &t.c.node, err)) < 0)
        return rc;
    if ((rc = cluster_device(doc, obj, path, &t.c.device, err)) < 0)
        return rc;
    if ((rc = cluster_rules(&t.c, doc->name, err)) < 0)
        return rc;
    *out = t.c;
    return 0;
}

void cluster_write(const struct cluster *c, struct json_out *o, const char *key)
{
    json_obj_begin(o, key);
    json_put_text(o, "schema", catalog_clusters.schema);
    json_put_text(o, "name", c->name);
    device_write(&c->device, o, "device");
    json_put_int(o, "nodes", c->nodes);
    json_put_int(o, "max_nodes", c->max_nodes);
    json_obj_begin(o, "node");
    field_write_table(o, node_fields, ARRAY_LEN(node_fields), &c->node);
    json_obj_end(o);
    json_put_int(o, "domain_nodes", c->domain_nodes);
    json_put_int(o, "leaf_nodes", c->leaf_nodes);
    json_put_num(o, "spine_oversubscription", c->spine_oversubscription);
    json_put_num(o, "switch_latency_s", c->switch_latency_s);
    if (*c->sources)
        json_put_text(o, "sources", c->sources);
    json_obj_end(o);
}

/* Splits "dgx-h100:8" into base "dgx-h100" and *nodes 8; without a colon *nodes is 0. A colon in
 * another component than the last of a path belongs to the path. */
static int spec_split(const char *spec, char *base, size_t size, int64_t *nodes, struct err *err)
{
    const char *slash = strrchr(spec, '/'), *colon = strrchr(slash ? slash : spec, ':');
    size_t len = colon ? (size_t)(colon - spec) : strlen(spec);
    int rc;
    *nodes = 0;
    if (len >= size)
        return err_set(err, ERR_INPUT,
                       "cluster '%.60s...' is longer than %zu bytes: give a name or a shorter path",
                       spec, size - 1);
    snprintf(base, size, "%.*s", (int)len, spec);
    if (!colon)
        return 0;
    if ((rc = num_parse_i64(colon + 1, "cluster: the number of nodes", nodes, err)) < 0)
        return rc;
    if (*nodes < 1 || *nodes > LIMIT_RANKS)
        return err_set(err, ERR_INPUT, "cluster '%s': %lld nodes: give 1 to %d", spec,
                       (long long)*nodes, LIMIT_RANKS);
    return 0;
}

bool cluster_has_source(const struct cluster *c, const char *source)
{
    const char *list = c->sources;
    while (*list) {
        size_t item = strcspn(list, ",");
        if (strncasecmp(list, source, item) == 0)
            return true;
        list += item;
        list += strspn(list, ", ");
    }
    return false;
}

int cluster_load(const char *spec, struct cluster *out, struct err *err)
{
    char base[LIMIT_PATH_BYTES];
    int64_t nodes;
    struct json_doc doc = {0};
    struct cluster c = {0};
    int rc;
    if ((rc = spec_split(spec, base, sizeof base, &nodes, err)) < 0)
        return rc;
    if ((rc = catalog_open(&catalog_clusters, base, &doc, err)) < 0)
        return rc;
    rc = cluster_read(&doc, doc.root, "", &c, err);
    json_release(&doc);
    if (rc < 0)
        return rc;
    if (nodes)
        c.nodes = nodes;
    if (c.nodes == 0)
        return err_set(err, ERR_INPUT, "cluster '%s' has no number of nodes: give it as %s:N", spec,
                       base);
    if ((rc = cluster_rules(&c, spec, err)) < 0)
        return rc;
    *out = c;
    return 0;
}

int64_t cluster_devices(const struct cluster *c)
{
    return c->nodes * c->node.devices;
}

int64_t cluster_domain_devices(const struct cluster *c)
{
    return c->domain_nodes * c->node.devices;
}

int64_t cluster_leaf_devices(const struct cluster *c)
{
    return c->leaf_nodes * c->node.devices;
}

int cluster_hops(const struct cluster *c, int64_t node_a, int64_t node_b)
{
    if (node_a / c->domain_nodes == node_b / c->domain_nodes)
        return 0;
    return c->leaf_nodes == 0 || node_a / c->leaf_nodes == node_b / c->leaf_nodes ? 1 : 3;
}

/* ---- groups of devices ---- */

/* Describes a group with the members first, first + stride, ... In the functions below a box is a
 * node or a domain, given by its number of devices. */
struct group { int64_t first, stride, n; };

static int64_t members_below(const struct group *g, int64_t device)
{
    return device <= g->first ? 0
                              : num_min_i64(g->n, num_ceil_div(device - g->first, g->stride));
}

static int64_t last_member(const struct group *g) { return g->first + g->stride * (g->n - 1); }

static int64_t boxes_met(const struct group *g, int64_t box)
{
    return g->stride >= box ? g->n : last_member(g) / box - g->first / box + 1;
}

static int64_t most_in_box(const struct group *g, int64_t box)
{
    int64_t most = 0, at_most = num_min_i64(g->n, num_ceil_div(box, g->stride));
    for (int64_t b = g->first / box; b <= last_member(g) / box && most < at_most; b++)
        most = num_max_i64(most, members_below(g, (b + 1) * box) - members_below(g, b * box));
    return most;
}

struct cluster_span cluster_span(const struct cluster *c, int64_t first, int64_t stride, int64_t n)
{
    const struct group g = {first, stride, n};
    int64_t node = c->node.devices, domain = cluster_domain_devices(c);
    return (struct cluster_span){.nodes = boxes_met(&g, node),
                                 .domains = boxes_met(&g, domain),
                                 .in_node = most_in_box(&g, node),
                                 .in_domain = most_in_box(&g, domain),
                                 .hops = cluster_hops(c, first / node, last_member(&g) / node)};
}

/* ---- their pages ---- */

size_t device_format(struct format_part *out)
{
    static const struct device_text t;
    out[0] = (struct format_part){"", device_fields, ARRAY_LEN(device_fields), &t};
    out[1] = (struct format_part){"peak_flops", peak_fields, ARRAY_LEN(peak_fields), NULL};
    curves_format(&out[2]);
    return 3;
}

size_t cluster_format(struct format_part *out)
{
    out[0] = (struct format_part){"", cluster_fields, ARRAY_LEN(cluster_fields), &cluster_defaults};
    out[1] = (struct format_part){"node", node_fields, ARRAY_LEN(node_fields), NULL};
    return 2;
}
