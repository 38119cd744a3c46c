/* This is the CPU table for double. It uses whole registers, where gcc prefers half ones for fear
 * of a lower clock, since these loops are long. */
#ifdef __AVX512F__
#pragma GCC target("prefer-vector-width=512")
#endif
#define REAL double
#define REAL_IS_F64 1
#include "trainer/ops/ops_cpu_table_impl.h"

const struct ops_cpu_kind SIMD_NAME(ops_cpu_f64) = {
    DTYPE_F64, DTYPE_F64, "cpu-f64", fill_table, workspace_parts};
