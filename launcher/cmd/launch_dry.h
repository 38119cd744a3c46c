/* launch_dry: shows what 'reel launch' would do, for --dry-run, and checks whether memory and disk
 * suffice. All other checks of a launch have passed before. */
#ifndef LAUNCHER_CMD_LAUNCH_DRY_H
#define LAUNCHER_CMD_LAUNCH_DRY_H

#include "launcher/cmd/cmd.h"
#include "launcher/submit/change.h"

struct launch_dry {
    const struct run *run; /* as it would be submitted */
    const struct plan *plan;
    const char *word;  /* "create", "replace", "take up" */
    const char *state; /* of the run if it exists; "" for a new one */
    /* the run's folder; of a new run, with "<id>" in place of the id, which is drawn when the run
     * is created */
    const char *run_dir;
    const struct str *script;
    const struct change_told *told; /* of the run if it exists */
};

/* Prints text, or with json one object. */
int launch_dry_print(const struct launch_dry *d, struct sched *s, bool json, struct err *err);
/* Warns on stderr if the plan was predicted for another device, dtype, number of tokens, trainer or
 * other settings of memory than the run's. */
void launch_differs_note(const struct run *run, const struct plan *plan, const struct sched *s);
/* Returns ERR_NO if the job would certainly fail: it runs on this machine, which has less memory
 * than is planned, or the run is new and the disk has no room for one checkpoint. It reads run,
 * plan and run_dir of d. */
int launch_room_check(const struct launch_dry *d, const struct sched *s, bool is_new,
                      struct err *err);

#endif
