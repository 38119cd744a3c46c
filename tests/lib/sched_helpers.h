/* sched_helpers: helps the tests of launcher/sched: it makes a scratch scheduler and jobs that are
 * shell scripts, and waits for them. */
#ifndef TESTS_SCHED_HELPERS_H
#define TESTS_SCHED_HELPERS_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/id.h"
#include "base/json.h"
#include "launcher/sched/proc.h"
#include "launcher/sched/sched.h"

/* Returns the job with this token; NULL if there is none. */
const struct sched_job *job_of_token(const struct sched_jobs *jobs, const char *token);

struct conform {
    struct sched *s;
    const char *kind, *home;
    const char *dir; /* absolute path of a scratch folder that jobs can read and write too */
    const char *low_partition;    /* jobs of this partition are preempted by ... */
    const char *urgent_partition; /* ... jobs of this one; NULL: the default partition */
    int low_priority, urgent_priority;
    int cores;                    /* cores of the one node; the suite needs 4 or more */
    double time_limit_s;          /* shortest time limit that the scheduler enforces */
    double signal_lead_s; /* how long before the time limit the signal comes; 0: half the limit */
    double step_deadline_s;       /* time after which a step has certainly set its trap; 0: 2 s */
    double patience_s;
    /* The site tracks a job's processes only by their parents, so processes that leave their parent
     * survive the job. */
    bool orphans_escape;
    /* Puts this process inside a job, before tests of steps. NULL: steps work without a job. */
    void (*allocate)(void);
};
extern struct conform conform;

/* ---- files, tokens, jobs ---- */

const char *conform_path(const char *name);
const char *conform_read(const char *name);
void conform_touch(const char *name);
const char *conform_token(char buf[ID_TEXT_BYTES]);

/* Describes a job of the suite, which is a shell script. Its log is <dir>/<name>.log. */
struct conform_job {
    const char *name, *script;
    struct sched_spec spec; /* the test sets limits and permissions; conform_submit sets the rest */
    char token[ID_TEXT_BYTES], id[SCHED_ID_BYTES];
};

static const char *const conform_env[] = {
    "PATH=/usr/bin:/bin", "PLAIN=value",    "SPACES= a  b ",    "EMPTY=",
    "BYTES=\xff\xfe\x01", "LINES=one\ntwo", "QUOTES='\"$HOME`", NULL};

int conform_submit_try(struct conform_job *j, bool urgent, struct err *err);
void conform_submit(struct conform_job *j, bool urgent);

/* ---- waiting ---- */

/* Polls into *jobs and returns the job; NULL if the scheduler does not know it. */
const struct sched_job *conform_look(const char *id, struct sched_jobs *jobs);

enum sched_state conform_state(const char *id);

/* Waits until the job's state is in the set `states`, which has a bit for each state. */
void conform_wait(const struct conform_job *j, unsigned states);
unsigned conform_ended_set(void);

/* Cancels the jobs that a failed test left running. */
int conform_cancel_all(void **state);
void conform_wait_text(const char *file, const char *text);
int conform_count(const char *text, const char *word);

/* Counts the live processes whose environment has the job's token. The kernel hides the environment
 * of a process that is dying. */
int conform_marked(const char *token);

/* Counts the processes whose arguments name the scheduler's folder. These are keepers, which write
 * there until they end. */
int conform_keepers(void);

/* Removes the scratch folder of a local scheduler, once no keeper writes there any more or
 * patience_s is over. */
int conform_remove(void);

#define CONFORM_UP "echo up; while :; do sleep 0.2; done"

#endif
