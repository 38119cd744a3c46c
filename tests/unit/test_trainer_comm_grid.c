/* The groups of a layout hold just the ranks that belong together, on one rank and on as many as
 * mpirun starts (tests/cli/t6010-train-mpi). */
#include "tests/lib/comm_trial.h"

typedef bool together_fn(const struct layout *l, const struct model *m, struct layout_place a,
                         struct layout_place b);
static bool same(struct layout_place a, struct layout_place b, const char *but)
{
    return (a.tp == b.tp || *but == 't') && (a.cp == b.cp || *but == 'c') &&
           (a.dp == b.dp || *but == 'd') && (a.pp == b.pp || *but == 'p');
}
static bool in_tp(const struct layout *l, const struct model *m, struct layout_place a,
                  struct layout_place b)
{
    return (void)l, (void)m, same(a, b, "t");
}
static bool in_cp(const struct layout *l, const struct model *m, struct layout_place a,
                  struct layout_place b)
{
    return (void)l, (void)m, same(a, b, "c");
}
static bool in_dp(const struct layout *l, const struct model *m, struct layout_place a,
                  struct layout_place b)
{
    return (void)l, (void)m, same(a, b, "d");
}
static bool in_pp(const struct layout *l, const struct model *m, struct layout_place a,
                  struct layout_place b)
{
    return (void)l, (void)m, same(a, b, "p");
}
/* tp rank t works on k/v head t · kv_heads / tp */
static bool in_kv(const struct layout *l, const struct model *m, struct layout_place a,
                  struct layout_place b)
{
    return same(a, b, "t") &&
           (a.tp == b.tp ||
            (l->tp > m->kv_heads && a.tp * m->kv_heads / l->tp == b.tp * m->kv_heads / l->tp));
}
static bool in_a2a(const struct layout *l, const struct model *m, struct layout_place a,
                   struct layout_place b)
{
    int64_t n = l->cp_kind == CP_RING ? 1 : l->cp_kind == CP_A2A ? l->cp : 2; /* cp 4 in two */
    return (void)m, same(a, b, "c") && a.cp / n == b.cp / n;
}
static bool in_ring(const struct layout *l, const struct model *m, struct layout_place a,
                    struct layout_place b)
{
    return same(a, b, "c") && (a.cp == b.cp || !in_a2a(l, m, a, b)) &&
           (l->cp_kind != CP_2D || a.cp % 2 == b.cp % 2);
}
static bool in_data(struct layout_place a, struct layout_place b)
{
    return a.tp == b.tp && a.pp == b.pp;
}
static bool in_shard(const struct layout *l, const struct model *m, struct layout_place a,
                     struct layout_place b)
{
    int64_t n = l->fsdp ? l->fsdp : l->dp;
    return (void)m, in_data(a, b) && (a.dp * l->cp + a.cp) / n == (b.dp * l->cp + b.cp) / n;
}
static bool in_replica(const struct layout *l, const struct model *m, struct layout_place a,
                       struct layout_place b)
{
    int64_t n = l->fsdp ? l->fsdp : l->dp;
    return (void)m, in_data(a, b) && (a.dp * l->cp + a.cp) % n == (b.dp * l->cp + b.cp) % n;
}

/* The group holds just the ranks that belong together, ordered by their places, and works. */
static void group_check(struct comm *c, const char *axis, const struct layout *l,
                        const struct model *m, together_fn *together)
{
    struct layout_place here = layout_place(l, world->rank);
    double members[RANKS], own = world->rank;
    int n = 0, rank = -1;
    struct err err = {0};
    assert_string_equal(c->axis, axis);
    must(comm_do(c,
                 &(struct comm_op){.kind = COMM_ALL_GATHER, .what = "ranks", .send = &own,
                                   .recv = members, .n = 1, .dtype = DTYPE_F64},
                 NULL, &err),
         &err);
    struct layout plain = *l;
    plain.order = 0;
    for (int k = 0; k < world->size; k++) {
        int r = (int)layout_rank(l, layout_place(&plain, k));
        if (!together(l, m, here, layout_place(l, r)))
            continue;
        if (n >= c->size || members[n] != r || c->world_ranks[n] != r)
            fail_msg("group %s of rank %d has %d ranks, not rank %d as its %dth", axis, world->rank,
                     c->size, r, n);
        rank = r == world->rank ? n : rank;
        n++;
    }
    assert_true(n == c->size && rank == c->rank);
    assert_string_equal(c->name, n == 1 ? "self" : "mpi");
}

static void grid(void **state)
{
    static const char *const layouts[] = {
        "", "tp=2", "dp=2,zero=1", "pp=3", "cp=3", "tp=2,dp=2", "cp=2,pp=2", "tp=4",
        "cp=4,cp_kind=2d", "cp=4,cp_kind=a2a", "dp=4,zero=3,fsdp=2", "cp=2,dp=2,zero=3,fsdp=4",
        "cp=2,dp=2,zero=1", "dp=6,fsdp=3,zero=2", "tp=2,cp=2,dp=2,zero=3", "tp=4,dp=2",
        "cp=4,dp=2,zero=3,fsdp=4,cp_kind=2d", "tp=2,cp=2,pp=2", "dp=8,fsdp=2,zero=3",
        "cp=2,dp=2,zero=3,fsdp=4,order=dp-cp-tp-pp", "tp=2,cp=2,pp=2,order=pp-cp-dp-tp",
        "cp=4,dp=2,zero=3,fsdp=4,cp_kind=2d,order=dp-tp-cp-pp",
        "tp=2,cp=2,dp=2,zero=1,fsdp=2,order=dp-tp-cp-pp",
    };
    struct model m = run_model();
    (void)state;
    m.heads = 4, m.kv_heads = 2;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct layout l;
        struct comm_grid g = {0};
        struct err err = {0};
        must(layout_parse(layouts[i], &l, &err), &err);
        int rc = comm_grid_open(world, &l, &m, &g, &err);
        if (layout_world(&l) != world->size) {
            must_fail(rc, ERR_USAGE, &err, "use mpirun -n");
            continue;
        }
        must(rc, &err);
        group_check(g.tp, "tp", &l, &m, in_tp);
        group_check(g.cp, "cp", &l, &m, in_cp);
        group_check(g.dp, "dp", &l, &m, in_dp);
        group_check(g.pp, "pp", &l, &m, in_pp);
        group_check(g.kv, "kv", &l, &m, in_kv);
        group_check(g.a2a, "a2a", &l, &m, in_a2a);
        group_check(g.ring, "ring", &l, &m, in_ring);
        group_check(g.shard, "shard", &l, &m, in_shard);
        group_check(g.replica, "replica", &l, &m, in_replica);
        comm_grid_close(&g);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grid),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
