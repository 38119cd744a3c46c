#include "launcher/machine/topo.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"

#if HWLOC_API_VERSION < 0x00020000
#error "hwloc 2.0 or newer is needed: XML of 1.x is not read"
#endif

static int topology_init(hwloc_topology_t *t, bool whole, struct err *err)
{
    if (hwloc_topology_init(t) < 0)
        return err_set_errno(err, ERR_NOMEM, "hwloc cannot make a topology");
    if (whole)
        hwloc_topology_set_flags(*t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(*t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    return 0;
}

int topo_capture(bool whole, struct str *xml, struct err *err)
{
    hwloc_topology_t t;
    char *buffer = NULL;
    int len = 0, rc = topology_init(&t, whole, err);
    if (rc < 0)
        return rc;
    if (hwloc_topology_load(t) < 0)
        rc = err_set_errno(err, ERR_ENV, "hwloc cannot read this machine's topology");
    else if (hwloc_topology_export_xmlbuffer(t, &buffer, &len, 0) < 0)
        rc = err_set_errno(err, ERR_IO, "hwloc cannot write the topology as XML");
    else
        str_addn(xml, buffer, len > 0 && buffer[len - 1] == 0 ? (size_t)len - 1 : (size_t)len);
    if (buffer)
        hwloc_free_xmlbuffer(t, buffer);
    hwloc_topology_destroy(t);
    return rc < 0 ? rc : str_check(xml, err);
}

static const char *info_get(hwloc_obj_t obj, const char *key)
{
    const char *value = obj ? hwloc_obj_get_info_by_name(obj, key) : NULL;
    return value ? value : "";
}

static const char *cpu_list(struct topo *t, hwloc_const_cpuset_t set)
{
    char *text = NULL;
    if (!set || hwloc_bitmap_list_asprintf(&text, set) < 0)
        return "";
    const char *kept = arena_strdup(&t->arena, text);
    free(text);
    return kept ? kept : "";
}

static int64_t count_inside(hwloc_topology_t top, hwloc_const_cpuset_t set, hwloc_obj_type_t type)
{
    return hwloc_get_nbobjs_inside_cpuset_by_type(top, set, type);
}

static int read_numa(hwloc_topology_t top, struct topo *t, struct err *err)
{
    t->n_numa = hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_NUMANODE);
    t->numa = arena_array(&t->arena, (size_t)t->n_numa, sizeof *t->numa);
    if (!t->numa)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    for (int64_t i = 0; i < t->n_numa; i++) {
        hwloc_obj_t o = hwloc_get_obj_by_type(top, HWLOC_OBJ_NUMANODE, (unsigned)i);
        t->numa[i] = (struct topo_numa){
            .os_index = o->os_index,
            .cores = count_inside(top, o->cpuset, HWLOC_OBJ_CORE),
            .pus = count_inside(top, o->cpuset, HWLOC_OBJ_PU),
            .memory_bytes = (int64_t)o->attr->numanode.local_memory,
            .cpus = cpu_list(t, o->cpuset),
        };
    }
    return 0;
}

/* Returns the PCI function that an OS device hangs under; NULL for virtual ones. */
static hwloc_obj_t pci_of(hwloc_obj_t obj)
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

/* Says whether an OS device is a NIC that carries training traffic. These are the InfiniBand/RoCE
 * ports of a card if it has any, else its network interface. */
static bool is_nic_os(hwloc_obj_t os)
{
    if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
        return true;
    if (os->attr->osdev.type != HWLOC_OBJ_OSDEV_NETWORK)
        return false;
    for (hwloc_obj_t o = os->parent->io_first_child; o; o = o->next_sibling)
        if (o->type == HWLOC_OBJ_OS_DEVICE && o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
            return false;
    return true;
}

static hwloc_obj_t os_child(hwloc_obj_t pci, hwloc_obj_osdev_type_t type, const char *prefix)
{
    for (hwloc_obj_t o = pci->io_first_child; o; o = o->next_sibling)
        if (o->type == HWLOC_OBJ_OS_DEVICE && o->attr->osdev.type == type &&
            (!prefix || str_starts(o->name, prefix)))
            return o;
    return NULL;
}

static void place(hwloc_topology_t top, struct topo *t, hwloc_obj_t obj, struct topo_device *d)
{
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(top, obj), pci = pci_of(obj);
    d->cpus = cpu_list(t, near->cpuset);
    d->numa = -1;
    int weight = hwloc_bitmap_weight(near->nodeset);
    if (weight == 1) {
        hwloc_obj_t node = hwloc_get_numanode_obj_by_os_index(
            top, (unsigned)hwloc_bitmap_first(near->nodeset));
        d->numa = node ? (int64_t)node->logical_index : -1;
    }
    d->near = -1;
    d->near_at = "";
    d->pci = "";
    if (pci) {
        struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;
        d->pci = arena_printf(&t->arena, "%04x:%02x:%02x.%01x", a->domain, a->bus, a->dev, a->func);
        d->link_bytes_per_s = (double)a->linkspeed * 1e9;
    }
}

/* Returns a GPU's memory in bytes as its backend tells it. NVML and CUDA tell KiB, others
 * nothing. */
static int64_t gpu_memory(hwloc_obj_t os)
{
    const char *text = info_get(os, "NVIDIAMemorySize");
    if (!*text)
        text = info_get(os, "CUDAGlobalMemorySize");
    return *text ? (int64_t)strtoll(text, NULL, 10) * 1024 : 0;
}

static void describe_gpu(struct topo *t, hwloc_obj_t pci, struct topo_device *d)
{
    hwloc_obj_t cuda = os_child(pci, HWLOC_OBJ_OSDEV_COPROC, "cuda"),
                nvml = os_child(pci, HWLOC_OBJ_OSDEV_GPU, "nvml");
    hwloc_obj_t any = cuda ? cuda : nvml ? nvml : os_child(pci, HWLOC_OBJ_OSDEV_GPU, NULL);
    const char *model = info_get(cuda ? cuda : nvml, "GPUModel");
    if (!*model)
        model = pci->name ? pci->name : info_get(pci, "PCIDevice");
    d->name = any && any->name ? arena_strdup(&t->arena, any->name) : d->pci;
    d->model = arena_strdup(&t->arena, model);
    d->memory_bytes = gpu_memory(nvml ? nvml : cuda);
}

static int read_devices(hwloc_topology_t top, struct topo *t, hwloc_obj_t *objs, struct err *err)
{
    int64_t max = hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_PCI_DEVICE) +
                  hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_OS_DEVICE);
    (void)err;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(top, o)) && t->n_devices < max;)
        if (is_gpu_pci(o)) {
            struct topo_device *d = &t->devices[t->n_devices];
            place(top, t, o, d);
            describe_gpu(t, o, d);
            d->kind = TOPO_GPU;
            objs[t->n_devices++] = o;
        }
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(top, o)) && t->n_devices < max;)
        if (is_nic_os(o)) {
            struct topo_device *d = &t->devices[t->n_devices];
            hwloc_obj_t pci = pci_of(o);
            place(top, t, o, d);
            d->kind = TOPO_NIC;
            d->name = arena_strdup(&t->arena, o->name ? o->name : "");
            d->model = arena_strdup(&t->arena,
                                    pci && pci->name ? pci->name : info_get(pci, "PCIDevice"));
            objs[t->n_devices++] = o;
        }
    return 0;
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
 * it is the one that the fewest GPUs use yet, so that eight NICs beside eight GPUs are paired one
 * to one. */
