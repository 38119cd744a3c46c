/* tail: a log followed while it grows: copied on, and searched for the number of steps done. */
#ifndef LAUNCHER_TAIL_H
#define LAUNCHER_TAIL_H

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct tail {
    char *path;
    int fd, out_fd;
    bool searching;
    regex_t pattern;
    struct str line; /* begun, its end not yet there */
    int64_t step;    /* greatest number found, -1 none */
    int64_t stride;  /* by how much it was greater than the one before, 0: there was none */
};

/* What the log holds already is passed over. pattern: POSIX extended with one group, NULL: none. out_fd -1: not copied. */
int tail_open(const char *path, const char *pattern, int out_fd, struct tail *out, struct err *err);
/* Takes what was appended since, from its beginning when it was emptied. Never waits for whoever reads out_fd: while that stands still
 * nothing is taken. `last`: takes it all, and copies no more to one who stands still. */
void tail_pump(struct tail *t, bool last);
void tail_close(struct tail *t); /* safe on a zeroed struct */

/* ERR_USAGE with the reason when a pattern is none, or has no group. */
int tail_pattern_check(const char *pattern, struct err *err);

#endif
