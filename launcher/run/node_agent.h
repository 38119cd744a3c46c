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
 *              the ranks too. Those who signal the ranks of one host record in
 *              claims/told-<attempt> whom they have signalled (ranks_told.h), so that each rank
 *              gets one signal
 *     if some node has not reported within half a second, the batch agent has Slurm itself send
 *              SIGCONT to the node agents' step, because somebody may have stopped them
 *     if srun says that a node agent has ended, the batch agent starts another on its node, and if
 *              some node has not reported within 0.8 s, on that node too. It stands in: it does
 *              the work of a node agent unless an older one lives there
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

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"

/* A node agent prints this text, its node's name, and AT_STEP with the name of its step, as a line
 * of the step's log. */
#define NODE_AGENT_LISTENS "listens: "
#define NODE_AGENT_AT_STEP " in step "

/* The batch agent has srun send these to node agents; srun forwards both. */
enum { NODE_AGENT_TOLD = SIGUSR1, NODE_AGENT_END = SIGUSR2 };

struct node_agent_conf {
    const char *run_dir;
    int64_t attempt;
    int signo; /* the signal on which the trainer saves and stops; 0: no rank is signalled */
    bool stands_in; /* it is to do the work of a node agent that may have ended */
};
/* Waits for notices and signals the ranks, until it is asked to end. One that stands in ends at
 * once if an older node agent of the trainer lives on this node; it continues that one. */
int node_agent_run(const struct node_agent_conf *conf, struct err *err);

/* Formats the value of RANKS_VARIABLE in the environment of the trainer's processes of this
 * attempt: "<run id>.<attempt>". */
void node_agent_trainer_id(const char *run_dir, int64_t attempt, char buf[LIMIT_NAME_BYTES]);

#endif
