/* simd: for which processors the CPU's arithmetic was compiled, and which of these this one runs.
 *
 * The files of the arithmetic are compiled once for each kind of processor (SIMD_KINDS in the
 * Makefile), everything else for any x86-64. So a program that was built on a newer machine runs
 * on an older one. The widest kind that the processor has is used; REEL_SIMD names another.
 * Results are the same within a kind; between two of them they differ in the last bits, because
 * vectors of another width sum in another order and the generic kind has no fused multiply-add.
 * The ranks of a world therefore agree on one (simd_agree in trainer/cmd/main.h).
 */
#ifndef TRAINER_OPS_SIMD_H
#define TRAINER_OPS_SIMD_H

#include "base/simd_kind.h"

/* Finds the kind to use: what REEL_SIMD names, else the widest that this processor has, and in
 * either case none above the limit. Returns ERR_USAGE when REEL_SIMD names none, or one that
 * this processor lacks. */
int simd_choose(enum simd *out, struct err *err);

/* Sets the widest kind that this process may use from now on. It does not widen what REEL_SIMD
 * names. */
void simd_limit(enum simd widest);

#endif
