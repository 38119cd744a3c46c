/* slurm: implements the scheduler "slurm" on a Slurm controller (slurm_rpc.h), and adds guarantees
 * that Slurm does not give.
 *
 * A job is submitted exactly once. <home>/sched/slurm/jobs/<token>.json holds the intent, durable
 * before anything is submitted, and later the job's id. The token is also the job's comment
 * ("reel:<token>"). After an ambiguous outcome (time-out, killed launcher, restarted controller)
 * the job is looked for by token before it is submitted again: it does not exist if two answers
 * without errors, more than REEL_SLURM_LOOK_S apart, do not list it. Controllers reuse job ids, so
 * an id alone is not trusted: before a job is signalled, requeued or cancelled, its comment must
 * have a token that is bound to this id.
 *
 * The controller gets few requests. All processes of the user share one answer, which is renewed
 * under a lock at most every REEL_SLURM_POLL_S seconds (default 30):
 * <home>/sched/slurm/poll-<cluster>.json. Accounting is asked about a job that the controller has
 * forgotten (MinJobAge after its end), if the site has accounting. A job that neither lists is
 * absent, and counts as gone after REEL_SLURM_ABSENCE_S of error-free answers without it.
 *
 * Settings come from the environment: REEL_SLURM_VIA (auto, commands, helper), REEL_SLURM_HELPER
 * (path of reel-slurm; default: beside this program), REEL_SLURM_POLL_S (30), REEL_SLURM_LOOK_S
 * (10.5), REEL_SLURM_ABSENCE_S (300) and REEL_SLURM_SETTLE_S (10; tests lower these three),
 * REEL_SLURM_WAIT_S (60: the longest wait for an answer).
 *
 * A controller saves its jobs at most every five seconds, and saving takes a while (SAVE_MAX_WAIT
 * of slurmctld/state_save.c). If it is killed before that, it forgets what it accepted, so a caller
 * that must rely on an answer asks again REEL_SLURM_SETTLE_S later.
 *
 * Some promises of sched.h depend on the site, which `reel check-site` reports: no process outlives
 * its job (ProctrackType), and priorities above 0 need operator rights (a negative nice value).
 * Time limits are rounded to whole minutes.
 */
#ifndef LAUNCHER_SCHED_SLURM_H
#define LAUNCHER_SCHED_SLURM_H

#include "launcher/sched/slurm_rpc.h"

int sched_slurm_open(const char *home, struct sched **out, struct err *err);

/* Fills in what sched_describe does, and what only Slurm has; *out borrows from the handle in the
 * same way. s: of kind "slurm". */
int sched_slurm_site(struct sched *s, struct slurm_site *out, struct err *err);

/* Reads the cluster's nodes and switches; *out is in the arena. */
int sched_slurm_net(struct sched *s, struct arena *arena, struct slurm_net *out, struct err *err);

/* Makes the environment of a command that starts steps itself, from that of a process in an
 * allocation. It leaves out the nodes in `lost` ("n1,n3"; "": none), as the script of 'scontrol
 * update job' does. It removes the variables that describe the one task of reel's job, because the
 * command has other ranks. Outside an allocation nothing changes. *out is in the arena and borrows
 * the entries. */
int slurm_allocation_env(const char *const *env, const char *lost, struct arena *arena,
                         const char ***out, struct err *err);

#endif
