/* job_note: notes at the scheduler which run a job has.
 *
 * A job that runs again looks for its run in the home. The home may be unmounted for a repair, and
 * another may have been made in its place since; a run of the same name in that one is not the
 * job's. So the first execution leaves the run's id with the scheduler, and a later one that finds
 * no run of its own asks for it before it begins anything. */
#ifndef LAUNCHER_SUBMIT_JOB_NOTE_H
#define LAUNCHER_SUBMIT_JOB_NOTE_H

#include "base/err.h"
#include "base/id.h"

/* Writes the run's id into the job's comment, in a thread of its own that tries until the scheduler
 * answers. */
void job_note_leave(const char *kind, const char *home, const char *job_id, const char *run_id);

/* Asks which run the job noted; "": none. ERR_TEMP: the scheduler does not answer now. If the
 * scheduler cannot be asked at all, nothing is ever noted. */
int job_note_read(const char *kind, const char *home, const char *job_id, char run[ID_TEXT_BYTES],
                  struct err *err);

/* Checks that the scheduler takes notes, by writing the job's comment unchanged. At a site that
 * refuses that, a job without a note may have had a run all the same. */
int job_note_try(const char *kind, const char *home, const char *job_id, struct err *err);

#endif
