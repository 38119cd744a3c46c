/* api: asks the controller through libslurm. The calls, results and classes of errors are the same
 * as with Slurm's commands (slurm_rpc.h).
 *
 * libslurm and its header change with every release. So a program is compiled for one release and
 * runs with the library of that release only, which api_open checks. Differences between releases
 * depend on SLURM_VERSION_NUMBER in api*.c. The code was run and tested with 22.05; for the other
 * releases from 21.08 to 26.05 it was only compiled with the headers of each.
 *
 * Call api_open once, then any other function. A call takes as long as libslurm needs; main.c sets
 * the deadline. If the controller refuses, err has Slurm's own text.
 */
#ifndef LAUNCHER_SLURM_API_H
#define LAUNCHER_SLURM_API_H

#include "launcher/sched/slurm_rpc.h"

/* Returns the Slurm release for which this program was compiled, such as "22.05.8". */
const char *api_release(void);
/* Checks the library. ERR_ENV if it is of another release. libslurm ends the process if it finds no
 * configuration. */
int api_open(struct err *err);

int api_site(struct arena *arena, struct slurm_site *out, struct err *err);
int api_net(bool with_nodes, struct arena *arena, struct slurm_net *out, struct err *err);
/* Lists one job, with all tasks of the array that has its id, or for a NULL id all jobs of this
 * user. ERR_NOT_FOUND if there is no such job. */
int api_jobs(const char *id, struct arena *arena, struct slurm_jobs *out, struct err *err);
int api_submit(const struct slurm_submit *what, char id[SCHED_ID_BYTES], struct err *err);
/* These take the handle of a job (struct slurm_job). */
int api_signal(const char *handle, int signo, bool all, struct err *err);
int api_requeue(const char *handle, struct err *err);
int api_cancel(const char *handle, struct err *err);
int api_comment(const char *handle, const char *text, struct err *err); /* replaces the comment */

/* Converts errno after a failed call of libslurm into an error with reel's code and Slurm's text;
 * it is meant for api*.c. */
int api_error(const char *what, struct err *err);

#endif
