/* topo_cluster: `reel topo --cluster`; see topo_cluster.c. */
#ifndef LAUNCHER_CMD_TOPO_CLUSTER_H
#define LAUNCHER_CMD_TOPO_CLUSTER_H

#include "launcher/cmd/cmd.h"

/* ERR_CHILD, after printing: some node gave no answer. */
int topo_cluster_run(const struct opt_values *v, struct cmd_env *env, struct err *err);
/* The task on a node: its XML, or the sentence why there is none, into the folder of --probe. A node's failure is no failure of the task. */
int topo_probe(const struct opt_values *v, struct cmd_env *env, struct err *err);

/* This machine's XML, discovered by a child of the same program (topo.c). */
int topo_live_xml(const struct cmd_env *env, bool whole, double deadline_s, struct str *xml, struct err *err);

#endif
