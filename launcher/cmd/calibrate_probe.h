/* calibrate_probe: measures constants of this machine's device by `reel-train probe`. */
#ifndef LAUNCHER_CMD_CALIBRATE_PROBE_H
#define LAUNCHER_CMD_CALIBRATE_PROBE_H

#include "launcher/cmd/cmd.h"
#include "profiles/constants.h"
#include "profiles/model.h"

struct calibrate_probe {
    const char *model;   /* the model whose shapes are measured: a name or a file */
    const char *cluster; /* a description that has the peaks of this machine's device */
    struct seq seq;
    enum dtype dtype;
};
/* Measures the model's shapes on this machine, with one rank. Sets the constants for the shares of
 * the device's peaks that products, attention and copies reach. */
int calibrate_probe(const struct cmd_env *env, const struct calibrate_probe *p,
                    struct constants *c, struct err *err);

#endif
