/* This file finds GPUs and NICs, which of them are near each other, and the PCI switches that they
 * share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/machine/topo_priv.h"

hwloc_obj_t topo_pci_of(hwloc_obj_t obj)
{
    while (obj && obj->type != HWLOC_OBJ_PCI_DEVICE)
        obj = obj->parent;
    return obj;
}

static bool is_gpu_pci(hwloc_obj_t pci)
{
    unsigned base = pci->attr->pcidev.class_id >> 8;
    /* 0x03 is a display controller and 0x12 a processing accelerator. The on-board VGA of a server
     * is a display controller too, but has no memory to train on, so only vendors that build
     * accelerators count. */
    unsigned vendor = pci->attr->pcidev.vendor_id;
    return (base == 0x03 || base == 0x12) &&
           (vendor == 0x10de || vendor == 0x1002 || vendor == 0x8086);
}

/* Tells whether an OS device is a NIC that carries training traffic: an InfiniBand/RoCE port of a
 * card if it has any, else its network interface. */
static bool is_nic_os(hwloc_obj_t os)
{
    if (topo_os_is(os, HWLOC_OBJ_OSDEV_OPENFABRICS))
        return true;
    if (!topo_os_is(os, HWLOC_OBJ_OSDEV_NETWORK))
        return false;
    for (hwloc_obj_t o = os->parent->io_first_child; o; o = o->next_sibling)
        if (o->type == HWLOC_OBJ_OS_DEVICE && topo_os_is(o, HWLOC_OBJ_OSDEV_OPENFABRICS))
            return false;
    return true;
}

/* Returns the OS device of a GPU whose name begins with `prefix`, like "nvml0"; NULL: none. hwloc
 * releases differ in whether it is a GPU or a co-processor device. */
static hwloc_obj_t os_child(hwloc_obj_t pci, const char *prefix)
{
    for (hwloc_obj_t o = pci->io_first_child; o; o = o->next_sibling)
        if (o->type == HWLOC_OBJ_OS_DEVICE && o->name && str_starts(o->name, prefix) &&
            (topo_os_is(o, HWLOC_OBJ_OSDEV_GPU) || topo_os_is(o, HWLOC_OBJ_OSDEV_COPROC)))
            return o;
    return NULL;
}

static void place(hwloc_topology_t top, struct topo *t, hwloc_obj_t obj, struct topo_device *d)
{
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(top, obj), pci = topo_pci_of(obj);
    d->cpus = topo_cpu_list(t, near->cpuset);
    d->numa = -1;
    int weight = hwloc_bitmap_weight(near->nodeset);
    if (weight == 1) {
        hwloc_obj_t node = hwloc_get_numanode_obj_by_os_index(
            top, (unsigned)hwloc_bitmap_first(near->nodeset));
        d->numa = node ? (int64_t)node->logical_index : -1;
    }
    d->near = -1;
    d->near_at = "";
    d->pci = d->pci_id = "";
    d->ecc = d->mig = -1;
    if (pci) {
        struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;
        d->pci = arena_printf(&t->arena, "%04x:%02x:%02x.%01x", a->domain, a->bus, a->dev, a->func);
        d->pci_id = arena_printf(&t->arena, "%04x:%04x", a->vendor_id, a->device_id);
        d->link_bytes_per_s = (double)a->linkspeed * 1e9;
    }
}

/* Returns a GPU's memory in bytes, from hwloc's backends, which give KiB; 0: none gives it. */
static int64_t gpu_memory(hwloc_obj_t nvml, hwloc_obj_t cuda)
{
    const char *text = topo_info(nvml, "NVIDIAMemorySize");
    if (!*text)
        text = topo_info(cuda, "CUDAGlobalMemorySize");
    return *text ? (int64_t)strtoll(text, NULL, 10) * 1024 : 0;
}

static void describe_gpu(struct topo *t, hwloc_obj_t pci, struct topo_device *d)
{
    hwloc_obj_t cuda = os_child(pci, "cuda"), nvml = os_child(pci, "nvml"),
                any = cuda ? cuda : nvml ? nvml : os_child(pci, "");
    const char *model = topo_info(pci, TOPO_NOTE_MODEL);
    if (!*model)
        model = topo_info(cuda ? cuda : nvml, "GPUModel");
    if (!*model)
        model = pci->name ? pci->name : topo_info(pci, "PCIDevice");
    d->kind = TOPO_GPU;
    d->name = any ? arena_strdup(&t->arena, any->name) : d->pci;
    d->model = arena_strdup(&t->arena, model);
    d->memory_bytes = topo_info_int(pci, TOPO_NOTE_MEMORY, gpu_memory(nvml, cuda));
    d->driven = *topo_info(pci, TOPO_NOTE_MEMORY) != 0;
    d->sm_mhz = topo_info_int(pci, TOPO_NOTE_SM_MHZ, 0);
    d->sm_max_mhz = topo_info_int(pci, TOPO_NOTE_SM_MAX_MHZ, 0);
    d->ecc = topo_info_int(pci, TOPO_NOTE_ECC, -1);
    d->mig = topo_info_int(pci, TOPO_NOTE_MIG, -1);
}

