#include "launcher/waits.h"

#include <stdio.h>
#include <string.h>

#include "launcher/sched/sched.h"

/* squeue(1): "JobHeldUser", "JobHeldAdmin", "job requeued in held state", "launch failed requeued held". */
static bool is_held(const char *reason)
{
    return strstr(reason, "held") || strstr(reason, "Held");
}

void waits_format(const char *kind, const char *job_id, const char *reason, char text[STATE_TEXT_BYTES])
{
    if (strcmp(kind, "slurm") == 0 && is_held(reason))
        snprintf(text, STATE_TEXT_BYTES, "job %.20s is held and does not start by itself (%.60s): where a node's prolog failed, see its slurmd's log; "
                 "then 'scontrol release %.20s'", job_id, reason, job_id);
    else
        snprintf(text, STATE_TEXT_BYTES, "job %.20s waits: %.160s", job_id, reason);
}

void waits_why(const char *home, const struct run_state *s, const struct run_budget *budget, char text[STATE_TEXT_BYTES])
{
    const char *ids[] = {s->job_id, NULL}, *word = run_state_word(s, budget);
    struct sched_filter filter = {.ids = ids};
    struct sched_jobs jobs = {0};
    struct sched *sched = NULL;
    text[0] = '\0';
    if ((strcmp(word, "queued") != 0 && strcmp(word, "waiting") != 0) || !s->job_id[0] || sched_open(s->sched, home, &sched, NULL) < 0)
        return;
    const struct sched_job *job = sched_poll(sched, &filter, &jobs, NULL) == 0 ? sched_jobs_find(&jobs, s->job_id) : NULL;
    if (job && (job->state == SCHED_PENDING || job->state == SCHED_REQUEUED) && job->reason[0])
        waits_format(s->sched, job->id, job->reason, text);
    sched_jobs_release(&jobs);
    sched_close(sched);
}
