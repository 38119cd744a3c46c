/* next: loads and saves the changed run and plan that wait for the run's next attempt, while
 * run.json and plan.json hold those of the attempts before. */
#ifndef LAUNCHER_STATE_NEXT_H
#define LAUNCHER_STATE_NEXT_H

#include "base/json.h"
#include "profiles/plan.h"
#include "profiles/run.h"

#define NEXT_REVISION_ENV "REEL_JOB_REVISION"

struct next {
    /* true: a change waits, and run and plan are the changed ones; false: they are those of
     * run.json and plan.json */
    bool waits;
    int64_t revision, job_revision; /* of the change that waits, and of the newest that needs
                                     * another job; 0: none */
    int64_t extended_from; /* steps that the run had before it was extended; 0: it was not */
    struct run run;
    struct plan plan;
    /* the text of next.json, zeroed if nothing waits; its member "changes" is an array of
     * objects */
    struct json_doc doc;
};

/* Loads run and plan as the next attempt will have them. *out is zeroed before; the caller releases
 * it after success only. */
int next_load(const char *run_dir, struct next *out, struct err *err);
void next_release(struct next *n);
/* Writes next.json. The caller holds claims/submit.lock. changes: the text of a JSON array. */
int next_save(const struct next *n, const struct str *changes, const char *run_dir,
              struct err *err);

/* Replaces run.json and plan.json by the change that waits. The agent calls it while it holds
 * claims/lock, before it starts the trainer. `steps` is the number of steps done, which keep their
 * learning rates. If the agent is killed meanwhile, the next call does the same again. *revision:
 * of the change; 0: none waits. */
int next_take(const char *run_dir, int64_t steps, int64_t *revision, struct err *err);
/* Tells whether a change waits that needs another job than one submitted with this revision. */
bool next_needs_job(const char *run_dir, int64_t revision);
/* Returns the revision of the job that this process runs in. */
int64_t next_revision_here(void);

#endif
