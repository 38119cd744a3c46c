#include "trainer/ops/ops_far.h"

#include <stdlib.h>

#include "trainer/dev/dev_far.h"

struct ops_far {
    struct ops ops;  /* first member */
    struct ops *cpu; /* does the work; its scratch is the far device's */
};

#define FAR_CALL(op, args)                                                                      \
    struct far_##op { struct ops *cpu; struct args a; };                                        \
    static void run_##op(void *queued)                                                          \
    {                                                                                           \
        struct far_##op *c = queued;                                                            \
        c->cpu->op(c->cpu, NULL, &c->a);                                                        \
    }                                                                                           \
    static void queue_##op(struct ops *o, struct dev_stream *s, const struct args *a)           \
    {                                                                                           \
        struct far_##op c = {((struct ops_far *)o)->cpu, *a};                                   \
        dev_far_queue(s, run_##op, &c, sizeof c);                                               \
    }
OPS_LIST(FAR_CALL)

static void far_close(struct ops *o)
{
    struct ops_far *f = (struct ops_far *)o;
    f->cpu->close(f->cpu);
    free(f);
}

int ops_far_open(struct dev *dev, enum dtype dtype, enum ops_blas blas, struct ops **out,
                 struct err *err)
{
    struct ops_far *f = calloc(1, sizeof *f);
    int rc;
    if (!f)
        return err_set(err, ERR_NOMEM, "far operations: no memory for the table");
    if ((rc = ops_cpu_open(dev, dtype, blas, &f->cpu, err)) < 0)
        goto out;
    f->ops = *f->cpu;
    f->ops.self = f;
    f->ops.close = far_close;
#define QUEUE(op, args) f->ops.op = queue_##op;
    OPS_LIST(QUEUE)
    *out = &f->ops;
    f = NULL; /* the caller's */
out:
    free(f);
    return rc;
}
