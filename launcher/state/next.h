/* next: the run as its next attempt will have it, where that is not what run.json and plan.json
 * say.
 *
 * A running trainer's ranks have read run.json, or are about to, so nobody writes it but the agent,
 * between two attempts. What a user changes meanwhile waits in <run>/next.json (`reel.next/1`): the
 * whole run, the whole plan, and what of them is new. It is written under claims/submit.lock and
 * published at once, and every change counts up its revision.
 *
 *     {"schema": "reel.next/1", "revision": 2, "job_revision": 1,
 *      "changes": [{"key": "checkpoint.every_steps", "from": "50", "to": "5"}],
 *      "extended_from": 6, "run": {…reel.run/1…}, "plan": {…reel.plan/1…}}
 *
 * job_revision is the last one that changed what a job is submitted with. A job knows the revision
 * it was submitted with (NEXT_REVISION_ENV); one that is older than job_revision does not begin an
 * attempt but leaves the run to a newer job (successor_aside).
 */
#ifndef LAUNCHER_STATE_NEXT_H
#define LAUNCHER_STATE_NEXT_H

#include "base/json.h"
#include "profiles/plan.h"
#include "profiles/run.h"

#define NEXT_REVISION_ENV "REEL_JOB_REVISION"

struct next {
    /* A change waits, and run and plan are the changed ones; else they are those of run.json and
     * plan.json. */
    bool waits;
    int64_t revision, job_revision; /* 0: none */
    int64_t extended_from; /* steps that the run had before it was made longer; 0: it was not */
    struct run run;
    struct plan plan;
    /* It holds the text of next.json, and is zeroed when nothing waits. "changes" is an array of
     * objects. */
    struct json_doc doc;
};

/* Loads both. *out is zeroed before; the caller releases it after success only. */
int next_load(const char *run_dir, struct next *out, struct err *err);
void next_release(struct next *n);
/* Writes next.json under claims/submit.lock. changes: the text of a JSON array. */
int next_save(const struct next *n, const struct str *changes, const char *run_dir,
              struct err *err);

/* Makes what waits the run's run.json and plan.json. It is for the agent that holds claims/lock,
 * before its attempt. `steps` is how far the run has come; the steps done keep their learning
 * rates. A kill at any moment leaves it to be done again. *revision: what was taken, 0 when nothing
 * waits. */
int next_take(const char *run_dir, int64_t steps, int64_t *revision, struct err *err);
/* Does a change wait that a job submitted with this revision cannot run? */
bool next_needs_job(const char *run_dir, int64_t revision);
/* Returns the revision of the job that this process runs in. */
int64_t next_revision_here(void);

#endif
