/* The communication table on one rank, and on as many as mpirun starts (tests/cli/t6010-train-mpi): every call against the
 * answer worked out here, sums in rank order to the last bit. */
// LINK: -Wl,--wrap=MPI_Allgather
#include "trainer_run.h"

#include <mpi.h>

static bool mpi_fails;
int __real_MPI_Allgather(const void *send, int n, MPI_Datatype t, void *recv, int m, MPI_Datatype u, MPI_Comm c);
int __wrap_MPI_Allgather(const void *send, int n, MPI_Datatype t, void *recv, int m, MPI_Datatype u, MPI_Comm c);
int __wrap_MPI_Allgather(const void *send, int n, MPI_Datatype t, void *recv, int m, MPI_Datatype u, MPI_Comm c)
{
    return mpi_fails ? MPI_ERR_TRUNCATE : __real_MPI_Allgather(send, n, t, recv, m, u, c);
}

enum { CHUNK = COMM_CHUNK_BYTES / 8 };

/* Numbers whose sum depends on the order of adding. */
static double rough(int rank, int64_t i)
{
    static const double sizes[] = {1e16, 1, -1e16, 3, 1e-9, -7e15};
    return sizes[(rank * 5 + i) % 6] * (1 + 0.125 * (double)(i % 11)) + rank;
}

static double rough_sum(int64_t i, int size)
{
    double s = rough(0, i);
    for (int r = 1; r < size; r++)
        s += rough(r, i);
    return s;
}

static float rough_sum_f32(int64_t i, int size)
{
    float s = (float)rough(0, i);
    for (int r = 1; r < size; r++)
        s += (float)rough(r, i);
    return s;
}

static void gather(void **state)
{
    double own[3], all[3 * 64];
    struct err err = {0};
    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        double *send = in_place ? all + 3 * world->rank : own;
        memset(all, 0, sizeof all);
        for (int i = 0; i < 3; i++)
            send[i] = rough(world->rank, i);
        must(world->all_gather(world, send, all, 3, DTYPE_F64, NULL, &err), &err);
        for (int k = 0; k < 3 * world->size; k++)
            assert_true(all[k] == rough(k / 3, k % 3));
    }
}

static void reduce_f64(int64_t n)
{
    int64_t total = n * world->size;
    double *a = malloc((size_t)(total + 1) * sizeof *a), *b = malloc((size_t)(total + 1) * sizeof *b);
    struct err err = {0};
    for (int64_t i = 0; i < total; i++)
        a[i] = b[i] = rough(world->rank, i);
    must(comm_reserve(world, n * 8, &err), &err);
    must(world->reduce_scatter(world, a, n, DTYPE_F64, NULL, &err), &err);
    must(world->all_reduce(world, b, n, DTYPE_F64, NULL, &err), &err);
    for (int64_t i = 0; i < total; i++) {
        bool own = i / (n ? n : 1) == world->rank;
        double want = rough_sum(i, world->size);
        if (a[i] != (own ? want : rough(world->rank, i)) || b[i] != want)
            fail_msg("n %lld, element %lld: %.17g and %.17g, want %.17g", (long long)n, (long long)i, a[i], b[i], want);
    }
    free(a);
    free(b);
}

