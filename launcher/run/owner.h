/* owner: what an agent hears of its run's owner while it runs (launcher/submit/control.h). It is
 * the second way to the agent beside a signal of the scheduler's, and the only one for a run whose
 * job nobody can prove to be ours. */
#ifndef LAUNCHER_RUN_OWNER_H
#define LAUNCHER_RUN_OWNER_H

#include <time.h>

#include "launcher/state/state.h"

struct owner_watch { /* begins zeroed */
    /* The run's folder of logs had this time, which changes with each wish, see
     * launch_wish_poke. */
    struct timespec mtime;
    int looks; /* how many are left since it changed */
};

/* Looks for a wish, several times a second; renews the fold where something changed. Returns
 * WISH_RUN as long as nothing else is known. */
enum run_wish owner_look(struct owner_watch *w, const char *run_dir, struct run_fold *fold);

#endif
