/* Defines the CPU's table of operations for bf16 in memory and float in arithmetic. With AVX-512 it
 * uses full 512-bit registers. gcc prefers half of that, because wide ones can lower the clock, but
 * these loops are long enough to gain. */
#ifdef __AVX512F__
#pragma GCC target("prefer-vector-width=512")
#endif
#define REAL float
#define ACT_IS_BF16 1
#include "trainer/ops/ops_cpu_table_impl.h"

const struct ops_cpu_kind SIMD_NAME(ops_cpu_bf16) = {
    DTYPE_BF16, DTYPE_F32, "cpu-bf16", fill_table, workspace_parts};
