/* The CPU device: memory accounted and poisoned, copies by pieces, and the discipline of events. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/trainer_fixture.h"

static void test_memory(void **state)
{
    (void)state;
    struct err err = {0};
    for (int poison = 0; poison < 2; poison++) {
        struct dev *d;
        void *a, *b;
        assert_int_equal(dev_cpu_open(poison, &d, &err), 0);
        assert_int_equal(d->alloc(d, "a", 1000, &a, &err), 0);
        assert_int_equal(d->alloc(d, "b", 24, &b, &err), 0);
        assert_int_equal((uintptr_t)a % DEV_ALIGN_BYTES, 0);
        assert_int_equal((uintptr_t)b % DEV_ALIGN_BYTES, 0);
        assert_int_equal(d->alloc_bytes, 1024);
        for (int i = 0; i < 3; i++) /* a read before the first write is a NaN, or a zero */
            assert_true(poison ? isnan(((double *)b)[i]) : ((double *)b)[i] == 0);
        d->free(d, a);
        assert_int_equal(d->alloc_bytes, 24);
        assert_int_equal(d->peak_bytes, 1024);
        d->free(d, b);
        d->free(d, NULL);
        assert_int_equal(d->alloc_bytes, 0);
        d->close(d);
    }
}

static void test_too_much(void **state)
{
    (void)state;
    static const struct { int64_t bytes; int rc; } cases[] = {
        {-1, ERR_LIMIT}, {INT64_MAX, ERR_LIMIT}, {INT64_C(1) << 60, ERR_NOMEM}};
    struct err err = {0};
    struct dev *d;
    void *p = &err;
    assert_int_equal(dev_cpu_open(false, &d, &err), 0);
    for (int i = 0; i < LEN(cases); i++) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
        if (cases[i].rc == ERR_NOMEM)
            continue; /* the sanitizer ends the process instead of returning NULL */
#endif
        assert_int_equal(d->alloc(d, "activations", cases[i].bytes, &p, &err), cases[i].rc);
        assert_non_null(strstr(err.text, "activations"));
        assert_ptr_equal(p, &err);
        assert_int_equal(d->alloc_bytes, 0);
    }
    d->close(d);
}

static void test_copies(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F32);
    const unsigned char src[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    unsigned char dst[12] = {0};
    static const unsigned char want[12] = {1, 2, 0, 0, 0, 5, 6, 0, 0, 0, 9, 10};
    b.dev->copy_2d(b.dev, dst, 5, src, 4, 2, 3, DEV_D2D, b.stream);
    assert_memory_equal(dst, want, 12);
    b.dev->copy(b.dev, dst, src, 12, DEV_H2D, b.stream);
    assert_memory_equal(dst, src, 12);
    b.dev->zero(b.dev, dst + 3, 5, b.stream);
    assert_true(dst[2] == 3 && dst[3] == 0 && dst[7] == 0 && dst[8] == 9);
    bench_close(&b);
}

static void test_events(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F32);
    struct dev_event *from, *to;
    struct err err = {0};
    assert_int_equal(b.dev->event_new(b.dev, &from, &err), 0);
    assert_int_equal(b.dev->event_new(b.dev, &to, &err), 0);
    b.dev->event_record(b.dev, from, b.stream);
    b.dev->event_wait(b.dev, b.stream, from);
    b.dev->event_record(b.dev, to, b.stream);
    assert_true(b.dev->event_elapsed_s(b.dev, from, to) >= 0);
    b.dev->event_free(b.dev, from);
    b.dev->event_free(b.dev, to);
    bench_close(&b);
}

/* A GPU would let such a wait pass in silence: here it ends the program. */
static void test_wait_without_record(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F32);
    struct dev_event *e;
    struct err err = {0};
    int status;
    assert_int_equal(b.dev->event_new(b.dev, &e, &err), 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        b.dev->event_wait(b.dev, b.stream, e);
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    b.dev->event_free(b.dev, e);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_too_much),
                                       cmocka_unit_test(test_copies), cmocka_unit_test(test_events),
                                       cmocka_unit_test(test_wait_without_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
