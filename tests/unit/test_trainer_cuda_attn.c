/* Attention by cuDNN: which calls are its, in which form; which segments are left to our own
 * kernels; and what becomes of plans and errors. Its stand-in computes (tests/shim/cudnn.h); what it
 * computes is held by the operations' cases. */
#include <dlfcn.h>
#include <math.h>

#include "tests/shim/cudnn.h"
#include "tests/lib/trainer_cuda.h"
#include "trainer/cuda/attn_dnn.h"

enum { SEGMENTS = 4, HEADS = 4, D = 16 };

/* ---- what is taken ---- */

/* A call of four segments, and one thing that is otherwise. */
struct wish {
    const char *name;
    enum ops_attn_own forward, backward;
    int32_t packed; /* 1: forward, 2: backward */
    int32_t q[SEGMENTS], k[SEGMENTS], gap;
    int64_t d, kv_heads;
    enum dtype q_type, o_type, dq_type, d_o_type;
    int64_t before; /* bytes of a tensor behind an aligned place */
    bool back;      /* keys stand in the other order */
    bool ones_first; /* segments with one key have theirs before all others, as dropped captions */
};
#define EQUAL {130, 130, 130, 130}, {80, 80, 80, 80}
#define MIXED {130, 1, 7, 300}, {130, 5, 0, 64}
#define TYPES DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16

static const struct wish wishes[] = {
    {"equal", 0, 0, 0, EQUAL, 0, 16, 4, TYPES, 0, false},
    {"equal, grouped", 0, 0, 0, EQUAL, 0, 128, 2, TYPES, 0, false},
    {"equal, keys apart", 0, 0, 0, EQUAL, 5, 16, 4, TYPES, 0, false},
    {"64 keys", 0, 0, 0, {130, 130, 130, 130}, {64, 64, 64, 64}, 0, 16, 4, TYPES, 0, false},
    {"192 keys", 0, 0, 0, {9, 9, 9, 9}, {192, 192, 192, 192}, 0, 16, 4, TYPES, 0, false},
    {"mixed", 0, 0, 3, MIXED, 0, 16, 4, TYPES, 0, false},
    {"mixed, keys apart", 0, OPS_ATTN_ORDER, 1, MIXED, 5, 16, 4, TYPES, 0, false},
    {"mixed, keys go back", OPS_ATTN_ORDER, OPS_ATTN_ORDER, 0, MIXED, 0, 16, 4, TYPES, 0, true},
    {"dropped captions between", 0, 0, 3, {130, 130, 7, 300}, {80, 1, 5, 64}, 0, 16, 4, TYPES, 0,
     false, true},
    {"all small", OPS_ATTN_SEGMENTS, OPS_ATTN_SEGMENTS, 0, {64, 64, 1, 2}, {64, 3, 64, 2}, 0, 16, 4, TYPES,
     0, false},
    {"one query or one key each", OPS_ATTN_SEGMENTS, OPS_ATTN_SEGMENTS, 0, {1, 900, 1, 1}, {900, 1, 1, 0}, 0,
     16, 4, TYPES, 0, false},
    {"no keys", OPS_ATTN_SEGMENTS, OPS_ATTN_SEGMENTS, 0, {130, 130, 1, 2}, {0, 0, 0, 0}, 0, 16, 4, TYPES, 0,
     false},
    {"head dim 12", OPS_ATTN_HEAD_DIM, OPS_ATTN_HEAD_DIM, 0, EQUAL, 0, 12, 4, TYPES, 0, false},
    {"head dim 264", OPS_ATTN_HEAD_DIM, OPS_ATTN_HEAD_DIM, 0, EQUAL, 0, 264, 4, TYPES, 0, false},
    {"rows between alignments", OPS_ATTN_ALIGNMENT, OPS_ATTN_ALIGNMENT, 0, EQUAL, 0, 16, 4, TYPES, 2, false},
    {"f32 q", OPS_ATTN_TYPES, OPS_ATTN_TYPES, 0, EQUAL, 0, 16, 4, DTYPE_F32, DTYPE_BF16, DTYPE_BF16,
     DTYPE_BF16, 0, false},
    {"wide o", 0, OPS_ATTN_TYPES, 0, EQUAL, 0, 16, 4, DTYPE_BF16, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, 0,
     false},
    {"wide dq", 0, 0, 0, EQUAL, 0, 16, 4, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, DTYPE_BF16, 0, false},
    {"f64 dq", 0, OPS_ATTN_TYPES, 0, EQUAL, 0, 16, 4, DTYPE_BF16, DTYPE_BF16, DTYPE_F64, DTYPE_BF16, 0,
     false},
    {"wide dO", 0, OPS_ATTN_TYPES, 0, EQUAL, 0, 16, 4, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, 0,
     false},
};

