/* space: what a run's log says of a disk without room for its checkpoints, and a look at the disk itself. */
#ifndef LAUNCHER_RUN_SPACE_H
#define LAUNCHER_RUN_SPACE_H

#include "launcher/run/attempt.h"
#include "launcher/run/wrap.h"
#include "launcher/sched/sched.h"

/* Bytes of the last checkpoint that found space low; 0: none did. */
int64_t space_needed(const struct run_state *s);
/* Bytes free where the run writes: in its folder, or in a wrapped trainer's own (`saves`, may be NULL), whichever has less. -1: not known. */
int64_t space_left(const char *run_dir, const char *saves);
/* Event "held": the attempt waits for room until then (UTC s) at most. */
void space_event_held(struct attempt *a, double until, int64_t needed_bytes, int64_t free_bytes);
/* Is there no room for a word in the run's folder? Of a quota the disk says nothing. */
bool space_is_out(const char *run_dir);
/* Is there room for a log to grow? Of a quota it is told by our own, which gets an event "silence". */
bool space_for_words(struct attempt *a);
/* Did an attempt whose trainer exited so end for want of space? It says so itself, unless there was no room for that either, as there is
 * none for our own words. told may be NULL. */
bool space_missed(struct attempt *a, const struct run_attempt *told, int exit_code);

/* A wrapped trainer says nothing of its own. It ended for want of space when the end of its log says so; or when it failed by an exit status
 * and there is now no room for another save, though there was when it started. One that always has less room than a save takes, because it
 * writes over an old one, does not end for that; and one that a signal ended neither. What it says may be of a disk that is none of the run's: after
 * 8 attempts without a new step whose word the run's own disks did not bear out it is believed no more, and such an end is a crash. */
struct space_foreign {
    bool tight;           /* at its start there was no room for another save, and no attempt had ended for that since the last new step */
    bool doubted;         /* at its start: its word has not been borne out too often */
    bool disbelieved;     /* at its end: it said so, and is not believed */
    int64_t needed_bytes; /* by its largest save */
    int64_t free_bytes;
};
/* At its start: fills in *f. */
void space_foreign_begin(struct space_foreign *f, const char *run_dir, const struct wrap *w, const struct run_state *before);
/* At its end, the rest of it. log: what it printed. True: it ended for want of space. */
bool space_foreign_missed(struct space_foreign *f, const char *run_dir, const struct wrap *w, const struct sched_step_status *end,
                          const char *log);
/* Event "space_low" of an attempt that ended so, after as many steps as are known. */
void space_event_low(struct attempt *a, const struct space_foreign *f, int64_t steps);

#endif
