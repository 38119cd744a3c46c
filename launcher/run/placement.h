/* placement: where the ranks of an attempt run: the hosts in the order of the switches, and what
 * each rank is near to there.
 *
 * The order is the scheduler's (sched_place). GPUs and CPUs come from the XML that `reel topo
 * --cluster` left of the nodes under <home>/topo/<cluster>. A rank's CPUs are those near its GPU,
 * on nodes without GPUs those of its NUMA node, and ranks that have the same CPUs share them
 * evenly. Its NIC is the one nearest to its GPU, so that it is beside the CPUs too where a machine
 * has GPU and NIC in one place. CPUs are bound only where it is certain what that binds: every node
 * is known, all are alike, the job has them whole, and the ranks fill them (one for each GPU, or a
 * whole number for each NUMA node). The binding is Slurm's, which needs TaskPlugin=task/affinity or
 * task/cgroup; with task/none it stays a wish.
 *     placement_find(&p, sched, home, &self, &spec, &arena);   spec.cpus = p.cpus;
 *     placement_record(&p, &attempt);
 */
#ifndef LAUNCHER_RUN_PLACEMENT_H
#define LAUNCHER_RUN_PLACEMENT_H

#include "launcher/machine/topo.h"
#include "launcher/sched/sched.h"
#include "launcher/state/attempt.h"

struct placement {
    bool known;                /* else Slurm's own order, or there is nothing to place */
    struct sched_placement on; /* in the arena, like all texts */
    const char *switches;      /* leaves in the order of their ranks, "spine/leaf0,spine/leaf1" */
    const char *const *cpus;   /* of a node's ranks, NULL-ended; NULL: not bound */
    bool gpus;                 /* rank i of a node has GPU i */
    const char *const *near;   /* of the GPU of each of a node's ranks its NIC; "": none */
};

/* Finds where the ranks of this step are to run. *p is known only if there is something to place:
 * several nodes, or one whose ranks are bound. */
void placement_find(struct placement *p, struct sched *s, const char *home,
                    const struct sched_self *self, const struct sched_step_spec *spec,
                    struct arena *arena);

/* Puts on record where the ranks will run, before they do: <run_dir>/placement/attempt-<n>.json,
 * for people, and event "placed". Writes nothing when the placement is not known. */
void placement_record(const struct placement *p, struct attempt *attempt);

/* Finds the CPUs of `ranks` ranks that fill a machine of which a job has `cpus`, into out[ranks],
 * and the NICs of their GPUs, if it has any, into nics[ranks]. False when they do not fill it.
 * Pure. */
bool placement_cpus(const struct topo *t, int64_t ranks, int64_t cpus, struct arena *arena,
                    const char **out, const char **nics, bool *gpus);

#endif
