/* Communication on one rank, and on as many as mpirun starts (tests/cli/t6010-train-mpi): every
 * operation against the answer worked out apart (comm_trial.h), sums in rank order to the last bit;
 * in flight together; late, failed and out of order. */
// LINK: -Wl,--wrap=MPI_Irecv -Wl,--wrap=MPI_Testsome -Wl,--wrap=clock_sleep_s
// LINK: -Wl,--wrap=comm_peers_disturbed
#include "tests/lib/comm_trial.h"

#include <limits.h>
#include <mpi.h>
#include <unistd.h>

#include "base/clock.h"
#include "trainer/comm/comm_mpi_peers.h"

/* ---- MPI and the clock, as the tests want them ---- */

static bool irecv_fails, testsome_fails, disturbed;
static double slept_s, long_sleep_s = 1e-3; /* naps of a long wait are shorter */
int __real_MPI_Irecv(void *buf, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c,
                     MPI_Request *r);
int __wrap_MPI_Irecv(void *buf, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c,
                     MPI_Request *r);
int __real_MPI_Testsome(int n, MPI_Request *r, int *done, int *which, MPI_Status *s);
int __wrap_MPI_Testsome(int n, MPI_Request *r, int *done, int *which, MPI_Status *s);
void __real_clock_sleep_s(double seconds);
void __wrap_clock_sleep_s(double seconds);

bool __real_comm_peers_disturbed(struct comm_peers *p, double now);
bool __wrap_comm_peers_disturbed(struct comm_peers *p, double now);

bool __wrap_comm_peers_disturbed(struct comm_peers *p, double now)
{
    return disturbed || __real_comm_peers_disturbed(p, now);
}

int __wrap_MPI_Irecv(void *buf, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c,
                     MPI_Request *r)
{
    return irecv_fails ? MPI_ERR_TRUNCATE : __real_MPI_Irecv(buf, n, t, peer, tag, c, r);
}

int __wrap_MPI_Testsome(int n, MPI_Request *r, int *done, int *which, MPI_Status *s)
{
    int status = __real_MPI_Testsome(n, r, done, which, s);
    if (!testsome_fails || *done <= 0)
        return status;
    for (int i = 0; i < *done; i++)
        s[i].MPI_ERROR = i == *done - 1 ? MPI_ERR_OTHER : MPI_SUCCESS;
    return MPI_ERR_IN_STATUS;
}

void __wrap_clock_sleep_s(double seconds)
{
    slept_s += seconds > long_sleep_s ? seconds : 0;
    __real_clock_sleep_s(seconds);
}

enum { PORTION = COMM_MESSAGE_BYTES / 8 };
static bool is_mpi(void) { return strcmp(world->name, "mpi") == 0; }

static struct comm *copy_of_world(const char *axis)
{
    struct comm *c;
    struct err err = {0};
    must(comm_split(world, axis, 0, world->rank, &c, &err), &err);
    return c;
}

/* Collective. Both ways to run a test: with copies and NaN, and without. */
static void check_set(bool on)
{
    struct err err = {0};
    must(comm_barrier(world, &err), &err);
    world->conf->check = on;
}

/* ---- each operation alone ---- */

static void trial_run(struct comm *c, enum comm_kind kind, unsigned seed, enum dtype dtype,
                      bool in_place, int64_t most)
{
    struct trial t;
    struct err err = {0};
    trial_make(&t, c, kind, seed, dtype, in_place, most);
    int64_t sent = c->sent_bytes, ops = c->ops;
    must(comm_start(c, &t.op, NULL, &t.work, &err), &err);
    if (c->conf->check)
        trial_each(&t, must_be_nan);
    must(comm_wait(c, t.work, NULL, &err), &err);
    trial_verify(&t);
    if (c->sent_bytes - sent != trial_sent_bytes(&t) || c->ops != ops + 1)
        fail_msg("%s, seed %u: %lld bytes sent, want %lld", comm_kind_names[kind], seed,
                 (long long)(c->sent_bytes - sent), (long long)trial_sent_bytes(&t));
    trial_release(&t);
}

