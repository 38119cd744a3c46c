/* owner: notices, while an attempt runs, that the run's owner pauses or cancels the run
 * (launcher/submit/control.h). This works beside the scheduler's signals, and is the only way to
 * stop a run whose job cannot be proved to be reel's. */
#ifndef LAUNCHER_RUN_OWNER_H
#define LAUNCHER_RUN_OWNER_H

#include <time.h>

#include "launcher/state/state.h"

struct owner_watch { /* zeroed at first */
    /* Modification time of the run's events folder at the last look. Every pause or cancel changes
     * it, see launch_wish_poke. */
    struct timespec mtime;
    int looks; /* number of looks left since the folder changed */
};

/* Looks for a pause or cancel; call it several times a second. Renews the fold if the folder may
 * have changed. Returns WISH_RUN while no pause or cancel is known. */
enum run_wish owner_look(struct owner_watch *w, const char *run_dir, struct run_fold *fold);

#endif
