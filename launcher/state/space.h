/* space: finds out, from a run's events and from the disk itself, whether there is room for the
 * run's checkpoints. */
#ifndef LAUNCHER_STATE_SPACE_H
#define LAUNCHER_STATE_SPACE_H

#include "launcher/sched/sched.h"
#include "launcher/state/attempt.h"
#include "launcher/wrap/wrap.h"

/* Returns the size, in bytes, of the last checkpoint for which space was low; 0: space was never
 * low, or that size is not known. */
int64_t space_needed(const struct run_state *s);
/* Returns how many bytes must be free before a run that found no space need not wait any more; 0:
 * space was never low. */
int64_t space_least(const struct run_state *s);
/* Tells whether the disk had fewer free bytes then. */
bool space_was_low(const struct run_state *s);
/* Formats, for people, what the last event of low space of this attempt says, as a clause. */
enum { SPACE_SAY_BYTES = 128 };
void space_say(const struct run_attempt *a, char out[SPACE_SAY_BYTES]);
/* Returns the free bytes where the run writes: in its folder or in a wrapped trainer's checkpoint
 * folder (`saves`, may be NULL), whichever has less. -1: unknown. */
int64_t space_left(const char *run_dir, const char *saves);
/* Returns likewise how many files can still be made there. -1: unknown. */
int64_t space_files_left(const char *run_dir, const char *saves);
/* Writes the event "held": the attempt waits for room, at most until the time `until` (UTC s). */
void space_event_held(struct attempt *a, double until, int64_t needed_bytes, int64_t free_bytes);
/* Tells whether the disk of the run's folder is full. An exhausted quota cannot be seen here. */
bool space_is_out(const char *run_dir);
/* Returns why nothing can be written in the run's folder, as the end of a sentence that begins with
 * the folder; "": no reason is known. An exhausted quota cannot be seen here. */
const char *space_shut(const char *run_dir);
/* Tells whether there is room for a log to grow. To detect an exhausted quota as well, it writes an
 * event "silence" to the agent's own log. */
bool space_for_words(struct attempt *a);
/* Tells whether an attempt ended for lack of disk space. Its trainer says so in an event. If there
 * was no room for that, the trainer's exit status says so, and the agent has no room for its events
 * either. told may be NULL. */
bool space_missed(struct attempt *a, const struct run_attempt *told, int exit_code);

/* Holds what is known of disk space for a wrapped trainer, which writes no events.
 *
 * A trainer that failed ended for lack of space if the end of its output says so, or if no signal
 * ended it and there is now no room for another save, though there was when it started. A trainer
 * that always has less room than a save takes, because it overwrites an old save, did not end for
 * that reason. The output may mean a disk that is not the run's. So after 8 attempts without a new
 * step that reported a full disk while the run's disks had room, such a report is ignored, and the
 * end is a crash. */
struct space_foreign {
    /* At the trainer's start there was no room for another save, and no attempt had ended for that
     * reason since the last new step. */
    bool tight;
    bool doubted; /* at the start: earlier attempts reported a full disk too often while there was
                   * room */
    bool disbelieved; /* at the end: the trainer reported a full disk, and the report is ignored */
    int64_t needed_bytes; /* size of its largest save; 0: none is known */
    int64_t free_bytes, free_files;
};
/* Fills in *f at the trainer's start. before: the run's state before this attempt. */
void space_foreign_begin(struct space_foreign *f, const char *run_dir, const struct wrap *w,
                         const struct run_state *before);
/* Fills in the rest at the trainer's end. log: path of the trainer's output. Returns whether the
 * trainer ended for lack of space. */
bool space_foreign_missed(struct space_foreign *f, const char *run_dir, const struct wrap *w,
                          const struct sched_step_status *end, const char *log);
/* Writes the event "space_low" of an attempt that ended for lack of space. steps: number of steps
 * done, as far as known. free_files: files that can still be made; -1: unknown. */
void space_event_low(struct attempt *a, int64_t needed_bytes, int64_t free_bytes,
                     int64_t free_files, int64_t steps);

#endif