static void operations(void **state)
{
    static const int64_t most[] = {0, 1, 7, 300};
    bool before = world->conf->check;
    (void)state;
    for (int check = 0; check < 2; check++) {
        check_set(check);
        for (int kind = 0; kind < KINDS; kind++)
            for (unsigned seed = 0; seed < 12; seed++)
                for (int way = 0; way < 6; way++)
                    trial_run(world, (enum comm_kind)kind, seed * 7 + (unsigned)kind,
                              trial_types[way % 3], way / 3, most[seed % 4]);
    }
    check_set(before);
}

/* Parts around the length of a message, with scratch for one of them, and for all. */
static void long_reductions(void **state)
{
    static const int64_t most[] = {PORTION - 1, PORTION, PORTION + 1, 3 * PORTION + 5};
    struct err err = {0};
    (void)state;
    for (int scratch_parts = 0; scratch_parts < 3; scratch_parts++) {
        struct comm *c = copy_of_world("dp");
        must(comm_reserve(c, scratch_parts, scratch_parts * 2LL * COMM_MESSAGE_BYTES * c->size, &err),
             &err);
        for (unsigned i = 0; i < 4; i++) {
            if (!dealt(scratch_parts + i, 2))
                continue;
            trial_run(c, COMM_REDUCE_SCATTER, 3 * i, DTYPE_F64, i % 2, most[i]);
            trial_run(c, COMM_REDUCE_SCATTER, 3 * i + 1, DTYPE_F32, i % 2, 2 * most[i]);
            trial_run(c, COMM_REDUCE_SCATTER, 3 * i + 2, DTYPE_BF16, i % 2, 4 * most[i]);
            trial_run(c, COMM_ALL_REDUCE, 3 * i, DTYPE_BF16, true, most[i]);
            trial_run(c, COMM_ALL_REDUCE, 3 * i, i % 2 ? DTYPE_F32 : DTYPE_F64, true, most[i]);
        }
        comm_close(c);
    }
}

static int64_t resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*s %ld", &pages), 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* What is reserved is as much as the memory plan says, and resident before the first reduction; a
 * group that reserves nothing has nothing. */
static void reserved_is_resident(void **state)
{
    /* PAGES: of what else came in, and of those before and behind */
    enum { WORKS = 3, BYTES = 20 << 20, PAGES = 1 << 19 };
    struct err err = {0};
    struct comm *c = copy_of_world("dp");
    struct buffer_scratch s = {c->size, WORKS, BYTES + 1};
    (void)state;
    assert_int_equal(c->scratch_bytes, 0);
    int64_t before = resident_bytes();
    must(comm_reserve(c, WORKS, BYTES + 1, &err), &err);
    assert_int_equal(c->scratch_bytes, is_mpi() ? buffer_scratch_bytes(&s) : 0);
    int64_t grown = resident_bytes() - before;
    assert_true(grown >= c->scratch_bytes - PAGES && (grown <= c->scratch_bytes + PAGES));
    must(comm_reserve(c, 0, BYTES, &err), &err); /* is in what there is */
    assert_int_equal(c->scratch_bytes, is_mpi() ? buffer_scratch_bytes(&s) : 0);
    comm_close(c);
}

/* Larger than any buffer MPI would hide a mistake in. */
static void long_messages(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 3; seed++) {
        trial_run(world, COMM_SEND_RECV, seed, DTYPE_F64, false, 60000);
        trial_run(world, COMM_ALL_TO_ALL, seed, DTYPE_F64, false, 60000);
        trial_run(world, COMM_ALL_GATHER, 3 * seed, DTYPE_F64, true, 60000);
        trial_run(world, COMM_BROADCAST, seed, DTYPE_F64, false, 60000);
    }
}

static void too_many_elements_are_refused(void **state)
{
    double x[RANKS] = {0};
    struct comm_work *w = NULL;
    struct err err = {0};
    (void)state;
    if (!is_mpi())
        return;
    struct comm_op op = {.kind = COMM_ALL_GATHER, .what = "far too much", .send = x, .recv = x,
                         .n = (int64_t)INT_MAX + 1, .dtype = DTYPE_F64};
    for (int i = 0; i < COMM_WORKS + 1; i++) /* leaves no work taken */
        must_fail(comm_start(world, &op, NULL, &w, &err), ERR_LIMIT, &err,
                  "all-gather 'far too much' of 2147483648 elements a rank: MPI counts end at");
    assert_null(w);
    trial_run(world, COMM_ALL_GATHER, 1, DTYPE_F64, false, 5);
}

