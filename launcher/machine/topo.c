#include "launcher/machine/topo.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "launcher/machine/topo_priv.h"

/* XML of format 2 is read by every hwloc that reel builds with. */
#if HWLOC_API_VERSION >= 0x00030000
enum { XML_FLAGS = HWLOC_TOPOLOGY_EXPORT_XML_FLAG_V2 };
#else
enum { XML_FLAGS = 0 };
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
    if (hwloc_topology_load(t) < 0) {
        rc = err_set_errno(err, ERR_ENV, "hwloc cannot read this machine's topology");
        goto out;
    }
    topo_note(t);
    if (hwloc_topology_export_xmlbuffer(t, &buffer, &len, XML_FLAGS) < 0)
        rc = err_set_errno(err, ERR_IO, "hwloc cannot write the topology as XML");
    else
        str_addn(xml, buffer, len > 0 && buffer[len - 1] == 0 ? (size_t)len - 1 : (size_t)len);
out:
    if (buffer)
        hwloc_free_xmlbuffer(t, buffer);
    hwloc_topology_destroy(t);
    if (rc < 0)
        return rc;
    return str_check(xml, err);
}

const char *topo_info(hwloc_obj_t obj, const char *key)
{
    const char *value = obj ? hwloc_obj_get_info_by_name(obj, key) : NULL;
    return value ? value : "";
}

int64_t topo_info_int(hwloc_obj_t obj, const char *key, int64_t otherwise)
{
    const char *text = topo_info(obj, key);
    int64_t value;
    return *text && num_parse_i64(text, key, &value, NULL) == 0 ? value : otherwise;
}

const char *topo_cpu_list(struct topo *t, hwloc_const_cpuset_t set)
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
            .cpus = topo_cpu_list(t, o->cpuset),
        };
    }
    return 0;
}

/* Returns the value that hwloc stores for the whole machine under this key. hwloc 3 keeps such
 * values outside its objects. */
static const char *machine_info(hwloc_topology_t top, const char *key)
{
    const char *value = topo_info(hwloc_get_root_obj(top), key);
#if HWLOC_API_VERSION >= 0x00030000
    if (!*value)
        value = hwloc_get_info_by_name(hwloc_topology_get_infos(top), key);
#else
    (void)top;
#endif
    return value ? value : "";
}

/* Counts the processing units that are in no NUMA node: a cpuset may include units and exclude
 * their node. */
static int read_apart(hwloc_topology_t top, struct topo *t, struct err *err)
{
    hwloc_bitmap_t left = hwloc_bitmap_dup(hwloc_get_root_obj(top)->cpuset);
    if (!left)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(top, HWLOC_OBJ_NUMANODE, o));)
        hwloc_bitmap_andnot(left, left, o->cpuset);
    t->pus_apart = count_inside(top, left, HWLOC_OBJ_PU);
    t->cpus_apart = topo_cpu_list(t, left);
    hwloc_bitmap_free(left);
    return 0;
}

/* Returns, as a list, the GPUs that the driver has and hwloc does not. */
static const char *unseen_list(hwloc_topology_t top, struct topo *t)
{
    const struct hwloc_obj *root = hwloc_get_root_obj(top);
    const char *list = "";
    for (unsigned i = 0; list && i < INFOS_N(root); i++)
        if (strcmp(INFOS(root)[i].name, TOPO_NOTE_UNSEEN) == 0)
            list = arena_printf(&t->arena, "%s%s%s", list, *list ? ", " : "", INFOS(root)[i].value);
    return list;
}

static int read_machine(hwloc_topology_t top, struct topo *t, struct err *err)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(top, HWLOC_OBJ_PACKAGE, 0);
    t->packages = hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_PACKAGE);
    t->cores = hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_CORE);
    t->pus = hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_PU);
    t->memory_bytes = (int64_t)hwloc_get_root_obj(top)->total_memory;
    t->host = arena_strdup(&t->arena, machine_info(top, "HostName"));
    t->arch = arena_strdup(&t->arena, machine_info(top, "Architecture"));
    t->cpu_model = arena_strdup(&t->arena, topo_info(package, "CPUModel"));
    t->driver = arena_strdup(&t->arena, machine_info(top, TOPO_NOTE_DRIVER));
    t->driver_error = arena_strdup(&t->arena, machine_info(top, TOPO_NOTE_DRIVER_ERROR));
    t->unseen = unseen_list(top, t);
    if (!t->host || !t->arch || !t->cpu_model || !t->driver || !t->driver_error || !t->unseen)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    int rc;
    if ((rc = read_numa(top, t, err)) < 0)
        return rc;
    return read_apart(top, t, err);
}

