/* next: the run as its next attempt will have it, where that is not what run.json and plan.json say.
 *
 * A running trainer's ranks have read run.json, or are about to, so nobody writes it but the agent, between two attempts. What a user
 * changes meanwhile waits in <run>/next.json (`reel.next/1`): run and plan whole, and what of them is new. It is written under
 * claims/submit.lock and published at once, and every change counts up its revision.
 *
 *     {"schema": "reel.next/1", "revision": 2, "job_revision": 1, "changes": [{"key": "checkpoint.every_steps", "from": "50", "to": "5"}],
 *      "extended_from": 6, "run": {…reel.run/1…}, "plan": {…reel.plan/1…}}
 *
 * job_revision is the last one that changed what a job is submitted with; a job knows the revision it was submitted with
 * (NEXT_REVISION_ENV), and one that is older does not begin an attempt but leaves the run to a newer one (successor_aside).
 */
#ifndef LAUNCHER_RUN_NEXT_H
#define LAUNCHER_RUN_NEXT_H

#include "base/json.h"
#include "profiles/plan.h"
#include "profiles/run.h"

#define NEXT_REVISION_ENV "REEL_JOB_REVISION"

struct next {
    bool waits;             /* a change waits: run and plan are its, else those of run.json and plan.json */
    int64_t revision, job_revision; /* 0: none */
    int64_t extended_from;  /* steps that the run had before it was made longer; 0: it was not */
    struct run run;
    struct plan plan;
    struct json_doc doc;    /* of next.json; zeroed when nothing waits. "changes" is an array of objects */
};

/* *out is zeroed before; released after success alone. */
int next_load(const char *run_dir, struct next *out, struct err *err);
void next_release(struct next *n);
/* changes: text of a JSON array. Under claims/submit.lock. */
int next_save(const struct next *n, const struct str *changes, const char *run_dir, struct err *err);

/* For the agent that holds claims/lock, before its attempt: what waits becomes run.json and plan.json. `steps`: how far the run has come,
 * which keeps its learning rates. A kill at any moment leaves it to be done again. *revision: what was taken, 0 when nothing waits. */
int next_take(const char *run_dir, int64_t steps, int64_t *revision, struct err *err);
/* Does a change wait that a job submitted with this revision cannot run? */
bool next_needs_job(const char *run_dir, int64_t revision);
/* Of the job this process runs in. */
int64_t next_revision_here(void);

#endif
