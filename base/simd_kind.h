/* simd_kind: names the kinds of processors that the trainer's CPU kernels are compiled for
 * (trainer/ops/simd.h), and reads which one the environment selects. The launcher checks the
 * variable before it starts a trainer.
 */
#ifndef BASE_SIMD_KIND_H
#define BASE_SIMD_KIND_H

#include "base/err.h"

enum simd {
    SIMD_GENERIC, /* the compiler's default: SSE2 on x86-64 */
    SIMD_V3,      /* AVX2 and FMA, as in x86-64-v3 */
    SIMD_V4,      /* AVX-512 F, BW, CD, DQ and VL, as in x86-64-v4 */
    SIMD_COUNT,
};
extern const char *const simd_names[SIMD_COUNT + 1]; /* "generic", "v3", "v4", NULL */
/* Reads the kind that REEL_SIMD names, whether this processor supports it or not. Returns 1 and
 * sets *out; 0 if the variable is unset or empty; ERR_USAGE if it names no kind. */
int simd_named(enum simd *out, struct err *err);

#endif
