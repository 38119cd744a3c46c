/* The devices: memory accounted and poisoned, copies by pieces, and the discipline of events. The
 * far one shows what a host may not do to a device that queues. */
// LINK: -Wl,--wrap=realloc
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/lib/scratch.h"
#include "tests/lib/trainer_fixture.h"
#include "trainer/dev/dev_far.h"
#include "trainer/dev/host_memory.h"

static void test_memory(void **state)
{
    (void)state;
    struct err err = {0};
    for (int poison = 0; poison < 2; poison++) {
        struct dev *d;
        void *a, *b, *c;
        assert_int_equal(dev_cpu_open(poison, &d, &err), 0);
        assert_int_equal(d->alloc(d, "a", 1000, &a, &err), 0);
        assert_int_equal(d->alloc(d, "b", 24, &b, &err), 0);
        assert_int_equal((uintptr_t)a % DEV_ALIGN_BYTES, 0);
        assert_int_equal((uintptr_t)b % DEV_ALIGN_BYTES, 0);
        assert_int_equal(d->alloc_bytes, 1024 + 256); /* each is rounded up */
        assert_int_equal(d->alloc_host(d, "c", 300, &c, &err), 0);
        assert_true(d->host_bytes == 512 && d->alloc_bytes == 1280); /* counted apart */
        d->free_host(d, c);
        assert_true(d->host_bytes == 0 && d->host_peak_bytes == 512);
        for (int i = 0; i < 3; i++) /* a read before the first write is a NaN, or a zero */
            assert_true(poison ? isnan(((double *)b)[i]) : ((double *)b)[i] == 0);
        d->free(d, a);
        assert_int_equal(d->alloc_bytes, 256);
        assert_int_equal(d->peak_bytes, 1280);
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
    b.dev->fill(b.dev, dst + 3, 0, 5, b.stream);
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

/* ---- the far device ---- */

struct far { struct dev *d; struct dev_stream *a, *b; struct dev_event *e; double *x; };

static struct far far_open(uint64_t seed)
{
    struct far f = {0};
    struct err err = {0};
    if (dev_far_open(seed, &f.d, &err) < 0 ||
        f.d->stream_new(f.d, "a", DEV_PRIORITY_NORMAL, &f.a, &err) < 0 ||
        f.d->stream_new(f.d, "b", DEV_PRIORITY_HIGH, &f.b, &err) < 0 ||
        f.d->event_new(f.d, &f.e, &err) < 0 ||
        f.d->alloc(f.d, "x", 24, (void **)&f.x, &err) < 0)
        fail_msg("%s", err.text);
    return f;
}

static void far_close(struct far *f)
{
    f->d->event_free(f->d, f->e);
    f->d->free(f->d, f->x);
    f->d->stream_free(f->d, f->a);
    f->d->stream_free(f->d, f->b);
    assert_true(f->d->alloc_bytes == 0 && f->d->host_bytes == 0);
    f->d->close(f->d);
}

static void sync_stream(struct far *f, struct dev_stream *s)
{
    struct err err = {0};
    assert_int_equal(f->d->stream_sync(f->d, s, &err), 0);
}

static void test_far_copies(void **state)
{
    (void)state;
    struct far f = far_open(1);
    double in[3] = {1, 2, 3}, out[3] = {4, 5, 6};
    f.d->copy(f.d, f.x, in, 8, DEV_H2D, f.a);
    f.d->copy(f.d, out, f.x, 24, DEV_D2H, f.a);
    in[0] = 7; /* read when the copy runs */
    assert_true(isnan(out[0]) && isnan(out[1]) && isnan(out[2]));
    sync_stream(&f, f.a);
    assert_true(out[0] == 7 && isnan(out[1])); /* fresh memory is poison */
    f.d->fill(f.d, f.x + 1, 0, 16, f.a);
    f.d->copy_2d(f.d, out, 16, f.x, 8, 8, 2, DEV_D2H, f.a);
    sync_stream(&f, f.a);
    assert_true(out[0] == 7 && out[2] == 0);
    far_close(&f);
}

static void test_far_memory(void **state)
{
    (void)state;
    static const int64_t wrong[] = {-1, INT64_MAX, INT64_C(1) << 36};
    struct far f = far_open(1);
    struct err err = {0};
    void *p, *q, *none = &err;
    assert_int_equal(f.d->alloc(f.d, "p", 5000, &p, &err), 0);
    assert_int_equal(f.d->alloc(f.d, "q", INT64_C(1) << 24, &q, &err), 0);
    f.d->free(f.d, q);
    assert_int_equal(f.d->alloc_bytes, 5120 + 256);
    assert_int_equal(f.d->peak_bytes, 5120 + 256 + (INT64_C(1) << 24));
    f.d->free(f.d, p);
    assert_int_equal(f.d->alloc(f.d, "q", 4000, &q, &err), 0);
    assert_ptr_equal(p, q); /* the gap is used again */
    for (int i = 0; i < LEN(wrong); i++) {
        assert_true(f.d->alloc(f.d, "activations", wrong[i], &none, &err) < 0);
        assert_non_null(strstr(err.text, "activations"));
        assert_ptr_equal(none, &err);
    }
    f.d->free(f.d, q);
    assert_int_equal(f.d->alloc_host(f.d, "pinned", 8, &p, &err), 0);
    assert_true(isnan(*(double *)p));
    assert_true(f.d->alloc_bytes == 256 && f.d->host_bytes == 256);
    f.d->free_host(f.d, p);
    assert_true(f.d->host_bytes == 0 && f.d->host_peak_bytes == 256);
    far_close(&f);
}

/* Stream b overwrites what a has written and reads it back; returns what it read. */
static double race(uint64_t seed, bool waits)
{
    struct far f = far_open(seed);
    double one = 1, out;
    f.d->copy(f.d, f.x, &one, 8, DEV_H2D, f.a);
    f.d->event_record(f.d, f.e, f.a);
    if (waits)
        f.d->event_wait(f.d, f.b, f.e);
    f.d->copy(f.d, &out, f.x, 8, DEV_D2H, f.b);
    sync_stream(&f, f.b);
    far_close(&f);
    return out;
}

/* A missing wait shows in some of the orders, and a wait holds in all of them. */
static void test_far_order(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        wrong += isnan(race(seed, false));
        assert_true(race(seed, true) == 1);
    }
    if (wrong == 0 || wrong == 64)
        fail_msg("%d of 64 orders show the missing wait", wrong);
}

/* Another stream's work stays queued in some of the orders, and has run in others. */
static void test_far_others(void **state)
{
    (void)state;
    int early = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct far f = far_open(seed);
        double out = 0, zero = 0;
        f.d->fill(f.d, f.x, 0, 8, f.b);
        f.d->copy(f.d, &out, f.x, 8, DEV_D2H, f.b);
        f.d->copy(f.d, f.x + 1, &zero, 8, DEV_H2D, f.a);
        sync_stream(&f, f.a);
        early += out == 0;
        sync_stream(&f, f.b);
        assert_true(out == 0);
        far_close(&f);
    }
    if (early == 0 || early == 64)
        fail_msg("in %d of 64 orders the other stream went on", early);
}

