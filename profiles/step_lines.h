/* step_lines: reads what a trainer's printed line says about its steps.
 *
 * A pattern is a POSIX extended regular expression whose groups have names, (?<step>[0-9]+). If no
 * group has a name, the first one is the step.
 *     step                 optimizer steps done
 *     index                the same, counted from 0: one less
 *     total                greatest number of the progress bar to which step belongs
 *     epoch                number of the epoch, from 0; each earlier one had `total` steps
 *     loss, grad_norm, lr  of the step
 *     time_ms, time_s      the time of one step
 *     tokens               of one step
 *     tps                  tokens a second and device
 * A format is a list of patterns for a trainer known by name; each reads what it finds in a line.
 * Lightning's bar counts batches, which are optimizer steps only if gradients are not accumulated.
 * If it does not know the length of an epoch, steps are known only in the first epoch.
 */
#ifndef PROFILES_STEP_LINES_H
#define PROFILES_STEP_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { STEP_TOLD_BYTES = 64 };
struct step_line {
    int64_t done; /* steps done; -1: the line does not say */
    double loss, grad_norm, lr, time_s, tokens, tps; /* of one step; NaN: missing or not finite */
    bool loss_nonfinite; /* there is a loss, and it is not finite */
    bool odd; /* its time or rate is a number that no step can have; time_s or tps is NaN then */
    char told[STEP_TOLD_BYTES]; /* that time or rate as it was printed, "time_ms: 812.5"; "" */
};

/* megatron, torchtitan, nemo, lightning, hf; ended by NULL */
extern const char *const step_format_names[];

struct step_reader;
/* Makes a reader from a pattern or a format; the other one is NULL. total: steps of the run, by
 * which hf's training bar is recognised; 0: the first bar is taken. ERR_USAGE with the reason when
 * the pattern is no expression, has no step, or names an unknown group. */
int step_reader_new(const char *pattern, const char *format, int64_t total,
                    struct step_reader **out, struct err *err);
void step_reader_free(struct step_reader *r); /* NULL is fine */
/* Says where the loss of a step is printed. */
enum step_loss {
    STEP_LOSS_IN_LINE,    /* in the step's line, or in a later one without a step */
    STEP_LOSS_REDRAWN,    /* in the last of its lines; the first has the loss of the step before */
    STEP_LOSS_BEFORE_BAR, /* on a line of its own; the next line of the bar has its step */
};
enum step_loss step_reader_loss(const struct step_reader *r);
/* Reads a line; true if it has a step or a loss. First it removes terminal escape sequences from
 * the text (its length is *n). */
bool step_reader_take(struct step_reader *r, char *line, size_t *n, struct step_line *out);

#endif
