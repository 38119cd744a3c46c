/* Calls that become graphs (trainer/ops/graphs.h), on the far device: what is launched does what
 * the calls would have done, and another argument, another array of the host or a cut is another
 * bundle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/dev/dev_far.h"
#include "trainer/ops/graphs.h"
#include "trainer/ops/ops_far.h"

enum { N = 16, CALLS = 12 };

struct bench {
    struct dev *dev;
    struct dev_stream *stream;
    struct ops *ops;
    struct graphs *graphs;
    float *x, *y, *lse; /* [N] on the device */
    int32_t *ints;      /* [7] on the device */
};

static void *far_array(struct bench *b, const void *values, int64_t bytes)
{
    void *p;
    assert_int_equal(b->dev->alloc(b->dev, "array", bytes, &p, NULL), 0);
    b->dev->copy(b->dev, p, values, bytes, DEV_H2D, b->stream);
    assert_int_equal(b->dev->stream_sync(b->dev, b->stream, NULL), 0);
    return p;
}

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    float ones[N], zeros[N] = {0};
    int32_t ints[7] = {0};
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    *state = b;
    assert_int_equal(dev_far_open(3, &b->dev, NULL), 0);
    assert_int_equal(b->dev->stream_new(b->dev, "s", DEV_PRIORITY_NORMAL, &b->stream, NULL), 0);
    assert_int_equal(ops_far_open(b->dev, DTYPE_F32, OPS_BLAS_OWN, &b->ops, NULL), 0);
    b->x = far_array(b, ones, sizeof ones);
    b->y = far_array(b, zeros, sizeof zeros);
    b->lse = far_array(b, zeros, sizeof zeros);
    b->ints = far_array(b, ints, sizeof ints);
    assert_int_equal(graphs_open(b->ops, b->stream, &b->graphs, NULL), 0);
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;
    graphs_close(b->graphs);
    assert_null(b->dev->graphs);
    b->dev->free(b->dev, b->x);
    b->dev->free(b->dev, b->y);
    b->dev->free(b->dev, b->lse);
    b->dev->free(b->dev, b->ints);
    b->ops->close(b->ops);
    b->dev->stream_free(b->dev, b->stream);
    b->dev->close(b->dev);
    free(b);
    return 0;
}

/* Queues y += alpha x so many times. What lies between the members of the arguments is garbage. */
static void add(struct bench *b, double alpha, int times)
{
    struct ops_axpy a;
    for (int i = 0; i < times; i++) {
        memset(&a, rand() & 0xff, sizeof a);
        a.x.ptr = b->x, a.x.dtype = DTYPE_F32, a.x.rows = 1, a.x.cols = a.x.ld = N;
        a.y.ptr = b->y, a.y.dtype = DTYPE_F32, a.y.rows = 1, a.y.cols = a.y.ld = N;
        a.alpha = alpha;
        b->ops->axpy(b->ops, b->stream, &a);
    }
}

/* Returns an element of y, read behind a sync. */
static float value(struct bench *b)
{
    float y[N];
    b->dev->copy(b->dev, y, b->y, sizeof y, DEV_D2H, b->stream);
    assert_int_equal(b->dev->stream_sync(b->dev, b->stream, NULL), 0);
    for (int i = 1; i < N; i++)
        assert_true(y[i] == y[0]);
    return y[0];
}

static void assert_counts(const struct bench *b, int64_t bundles, int64_t captures,
                          int64_t launches)
{
    struct graphs_counts c = graphs_counts(b->graphs);
    assert_int_equal(c.bundles, bundles);
    assert_int_equal(c.captures, captures);
    assert_int_equal(c.launches, launches);
}

/* The first time calls, the second and every later one the graph: each adds the same. */
static void again(void **state)
{
    struct bench *b = *state;
    for (int i = 1; i <= 5; i++) {
        add(b, 0.5, CALLS);
        assert_true(value(b) == (float)(0.5 * CALLS * i));
        assert_counts(b, i, i > 1, i > 1 ? i - 1 : 0);
    }
}

/* Behind memory that was given back calls are queued again, and then become a graph again. */
static void freed(void **state)
{
    struct bench *b = *state;
    float other[N] = {0};
    void *more = far_array(b, other, sizeof other);
    for (int i = 1; i <= 6; i++) {
        add(b, 0.5, CALLS);
        assert_true(value(b) == (float)(0.5 * CALLS * i));
        assert_counts(b, i, (i > 1) + (i > 4), i < 4 ? i - 1 : i - 2);
        if (i == 3)
            b->dev->free(b->dev, more);
    }
}

