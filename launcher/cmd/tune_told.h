/* tune_told: tunings, as `reel status` lists them and `reel explain tune` tells them. */
#ifndef LAUNCHER_CMD_TUNE_TOLD_H
#define LAUNCHER_CMD_TUNE_TOLD_H

#include "base/json.h"
#include "launcher/cmd/cmd.h"

/* Adds those tunings that go on, that stopped and that died to a text; or, where json is not NULL,
 * as its member "tunes". */
int tunes_list(const char *home, struct str *text, struct json_out *json, struct err *err);
/* Prints what became of the tuning whose id begins so, trial by trial. */
int explain_tune(const char *home, const char *id, bool json, struct err *err);

#endif
