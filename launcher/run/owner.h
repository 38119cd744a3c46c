/* owner: notices, while an attempt runs, that the run's owner pauses or cancels the run
 * (launcher/submit/control.h). This is the agent's second source beside the scheduler's signals,
 * and the only one for a run whose job cannot be proved to be ours. */
#ifndef LAUNCHER_RUN_OWNER_H
#define LAUNCHER_RUN_OWNER_H

#include <time.h>

#include "launcher/state/state.h"

struct owner_watch { /* begins zeroed */
    /* Modification time of the run's folder of logs at the last look. Each wish changes it, see
     * launch_wish_poke. */
    struct timespec mtime;
    int looks; /* number of looks that are left since it changed */
};

/* Looks for a wish; to be called several times a second. Renews the fold if something may have
 * changed. Returns WISH_RUN as long as no other wish is known. */
enum run_wish owner_look(struct owner_watch *w, const char *run_dir, struct run_fold *fold);

#endif
