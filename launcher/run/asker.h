/* asker: asks the scheduler how this process's job is to end, without blocking the agent that
 * watches the trainer.
 *
 * A request to a controller that does not answer takes up to a minute. Meanwhile the agent may have
 * to signal the trainer to save, or to end it because a newer attempt has begun. So each request
 * runs in its own thread with its own scheduler handle. An asker has one request in flight at a
 * time.
 *
 *     struct asker *q;
 *     asker_new("slurm", home, job_id, &q, err);
 *     if (asker_put(q)) …                   // a request was sent
 *     if (asker_take(q, &rc, &ending)) …    // now and then; true once after an answer
 *     asker_free(q);
 *
 * asker_free does not wait: a request in flight goes on in its thread, which frees the asker at its
 * end.
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

/* Sends the request, and drops an earlier answer that nobody took. Returns false while an earlier
 * request is in flight. */
bool asker_put(struct asker *q);
/* Takes the result of sched_ending. Returns false if no answer has come since the last one
 * taken. */
bool asker_take(struct asker *q, int *rc, struct sched_ending *out);

#endif
