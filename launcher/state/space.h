/* space: finds out, from a run's log and from the disk itself, whether there is room for its
 * checkpoints. */
#ifndef LAUNCHER_STATE_SPACE_H
#define LAUNCHER_STATE_SPACE_H

#include "launcher/sched/sched.h"
#include "launcher/state/attempt.h"
#include "launcher/wrap/wrap.h"

/* Returns the bytes of the last checkpoint that found space low; 0: none did. */
int64_t space_needed(const struct run_state *s);
/* Returns the bytes free where the run writes: in its folder, or in a wrapped trainer's own
 * (`saves`, may be NULL), whichever has less. -1: not known. */
int64_t space_left(const char *run_dir, const char *saves);
/* Writes the event "held": the attempt waits for room, until `until` (UTC s) at most. */
void space_event_held(struct attempt *a, double until, int64_t needed_bytes, int64_t free_bytes);
/* Is the disk of the run's folder full? A used-up quota cannot be seen here. */
bool space_is_out(const char *run_dir);
/* Returns why nothing can be written in the run's folder, as the end of a sentence that begins with
 * the folder; "": nothing prevents it. A used-up quota cannot be seen here. */
const char *space_shut(const char *run_dir);
/* Is there room for a log to grow? To see a quota as well, this writes an event "silence" to our
 * own log. */
bool space_for_words(struct attempt *a);
/* Did an attempt end for want of disk space? Its trainer says so in an event. If there was no room
 * for that, its exit status says so, and there is none for our own events either. told may be
 * NULL. */
bool space_missed(struct attempt *a, const struct run_attempt *told, int exit_code);

/* Holds what is known of disk space for a wrapped trainer, which writes no events.
 *
 * It ended for want of space if the end of its output says so, or if it failed by an exit status
 * and there is now no room for another save, though there was when it started. A trainer that
 * always has less room than a save takes, because it writes over an old one, did not end for that;
 * nor did one that a signal ended. Its output may speak of a disk that is not the run's. So after 8
 * attempts without a new step that reported a full disk while the run's disks had room, the report
 * is not believed any more, and such an end is a crash. */
struct space_foreign {
    /* At its start there was no room for another save, and no attempt had ended for that since the
     * last new step. */
    bool tight;
    bool doubted; /* at its start: it has reported a full disk too often while there was room */
    bool disbelieved;     /* at its end: it reported a full disk, and is not believed */
    int64_t needed_bytes; /* by its largest save */
    int64_t free_bytes;
};
/* Fills in *f at the trainer's start. */
void space_foreign_begin(struct space_foreign *f, const char *run_dir, const struct wrap *w,
                         const struct run_state *before);
/* Fills in the rest at the trainer's end. log: the trainer's output. Returns whether the trainer
 * ended for want of space. */
bool space_foreign_missed(struct space_foreign *f, const char *run_dir, const struct wrap *w,
                          const struct sched_step_status *end, const char *log);
/* Writes the event "space_low" of an attempt that ended for want of space, after as many steps as
 * are known. */
void space_event_low(struct attempt *a, const struct space_foreign *f, int64_t steps);

#endif
