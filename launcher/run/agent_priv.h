/* agent_priv: what the files of the agent share: the agent itself, its ears (agent.c), and how an
 * attempt ends (agent_end.c). */
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
    struct run_fold *fold;         /* the one fold of this attempt, renewed whenever it decides */
    const struct run_state *state; /* what the fold gives */
    struct attempt attempt;
    struct node_agents *nodes; /* NULL: none */
    struct trainer trainer;
    int signal_fd;
    bool stop_requested, hung, srun_said;
    char node_lost[SCHED_ID_BYTES]; /* "": none */
    bool term;             /* SIGTERM came, to whatever level: the scheduler ends the job */
    bool learned;          /* the scheduler alone told us that the job is to end */
    bool unreadable;       /* the scheduler answered about the end, with a word nobody knows */
    struct sched_ending ending; /* as the scheduler has it when the trainer is gone */
    /* The job was being cancelled while the trainer lived. It stays so whatever the trainer asks of
     * the scheduler since. */
    struct sched_ending cancelled;
    bool revived; /* it was cancelled, and is to run again all the same */
    struct limit limit;
    struct asker *limit_asker, *kill_asker; /* NULL: there is no job to ask about */
    bool limit_told;       /* the notice is our own, before the end of the time limit */
    double kill_look_mono; /* then it is asked again whether the job is killed; INFINITY: never */
    bool kill_asked;       /* an answer to that is waited for */
    bool kill_again;       /* it is to be asked again behind that answer */
    double told_mono;      /* the trainer was asked to stop last */
    int notice_signo;      /* of the first notice */
    double notice_after_s; /* from the attempt's start to the first notice */
    struct attempt_ending before; /* how the attempt before ended, as the scheduler has it */
    double started_mono;   /* the attempt started */
    struct pulse pulse;    /* of the trainer */
    double looked_mono, gap_s; /* the trainer was looked at last; so long after the look before */
    bool continued;        /* SIGCONT came */
    struct owner_watch owner;
    struct arena arena;
};

/* Notes that the trainer is to stop, and tells it; the first notice counts. where: where it was
 * heard, for people. */
void agent_stop_request(struct agent *a, int signo, const char *where);
/* Notes at once that a node was lost, for the scheduler kills the rest of the job within its kill
 * wait. */
void agent_node_lost_note(struct agent *a, const char *node);
/* Waits a little for room for the claim or for the attempt's end, which must be written down.
 * False: there is nothing to wait for any more. */
bool agent_word_wait(struct agent *a, int rc);

/* Gives the job back as soon as the scheduler ends it at its time limit, or preempts it for good
 * and no grace is left, while the trainer still saves or does not listen. When the kill wait is
 * over the scheduler kills all of the job, this agent too, and nobody else would bring the run
 * back. */
void agent_kill_look(struct agent *a);
/* Says that a newer attempt has the run, and leaves it to that one: nothing more is told of this
 * attempt, and its job is not given back. */
void agent_step_aside(const struct agent *a, int *exit_code);
/* Ends the attempt when the trainer is gone: folds again, for the trainer wrote events, names the
 * cause, decides. */
int agent_finish(struct agent *a, const struct sched_step_status *exit, int *exit_code,
                 struct err *err);
/* Ends an attempt whose trainer could not be started, or not be watched any longer. That is a crash
 * like others, for on another node it may go well. By hand the error is the answer. */
int agent_fail(struct agent *a, int rc, int *exit_code, struct err *err);

#endif
