/* job: runs a command as a job of its own. It submits the job once for each question, shows what
 * the job says, and hands on its result.
 *
 *     <home>/<kind>/jobs/<question>/log, result, job.json
 *
 * job.json holds {"token", "job_id"} of the newest submission.
 *
 * Killing the outer command changes nothing: when it is asked again, it finds the job that runs. If
 * that job has ended, it submits a new one.
 */
#ifndef LAUNCHER_CMD_JOB_H
#define LAUNCHER_CMD_JOB_H

#include <stdbool.h>

#include "base/limits.h"
#include "launcher/cmd/cmd.h"
#include "launcher/sched/sched.h"

struct job_question {
    const char *dir;         /* from job_dir; it is made if it does not exist */
    /* arguments of reel, NULL-ended; "--result=FILE" is added after the command's name */
    const char *const *argv;
    struct sched_spec spec;  /* name, nodes, partition, ...: all that job_run does not fill in */
    bool quiet;              /* print nothing on stderr */
    bool whole_env;          /* the job gets all of our environment: its command is the user's */
};

/* Writes the path of a question's folder to `buf`. The question is a text of everything that the
 * answer depends on; its hash names the folder. */
void job_dir(const char *home, const char *kind, const struct str *question,
             char buf[LIMIT_PATH_BYTES]);

/* Runs the question's job. Returns ERR_NO, ERR_INPUT or ERR_CHILD as the job's exit code tells, and
 * ERR_TEMP if something else ended the job; the same command, given again, then goes on. */
int job_run(const struct job_question *q, const struct cmd_env *env, struct err *err);

#endif
