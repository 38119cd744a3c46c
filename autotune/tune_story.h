/* tune_story: what became of a tuning, by its event log, for who looks at it from outside.
 *
 * A tuning that was killed could not say so: its log ends in the middle of a trial. Nobody has its
 * lease then, or somebody who has died. tunes_close says it in its place, for the database: each
 * trial that was left has ended then, and so has the tuning, because its process died. A holder on
 * another host is dead when it was silent for longer than lease.h allows, by the clock of the file
 * system that both see.
 *
 *     tunes_each(home, fn, ctx, err);    // of each tuning in the home, without writing
 *     tunes_close(home);
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
    TUNE_RUNS,    /* somebody has it */
    TUNE_ENDED,   /* its search has ended */
    TUNE_STOPPED, /* it was told to stop, or failed, and said so */
    TUNE_DIED     /* it was killed, and could not */
};
extern const char *const tune_state_names[];
struct tune_story {
    char id[40], dir[LIMIT_PATH_BYTES];
    char model[LIMIT_NAME_BYTES], reason[256];
    char trial[40], layout[256]; /* of the last trial */
    enum tune_state state;
    bool in_trial;            /* the last trial has no end */
    int64_t trials, measured; /* that have ended, and that came to their end */
    double last_at;           /* of the last event, UTC s */
};
typedef int tune_story_fn(void *ctx, const struct tune_story *s, struct err *err);
/* Calls fn for each tuning whose log can be read, until it returns something else than 0, which is
 * the result. A home without tunings has none. */
int tunes_each(const char *home, tune_story_fn *fn, void *ctx, struct err *err);
/* Calls fn for the end of each trial of a tuning, with the text of its layout. */
typedef void tune_trial_fn(void *ctx, const char *layout, const cJSON *ended);
int tune_story_trials(const char *dir, tune_trial_fn *fn, void *ctx, struct err *err);
/* Records of a trial that its tuning ended before it: it says nothing about its layout. */
int tune_story_left(struct evlog *log, const char *trial, struct err *err);
/* Says in the logs of tunings that died that they did, as far as they can be written. */
void tunes_close(const char *home);

#endif
