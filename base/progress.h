/* progress: one line of progress on stderr, kept up to date on a terminal, written anew every few
 * seconds elsewhere. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "curate" */
    int64_t total;    /* 0: unknown */
    int64_t done;
    int64_t from; /* what was done before it began, which counts in neither rate nor time left */
    double started_s, shown_s;
    bool live, quiet;
};
void progress_start(struct progress *p, const char *what, int64_t total, bool quiet);
/* Says how much of something under way was done before. The call comes right after
 * progress_start. */
void progress_from(struct progress *p, int64_t done);
/* Tells how much is done, and prints at most ten times a second on a terminal, every 5 s elsewhere.
 * note is a short text behind the count and may be NULL. No rate is given before the second step is
 * seen, since the first may have begun long before. */
void progress_step(struct progress *p, int64_t done, const char *note);
/* Prints the last line, always, unless it is quiet. */
void progress_end(struct progress *p, const char *note);

#endif
