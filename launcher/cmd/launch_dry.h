/* launch_dry: what 'reel launch --dry-run' shows, when every check of the real path has said yes. */
#ifndef LAUNCHER_CMD_LAUNCH_DRY_H
#define LAUNCHER_CMD_LAUNCH_DRY_H

#include "launcher/cmd/cmd.h"
#include "launcher/run/change.h"

struct launch_dry {
    const struct run *run;   /* as it would be submitted */
    const struct plan *plan;
    const char *word;        /* "create", "replace", "take up" */
    const char *state;       /* of the run that is there, "" for a new one */
    const char *run_dir;     /* of a new one with "<id>" in place of its id, which is drawn when it is made */
    const struct str *script;
    const struct change_told *told; /* of the run that is there */
};

/* Text, or (json) one object. */
int launch_dry_print(const struct launch_dry *d, struct sched *s, bool json, struct err *err);
/* ERR_NO where the job would surely fail: it runs on this machine, which has less memory than is
 * planned, or it is a new run's and the disk has no room for one checkpoint. Of d run, plan and
 * run_dir are read. */
int launch_room_check(const struct launch_dry *d, const struct sched *s, bool is_new,
                      struct err *err);

#endif