static void pair_nics(struct topo *t, hwloc_obj_t *objs)
{
    for (int64_t g = 0; g < t->n_devices && t->devices[g].kind == TOPO_GPU; g++) {
        int best_climb = 1 << 20;
        for (int64_t n = g + 1; n < t->n_devices; n++) {
            int climb;
            if (t->devices[n].kind != TOPO_NIC || !*t->devices[n].pci)
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
    for (int64_t g = 0; g < t->n_devices && t->devices[g].kind == TOPO_GPU; g++)
        if (t->devices[g].near >= 0)
            t->devices[g].near_shared = t->devices[t->devices[g].near].near_shared;
}

static int read_all(hwloc_topology_t top, struct topo *t, struct err *err)
{
    hwloc_obj_t root = hwloc_get_root_obj(top),
                package = hwloc_get_obj_by_type(top, HWLOC_OBJ_PACKAGE, 0);
    size_t max = (size_t)(hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_PCI_DEVICE) +
                          hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_OS_DEVICE));
    t->packages = hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_PACKAGE);
    t->cores = hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_CORE);
    t->pus = hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_PU);
    t->memory_bytes = (int64_t)root->total_memory;
    t->host = arena_strdup(&t->arena, info_get(root, "HostName"));
    t->arch = arena_strdup(&t->arena, info_get(root, "Architecture"));
    t->cpu_model = arena_strdup(&t->arena, info_get(package, "CPUModel"));
    t->devices = arena_array(&t->arena, max + 1, sizeof *t->devices);
    hwloc_obj_t *objs = arena_array(&t->arena, max + 1, sizeof *objs);
    if (!t->devices || !objs || !t->host || !t->arch || !t->cpu_model)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    int rc;
    if ((rc = read_numa(top, t, err)) < 0)
        return rc;
    if ((rc = read_devices(top, t, objs, err)) < 0)
        return rc;
    pair_nics(t, objs);
    return 0;
}

