/* foreign: holds the state of a wrapped command in an attempt (launcher/wrap/wrap.h).
 * trainer_foreign of launcher/run/trainer.h starts, tells, follows and judges it. */
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
    int64_t steps_before;      /* steps that earlier attempts are known to have done */
    double save_told, looked_mono;
    struct ranks_told told;
    struct space_foreign space;
    bool deaf_told;
};

void foreign_close(struct foreign *f); /* safe on a zeroed struct */

#endif
