/* agent_priv: declares what the files of the agent share: the agent itself, its watch over the
 * trainer (agent.c), and how an attempt ends (agent_end.c). */
#ifndef LAUNCHER_RUN_AGENT_PRIV_H
#define LAUNCHER_RUN_AGENT_PRIV_H

#include "base/pulse.h"
#include "launcher/run/agent.h"
#include "launcher/run/asker.h"
#include "launcher/run/duty.h"
#include "launcher/run/limit.h"
#include "launcher/run/node_agent.h"
#include "launcher/run/owner.h"
#include "launcher/run/trainer.h"
#include "launcher/state/attempt.h"

struct agent {
    const struct agent_conf *conf;
    struct duty duty;
    struct run_fold *fold;         /* the one fold of this attempt, renewed before each decision */
    const struct run_state *state; /* what the fold gives */
    struct attempt attempt;
    struct node_agents *nodes; /* NULL: none */
    struct trainer trainer;
    int signal_fd;
    bool stop_requested, hung, srun_said;
    char node_lost[SCHED_ID_BYTES]; /* "": none */
    bool term;             /* SIGTERM came, here or to a step: the scheduler ends the job */
    bool learned; /* no notice came, but the scheduler's answer was that the job is to end */
    bool unreadable;       /* the scheduler answered about the end, with a reason that reel does not
                            * know */
    struct sched_ending ending; /* the scheduler's answer after the trainer's end */
    /* The scheduler's answer that the job was being cancelled while the trainer lived. It counts,
     * whatever the trainer asks of the scheduler afterwards. */
    struct sched_ending cancelled;
    bool revived; /* the job was cancelled and then requeued all the same */
    struct limit limit;
    struct asker *limit_asker, *kill_asker; /* NULL: there is no job to ask about */
    bool limit_told;       /* the notice is our own, before the end of the time limit */
    double kill_look_mono; /* when the scheduler is asked next whether it kills the job; INFINITY:
                            * never */
    bool kill_asked;       /* that question waits for its answer */
    bool kill_again;       /* the question is to be put once more after that answer */
    double told_mono;      /* when the trainer was told to stop last */
    int notice_signo;      /* of the first notice */
    double notice_after_s; /* from the attempt's start to the first notice */
    struct attempt_ending before; /* the scheduler's answer how the attempt before ended */
    double started_mono;   /* when the attempt started */
    struct pulse pulse;    /* of the trainer */
    double looked_mono, gap_s; /* when the trainer was looked at last, and how long after the look
                                * before, s */
    bool continued;        /* SIGCONT came */
    struct owner_watch owner;
    struct arena arena;
};

/* Notes that the trainer is to stop, and tells it; the first notice counts. where: where it was
 * heard, for people. */
void agent_stop_request(struct agent *a, int signo, const char *where);
/* Notes at once that a node was lost, because the scheduler kills the rest of the job within its
 * kill wait. */
void agent_node_lost_note(struct agent *a, const char *node);
/* Waits a little if `rc` says that the disk has no room for the claim or for the attempt's end,
 * which must be written. Returns false if there is nothing to wait for. */
bool agent_word_wait(struct agent *a, int rc);

/* Gives the job back as soon as the scheduler ends it at its time limit, or preempts it for good
 * and no grace is left, while the trainer still saves or does not listen. When the kill wait is
 * over the scheduler kills all of the job, this agent too, and nobody else would bring the run
 * back. */
void agent_kill_look(struct agent *a);
/* Logs that a newer attempt has the run, and leaves the run to it: no end of this attempt is
 * recorded, and its job is not given back. */
void agent_step_aside(const struct agent *a, int *exit_code);
/* Ends the attempt after its trainer has ended: folds the events that the trainer wrote, names the
 * cause, and gives the job back unless the run is over. */
int agent_finish(struct agent *a, const struct sched_step_status *exit, int *exit_code,
                 struct err *err);
/* Ends an attempt whose trainer could not be started, or not be watched any longer. That counts as
 * a crash, or as a full disk for ERR_FULL, since another node may do better. Outside a job the
 * error is returned. */
int agent_fail(struct agent *a, int rc, int *exit_code, struct err *err);

#endif
