/* simd: chooses for which kind of processor the CPU's arithmetic runs.
 *
 * The arithmetic's files are compiled once for each kind of processor (SIMD_KINDS in the Makefile),
 * all other files for any x86-64. So a program that was built on a newer machine runs on an older
 * one. The widest kind that the processor supports is used; REEL_SIMD names another. Results are
 * the same within a kind. Between kinds they differ in the last bits, because wider vectors sum in
 * another order and the generic kind has no fused multiply-add. The ranks of a world therefore
 * agree on one kind (train_world_open in trainer/cmd/main.h).
 */
#ifndef TRAINER_OPS_SIMD_H
#define TRAINER_OPS_SIMD_H

#include "base/simd_kind.h"

/* Finds the kind to use: the one that REEL_SIMD names, else the widest that this processor
 * supports, but in both cases none above the limit. ERR_USAGE: REEL_SIMD names no kind, or one that
 * this processor does not support. */
int simd_choose(enum simd *out, struct err *err);

/* Limits the kinds that this process uses from now on to `widest` and below. A narrower kind that
 * REEL_SIMD names is still used. */
void simd_limit(enum simd widest);

#endif