struct places { int32_t q_start[SEGMENTS + 1], k_start[SEGMENTS], keys; };

static struct places places_of(const struct wish *w)
{
    struct places p = {.keys = w->gap};
    for (int i = 0; i < SEGMENTS; i++)
        p.q_start[i + 1] = p.q_start[i] + w->q[i];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < SEGMENTS; i++) {
            int at = w->back ? SEGMENTS - 1 - i : i;
            if ((w->ones_first && w->k[at] == 1) != (pass == 0))
                continue;
            p.k_start[at] = p.keys;
            p.keys += w->k[at] + w->gap;
        }
    return p;
}

static struct ops_attn call_of(const struct wish *w, const struct places *p)
{
    char *at = (char *)(UINT64_C(1) << 40);
    int64_t rows = p->q_start[SEGMENTS], wq = HEADS * w->d, wk = w->kv_heads * w->d;
    struct tensor q = tensor_of(at + w->before, w->q_type, rows, wq),
                  k = tensor_of(at, DTYPE_BF16, p->keys, wk),
                  stat = tensor_of(at, DTYPE_F32, rows, HEADS);
    return (struct ops_attn){
        .q = q, .k = k, .v = k, .o = tensor_of(at, w->o_type, rows, wq), .lse = stat,
        .n = SEGMENTS, .host = {.q_start = p->q_start, .k_start = p->k_start, .k_len = w->k},
        .heads = HEADS, .kv_heads = w->kv_heads, .head_dim = w->d, .scale = 1,
        .d_o = tensor_of(at, w->d_o_type, rows, wq), .dq = tensor_of(at, w->dq_type, rows, wq),
        .dk = k, .dv = k, .delta = stat};
}

static void test_takes(void **state)
{
    (void)state;
    for (int i = 0; i < LEN(wishes); i++)
        for (int back = 0; back < 2; back++) {
            const struct wish *w = &wishes[i];
            struct places p = places_of(w);
            struct ops_attn a = call_of(w, &p);
            struct attn_class c = {0};
            enum ops_attn_own got = attn_dnn_takes(&a, back, false, &c);
            if (got != (back ? w->backward : w->forward))
                fail_msg("%s, %s: refusal %d", w->name, back ? "backward" : "forward", got);
            if (got == OPS_ATTN_TAKEN && c.packed != (w->packed >> back & 1))
                fail_msg("%s, %s: packed is %d", w->name, back ? "backward" : "forward", c.packed);
        }
}

static void test_takes_deterministic(void **state)
{
    (void)state;
    struct places p = places_of(&wishes[0]);
    struct ops_attn a = call_of(&wishes[0], &p);
    struct attn_class c;
    assert_int_equal(attn_dnn_takes(&a, true, true, &c), OPS_ATTN_TAKEN);
    assert_true(c.deterministic);
    assert_false(attn_class_has(&c, ATTN_DQ_SUM));
    a.accumulate_dq = true; /* by way of f32 */
    assert_int_equal(attn_dnn_takes(&a, true, true, &c), OPS_ATTN_ORDER_OF_DQ);
    assert_int_equal(attn_dnn_takes(&a, true, false, &c), OPS_ATTN_TAKEN);
    assert_int_equal(c.dq, DTYPE_F32);
    assert_int_equal(attn_dnn_takes(&a, false, true, &c), OPS_ATTN_TAKEN);
    a.n = 0;
    assert_int_equal(attn_dnn_takes(&a, true, false, &c), OPS_ATTN_SEGMENTS);
}

