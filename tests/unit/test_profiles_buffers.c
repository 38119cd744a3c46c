/* The buffer list of a DiT's micro-batch: the counts it promises, what recompute saves, and what is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "profiles/buffers.h"

static struct model load(const char *name)
{
    struct model m;
    struct err err = {0};
    if (model_load(name, &m, &err) < 0)
        fail_msg("%s", err.text);
    return m;
}

static struct buffer_list plan_of(const struct model *m, int64_t tokens, int64_t samples,
                                  enum recompute recompute)
{
    struct layout l = layout_default();
    l.recompute = recompute;
    struct buffer_spec spec = {.model = m, .act = DTYPE_BF16, .stat = DTYPE_F32, .tokens = tokens,
                               .samples = samples, .text_tokens = samples * m->text_len,
                               .layout = &l};
    struct buffer_list list = {0};
    struct err err = {0};
    if (buffers_dit(&spec, &list, &err) < 0)
        fail_msg("%s", err.text);
    return list;
}

/* A plain MLP of 4 D and as many kv heads as heads: 16 vectors of width D a token and block are
 * saved in `act`. */
static void test_sixteen_vectors(void **state)
{
    (void)state;
    struct model m = load("dit-7b");
    struct buffer_list list = plan_of(&m, 8192, 1, RECOMPUTE_NONE);
    int64_t per_layer = 0;
    for (int i = 0; i < DIT_BUFFERS; i++) {
        const struct buffer *b = &list.items[i];
        if (b->category == BUFFER_SAVED && b->per > 0 && b->rows == 8192 && b->dtype == DTYPE_BF16)
            per_layer += b->bytes / m.layers;
    }
    assert_int_equal(per_layer, 16 * 8192 * m.hidden * 2);
}

/* Two bytes more for each number of the residual stream and of its gradient. */
static void test_wide_residual(void **state)
{
    enum { TOKENS = 512 };
    struct model m = load("dit-s");
    struct layout l;
    struct err err = {0};
    int64_t bytes[2];
    (void)state;
    assert_int_equal(layout_parse("pp=2", &l, &err), 0);
    for (int wide = 0; wide < 2; wide++) {
        struct buffer_spec spec = {.model = &m, .act = DTYPE_BF16, .stat = DTYPE_F32,
                                   .tokens = TOKENS, .samples = 1, .layout = &l,
                                   .residual_wide = wide};
        struct buffer_list list = {0};
        assert_int_equal(buffers_dit(&spec, &list, &err), 0);
        bytes[wide] = list.total;
    }
    /* of each of a stage's layers its input and the residual before its second and third sub-block;
     * final input, gradient, gradient on its way */
    assert_int_equal(bytes[1] - bytes[0], (3 * m.layers / 2 + 3) * TOKENS * m.hidden * 2);
}

static void test_recompute(void **state)
{
    (void)state;
    struct model m = load("dit-7b");
    struct buffer_list none = plan_of(&m, 8192, 1, RECOMPUTE_NONE),
                       full = plan_of(&m, 8192, 1, RECOMPUTE_FULL);
    int64_t saved_once = 0;
    for (int i = 0; i < DIT_BUFFERS; i++) {
        assert_true(full.items[i].rows == none.items[i].rows &&
                    full.items[i].cols == none.items[i].cols);
        if (full.items[i].count != none.items[i].count) {
            assert_int_equal(full.items[i].count, full.items[i].per);
            saved_once += full.items[i].bytes;
        }
    }
    assert_int_equal(none.total - full.total, (m.layers - 1) * saved_once);
    /* a block's input is what it is made again from */
    assert_int_equal(full.items[DIT_X].count, m.layers);
}

/* Each copy aligned; buffers one behind the other; categories add up; linear in tokens. */
static void test_arena(void **state)
{
    (void)state;
    static const char *const names[] = {
        "dit-tiny",           "dit-s",    "dit-7b+none", "dit-7b+lora_fused",
        "dit-7b+lora_single", "stdit-xl", "moviegen-1b"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct model m = load(names[k]);
        struct buffer_list list = plan_of(&m, 777, 3, RECOMPUTE_NONE);
        int64_t at = 0, sum = 0;
        for (int64_t i = 0; i < list.n; i++) {
            const struct buffer *b = &list.items[i];
            assert_int_equal(b->offset, at);
            assert_int_equal(b->offset % BUFFER_ALIGN_BYTES, 0);
            assert_int_equal(buffer_stride_bytes(b) % BUFFER_ALIGN_BYTES, 0);
            if (b->count > 0)
                assert_true(buffer_stride_bytes(b) >= b->rows * b->cols * dtype_bytes(b->dtype));
            at += b->bytes;
        }
        assert_int_equal(at, list.total);
        for (int c = 0; c < BUFFER_CATEGORIES; c++)
            sum += buffer_list_bytes(&list, (enum buffer_category)c);
        assert_int_equal(sum, list.total);
    }
}

