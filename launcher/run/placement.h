/* placement: decides where the ranks of an attempt run: their hosts in the order of the switches,
 * and the GPU, CPUs and NIC of each rank.
 *
 * The order is the scheduler's (sched_place). GPUs and CPUs come from the nodes' XML, which `reel
 * topo --cluster` writes to <home>/topo/<cluster>. A rank's CPUs are those near its GPU, or on
 * nodes without GPUs those of its NUMA node, and ranks that have the same CPUs share them evenly.
 * Its NIC is the one nearest to its GPU, and so near the CPUs too where a machine has GPU and NIC
 * in one place. CPUs are bound only if the result is certain: every node is known, all are alike,
 * the job has them whole, and the ranks fill them (one for each GPU, or a whole number for each
 * NUMA node). Slurm does the binding, and needs TaskPlugin=task/affinity or task/cgroup for it;
 * with task/none nothing is bound.
 *     placement_find(&p, sched, home, &self, &spec, &arena);   spec.cpus = p.cpus;
 *     placement_record(&p, &attempt);
 */
#ifndef LAUNCHER_RUN_PLACEMENT_H
#define LAUNCHER_RUN_PLACEMENT_H

#include "launcher/machine/topo.h"
#include "launcher/sched/sched.h"
#include "launcher/state/attempt.h"

struct placement {
    bool known;                /* false: Slurm's own order counts, or there is nothing to place */
    struct sched_placement on; /* in the arena, like all texts */
    const char *switches;      /* leaves in the order of their ranks, "spine/leaf0,spine/leaf1" */
    const char *const *cpus;   /* of a node's ranks, NULL-ended; NULL: not bound */
    bool gpus;                 /* rank i of a node has GPU i */
    const char *const *near;   /* the NIC nearest to the GPU of each of a node's ranks; "": none */
};

/* Finds where the ranks of this step are to run. *p is known only if there is something to place:
 * several nodes, or one whose ranks are bound. */
void placement_find(struct placement *p, struct sched *s, const char *home,
                    const struct sched_self *self, const struct sched_step_spec *spec,
                    struct arena *arena);

/* Records where the ranks will run, before they start: <run_dir>/placement/attempt-<n>.json, for
 * people, and event "placed". Writes nothing if the placement is not known. */
void placement_record(const struct placement *p, struct attempt *attempt);

/* Finds the CPUs of `ranks` ranks that fill a machine on which the job has `cpus` CPUs, into
 * out[ranks], and the NICs of their GPUs, "" without GPUs, into nics[ranks]. *gpus: the machine has
 * GPUs. Returns false if the ranks do not fill it. Pure. */
bool placement_cpus(const struct topo *t, int64_t ranks, int64_t cpus, struct arena *arena,
                    const char **out, const char **nics, bool *gpus);

#endif
