/* topo_profile: writes a profile (reel.cluster/1) of the machines that were read, for `reel topo -o
 * FILE` with or without --cluster. */
#ifndef LAUNCHER_CMD_TOPO_PROFILE_H
#define LAUNCHER_CMD_TOPO_PROFILE_H

#include "launcher/cmd/cmd.h"
#include "launcher/machine/survey.h"

/* Refuses, before any machine is read, options that need -o if it is missing, an output file that
 * is also an input, and a device that cannot be loaded. */
int topo_profile_check(const struct opt_values *v, struct err *err);
/* Writes the profile of one machine, and adds a line about it to `told`. */
int topo_profile_machine(const struct opt_values *v, const struct topo *t, struct str *told,
                         struct err *err);
/* Does the same for the usable nodes of a survey. dir/NODE.xml is the newest XML of a node. */
int topo_profile_cluster(const struct opt_values *v, const struct survey *s, const char *dir,
                         struct str *told, struct err *err);

#endif