/* Behind an event_sync a source that was copied before the record can change; in some of the orders
 * what was queued later waits still. */
static void test_far_event_sync(void **state)
{
    (void)state;
    int late = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct far f = far_open(seed);
        double in = 1, out[2] = {0, 0};
        f.d->copy(f.d, f.x, &in, 8, DEV_H2D, f.a);
        f.d->event_record(f.d, f.e, f.a);
        f.d->copy(f.d, out, f.x, 8, DEV_D2H, f.a);
        f.d->fill(f.d, f.x + 1, 0, 8, f.b);
        f.d->copy(f.d, out + 1, f.x + 1, 8, DEV_D2H, f.b);
        f.d->event_sync(f.d, f.e);
        in = 2;
        assert_true(isnan(out[0])); /* nothing behind the record needed to run */
        late += isnan(out[1]);
        f.d->event_sync(f.d, f.e); /* a second wait finds it done */
        sync_stream(&f, f.a);
        sync_stream(&f, f.b);
        assert_true(out[0] == 1 && out[1] == 0 && f.d->syncs == 2);
        far_close(&f);
    }
    if (late == 0 || late == 64)
        fail_msg("in %d of 64 orders the other stream waited", late);
}

static bool is_set(void *args) { return **(bool **)args; }
static void set(void *args) { **(bool **)args = true; }

