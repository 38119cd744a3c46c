/* site: computes from facts about a Slurm site which of reel's promises hold there, for `reel
 * check-site` and for the warning at submission. slurm.conf(5) explains the options on which the
 * rules rest: PreemptMode, GraceTime, KillWait, SlurmctldParameters, AuthInfo, ProctrackType,
 * TaskPlugin and AccountingStorageType. */
#ifndef LAUNCHER_MACHINE_SITE_H
#define LAUNCHER_MACHINE_SITE_H

#include "launcher/machine/locks.h"
#include "launcher/sched/slurm_rpc.h"

enum site_verdict { SITE_HOLDS, SITE_PARTLY, SITE_BROKEN };
extern const char *const site_verdict_names[]; /* "holds", "partly", "broken" */

struct site_promise {
    const char *name; /* static: "comes back", ... */
    enum site_verdict verdict;
    char found[256];  /* what was found on the site */
    char change[256]; /* what would make it hold; "" if it does */
};
struct site_facts {
    const struct slurm_site *site;
    const struct sched_partition *partition;
    double save_s;            /* longest save that was measured, s; NaN: none yet */
    const char *mpi;          /* what `srun --mpi=list` says; "" if unknown */
    const char *file_system;  /* type of REEL_HOME's: "nfs", "lustre", "local", ... */
    struct locks_facts locks; /* of REEL_HOME */
};

/* Returns the least time, in s, between the first notice of a preemption, to the steps or to the
 * batch process, and the kill; INFINITY if preemption does not kill. */
double site_lead_s(const struct slurm_site *s, const struct sched_partition *p);

enum { SITE_PROMISES = 10 };
void site_check(const struct site_facts *f, struct site_promise out[SITE_PROMISES]);

/* Names the type of a path's file system (f_type of statfs(2)): "local" for disk and memory file
 * systems, "unknown" for a type that is not in its table. */
const char *site_file_system(const char *path);

#endif
