/* owner: what an agent hears of its run's owner while it runs (launcher/run/control.h): the second way to it beside a signal of the scheduler's,
 * and the only one for a run whose job nobody can prove to be ours. */
#ifndef LAUNCHER_RUN_OWNER_H
#define LAUNCHER_RUN_OWNER_H

#include <time.h>

#include "launcher/run/state.h"

struct owner_watch { /* begins zeroed */
    struct timespec mtime; /* of the run's folder of logs: it changes with each wish, see launch_wish_poke */
    int looks;             /* that are left since it changed */
};

/* Asked several times a second; renews the fold where something changed. WISH_RUN as long as
 * nothing else is known. */
enum run_wish owner_look(struct owner_watch *w, const char *run_dir, struct run_fold *fold);

#endif
