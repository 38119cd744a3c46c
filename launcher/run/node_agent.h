/* node_agent: runs one process on each node of a job, beside the trainer's ranks. It receives stop
 * notices that the batch process does not get, and signals the ranks.
 *
 * Node agents are needed because neither the batch process nor the steps get every signal. Within a
 * partition's grace time Slurm signals the steps and not the batch process. Before the time limit,
 * and at the end of the grace time, it signals the batch process and not always the steps. And srun
 * forwards no more signals after its step was cancelled. So node agents and batch agent both wait
 * for signals, and inform each other through the notice file, claims/notice-<attempt> (`word` in
 * the code). The batch agent creates it empty. The first to get a notice writes its node's name
 * into it, and all of them read it four times a second. (The file exists from the beginning because
 * a shared file system may answer from its cache that a file does not exist; opening an existing
 * file asks the server. If two write at once, either text suffices. The end file,
 * claims/end-<attempt>, asks the node agents to end; only the batch agent writes it.)
 *
 *     Slurm -> node agent: it writes the notice file and the event `signal`, which names its node;
 *              the batch agent finds the notice
 *     Slurm -> batch agent: it writes the notice file; the node agents find the notice
 *     either way every node agent signals the ranks of its node (launcher/run/ranks.h), each rank
 *              once, writes the event `ranks_told`, and goes on looking for more ranks: a trainer
 *              that starts up may not have its handler yet. On its own host the batch agent signals
 *              the ranks too
 *     if some node has not reported within half a second, the batch agent has Slurm itself send
 *              SIGCONT to the node agents' step, because somebody may have stopped them
 *     if some node has not reported within two seconds, or the notice file cannot be written, srun
 *              sends SIGUSR1 to all node agents, but not before those of the silent nodes handle
 *              signals. When it can handle signals, a node agent says so in the step's log, which
 *              srun writes on the batch agent's host. A minute after the start, srun is used in any
 *              case
 *
 * With signo 0 no rank is signalled. A notice that the steps got is recorded nevertheless: it
 * distinguishes an interrupted trainer from one that is done. SIGUSR2 or the end file ends the node
 * agents after they have handled earlier notices. Signals and notices may come twice and in any
 * order.
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
    int signo; /* the signal on which the trainer saves and stops; 0: no rank is signalled */
    const char *agent_host; /* the batch agent's host, if the batch agent signals ranks there too;
                             * NULL: none */
};
/* Waits for notices and signals the ranks, until it is asked to end. */
int node_agent_run(const struct node_agent_conf *conf, struct err *err);

/* Formats the value of RANKS_VARIABLE in the environment of the trainer's processes of this
 * attempt: "<run id>.<attempt>". */
void node_agent_trainer_id(const char *run_dir, int64_t attempt, char buf[LIMIT_NAME_BYTES]);

/* ---- in the batch agent ---- */

struct node_agents;
/* Starts one node agent on each node. steps: the job's scheduler, which must be one that starts
 * each rank of a step itself (sched_ops.starts_ranks), as Slurm does. */
int node_agents_start(struct sched *steps, const struct node_agent_conf *conf, const char *bin_dir,
                      struct node_agents **out, struct err *err);
/* Tells whether a node agent got a notice before the batch agent did. False if n is NULL. */
bool node_agents_heard(const struct node_agents *n);
/* Returns the name of a node that the scheduler lost; "": none. */
const char *node_agents_lost(struct node_agents *n);
/* Returns the path for ranks_told.shared; NULL: there are no node agents. */
const char *node_agents_shared(const struct node_agents *n);
/* Passes a notice on to all ranks; call it again and again. Returns the nodes that did not report
 * in time, so that srun was used for them: "n1,n3"; "": none. The text is borrowed until the next
 * call. */
const char *node_agents_tell(struct node_agents *n);
/* Has node agents continued that may have been stopped, if some node has not reported soon after a
 * notice; call it often. NULL is fine. */
void node_agents_wake(struct node_agents *n);
/* Asks the node agents to end, and waits until they have ended, or until one has reported a notice.
 * Returns true if each node agent has handled the signals that the scheduler had sent it before.
 * The result of node_agents_heard is then final. */
bool node_agents_end(struct node_agents *n);
/* Asks the node agents to end, through the end file alone, and kills srun if they do not end soon.
 * It is for an attempt whose job runs elsewhere by now: if we signalled srun as node_agents_end
 * does, it would signal the new execution's steps, which have the same ids. NULL is fine; call
 * node_agents_free next. */
void node_agents_leave(struct node_agents *n);
/* Ends the node agents and frees n; NULL is fine. */
void node_agents_free(struct node_agents *n);

#endif
