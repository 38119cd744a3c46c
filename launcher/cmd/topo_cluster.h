/* topo_cluster: runs `reel topo --cluster`. The top of topo_cluster.c describes how. */
#ifndef LAUNCHER_CMD_TOPO_CLUSTER_H
#define LAUNCHER_CMD_TOPO_CLUSTER_H

#include "launcher/cmd/cmd.h"

/* Prints the cluster's nodes. Returns ERR_CHILD, after printing, if some node gave no answer. */
int topo_cluster_run(const struct opt_values *v, struct cmd_env *env, struct err *err);
/* Runs as the task on a node: writes the node's XML, or the error why there is none, to the folder
 * of --probe. It fails only if it cannot write there. */
int topo_probe(const struct opt_values *v, struct cmd_env *env, struct err *err);

/* Reads this machine's XML, which a child process that runs the same program captures (topo.c). */
int topo_live_xml(const struct cmd_env *env, bool whole, double deadline_s, struct str *xml,
                  struct err *err);

#endif