/* ---- in flight together ---- */

/* Started in one order, waited for in orders that differ from rank to rank, long reductions with
 * scratch for one among them. */
static void waits_in_any_order(void **state)
{
    struct err err = {0};
    (void)state;
    for (unsigned round = 0; round < 6; round++) {
        if (!dealt(round, 3))
            continue;
        struct comm *c = copy_of_world("dp");
        struct trial t[COMM_WORKS];
        must(comm_reserve(c, (int)(round % 3),
                          (round % 3) * 5 * COMM_MESSAGE_BYTES * (int64_t)c->size, &err),
             &err);
        for (unsigned i = 0; i < COMM_WORKS; i++) {
            enum comm_kind kind = i % 2 ? (enum comm_kind)(mixed(round, i) % KINDS)
                                        : COMM_ALL_REDUCE;
            bool is_long = i % 2 == 0 || round % 2;
            trial_make(&t[i], c, kind, 9 * round + i, DTYPE_F64, round % 2,
                       is_long ? 2 * PORTION + 3 * i : 50);
            must(comm_start(c, &t[i].op, NULL, &t[i].work, &err), &err);
        }
        for (unsigned k = 0; k < COMM_WORKS; k++) {
            unsigned i = (k * 3 + (unsigned)c->rank * 5 + round) % COMM_WORKS;
            must(comm_wait(c, t[i].work, NULL, &err), &err);
            trial_verify(&t[i]);
            trial_release(&t[i]);
        }
        must(comm_wait(c, NULL, NULL, &err), &err);
        comm_close(c);
    }
}

enum { GROUPS = 4, SOAK_OPS = 300, IN_FLIGHT = 20 };

/* Any of a rank's works in flight. */
static void soak_end(struct trial *t, int *n, int i)
{
    struct err err = {0};
    must(comm_wait(t[i].c, t[i].work, NULL, &err), &err);
    trial_verify(&t[i]);
    trial_release(&t[i]);
    t[i] = t[--*n];
}

static int of_group(const struct trial *t, int n, const struct comm *c)
{
    int in = 0;
    for (int i = 0; i < n; i++)
        in += t[i].c == c;
    return in;
}

static void soak(bool check, unsigned seed)
{
    static struct trial t[IN_FLIGHT];
    struct comm *g[GROUPS];
    struct err err = {0};
    int n = 0, colors[GROUPS] = {0, world->rank % 2, world->rank / 2,
                                 (int)(mixed(seed, (unsigned)world->rank) % 3)};
    unsigned own = seed + 1000 * (unsigned)world->rank;
    for (int i = 0; i < GROUPS; i++)
        must(comm_split(world, (const char *[]){"world", "tp", "cp", "dp"}[i], colors[i],
                        i % 2 ? -world->rank : world->rank, &g[i], &err),
             &err);
    check_set(check);
    for (unsigned k = 0; k < SOAK_OPS; k++) {
        struct comm *c = g[mixed(seed, k) % GROUPS];
        enum comm_kind kind = (enum comm_kind)(mixed(seed + 1, k) % KINDS);
        unsigned x = mixed(seed + 2, k);
        while (n > 0 && (n == IN_FLIGHT || of_group(t, n, c) == COMM_WORKS ||
                         (own = mixed(own, k)) % 3 == 0))
            soak_end(t, &n, (int)((own = mixed(own, 7)) % (unsigned)n));
        trial_make(&t[n], c, kind, k, trial_types[x / 4 % 3], x & 2,
                   x % 17 == 0 ? PORTION + 9 : x % 40);
        must(comm_start(c, &t[n].op, NULL, &t[n].work, &err), &err);
        n++;
        if (own % 5 == 0)
            comm_progress(c);
    }
    while (n > 0)
        soak_end(t, &n, n - 1);
    must(comm_order_check(world, &err), &err);
    for (int i = 0; i < GROUPS; i++)
        comm_close(g[i]);
}

static void random_operations_of_random_groups(void **state)
{
    bool before = world->conf->check;
    (void)state;
    soak(false, 1);
    soak(true, 2);
    check_set(before);
}