/* Most tokens of dealt segments, against dealing: every sample of up to 8 frames of up to 9 tokens,
 * one and two of them, to 1 .. 8 ranks. The bound is met by some. */
static int64_t dealt_to(int64_t rank, int64_t cp, int64_t segments, int64_t length)
{
    int64_t n = 0;
    for (int64_t k = 0; k < segments; k++)
        n += k * cp / segments == rank ? length : 0;
    return n;
}

static void test_dealt(void **state)
{
    (void)state;
    struct model m = load("stdit-xl"), none = load("dit-tiny");
    struct layout l = layout_default();
    int64_t met = 0;
    for (l.cp = 1; l.cp <= 8; l.cp++)
        for (int64_t t = 1; t <= 8; t++)
            for (int64_t frame = 1; frame <= 9; frame++)
                for (int64_t samples = 1; samples <= 2; samples++) {
                    struct buffer_spec spec = {.model = &m, .tokens = samples * t * frame,
                                               .samples = samples, .layout = &l};
                    int64_t unknown = buffers_dealt_tokens(&spec), most = 0;
                    spec.segment_tokens = t > frame ? t : frame;
                    int64_t known = buffers_dealt_tokens(&spec);
                    for (int64_t r = 0; r < l.cp; r++) {
                        int64_t spatial = samples * dealt_to(r, l.cp, t, frame),
                                temporal = samples * dealt_to(r, l.cp, frame, t);
                        most = spatial > most ? spatial : most;
                        most = temporal > most ? temporal : most;
                    }
                    assert_true(most <= known && known <= unknown && unknown == spec.tokens);
                    met += l.cp > 1 && most == known;
                }
    assert_true(met > 100);
    assert_int_equal(buffers_dealt_tokens(&(struct buffer_spec){
                         .model = &none, .tokens = 64, .samples = 1, .layout = &l}),
                     0);
}

