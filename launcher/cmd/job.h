/* job: a command that runs as a job of its own: submit it, once for one question, show what it says, hand on its result.
 *
 *     <home>/<kind>/jobs/<question>/log, result, job.json    job.json: {"token", "job_id"} of the newest submission
 *
 * Killing the outer command changes nothing: asked again, it finds the job that runs; when that has ended a new one is submitted.
 */
#ifndef LAUNCHER_CMD_JOB_H
#define LAUNCHER_CMD_JOB_H

#include <stdbool.h>

#include "base/limits.h"
#include "launcher/cmd/cmd.h"
#include "launcher/sched/sched.h"

struct job_question {
    const char *dir;         /* of job_dir; made where it is not there */
    const char *const *argv; /* arguments of reel, NULL-ended; "--result=FILE" is added */
    struct sched_spec spec;  /* name, nodes, partition, ...: what job_run does not fill */
    bool quiet;              /* nothing on stderr */
};

/* The folder of a question: everything that the answer depends on, as text. */
void job_dir(const char *home, const char *kind, const struct str *question, char buf[LIMIT_PATH_BYTES]);

/* ERR_NO, ERR_INPUT, ERR_CHILD: as the job's exit code tells; ERR_TEMP: it ended by no doing of its own, and the same command goes on. */
int job_run(const struct job_question *q, const struct cmd_env *env, struct err *err);

#endif
