/* foreign: holds the state of a wrapped command during an attempt (launcher/wrap/wrap.h). The
 * functions of trainer_foreign (launcher/run/trainer.h) start, signal and follow the command and
 * judge its end. */
#ifndef LAUNCHER_RUN_FOREIGN_H
#define LAUNCHER_RUN_FOREIGN_H

#include "launcher/run/foreign_steps.h"
#include "launcher/run/ranks.h"
#include "launcher/state/attempt.h"
#include "launcher/state/space.h"
#include "launcher/wrap/tail.h"
#include "launcher/wrap/wrap.h"

struct foreign {
    const struct wrap *wrap;   /* borrowed */
    struct attempt *attempt;   /* borrowed; its log gets the events */
    struct tail tail;
    struct foreign_steps steps;
    int64_t steps_before;      /* number of steps done by earlier attempts, as far as known */
    double save_told, looked_mono;
    struct ranks_told told;
    struct space_foreign space;
    bool deaf_told;
};

void foreign_close(struct foreign *f); /* safe on a zeroed struct */

#endif
