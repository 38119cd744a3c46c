/* Defines the CPU's table of operations for double. With AVX-512 it uses full 512-bit registers.
 * gcc prefers half of that, because wide ones can lower the clock, but these loops are long enough
 * to gain. */
#ifdef __AVX512F__
#pragma GCC target("prefer-vector-width=512")
#endif
#define REAL double
#define REAL_IS_F64 1
#include "trainer/ops/ops_cpu_table_impl.h"

const struct ops_cpu_kind SIMD_NAME(ops_cpu_f64) = {
    DTYPE_F64, DTYPE_F64, "cpu-f64", fill_table, workspace_parts};
