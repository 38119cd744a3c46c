/* node_agent: one process on each node of a job, beside the trainer's ranks, that hears what the
 * batch process does not, and tells the ranks.
 *
 * It is needed because neither level hears everything. Within a partition's grace time Slurm
 * signals the steps and not the batch process. At a notice before the time limit, and at the end of
 * the grace time, it signals the batch process and not always the steps. And srun, once told that
 * its step is cancelled, passes on nothing more. So both levels listen, and tell each other through
 * one file, the word: claims/notice-<attempt>. The batch agent makes it, empty. Whoever hears first
 * writes into it who that was, and everybody looks at it four times a second. (It is there from the
 * beginning because a shared file system may answer from its cache that a file is not there;
 * opening one that is there asks the server. Two who hear at once write over each other, and either
 * word will do. A second file, claims/end-<attempt>, tells the node agents to end; only the batch
 * agent writes it.)
 *
 *     Slurm -> node agent: it writes the word and the event `signal`, which names its node; the
 *              batch agent finds the word
 *     Slurm -> batch agent: it writes the word; the node agents find it
 *     either way every node agent tells the ranks of its node (launcher/run/ranks.h), each once,
 *              says so by the event `ranks_told`, and looks once a second for more: a trainer that
 *              starts up may not hear yet. On its own host the batch agent tells them too
 *     a node that has said nothing within two seconds is told by srun as well (SIGUSR1, which srun
 *              passes on), but not before its node agent listens. A node agent says that it listens
 *              in the step's log, which srun writes on the batch agent's host. A minute after the
 *              start, srun is used in any case
 *
 * With signo 0 nobody is told. That a notice came to the steps is recorded all the same: it
 * distinguishes an interrupted trainer from one that is done. SIGUSR2, or the file that tells them
 * to end, ends the node agents after they have handled what came before. Everything may come twice
 * and in any order.
 */
#ifndef LAUNCHER_RUN_NODE_AGENT_H
#define LAUNCHER_RUN_NODE_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "launcher/sched/sched.h"

/* ---- on a node ---- */

struct node_agent_conf {
    const char *run_dir;
    int64_t attempt;
    int signo;              /* the signal that the trainer takes for a notice; 0: it is not told */
    const char *agent_host; /* the batch agent's host, where that tells the ranks too; NULL: none */
};
/* Listens and tells until it is told to end. */
int node_agent_run(const struct node_agent_conf *conf, struct err *err);

/* Formats what the trainer's processes of this attempt carry in RANKS_VARIABLE:
 * "<run id>.<attempt>". */
void node_agent_trainer_id(const char *run_dir, int64_t attempt, char buf[LIMIT_NAME_BYTES]);

/* ---- in the batch agent ---- */

struct node_agents;
/* Starts one on each node. steps: the scheduler, which starts ranks itself. */
int node_agents_start(struct sched *steps, const struct node_agent_conf *conf, const char *bin_dir,
                      struct node_agents **out, struct err *err);
/* Did a notice come to one of them before it came to the batch agent? False if n is NULL. */
bool node_agents_heard(const struct node_agents *n);
/* Returns a node that the scheduler lost; "" none. */
const char *node_agents_lost(struct node_agents *n);
/* Returns the folder for ranks_told.shared; NULL: no node agents. */
const char *node_agents_shared(const struct node_agents *n);
/* Passes a notice on to all ranks. Call it again and again. Returns the nodes that were silent too
 * long, so that srun was used for them: "n1,n3"; "": none. Borrowed until the next call. */
const char *node_agents_tell(struct node_agents *n);
/* Tells the node agents to end, and waits until they have, or until one has reported a notice.
 * Returns true if each has handled what the scheduler had sent it before. node_agents_heard is then
 * final. */
bool node_agents_end(struct node_agents *n);
/* Leaves the node agents to end by themselves. This is for an attempt whose job runs elsewhere by
 * now: srun would pass each signal on to the steps that the job has there, because they have the
 * same numbers. NULL is fine; node_agents_free comes next. */
void node_agents_leave(struct node_agents *n);
/* Ends them. NULL is fine. */
void node_agents_free(struct node_agents *n);

#endif
