/* This file adds facts that hwloc does not know to hwloc's objects, before these become XML: the
 * rates of NICs, and the driver's data about GPUs. So a captured machine has them like a live
 * one. */
#include <stdio.h>

#include "launcher/machine/driver.h"
#include "launcher/machine/rate.h"
#include "launcher/machine/topo_priv.h"

static void note(hwloc_obj_t obj, const char *key, const char *value)
{
    if (*value)
        hwloc_obj_add_info(obj, key, value);
}

static void note_int(hwloc_obj_t obj, const char *key, long long value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    note(obj, key, text);
}

static void rates_note(hwloc_topology_t top)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(top, o));) {
        bool nic = topo_os_is(o, HWLOC_OBJ_OSDEV_OPENFABRICS) ||
                   topo_os_is(o, HWLOC_OBJ_OSDEV_NETWORK);
        double rate = nic && o->name ? rate_of_nic("/sys", o->name) : 0;
        if (rate > 0)
            note_int(o, TOPO_NOTE_RATE, (long long)(rate / 1e6));
    }
}

static void gpu_note(hwloc_obj_t pci, const struct driver_gpu *g)
{
    note(pci, TOPO_NOTE_MODEL, g->model);
    note_int(pci, TOPO_NOTE_MEMORY, g->memory_bytes);
    note_int(pci, TOPO_NOTE_SM_MHZ, g->sm_mhz);
    note_int(pci, TOPO_NOTE_SM_MAX_MHZ, g->sm_max_mhz);
    if (g->ecc >= 0)
        note_int(pci, TOPO_NOTE_ECC, g->ecc);
    if (g->mig >= 0)
        note_int(pci, TOPO_NOTE_MIG, g->mig);
    if (g->links.len && g->link_mbps) {
        note(pci, TOPO_NOTE_LINKS, g->links.p);
        note_int(pci, TOPO_NOTE_LINK_MBPS, g->link_mbps);
    }
}

void topo_note(hwloc_topology_t top)
{
    struct driver d;
    struct err why = {0};
    rates_note(top);
    int rc = driver_read(&d, &why);
    if (rc == ERR_NOT_FOUND)
        return;
    hwloc_obj_t root = hwloc_get_root_obj(top);
    if (rc < 0) {
        note(root, TOPO_NOTE_DRIVER_ERROR, why.text);
        return;
    }
    note(root, TOPO_NOTE_DRIVER, d.release);
    for (size_t i = 0; i < d.n; i++) {
        hwloc_obj_t pci = hwloc_get_pcidev_by_busidstring(top, d.gpus[i].pci);
        if (pci)
            gpu_note(pci, &d.gpus[i]);
        else
            note(root, TOPO_NOTE_UNSEEN, d.gpus[i].pci);
    }
    driver_release(&d);
}
