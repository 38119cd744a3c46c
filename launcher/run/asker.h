/* asker: asks the scheduler how this process's job is to end, without holding up the watch over the
 * trainer.
 *
 * A question waits up to a minute for a controller that does not answer. Meanwhile the trainer must
 * be told to save, or be ended because a newer attempt has begun. So each question is put by a
 * thread of its own, through a handle of its own; only one is under way at a time.
 *
 *     struct asker *q;
 *     asker_new("slurm", home, job_id, &q, err);
 *     if (asker_put(q)) …                   // a question is put
 *     if (asker_take(q, &rc, &ending)) …    // now and then; true once: it was answered
 *     asker_free(q);
 *
 * asker_free does not wait: a question under way is left to its thread, which ends with it.
 */
#ifndef LAUNCHER_RUN_ASKER_H
#define LAUNCHER_RUN_ASKER_H

#include <stdbool.h>

#include "base/err.h"
#include "launcher/sched/sched.h"

struct asker;
/* Makes an asker for this job at this kind of scheduler (sched_open); returns new. */
int asker_new(const char *kind, const char *home, const char *job_id, struct asker **out,
              struct err *err);
void asker_free(struct asker *q); /* NULL is fine */

/* Puts the question, and forgets an answer that was not taken. Returns false while an earlier one
 * is under way. */
bool asker_put(struct asker *q);
/* Takes the result of sched_ending. Returns false if there is none to take. */
bool asker_take(struct asker *q, int *rc, struct sched_ending *out);

#endif
