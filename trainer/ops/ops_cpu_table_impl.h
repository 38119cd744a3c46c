/* ops_cpu_table_impl: fills a table of operations with the calls compiled for REAL. ops_cpu_f64.c,
 * ops_cpu_f32.c and ops_cpu_bf16.c include it once each. */
#ifndef TRAINER_OPS_OPS_CPU_TABLE_IMPL_H
#define TRAINER_OPS_OPS_CPU_TABLE_IMPL_H

#include "base/num.h"
#include "trainer/ops/ops_cpu_attn_impl.h"
#include "trainer/ops/ops_cpu_elem_impl.h"
#include "trainer/ops/ops_cpu_latents_impl.h"
#include "trainer/ops/ops_cpu_norm_impl.h"

static inline void fill_table(struct ops *t)
{
#define FILL(name, args) t->name = op_##name;
    OPS_LIST(FILL)
#undef FILL
}

static inline int64_t workspace_parts(int64_t parts[OPS_CPU_PARTS])
{
    const int64_t bytes[OPS_CPU_PARTS] = {
        sizeof(REAL) * MR * KC,
        sizeof(REAL) * NC * KC,
        sizeof(struct attn_tiles),
        sizeof(REAL) * OPS_ROW_MAX,
#ifdef ACT_IS_BF16
        sizeof(REAL) * ROW_SLOTS * ROW_SLOT,
        sizeof(REAL) * MC * NC,
#endif
    };
    int64_t total = 0;
    for (int i = 0; i < OPS_CPU_PARTS; i++)
        total += parts[i] = num_round_up(bytes[i], DEV_ALIGN_BYTES);
    return total;
}

#endif
