/* The CUDA backend's library as it is loaded, on the shim's GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "trainer/ops/compute.h"
#include "trainer/state/init.h"

enum { ROWS = 133, COLS = 37 };

static void compute_must(struct compute *c, enum dtype dtype)
{
    struct err err = {0};
    setenv("REEL_DEVICE", "cuda:0", true);
    if (compute_open(c, &(struct compute_conf){.poison = true, .dtype = dtype}, &err) < 0)
        fail_msg("%s", err.text);
    unsetenv("REEL_DEVICE");
}

/* Column sums of numbers whose sums are exact, and one more of the same with beta. */
static void test_colsum(void **state)
{
    (void)state;
    struct compute c = {0};
    struct err err = {0};
    double x[ROWS * COLS], out[COLS], want[COLS] = {0}, *at;
    compute_must(&c, DTYPE_F64);
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = (double)(philox_at(3, PHILOX_TEST, 1, (uint64_t)i).w[0] >> 8);
        want[i % COLS] += x[i];
    }
    if (c.dev->alloc(c.dev, "x", sizeof x + sizeof out, (void **)&at, &err) < 0)
        fail_msg("%s", err.text);
    c.dev->copy(c.dev, at, x, sizeof x, DEV_H2D, c.stream);
    struct ops_colsum a = {
        .x = tensor_of(at, DTYPE_F64, ROWS, COLS),
        .out = tensor_of(at + ROWS * COLS, DTYPE_F64, 1, COLS)};
    c.ops->colsum(c.ops, c.stream, &a);
    a.beta = 2;
    c.ops->colsum(c.ops, c.stream, &a);
    c.dev->copy(c.dev, out, a.out.ptr, sizeof out, DEV_D2H, c.stream);
    if (c.dev->stream_sync(c.dev, c.stream, &err) < 0)
        fail_msg("%s", err.text);
    for (int j = 0; j < COLS; j++)
        assert_true(out[j] == 3 * want[j]);
    c.dev->free(c.dev, at);
    compute_close(&c);
}

/* Memory of the device and of the host is counted apart, and the device tells what is left. */
static void test_memory(void **state)
{
    (void)state;
    struct compute c = {0};
    struct err err = {0};
    struct dev_stream *messages;
    void *here, *there;
    int64_t before, after, total;
    compute_must(&c, DTYPE_F64);
    int64_t own = c.dev->alloc_bytes;
    assert_int_equal(c.dev->memory(c.dev, &before, &total, &err), 0);
    assert_int_equal(c.dev->alloc(c.dev, "there", 1 << 20, &there, &err), 0);
    assert_int_equal(c.dev->alloc_host(c.dev, "here", 1 << 16, &here, &err), 0);
    assert_int_equal(c.dev->memory(c.dev, &after, &total, &err), 0);
    assert_true(after <= before - (1 << 20) && before <= total);
    assert_int_equal(c.dev->alloc_bytes, own + (1 << 20));
    assert_int_equal(c.dev->host_bytes, 1 << 16);
    assert_int_equal(c.dev->stream_new(c.dev, "messages", DEV_PRIORITY_HIGH, &messages, &err), 0);
    assert_int_equal(c.dev->stream_sync(c.dev, messages, &err), 0);
    assert_int_equal(c.dev->syncs, 1);
    c.dev->stream_free(c.dev, messages);
    c.dev->free(c.dev, there);
    c.dev->free_host(c.dev, here);
    assert_int_equal(c.dev->host_bytes, 0);
    assert_int_equal(c.dev->host_peak_bytes, 1 << 16);
    compute_close(&c);
}

/* Draws a parameter from its element `first` on by an ops table, and brings it to the host. */
static void first_values(struct compute *c, const struct param *p, int64_t first, void *out)
{
    struct err err = {0};
    int64_t n = p->count - first, bytes = n * dtype_bytes(c->ops->stat);
    void *at;
    if (c->dev->alloc(c->dev, "first values", bytes, &at, &err) < 0)
        fail_msg("%s", err.text);
    struct ops_draw a = init_draw(p, 7, first, tensor_of(at, c->ops->stat, 1, n));
    c->ops->draw(c->ops, c->stream, &a);
    c->dev->copy(c->dev, out, at, bytes, DEV_D2H, c->stream);
    if (c->dev->stream_sync(c->dev, c->stream, &err) < 0)
        fail_msg("%s", err.text);
    c->dev->free(c->dev, at);
}

