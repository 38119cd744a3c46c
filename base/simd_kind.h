/* simd_kind: the kinds of processors that the CPU's arithmetic is compiled for
 * (trainer/ops/simd.h), and which of them the environment names. A launcher looks at it before the
 * trainer's job does.
 */
#ifndef BASE_SIMD_KIND_H
#define BASE_SIMD_KIND_H

#include "base/err.h"

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
