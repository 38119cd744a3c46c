/* progress: shows a line of progress on stderr. On a terminal the line is updated in place;
 * elsewhere a new line is written every few seconds. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "curate" */
    int64_t total;    /* 0: unknown */
    int64_t done;
    /* the part that was done before progress_start; it counts in neither the rate nor the time
     * left */
    int64_t from;
    double started_s, shown_s;
    bool live, quiet;
};
void progress_start(struct progress *p, const char *what, int64_t total, bool quiet);
/* Sets how much was done before progress_start. Call it right after progress_start. */
void progress_from(struct progress *p, int64_t done);
/* Sets how much is done now, and prints at most ten times a second on a terminal, elsewhere every 5
 * s. note is a short text after the count and may be NULL. The rate is shown from the second step
 * on, since the first may have begun long before. */
void progress_step(struct progress *p, int64_t done, const char *note);
/* Prints the last line, unless `quiet` is set. */
void progress_end(struct progress *p, const char *note);

#endif
