/* The CPU table for bf16 in memory, float in arithmetic. Whole registers where gcc prefers half ones for fear of a lower clock: these loops
 * are long. */
#ifdef __AVX512F__
#pragma GCC target("prefer-vector-width=512")
#endif
#define REAL float
#define ACT_IS_BF16 1
#include "trainer/ops/ops_cpu_table_impl.h"

void ops_cpu_fill_bf16(struct ops_cpu *c) { fill_table(&c->ops); }
int64_t ops_cpu_workspace_bf16(int64_t parts[OPS_CPU_PARTS]) { return workspace_parts(parts); }
