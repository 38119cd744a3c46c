/* job_note: stores at the scheduler which run a job belongs to.
 *
 * A requeued job looks for its run in REEL_HOME. The home's disk may be unmounted for a repair, and
 * another home may have been made in its place; a run of the same name there is not the job's. So
 * the first execution stores the run's id in the job's comment, and a later one that does not find
 * its run reads the comment before it begins a run. */
#ifndef LAUNCHER_SUBMIT_JOB_NOTE_H
#define LAUNCHER_SUBMIT_JOB_NOTE_H

#include "base/err.h"
#include "base/id.h"

/* Writes the run's id into the job's comment, in a thread that tries until the scheduler
 * answers. */
void job_note_leave(const char *kind, const char *home, const char *job_id, const char *run_id);

/* Reads the run's id from the job's comment; "": none. ERR_TEMP: the scheduler does not answer now.
 * If this kind of scheduler cannot be used here, run is "" and the result 0. */
int job_note_read(const char *kind, const char *home, const char *job_id, char run[ID_TEXT_BYTES],
                  struct err *err);

/* Checks that the scheduler accepts notes, by writing the job's comment unchanged. At a site that
 * refuses that, a job without a note may have had a run nevertheless. */
int job_note_try(const char *kind, const char *home, const char *job_id, struct err *err);

#endif
