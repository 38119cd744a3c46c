/* slurm_priv: declares what the files of the scheduler "slurm" share. */
#ifndef LAUNCHER_SCHED_SLURM_PRIV_H
#define LAUNCHER_SCHED_SLURM_PRIV_H

#include "base/id.h"
#include "base/limits.h"
#include "launcher/sched/slurm.h"
#include "launcher/sched/slurm_rpc.h"

#define SLURM_COMMENT "reel:"
enum { SLURM_NICE = 1000 }; /* of one step of priority; it takes a job long to make up for it by
                             * its age in the queue */

struct sched_slurm {
    struct sched base;
    struct slurm_rpc *rpc;
    char home[LIMIT_PATH_BYTES], dir[LIMIT_PATH_BYTES]; /* dir: <home>/sched/slurm */
    double poll_s, look_apart_s;
    bool described;
    struct slurm_site site;
    struct arena site_arena;
    bool net_asked;              /* the network is asked for once; net.kind NULL: no answer */
    struct slurm_net net;        /* without nodes */
    struct arena net_arena;
    double history_at;           /* monotonic, of the last question to accounting; 0: none */
    struct slurm_jobs history;   /* its answer */
    struct arena history_arena;
    double alone_at;             /* monotonic, when this process asked for itself; 0: never */
    struct slurm_jobs alone;     /* its answer */
    struct arena alone_arena;
};

/* ---- pure ---- */

/* Returns our state for Slurm's word. PREEMPTED, COMPLETING, REQUEUED and unknown words are live. A
 * preempted job that does not come back is over at its end, or a minute later if it may be
 * requeued. */
enum sched_state slurm_state(const struct slurm_job *j, double now);
/* Returns why the controller ends the job, or has ended it. site: tells what preemption does in its
 * partition; NULL: not known. */
enum sched_end slurm_end(const struct slurm_job *j, const struct slurm_site *site, double now);
/* Returns the token in a comment of ours, "" for anybody else's. */
const char *slurm_token(const char *comment);
/* Returns the run that slurm_note left in a comment; "": none. */
const char *slurm_noted(const char *comment, char run[ID_TEXT_BYTES]);
/* Converts jobs; copies the texts. */
int slurm_to_sched(const struct slurm_jobs *in, double now, struct sched_jobs *out,
                   struct err *err);

/* ---- records of submissions: <dir>/jobs/<token>.json ---- */

struct slurm_record {
    bool exists;
    char id[SCHED_ID_BYTES]; /* "": an intent whose outcome is not known */
    char name[LIMIT_NAME_BYTES]; /* of the job; "": an older version wrote none */
};
/* Restores comments of our jobs in this list. Somebody may have overwritten them (a site may keep
 * its accounts there), but a comment holds the job's token. A job is ours if a record says that a
 * submission from here got its id, for a job of the same name. */
int slurm_comments_mend(const struct sched_slurm *s, struct slurm_jobs *jobs, struct arena *arena,
                        struct err *err);
int slurm_record_load(const struct sched_slurm *s, const char *token, struct slurm_record *out,
                      struct err *err);

/* Finds the state of a job of ours. ERR_NOT_FOUND: there is no such job, it is not ours, or Slurm
 * has forgotten it. */
int slurm_job_ours(struct sched_slurm *l, const char *id, enum sched_state *state,
                   struct err *err);

/* Refuses a job that can never run: Slurm takes jobs that fit no node, and lets them wait. */
int slurm_fits(struct sched_slurm *s, const struct sched_spec *spec, struct err *err);
/* Appends the batch script. The script removes variables that a Slurm daemon or the shell adds and
 * nobody submitted, and sets our own from Slurm's. */
void slurm_script(const struct sched_spec *spec, struct str *out);

/* Submits one job for one token, whatever happened before. */
int slurm_submit_once(struct sched_slurm *s, const struct sched_spec *spec,
                      char id[SCHED_ID_BYTES], struct err *err);

/* Appends the run's id to the job's comment. */
int slurm_note(struct sched *s, const char *id, const char *run, struct err *err);

/* ---- the shared answer ---- */

/* Lists every job of this user, from an answer not older than poll_s. ERR_TEMP: the controller did
 * not answer lately. If the answer cannot be shared, because the folder is full or may not be
 * written, this process asks for itself. */
int slurm_poll_shared(struct sched_slurm *s, struct arena *arena, struct slurm_jobs *out,
                      struct err *err);
/* Forgets the shared answer, because it lacks a job that was just submitted. The next poll asks the
 * controller. */
void slurm_poll_forget(struct sched_slurm *s);

/* ---- where the ranks of a step go (slurm_place.c) ---- */

int slurm_place(struct sched_slurm *s, const struct sched_step_spec *spec, struct arena *arena,
                struct sched_placement *out, struct err *err);
/* Writes the placement as srun reads it: a host for each rank, in a file of its own under s->dir.
 * *path is allocated in the arena. */
int slurm_host_file_write(const struct sched_slurm *s, const struct sched_placement *p,
                          struct arena *arena, const char **path, struct err *err);

/* ---- steps (slurm_step.c) ---- */

int slurm_step_start(struct sched_slurm *s, const struct sched_step_spec *spec,
                     struct sched_step **out, struct err *err);
int slurm_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                    struct err *err);
int slurm_step_signal(struct sched_step *step, int signo, struct err *err);
void slurm_step_free(struct sched_step *step);

#endif