/* First weights that the device draws have the bits of those that the host does: every parameter of
 * a model, whole and from an odd place on. */
static void first_weights(enum dtype dtype)
{
    static double here[1 << 18], there[1 << 18];
    struct model m;
    struct param_list list;
    struct err err = {0};
    struct compute cuda = {0}, cpu = {0};
    int64_t drawn = 0;
    if (model_load("stdit-tiny", &m, &err) < 0 || params_build(&m, &list, &err) < 0 ||
        compute_open(&cpu, &(struct compute_conf){.dtype = dtype}, &err) < 0)
        fail_msg("%s", err.text);
    compute_must(&cuda, dtype);
    for (int64_t i = 0; i < list.n; i++)
        for (int64_t first = 0; first < list.items[i].count && first < 6; first += 5) {
            const struct param *p = &list.items[i];
            size_t bytes = (size_t)((p->count - first) * dtype_bytes(cpu.ops->stat));
            assert_true(bytes <= sizeof here);
            first_values(&cpu, p, first, here);
            first_values(&cuda, p, first, there);
            if (memcmp(here, there, bytes) != 0)
                fail_msg("%s from element %d on has other bits", p->name, (int)first);
            drawn += p->init == PARAM_NORMAL || p->init == PARAM_XAVIER;
        }
    assert_true(drawn > 20);
    params_release(&list);
    compute_close(&cuda);
    compute_close(&cpu);
}

static void test_first_weights(void **state)
{
    (void)state;
    first_weights(DTYPE_F64);
    first_weights(DTYPE_BF16);
}

/* Updates three spans of eight elements by one call, of which the launch of this number fails. Tells
 * whether there was such a launch. */
static bool update_launches(int number)
{
    enum { SPANS = 3, EACH = 8, N = SPANS * EACH };
    struct compute c = {0};
    struct err err = {0};
    struct block {
        struct ops_adamw_span spans[SPANS];
        struct ops_step step;
        struct ops_change change;
        double grad[N], master[N], m[N], v[N];
    } here = {.step = {.lr = 1e-3, .bias1 = 0.1, .bias2 = 0.05, .grad_scale = 1, .update = 1}}, *at;
    char fault[32];
    for (int i = 0; i < SPANS; i++)
        here.spans[i] = (struct ops_adamw_span){.grad = i * EACH, .master = i * EACH,
                                                .state = i * EACH, .weight = i * EACH, .n = EACH,
                                                .counted = EACH, .lr_scale = 1};
    compute_must(&c, DTYPE_F64);
    assert_int_equal(c.dev->alloc(c.dev, "update", sizeof here, (void **)&at, &err), 0);
    c.dev->copy(c.dev, at, &here, sizeof here, DEV_H2D, c.stream);
    struct ops_adamw a = {
        .spans = at->spans, .host_spans = here.spans, .n = SPANS, .step = &at->step,
        .change = &at->change, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
        .grad = tensor_of(at->grad, DTYPE_F64, 1, N), .m = tensor_of(at->m, DTYPE_F64, 1, N),
        .v = tensor_of(at->v, DTYPE_F64, 1, N), .master = tensor_of(at->master, DTYPE_F64, 1, N)};
    snprintf(fault, sizeof fault, "launch:%d:1", number);
    setenv("REEL_SHIM_FAIL", fault, true);
    c.ops->adamw(c.ops, c.stream, &a);
    unsetenv("REEL_SHIM_FAIL");
    int rc = c.dev->stream_sync(c.dev, c.stream, &err);
    c.dev->free(c.dev, at);
    compute_close(&c);
    return rc < 0;
}

/* One launch updates all spans of a unit, and a second one adds up what they changed. */
static void test_update_launches(void **state)
{
    (void)state;
    assert_true(update_launches(1) && update_launches(2) && !update_launches(3));
}

/* Names the library of the shim, which is built beside the folder of this program. */
static void library_name(const char *self)
{
    char path[4096];
    const char *slash = strrchr(self, '/');
    snprintf(path, sizeof path, "%.*s/../shim/libreel-cuda.so", slash ? (int)(slash - self) : 1,
             slash ? self : ".");
    setenv("REEL_CUDA_LIBRARY", path, false);
}

int main(int argc, char **argv)
{
    (void)argc;
    library_name(argv[0]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_colsum),
                                       cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_update_launches),
                                       cmocka_unit_test(test_first_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
