/* Communication between devices (coll.h), on the shim's GPUs and the stand-in for NCCL: what each
 * operation gives, and that the stand-in refuses what NCCL forbids. On a world of one, or of
 * mpirun's ranks. COLL_CASE names a case that is to end the program. */
#include <string.h>

#include "tests/lib/trainer_cuda.h"
#include "tests/lib/trainer_run.h"
#include "trainer/ops/cuda_load.h"

enum { N = 5 };

static struct bench b;
static const struct coll_ops *coll;

static struct coll *coll_begin(struct err *err)
{
    struct coll_id id = {{0}};
    struct coll *c;
    if (world->rank == 0)
        must(coll->id(&id, err), err);
    must(comm_broadcast_bytes(world, &id, sizeof id, 0, err), err);
    must(coll->open(b.dev, &id, world->size, world->rank, "test", &c, err), err);
    return c;
}

static int until_ready(struct coll *c, struct err *err)
{
    bool ready = false;
    int rc = 0;
    while (rc == 0 && !ready)
        rc = coll->ready(c, &ready, err);
    return rc;
}

static struct coll *opened(void)
{
    struct err err = {0};
    struct coll *c = coll_begin(&err);
    must(until_ready(c, &err), &err);
    return c;
}

static void *taken(int64_t bytes)
{
    struct err err = {0};
    void *p;
    must(b.dev->alloc(b.dev, "x", bytes, &p, &err), &err);
    return p;
}

static void copy_out(void *to, const void *from, int64_t bytes)
{
    struct err err = {0};
    b.dev->copy(b.dev, to, from, bytes, DEV_D2H, b.stream);
    must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
}

/* Sums of whole numbers, which are the same in any order. */
static void collectives(void **state)
{
    (void)state;
    struct err err = {0};
    int size = world->size, rank = world->rank;
    struct coll *c = opened();
    double in[N * RUN_TEXT_WIDTH * 4], out[sizeof in / sizeof *in], *x = taken(sizeof in),
        *y = taken(sizeof in);
    for (int i = 0; i < N * size; i++)
        in[i] = 100 * rank + i;
    b.dev->copy(b.dev, x, in, N * size * 8, DEV_H2D, b.stream);
    must(coll->all_gather(c, x, y, N, DTYPE_F64, b.stream, &err), &err);
    copy_out(out, y, N * size * 8);
    for (int i = 0; i < N * size; i++)
        assert_true(out[i] == 100 * (i / N) + i % N);
    must(coll->reduce_scatter(c, x, y, N, DTYPE_F64, b.stream, &err), &err);
    copy_out(out, y, N * 8);
    for (int i = 0; i < N; i++)
        assert_true(out[i] == 100 * size * (size - 1) / 2 + size * (N * rank + i));
    must(coll->all_reduce(c, x, x, N * size, DTYPE_F64, b.stream, &err), &err);
    copy_out(out, x, N * size * 8);
    for (int i = 0; i < N * size; i++)
        assert_true(out[i] == 100 * size * (size - 1) / 2 + size * i);
    coll->close(c);
    b.dev->free(b.dev, x);
    b.dev->free(b.dev, y);
}

/* Each rank gives the next one as many numbers as it is places from the first, in one group. */
static void messages(void **state)
{
    (void)state;
    struct err err = {0};
    int size = world->size, next = (world->rank + 1) % size,
        before = (world->rank + size - 1) % size;
    struct coll *c = opened();
    float in[RUN_TEXT_WIDTH * 4], out[RUN_TEXT_WIDTH * 4], *x = taken(2 * sizeof in);
    for (int i = 0; i < size; i++)
        in[i] = (float)(100 * world->rank + i);
    b.dev->copy(b.dev, x, in, size * 4, DEV_H2D, b.stream);
    if (size > 1) {
        must(coll->group_begin(c, &err), &err);
        must(coll->recv(c, x + size, before + 1, DTYPE_F32, before, b.stream, &err), &err);
        must(coll->send(c, x, world->rank + 1, DTYPE_F32, next, b.stream, &err), &err);
        must(coll->group_end(c, &err), &err);
        copy_out(out, x + size, (before + 1) * 4);
        for (int i = 0; i <= before; i++)
            assert_true(out[i] == (float)(100 * before + i));
    }
    coll->close(c);
    b.dev->free(b.dev, x);
}

/* What goes out on a stream for which nobody waits must get out, or the other rank's answer never
 * comes. */
