/* tune_show: shows the result of `reel tune`, as text and as JSON (`reel.tune/1`). */
#ifndef LAUNCHER_CMD_TUNE_SHOW_H
#define LAUNCHER_CMD_TUNE_SHOW_H

#include "autotune/tune.h"

/* Holds the winner's plan and the file to which it was written. `winner` is NULL in a dry run, and
 * `path` if the plan could not be written. */
struct tune_answer {
    const struct tune *tune;
    const struct plan *winner;
    const char *path;
};
int tune_text(const struct tune_answer *a, struct str *out, struct err *err);
int tune_json(const struct tune_answer *a, struct str *out, struct err *err);

#endif