/* A polled call holds its own stream until it is over, and other streams go on meanwhile: here to
 * what it waits for, which nothing else asks for. */
static void test_far_poll(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct far f = far_open(seed);
        bool over = false, *at = &over;
        double out = 0;
        dev_far_queue_poll(f.a, is_set, &at, sizeof at);
        f.d->event_record(f.d, f.e, f.a);
        f.d->fill(f.d, f.x, 0, 8, f.a);
        f.d->copy(f.d, &out, f.x, 8, DEV_D2H, f.a);
        assert_false(dev_far_try(f.a)); /* nothing can end it yet */
        assert_false(dev_far_event_try(f.d, f.e));
        assert_true(isnan(out)); /* what is behind it has not run */
        for (int i = 0; i < 20; i++)
            f.d->fill(f.d, f.x + 1, 0, 8, f.b);
        dev_far_queue(f.b, set, &at, sizeof at);
        if (seed % 2)
            f.d->event_sync(f.d, f.e);
        sync_stream(&f, f.a);
        assert_true(over && out == 0 && dev_far_try(f.a) && dev_far_event_try(f.d, f.e));
        far_close(&f);
    }
}

/* Gives a wait up when it is asked for the fifth time. */
static int gives_up(void *ctx, struct err *err)
{
    int *asked = ctx;
    return ++*asked < 5 ? 0 : err_set(err, ERR_TEMP, "given up after %d", *asked);
}

/* A wait for what never ends is ended by whoever watches, with its sentence, which an event's wait
 * leaves to the next sync. Then all can go on. */
static void test_watch(void **state)
{
    (void)state;
    for (int events = 0; events < 2; events++) {
        struct far f = far_open(3);
        struct err err = {0};
        bool over = false, *at = &over;
        int asked = 0;
        dev_far_queue_poll(f.a, is_set, &at, sizeof at);
        f.d->event_record(f.d, f.e, f.a);
        assert_false(f.d->event_done(f.d, f.e));
        f.d->watch = gives_up;
        f.d->watch_ctx = &asked;
        if (events) {
            f.d->event_sync(f.d, f.e);
            over = true;
        }
        assert_int_equal(f.d->stream_sync(f.d, f.a, &err), ERR_TEMP);
        assert_string_equal(err.text, "given up after 5");
        over = true;
        sync_stream(&f, f.a);
        assert_true(f.d->event_done(f.d, f.e) && asked == 5);
        assert_true(f.d->failed); /* what was given up is not known to be right */
        far_close(&f);
    }
}

static bool no_memory;
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n) { return no_memory ? NULL : __real_realloc(p, n); }

/* An error of the device stays: a caller that ignores what one sync returns does not hide it. */
static void test_far_error(void **state)
{
    (void)state;
    struct far f = far_open(3);
    struct err err = {0};
    no_memory = true;
    f.d->fill(f.d, f.x, 0, 8, f.a);
    no_memory = false;
    for (int i = 0; i < 2; i++)
        assert_int_equal(f.d->stream_sync(f.d, i ? f.b : f.a, &err), ERR_NOMEM);
    assert_true(f.d->failed);
    far_close(&f);
}

/* An operation waits in the queue with its own arguments, and makes the CPU's bits. */
static void test_far_ops(void **state)
{
    (void)state;
    enum { N = 24 };
    struct err err = {0};
    struct compute far = {0};
    struct bench cpu = bench_open(DTYPE_F32);
    float in[2 * N * N], out[N * N], want[N * N], *x;
    for (int i = 0; i < 2 * N * N; i++)
        in[i] = (float)philox_normal_at(7, PHILOX_TEST, 1, (uint64_t)i);
    setenv("REEL_DEVICE", "far:5", true);
    if (compute_open(&far, &(struct compute_conf){.poison = true, .dtype = DTYPE_F32}, &err) < 0 ||
        far.dev->alloc(far.dev, "x", 3 * sizeof out, (void **)&x, &err) < 0)
        fail_msg("%s", err.text);
    unsetenv("REEL_DEVICE");
    struct ops_gemm g = {
        .a = tensor_of(in, DTYPE_F32, N, N), .b = tensor_of(in + N * N, DTYPE_F32, N, N),
        .c = tensor_of(want, DTYPE_F32, N, N), .alpha = 1};
    cpu.ops->gemm(cpu.ops, cpu.stream, &g);
    g.a.ptr = x, g.b.ptr = x + N * N, g.c.ptr = x + 2 * N * N;
    far.dev->copy(far.dev, x, in, sizeof in, DEV_H2D, far.stream);
    far.ops->gemm(far.ops, far.stream, &g);
    g.alpha = 0;
    far.dev->copy(far.dev, out, x + 2 * N * N, sizeof out, DEV_D2H, far.stream);
    assert_int_equal(far.dev->stream_sync(far.dev, far.stream, &err), 0);
    assert_memory_equal(out, want, sizeof out);
    far.dev->free(far.dev, x);
    compute_close(&far);
    bench_close(&cpu);
}

