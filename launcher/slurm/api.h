/* api: asks the controller through libslurm. The calls, results and classes of errors are the same
 * as over the commands (slurm_rpc.h).
 *
 * libslurm's interface is its header, and both change with every release. So a program is compiled
 * for one release and runs with the library of that release only, which api_open checks. What
 * differs between releases stands behind SLURM_VERSION_NUMBER in api*.c. It was run and tested with
 * 22.05. For 21.08 to 26.05 only the compiler has seen it, with the headers of each release.
 *
 * Call api_open once, then any of the others. A call takes as long as libslurm lets it; the
 * deadline is main's. Where the controller refuses, err holds Slurm's own words.
 */
#ifndef LAUNCHER_SLURM_API_H
#define LAUNCHER_SLURM_API_H

#include "launcher/sched/slurm_rpc.h"

/* Returns the release that this was compiled for, such as "22.05.8". */
const char *api_release(void);
/* Checks the library. ERR_ENV if it is of another release. libslurm ends the process if it finds no
 * configuration. */
int api_open(struct err *err);

int api_site(struct arena *arena, struct slurm_site *out, struct err *err);
int api_net(bool with_nodes, struct arena *arena, struct slurm_net *out, struct err *err);
/* Lists one job, or for a NULL id all jobs of this user. ERR_NOT_FOUND if there is no such job. */
int api_jobs(const char *id, struct arena *arena, struct slurm_jobs *out, struct err *err);
int api_submit(const struct slurm_submit *what, char id[SCHED_ID_BYTES], struct err *err);
int api_signal(const char *id, int signo, bool all, struct err *err);
int api_requeue(const char *id, struct err *err);
int api_cancel(const char *id, struct err *err);
int api_comment(const char *id, const char *text, struct err *err); /* replaces the job's comment */

/* Turns errno, as a failed call of libslurm left it, into our class of error with Slurm's words. It
 * is for api*.c. */
int api_error(const char *what, struct err *err);

#endif
