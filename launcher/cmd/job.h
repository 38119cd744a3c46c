/* job: runs a command as a job of its own. It submits the job once for each question (a text of
 * everything on which the answer depends), shows the job's messages, and passes its result on.
 *
 *     <home>/<kind>/jobs/<question>/log, result, job.json
 *
 * job.json holds {"token", "job_id"} of the newest submission.
 *
 * If the command that submitted the job is killed, the job goes on: the same command, given again,
 * finds it. If that job has ended, it submits a new one.
 */
#ifndef LAUNCHER_CMD_JOB_H
#define LAUNCHER_CMD_JOB_H

#include <stdbool.h>

#include "base/limits.h"
#include "launcher/cmd/cmd.h"
#include "launcher/sched/sched.h"

struct job_question {
    const char *dir;         /* from job_dir; it is created if it does not exist */
    /* arguments of reel, NULL-terminated; "--result=FILE" is added after the command's name */
    const char *const *argv;
    struct sched_spec spec;  /* name, nodes, partition, ...: the members that job_run does not fill
                              * in */
    bool quiet;              /* print nothing on stderr */
    bool whole_env;          /* the job gets this process's whole environment, because its command
                              * is the user's */
};

/* Writes the path of a question's folder to `buf`. The question is a text of everything on which
 * the answer depends; its hash is the folder's name. */
void job_dir(const char *home, const char *kind, const struct str *question,
             char buf[LIMIT_PATH_BYTES]);

/* Runs the question's job. Returns ERR_NO, ERR_INPUT or ERR_CHILD according to the job's exit code,
 * and ERR_TEMP if something else ended the job; then the same command, given again, continues. */
int job_run(const struct job_question *q, const struct cmd_env *env, struct err *err);

#endif