/* Calls attention and AdaLN on the far device, on one token each of two samples whose second one
 * starts at 1. The host says of the segments and of the rows that they end at `said`; it writes
 * something else there before the calls run. */
static void indexed_do(int32_t end, int32_t said_segments, int32_t said_rows)
{
    struct err err = {0};
    struct compute far = {0};
    int32_t index[] = {0, 1, end, 1, 1}, segments[] = {0, 1, said_segments, 1, 1},
            rows[] = {0, 1, said_rows}, *at;
    double *x;
    setenv("REEL_DEVICE", "far:5", true);
    if (compute_open(&far, &(struct compute_conf){.poison = true, .dtype = DTYPE_F64}, &err) < 0 ||
        far.dev->alloc(far.dev, "x", 16 * sizeof *x, (void **)&x, &err) < 0 ||
        far.dev->alloc(far.dev, "index", sizeof index, (void **)&at, &err) < 0)
        fail_msg("%s", err.text);
    unsetenv("REEL_DEVICE");
    far.dev->fill(far.dev, x, 0, 16 * sizeof *x, far.stream);
    far.dev->copy(far.dev, at, index, sizeof index, DEV_H2D, far.stream);
    far.ops->attn_fwd(far.ops, far.stream, &(struct ops_attn){
        .q = f64(x, 2, 1), .k = f64(x, 2, 1), .v = f64(x, 2, 1), .o = f64(x + 2, 2, 1),
        .lse = f64(x + 4, 2, 1), .n = 2, .q_start = at, .k_start = at, .k_len = at + 3,
        .host = {segments, segments, segments + 3, NULL}, .max_q = 2, .max_k = 1,
        .heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1});
    far.ops->adaln_fwd(far.ops, far.stream, &(struct ops_adaln){
        .sample = at, .row_start = at, .host_row_start = rows, .n = 2, .x = f64(x, 2, 1),
        .y = f64(x + 6, 2, 1), .stats = f64(x + 8, 2, 2), .eps = 1});
    segments[2] = rows[2] = 7;
    assert_int_equal(far.dev->stream_sync(far.dev, far.stream, &err), 0);
    far.dev->free(far.dev, x);
    far.dev->free(far.dev, at);
    compute_close(&far);
}

/* What the host says of device memory is what was there at the call. */
static void test_far_index(void **state)
{
    (void)state;
    indexed_do(2, 2, 2);
}

static void test_device_name(void **state)
{
    (void)state;
    static const char *const names[] = {"gpu", "far", "far:", "far:x", ""};
    for (int i = 0; i < LEN(names); i++) {
        struct compute c = {0};
        struct err err = {0};
        setenv("REEL_DEVICE", names[i], true);
        assert_int_equal(compute_open(&c, &(struct compute_conf){.poison = true, .dtype = DTYPE_F32}, &err), ERR_USAGE);
        assert_non_null(strstr(err.text, "REEL_DEVICE"));
        unsetenv("REEL_DEVICE");
        compute_close(&c);
    }
}

/* ---- how much there is ---- */

static void file_put(const char *root, const char *name, const char *text)
{
    char path[600], *end;
    struct err err = {0};
    snprintf(path, sizeof path, "%s/%s", root, name);
    end = strrchr(path, '/');
    *end = 0;
    assert_int_equal(file_mkdirs(path, &err), 0);
    *end = '/';
    assert_int_equal(file_publish(path, text, strlen(text), &err), 0);
}

