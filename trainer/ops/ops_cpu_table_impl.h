/* Fills the table with the calls compiled for REAL; included once by each of ops_cpu_f64.c, ops_cpu_f32.c and ops_cpu_bf16.c. */
#ifndef TRAINER_OPS_OPS_CPU_TABLE_IMPL_H
#define TRAINER_OPS_OPS_CPU_TABLE_IMPL_H

#include "trainer/ops/ops_cpu_attn_impl.h"
#include "trainer/ops/ops_cpu_elem_impl.h"
#include "trainer/ops/ops_cpu_latents_impl.h"
#include "trainer/ops/ops_cpu_norm_impl.h"

static inline void fill_table(struct ops *t)
{
    t->gemm = op_gemm;
    t->attn_fwd = op_attn_fwd;
    t->attn_bwd = op_attn_bwd;
    t->lse_merge = op_lse_merge;
    t->adaln_fwd = op_adaln_fwd;
    t->adaln_bwd = op_adaln_bwd;
    t->headnorm_fwd = op_headnorm_fwd;
    t->headnorm_bwd = op_headnorm_bwd;
    t->rope = op_rope;
    t->act_fwd = op_act_fwd;
    t->act_bwd = op_act_bwd;
    t->colsum = op_colsum;
    t->patchify = op_patchify;
    t->unpatchify = op_unpatchify;
    t->loss = op_loss;
    t->normal = op_normal;
    t->sinusoid = op_sinusoid;
    t->adamw = op_adamw;
    t->sumsq = op_sumsq;
    t->copy = op_copy;
    t->axpy = op_axpy;
    t->permute = op_permute;
    t->table_fwd = op_table_fwd;
    t->table_bwd = op_table_bwd;
}

static inline int64_t workspace_parts(int64_t parts[OPS_CPU_PARTS])
{
    const int64_t bytes[OPS_CPU_PARTS] = {
        sizeof(REAL) * MR * KC, sizeof(REAL) * NC * KC, sizeof(struct attn_tiles), sizeof(REAL) * OPS_ROW_MAX,
#ifdef ACT_IS_BF16
        sizeof(REAL) * ROW_SLOTS * ROW_SLOT, sizeof(REAL) * MC * NC,
#endif
    };
    int64_t total = 0;
    for (int i = 0; i < OPS_CPU_PARTS; i++)
        total += parts[i] = bytes[i];
    return total;
}

#endif
