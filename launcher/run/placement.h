/* placement: decides where the ranks of an attempt run: on hosts in the order of the switches, and
 * with which GPU, CPUs and NIC each.
 *
 * The scheduler gives the order (sched_place). GPUs and CPUs come from the nodes' hwloc XML, which
 * `reel topo --cluster` writes to <home>/topo/<cluster>. A rank's CPUs are those near its GPU, or
 * on nodes without GPUs those of its NUMA node; ranks that have the same CPUs share them evenly. A
 * rank's NIC is the one nearest to its GPU. CPUs are bound only if the result is certain: every
 * node is known, all nodes are alike, the job has whole nodes, and the ranks fill them (one for
 * each GPU, or a whole number for each NUMA node). Slurm does the binding, and needs
 * TaskPlugin=task/affinity or task/cgroup for it; with task/none nothing is bound.
 *     placement_find(&p, sched, home, &self, &spec, &arena);   spec.cpus = p.cpus;
 *     placement_record(&p, &attempt);
 */
#ifndef LAUNCHER_RUN_PLACEMENT_H
#define LAUNCHER_RUN_PLACEMENT_H

#include "launcher/machine/topo.h"
#include "launcher/sched/sched.h"
#include "launcher/state/attempt.h"

struct placement {
    bool known;                /* false: Slurm's order applies, or there is nothing to place */
    struct sched_placement on; /* allocated in the arena, like all texts here */
    const char *switches;      /* leaves in the order of their ranks, "spine/leaf0,spine/leaf1" */
    const char *const *cpus;   /* of each rank of a node, NULL-terminated; NULL: not bound */
    bool gpus;                 /* rank i of a node has GPU i */
    const char *const *near;   /* NIC nearest to the GPU of each rank of a node; "": none */
};

/* Finds where the ranks of this step are to run. p->known is set only if there is something to
 * place: several nodes, or one node whose ranks are bound to CPUs. */
void placement_find(struct placement *p, struct sched *s, const char *home,
                    const struct sched_self *self, const struct sched_step_spec *spec,
                    struct arena *arena);

/* Records where the ranks will run, before they start: in <run_dir>/placement/attempt-<n>.json,
 * which is for people, and in the event "placed". Writes nothing if the placement is not known. */
void placement_record(const struct placement *p, struct attempt *attempt);

/* Finds the CPUs of `ranks` ranks on a machine on which the job has `cpus` CPUs, and writes them
 * into out[ranks]; nics[ranks] gets the NICs of their GPUs, "" without GPUs. *gpus: the machine has
 * GPUs. Returns false if the ranks do not fill the machine. It reads nothing but its arguments. */
bool placement_cpus(const struct topo *t, int64_t ranks, int64_t cpus, struct arena *arena,
                    const char **out, const char **nics, bool *gpus);

#endif
