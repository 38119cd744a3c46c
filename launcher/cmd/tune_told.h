/* tune_told: shows tunings as `reel status` lists them and `reel explain tune` describes them. */
#ifndef LAUNCHER_CMD_TUNE_TOLD_H
#define LAUNCHER_CMD_TUNE_TOLD_H

#include "base/json.h"
#include "launcher/cmd/cmd.h"

/* Lists the tunings that run, stopped or died: a line each in `text`, or, if json is not NULL, its
 * member "tunes". */
int tunes_list(const char *home, struct str *text, struct json_out *json, struct err *err);
/* Prints the result of the tuning whose id begins with `id`, trial by trial. */
int explain_tune(const char *home, const char *id, bool json, struct err *err);

#endif
