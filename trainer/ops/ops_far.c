#include "trainer/ops/ops_far.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/dev/dev_far.h"

struct ops_far {
    struct ops ops;  /* first member */
    struct ops *cpu; /* computes; its workspace is the far device's memory */
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

/* ---- checks of host copies against device memory ---- */

enum { SAID = 256 };
/* Holds a part of an array as the host has it, to be compared with the device's array. */
struct said {
    const char *far;
    int64_t bytes;
    char near[SAID];
};

static void said_run(void *args)
{
    const struct said *p = args;
    BUG_ON(memcmp(p->far, p->near, (size_t)p->bytes) != 0);
}

/* Queues the comparison of a device array with a copy of the host's, made now. */
static void said_queue(struct dev_stream *s, const void *far, const void *near, int64_t bytes)
{
    BUG_ON(!far || !near);
    for (int64_t at = 0; at < bytes; at += SAID) {
        struct said p = {.far = (const char *)far + at, .bytes = num_min_i64(SAID, bytes - at)};
        memcpy(p.near, (const char *)near + at, (size_t)p.bytes);
        dev_far_queue(s, said_run, &p, sizeof p);
    }
}

static void index_queue(struct dev_stream *s, const int32_t *far, const int32_t *near, int64_t n)
{
    said_queue(s, far, near, n * (int64_t)sizeof *near);
}

/* Queues comparisons of the segment arrays, and checks that lengths are within max_q and max_k. */
static void attn_check(struct dev_stream *s, const struct ops_attn *a)
{
    if (a->n == 0)
        return;
    index_queue(s, a->q_start, a->host.q_start, a->n + 1);
    index_queue(s, a->k_start, a->host.k_start, a->n);
    index_queue(s, a->k_len, a->host.k_len, a->n);
    BUG_ON(!a->k_all != !a->host.k_all);
    if (a->k_all)
        index_queue(s, a->k_all, a->host.k_all, a->n);
    for (int64_t i = 0; i < a->n; i++)
        BUG_ON(a->host.q_start[i + 1] - a->host.q_start[i] > a->max_q ||
               a->host.k_len[i] > a->max_k);
}

/* Queues comparisons of each row's sample with the sample that host_row_start gives. */
static void samples_check(struct dev_stream *s, const struct ops_adaln *a, int64_t rows)
{
    enum { PLACES = 64 };
    int32_t near[PLACES], m = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t place = row % PLACES;
        while (a->host_row_start[m + 1] <= row)
            m++;
        near[place] = m;
        if (place == PLACES - 1 || row + 1 == rows)
            index_queue(s, a->sample + row - place, near, place + 1);
    }
}

/* Checks host_row_start and queues comparisons of row_start and of each row's sample with it. */
static void adaln_check(struct dev_stream *s, const struct ops_adaln *a)
{
    int64_t rows = a->x.ptr ? a->x.rows : a->dx.rows;
    if (a->n == 0)
        return;
    index_queue(s, a->row_start, a->host_row_start, a->n + 1);
    BUG_ON(a->host_row_start[0] != 0 || a->host_row_start[a->n] != rows);
    for (int64_t m = 0; m < a->n; m++)
        BUG_ON(a->host_row_start[m + 1] < a->host_row_start[m]);
    samples_check(s, a, rows);
}

static void adamw_check(struct dev_stream *s, const struct ops_adamw *a)
{
    if (a->n > 0)
        said_queue(s, a->spans, a->host_spans, a->n * (int64_t)sizeof *a->spans);
}

#define CHECKED(op, check, args)                                                              \
    static void checked_##op(struct ops *o, struct dev_stream *s, const struct args *a)       \
    {                                                                                         \
        check(s, a);                                                                          \
        queue_##op(o, s, a);                                                                  \
    }
CHECKED(attn_fwd, attn_check, ops_attn)
CHECKED(attn_bwd, attn_check, ops_attn)
CHECKED(adaln_fwd, adaln_check, ops_adaln)
CHECKED(adaln_bwd, adaln_check, ops_adaln)
CHECKED(adamw, adamw_check, ops_adamw)

/* ---- opening and closing ---- */

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
    f->ops.attn_fwd = checked_attn_fwd, f->ops.attn_bwd = checked_attn_bwd;
    f->ops.adaln_fwd = checked_adaln_fwd, f->ops.adaln_bwd = checked_adaln_bwd;
    f->ops.adamw = checked_adamw;
    *out = &f->ops;
    f = NULL; /* the caller owns it now */
out:
    free(f);
    return rc;
}