static int read_all(hwloc_topology_t top, struct topo *t, struct err *err)
{
    size_t max = (size_t)(hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_PCI_DEVICE) +
                          hwloc_get_nbobjs_by_type(top, HWLOC_OBJ_OS_DEVICE));
    hwloc_obj_t *objs = arena_array(&t->arena, max + 1, sizeof *objs);
    int rc;
    if (!objs)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    if ((rc = read_machine(top, t, err)) < 0)
        return rc;
    if ((rc = topo_read_devices(top, t, objs, err)) < 0)
        return rc;
    if ((rc = topo_read_switches(top, t, objs, err)) < 0)
        return rc;
    return topo_read_links(top, t, objs, err);
}

/* Refuses text that hwloc cannot read as a topology, before hwloc's XML library prints to
 * stderr. */
static int format_check(const char *xml, const char *source, struct err *err)
{
    const char *at = strstr(xml, "<topology"), *version = at ? strstr(at, "version=\"") : NULL;
    if (!at)
        return err_set(err, ERR_INPUT,
                       "%s: not an hwloc XML topology: make one with 'reel topo --dump-xml'",
                       source);
    if (HWLOC_API_VERSION >= 0x00030000 || !version || version > strchr(at, '>'))
        return 0;
    version += strlen("version=\"");
    if (strtol(version, NULL, 10) <= 2)
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: an hwloc XML topology of format %.*s, and this reel was built with hwloc "
                   HWLOC_VERSION ", which reads format 2: make it with 'reel topo --dump-xml', or "
                   "with 'lstopo --export-xml-flags v2'",
                   source, (int)strcspn(version, "\""), version);
}

int topo_parse(const char *xml, size_t len, const char *source, struct topo *out, struct err *err)
{
    hwloc_topology_t top;
    struct topo t = {0};
    int rc;
    if ((rc = format_check(xml, source, err)) < 0)
        return rc;
    /* topo_capture has left out what this process may not use, unless `whole` was true. */
    if ((rc = topology_init(&top, true, err)) < 0)
        return rc;
    arena_init(&t.arena, 0);
    t.source = arena_strdup(&t.arena, source);
    /* The length that hwloc expects includes the terminating zero. */
    if (hwloc_topology_set_xmlbuffer(top, xml, (int)len + 1) < 0 || hwloc_topology_load(top) < 0)
        rc = err_set(
            err, ERR_INPUT,
            "%s: not an hwloc XML topology that can be read: make one with 'reel topo --dump-xml'",
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
    int64_t pus = t->pus_apart;
    for (int64_t i = 0; i < t->n_numa; i++)
        pus += t->numa[i].pus;
    if (pus < t->pus)
        return err_set(err, ERR_STATE,
                       "%s: %lld of %lld processing units are in NUMA nodes or known to be in none",
                       t->source, (long long)pus, (long long)t->pus);
    for (int64_t i = 0; i < t->n_devices; i++) {
        const struct topo_device *d = &t->devices[i];
        if ((d->kind == TOPO_GPU) != (i < t->n_gpus))
            return err_set(err, ERR_STATE, "%s: '%s' stands in the other kind's place", t->source,
                           d->name);
        if (d->near >= t->n_devices || (d->near >= 0 && t->devices[d->near].kind != TOPO_NIC))
            return err_set(err, ERR_STATE, "%s: '%s' is near device %lld, which is no NIC",
                           t->source, d->name, (long long)d->near);
        if (d->numa >= t->n_numa)
            return err_set(err, ERR_STATE, "%s: '%s' is on NUMA node %lld of %lld", t->source,
                           d->name, (long long)d->numa, (long long)t->n_numa);
    }
    return 0;
}

