/* Opens the groups of a layout. A group of an axis (tp, cp, dp, pp) holds the ranks whose places
 * differ in that coordinate only; the other groups divide such a group or the data group
 * (dp·cp). */
#include "trainer/comm/comm.h"

#include "base/num.h"
#include "trainer/comm/comm_plane.h"
#include "trainer/comm/comm_priv.h"

/* Opens one group. `first` is the place of its first rank, `at` is this rank's number in it. */
static int axis_open(struct comm *world, const struct layout *l, const char *axis, int64_t size,
                     struct layout_place first, int64_t at, struct comm **out, struct err *err)
{
    return size == 1
               ? comm_self_new(world, axis, out, err)
               : comm_split(world, axis, (int)layout_rank(l, first), (int)at, out, err);
}

int comm_size_error(const struct comm *world, const struct layout *l, struct err *err)
{
    long long needed = layout_world(l);
    return err_set(err, ERR_USAGE,
                   "the layout needs %lld rank%s, %d %s started: use mpirun -n %lld, or a layout "
                   "of %d rank%s (--layout dp=%d, for one)",
                   needed, needed == 1 ? "" : "s", world->size, world->size == 1 ? "was" : "were",
                   needed, world->size, world->size == 1 ? "" : "s", world->size);
}

static struct layout_place at_tp(struct layout_place p, int64_t tp) { return p.tp = tp, p; }
static struct layout_place at_cp(struct layout_place p, int64_t cp) { return p.cp = cp, p; }
static struct layout_place at_dp(struct layout_place p, int64_t dp) { return p.dp = dp, p; }
static struct layout_place at_pp(struct layout_place p, int64_t pp) { return p.pp = pp, p; }
static struct layout_place at_data(const struct layout *l, struct layout_place p, int64_t data)
{
    return p.dp = data / l->cp, p.cp = data % l->cp, p;
}

static int axes_open(struct comm *world, const struct layout *l, struct layout_place p,
                     struct comm_grid *g, struct err *err)
{
    int rc;
    if ((rc = axis_open(world, l, "tp", l->tp, at_tp(p, 0), p.tp, &g->tp, err)) < 0)
        return rc;
    if ((rc = axis_open(world, l, "cp", l->cp, at_cp(p, 0), p.cp, &g->cp, err)) < 0)
        return rc;
    if ((rc = axis_open(world, l, "dp", l->dp, at_dp(p, 0), p.dp, &g->dp, err)) < 0)
        return rc;
    return axis_open(world, l, "pp", l->pp, at_pp(p, 0), p.pp, &g->pp, err);
}

/* Opens the groups that divide an axis: kv divides tp; a2a and ring divide cp; shard and replica
 * divide the data group. */
static int parts_open(struct comm *world, const struct layout *l, const struct model *m,
                      struct layout_place p, struct comm_grid *g, struct err *err)
{
    int64_t copies = num_max_i64(1, l->tp / m->kv_heads), a = layout_a2a_group(l, m),
            shard = layout_shard_group(l);
    int64_t data = layout_data_rank(l, p);
    int rc;
    if ((rc = axis_open(world, l, "kv", copies, at_tp(p, p.tp / copies * copies), p.tp % copies,
                        &g->kv, err)) < 0)
        return rc;
    if ((rc = axis_open(world, l, "a2a", a, at_cp(p, p.cp / a * a), p.cp % a, &g->a2a, err)) < 0)
        return rc;
    if ((rc = axis_open(world, l, "ring", l->cp / a, at_cp(p, p.cp % a), p.cp / a, &g->ring,
                        err)) < 0)
        return rc;
    if ((rc = axis_open(world, l, "shard", shard, at_data(l, p, data / shard * shard), data % shard,
                        &g->shard, err)) < 0)
        return rc;
    return axis_open(world, l, "replica", l->dp * l->cp / shard, at_data(l, p, data % shard),
                     data / shard, &g->replica, err);
}

/* Makes the groups that exchange device memory join the plane (comm_plane.h), as groups of messages
 * or of sums. Each communicator costs memory, so groups that the model does not use are left out.
 * All ranks agree after each, because one group may fail alone, and other ranks would then wait
 * for its ranks in the next join. */
static int plane_join(struct comm *world, const struct comm_grid *g, const struct layout *l,
                      const struct model *m, struct err *err)
{
    struct comm *const messages[] = {g->tp, g->kv, g->a2a, g->ring},
                *const sums[] = {g->shard, g->replica, g->pp};
    int rc;
    if (!world->world->plane)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(messages); i++)
        if ((rc = comm_agree(world, comm_plane_join(messages[i], PLANE_MESSAGES, err), err)) < 0)
            return rc;
    if (model_self_attentions(m) > 1 &&
        (rc = comm_agree(world, comm_plane_join(g->cp, PLANE_MESSAGES, err), err)) < 0)
        return rc;
    for (size_t i = 0; i < ARRAY_LEN(sums); i++)
        if ((rc = comm_agree(world, comm_plane_join(sums[i], PLANE_SUMS, err), err)) < 0)
            return rc;
    return comm_agree(world, comm_plane_edges(g->pp, l->vpp > 1, err), err);
}

int comm_grid_open(struct comm *world, const struct layout *l, const struct model *m,
                   struct comm_grid *out, struct err *err)
{
    struct comm_grid g = {0};
    if (layout_world(l) != world->size)
        return comm_size_error(world, l, err);
    struct layout_place p = layout_place(l, world->rank);
    int rc;
    if ((rc = axes_open(world, l, p, &g, err)) < 0)
        goto out;
    if ((rc = parts_open(world, l, m, p, &g, err)) < 0)
        goto out;
    if ((rc = plane_join(world, &g, l, m, err)) < 0)
        goto out;
    *out = g;
    g = (struct comm_grid){0}; /* the caller owns it now */
out:
    comm_grid_close(&g);
    return rc;
}

void comm_grid_close(struct comm_grid *g)
{
    struct comm *all[] = {g->tp, g->cp, g->dp, g->pp, g->kv, g->a2a, g->ring, g->shard, g->replica};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        comm_close(all[i]);
    *g = (struct comm_grid){0};
}
