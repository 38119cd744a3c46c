/* space: what a run's log says of a disk without room for its checkpoints, and a look at the disk
 * itself. */
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
/* Writes the event "held": the attempt waits for room until then (UTC s) at most. */
void space_event_held(struct attempt *a, double until, int64_t needed_bytes, int64_t free_bytes);
/* Is there no room for a word in the run's folder? Of a quota the disk says nothing. */
bool space_is_out(const char *run_dir);
/* Says why the run's folder takes no word, as the end of a sentence that begins with the folder; ""
 * nothing speaks against it. Of a quota the disk says nothing. */
const char *space_shut(const char *run_dir);
/* Is there room for a log to grow? A quota shows when our own log is to grow: it gets an event
 * "silence". */
bool space_for_words(struct attempt *a);
/* Did an attempt whose trainer exited so end for want of space? The trainer says so itself, unless
 * there was no room for that either, as there is none for our own words. told may be NULL. */
bool space_missed(struct attempt *a, const struct run_attempt *told, int exit_code);

/* This is what is known of space for a wrapped trainer, which says nothing of its own.
 *
 * It ended for want of space when the end of its log says so; or when it failed by an exit status
 * and there is now no room for another save, though there was when it started. Neither a trainer
 * that always has less room than a save takes, because it writes over an old one, nor one that a
 * signal ended, ended for that. What it says may be of a disk that is none of the run's. So after 8
 * attempts without a new step whose word the run's own disks did not bear out it is believed no
 * more, and such an end is a crash. */
struct space_foreign {
    /* At its start there was no room for another save, and no attempt had ended for that since the
     * last new step. */
    bool tight;
    bool doubted;         /* at its start: its word has too often not been borne out */
    bool disbelieved;     /* at its end: it said so, and is not believed */
    int64_t needed_bytes; /* by its largest save */
    int64_t free_bytes;
};
/* Fills in *f at the trainer's start. */
void space_foreign_begin(struct space_foreign *f, const char *run_dir, const struct wrap *w,
                         const struct run_state *before);
/* Fills in the rest at the trainer's end. log: what it printed. True: it ended for want of
 * space. */
bool space_foreign_missed(struct space_foreign *f, const char *run_dir, const struct wrap *w,
                          const struct sched_step_status *end, const char *log);
/* Writes the event "space_low" of an attempt that ended so, after as many steps as are known. */
void space_event_low(struct attempt *a, const struct space_foreign *f, int64_t steps);

#endif
