/* The CPU table for float. Whole registers where gcc prefers half ones for fear of a lower clock: these loops are long. */
#ifdef __AVX512F__
#pragma GCC target("prefer-vector-width=512")
#endif
#define REAL float
#include "trainer/ops/ops_cpu_table_impl.h"

void ops_cpu_fill_f32(struct ops_cpu *c) { fill_table(&c->ops); }
int64_t ops_cpu_workspace_f32(int64_t parts[OPS_CPU_PARTS]) { return workspace_parts(parts); }