/* Beside other processes a wait sleeps until a bell. */
static void random_operations_while_others_compute(void **state)
{
    (void)state;
    disturbed = true;
    soak(world->conf->check, 3);
    disturbed = false;
}

static struct comm_work *one_message(double *x, int peer, bool send)
{
    struct comm_work *w;
    struct comm_message m = {x, 1, peer, send};
    struct err err = {0};
    must(comm_start(world,
                    &(struct comm_op){.kind = COMM_SEND_RECV, .what = "an edge", .messages = &m,
                                      .n_messages = 1, .dtype = DTYPE_F64},
                    NULL, &w, &err),
         &err);
    return w;
}

/* Along a pipeline a rank takes part only in the messages of its edges, and what is one send_recv
 * here may be two there. */
static void messages_are_between_two(void **state)
{
    int last = world->size - 1, rank = world->rank;
    bool before = world->conf->check;
    double in = -1, out = 10 + rank, back = -1, answer = 20 + rank, sum = 1;
    struct comm_work *w[2] = {NULL, NULL};
    struct err err = {0};
    (void)state;
    check_set(true);
    if (rank > 0) { /* two, started apart */
        w[0] = one_message(&in, rank - 1, false);
        w[1] = one_message(&answer, rank - 1, true);
    }
    if (rank < last) { /* one, of two messages */
        struct comm_message list[] = {{&back, 1, rank + 1, false}, {&out, 1, rank + 1, true}};
        must(comm_do(world,
                     &(struct comm_op){.kind = COMM_SEND_RECV, .what = "an edge", .messages = list,
                                       .n_messages = 2, .dtype = DTYPE_F64},
                     NULL, &err),
             &err);
    }
    must(comm_do(
             world,
             &(struct comm_op){
                 .kind = COMM_ALL_REDUCE, .what = "ones", .recv = &sum, .n = 1, .dtype = DTYPE_F64},
             NULL, &err),
         &err);
    must(comm_wait(world, w[1], NULL, &err), &err);
    must(comm_wait(world, w[0], NULL, &err), &err);
    assert_true(sum == world->size && (rank == 0 || in == 10 + rank - 1) &&
                (rank == last || back == 20 + rank + 1));
    must(comm_order_check(world, &err), &err);
    check_set(before);
}

/* ---- check mode ---- */

/* Whatever has come meanwhile, without its wait an operation leaves NaN; and what is sent was
 * copied. */
static void a_missing_wait_leaves_nan(void **state)
{
    bool before = world->conf->check;
    struct err err = {0};
    (void)state;
    check_set(true);
    for (int kind = 0; kind < KINDS - 1; kind++)
        for (int in_place = 0; in_place < 2; in_place++) {
            struct trial t;
            trial_make(&t, world, (enum comm_kind)kind, 6 + (unsigned)kind, DTYPE_F64, in_place,
                       40);
            must(comm_start(world, &t.op, NULL, &t.work, &err), &err);
            if (!t.in_place && kind != COMM_BROADCAST && kind != COMM_REDUCE_SCATTER)
                for (int64_t i = 0;
                     i < (kind == COMM_ALL_GATHER ? t.counts[world->rank] : t.send_total); i++)
                    put(t.send, i, 5, DTYPE_F64);
            for (int i = 0; i < 50; i++)
                comm_progress(world);
            must(comm_barrier(world, &err), &err);
            trial_each(&t, must_be_nan);
            must(comm_wait(world, t.work, NULL, &err), &err);
            trial_verify(&t);
            trial_release(&t);
        }
    check_set(before);
}

/* Two groups of the same two ranks or more: one rank starts theirs the other way round. Nothing
 * hangs, and all are told. */
