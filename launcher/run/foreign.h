/* foreign: the agent's part that is different for a wrapped command (launcher/run/wrap.h): starting, telling, following, judging. */
#ifndef LAUNCHER_RUN_FOREIGN_H
#define LAUNCHER_RUN_FOREIGN_H

#include "launcher/run/attempt.h"
#include "launcher/run/foreign_steps.h"
#include "launcher/run/ranks.h"
#include "launcher/run/space.h"
#include "launcher/run/tail.h"
#include "launcher/run/work.h"
#include "launcher/start/command.h"

struct foreign {
    const struct wrap *wrap;   /* borrowed */
    struct attempt *attempt;   /* borrowed; where progress is told */
    struct tail tail;
    struct foreign_steps steps;
    int64_t steps_before;      /* that earlier attempts are known to have done */
    double save_told, looked_mono;
    struct ranks_told told;
    struct space_foreign space;
    bool deaf_told;
};

/* Its argument vector, and our environment with the marks: REEL_TRAINER, REEL_RUN_ID, REEL_RUN_DIR, REEL_ATTEMPT. */
int foreign_command(const struct wrap *w, const char *run_dir, int64_t attempt, struct arena *arena, struct command *out, struct err *err);

/* log: where its output goes, copied to standard output from now on. state: of the run, before this attempt. *f must not be moved. */
int foreign_open(struct foreign *f, const struct wrap *w, const struct run_state *state, struct attempt *attempt, const char *log,
                 struct err *err);
/* Copies what it printed, tells of its steps and of other progress. `last`: it has ended. */
void foreign_follow(struct foreign *f, bool last);
void foreign_close(struct foreign *f); /* safe on a zeroed struct */

/* Tells its ranks on this node to save and stop. shared: see ranks_told. */
void foreign_tell(struct foreign *f, const char *run_dir, const char *shared);
/* Do ranks of it live on here, after what started them has ended? */
bool foreign_lives(const struct foreign *f, const char *run_dir);

/* The done file is there. */
bool foreign_is_done(const struct wrap *w);

/* Now that it has ended: how, as far as it shows itself (wrap.h). f may be zeroed: it was not started. */
enum foreign_end { FOREIGN_ENDED, FOREIGN_DONE, FOREIGN_SHORT /* exit 0, nobody asked it to, and steps are missing */ };
enum foreign_end foreign_end_of(const struct foreign *f, const struct wrap *w, const struct sched_step_status *end, bool stop_requested);
/* Did it end for want of disk space (space.h)? Then an event tells of it, whatever the cause will be. False if it was not started. */
bool foreign_is_full(struct foreign *f, const char *run_dir, const struct sched_step_status *end);
/* Steps this attempt is known to have come to, by what it printed and by its newest checkpoint; -1 not known. */
int64_t foreign_steps(const struct foreign *f);

#endif
