/* The CPU table for double. */
#define REAL double
#define REAL_IS_F64 1
#include "trainer/ops_cpu_table_impl.h"

void ops_cpu_fill_f64(struct ops_cpu *c) { fill_table(&c->ops); }
int64_t ops_cpu_workspace_f64(int64_t parts[4]) { return workspace_parts(parts); }