static void order_is_compared(void **state)
{
    struct comm *a = copy_of_world("tp"), *b = copy_of_world("cp");
    bool before = world->conf->check;
    struct comm_work *wa, *wb;
    double x = 1, y = 2;
    struct err err = {0};
    (void)state;
    check_set(true);
    must(comm_order_check(world, &err), &err);
    struct comm_op first = {
        .kind = COMM_ALL_REDUCE, .what = "first sums", .recv = &x, .n = 1, .dtype = DTYPE_F64};
    struct comm_op second = {
        .kind = COMM_ALL_REDUCE, .what = "second sums", .recv = &y, .n = 1, .dtype = DTYPE_F64};
    bool other = world->rank == 1;
    if (other)
        must(comm_start(b, &second, NULL, &wb, &err), &err);
    must(comm_start(a, &first, NULL, &wa, &err), &err);
    if (!other)
        must(comm_start(b, &second, NULL, &wb, &err), &err);
    must(comm_wait(a, wa, NULL, &err), &err);
    must(comm_wait(b, wb, NULL, &err), &err);
    assert_true(x == world->size && y == 2 * world->size);
    if (world->size > 1) {
        must_fail(comm_order_check(world, &err), ERR_STATE, &err,
                  "ranks 0 and 1 of the world do not start the same operations in the same order");
        assert_non_null(strstr(err.text, "all-reduce 'first sums' of 1 f64 in group tp"));
        assert_non_null(strstr(err.text, "all-reduce 'second sums' of 1 f64 in group cp"));
        assert_true(strstr(err.text, "on rank 0") < strstr(err.text, "second") &&
                    strstr(err.text, "second") < strstr(err.text, "on rank 1"));
    }
    check_set(before);
    comm_close(a);
    comm_close(b);
}

/* ---- latency ---- */

static struct { double start_s, wait_s, end_s; const char *what; } traced[4];
static int n_traced;

static void trace(void *ctx, const struct comm *c, const struct comm_op *op,
                  const struct comm_times *t)
{
    assert_ptr_equal(ctx, &n_traced);
    assert_true(c->size == world->size && n_traced < 4);
    /* one number: rank 0 has it to sum */
    assert_int_equal(t->sent_bytes, 8 * (c->rank ? 1 : c->size - 1));
    traced[n_traced].start_s = t->start_s, traced[n_traced].wait_s = t->wait_s,
    traced[n_traced].end_s = t->end_s;
    assert_true(t->start_s <= t->started_s && t->started_s <= t->wait_s);
    traced[n_traced++].what = op->what;
}

/* Two works started together: each lasts the latency, and the second's wait sleeps only for what it
 * was started later. */
static void latency(void **state)
{
    const double latency_s = 0.05;
    struct comm_work *w[2];
    double x[2] = {1, 1};
    struct err err = {0};
    (void)state;
    world->conf->latency_s = latency_s;
    world->conf->trace = trace, world->conf->trace_ctx = &n_traced;
    n_traced = 0, slept_s = 0;
    for (int i = 0; i < 2; i++)
        must(comm_start(world,
                        &(struct comm_op){.kind = COMM_ALL_REDUCE, .what = i ? "b" : "a",
                                          .recv = &x[i], .n = 1, .dtype = DTYPE_F64},
                        NULL, &w[i], &err),
             &err);
    for (int i = 0; i < 2; i++)
        must(comm_wait(world, w[i], NULL, &err), &err);
    world->conf->latency_s = 0;
    world->conf->trace = NULL;
    assert_int_equal(n_traced, 2);
    assert_true(strcmp(traced[0].what, "a") == 0 && strcmp(traced[1].what, "b") == 0);
    for (int i = 0; i < 2; i++) {
        assert_true(traced[i].end_s - traced[i].start_s >= latency_s);
        assert_true(traced[i].start_s <= traced[i].wait_s && traced[i].wait_s <= traced[i].end_s);
    }
    assert_true(traced[0].end_s <= traced[1].wait_s && traced[1].start_s <= traced[0].wait_s);
    if (slept_s > latency_s + (traced[1].start_s - traced[0].start_s))
        fail_msg("slept for %g s: more than one latency of %g s", slept_s, latency_s);
}

/* ---- errors ---- */

static void alone_must_match(void **state)
{
    double a = 1, b = 0;
    struct comm *self;
    struct err err = {0};
    (void)state;
    must(comm_self_open(&self, &err), &err);
    struct comm_message lists[][2] = {
        {{&a, 1, 0, true}}, {{&b, 1, 0, false}}, {{&a, 1, 0, true}, {&b, 0, 0, false}}};
    const int n[] = {1, 1, 2};
    for (int i = 0; i < 3; i++)
        must_fail(comm_do(self,
                          &(struct comm_op){.kind = COMM_SEND_RECV, .what = "to itself",
                                            .messages = lists[i], .n_messages = n[i],
                                            .dtype = DTYPE_F64},
                          NULL, &err),
                  ERR_STATE, &err, "a rank alone");
    comm_close(self);
}

