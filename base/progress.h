/* progress: one line of progress on stderr: a live line on a terminal, a line every few seconds elsewhere. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "curate" */
    int64_t total;    /* 0: unknown */
    int64_t done;
    int64_t from;     /* done when it was met: what came before is in neither rate nor time left */
    double started_s, shown_s;
    bool live, quiet;
};
void progress_start(struct progress *p, const char *what, int64_t total, bool quiet);
/* Of something under way: so much is done already. Right after progress_start. */
void progress_from(struct progress *p, int64_t done);
/* No rate before the second step that is seen: one may have begun long before. note: short text behind the count, may be NULL. Prints at most ten times a second live, every 5 s otherwise. */
void progress_step(struct progress *p, int64_t done, const char *note);
void progress_end(struct progress *p, const char *note); /* always prints the last line unless quiet */

#endif
