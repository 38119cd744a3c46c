/* site: which of reel's promises hold on a Slurm site, as arithmetic on its configuration; `reel check-site` and the warning at
 * submission. Facts behind it: slurm.conf(5) PreemptMode, GraceTime, KillWait, SlurmctldParameters, AuthInfo, ProctrackType. */
#ifndef LAUNCHER_MACHINE_SITE_H
#define LAUNCHER_MACHINE_SITE_H

#include "launcher/machine/locks.h"
#include "launcher/sched/slurm_rpc.h"

enum site_verdict { SITE_HOLDS, SITE_PARTLY, SITE_BROKEN };
extern const char *const site_verdict_names[]; /* "holds", "partly", "broken" */

struct site_promise {
    const char *name; /* static: "comes back", ... */
    enum site_verdict verdict;
    char found[256];  /* what was found */
    char change[256]; /* what would make it hold; "" when it does */
};
struct site_facts {
    const struct slurm_site *site;
    const struct sched_partition *partition;
    double save_s;           /* longest save measured; NaN: none yet */
    const char *mpi;         /* `srun --mpi=list`, "" when unknown */
    const char *file_system; /* type of REEL_HOME's: "nfs", "lustre", "local", ... */
    struct locks_facts locks; /* in REEL_HOME */
};

/* Seconds between the first notice of a preemption, at whichever level it comes, and the kill; INFINITY when there is none. */
double site_lead_s(const struct slurm_site *s, const struct sched_partition *p);

enum { SITE_PROMISES = 9 };
void site_check(const struct site_facts *f, struct site_promise out[SITE_PROMISES]);

/* statfs(2) f_type of a path's file system in a word; "local" for disk and memory file systems, "unknown" else. */
const char *site_file_system(const char *path);

#endif
