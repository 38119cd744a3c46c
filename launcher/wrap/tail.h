/* tail: follows a log while it grows: copies it on, and gives it out line by line. */
#ifndef LAUNCHER_WRAP_TAIL_H
#define LAUNCHER_WRAP_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Takes a line without its end; it may be changed. Progress bars end theirs by a carriage return;
 * zero bytes have become spaces; what is longer than TAIL_LINE_BYTES comes in pieces. */
typedef void tail_line_fn(void *context, char *line, size_t n);
enum { TAIL_LINE_BYTES = 4096, TAIL_LOOK_BYTES = 8 << 20 };

struct tail {
    char *path;
    int fd, out_fd;
    tail_line_fn *fn;
    void *context;
    struct str line; /* the line that has begun, without its end */
};

/* Follows a log from its present end on. fn NULL: the lines are not needed. out_fd -1: nothing is
 * copied. */
int tail_open(const char *path, int out_fd, tail_line_fn *fn, void *context, struct tail *out,
              struct err *err);
/* Takes what was appended since, or all of the log if it was emptied. One look takes no more than
 * TAIL_LOOK_BYTES, and no longer than a fifth of a second. It never waits for the reader of out_fd:
 * while that one stands still nothing is taken. `last`: takes everything, and stops copying if the
 * reader stands still. */
void tail_pump(struct tail *t, bool last);
void tail_close(struct tail *t); /* safe on a zeroed struct */

#endif
