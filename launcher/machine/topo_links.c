/* This file reads the links between GPUs from hwloc's matrices of bandwidths (hwloc/distances.h):
 * MB/s in one direction between GPUs, ports of switches and processors; 0: no link. Two GPUs that
 * reach a switch reach each other through it at the rate of the slower one, because NVSwitches are
 * a full mesh: hwloc's HWLOC_DISTANCES_TRANSFORM_MERGE_SWITCH_PORTS and _TRANSITIVE_CLOSURE give
 * the same. An hwloc that was built without NVML has no matrix. Then the links are those that the
 * driver reports for each GPU, which topo_notes.c has stored in the XML. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "launcher/machine/topo_priv.h"

/* These values stand for ends of a link that are no GPUs. */
enum { END_PROCESSOR = -1, END_SWITCH = -2, END_OTHER = -3 };
static const double BYTES_PER_MB = 1e6;

static const struct {
    const char *matrix, *kind;
} matrices[] = {
    {"NVLinkBandwidth", "NVLink"}, {"XGMIBandwidth", "XGMI"}, {"XeLinkBandwidth", "Xe Link"}};

static int64_t end_of(const struct topo *t, const hwloc_obj_t *objs, hwloc_obj_t obj)
{
    hwloc_obj_t pci = topo_pci_of(obj);
    for (int64_t i = 0; pci && i < t->n_gpus; i++)
        if (objs[i] == pci)
            return i;
    if (pci)
        return END_SWITCH;
    return obj && obj->type == HWLOC_OBJ_OS_DEVICE ? END_OTHER : END_PROCESSOR;
}

static void link_add(struct topo *t, int64_t from, int64_t to, double rate, double *to_switch)
{
    struct topo_links *l = &t->links;
    if (from < 0 || from == to)
        return;
    if (to >= 0)
        l->bytes_per_s[from * t->n_gpus + to] += rate;
    if (to == END_PROCESSOR)
        l->cpu_bytes_per_s[from] += rate;
    else if (to == END_SWITCH)
        to_switch[from] += rate;
    if (to >= 0 || to == END_SWITCH)
        l->gpu_bytes_per_s[from] += rate;
}

/* Adds, for every two GPUs with links to a switch, their link through it. */
static void switch_join(struct topo *t, const double *to_switch)
{
    for (int64_t a = 0; a < t->n_gpus; a++)
        for (int64_t b = 0; b < t->n_gpus; b++)
            if (a != b && to_switch[a] > 0 && to_switch[b] > 0) {
                double rate = to_switch[a] < to_switch[b] ? to_switch[a] : to_switch[b];
                t->links.bytes_per_s[a * t->n_gpus + b] += rate;
                t->links.switched = true;
            }
}

static int matrix_read(struct topo *t, const hwloc_obj_t *objs, const struct hwloc_distances_s *d,
                       struct err *err)
{
    int64_t *ends = arena_array(&t->arena, d->nbobjs + 1, sizeof *ends);
    double *to_switch = arena_array(&t->arena, (size_t)t->n_gpus, sizeof *to_switch);
    if (!ends || !to_switch)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    for (unsigned i = 0; i < d->nbobjs; i++)
        ends[i] = end_of(t, objs, d->objs[i]);
    for (unsigned i = 0; i < d->nbobjs; i++)
        for (unsigned k = 0; k < d->nbobjs; k++)
            link_add(t, ends[i], ends[k], (double)d->values[i * d->nbobjs + k] * BYTES_PER_MB,
                     to_switch);
    switch_join(t, to_switch);
    return 0;
}

static int64_t gpu_at(const struct topo *t, const char *pci)
{
    for (int64_t i = 0; i < t->n_gpus; i++)
        if (strcmp(t->devices[i].pci, pci) == 0)
            return i;
    return END_OTHER;
}

/* Parses a GPU's links from the driver's text, "switch*18" or "0000:1c:00.0*4,cpu*2". `each`: the
 * rate of one link, bytes/s. */
static void told_read(struct topo *t, int64_t gpu, const char *told, double each,
                      double *to_switch)
{
    char end[24];
    int links, used;
    for (; sscanf(told, "%23[^*]*%d%n", end, &links, &used) == 2; told += *told == ',') {
        int64_t to = strcmp(end, "switch") == 0 ? END_SWITCH
                     : strcmp(end, "cpu") == 0  ? END_PROCESSOR
                                                : gpu_at(t, end);
        link_add(t, gpu, to, links * each, to_switch);
        told += used;
    }
}

