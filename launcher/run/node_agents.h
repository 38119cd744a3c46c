/* node_agents: starts the node agents of a job (node_agent.h) from its batch agent, passes notices
 * on to them, replaces those that are missing, and ends them.
 */
#ifndef LAUNCHER_RUN_NODE_AGENTS_H
#define LAUNCHER_RUN_NODE_AGENTS_H

#include <stdbool.h>

#include "base/err.h"
#include "launcher/run/node_agent.h"
#include "launcher/sched/sched.h"

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
/* Says what was done for nodes. Borrowed, until the next call. how: "continued" (the scheduler was
 * asked to continue their agents, which may have been stopped), "replaced" (their agents had ended)
 * or "silent" (a second agent was started for each, which is needed only if no other lives). */
struct node_agents_mended {
    const char *nodes; /* "n1,n3" */
    const char *how;
};
/* Does one thing for nodes whose agents have ended, or have not reported soon after a notice. Call
 * it often, until it returns false: nothing was to be done. NULL is fine. */
bool node_agents_mend(struct node_agents *n, struct node_agents_mended *out);
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