int topo_parse(const char *xml, size_t len, const char *source, struct topo *out, struct err *err)
{
    hwloc_topology_t top;
    struct topo t = {0};
    if (!strstr(xml, "<topology")) /* told here, before the XML library talks to stderr */
        return err_set(err, ERR_INPUT,
                       "%s: not an hwloc XML topology: make one with 'reel topo --dump-xml'",
                       source);
    int rc = topology_init(&top, true, err); /* the capture has left out what is to be left out */
    if (rc < 0)
        return rc;
    arena_init(&t.arena, 0);
    t.source = arena_strdup(&t.arena, source);
    /* hwloc wants the terminating zero to be counted in the length. */
    if (hwloc_topology_set_xmlbuffer(top, xml, (int)len + 1) < 0 || hwloc_topology_load(top) < 0)
        rc = err_set(
            err, ERR_INPUT,
            "%s: not an hwloc XML topology of format 2: make one with 'reel topo --dump-xml'",
            source);
    else
        rc = read_all(top, &t, err);
    hwloc_topology_destroy(top);
    if (rc < 0)
        topo_release(&t);
    else
        *out = t;
    return rc;
}

void topo_release(struct topo *t)
{
    arena_release(&t->arena);
    memset(t, 0, sizeof *t);
}

/* Reads the one line of a cgroup v2 control file; "" if there is no such file. */
static void cgroup_line(const char *name, char *line, size_t size)
{
    char path[256];
    struct str text = STR_INIT;
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s", name);
    line[0] = 0;
    if (file_read(path, 4096, &text, NULL) == 0)
        snprintf(line, size, "%s", text.p);
    str_release(&text);
}

void topo_allowed_read(struct topo_allowed *out)
{
    cpu_set_t set;
    char line[128];
    double quota, period;
    *out = (struct topo_allowed){0};
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        out->affinity_cpus = CPU_COUNT(&set);
    cgroup_line("cpu.max", line, sizeof line);
    if (sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0)
        out->quota_cpus = quota / period;
    cgroup_line("memory.max", line, sizeof line);
    out->memory_bytes = line[0] >= '0' && line[0] <= '9' ? (int64_t)strtoll(line, NULL, 10) : 0;
}

int64_t topo_usable_cpus(const struct topo *t, const struct topo_allowed *a)
{
    int64_t n = t->pus;
    if (a && a->affinity_cpus > 0)
        n = num_min_i64(n, a->affinity_cpus);
    if (a && a->quota_cpus > 0)
        n = num_min_i64(n, (int64_t)a->quota_cpus);
    return num_max_i64(n, 1);
}

int topo_check(const struct topo *t, struct err *err)
{
    int64_t pus = 0;
    bool nics_began = false;
    for (int64_t i = 0; i < t->n_numa; i++)
        pus += t->numa[i].pus;
    if (t->n_numa > 0 && pus < t->pus)
        return err_set(err, ERR_STATE, "%s: NUMA nodes hold %lld of %lld processing units",
                       t->source, (long long)pus, (long long)t->pus);
    for (int64_t i = 0; i < t->n_devices; i++) {
        const struct topo_device *d = &t->devices[i];
        nics_began |= d->kind == TOPO_NIC;
        if (nics_began && d->kind == TOPO_GPU)
            return err_set(err, ERR_STATE, "%s: GPU '%s' stands behind a NIC", t->source, d->name);
        if (d->near >= t->n_devices || (d->near >= 0 && t->devices[d->near].kind != TOPO_NIC))
            return err_set(err, ERR_STATE, "%s: '%s' is near device %lld, which is no NIC",
                           t->source, d->name, (long long)d->near);
        if (d->numa >= t->n_numa)
            return err_set(err, ERR_STATE, "%s: '%s' is on NUMA node %lld of %lld", t->source,
                           d->name, (long long)d->numa, (long long)t->n_numa);
    }
    return 0;
}

static void format_device(const struct topo *t, const struct topo_device *d, struct str *out)
{
    char bytes[32] = "";
    if (d->memory_bytes > 0)
        num_format_bytes(d->memory_bytes, bytes, sizeof bytes);
    str_addf(out, "  %-4s %-14s %-13s ", d->kind == TOPO_GPU ? "GPU" : "NIC", d->name, d->pci);
    if (d->numa >= 0)
        str_addf(out, "NUMA %-3lld ", (long long)d->numa);
    else
        str_addf(out, "NUMA -   ");
    str_addf(out, "cpus %-16s", *d->cpus ? d->cpus : "-");
    if (d->link_bytes_per_s > 0)
        str_addf(out, " PCI %.1f GB/s", d->link_bytes_per_s / 1e9);
    if (d->near >= 0)
        str_addf(out, " nearest NIC %s (%s%s)", t->devices[d->near].name, d->near_at,
                 d->near_shared > 1 ? ", shared" : "");
    str_addf(out, " %s %s\n", d->model, bytes);
}