static void streams_go_on(void **state)
{
    (void)state;
    struct err err = {0};
    struct coll *to = opened(), *back = opened();
    struct dev_stream *other;
    double *x = taken(8);
    must(b.dev->stream_new(b.dev, "other", DEV_PRIORITY_HIGH, &other, &err), &err);
    if (world->rank == 0 && world->size > 1) {
        must(coll->recv(back, x, 1, DTYPE_F64, 1, b.stream, &err), &err);
        b.dev->fill(b.dev, x, 0, 8, other);
        must(coll->send(to, x, 1, DTYPE_F64, 1, other, &err), &err);
        must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
    } else if (world->rank == 1) {
        must(coll->recv(to, x, 1, DTYPE_F64, 0, other, &err), &err);
        must(b.dev->stream_sync(b.dev, other, &err), &err);
        must(coll->send(back, x, 1, DTYPE_F64, 0, b.stream, &err), &err);
        must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
    }
    b.dev->stream_free(b.dev, other);
    coll->close(to);
    coll->close(back);
    b.dev->free(b.dev, x);
}

/* Parts whose sum depends on the order of adding, three of them and the own one apart. */
static void sums_of_parts(void **state)
{
    (void)state;
    enum { PARTS = 4, M = 300 };
    static const enum dtype types[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};
    double numbers[PARTS * M];
    struct err err = {0};
    for (int i = 0; i < PARTS * M; i++)
        numbers[i] = philox_normal_at(5, PHILOX_TEST, 2, (uint64_t)i) * (i % 7 ? 1 : 1e6);
    for (int t = 0; t < LEN(types) * PARTS; t++) {
        enum dtype dtype = types[t / PARTS];
        int64_t e = dtype_bytes(dtype);
        int own = t % PARTS;
        char host[PARTS * M * 8], got[M * 8], want[M * 8], *x = taken(PARTS * M * e),
                                                           *mine = taken(M * e);
        for (int i = 0; i < PARTS * M; i++)
            pair_set(host, dtype, i, numbers[i]);
        struct tensor all = {host, dtype, PARTS, M, M};
        for (int i = 0; i < M; i++) {
            double sum = pair_at(host, &all, 0, i);
            for (int p = 1; p < PARTS; p++)
                sum = dtype == DTYPE_F64 ? sum + pair_at(host, &all, p, i)
                                         : (float)sum + (float)pair_at(host, &all, p, i);
            pair_set(want, dtype, i, sum);
        }
        b.dev->copy(b.dev, x, host, PARTS * M * e, DEV_H2D, b.stream);
        b.dev->copy(b.dev, mine, host + own * M * e, M * e, DEV_H2D, b.stream);
        b.dev->fill(b.dev, x + own * M * e, 0xff, M * e, b.stream); /* it is read from mine */
        coll->sum_parts(b.dev, x, M, PARTS, mine, own, mine, M, dtype, b.stream);
        copy_out(got, mine, M * e);
        assert_memory_equal(got, want, (size_t)(M * e));
        must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
        b.dev->free(b.dev, x);
        b.dev->free(b.dev, mine);
    }
}

/* ---- failures ---- */

static void another_library(void **state)
{
    (void)state;
    struct err err = {0};
    setenv("REEL_SHIM_NCCL", "30102", true);
    must_fail(coll->check(&err), ERR_ENV, &err, "is of version 3.1.2, and this build is for");
    unsetenv("REEL_SHIM_NCCL");
}

/* An operation that never ends holds its stream until the communicator is aborted. */
static void abort_ends(void **state)
{
    (void)state;
    struct err err = {0};
    struct coll *c = opened();
    double *x = taken(8);
    setenv("REEL_SHIM_FAIL", "ncclHang:1:1", true);
    must(coll->all_reduce(c, x, x, 1, DTYPE_F64, b.stream, &err), &err);
    unsetenv("REEL_SHIM_FAIL");
    coll->abort(c);
    must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
    b.dev->free(b.dev, x);
}

/* Gives a wait up when it is asked for the fifth time. */
static int gives_up(void *ctx, struct err *err)
{
    int *asked = ctx;
    return ++*asked < 5 ? 0 : err_set(err, ERR_TEMP, "given up after %d", *asked);
}

