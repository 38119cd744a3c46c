/* wrapped: creates the run of a wrapped command, or finds it again by its name. */
#ifndef LAUNCHER_SUBMIT_WRAPPED_H
#define LAUNCHER_SUBMIT_WRAPPED_H

#include "launcher/submit/launch.h"
#include "launcher/wrap/wrap.h"

/* Opens the run named w->name, a new one or that of earlier invocations, saves *w as its settings,
 * and writes the event that this job belongs to it. job_id: "" outside a job. again: the job was
 * requeued and belongs to the run already. made_up: the name was made from the job, so an existing
 * run of that name is another run at the job's first execution, and *w is renamed. ERR_EXISTS: the
 * name belongs to a run that is not a wrapped one; ERR_ENV: see home_runs_check. */
int wrapped_open(const char *home, const char *bin_dir, struct wrap *w, const char *job_id,
                 bool again, bool made_up, struct launch *out, struct err *err);

#endif