static void test_refused(void **state)
{
    (void)state;
    struct model m = load("dit-tiny"), gpt = m;
    gpt.family = MODEL_GPT;
    const struct {
        struct buffer_spec spec;
        int rc;
        const char *word;
    } cases[] = {
        {{&gpt, DTYPE_F32, DTYPE_F32, 8, 1, 8, NULL, 1}, ERR_INPUT, "gpt"},
        {{&m, DTYPE_F32, DTYPE_F32, INT64_C(1) << 31, 1, 8, NULL, 1}, ERR_LIMIT,
         "2147483648 tokens"},
        {{&m, DTYPE_F32, DTYPE_F32, 8, INT64_C(1) << 40, 8, NULL, 1}, ERR_LIMIT, "samples"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer_list list = {0};
        struct err err = {0};
        assert_int_equal(buffers_dit(&cases[i].spec, &list, &err), cases[i].rc);
        assert_non_null(strstr(err.text, cases[i].word));
    }
    struct buffer_list list = {0};
    struct err err = {0};
    assert_int_equal(buffer_list_add(&list, "moments", BUFFER_OPTIM, DTYPE_F64, 2, INT64_C(1) << 31,
                                     INT64_C(1) << 31, &err),
                     ERR_LIMIT);
    assert_non_null(strstr(err.text, "moments"));
    assert_true(list.n == 0 && list.total == 0);
    for (int i = 0; i < BUFFER_LIST_MAX; i++)
        assert_int_equal(buffer_list_add(&list, "x", BUFFER_COMM, DTYPE_F32, 1, 1, 1, &err), 0);
    assert_int_equal(buffer_list_add(&list, "one more", BUFFER_COMM, DTYPE_F32, 1, 1, 1, &err),
                     ERR_LIMIT);
}

/* Bytes by category, counted by hand; every buffer is rounded up to 256. */
#define UNITS .unit = 600, .trained_unit = 504
enum { SWAP = BUFFER_SWAP_ELEMENTS * 4 };
static void test_state(void **state)
{
    (void)state;
    static const struct {
        struct buffer_state spec;
        int64_t weight, grad, optim, ema, comm, work;
    } rows[] = {
        /* 8064 bytes */
        {{1008, 1008, 1, 0, false, DTYPE_F64, DTYPE_F64}, 8192, 8192, 2 * 8192, 0, 0, 0},
        /* alone, zero spares nothing */
        {{1008, 1008, 1, 1, true, DTYPE_F32, DTYPE_F32}, 4096, 4096, 2 * 4096, 4096, 0, SWAP},
        /* units of 504 elements, pieces of 168: 1344 bytes of each of two others are on the way, of
         * two units with zero 2 and 3, and sums */
        {{1008, 1008, 3, 0, true, DTYPE_F64, DTYPE_F64, UNITS}, 8192, 8192, 2 * 8192, 8192,
         2 * 1344 + 128, 2 * SWAP},
        {{1008, 1008, 3, 1, true, DTYPE_F64, DTYPE_F64, UNITS}, 8192, 8192, 2 * 2816, 2816,
         2 * 1344 + 128, 2 * SWAP},
        {{1008, 1008, 3, 2, true, DTYPE_F64, DTYPE_F64, UNITS}, 8192, 2816, 2 * 2816, 2816,
         4 * 1344 + 2 * 1536, 2 * SWAP + 2 * 4096},
        {{1008, 1008, 3, 3, true, DTYPE_F64, DTYPE_F64, UNITS}, 2816, 2816, 2 * 2816, 2816,
         4 * 1344 + 2 * 1536, 2 * SWAP + 2 * 4096 + 2 * 4864},
        /* and 800 bytes to pack partial sums over two stages, half of them the other's, with a
         * quarter of 3000 bytes of each of three others over tp */
        {{1008, 1008, 1, 0, false, DTYPE_F64, DTYPE_F64, .tp = 4, .kv = 1, .pp = 2,
          .pieces = {[PIECE_SUM_PP] = 100}, .tp_bytes = 3000},
         8192, 8192, 2 * 8192, 0, 1024 + 512 + 2304, 0},
        /* two replicas: half a unit of 4032 on the way */
        {{1008, 1008, 1, 1, false, DTYPE_F64, DTYPE_F64, 2, UNITS}, 8192, 8192, 2 * 8192, 0, 2048,
         0},
        /* a third is trained */
        {{1008, 336, 3, 0, true, DTYPE_F64, DTYPE_F64, .unit = 336, .trained_unit = 336}, 8192,
         2816, 2 * 2816, 2816, 1792, 2 * SWAP},
        {{1008, 0, 3, 1, true, DTYPE_F64, DTYPE_F64, .unit = 336}, 8192, 0, 0, 0, 0, 2 * SWAP},
        {{1008, 1008, 1, 0, false, DTYPE_F32, DTYPE_F32, .moments_bf16 = true}, 4096, 4096,
         2 * 2048, 0, 0, 0},
        {{1 << 20, 1 << 20, 2, 1, false, DTYPE_F32, DTYPE_F32, .unit = 1 << 20,
          .trained_unit = 1 << 20},
         4 << 20, 4 << 20, 2 * (2 << 20), 0, BUFFER_EXCHANGE_BYTES, 0},
        /* weights of two bytes, and masters like m and v */
        {{1008, 1008, 1, 0, false, DTYPE_BF16, DTYPE_F32}, 2048, 4096, 3 * 4096, 0, 0, 0},
        {{1008, 336, 3, 1, true, DTYPE_BF16, DTYPE_F32, .unit = 336, .trained_unit = 336}, 2048,
         1536, 3 * 512, 512, 1024, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buffer_list list = {0};
        struct err err = {0};
        assert_int_equal(buffers_state(&rows[i].spec, &list, &err), 0);
        assert_int_equal(buffer_list_bytes(&list, BUFFER_WEIGHT), rows[i].weight);
        assert_int_equal(buffer_list_bytes(&list, BUFFER_GRAD), rows[i].grad);
        assert_int_equal(buffer_list_bytes(&list, BUFFER_OPTIM), rows[i].optim);
        assert_int_equal(buffer_list_bytes(&list, BUFFER_EMA), rows[i].ema);
        assert_int_equal(buffer_list_bytes(&list, BUFFER_COMM), rows[i].comm);
        assert_int_equal(buffer_list_bytes(&list, BUFFER_WORK), rows[i].work);
    }
    for (int64_t ranks = 1; ranks < 64; ranks *= 2)
        assert_true(buffers_process_bytes(ranks) < buffers_process_bytes(2 * ranks));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sixteen_vectors), cmocka_unit_test(test_wide_residual),
        cmocka_unit_test(test_recompute),       cmocka_unit_test(test_arena),
        cmocka_unit_test(test_state),           cmocka_unit_test(test_dealt),
        cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
