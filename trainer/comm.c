#include "trainer/comm.h"

#include <stdlib.h>
#include <string.h>

void comm_bind(struct comm *c, struct dev *dev)
{
    c->dev = dev;
}

int comm_wait_stream(struct comm *c, struct dev_stream *s, struct err *err)
{
    return s && c->dev ? c->dev->stream_sync(c->dev, s, err) : 0;
}

int comm_reserve(struct comm *c, int64_t piece_bytes, struct err *err)
{
    int64_t bytes = buffers_exchange_bytes(c->size, piece_bytes);
    if (bytes <= c->scratch_bytes)
        return 0;
    free(c->scratch);
    c->scratch = aligned_alloc(DEV_ALIGN_BYTES, (size_t)bytes);
    c->scratch_bytes = c->scratch ? bytes : 0;
    return c->scratch ? 0 : err_set(err, ERR_NOMEM, "cannot take %lld bytes for communication", (long long)bytes);
}

void comm_sum_pieces(const struct comm *c, void *out, int64_t n, enum dtype t)
{
    BUG_ON(t != DTYPE_F64 && t != DTYPE_F32);
    memcpy(out, c->scratch, (size_t)(n * dtype_bytes(t)));
    for (int r = 1; r < c->size; r++) {
        if (t == DTYPE_F64) {
            const double *from = (const double *)c->scratch + r * n;
            for (int64_t i = 0; i < n; i++)
                ((double *)out)[i] += from[i];
        } else {
            const float *from = (const float *)c->scratch + r * n;
            for (int64_t i = 0; i < n; i++)
                ((float *)out)[i] += from[i];
        }
    }
}

/* ---- scalars and agreement ---- */

/* n values of every rank, folded in rank order by sum or maximum. */
static int fold_scalars(struct comm *c, double *values, int n, bool max, struct err *err)
{
    double mine[COMM_SCALARS];
    BUG_ON(n > COMM_SCALARS);
    if (c->size == 1)
        return 0;
    memcpy(mine, values, (size_t)n * sizeof *mine);
    int rc = c->all_gather(c, mine, c->scalars, n, DTYPE_F64, NULL, err);
    for (int k = 0; k < n && rc == 0; k++) {
        values[k] = c->scalars[k];
        for (int r = 1; r < c->size; r++) {
            double v = c->scalars[r * n + k];
            values[k] = max ? (v > values[k] ? v : values[k]) : values[k] + v;
        }
    }
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
    struct err told = {0};
    double first[1] = {status < 0 ? -c->rank : -c->size}; /* the greatest is the lowest failing rank */
    if (c->size == 1 || (c->broken && status < 0))
        return status;
    int rc = comm_max(c, first, 1, err);
    int rank = (int)-first[0];
    if (rc < 0 || rank == c->size)
        return rc;
    if (rank == c->rank)
        told = *err, told.code = status;
    if ((rc = c->broadcast(c, &told, (int64_t)sizeof told, rank, NULL, err)) < 0)
        return rc;
    if (rank == 0)
        return err_set(err, told.code, "%s", told.text);
    return err_set(err, told.code, "rank %d: %s", rank, told.text);
}

/* ---- grid ---- */

struct comm_place comm_grid_place(const struct layout *l, int64_t rank)
{
    return (struct comm_place){rank % l->tp, rank / l->tp % l->cp, rank / (l->tp * l->cp) % l->dp, rank / (l->tp * l->cp * l->dp)};
}

/* The group of the ranks that differ from `rank` in one axis only; `place` is the own place on it. */
static int axis_open(struct comm *world, int64_t size, int64_t stride, int64_t place, struct comm **out, struct err *err)
{
    if (size == 1) {
        int rc = comm_self_open(out, err);
        if (rc == 0)
            (*out)->dev = world->dev;
        return rc;
    }
    return world->split(world, (int)(world->rank - place * stride), (int)place, out, err);
}

int comm_size_error(const struct comm *world, const struct layout *l, struct err *err)
{
    return err_set(err, ERR_USAGE, "the layout needs %lld ranks, %d were started: use mpirun -n %lld", (long long)layout_world(l),
                   world->size, (long long)layout_world(l));
}

int comm_grid_open(struct comm *world, const struct layout *l, struct comm_grid *out, struct err *err)
{
    struct comm_grid g = {0};
    struct comm_place p = comm_grid_place(l, world->rank);
    if (layout_world(l) != world->size)
        return comm_size_error(world, l, err);
    int rc = axis_open(world, l->tp, 1, p.tp, &g.tp, err);
    if (rc == 0)
        rc = axis_open(world, l->cp, l->tp, p.cp, &g.cp, err);
    if (rc == 0)
        rc = axis_open(world, l->dp, l->tp * l->cp, p.dp, &g.dp, err);
    if (rc == 0)
        rc = axis_open(world, l->pp, l->tp * l->cp * l->dp, p.pp, &g.pp, err);
    if (rc < 0)
        comm_grid_close(&g);
    else
        *out = g;
    return rc;
}

void comm_grid_close(struct comm_grid *g)
{
    struct comm *all[] = {g->tp, g->cp, g->dp, g->pp};
    for (int i = 0; i < 4; i++)
        if (all[i])
            all[i]->close(all[i]);
    *g = (struct comm_grid){0};
}