void topo_format(const struct topo *t, const struct topo_allowed *a, struct str *out)
{
    char bytes[32];
    str_addf(out, "%s (%s): %lld package%s, %lld cores, %lld processing units, %s memory\n",
             *t->host ? t->host : "machine", t->source, (long long)t->packages,
             t->packages == 1 ? "" : "s", (long long)t->cores, (long long)t->pus,
             num_format_bytes(t->memory_bytes, bytes, sizeof bytes));
    if (*t->cpu_model)
        str_addf(out, "  CPU  %s\n", t->cpu_model);
    for (int64_t i = 0; i < t->n_numa; i++)
        str_addf(out, "  NUMA %-3lld cores %-4lld memory %-10s cpus %s\n", (long long)i,
                 (long long)t->numa[i].cores,
                 num_format_bytes(t->numa[i].memory_bytes, bytes, sizeof bytes), t->numa[i].cpus);
    for (int64_t i = 0; i < t->n_devices; i++)
        format_device(t, &t->devices[i], out);
    if (t->n_devices == 0 || t->devices[0].kind != TOPO_GPU)
        str_addf(out, "  no GPU seen\n");
    if (!a)
        return;
    str_addf(out, "  usable here: %lld of %lld processing units", (long long)topo_usable_cpus(t, a),
             (long long)t->pus);
    if (a->quota_cpus > 0)
        str_addf(out, " (cgroup quota %.2f)", a->quota_cpus);
    if (a->affinity_cpus > 0 && a->affinity_cpus < t->pus)
        str_addf(out, " (affinity mask %lld)", (long long)a->affinity_cpus);
    if (a->memory_bytes > 0)
        str_addf(out, ", memory limited to %s",
                 num_format_bytes(a->memory_bytes, bytes, sizeof bytes));
    str_addc(out, '\n');
}

static void write_device(const struct topo *t, const struct topo_device *d, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "kind", d->kind == TOPO_GPU ? "gpu" : "nic");
    json_put_text(o, "name", d->name);
    json_put_text(o, "model", d->model);
    json_put_text(o, "pci", d->pci);
    json_put_text(o, "cpus", d->cpus);
    json_put_int(o, "numa", d->numa);
    json_put_num(o, "link_bytes_per_s", d->link_bytes_per_s);
    json_put_int(o, "memory_bytes", d->memory_bytes);
    if (d->near >= 0) {
        json_put_text(o, "nearest_nic", t->devices[d->near].name);
        json_put_text(o, "nearest_nic_at", d->near_at);
        json_put_int(o, "nearest_nic_shared_by", d->near_shared);
    }
    json_obj_end(o);
}

void topo_write(const struct topo *t, const struct topo_allowed *a, const char *key,
                struct json_out *o)
{
    json_obj_begin(o, key);
    json_put_text(o, "schema", "reel.topo/1");
    json_put_text(o, "source", t->source);
    json_put_text(o, "host", t->host);
    json_put_text(o, "arch", t->arch);
    json_put_text(o, "cpu_model", t->cpu_model);
    json_put_int(o, "packages", t->packages);
    json_put_int(o, "cores", t->cores);
    json_put_int(o, "pus", t->pus);
    json_put_int(o, "memory_bytes", t->memory_bytes);
    json_arr_begin(o, "numa");
    for (int64_t i = 0; i < t->n_numa; i++) {
        json_obj_begin(o, NULL);
        json_put_int(o, "os_index", t->numa[i].os_index);
        json_put_int(o, "cores", t->numa[i].cores);
        json_put_int(o, "pus", t->numa[i].pus);
        json_put_int(o, "memory_bytes", t->numa[i].memory_bytes);
        json_put_text(o, "cpus", t->numa[i].cpus);
        json_obj_end(o);
    }
    json_arr_end(o);
    json_arr_begin(o, "devices");
    for (int64_t i = 0; i < t->n_devices; i++)
        write_device(t, &t->devices[i], o);
    json_arr_end(o);
    if (a) {
        json_obj_begin(o, "allowed");
        json_put_int(o, "usable_cpus", topo_usable_cpus(t, a));
        json_put_int(o, "affinity_cpus", a->affinity_cpus);
        json_put_num(o, "quota_cpus", a->quota_cpus);
        json_put_int(o, "memory_bytes", a->memory_bytes);
        json_obj_end(o);
    }
    json_obj_end(o);
}