static void reduce(void **state)
{
    static const int64_t sizes[] = {0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        reduce_f64(sizes[i]);
}

static void reduce_f32(void **state)
{
    enum { N = 33 };
    float x[N * 64];
    struct err err = {0};
    (void)state;
    for (int i = 0; i < N * world->size; i++)
        x[i] = (float)rough(world->rank, i);
    must(comm_reserve(world, N * 4, &err), &err);
    must(world->all_reduce(world, x, N, DTYPE_F32, NULL, &err), &err);
    for (int i = 0; i < N * world->size; i++)
        assert_true(x[i] == rough_sum_f32(i, world->size));
}

/* Rank a sends a + b + (a == b) mod 3 elements to rank b, so some pairs exchange nothing. */
static int count_between(int a, int b) { return (a + b + (a == b)) % 3; }

static void exchange(void **state)
{
    int send_n[64], send_at[64], recv_n[64], recv_at[64], sends = 0, recvs = 0;
    double out[256], in[256];
    struct err err = {0};
    (void)state;
    for (int r = 0; r < world->size; r++) {
        send_n[r] = count_between(world->rank, r), recv_n[r] = count_between(r, world->rank);
        send_at[r] = sends, recv_at[r] = recvs;
        for (int k = 0; k < send_n[r]; k++)
            out[sends++] = 100 * world->rank + 10 * r + k;
        recvs += recv_n[r];
    }
    must(world->all_to_all(world, out, send_n, send_at, in, recv_n, recv_at, DTYPE_F64, NULL, &err), &err);
    for (int r = 0; r < world->size; r++)
        for (int k = 0; k < recv_n[r]; k++)
            assert_true(in[recv_at[r] + k] == 100 * r + 10 * world->rank + k);
}

/* Two messages to the next rank and one to the rank before, all at once: larger than any buffer MPI would hide a mistake in. */
static void messages(void **state)
{
    enum { BIG = 40000 };
    int next = (world->rank + 1) % world->size, before = (world->rank + world->size - 1) % world->size;
    double *big_out = calloc(BIG, 8), *big_in = calloc(BIG, 8), small_out = world->rank, small_in = -1, back_in = -1;
    struct err err = {0};
    (void)state;
    for (int i = 0; i < BIG; i++)
        big_out[i] = rough(world->rank, i);
    struct comm_message list[] = {
        {big_out, BIG, next, true}, {&small_out, 1, next, true}, {&small_out, 1, before, true},
        {big_in, BIG, before, false}, {&small_in, 1, before, false}, {&back_in, 1, next, false},
    };
    must(world->send_recv(world, list, 6, DTYPE_F64, NULL, &err), &err);
    for (int i = 0; i < BIG; i++)
        assert_true(big_in[i] == rough(before, i));
    assert_true(small_in == before && back_in == next);
    free(big_out);
    free(big_in);
}

static void alone_must_match(void **state)
{
    double a = 1, b = 0;
    struct comm *self;
    struct err err = {0};
    (void)state;
    must(comm_self_open(&self, &err), &err);
    struct comm_message lists[][2] = {{{&a, 1, 0, true}}, {{&b, 1, 0, false}}, {{&a, 1, 0, true}, {&b, 0, 0, false}}};
    const int n[] = {1, 1, 2};
    for (int i = 0; i < 3; i++)
        must_fail(self->send_recv(self, lists[i], n[i], DTYPE_F64, NULL, &err), ERR_STATE, &err, "a rank alone");
    self->close(self);
}

static void broadcast(void **state)
{
    struct err err = {0};
    (void)state;
    for (int root = 0; root < world->size; root++) {
        char text[40] = "";
        if (world->rank == root)
            snprintf(text, sizeof text, "from %d", root);
        must(world->broadcast(world, text, sizeof text, root, NULL, &err), &err);
        char want[40];
        snprintf(want, sizeof want, "from %d", root);
        assert_string_equal(text, want);
    }
}

static void scalars(void **state)
{
    double sums[COMM_SCALARS], most[2] = {world->rank, -world->rank};
    struct err err = {0};
    (void)state;
    for (int i = 0; i < COMM_SCALARS; i++)
        sums[i] = rough(world->rank, i);
    must(comm_sum(world, sums, COMM_SCALARS, &err), &err);
    must(comm_max(world, most, 2, &err), &err);
    for (int i = 0; i < COMM_SCALARS; i++)
        assert_true(sums[i] == rough_sum(i, world->size));
    assert_true(most[0] == world->size - 1 && most[1] == 0);
}

/* Whoever fails, all get the lowest failing rank's status and sentence. */
static void agreement(void **state)
{
    (void)state;
    struct err none = {0};
    assert_int_equal(comm_agree(world, 0, &none), 0);
    for (int failing = 0; failing < world->size; failing++) {
        struct err err = {0};
        int status = 0;
        if (world->rank >= failing)
            status = err_set(&err, world->rank == failing ? ERR_INPUT : ERR_IO, "file of rank %d", world->rank);
        char want[64];
        snprintf(want, sizeof want, failing ? "rank %d: file of rank %d" : "file of rank 0", failing, failing);
        assert_int_equal(comm_agree(world, status, &err), ERR_INPUT);
        assert_int_equal(err.code, ERR_INPUT);
        assert_string_equal(err.text, want);
    }
}

/* Every axis' group holds the ranks that differ on that axis only, in order. */
static void axis_check(struct comm *c, const struct layout *l, int axis)
{
    double own = world->rank, members[64];
    struct comm_place here = comm_grid_place(l, world->rank);
    int64_t mine[4] = {here.tp, here.cp, here.dp, here.pp};
    struct err err = {0};
    must(c->all_gather(c, &own, members, 1, DTYPE_F64, NULL, &err), &err);
    assert_int_equal(c->rank, mine[axis]);
    for (int i = 0; i < c->size; i++) {
        struct comm_place p = comm_grid_place(l, c->size == 1 ? world->rank : (int64_t)members[i]);
        int64_t place[4] = {p.tp, p.cp, p.dp, p.pp};
        for (int k = 0; k < 4; k++)
            assert_int_equal(place[k], k == axis ? i : mine[k]);
    }
}

static void grid(void **state)
{
    static const int64_t splits[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 3}, {1, 3, 1, 1}, {2, 1, 2, 1}, {1, 2, 1, 2}, {4, 1, 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        struct layout l = layout_default();
        struct comm_grid g = {0};
        struct err err = {0};
        l.tp = splits[i][0], l.cp = splits[i][1], l.dp = splits[i][2], l.pp = splits[i][3];
        int rc = comm_grid_open(world, &l, &g, &err);
        if (layout_world(&l) != world->size) {
            must_fail(rc, ERR_USAGE, &err, "use mpirun -n");
            continue;
        }
        must(rc, &err);
        struct comm *axes[] = {g.tp, g.cp, g.dp, g.pp};
        for (int k = 0; k < 4; k++)
            axis_check(axes[k], &l, k);
        comm_grid_close(&g);
    }
}

/* A failed MPI call: the group and what it was split from are broken, and failing together is no longer tried. */
static void mpi_call_fails(void **state)
{
    struct comm *part;
    struct err err = {0};
    double own = 1, all[64];
    (void)state;
    if (strcmp(world->name, "mpi") != 0)
        return;
    must(world->split(world, 0, world->rank, &part, &err), &err);
    mpi_fails = true;
    must_fail(part->all_gather(part, &own, all, 1, DTYPE_F64, NULL, &err), ERR_TEMP, &err, "MPI all-gather failed on rank");
    assert_non_null(strstr(err.text, "MPI_ERR_TRUNCATE"));
    assert_true(part->broken && world->broken);
    assert_int_equal(comm_agree(part, ERR_TEMP, &err), ERR_TEMP);
    mpi_fails = world->broken = false;
    part->close(part);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather), cmocka_unit_test(reduce), cmocka_unit_test(reduce_f32), cmocka_unit_test(exchange),
        cmocka_unit_test(messages), cmocka_unit_test(alone_must_match), cmocka_unit_test(broadcast), cmocka_unit_test(scalars),
        cmocka_unit_test(agreement), cmocka_unit_test(grid), cmocka_unit_test(mpi_call_fails),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
