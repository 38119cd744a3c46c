#include "trainer/ops/simd.h"

#include <stdbool.h>

static enum simd limit = SIMD_V4;

/* Returns whether this processor and the operating system support the instructions that the
 * Makefile's SIMD_v3 and SIMD_v4 let the compiler use. */
static bool has(enum simd kind)
{
#ifdef __x86_64__
    if (kind == SIMD_V3)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (kind == SIMD_V4)
        return has(SIMD_V3) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return kind == SIMD_GENERIC;
}

static enum simd widest(void)
{
    enum simd kind = SIMD_V4;
    while (!has(kind))
        kind--;
    return kind;
}

int simd_choose(enum simd *out, struct err *err)
{
    enum simd kind = widest();
    int rc = simd_named(&kind, err);
    if (rc < 0)
        return rc;
    if (!has(kind))
        return err_set(err, ERR_USAGE,
                       "REEL_SIMD is '%s': this processor has no %s: give %s, or leave it unset",
                       simd_names[kind], kind == SIMD_V4 ? "AVX-512 (F, BW, CD, DQ, VL)"
                                                         : "AVX2 with FMA",
                       simd_names[widest()]);
    *out = kind < limit ? kind : limit;
    return 0;
}

void simd_limit(enum simd most)
{
    limit = most;
}
