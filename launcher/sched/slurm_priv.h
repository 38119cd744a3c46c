/* slurm_priv: declares what the files of the scheduler "slurm" share. */
#ifndef LAUNCHER_SCHED_SLURM_PRIV_H
#define LAUNCHER_SCHED_SLURM_PRIV_H

#include "base/id.h"
#include "base/limits.h"
#include "launcher/sched/slurm.h"
#include "launcher/sched/slurm_rpc.h"

#define SLURM_COMMENT "reel:"
enum { SLURM_NICE = 1000 }; /* nice per unit of priority; a waiting job's age outweighs it only
                             * after a long time */

struct sched_slurm {
    struct sched base;
    struct slurm_rpc *rpc;
    char home[LIMIT_PATH_BYTES], dir[LIMIT_PATH_BYTES]; /* dir: <home>/sched/slurm */
    double poll_s, look_apart_s;
    bool described;
    struct slurm_site site;
    struct arena site_arena;
    bool net_asked;              /* the network was asked for, which happens once; net.kind NULL:
                                  * there was no answer */
    struct slurm_net net;        /* without nodes */
    struct arena net_arena;
    double history_at;           /* monotonic time of the last request to accounting; 0: none */
    struct slurm_jobs history;   /* the answer of accounting */
    struct arena history_arena;
    double alone_at;             /* monotonic time of this process's own last request; 0: none */
    struct slurm_jobs alone;     /* the answer to that request */
    struct arena alone_arena;
};

/* ---- functions without side effects ---- */

/* Returns the state that corresponds to Slurm's. PREEMPTED, COMPLETING, REQUEUED and unknown states
 * count as live. A preempted job that does not run again is over at its end; if it may be requeued,
 * it is over a minute later. */
enum sched_state slurm_state(const struct slurm_job *j, double now);
/* Tells whether the job ended in the second of its preemption. */
bool slurm_ended_as_preempted(const struct slurm_job *j);
/* Returns why the controller ends the job, or has ended it. site: has the preemption mode of the
 * job's partition; NULL: unknown. */
enum sched_end slurm_end(const struct slurm_job *j, const struct slurm_site *site, double now);
/* Returns the token in a comment that reel wrote; "" for any other comment. */
const char *slurm_token(const char *comment);
/* Returns the run id that slurm_note stored in a comment; "": none. */
const char *slurm_noted(const char *comment, char run[ID_TEXT_BYTES]);
/* Converts jobs; copies the texts. */
int slurm_to_sched(const struct slurm_jobs *in, double now, struct sched_jobs *out,
                   struct err *err);

/* ---- records of submissions: <dir>/jobs/<token>.json ---- */

struct slurm_record {
    bool exists;
    char id[SCHED_ID_BYTES]; /* "": an intent whose outcome is unknown */
    char name[LIMIT_NAME_BYTES]; /* of the job; "": an older version wrote none */
};
/* Restores the comments of reel's jobs in this list. Somebody may have overwritten them (a site may
 * write account names there), but the comment must have the job's token. A job is reel's if a
 * record binds its id, and the job's name is the record's. */
int slurm_comments_mend(const struct sched_slurm *s, struct slurm_jobs *jobs, struct arena *arena,
                        struct err *err);
int slurm_record_load(const struct sched_slurm *s, const char *token, struct slurm_record *out,
                      struct err *err);

struct slurm_ours {
    enum sched_state state;
    char handle[SCHED_ID_BYTES]; /* of struct slurm_job */
};
/* Finds one of reel's jobs. ERR_NOT_FOUND: there is no such job, it is not reel's, or Slurm has
 * forgotten it. */
int slurm_job_ours(struct sched_slurm *l, const char *id, struct slurm_ours *out, struct err *err);

/* Refuses a job that can never run, because Slurm accepts jobs that fit no node, and lets them
 * wait. */
int slurm_fits(struct sched_slurm *s, const struct sched_spec *spec, struct err *err);
/* Asks the controller, without submitting, whether the job's account, QOS, partition and nodes are
 * there and may be used, and whether their limits allow such a job. Any other answer, and none,
 * counts as yes: the submission will tell. */
int slurm_names_check(struct sched_slurm *s, const struct sched_spec *spec, struct err *err);
/* Appends the batch script. It unsets variables that a Slurm daemon or the shell adds although the
 * submission did not have them, and sets reel's variables from Slurm's. */
void slurm_script(const struct sched_spec *spec, struct str *out);

/* Submits one job for one token, even after earlier calls that failed or were killed. */
int slurm_submit_once(struct sched_slurm *s, const struct sched_spec *spec,
                      char id[SCHED_ID_BYTES], struct err *err);

/* Appends the run's id to the job's comment. */
int slurm_note(struct sched *s, const char *id, const char *run, struct err *err);

/* ---- the shared answer ---- */

/* Lists every job of this user, from an answer that is at most poll_s old, or older while another
 * process asks for a new one. ERR_TEMP: the controller did not answer the last request. If the
 * answer cannot be shared, because the folder is full or not writable, this process asks the
 * controller itself. */
int slurm_poll_shared(struct sched_slurm *s, struct arena *arena, struct slurm_jobs *out,
                      struct err *err);
/* Forgets the shared answer, because it lacks a job that was just submitted. The next poll asks the
 * controller. */
void slurm_poll_forget(struct sched_slurm *s);

/* ---- where the ranks of a step go (slurm_place.c) ---- */

int slurm_place(struct sched_slurm *s, const struct sched_step_spec *spec, struct arena *arena,
                struct sched_placement *out, struct err *err);
/* Writes the placement as a host file for srun, with one host per rank, in a new file in s->dir.
 * *path is allocated in the arena. */
int slurm_host_file_write(const struct sched_slurm *s, const struct sched_placement *p,
                          struct arena *arena, const char **path, struct err *err);

/* ---- steps (slurm_step.c) ---- */

int slurm_step_start(struct sched_slurm *s, const struct sched_step_spec *spec,
                     struct sched_step **out, struct err *err);
int slurm_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                    struct err *err);
int slurm_step_signal(struct sched_step *step, int signo, struct err *err);
int slurm_step_reach(struct sched_step *step, const char *const *ids, int signo, struct err *err);
void slurm_step_free(struct sched_step *step);

#endif
