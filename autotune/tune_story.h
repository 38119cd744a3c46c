/* tune_story: reads what became of a tuning from its event log and its lease, for other processes.
 *
 * A tuning that was killed could not record that: its log ends in the middle of a trial, and its
 * lease is held by nobody or by a dead process. tunes_close records it instead, for the database:
 * it writes the end of the unfinished trial, and the end of the tuning with the reason that its
 * process died. A holder on another host counts as dead when it was silent for longer than twice
 * lease_silent_s (base/lease.h), by the clock of the file system that both see.
 *
 *     tunes_each(home, fn, ctx, err);    // calls fn for each tuning; changes no log
 *     tunes_close(home);                 // records the ends of those that were killed
 */
#ifndef AUTOTUNE_TUNE_STORY_H
#define AUTOTUNE_TUNE_STORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/evlog.h"
#include "base/json.h"
#include "base/limits.h"

enum tune_state {
    TUNE_RUNS,    /* a living process holds its lease */
    TUNE_ENDED,   /* its search has ended */
    TUNE_STOPPED, /* it was asked to stop or failed, and dropped its lease */
    TUNE_DIED     /* it was killed, and still has its lease or an unfinished trial */
};
extern const char *const tune_state_names[];
struct tune_story {
    char id[40], dir[LIMIT_PATH_BYTES];
    char model[LIMIT_NAME_BYTES], reason[256];
    char trial[40], layout[256]; /* of the last trial */
    enum tune_state state;
    bool in_trial;            /* the last trial has no end */
    int64_t trials, measured; /* trials that ended, and those of them that succeeded */
    double last_at;           /* of the last event, UTC s */
};
typedef int tune_story_fn(void *ctx, const struct tune_story *s, struct err *err);
/* Calls fn for each tuning of the home whose log can be read, until fn returns something other than
 * 0, which is then the result. A home may have no tunings. */
int tunes_each(const char *home, tune_story_fn *fn, void *ctx, struct err *err);
/* Calls fn for the end of each trial of a tuning, with the text of its layout. */
typedef void tune_trial_fn(void *ctx, const char *layout, const cJSON *ended);
int tune_story_trials(const char *dir, tune_trial_fn *fn, void *ctx, struct err *err);
/* Records that the tuning ended while this trial ran, so that the trial says nothing about its
 * layout. */
int tune_story_left(struct evlog *log, const char *trial, struct err *err);
/* Records in the log of each tuning that died, and whose lease still exists, that it has ended. A
 * log that cannot be written is left as it is. */
void tunes_close(const char *home);

#endif
