/* This file stores the id of a job's run in the job's comment, for the job's next executions:
 * "reel-run:<id>", after the text of the user or the site. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "launcher/sched/slurm_priv.h"

static const char mark[] = "reel-run:";

/* Returns the place of the run's id in a comment, which is ID_TEXT_BYTES - 1 long; NULL: there is
 * none. */
static const char *noted_at(const char *comment)
{
    char run[ID_TEXT_BYTES];
    struct id id;
    for (const char *p = comment; (p = strstr(p, mark));) {
        p += strlen(mark);
        snprintf(run, sizeof run, "%s", p);
        if (id_parse(run, &id, NULL) == 0)
            return p;
    }
    return NULL;
}

const char *slurm_noted(const char *comment, char run[ID_TEXT_BYTES])
{
    const char *at = noted_at(comment);
    snprintf(run, ID_TEXT_BYTES, "%s", at ? at : "");
    return run;
}

/* Makes the new comment. A job has one run, so an earlier note is replaced. If `run` is empty the
 * comment does not change. */
static void comment_make(const char *before, const char *run, struct str *out)
{
    const char *at = noted_at(before);
    if (!*run) {
        str_add(out, before);
        return;
    }
    size_t kept = at ? (size_t)(at - before) - strlen(mark) : strlen(before);
    str_addn(out, before, kept);
    str_addf(out, "%s%s%s%s", kept && before[kept - 1] != ' ' ? " " : "", mark, run,
             at ? at + ID_TEXT_BYTES - 1 : "");
}

int slurm_note(struct sched *s, const char *id, const char *run, struct err *err)
{
    struct slurm_rpc *rpc = ((struct sched_slurm *)s)->rpc;
    struct slurm_jobs jobs = {0};
    struct str comment = STR_INIT;
    struct arena arena;
    char now[ID_TEXT_BYTES];
    int rc;
    arena_init(&arena, 0);
    if ((rc = rpc->ops->jobs(rpc, id, &arena, &jobs, err)) < 0)
        goto out;
    if (!jobs.n) {
        rc = err_set(err, ERR_NOT_FOUND, "Slurm knows no job %s", id);
        goto out;
    }
    if (*run && strcmp(slurm_noted(jobs.v[0].comment, now), run) == 0)
        goto out;
    comment_make(jobs.v[0].comment, run, &comment);
    if ((rc = str_check(&comment, err)) < 0)
        goto out;
    rc = rpc->ops->comment(rpc, jobs.v[0].handle, comment.p ? comment.p : "", err);
out:
    str_release(&comment);
    arena_release(&arena);
    return rc;
}