static void scalars(void **state)
{
    double sums[COMM_SCALARS], most[2] = {world->rank, -world->rank};
    struct err err = {0};
    (void)state;
    for (int i = 0; i < COMM_SCALARS; i++)
        sums[i] = rough(0, world->rank, i);
    must(comm_sum(world, sums, COMM_SCALARS, &err), &err);
    must(comm_max(world, most, 2, &err), &err);
    for (int i = 0; i < COMM_SCALARS; i++) {
        double sum = rough(0, 0, i);
        for (int r = 1; r < world->size; r++)
            sum += rough(0, r, i);
        assert_true(sums[i] == sum);
    }
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
            status = err_set(&err, world->rank == failing ? ERR_INPUT : ERR_IO, "file of rank %d",
                             world->rank);
        char want[64];
        snprintf(want, sizeof want, failing ? "rank %d: file of rank %d" : "file of rank 0",
                 failing, failing);
        assert_int_equal(comm_agree(world, status, &err), ERR_INPUT);
        assert_int_equal(err.code, ERR_INPUT);
        assert_string_equal(err.text, want);
    }
}

/* After an error that in earnest only an abort follows: the next test goes on with the world. */
static void world_mend(struct comm *part)
{
    assert_true(part->broken && world->broken);
    part->broken = world->broken = false;
}

/* These wait for seconds, and more than four ranks see nothing in them that four do not. */
static bool may_hang(void) { return is_mpi() && world->size > 1 && world->size <= 4; }

/* A failed MPI call: the group and what it was split from are broken, and failing together is no
 * longer tried. */
static void mpi_call_fails(void **state)
{
    double own = 1, all[RANKS];
    struct comm_op op = {.kind = COMM_ALL_GATHER, .what = "numbers", .send = &own, .recv = all,
                         .n = 1, .dtype = DTYPE_F64};
    (void)state;
    for (int way = 0; way < 2 && may_hang(); way++) {
        struct comm *part = copy_of_world("dp");
        struct err err = {0};
        irecv_fails = way == 0, testsome_fails = way == 1;
        must_fail(comm_do(part, &op, NULL, &err), ERR_TEMP, &err, "MPI all-gather failed on rank");
        assert_non_null(strstr(err.text, way ? "MPI_ERR_OTHER" : "MPI_ERR_TRUNCATE"));
        irecv_fails = testsome_fails = false;
        assert_true(part->broken && world->broken);
        assert_int_equal(comm_agree(part, ERR_TEMP, &err), ERR_TEMP);
        must_fail(comm_do(part, &op, NULL, &err), ERR_TEMP, &err, "an earlier operation failed");
        part->broken = way == 1; /* what is still on the way must not be freed */
        world->broken = false;
        must(comm_barrier(world, &err), &err);
        comm_close(part);
    }
}

