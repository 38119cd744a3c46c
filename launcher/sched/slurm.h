/* slurm: the scheduler "slurm": a real Slurm through slurm_rpc, with what Slurm alone does not
 * promise.
 *
 * Exactly once. <home>/sched/slurm/jobs/<token>.json holds the intent, durable before anything is
 * submitted, and later the id of the job that it became. The token is also the job's comment
 * ("reel:<token>"), so that after an ambiguous outcome (time-out, killed launcher, restarted
 * controller) the job is looked for by token before anything is submitted again: absent in two
 * clean answers more than REEL_SLURM_LOOK_S apart means it is not there. A job id alone is never
 * trusted, because controllers hand ids out again: before a job is signalled, requeued or cancelled
 * its comment must name a token of ours that is bound to this id.
 *
 * Gentle. Polls of all processes of the user share one answer of the controller, under a lock, at
 * most every REEL_SLURM_POLL_S seconds (default 30): <home>/sched/slurm/poll-<cluster>.json.
 * Accounting is asked about a job that the controller has forgotten (MinJobAge after its end), if
 * the site has accounting that keeps comments. A job that neither knows is absent, and counts as
 * gone after five minutes of clean answers without it.
 *
 * Settings come from the environment: REEL_SLURM_VIA (auto, commands, helper), REEL_SLURM_HELPER
 * (path of reel-slurm; default: beside this program), REEL_SLURM_POLL_S (30), REEL_SLURM_LOOK_S
 * (10.5), REEL_SLURM_ABSENCE_S (300) and REEL_SLURM_SETTLE_S (10; less of these three is for
 * tests), REEL_SLURM_WAIT_S (60: the longest wait for an answer).
 *
 * Remembered. A controller saves its jobs five seconds after the last time, and then takes a while
 * (SAVE_MAX_WAIT of slurmctld/state_save.c). A controller that is killed before that forgets what
 * it accepted, so a caller that must rely on an answer asks again REEL_SLURM_SETTLE_S later.
 *
 * These hold only as far as the site allows (`reel check-site` tells): no process outlives its job
 * (ProctrackType), a positive priority (needs operator rights: nice below 0), time limits are whole
 * minutes.
 */
#ifndef LAUNCHER_SCHED_SLURM_H
#define LAUNCHER_SCHED_SLURM_H

#include "launcher/sched/slurm_rpc.h"

int sched_slurm_open(const char *home, struct sched **out, struct err *err);

/* Fills in what sched_describe does, and what only Slurm has; borrows from the handle in the same
 * way. s: of kind "slurm". */
int sched_slurm_site(struct sched *s, struct slurm_site *out, struct err *err);

/* Reads the nodes and switches of the cluster; in the arena. */
int sched_slurm_net(struct sched *s, struct arena *arena, struct slurm_net *out, struct err *err);

/* Makes the environment of a command that starts steps itself, from that of a process in an
 * allocation. The nodes in `lost` ("n1,n3"; "": none) are left out, as by the script of 'scontrol
 * update job'. What describes the one task of a job of ours is removed, because the command's own
 * ranks are others. Outside of an allocation nothing changes. *out in the arena borrows the
 * entries. */
int slurm_allocation_env(const char *const *env, const char *lost, struct arena *arena,
                         const char ***out, struct err *err);

#endif
