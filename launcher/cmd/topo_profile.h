/* topo_profile: `reel topo -o FILE`, with or without --cluster: the profile reel.cluster/1 of what
 * was seen. */
#ifndef LAUNCHER_CMD_TOPO_PROFILE_H
#define LAUNCHER_CMD_TOPO_PROFILE_H

#include "launcher/cmd/cmd.h"
#include "launcher/machine/survey.h"

/* Refuses what needs -o and is given without it, and a device that is not there, before anything is
 * looked at. */
int topo_profile_check(const struct opt_values *v, struct err *err);
/* Writes the profile of one machine, and adds a line about it to `told`. */
int topo_profile_machine(const struct opt_values *v, const struct topo *t, struct str *told,
                         struct err *err);
/* Does the same for the nodes of a survey that may be had, as the newest XML of each, dir/NODE.xml,
 * has them. */
int topo_profile_cluster(const struct opt_values *v, const struct survey *s, const char *dir,
                         struct str *told, struct err *err);

#endif