/* The rank that hangs takes no processor from those who wait for it. */
static void hang_until_told(bool hangs, int tag)
{
    char c = 0;
    for (int r = 0; r < world->size && hangs; r++) {
        for (int told = r == world->rank; !told; clock_sleep_s(1e-3))
            MPI_Iprobe(r, tag, MPI_COMM_WORLD, &told, MPI_STATUS_IGNORE);
        if (r != world->rank)
            MPI_Recv(&c, 1, MPI_CHAR, r, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (!hangs)
        MPI_Send(&c, 1, MPI_CHAR, world->size - 1, tag, MPI_COMM_WORLD);
}

static struct comm *all_but_last(void)
{
    struct comm *c;
    struct err err = {0};
    must(comm_split(world, "pp", world->rank == world->size - 1, world->rank, &c, &err), &err);
    return c;
}

/* The last rank never enters: the others' waits end, and name it and the operation. */
static void a_rank_that_hangs_is_named(void **state)
{
    enum { BIG = 1 << 18 };
    static double big[BIG], all[RANKS]; /* outlive what is on the way */
    static double own = 1;
    int last = world->size - 1;
    char none[64], taken[64];
    snprintf(none, sizeof none, ": no data from rank %d", last);
    snprintf(taken, sizeof taken, ": not taken by rank %d:", last);
    struct comm_op gather = {.kind = COMM_ALL_GATHER, .what = "numbers of all", .send = &own,
                             .recv = all, .n = 1, .dtype = DTYPE_F64};
    struct comm_op spread = {
        .kind = COMM_BROADCAST, .what = "much", .recv = big, .n = BIG, .dtype = DTYPE_F64};
    (void)state;
    for (int way = 0; way < 2 && may_hang(); way++) {
        struct comm *part = copy_of_world("dp"), *others = all_but_last();
        struct comm_work *w = NULL;
        struct err err = {0};
        bool late = world->rank != last && (way == 0 || world->rank == 0);
        if (late)
            must(comm_start(part, way ? &spread : &gather, NULL, &w, &err), &err);
        else if (world->rank != last)
            must(comm_do(part, &spread, NULL, &err), &err);
        /* from here on only the last is missing, however busy the machine */
        must(comm_barrier(others, &err), &err);
        if (late) {
            world->conf->deadline_s = 1;
            must_fail(comm_wait(part, w, NULL, &err), ERR_TEMP, &err,
                      way ? "broadcast 'much' in group dp"
                          : "all-gather 'numbers of all' in group dp");
            assert_non_null(strstr(err.text, way ? taken : none));
            assert_non_null(strstr(err.text, "hangs or is gone: end all ranks"));
            world_mend(part);
        }
        world->conf->deadline_s = 0;
        comm_close(others);
        hang_until_told(world->rank == last, 20000 + way);
        if (world->rank == last)
            must(comm_do(part, way ? &spread : &gather, NULL, &err), &err);
        must(comm_barrier(world, &err), &err);
        part->broken = true; /* its messages were not waited for: not to be freed */
        comm_close(part);
    }
}

/* Nor does a split wait for ever for a rank that does not come. */
static void a_split_that_is_not_joined(void **state)
{
    int last = world->size - 1;
    char none[64];
    snprintf(none, sizeof none, ": no data from rank %d", last);
    (void)state;
    if (!may_hang())
        return;
    struct comm *whole = copy_of_world("dp"), *others = all_but_last(), *part = NULL;
    struct err err = {0};
    must(comm_barrier(others, &err), &err);
    comm_close(others);
    if (world->rank != last) {
        world->conf->deadline_s = 5; /* the others are on their way */
        must_fail(comm_split(whole, "tp", 0, 0, &part, &err), ERR_TEMP, &err,
                  "all-gather 'tp' in group dp");
        assert_non_null(strstr(err.text, none));
        world_mend(whole);
    }
    assert_null(part);
    hang_until_told(world->rank == last, 20002);
    world->conf->deadline_s = 0;
    must(comm_barrier(world, &err), &err);
    whole->broken = true; /* its messages were not waited for: not to be freed */
    comm_close(whole);
}

/* In time there is no error. */
static void a_deadline_that_holds(void **state)
{
    (void)state;
    world->conf->deadline_s = 600;
    for (int kind = 0; kind < KINDS; kind++)
        trial_run(world, (enum comm_kind)kind, 1, DTYPE_F64, false, 30);
    world->conf->deadline_s = 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations), cmocka_unit_test(long_reductions),
        cmocka_unit_test(reserved_is_resident), cmocka_unit_test(long_messages),
        cmocka_unit_test(too_many_elements_are_refused), cmocka_unit_test(waits_in_any_order),
        cmocka_unit_test(random_operations_of_random_groups),
        cmocka_unit_test(random_operations_while_others_compute),
        cmocka_unit_test(messages_are_between_two), cmocka_unit_test(a_missing_wait_leaves_nan),
        cmocka_unit_test(latency), cmocka_unit_test(alone_must_match), cmocka_unit_test(scalars),
        cmocka_unit_test(agreement), cmocka_unit_test(a_deadline_that_holds),
        cmocka_unit_test(mpi_call_fails),
        cmocka_unit_test(a_rank_that_hangs_is_named), cmocka_unit_test(a_split_that_is_not_joined),
        cmocka_unit_test(order_is_compared), /* last: the ranks' orders differ from here on */
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
