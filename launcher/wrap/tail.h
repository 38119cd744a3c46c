/* tail: follows a growing log: copies it to a descriptor, and passes its lines to a function. */
#ifndef LAUNCHER_WRAP_TAIL_H
#define LAUNCHER_WRAP_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Gets a line without its end; it may change the line. A carriage return ends a line too, as in
 * progress bars. Zero bytes have become spaces. A line longer than TAIL_LINE_BYTES comes in
 * pieces. */
typedef void tail_line_fn(void *context, char *line, size_t n);
enum { TAIL_LINE_BYTES = 4096, TAIL_LOOK_BYTES = 8 << 20 };

struct tail {
    char *path;
    int fd, out_fd;
    tail_line_fn *fn;
    void *context;
    struct str line; /* the unfinished line */
};

/* Follows a log from its present end on. fn NULL: no lines are passed on. out_fd -1: nothing is
 * copied. */
int tail_open(const char *path, int out_fd, tail_line_fn *fn, void *context, struct tail *out,
              struct err *err);
/* Takes what was appended since the last call, or all of the log if it was truncated. One call
 * takes at most TAIL_LOOK_BYTES, and a fifth of a second. It never waits for the reader of out_fd:
 * while that reader is blocked it takes nothing. `last`: it takes everything; it waits up to a
 * second for a blocked reader, and then stops copying. */
void tail_pump(struct tail *t, bool last);
void tail_close(struct tail *t); /* safe on a zeroed struct */

#endif
