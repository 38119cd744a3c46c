#include <stdlib.h>

#include "trainer/cuda/attn_dnn_run.h"
#include "trainer/cuda/cuda_priv.h"
#include "trainer/cuda/gemm_lt.h"
#include "trainer/cuda/ranges.h"

/* Each call of the table queues an operation's kernels inside a range of the operation's name, and
 * keeps an error of their launch for the next stream_sync. */
#define CALL(op, args)                                                                 \
    static void op_##op(struct ops *o, struct dev_stream *s, const struct args *a)     \
    {                                                                                  \
        struct ranges *r = dev_cuda_ranges(o->dev);                                    \
        ranges_op_begin(r, o->layer, o->backward, #op);                                \
        kernel_##op((struct ops_cuda *)o, s->cuda, a);                                 \
        ranges_op_end(r);                                                               \
        dev_cuda_fail(o->dev, cudaGetLastError(), #op);                                \
    }
OPS_LIST(CALL)
#undef CALL

static int attn_plan(struct ops *o, const struct ops_attn *a, bool backward, struct err *err)
{
    return attn_dnn_plan(((struct ops_cuda *)o)->dnn, a, backward, err);
}

static int attn_reserve(struct ops *o, struct dev_stream *s, struct err *err)
{
    return attn_dnn_reserve(((struct ops_cuda *)o)->dnn, s->cuda, err);
}

static void cuda_close(struct ops *o)
{
    struct ops_cuda *c = (struct ops_cuda *)o;
    attn_dnn_close(c->dnn);
    gemm_lt_close(c->lt);
    o->dev->free(o->dev, c->parts);
    free(c);
}

static const char *name_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F64: return "cuda-f64";
    case DTYPE_F32: return "cuda-f32";
    case DTYPE_BF16: return "cuda-bf16";
    default: return NULL;
    }
}

int ops_cuda_open(struct dev *dev, enum dtype dtype, const char *gemm_table, const char *attn,
                  struct ops **out, struct err *err)
{
    int64_t bytes = (int64_t)CUDA_PARTS * OPS_ROW_MAX * 8;
    struct ops_cuda *c;
    int rc;
    if (!name_of(dtype))
        return err_set(err, ERR_INPUT, "dtype '%s' is not one that the GPU computes in: give f64, "
                       "f32 or bf16", dtype_name(dtype));
    if (!(c = calloc(1, sizeof *c)))
        return err_set(err, ERR_NOMEM, "CUDA operations: no memory for the table");
    c->ops = (struct ops){.name = name_of(dtype), .dev = dev, .act = dtype,
                          .stat = dtype_stat(dtype),
                          .workspace_bytes = bytes + GEMM_WORKSPACE_BYTES, .self = c,
                          .close = cuda_close};
#define FILL(op, args) c->ops.op = op_##op;
    OPS_LIST(FILL)
#undef FILL
    if ((rc = dev->alloc(dev, "sums in parts", bytes, &c->parts, err)) < 0)
        goto out;
    if ((rc = gemm_lt_open(dev, dev_cuda_name(dev), gemm_table, &c->lt, err)) < 0)
        goto out;
    if ((rc = attn_dnn_open(&c->ops, attn, &c->dnn, err)) < 0)
        goto out;
    c->ops.narrow_attn = c->dnn != NULL;
    if (c->dnn)
        c->ops.attn_plan = attn_plan, c->ops.attn_reserve = attn_reserve;
    *out = &c->ops;
    c = NULL; /* the caller owns it now */
out:
    if (c)
        cuda_close(&c->ops);
    return rc;
}