/* Machines as they were found: what the groups of a job leave counts, up to the root. */
static void test_host_memory(void **state)
{
    (void)state;
    static const struct {
        const char *cgroup, *at, *max, *current, *stat;
        int64_t free_bytes, total_bytes;
    } cases[] = {
        {"0::/job/step", "none", "1", "0", "", 3000 << 10, 8000 << 10},
        {"0::/job/step", "job/step", "max", "4096", "", 3000 << 10, 8000 << 10},
        {"0::/job/step", "job/step", "1048576", "4096", "anon 1", 1044480, 1 << 20},
        {"0::/job/step", "job", "1048576", "8192", "x 1\ninactive_file 4096\n", 1044480, 1 << 20},
        {"0::/job/step", ".", "1048576", "2097152", "", 0, 1 << 20},
        {"0::/", ".", "1048576", "0", "", 1 << 20, 1 << 20},
        {"4:memory:/x\n0::/job\n", "job", "4096", "1", "", 4095, 4096},
        {"2:memory:/job", "job", "4096", "1", "", 3000 << 10, 8000 << 10},
        {"0::/elsewhere", ".", "4096", "0", "", 4096, 4096},
    };
    struct host_memory m;
    struct err err = {0};
    for (int i = 0; i < LEN(cases); i++) {
        char name[32], file[64];
        snprintf(name, sizeof name, "machine-%d", i);
        const char *root = in_scratch(name);
        file_put(root, "proc/meminfo",
                 "MemTotal:        8000 kB\nMemFree: 7 kB\nMemAvailable:    3000 kB\n");
        file_put(root, "proc/self/cgroup", cases[i].cgroup);
        const char *const files[][2] = {{"max", cases[i].max}, {"current", cases[i].current},
                                        {"stat", cases[i].stat}};
        for (int k = 0; k < 3; k++) {
            snprintf(file, sizeof file, "sys/fs/cgroup/%s/memory.%s", cases[i].at, files[k][0]);
            file_put(root, file, files[k][1]);
        }
        assert_int_equal(host_memory_read(root, &m, &err), 0);
        if (m.free_bytes != cases[i].free_bytes || m.total_bytes != cases[i].total_bytes)
            fail_msg("machine %d: %lld of %lld bytes", i, (long long)m.free_bytes,
                     (long long)m.total_bytes);
    }
    assert_int_equal(host_memory_read(in_scratch("nothing"), &m, &err), ERR_ENV);
    assert_non_null(strstr(err.text, "nothing/proc/meminfo"));
}

/* The CPU's memory is this process's share of the host, its limit of addresses included; the far
 * device's shrinks by what is taken. */