static struct attn_class class_of_lengths(int32_t q, int32_t k)
{
    struct wish w = wishes[5];
    struct attn_class c;
    w.q[0] = q, w.k[0] = k;
    struct places p = places_of(&w);
    struct ops_attn a = call_of(&w, &p);
    assert_int_equal(attn_dnn_takes(&a, true, false, &c), OPS_ATTN_TAKEN);
    return c;
}

/* A pack with other lengths is mostly of the same class, and never of one that it does not fit. */
static void test_few_classes(void **state)
{
    (void)state;
    struct attn_class last = {0};
    int classes = 0;
    for (int32_t n = 301; n < 100000; n += 97) {
        struct attn_class c = class_of_lengths(n, n + 7);
        assert_true(c.n == SEGMENTS && c.q >= n && c.k >= n + 7);
        assert_true((double)c.q <= 1.25 * n + 128);
        classes += memcmp(&c, &last, sizeof c) != 0;
        last = c;
    }
    assert_in_range(classes, 20, 80);
}

/* ---- on the stand-in ---- */

static struct shim_attention counted(void)
{
    void *library = dlopen(getenv("REEL_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD), *at;
    struct shim_attention (*ask)(void);
    assert_non_null(library);
    at = dlsym(library, "shim_attention");
    memcpy(&ask, &at, sizeof ask);
    struct shim_attention n = ask();
    dlclose(library);
    return n;
}

/* A call whose tensors are on the device. */
struct stage {
    struct pair q, k, v, o, d_o, dq, dk, dv, lse, delta;
    struct places places;
    void *device;
    struct ops_attn a;
};

static struct pair numbers(const struct bench *b, int64_t rows, int64_t cols, uint64_t id)
{
    return pair_new(b, DTYPE_BF16, rows, cols, cols, 0, id);
}

static void stage_open(const struct bench *b, const struct wish *w, struct stage *s)
{
    struct err err = {0};
    int64_t wide = HEADS * D;
    s->places = places_of(w);
    s->a = call_of(w, &s->places);
    int64_t rows = s->places.q_start[SEGMENTS], keys = s->places.keys;
    int32_t all[3 * SEGMENTS + 1];
    struct pair *of_q[] = {&s->q, &s->o, &s->d_o, &s->dq}, *of_k[] = {&s->k, &s->v, &s->dk, &s->dv};
    for (uint64_t i = 0; i < 4; i++)
        *of_q[i] = numbers(b, rows, wide, i), *of_k[i] = numbers(b, keys, wide, 4 + i);
    s->lse = pair_new(b, DTYPE_F32, rows, HEADS, HEADS, 0, 9);
    s->delta = pair_new(b, DTYPE_F32, rows, HEADS, HEADS, 0, 10);
    memcpy(all, s->places.q_start, sizeof s->places.q_start);
    memcpy(all + SEGMENTS + 1, s->places.k_start, sizeof s->places.k_start);
    memcpy(all + 2 * SEGMENTS + 1, w->k, sizeof w->k);
    assert_int_equal(b->dev->alloc(b->dev, "segments", sizeof all, &s->device, &err), 0);
    bench_put(b, s->device, all, sizeof all);
    s->a.q = s->q.on, s->a.k = s->k.on, s->a.v = s->v.on, s->a.o = s->o.on, s->a.lse = s->lse.on;
    s->a.d_o = s->d_o.on, s->a.dq = s->dq.on, s->a.dk = s->dk.on, s->a.dv = s->dv.on;
    s->a.delta = s->delta.on;
    s->a.q_start = s->device, s->a.k_start = s->a.q_start + SEGMENTS + 1;
    s->a.k_len = s->a.k_start + SEGMENTS;
    s->a.host = (struct ops_segments){s->places.q_start, s->places.k_start, w->k, NULL};
}

static void stage_close(const struct bench *b, struct stage *s)
{
    struct pair *all[] = {&s->q, &s->k, &s->v, &s->o, &s->d_o, &s->dq, &s->dk, &s->dv, &s->lse,
                          &s->delta};
    for (int i = 0; i < LEN(all); i++)
        pair_free(b, all[i]);
    b->dev->free(b->dev, s->device);
}

/* Runs forward and backward. */
static void run(const struct bench *b, const struct wish *w)
{
    struct stage s = {.device = NULL};
    struct err err = {0};
    stage_open(b, w, &s);
    b->ops->attn_fwd(b->ops, b->stream, &s.a);
    b->ops->attn_bwd(b->ops, b->stream, &s.a);
    if (b->dev->stream_sync(b->dev, b->stream, &err) < 0)
        fail_msg("%s: %s", w->name, err.text);
    stage_close(b, &s);
}

/* The library computes what it takes, in the form that was decided. */
static void test_who_computes(void **state)
{
    (void)state;
    struct bench b = cuda_bench(DTYPE_BF16);
    assert_true(b.ops->narrow_attn);
    for (int i = 0; i < 5; i++) {
        static const int which[5] = {0, 3, 5, 8, 9};
        const struct wish *w = &wishes[which[i]];
        struct shim_attention before = counted(), after;
        run(&b, w);
        after = counted();
        assert_int_equal(after.forward - before.forward, w->forward == OPS_ATTN_TAKEN);
        assert_int_equal(after.backward - before.backward, w->backward == OPS_ATTN_TAKEN);
        assert_int_equal(after.packed - before.packed, (w->packed & 1) + (w->packed >> 1));
    }
    assert_int_equal(b.dev->alloc_bytes, b.ops->workspace_bytes); /* what it takes is counted */
    bench_close(&b);
}

/* The stand-in proposes one engine: who asks for a second gets our own kernels. */
static void test_other_engine(void **state)
{
    (void)state;
    setenv("REEL_ATTN", "2", true);
    struct bench b = cuda_bench(DTYPE_BF16);
    unsetenv("REEL_ATTN");
    struct shim_attention before = counted(), after;
    run(&b, &wishes[0]);
    after = counted();
    assert_int_equal(after.forward + after.backward, before.forward + before.backward);
    assert_int_equal(b.ops->attn_plans.own[OPS_ATTN_ENGINE], 2);
    bench_close(&b);
}

/* Returns how many bytes a call takes of a table. */
static int64_t taken_by_call(bool deterministic)
{
    const struct compute_conf conf = {.device = COMPUTE_CUDA, .dtype = DTYPE_BF16,
                                      .deterministic = deterministic};
    struct compute c = {0};
    struct err err = {0};
    assert_int_equal(compute_open(&c, &conf, &err), 0);
    struct bench b = {c.dev, c.stream, c.ops};
    int64_t before = b.ops->workspace_bytes, taken;
    run(&b, &wishes[0]);
    taken = b.ops->workspace_bytes - before;
    compute_close(&c);
    return taken;
}

/* A table keeps its caller's wish, by which the library holds dS and adds up dq in one order. */
static void test_deterministic(void **state)
{
    (void)state;
    int64_t ds_bytes = 4 * HEADS * 130 * 80 * 2;
    assert_true(taken_by_call(true) > ds_bytes);
    assert_true(taken_by_call(false) < ds_bytes);
}

/* A plan is made once for a class, and there are never more than so many. */
static void test_plans_are_kept(void **state)
{
    (void)state;
    struct bench b = cuda_bench(DTYPE_BF16);
    struct shim_attention before = counted(), after;
    struct wish w = wishes[0];
    for (int turn = 0; turn < 3; turn++)
        run(&b, &w);
    after = counted();
    assert_int_equal(after.plans - before.plans, 2);
    assert_int_equal(after.forward - before.forward, 3);
    for (int32_t n = 66; n < 66 + 65; n++) { /* and the first is gone */
        for (int i = 0; i < SEGMENTS; i++)
            w.q[i] = n, w.k[i] = 2;
        run(&b, &w);
    }
    before = counted();
    run(&b, &wishes[0]);
    assert_int_equal(counted().plans - before.plans, 2);
    bench_close(&b);
}

/* A plan is made when its call is told of. That of a call which was not is made when it comes, and
 * is late. */
static void test_told(void **state)
{
    (void)state;
    struct bench b = cuda_bench(DTYPE_BF16);
    const struct ops_attn_plans *plans = &b.ops->attn_plans;
    struct places p = places_of(&wishes[0]);
    struct ops_attn a = call_of(&wishes[0], &p);
    struct err err = {0};
    for (int turn = 0; turn < 2; turn++)
        for (int back = 0; back < 2; back++)
            assert_int_equal(b.ops->attn_plan(b.ops, &a, back, &err), 0);
    assert_int_equal(plans->made, 2);
    int64_t before = b.ops->workspace_bytes, made = counted().plans;
    assert_int_equal(b.ops->attn_reserve(b.ops, b.stream, &err), 0);
    assert_true(plans->bytes > 0 && b.ops->workspace_bytes == before + plans->bytes);
    run(&b, &wishes[0]);
    assert_int_equal(b.ops->workspace_bytes, before + plans->bytes);
    assert_int_equal(counted().plans, made);
    assert_true(plans->used == 2 && plans->late == 0);
    run(&b, &wishes[5]);
    assert_int_equal(counted().plans, made + 2);
    assert_true(plans->used == 4 && plans->late == 2 && plans->made == 2);
    bench_close(&b);
}

/* A call that our own kernels compute is counted by its reason, and a line says so. */
static void test_own_is_told(void **state)
{
    (void)state;
    struct compute c = {0};
    struct err err = {0};
    char line[COMPUTE_OWN_ATTN_LINE];
    const struct compute_conf conf = {.device = COMPUTE_CUDA, .dtype = DTYPE_BF16};
    assert_int_equal(compute_open(&c, &conf, &err), 0);
    struct bench b = {c.dev, c.stream, c.ops};
    run(&b, &wishes[0]);
    assert_false(compute_own_attn_format(&c, line, sizeof line));
    run(&b, &wishes[6]); /* keys apart: backward */
    run(&b, &wishes[7]); /* they go back: both */
    run(&b, &wishes[9]); /* all are short */
    assert_true(compute_own_attn_format(&c, line, sizeof line));
    assert_string_equal(line, "attention by kernels of our own: 2 calls with short segments alone, "
                        "3 calls for the order of keys");
    for (int i = OPS_ATTN_TAKEN + 1; i < OPS_ATTN_REASONS; i++)
        b.ops->attn_plans.own[i] = INT64_MAX;
    assert_true(compute_own_attn_format(&c, line, sizeof line)); /* there is room for all */
    compute_close(&c);
}

/* Captions of any lengths are of few classes, alone in a call or not; equal samples have one of
 * their own for each length. */
static void test_uneven(void **state)
{
    (void)state;
    struct wish w = wishes[0];
    struct attn_class last[2] = {{0}};
    int classes[2] = {0};
    for (int32_t k = 2; k <= 512; k++)
        for (int uneven = 0; uneven < 2; uneven++) {
            struct attn_class c;
            for (int i = 0; i < SEGMENTS; i++)
                w.k[i] = k;
            struct places p = places_of(&w);
            struct ops_attn a = call_of(&w, &p);
            a.n = 1, a.uneven = uneven;
            assert_int_equal(attn_dnn_takes(&a, true, false, &c), OPS_ATTN_TAKEN);
            classes[uneven] += memcmp(&c, &last[uneven], sizeof c) != 0;
            last[uneven] = c;
        }
    assert_int_equal(classes[0], 511);
    assert_int_equal(classes[1], 4);
}

/* A plan that fails when it is run is an error of the device, told at the next sync. */
static void test_failure(void **state)
{
    (void)state;
    struct bench b = cuda_bench(DTYPE_BF16);
    struct stage s = {.device = NULL};
    struct err err = {0};
    stage_open(&b, &wishes[0], &s);
    setenv("REEL_SHIM_FAIL", "cudnnBackendExecute:1:5000", true);
    b.ops->attn_fwd(b.ops, b.stream, &s.a);
    unsetenv("REEL_SHIM_FAIL");
    assert_int_equal(b.dev->stream_sync(b.dev, b.stream, &err), ERR_TEMP);
    assert_non_null(strstr(err.text, "attention by cuDNN"));
    stage_close(&b, &s);
    bench_close(&b);
}

/* Short segments are a kernel forward and one backward, whatever their lengths: a third fails. */
static void test_short(void **state)
{
    (void)state;
    struct bench b = cuda_bench(DTYPE_BF16);
    setenv("REEL_SHIM_FAIL", "launch:3:700", true);
    run(&b, &wishes[9]);
    unsetenv("REEL_SHIM_FAIL");
    bench_close(&b);
}

/* ---- keys that have much in common, and small logits ---- */

enum { QUERIES = 130, KEYS = 80, WIDE = HEADS * D, COMMON = 17 };

/* The numbers of a call of four equal segments, and dq as they make it. */
struct numbers {
    double q[SEGMENTS * QUERIES * WIDE], k[SEGMENTS * KEYS * WIDE], v[SEGMENTS * KEYS * WIDE],
        d_o[SEGMENTS * QUERIES * WIDE], dq[SEGMENTS * QUERIES * WIDE];
};

/* Computes dq of a query of a head from that head's first key on. */
static void dq_of(const double *q, const double *d_o, const double *k, const double *v, double *dq)
{
    double p[KEYS], sum = 0, delta = 0;
    for (int j = 0; j < KEYS; j++)
        sum += p[j] = exp(dot(q, k + j * WIDE, D));
    for (int j = 0; j < KEYS; j++) {
        p[j] /= sum;
        delta += p[j] * dot(d_o, v + j * WIDE, D);
    }
    for (int i = 0; i < D; i++)
        dq[i] = 0;
    for (int j = 0; j < KEYS; j++)
        for (int i = 0; i < D; i++)
            dq[i] += p[j] * (dot(d_o, v + j * WIDE, D) - delta) * k[j * WIDE + i];
}

static void dq_make(struct numbers *x)
{
    for (int64_t row = 0; row < SEGMENTS * QUERIES; row++)
        for (int64_t head = 0; head < WIDE; head += D) {
            int64_t at = row * WIDE + head, keys = row / QUERIES * KEYS * WIDE + head;
            dq_of(x->q + at, x->d_o + at, x->k + keys, x->v + keys, x->dq + at);
        }
}

/* Draws keys that all have the same large part, along which no query lies. */
static void common_draw(struct numbers *x)
{
    double *const to[] = {x->q, x->d_o, x->k, x->v};
    const int64_t rows[] = {SEGMENTS * QUERIES, SEGMENTS * QUERIES, SEGMENTS * KEYS, SEGMENTS * KEYS};
    for (uint64_t t = 0; t < 4; t++) {
        double *drawn = new_normal(rows[t] * WIDE, 40 + t);
        memcpy(to[t], drawn, (size_t)(rows[t] * WIDE) * sizeof *drawn);
        free(drawn);
    }
    for (int64_t e = 0; e < SEGMENTS * QUERIES * WIDE; e++)
        x->q[e] = e % D < D / 2 ? 0 : x->q[e] / 4;
    for (int64_t e = 0; e < SEGMENTS * KEYS * WIDE; e++)
        x->k[e] += e % D < D / 2 ? COMMON * (1 + 0.1 * (double)(e % D)) : 0;
}

/* Gives numbers to a device, rounded. */
static void give(const struct bench *b, struct pair *to, const double *x)
{
    for (int64_t e = 0; e < to->on.rows * to->on.cols; e++)
        pair_set(to->host, DTYPE_BF16, e, x[e]);
    bench_put(b, to->on.ptr, to->host, to->bytes);
}

static double off(const double *is, const double *want)
{
    double sum = 0, all = 0;
    for (int64_t e = 0; e < SEGMENTS * QUERIES * WIDE; e++) {
        sum += (is[e] - want[e]) * (is[e] - want[e]);
        all += want[e] * want[e];
    }
    return sqrt(sum / all);
}

/* Runs forward and backward of rounded numbers on a table; writes its dq, and the greatest lse. */
static void dq_by(const struct bench *b, const struct numbers *x, double *dq, double *lse)
{
    struct stage s = {.device = NULL};
    struct err err = {0};
    stage_open(b, &wishes[0], &s);
    give(b, &s.q, x->q), give(b, &s.k, x->k), give(b, &s.v, x->v), give(b, &s.d_o, x->d_o);
    b->ops->attn_fwd(b->ops, b->stream, &s.a);
    b->ops->attn_bwd(b->ops, b->stream, &s.a);
    assert_int_equal(b->dev->stream_sync(b->dev, b->stream, &err), 0);
    bench_get_to(b, s.dq.host, s.dq.on.ptr, s.dq.bytes);
    bench_get_to(b, s.lse.host, s.lse.on.ptr, s.lse.bytes);
    *lse = 0;
    for (int64_t e = 0; e < SEGMENTS * QUERIES * HEADS; e++)
        *lse = fmax(*lse, fabs((double)((float *)s.lse.host)[e]));
    for (int64_t e = 0; e < SEGMENTS * QUERIES * WIDE; e++)
        dq[e] = bf16_value(((uint16_t *)s.dq.host)[e]);
    stage_close(b, &s);
}

/* The library rounds dS, which with keys that have much in common is most of its error, and nobody
 * looks for such keys. Against numbers that nobody has rounded it is off by no more than twice what
 * the CPU is, which keeps dS in f32: q, k, v, o and dO are rounded there, too. */
static void test_common_keys(void **state)
{
    static struct numbers x;
    static double cuda[SEGMENTS * QUERIES * WIDE], cpu[SEGMENTS * QUERIES * WIDE];
    struct bench b = cuda_bench(DTYPE_BF16), near = bench_open(DTYPE_BF16);
    double lse;
    (void)state;
    common_draw(&x);
    dq_make(&x);
    int64_t before = counted().backward;
    dq_by(&near, &x, cpu, &lse);
    dq_by(&b, &x, cuda, &lse);
    assert_int_equal(counted().backward, before + 1);
    assert_true(lse < ATTN_DNN_LSE / 4); /* so no segment is left for its numbers */
    if (!(off(cpu, x.dq) > 1e-2 && off(cuda, x.dq) < 2 * off(cpu, x.dq)))
        fail_msg("dq is off by %.2e on the GPU, by %.2e on the CPU", off(cuda, x.dq),
                 off(cpu, x.dq));
    bench_close(&near);
    bench_close(&b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes), cmocka_unit_test(test_takes_deterministic),
        cmocka_unit_test(test_few_classes), cmocka_unit_test(test_who_computes),
        cmocka_unit_test(test_deterministic), cmocka_unit_test(test_plans_are_kept),
        cmocka_unit_test(test_told), cmocka_unit_test(test_own_is_told),
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_common_keys), cmocka_unit_test(test_failure), cmocka_unit_test(test_short),
        cmocka_unit_test(test_other_engine)};
    (void)argc;
    cuda_library(argv[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
