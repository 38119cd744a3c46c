/* environment: the variables that reel-train heeds, as its own help and man pages tell them, and
 * reel-environment(7) beside those of reel; and what REEL_SIMD may say, which a launcher checks
 * before the trainer's job reads it.
 */
#ifndef PROFILES_ENVIRONMENT_H
#define PROFILES_ENVIRONMENT_H

#include "base/opt.h"

extern const struct opt_note train_environment[]; /* ended by a NULL name */

/* For which processors the CPU's arithmetic was compiled (trainer/ops/simd.h). */
enum simd {
    SIMD_GENERIC, /* what the compiler takes for granted: SSE2 on x86-64 */
    SIMD_V3,      /* AVX2 and FMA, as in x86-64-v3 */
    SIMD_V4,      /* AVX-512 F, BW, CD, DQ and VL, as in x86-64-v4 */
    SIMD_COUNT,
};
extern const char *const simd_names[SIMD_COUNT + 1]; /* "generic", "v3", "v4", NULL */
/* Reads which kind REEL_SIMD names, be it one of this processor or not. Returns 1: *out is that
 * kind; 0: it is unset or empty; ERR_USAGE: it names no kind. */
int simd_named(enum simd *out, struct err *err);

#endif
