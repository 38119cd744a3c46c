/* job_note: which run a job has, kept by the job itself.
 *
 * A job that runs again looks for its run in the home. A home may be away for its repair, and
 * another may have been made in its place since: what lies there then is not the job's, and a run
 * of the same name is another's. So the first execution leaves the run's id with the scheduler, and
 * a later one that finds no run of its own asks for it before it begins anything. */
#ifndef LAUNCHER_SUBMIT_JOB_NOTE_H
#define LAUNCHER_SUBMIT_JOB_NOTE_H

#include "base/err.h"
#include "base/id.h"

/* Leaves it in the job, in a thread of its own that asks until the scheduler answers. */
void job_note_leave(const char *kind, const char *home, const char *job_id, const char *run_id);

/* Asks which run the job noted; "": none. ERR_TEMP: nobody answers now. Where the scheduler cannot
 * be asked at all, nothing is ever noted. */
int job_note_read(const char *kind, const char *home, const char *job_id, char run[ID_TEXT_BYTES],
                  struct err *err);

/* Checks that a note of the job would be taken, by writing its comment as it is: at a site that
 * refuses that, a job without a note may have had a run all the same. */
int job_note_try(const char *kind, const char *home, const char *job_id, struct err *err);

#endif