static void describe_nic(struct topo *t, hwloc_obj_t os, struct topo_device *d)
{
    hwloc_obj_t pci = topo_pci_of(os);
    d->kind = TOPO_NIC;
    d->name = arena_strdup(&t->arena, os->name ? os->name : "");
    d->rate_bytes_per_s = (double)topo_info_int(os, TOPO_NOTE_RATE, 0) * 1e6;
    d->model =
        arena_strdup(&t->arena, pci && pci->name ? pci->name : topo_info(pci, "PCIDevice"));
}

static const char *ancestor_name(hwloc_obj_t o)
{
    if (o->type == HWLOC_OBJ_BRIDGE)
        return o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST ? "host bridge"
                                                                      : "PCI bridge";
    if (o->type == HWLOC_OBJ_MACHINE)
        return "machine";
    return o->type == HWLOC_OBJ_PACKAGE ? "package" : "NUMA node";
}

static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b, int *climb)
{
    int up = 0;
    for (hwloc_obj_t x = a; x; x = x->parent, up++)
        for (hwloc_obj_t y = b; y; y = y->parent)
            if (x == y) {
                *climb = up;
                return x;
            }
    return NULL;
}

/* Finds each GPU's nearest NIC: the one with the fewest steps up to a common ancestor. Among equals
 * it is the one that the fewest GPUs have so far, so that eight NICs beside eight GPUs are paired
 * one to one. */
static void pair_nics(struct topo *t, hwloc_obj_t *objs)
{
    for (int64_t g = 0; g < t->n_gpus; g++) {
        int best_climb = 1 << 20;
        for (int64_t n = t->n_gpus; n < t->n_devices; n++) {
            int climb;
            if (!*t->devices[n].pci)
                continue;
            hwloc_obj_t at = common_ancestor(objs[g], objs[n], &climb);
            int64_t now = t->devices[g].near;
            if (at &&
                (climb < best_climb || (climb == best_climb &&
                                        t->devices[n].near_shared < t->devices[now].near_shared))) {
                best_climb = climb;
                t->devices[g].near = n;
                t->devices[g].near_at = ancestor_name(at);
            }
        }
        if (t->devices[g].near >= 0)
            t->devices[t->devices[g].near].near_shared++;
    }
    for (int64_t g = 0; g < t->n_gpus; g++)
        if (t->devices[g].near >= 0)
            t->devices[g].near_shared = t->devices[t->devices[g].near].near_shared;
}

int topo_read_devices(hwloc_topology_t top, struct topo *t, hwloc_obj_t *objs, struct err *err)
{
    size_t max = (size_t)(hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_PCI_DEVICE) +
                          hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_OS_DEVICE));
    t->devices = arena_array(&t->arena, max + 1, sizeof *t->devices);
    if (!t->devices)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(top, o));)
        if (is_gpu_pci(o)) {
            place(top, t, o, &t->devices[t->n_devices]);
            describe_gpu(t, o, &t->devices[t->n_devices]);
            objs[t->n_devices++] = o;
        }
    t->n_gpus = t->n_devices;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(top, o));)
        if (is_nic_os(o)) {
            place(top, t, o, &t->devices[t->n_devices]);
            describe_nic(t, o, &t->devices[t->n_devices]);
            objs[t->n_devices++] = o;
        }
    pair_nics(t, objs);
    return 0;
}

/* ---- PCI switches ---- */

/* Returns the child of `bridge` above `obj`; NULL if obj is not below it. */
static hwloc_obj_t branch_of(hwloc_obj_t obj, hwloc_obj_t bridge)
{
    while (obj && obj->parent != bridge)
        obj = obj->parent;
    return obj;
}

/* Tells whether a bridge is the upper port of a switch: GPUs or NICs are below two or more of its
 * lower ports. Chains of bridges, and cards of several functions, are not switches. */
static bool is_switch(const struct topo *t, const hwloc_obj_t *objs, hwloc_obj_t bridge)
{
    hwloc_obj_t first = NULL;
    if (bridge->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_PCI)
        return false;
    for (int64_t i = 0; i < t->n_devices; i++) {
        hwloc_obj_t port = branch_of(objs[i], bridge);
        if (!port || port->type != HWLOC_OBJ_BRIDGE)
            continue;
        if (first && port != first)
            return true;
        first = port;
    }
    return false;
}

static int switch_describe(struct topo *t, const hwloc_obj_t *objs, hwloc_obj_t bridge,
                           struct topo_switch *s, struct err *err)
{
    struct hwloc_pcidev_attr_s *a = &bridge->attr->bridge.upstream.pci;
    s->pci = arena_printf(&t->arena, "%04x:%02x:%02x.%01x", a->domain, a->bus, a->dev, a->func);
    s->link_bytes_per_s = (double)a->linkspeed * 1e9;
    s->devices = arena_array(&t->arena, (size_t)t->n_devices, sizeof *s->devices);
    if (!s->pci || !s->devices)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    for (int64_t i = 0; i < t->n_devices; i++)
        if (branch_of(objs[i], bridge))
            s->devices[s->n_devices++] = i;
    return 0;
}

int topo_read_switches(hwloc_topology_t top, struct topo *t, hwloc_obj_t *objs, struct err *err)
{
    int max = hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_BRIDGE), rc;
    t->switches = arena_array(&t->arena, (size_t)max + 1, sizeof *t->switches);
    if (!t->switches)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_bridge(top, o));)
        if (is_switch(t, objs, o) &&
            (rc = switch_describe(t, objs, o, &t->switches[t->n_switches++], err)) < 0)
            return rc;
    return 0;
}
