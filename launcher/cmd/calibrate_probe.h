/* calibrate_probe: constants of the device here, measured by `reel-train probe`. */
#ifndef LAUNCHER_CMD_CALIBRATE_PROBE_H
#define LAUNCHER_CMD_CALIBRATE_PROBE_H

#include "launcher/cmd/cmd.h"
#include "profiles/constants.h"
#include "profiles/model.h"

struct calibrate_probe {
    const char *model, *cluster; /* whose shapes are measured; whose device's peaks are shared */
    struct seq seq;
    enum dtype dtype;
};
/* Measures the model's own shapes with one rank, and sets the shares of its peaks that the device
 * of the cluster's description reaches: in products, attention, copies. */
int calibrate_probe(const struct cmd_env *env, const struct calibrate_probe *p,
                    struct constants *c, struct err *err);

#endif
