/* agent_priv: declares what the agent's files share: struct agent, and the functions by which the
 * watch over the trainer (agent.c) and the end of an attempt (agent_end.c) call each other. */
#ifndef LAUNCHER_RUN_AGENT_PRIV_H
#define LAUNCHER_RUN_AGENT_PRIV_H

#include "base/pulse.h"
#include "launcher/run/agent.h"
#include "launcher/run/asker.h"
#include "launcher/run/duty.h"
#include "launcher/run/limit.h"
#include "launcher/run/node_agents.h"
#include "launcher/run/owner.h"
#include "launcher/run/trainer.h"
#include "launcher/state/attempt.h"

struct agent {
    const struct agent_conf *conf;
    struct duty duty;
    struct run_fold *fold;         /* the one fold of this attempt, renewed before each decision */
    const struct run_state *state; /* the state that the fold computed */
    struct attempt attempt;
    struct node_agents *nodes; /* NULL: none */
    struct trainer trainer;
    int signal_fd;
    bool stop_requested, hung, srun_said;
    char node_lost[SCHED_ID_BYTES]; /* "": none */
    bool term; /* SIGTERM came, to the batch process or to a step: the scheduler ends the job */
    bool learned; /* no notice came, but the scheduler answered that it ends the job */
    bool unreadable; /* the scheduler gave a reason for the job's end that reel does not know */
    struct sched_ending ending; /* the scheduler's answer after the trainer's end */
    /* The scheduler's answer, while the trainer ran, that the job was being cancelled. It counts
     * even if the trainer requeues the job afterwards. */
    struct sched_ending cancelled;
    bool revived; /* the job was cancelled and then requeued nevertheless */
    struct limit limit;
    struct asker *limit_asker, *kill_asker; /* NULL: there is no job to ask about */
    bool limit_told;       /* the notice is the agent's own, before the end of the time limit */
    double kill_look_mono; /* when the scheduler is asked next whether it kills the job; INFINITY:
                            * never */
    bool kill_asked;       /* that request waits for its answer */
    bool kill_again;       /* the request is to be sent once more after that answer */
    double told_mono;      /* when the trainer was last signalled to stop */
    int notice_signo;      /* of the first notice */
    double notice_after_s; /* from the attempt's start to the first notice */
    struct attempt_ending before; /* the scheduler's answer about how the attempt before ended */
    double started_mono;   /* when the attempt started */
    struct pulse pulse;    /* of the trainer */
    double looked_mono, gap_s; /* when the trainer was looked at last, and the time since the look
                                * before that, s */
    bool continued;        /* SIGCONT came */
    struct owner_watch owner;
    struct arena arena;
};

/* Records that the trainer is to stop, and signals it; only the first notice counts. where: where
 * the notice came, for people to read. */
void agent_stop_request(struct agent *a, int signo, const char *where);
/* Records at once that a node was lost, because the scheduler kills the rest of the job within its
 * kill wait. */
void agent_node_lost_note(struct agent *a, const char *node);
/* Waits a little if `rc` is ERR_FULL: the disk has no room for the claim or for the end of the
 * attempt, which must be written. Returns false if the caller should not try again. */
bool agent_word_wait(struct agent *a, int rc);

/* Requeues the job as soon as the scheduler ends it at its time limit, or preempts it and no grace
 * time is left, while the trainer still saves or ignores its signal. After the kill wait the
 * scheduler kills the whole job with this agent, and nobody else would bring the run back. */
void agent_kill_look(struct agent *a);
/* Kills the processes of a wrapped trainer that are left on this node, because a newer attempt has
 * begun. What srun started is not below this process: a node that stood still while it was taken
 * for lost has ranks that nobody else ends, and they would go on to save. */
void agent_zombies_end(const struct agent *a);
/* Logs that a newer attempt has taken over the run, and leaves the run to it: the end of this
 * attempt is not recorded, and its job is not requeued. */
void agent_step_aside(const struct agent *a, int *exit_code);
/* Ends the attempt after its trainer has ended: folds the trainer's events, determines the cause,
 * and brings the run back unless it is over. */
int agent_finish(struct agent *a, const struct sched_step_status *exit, int *exit_code,
                 struct err *err);
/* Ends an attempt whose trainer could not be started or watched. This counts as a crash, or as a
 * full disk for ERR_FULL, since another node may work. Outside a job it returns the error. */
int agent_fail(struct agent *a, int rc, int *exit_code, struct err *err);

#endif
