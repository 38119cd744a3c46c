/* foreign_steps: turns the steps that a wrapped trainer prints into events, which the agent writes.
 * They are the same events that reel's own trainer writes: train_started, and a step event for each
 * row (launcher/wrap/step_rows.h); and went_back, before the first row of steps that the attempt
 * did again. */
#ifndef LAUNCHER_RUN_FOREIGN_STEPS_H
#define LAUNCHER_RUN_FOREIGN_STEPS_H

#include "launcher/state/attempt.h"
#include "launcher/wrap/step_rows.h"
#include "launcher/wrap/wrap.h"

struct foreign_steps {
    const struct wrap *wrap;     /* borrowed */
    struct attempt *attempt;     /* borrowed; its log gets the events */
    struct step_reader *reader;  /* NULL: the format of its step lines is unknown */
    struct step_rows rows;
    bool seen;  /* the first line is on record */
    double now; /* when its output was last read, on the monotonic clock, s */
};

/* Begins to read steps, and writes train_started if the format of the step lines is known. state:
 * of the run before this attempt. */
int foreign_steps_open(struct foreign_steps *s, const struct wrap *w,
                       const struct run_state *state, struct attempt *attempt, struct err *err);
void foreign_steps_close(struct foreign_steps *s); /* safe on a zeroed struct */
/* These three read the trainer's new output once: begin, then a call for each line, then end.
 * `last` says that the trainer has ended. */
void foreign_steps_begin(struct foreign_steps *s);
void foreign_steps_line(void *steps, char *line, size_t n); /* a tail_line_fn */
void foreign_steps_end(struct foreign_steps *s, bool last);
/* Returns the highest number of steps that the trainer printed in this attempt; -1: it printed
 * none. */
int64_t foreign_steps_done(const struct foreign_steps *s);

#endif