/* Who waits for a message that does not come is let go by whoever watches. */
static void a_wait_is_watched(void **state)
{
    (void)state;
    for (int events = 0; events < 2; events++) {
        struct err err = {0};
        struct coll *c = opened();
        struct dev_event *e;
        double *x = taken(8);
        int asked = 0;
        must(b.dev->event_new(b.dev, &e, &err), &err);
        setenv("REEL_SHIM_FAIL", events ? "ncclHang:1:2" : "ncclHang:1:3", true); /* counts anew */
        must(coll->all_reduce(c, x, x, 1, DTYPE_F64, b.stream, &err), &err);
        unsetenv("REEL_SHIM_FAIL");
        b.dev->event_record(b.dev, e, b.stream);
        assert_false(b.dev->event_done(b.dev, e));
        b.dev->watch = gives_up;
        b.dev->watch_ctx = &asked;
        if (events)
            b.dev->event_sync(b.dev, e);
        b.dev->failed = false;
        must_fail(b.dev->stream_sync(b.dev, b.stream, &err), ERR_TEMP, &err, "given up after 5");
        assert_true(b.dev->failed);
        b.dev->watch = NULL;
        coll->abort(c);
        must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
        assert_true(b.dev->failed); /* what was given up is not known to be right */
        assert_true(b.dev->event_done(b.dev, e));
        b.dev->event_free(b.dev, e);
        b.dev->free(b.dev, x);
    }
}

static void errors_come_later(void **state)
{
    (void)state;
    struct err err = {0};
    struct coll *c = opened();
    setenv("REEL_SHIM_FAIL", "ncclCommGetAsyncError:1:6", true);
    must_fail(until_ready(c, &err), ERR_TEMP, &err, "NCCL, group test: an operation: remote");
    unsetenv("REEL_SHIM_FAIL");
    coll->abort(c);
    setenv("REEL_SHIM_FAIL", "ncclOpen:1:1", true);
    c = coll_begin(&err);
    unsetenv("REEL_SHIM_FAIL");
    bool ready = true;
    for (int i = 0; i < 1000; i++)
        must(coll->ready(c, &ready, &err), &err);
    assert_false(ready);
    coll->abort(c);
}

static void one_device_for_two(void **state)
{
    (void)state;
    struct err err = {0};
    char first[16];
    snprintf(first, sizeof first, "%d", -world->rank);
    setenv("REEL_SHIM_FIRST", first, true);
    struct coll *c = coll_begin(&err);
    if (world->size > 1)
        must_fail(until_ready(c, &err), ERR_ENV, &err, "Duplicate GPU detected");
    unsetenv("REEL_SHIM_FIRST");
    coll->abort(c);
}

/* Does what ends the program: see tests/cli/t6090-coll. */
static void ends(const char *name)
{
    struct err err = {0};
    struct coll *c = opened();
    struct dev_stream *other;
    double *x = taken(16);
    must(b.dev->stream_new(b.dev, "other", DEV_PRIORITY_HIGH, &other, &err), &err);
    if (strcmp(name, "streams") == 0) {
        must(coll->all_reduce(c, x, x, 1, DTYPE_F64, b.stream, &err), &err);
        must(coll->all_reduce(c, x, x, 1, DTYPE_F64, other, &err), &err);
    } else if (strcmp(name, "orders") == 0 && world->rank == 1) {
        must(coll->all_reduce(c, x, x, 1, DTYPE_F64, b.stream, &err), &err);
    } else if (strcmp(name, "orders") == 0) {
        must(coll->all_gather(c, x, x, 1, DTYPE_F64, b.stream, &err), &err);
    } else {
        must(coll->all_reduce(c, x, x, 1 + (world->rank == 0), DTYPE_F64, b.stream, &err), &err);
    }
    must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives), cmocka_unit_test(messages),
        cmocka_unit_test(streams_go_on), cmocka_unit_test(sums_of_parts),
        cmocka_unit_test(another_library), cmocka_unit_test(abort_ends),
        cmocka_unit_test(a_wait_is_watched),
        cmocka_unit_test(errors_come_later), cmocka_unit_test(one_device_for_two),
    };
    const struct cuda_backend *backend;
    struct err err = {0};
    char device[32];
    /* A failed check ends the program, and so the other ranks: later tests would wait for them, or
     * for an operation that hangs. */
    setenv("CMOCKA_TEST_ABORT", "1", true);
    cuda_library(argv[0]);
    world_open(argc, argv);
    snprintf(device, sizeof device, "cuda:%d", world->rank);
    setenv("REEL_DEVICE", device, true);
    b = bench_open(DTYPE_F64);
    must(cuda_load(&backend, &err), &err);
    coll = backend->coll;
    if (getenv("COLL_CASE"))
        ends(getenv("COLL_CASE"));
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    bench_close(&b);
    return world_close(failures);
}
