#include "trainer/watch/meter_class.h"

#include "trainer/watch/meter.h"

enum meter_class meter_class_of(int kind)
{
    switch (kind) {
    case METER_OP_gemm: return METER_CLASS_GEMM;
    case METER_OP_attn_fwd: return METER_CLASS_ATTN_FWD;
    case METER_OP_attn_bwd: return METER_CLASS_ATTN_BWD;
    case METER_OP_rope: case METER_OP_patchify: case METER_OP_unpatchify: case METER_OP_loss:
    case METER_OP_normal: case METER_OP_draw: case METER_OP_sinusoid: case METER_DATA:
    case METER_STAGE: return METER_CLASS_INPUTS;
    case METER_OP_adamw: case METER_OP_sumsq: case METER_OP_finite: return METER_CLASS_UPDATE;
    case METER_DEV_WAIT: case METER_PROGRESS: return METER_CLASSES;
    default: return kind < METER_COMM ? METER_CLASS_ELEMENTWISE : METER_CLASSES;
    }
}