static void others(void **state)
{
    struct bench *b = *state;
    float want = 0;
    for (int i = 1; i <= 3; i++) { /* never the same number twice */
        add(b, i, CALLS);
        want += (float)(i * CALLS);
        assert_true(value(b) == want);
    }
    assert_counts(b, 3, 0, 0);
    for (int i = 0; i < 9; i++) { /* too few calls */
        add(b, 1, 2);
        want += 2;
        assert_true(value(b) == want);
    }
    assert_counts(b, 3, 0, 0);
}

/* Events and the host's copies cut bundles, and see what was queued before them. */
static void cuts(void **state)
{
    struct bench *b = *state;
    struct dev_stream *other;
    struct dev_event *done;
    float y[N];
    assert_int_equal(b->dev->stream_new(b->dev, "o", DEV_PRIORITY_NORMAL, &other, NULL), 0);
    assert_int_equal(b->dev->event_new(b->dev, &done, NULL), 0);
    for (int i = 1; i <= 4; i++) {
        add(b, 1, CALLS);
        b->dev->event_record(b->dev, done, b->stream);
        b->dev->event_wait(b->dev, other, done);
        b->dev->copy(b->dev, y, b->y, sizeof y, DEV_D2H, other);
        assert_int_equal(b->dev->stream_sync(b->dev, other, NULL), 0);
        assert_true(y[0] == (float)(CALLS * i));
    }
    assert_counts(b, 4, 1, 3);
    b->dev->event_free(b->dev, done);
    b->dev->stream_free(b->dev, other);
}

/* More kinds of bundles than are remembered: the first is forgotten, and right when it comes
 * again. */
static void many(void **state)
{
    struct bench *b = *state;
    float want = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 1; i <= 40; i++)
            for (int k = 0; k < 2; k++) {
                add(b, i, CALLS);
                want += (float)(i * CALLS);
                assert_true(value(b) == want);
            }
    assert_counts(b, 160, 80, 80);
}

/* A bundle that is longer than what is kept at a time is cut, and all of it runs once. */
static void large(void **state)
{
    struct bench *b = *state;
    for (int i = 1; i <= 3; i++) {
        add(b, 1, 9000);
        assert_true(value(b) == (float)(9000 * i));
    }
    assert_true(graphs_counts(b->graphs).launches > 0);
}

/* Attends within two segments, whose lengths are the host's to say: x is q, k and v, rows of one
 * head of 2 numbers. Each call has an array of its own, which is gone behind it. */
static void attend(struct bench *b, int32_t first)
{
    int32_t *host = malloc(7 * sizeof *host);
    const int32_t values[7] = {0, first, N / 2, 0, first, first, N / 2 - first};
    struct tensor x = tensor_of(b->x, DTYPE_F32, N / 2, 2);
    memcpy(host, values, sizeof values);
    struct ops_attn a = {
        .q = x, .k = x, .v = x, .o = tensor_of(b->y, DTYPE_F32, N / 2, 2),
        .lse = tensor_of(b->lse, DTYPE_F32, N / 2, 1), .n = 2,
        .q_start = b->ints, .k_start = b->ints + 3, .k_len = b->ints + 5,
        .host = {host, host + 3, host + 5, NULL}, .max_q = N / 2, .max_k = N / 2,
        .heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 1};
    b->ops->attn_fwd(b->ops, b->stream, &a);
    memset(host, 0x55, 7 * sizeof *host);
    free(host);
}

/* Lengths of segments on the host are arguments as others: other ones are another bundle. The far
 * device compares them with its own when a call runs. */
static void arrays(void **state)
{
    struct bench *b = *state;
    for (int i = 0; i < 6; i++) {
        int32_t first = 2 + i % 2, values[7] = {0, first, N / 2, 0, first, first, N / 2 - first};
        b->dev->copy(b->dev, b->ints, values, sizeof values, DEV_H2D, b->stream);
        for (int k = 0; k < CALLS; k++)
            attend(b, first);
        assert_true(value(b) == 1); /* a mean of ones */
    }
    assert_counts(b, 6, 2, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(again, setup, teardown),
        cmocka_unit_test_setup_teardown(freed, setup, teardown),
        cmocka_unit_test_setup_teardown(others, setup, teardown),
        cmocka_unit_test_setup_teardown(cuts, setup, teardown),
        cmocka_unit_test_setup_teardown(many, setup, teardown),
        cmocka_unit_test_setup_teardown(large, setup, teardown),
        cmocka_unit_test_setup_teardown(arrays, setup, teardown),
    };
    return cmocka_run_group_tests_name("trainer_graphs", tests, NULL, NULL);
}
