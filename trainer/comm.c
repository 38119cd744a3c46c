#include "trainer/comm.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int comm_reserve(struct comm *c, int64_t piece_bytes, struct err *err)
{
    int64_t bytes = piece_bytes * c->size;
    if (c->size == 1 || bytes <= c->scratch_bytes)
        return 0;
    free(c->scratch);
    c->scratch = aligned_alloc(256, (size_t)((bytes + 255) / 256 * 256));
    c->scratch_bytes = c->scratch ? bytes : 0;
    return c->scratch ? 0 : err_set(err, ERR_NOMEM, "cannot take %lld bytes for communication", (long long)bytes);
}

/* Scratch holds one piece of every rank, in rank order; the sum starts at rank 0 whoever we are. */
void comm_sum_pieces(struct comm *c, void *buf, int64_t n, enum dtype t)
{
    if (t == DTYPE_F64) {
        double *sum = (double *)buf + (int64_t)c->rank * n;
        const double *from = c->scratch;
        memcpy(sum, from, (size_t)n * sizeof *sum);
        for (int r = 1; r < c->size; r++)
            for (int64_t i = 0; i < n; i++)
                sum[i] += from[(int64_t)r * n + i];
    } else {
        float *sum = (float *)buf + (int64_t)c->rank * n;
        const float *from = c->scratch;
        memcpy(sum, from, (size_t)n * sizeof *sum);
        for (int r = 1; r < c->size; r++)
            for (int64_t i = 0; i < n; i++)
                sum[i] += from[(int64_t)r * n + i];
    }
}

int comm_all_reduce(struct comm *c, void *buf, int64_t n_each, enum dtype t, struct err *err)
{
    int rc = c->reduce_scatter(c, buf, n_each, t, err);
    if (rc < 0)
        return rc;
    return c->all_gather(c, (char *)buf + (int64_t)c->rank * n_each * dtype_bytes(t), buf, n_each, t, err);
}

/* n values of every rank, folded in rank order by sum or maximum. */
static int fold_scalars(struct comm *c, double *values, int n, bool max, struct err *err)
{
    double all[COMM_SCALARS * 64], *where = all, mine[COMM_SCALARS];
    BUG_ON(n > COMM_SCALARS);
    if (c->size == 1)
        return 0;
    if (c->size > 64 && !(where = malloc((size_t)c->size * (size_t)n * sizeof *where)))
        return err_set(err, ERR_NOMEM, "out of memory gathering from %d ranks", c->size);
    memcpy(mine, values, (size_t)n * sizeof *mine);
    int rc = c->all_gather(c, mine, where, n, DTYPE_F64, err);
    for (int k = 0; k < n && rc == 0; k++) {
        values[k] = where[k];
        for (int r = 1; r < c->size; r++) {
            double v = where[r * n + k];
            values[k] = max ? (v > values[k] ? v : values[k]) : values[k] + v;
        }
    }
    if (where != all)
        free(where);
    return rc;
}

int comm_sum(struct comm *c, double *values, int n, struct err *err)
{
    return fold_scalars(c, values, n, false, err);
}

int comm_max(struct comm *c, double *values, int n, struct err *err)
{
    return fold_scalars(c, values, n, true, err);
}

int comm_agree(struct comm *c, int status, struct err *err)
{
    double flags[2] = {status < 0, status < 0 ? (double)status : 0};
    int rc = comm_sum(c, flags, 2, status < 0 ? NULL : err);
    if (rc < 0 || status < 0)
        return status < 0 ? status : rc;
    if (flags[0] > 0) /* all failing ranks mostly fail alike; the mean of their codes stands for them */
        return err_set(err, (int)(flags[1] / flags[0]), "%d of %d ranks failed: see their messages", (int)flags[0], c->size);
    return 0;
}
