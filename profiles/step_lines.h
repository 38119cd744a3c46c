/* step_lines: what a trainer's printed line says of its steps.
 *
 * A pattern is a POSIX extended regular expression whose groups have names, (?<step>[0-9]+); one
 * group without a name is the step.
 *     step                 optimizer steps done
 *     index                the same, counted from 0: one less
 *     total                of the bar that step is part of
 *     epoch                from 0: total steps each were done before
 *     loss, grad_norm, lr  of the step
 *     time_ms, time_s      one step took so long
 *     tokens               of one step
 *     tps                  tokens a second and device
 * A format is a list of patterns for a trainer known by name; each finds what it can in a line.
 * Lightning's bar counts batches: its steps are optimizer steps where none are accumulated. Where
 * it does not know how many an epoch has, the first epoch's are known alone.
 */
#ifndef PROFILES_STEP_LINES_H
#define PROFILES_STEP_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct step_line {
    int64_t done; /* steps done; -1 the line tells none */
    double loss, grad_norm, lr, time_s, tokens, tps; /* of one step; NaN: not told, not finite */
    bool loss_nonfinite; /* a loss is told, and is no finite number */
};

/* megatron, torchtitan, nemo, lightning, hf; ended by NULL */
extern const char *const step_format_names[];

struct step_reader;
/* Makes a reader from a pattern or a format; the other one is NULL. total: steps of the run, by
 * which hf's bar is told from others; 0: it is the first that is drawn. ERR_USAGE with the reason
 * when the pattern is none, tells no step, or a group's name is not known. */
int step_reader_new(const char *pattern, const char *format, int64_t total,
                    struct step_reader **out, struct err *err);
void step_reader_free(struct step_reader *r); /* NULL is fine */
/* Do its losses stand on lines of their own, behind the step's? */
bool step_reader_loss_follows(const struct step_reader *r);
/* Reads a line; true when it tells something. Takes escape sequences of terminals out of the text
 * (its length in *n) first. */
bool step_reader_take(struct step_reader *r, char *line, size_t *n, struct step_line *out);

#endif
