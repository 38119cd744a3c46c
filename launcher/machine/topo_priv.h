/* topo_priv: declares what topo's files share: the readers of an hwloc topology, and the few places
 * where hwloc 3 differs from 2. */
#ifndef LAUNCHER_MACHINE_TOPO_PRIV_H
#define LAUNCHER_MACHINE_TOPO_PRIV_H

#include <hwloc.h>

#include "launcher/machine/topo.h"

#if HWLOC_API_VERSION < 0x00020000
#error "hwloc 2.0 or newer is needed: XML of 1.x is not read"
#endif

/* Tells whether an OS device is of a kind (HWLOC_OBJ_OSDEV_...). Since hwloc 3 it may be of several
 * kinds. */
static inline bool topo_os_is(hwloc_obj_t os, unsigned long kind)
{
#if HWLOC_API_VERSION >= 0x00030000
    return (os->attr->osdev.types & kind) != 0;
#else
    return (unsigned long)os->attr->osdev.type == kind;
#endif
}

#if HWLOC_API_VERSION >= 0x00030000
#define INFOS(obj) ((obj)->infos.array)
#define INFOS_N(obj) ((obj)->infos.count)
#else
#define INFOS(obj) ((obj)->infos)
#define INFOS_N(obj) ((obj)->infos_count)
#endif

/* These are the keys of reel's facts in the objects of a captured machine. A NIC has the MB/s of
 * its ports. The machine has the driver's release or its error, and each GPU that hwloc does not
 * see. A GPU's PCI function has the data that driver.h lists for a GPU. */
#define TOPO_NOTE_RATE "ReelRateMBps"
#define TOPO_NOTE_DRIVER "ReelDriver"
#define TOPO_NOTE_DRIVER_ERROR "ReelDriverError"
#define TOPO_NOTE_UNSEEN "ReelUnseenGPU"
#define TOPO_NOTE_MODEL "ReelGPUModel"
#define TOPO_NOTE_MEMORY "ReelGPUMemoryBytes"
#define TOPO_NOTE_SM_MHZ "ReelSMClockMHz"
#define TOPO_NOTE_SM_MAX_MHZ "ReelSMClockMaxMHz"
#define TOPO_NOTE_ECC "ReelECC"
#define TOPO_NOTE_MIG "ReelMIG"
#define TOPO_NOTE_LINKS "ReelLinks"
#define TOPO_NOTE_LINK_MBPS "ReelLinkMBps"

/* Adds these facts to a loaded topology of this machine. */
void topo_note(hwloc_topology_t top);
/* Returns the whole number stored under this key, else `otherwise`. */
int64_t topo_info_int(hwloc_obj_t obj, const char *key, int64_t otherwise);
/* Returns the text that hwloc stores for an object under this key; "": none. */
const char *topo_info(hwloc_obj_t obj, const char *key);
/* Returns the PCI function above an OS device; NULL for virtual devices. */
hwloc_obj_t topo_pci_of(hwloc_obj_t obj);
/* Returns a set as a list like "0-27,56-83", in the arena; "" for an empty set. */
const char *topo_cpu_list(struct topo *t, hwloc_const_cpuset_t set);

/* Reads devices, PCI switches and links into *t, in this order. objs[i] becomes the object of
 * device i: a GPU's PCI function, a NIC's OS device. It has room for every PCI and OS device. */
int topo_read_devices(hwloc_topology_t top, struct topo *t, hwloc_obj_t *objs, struct err *err);
int topo_read_switches(hwloc_topology_t top, struct topo *t, hwloc_obj_t *objs, struct err *err);
int topo_read_links(hwloc_topology_t top, struct topo *t, hwloc_obj_t *objs, struct err *err);

#endif