static int told_links(struct topo *t, const hwloc_obj_t *objs, struct err *err)
{
    double *to_switch = arena_array(&t->arena, (size_t)t->n_gpus, sizeof *to_switch);
    if (!to_switch)
        return err_set(err, ERR_NOMEM, "out of memory reading the topology");
    for (int64_t i = 0; i < t->n_gpus; i++)
        told_read(t, i, topo_info(objs[i], TOPO_NOTE_LINKS),
                  (double)topo_info_int(objs[i], TOPO_NOTE_LINK_MBPS, 0) * BYTES_PER_MB, to_switch);
    switch_join(t, to_switch);
    return 0;
}

static int links_alloc(struct topo *t, struct err *err)
{
    size_t n = (size_t)t->n_gpus;
    struct topo_links *l = &t->links;
    l->bytes_per_s = arena_array(&t->arena, n * n, sizeof *l->bytes_per_s);
    l->gpu_bytes_per_s = arena_array(&t->arena, n, sizeof *l->gpu_bytes_per_s);
    l->cpu_bytes_per_s = arena_array(&t->arena, n, sizeof *l->cpu_bytes_per_s);
    return l->bytes_per_s && l->gpu_bytes_per_s && l->cpu_bytes_per_s
               ? 0
               : err_set(err, ERR_NOMEM, "out of memory reading the topology");
}

static bool any_link(const struct topo *t)
{
    for (int64_t i = 0; i < t->n_gpus; i++)
        if (t->links.gpu_bytes_per_s[i] > 0 || t->links.cpu_bytes_per_s[i] > 0)
            return true;
    return false;
}

int topo_read_links(hwloc_topology_t top, struct topo *t, hwloc_obj_t *objs, struct err *err)
{
    struct hwloc_distances_s *d;
    int rc;
    if (t->n_gpus == 0 || t->n_gpus > TOPO_GPUS_LINKED)
        return 0;
    if ((rc = links_alloc(t, err)) < 0)
        return rc;
    for (size_t i = 0; !t->links.kind && i < ARRAY_LEN(matrices); i++) {
        unsigned n = 1;
        if (hwloc_distances_get_by_name(top, matrices[i].matrix, &n, &d, 0) < 0 || n == 0)
            continue;
        rc = matrix_read(t, objs, d, err);
        hwloc_distances_release(top, d);
        if (rc < 0)
            return rc;
        t->links.kind = any_link(t) ? matrices[i].kind : NULL;
    }
    if (t->links.kind)
        return 0;
    if ((rc = told_links(t, objs, err)) < 0)
        return rc;
    t->links.kind = any_link(t) ? "NVLink" : NULL;
    return 0;
}

double topo_links_even(const struct topo *t)
{
    double rate = t->links.kind && t->n_gpus > 1 ? t->links.bytes_per_s[1] : 0;
    for (int64_t a = 0; rate > 0 && a < t->n_gpus; a++)
        for (int64_t b = 0; b < t->n_gpus; b++)
            if (a != b && t->links.bytes_per_s[a * t->n_gpus + b] != rate)
                return 0;
    return rate;
}

/* Tells whether every GPU reaches every other over links, directly or through other GPUs. */
static bool connected(const struct topo *t)
{
    bool seen[TOPO_GPUS_LINKED] = {true}, more = true;
    int64_t n = 1;
    while (more) {
        more = false;
        for (int64_t a = 0; a < t->n_gpus; a++)
            for (int64_t b = 0; seen[a] && b < t->n_gpus; b++)
                if (!seen[b] && t->links.bytes_per_s[a * t->n_gpus + b] > 0) {
                    seen[b] = more = true;
                    n++;
                }
    }
    return n == t->n_gpus;
}

double topo_links_bytes_per_s(const struct topo *t)
{
    if (!t->links.kind || t->n_gpus < 2 || !connected(t))
        return 0;
    double least = t->links.gpu_bytes_per_s[0];
    for (int64_t i = 1; i < t->n_gpus; i++)
        least = t->links.gpu_bytes_per_s[i] < least ? t->links.gpu_bytes_per_s[i] : least;
    return least;
}
