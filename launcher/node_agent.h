/* node_agent: one process on each node of a job, beside the trainer's ranks, that hears what the batch process does not.
 *
 * Why: within a partition's grace time Slurm signals the steps and not the batch process; at the end of it the batch process and not
 * always the steps; and srun, once told that its step is cancelled, passes on nothing more. So both levels listen, and tell each other:
 *
 *     Slurm -> node agent: the first to hear makes claims/notice-<attempt> (exclusive create) and writes the event `signal`, naming
 *              its node; the batch agent looks for that file once a second
 *     Slurm -> batch agent: SIGALRM to the step of the node agents (srun passes it on)
 *     either way every node agent tells the ranks of its node (launcher/ranks.h), each once, and looks once a second for more: a trainer that
 *              starts up may not hear yet
 *
 * SIGUSR2 ends the node agents. Everything may come twice and in any order.
 */
#ifndef LAUNCHER_NODE_AGENT_H
#define LAUNCHER_NODE_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "launcher/sched/sched.h"

/* ---- on a node ---- */

struct node_agent_conf {
    const char *run_dir;
    int64_t attempt;
    int signo; /* what the trainer takes for a notice */
};
/* Until SIGUSR2. */
int node_agent_run(const struct node_agent_conf *conf, struct err *err);

/* What the trainer's processes of this attempt carry in RANKS_VARIABLE: "<run id>.<attempt>". */
void node_agent_mark(const char *run_dir, int64_t attempt, char buf[LIMIT_NAME_BYTES]);

/* ---- in the batch agent ---- */

struct node_agents;
/* steps: a scheduler that starts ranks itself. */
int node_agents_start(struct sched *steps, const struct node_agent_conf *conf, const char *bin_dir, struct node_agents **out,
                      struct err *err);
bool node_agents_heard(struct node_agents *n);            /* a notice came to one of them. NULL: never */
const char *node_agents_lost(struct node_agents *n);      /* a node the scheduler lost; "" none */
bool node_agents_live(struct node_agents *n);
void node_agents_tell(struct node_agents *n);             /* pass a notice on to all ranks */
void node_agents_free(struct node_agents *n);             /* ends them; NULL is fine */

#endif
