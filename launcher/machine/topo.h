/* topo: describes one machine as hwloc sees it: NUMA nodes, cores, GPUs, NICs, and which of them
 * are near each other.
 *
 * Live and captured machines are both described by hwloc's XML (format v2), which topo_capture
 * makes and topo_parse reads. Some of hwloc's backends may hang, so the command runs topo_capture
 * in a child process with a deadline. I/O objects are included. They have no cpuset of their own,
 * so the CPUs near them are those of the first ancestor that has one (hwloc manual, "I/O Devices").
 *
 *     topo_capture(false, &xml, err);  topo_parse(xml.p, xml.len, "live", &t, err);  …
 *     topo_release(&t);
 */
#ifndef LAUNCHER_MACHINE_TOPO_H
#define LAUNCHER_MACHINE_TOPO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

enum topo_device_kind { TOPO_GPU, TOPO_NIC };

struct topo_device {
    enum topo_device_kind kind;
    const char *name;  /* "cuda0", "mlx5_0", "eth0"; the PCI address if no driver gave a name */
    const char *model; /* "NVIDIA H100 80GB HBM3"; "" if unknown */
    const char *pci;   /* "0000:1b:00.0"; "" if not PCI */
    const char *cpus;  /* cores near it, as a list: "0-27,56-83" */
    int64_t numa;      /* logical index of the only NUMA node near it; -1: none, or several */
    /* of a GPU: index into devices of the NIC with the closest common ancestor; -1: none */
    int64_t near;
    int64_t near_shared;     /* number of GPUs that have that NIC as their nearest */
    const char *near_at;     /* their common ancestor: "PCI bridge", "NUMA node", "machine" */
    double link_bytes_per_s; /* of the PCI link; 0: unknown */
    double rate_bytes_per_s; /* of a NIC's active ports, one direction; 0: unknown, or all down */
    int64_t memory_bytes;    /* of a GPU; 0: unknown */
    const char *pci_id;      /* "10de:2330", vendor and device; "" if not PCI */
    /* The other members are for GPUs and come from the driver; see driver.h. */
    bool driven;             /* the driver has it */
    int64_t sm_mhz, sm_max_mhz; /* 0: unknown */
    int64_t ecc, mig;        /* 1 on, 0 off, -1: unknown */
};
struct topo_numa {
    int64_t os_index, cores, pus, memory_bytes;
    const char *cpus;
};
/* Describes a PCI switch that lies between the processors and two or more of the devices. */
struct topo_switch {
    const char *pci;         /* PCI address of its upper port */
    double link_bytes_per_s; /* of its upper link, which the devices below share; 0: unknown */
    int64_t *devices;        /* indices of the devices below it, directly or below other switches */
    int64_t n_devices;
};
enum { TOPO_GPUS_LINKED = 256 }; /* links of more GPUs in one machine are not read */
/* Holds the links between GPUs beside PCI. Rates are bytes/s in one direction, 0 where there is no
 * link. */
struct topo_links {
    const char *kind;        /* "NVLink", "XGMI", "Xe Link"; NULL: no link is known */
    bool switched;           /* a switch joins GPUs: all that reach it reach each other */
    double *bytes_per_s;     /* [n_gpus][n_gpus], 0 on the diagonal */
    double *gpu_bytes_per_s; /* [n_gpus]: of all of a GPU's links to other GPUs together */
    double *cpu_bytes_per_s; /* [n_gpus]: to the processors (POWER) */
};
struct topo {
    const char *source; /* "live" or the file's name */
    const char *host, *cpu_model, *arch;
    const char *driver;       /* of the GPUs, "550.54.15"; "": there is none, or it gave an error */
    const char *driver_error; /* the driver's error; "": none */
    const char *unseen;       /* PCI addresses of GPUs that the driver has and hwloc does not */
    int64_t packages, cores, pus, memory_bytes;
    int64_t pus_apart;        /* processing units that are in no NUMA node */
    const char *cpus_apart;   /* those units as a list */
    int64_t n_numa, n_devices, n_gpus, n_switches;
    struct topo_numa *numa;
    struct topo_device *devices; /* n_gpus GPUs first, in PCI order, then NICs */
    struct topo_switch *switches; /* the upper ones before those below them */
    struct topo_links links;
    struct arena arena;
};

/* Captures this machine as XML. If `whole` is true, includes the parts that a cgroup does not let
 * this process use. */
int topo_capture(bool whole, struct str *xml, struct err *err);
/* Parses XML, a terminated text of length len. `source` names it in errors. */
int topo_parse(const char *xml, size_t len, const char *source, struct topo *out, struct err *err);
void topo_release(struct topo *t);

/* Holds how much of the live machine this process may use, by its affinity mask and by cgroup v2's
 * cpu.max and memory.max. For a captured machine this is unknown. */
struct topo_allowed {
    int64_t affinity_cpus;
    double quota_cpus;    /* 0: no quota */
    int64_t memory_bytes; /* 0: no limit */
};
void topo_allowed_read(struct topo_allowed *out);
/* Returns the number of processing units that a job can use: the least of pus, affinity and quota
 * (rounded down, at least 1). */
int64_t topo_usable_cpus(const struct topo *t, const struct topo_allowed *a);

/* Returns 0 if the description is consistent, else ERR_STATE with the first broken invariant (a
 * device is near a NIC that is not one, NUMA sums are wrong …). */
int topo_check(const struct topo *t, struct err *err);

/* Returns the rate of the link between two GPUs if it is the same for every pair; else 0. */
double topo_links_even(const struct topo *t);
/* Returns the rate in bytes/s at which the slowest GPU can send to the others of the machine over
 * its links; 0 if some GPU cannot reach another over links. */
double topo_links_bytes_per_s(const struct topo *t);

/* Adds a line for each disagreement of driver and hwloc or among the machine's GPUs, and for each
 * GPU that MIG divides. */
void topo_disagree(const struct topo *t, struct str *lines);

void topo_format(const struct topo *t, const struct topo_allowed *a, struct str *out);
/* Writes the object "reel.topo/1". */
void topo_write(const struct topo *t, const struct topo_allowed *a, const char *key,
                struct json_out *o);

#endif