static void test_memory_left(void **state)
{
    (void)state;
    struct err err = {0};
    struct dev *d;
    struct far f;
    int64_t left, all, before;
    void *p;
    assert_int_equal(dev_cpu_open(false, &d, &err), 0);
    assert_int_equal(d->memory(d, &left, &all, &err), 0);
    assert_true(left > 0 && left <= all);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* these reserve more */
    struct rlimit old, less;
    getrlimit(RLIMIT_AS, &old);
    less = (struct rlimit){(rlim_t)all / 2, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    int rc = d->memory(d, &left, &before, &err);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_true(rc == 0 && before == all / 2 && left < before);
#endif
    d->close(d);
    f = far_open(1);
    assert_int_equal(f.d->memory(f.d, &before, &all, &err), 0);
    assert_int_equal(f.d->alloc(f.d, "p", 1 << 20, &p, &err), 0);
    assert_int_equal(f.d->memory(f.d, &left, &all, &err), 0);
    assert_true(left < all && before - left >= 1 << 20 && before - left < 2 << 20);
    f.d->free(f.d, p);
    far_close(&f);
}

/* ---- what ends the program ---- */

static void *thread_sync(void *ctx)
{
    struct far *f = ctx;
    struct err err;
    f->d->stream_sync(f->d, f->a, &err);
    return NULL;
}

enum misuse {
    WAIT_UNRECORDED, WAIT_UNRECORDED_FAR, SYNC_UNRECORDED, SYNC_UNRECORDED_FAR, HOST_READ,
    HOST_WRITE, READ_AFTER_SYNC, WRONG_KIND, OTHER_THREAD, ELAPSED_EARLY, OTHER_SEGMENTS, OTHER_ROWS
};

static void misuse_do(enum misuse how)
{
    struct far f = far_open(1);
    struct bench b = bench_open(DTYPE_F32);
    struct dev_event *e;
    struct err err;
    pthread_t thread;
    b.dev->event_new(b.dev, &e, &err);
    switch (how) {
    case WAIT_UNRECORDED: b.dev->event_wait(b.dev, b.stream, e); break;
    case WAIT_UNRECORDED_FAR: f.d->event_wait(f.d, f.a, f.e); break;
    case SYNC_UNRECORDED: b.dev->event_sync(b.dev, e); break;
    case SYNC_UNRECORDED_FAR: f.d->event_sync(f.d, f.e); break;
    case HOST_READ: _exit(*(volatile double *)f.x == 0);
    case HOST_WRITE: *(volatile double *)f.x = 0; break;
    case READ_AFTER_SYNC:
        f.d->fill(f.d, f.x, 0, 8, f.a);
        sync_stream(&f, f.a);
        _exit(*(volatile double *)f.x == 0);
    case WRONG_KIND: f.d->copy(f.d, f.x, f.x + 1, 8, DEV_H2D, f.a); break;
    case OTHER_THREAD:
        pthread_create(&thread, NULL, thread_sync, &f);
        pthread_join(thread, NULL);
        break;
    case OTHER_SEGMENTS: indexed_do(2, 3, 2); _exit(0);
    case OTHER_ROWS: indexed_do(2, 2, 3); _exit(0);
    case ELAPSED_EARLY:
        f.d->event_record(f.d, f.e, f.a);
        f.d->event_elapsed_s(f.d, f.e, f.e);
        break;
    }
}

/* Takes all of the processor's protection keys, so that the far device gets none. */
static void keys_exhaust(void)
{
    while (pkey_alloc(0, 0) >= 0)
        ;
}

/* Does something wrong in a process of its own, and returns the signal that ended it. */
static int misuse_signal(enum misuse how, bool keys)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (!keys)
            keys_exhaust();
        signal(SIGABRT, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        misuse_do(how);
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* A GPU would let some of these pass in silence: here they end the program, whether the far device
 * closes its memory by the processor's protection keys, where it has them, or by system calls. */
static void test_misuse(void **state)
{
    (void)state;
    static const struct { enum misuse how; int signal; } cases[] = {
        {WAIT_UNRECORDED, SIGABRT}, {WAIT_UNRECORDED_FAR, SIGABRT},
        {SYNC_UNRECORDED, SIGABRT}, {SYNC_UNRECORDED_FAR, SIGABRT}, {HOST_READ, SIGSEGV},
        {HOST_WRITE, SIGSEGV}, {READ_AFTER_SYNC, SIGSEGV}, {WRONG_KIND, SIGABRT},
        {OTHER_THREAD, SIGABRT}, {ELAPSED_EARLY, SIGABRT}, {OTHER_SEGMENTS, SIGABRT},
        {OTHER_ROWS, SIGABRT}};
    for (int i = 0; i < 2 * LEN(cases); i++)
        if (misuse_signal(cases[i / 2].how, i % 2) != cases[i / 2].signal)
            fail_msg("misuse %d did not end in signal %d, %s protection keys", cases[i / 2].how,
                     cases[i / 2].signal, i % 2 ? "with" : "without");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_too_much),
                                       cmocka_unit_test(test_copies), cmocka_unit_test(test_events),
                                       cmocka_unit_test(test_far_copies),
                                       cmocka_unit_test(test_far_memory),
                                       cmocka_unit_test(test_far_order),
                                       cmocka_unit_test(test_far_others),
                                       cmocka_unit_test(test_far_event_sync),
                                       cmocka_unit_test(test_far_poll),
                                       cmocka_unit_test(test_watch),
                                       cmocka_unit_test(test_far_error),
                                       cmocka_unit_test(test_far_ops),
                                       cmocka_unit_test(test_far_index),
                                       cmocka_unit_test_setup_teardown(
                                           test_host_memory, scratch_setup, scratch_teardown),
                                       cmocka_unit_test(test_memory_left),
                                       cmocka_unit_test(test_device_name),
                                       cmocka_unit_test(test_misuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
