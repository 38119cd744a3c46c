/* What groups exchange between devices, on the shim's GPUs and the stand-in for NCCL: the numbers
 * of the host's operations, whatever is in flight; memory as planned; who is late. On the ranks of
 * mpirun. PLANE_CASE names a case that is to end the program: see tests/cli/t6091-plane. */
// LINK: -Wl,--wrap=malloc,--wrap=calloc
#include <signal.h>

#include "tests/lib/comm_trial.h"
#include "tests/lib/trainer_cuda.h"
#include "tests/lib/trainer_train.h"
#include "trainer/comm/comm_plane_priv.h"
#include "trainer/ops/cuda_load.h"

enum { ROUNDS = 60, IN_FLIGHT = 5, MOST = 700 };

static struct bench b;
static const struct coll_ops *coll;

static struct comm *joined(const char *axis, int key, enum plane_kind kind)
{
    struct err err = {0};
    struct comm *c;
    must(comm_split(world, axis, 0, key, &c, &err), &err);
    must(comm_plane_join(c, kind, &err), &err);
    assert_true(comm_plane_has(c) == (world->size > 1));
    return c;
}

/* ---- operations ---- */

/* A trial whose buffers are on the device: two blocks, or one that holds both. */
struct far_trial {
    struct trial t;
    void *send, *recv;
    int64_t send_bytes, recv_bytes;
};

/* Queues a copy to the device. The numbers are there when the stream comes to it, and the host's
 * stay until then. */
static void *on_device(const void *host, int64_t bytes)
{
    struct err err = {0};
    void *p;
    must(b.dev->alloc(b.dev, "x", bytes, &p, &err), &err);
    b.dev->copy(b.dev, p, host, bytes, DEV_H2D, b.stream);
    return p;
}

/* Copies back, to where a queued copy to the device may still read. */
static void from_device(void *host, const void *p, int64_t bytes)
{
    struct err err = {0};
    must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
    bench_get_to(&b, host, p, bytes);
}

static void far_make(struct far_trial *f, struct comm *c, enum comm_kind kind, unsigned seed)
{
    struct trial *t = &f->t;
    trial_make(t, c, kind, seed, trial_types[mixed(seed, 1) % 3], seed & 8, MOST);
    int64_t e = dtype_bytes(t->op.dtype);
    bool gather = kind == COMM_ALL_GATHER;
    f->send_bytes = (gather ? t->counts[c->rank] : t->send_total) * e;
    f->recv_bytes = t->recv_total * e;
    f->send = f->recv = NULL;
    if (t->send && !(gather && t->in_place))
        f->send = on_device(t->send, f->send_bytes);
    if (t->recv && (gather || !t->in_place))
        f->recv = on_device(t->recv, f->recv_bytes);
    if (t->in_place && gather)
        t->op.send = (char *)f->recv + (t->send - t->recv);
    else
        t->op.send = f->send;
    t->op.recv = t->in_place && !gather ? (char *)f->send + (t->recv - t->send) : f->recv;
    for (int k = 0; k < t->op.n_messages; k++) {
        struct comm_message *m = &t->list[k];
        m->buf = (char *)(k < 3 ? f->send : f->recv) +
                 ((char *)m->buf - (k < 3 ? t->send : t->recv));
    }
}

/* Brings the numbers back, and messages to where they are looked for. */
static void far_fetch(struct far_trial *f)
{
    struct trial *t = &f->t;
    if (f->send)
        from_device(t->send, f->send, f->send_bytes);
    if (f->recv)
        from_device(t->recv, f->recv, f->recv_bytes);
    for (int k = 0; k < t->op.n_messages; k++)
        t->list[k].buf = (char *)t->list[k].buf - (char *)(k < 3 ? f->send : f->recv) +
                         (k < 3 ? t->send : t->recv);
    b.dev->free(b.dev, f->send);
    b.dev->free(b.dev, f->recv);
}

/* A library adds in another order. What cancels out may differ by its rounding. */
static void must_be_near(struct trial *t, const void *buf, int64_t at,
                         const struct rough_run *want, bool own)
{
    double e = t->op.dtype == DTYPE_F64 ? 1e-15 : 1e-6;
    (void)own;
    for (int64_t i = 0; i < want->n; i++) {
        double have = get(buf, at + i, t->op.dtype), about = rough_at(want, i);
        if (!(fabs(have - about) <= 1e17 * e * t->c->size))
            fail_msg("%s, seed %u: %.17g, want about %.17g", comm_kind_names[t->op.kind], t->seed,
                     have, about);
    }
}

static bool is_librarys(const struct trial *t)
{
    bool even = t->op.kind == COMM_ALL_REDUCE || (t->op.kind == COMM_REDUCE_SCATTER &&
                                                  !t->op.counts);
    return !world->conf->ordered && even && t->op.dtype != DTYPE_BF16;
}

static enum comm_kind kind_drawn(unsigned seed)
{
    static const enum comm_kind kinds[] = {
        COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE,
        COMM_ALL_TO_ALL, COMM_SEND_RECV, COMM_BROADCAST};
    return kinds[mixed(seed, 4) % (unsigned)LEN(kinds)];
}

/* Starts operations of drawn kinds in two groups, of other orders of ranks, and waits for them in a
 * drawn order. */
static void round_do(struct comm *groups[2], unsigned round)
{
    static struct far_trial f[IN_FLIGHT];
    struct err err = {0};
    int order[IN_FLIGHT];
    for (int i = 0; i < IN_FLIGHT; i++) {
        unsigned seed = mixed(round, (unsigned)i);
        far_make(&f[i], groups[seed % 2], kind_drawn(seed), seed);
        order[i] = i;
    }
    for (int i = 0; i < IN_FLIGHT; i++)
        must(comm_start(f[i].t.c, &f[i].t.op, b.stream, &f[i].t.work, &err), &err);
    for (int i = IN_FLIGHT - 1; i > 0; i--) {
        int j = (int)(mixed(round, 100 + (unsigned)i) % (unsigned)(i + 1)), k = order[i];
        order[i] = order[j], order[j] = k;
    }
    for (int i = 0; i < IN_FLIGHT; i++)
        must(comm_wait(f[order[i]].t.c, f[order[i]].t.work, b.stream, &err), &err);
    for (int i = 0; i < IN_FLIGHT; i++) {
        far_fetch(&f[i]);
        if (is_librarys(&f[i].t))
            trial_each(&f[i].t, must_be_near);
        else
            trial_verify(&f[i].t);
        trial_release(&f[i].t);
    }
}

static void operations(void **state)
{
    struct comm *groups[2] = {joined("tp", world->rank, PLANE_MESSAGES),
                              joined("shard", -world->rank, PLANE_SUMS)};
    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        world->conf->ordered = round % 2;
        round_do(groups, round);
    }
    world->conf->ordered = false;
    assert_true(groups[0]->ops > ROUNDS);
    comm_close(groups[0]);
    comm_close(groups[1]);
}

/* Parts that are larger than what is exchanged at a time, and one that is not. */
static void large_parts(void **state)
{
    enum { LARGE = (5 << 20) / 4, SMALL = 77 };
    struct comm *c = joined("tp", world->rank, PLANE_MESSAGES);
    struct err err = {0};
    int64_t counts[RANKS], at[RANKS], n = 0;
    (void)state;
    for (int r = 0; r < c->size; r++)
        counts[r] = r == 1 ? SMALL : LARGE, at[r] = n, n += counts[r];
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i % 1000 + c->rank);
    float *on = on_device(x, n * 4);
    struct comm_op op = {.kind = COMM_REDUCE_SCATTER, .what = "large", .dtype = DTYPE_F32,
                         .send = on, .recv = on + at[c->rank], .counts = counts, .at = at};
    must(comm_reserve(c, 0, n * 4, &err), &err);
    must(comm_do(c, &op, b.stream, &err), &err);
    from_device(x, on, n * 4);
    for (int64_t i = 0; i < counts[c->rank]; i++) {
        double each = (double)((at[c->rank] + i) % 1000), s = c->size;
        assert_true(x[at[c->rank] + i] == (float)(s * each + s * (s - 1) / 2));
    }
    b.dev->free(b.dev, on);
    free(x);
    comm_close(c);
}

/* Up and down the edges, and round the ring, with all of it in flight. */
static void edges(void **state)
{
    (void)state;
    if (world->size == 1)
        return; /* an edge has two ranks */
    struct comm *c = joined("pp", world->rank, PLANE_SUMS);
    struct err err = {0};
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    double host[4] = {100 + c->rank, 200 + c->rank, -1, -1}, *x = on_device(host, sizeof host);
    const struct comm_message list[] = {
        {x + 2, 1, before, false}, {x, 1, next, true},
        {x + 3, 1, next, false}, {x + 1, 1, before, true}};
    struct comm_work *works[LEN(list)];
    must(comm_plane_edges(c, true, &err), &err);
    for (int i = 0; i < LEN(list); i++)
        must(comm_start(c, &(struct comm_op){
            .kind = COMM_SEND_RECV, .what = "an edge", .dtype = DTYPE_F64,
            .messages = &list[i], .n_messages = 1}, b.stream, &works[i], &err), &err);
    for (int i = 0; i < LEN(list); i++)
        must(comm_wait(c, works[i], b.stream, &err), &err);
    from_device(host, x, sizeof host);
    assert_true(host[2] == 100 + before && host[3] == 200 + next);
    b.dev->free(b.dev, x);
    comm_close(c);
}

/* One rank waits for the device and another for a message of the host, each of which needs what the
 * other one has queued. */
static void host_and_device(void **state)
{
    struct comm *c = joined("tp", world->rank, PLANE_MESSAGES);
    struct err err = {0};
    double host[2] = {7 + c->rank, 0}, *x = on_device(host, sizeof host);
    struct comm_op op = {.kind = COMM_BROADCAST, .what = "a number", .dtype = DTYPE_F64,
                         .recv = x, .n = 1};
    struct comm_work *w;
    (void)state;
    must(comm_start(c, &op, b.stream, &w, &err), &err);
    must(comm_wait(c, w, b.stream, &err), &err);
    if (c->rank > 0)
        must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
    must(comm_barrier(world, &err), &err);
    from_device(host, x, sizeof host);
    assert_true(host[0] == 7);
    b.dev->free(b.dev, x);
    comm_close(c);
}

/* More operations than the host may be ahead of the device. */
static void many(void **state)
{
    struct comm *c = joined("tp", world->rank, PLANE_MESSAGES);
    struct err err = {0};
    double host = 1, *x = on_device(&host, sizeof host);
    struct comm_op op = {.kind = COMM_ALL_REDUCE, .what = "a sum", .dtype = DTYPE_F64,
                         .recv = x, .n = 1};
    (void)state;
    for (int i = 0; i < 600; i++) {
        must(comm_do(c, &op, b.stream, &err), &err);
        if (i % 8 == 7)
            b.dev->copy(b.dev, x, &host, sizeof host, DEV_H2D, b.stream);
    }
    must(b.dev->stream_sync(b.dev, b.stream, &err), &err);
    assert_int_equal(c->ops, 600);
    b.dev->free(b.dev, x);
    comm_close(c);
}

/* ---- no memory to join ---- */

static int failing; /* this allocation of a link or a stream of messages fails; 0: none */

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_malloc(size_t n)
{
    bool counts = failing > 0 && n == sizeof(struct plane_link);
    return counts && --failing == 0 ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t count, size_t n)
{
    bool counts = failing > 0 && n == sizeof(struct plane_queue);
    return counts && --failing == 0 ? NULL : __real_calloc(count, n);
}

/* Whichever of these fails on one rank while a group joins and opens its edges, all ranks are told,
 * and the next group can join. */
static void no_memory_to_join(void **state)
{
    const int last = world->size - 1;
    double met = last > 0;
    int n = 0;
    (void)state;
    while (met > 0) {
        struct err err = {0}, other = {0};
        struct comm *c;
        must(comm_split(world, "pp", 0, world->rank, &c, &err), &err);
        failing = world->rank == last ? ++n : 0;
        int rc = comm_plane_join(c, PLANE_MESSAGES, &err);
        if (rc == 0) /* what fails may be behind it */
            rc = comm_plane_edges(c, true, &err);
        met = world->rank == last && failing == 0;
        failing = 0;
        must(comm_max(world, &met, 1, &other), &other);
        if (met > 0)
            must_fail(rc, ERR_NOMEM, &err, "no memory");
        else
            must(rc, &err);
        comm_close(c);
    }
    /* a link, and a stream and a link for each edge */
    assert_true(world->rank < last || n > 1 + 2 * (last > 1 ? 4 : 2) || last == 0);
}

/* ---- memory ---- */

/* What a training takes of the device and of pinned memory is what its plan says, to the byte. (Of
 * what cuDNN's attention takes it says the most.) */
static void the_plan_is_what_is_taken(void **state)
{
    static const struct { const char *layout; enum dtype dtype; bool ordered; } cases[] = {
        {"dp=2,zero=2", DTYPE_F32, false}, {"dp=2,zero=1", DTYPE_F32, true},
        {"tp=2,sp=1", DTYPE_F32, false}, {"tp=2", DTYPE_BF16, false}, {"pp=2", DTYPE_F32, true}};
    (void)state;
    setenv("REEL_ATTN", "plain", true);
    for (int i = 0; i < LEN(cases) && world->size >= 2; i++) {
        if (!dealt(i, 2))
            continue;
        struct train_report r = {0};
        struct err err = {0};
        struct run run;
        run_make(&run, "synthetic:1x4x4", 4, 2);
        run.dtype = cases[i].dtype;
        run.model.layers = 2;
        world->conf->ordered = cases[i].ordered;
        must(try_train(&run, &(struct job){.name = "plan", .layout = cases[i].layout, .coll = coll},
                       &r, &err), &err);
        if (world->rank < 2 && (r.taken_bytes != r.device_bytes ||
                                r.taken_pinned_bytes != r.pinned_bytes))
            fail_msg("%s, rank %d: %lld bytes of %lld planned, pinned %lld of %lld",
                     cases[i].layout, world->rank, (long long)r.taken_bytes,
                     (long long)r.device_bytes, (long long)r.taken_pinned_bytes,
                     (long long)r.pinned_bytes);
        assert_true(world->rank >= 2 || (r.steps == 2 && isnan(r.phases.comm_s)));
        if (world->rank == 0)
            must(file_remove_tree(in_scratch("plan"), &err), &err);
        run_release(&run);
    }
    world->conf->ordered = false;
    unsetenv("REEL_ATTN");
}

/* ---- packs ---- */

/* Packs that have images, clips and captions of unlike lengths beside each other, cut by a kind of
 * parallelism on GPUs, come to the weights of one rank that has no GPU. */
static void packs_of_unlike_samples(void **state)
{
    static const struct { const char *layout; bool staged; } cases[] = {
        {"dp=2,mbs=2,zero=3"}, {"cp=2", true}, {"tp=2,sp=1,recompute=full"},
        {"cp=2,cp_kind=a2a"}, {"pp=2", true}};
    char *gpu = strdup(getenv("REEL_DEVICE"));
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 4, 2);
    run.stages[0].pack_tokens = 9;
    setenv("REEL_DEVICE", "cpu", true);
    train(&run, &(struct job){.name = "one"});
    setenv("REEL_DEVICE", gpu, true);
    free(gpu);
    for (int i = 0; i < LEN(cases) && world->size >= 2; i++) {
        char name[16];
        if (!dealt(i, 5)) /* each within five days, and with RANKS=all today */
            continue;
        snprintf(name, sizeof name, "packs-%d", i);
        train(&run, &(struct job){.name = name, .layout = cases[i].layout,
                                  .coll = cases[i].staged ? NULL : coll});
        double d = difference("one", name, 2);
        if (!(d <= 1e-11))
            fail_msg("%s: %.3g", cases[i].layout, d);
    }
    run_release(&run);
}

/* ---- what ends the program ---- */

/* Rank 1 does not come to a sum, and waits for a message; or it hangs. */
static int late(const char *name)
{
    struct comm *c = joined("tp", world->rank, PLANE_MESSAGES);
    struct err err = {0};
    double host = 1, *x = on_device(&host, sizeof host);
    struct comm_op op = {.kind = COMM_ALL_REDUCE, .what = "a sum", .dtype = DTYPE_F64,
                         .recv = x, .n = 1};
    world->conf->deadline_s = c->rank == 1 ? 0 : 1;
    if (c->rank != 1)
        must(comm_do(c, &op, b.stream, &err), &err);
    else if (strcmp(name, "hangs") == 0)
        raise(SIGSTOP);
    int rc = c->rank != 1 ? b.dev->stream_sync(b.dev, b.stream, &err) : comm_barrier(c, &err);
    fprintf(stderr, "rank %d, broken %d: %s\n", c->rank, world->broken, err.text);
    comm_abort(world, err_exit_code(rc));
    return 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations), cmocka_unit_test(large_parts), cmocka_unit_test(edges),
        cmocka_unit_test(host_and_device), cmocka_unit_test(many),
        cmocka_unit_test(no_memory_to_join)};
    const struct CMUnitTest runs[] = {CASE(the_plan_is_what_is_taken),
                                      CASE(packs_of_unlike_samples)};
    const struct cuda_backend *backend;
    struct err err = {0};
    char device[32];
    cuda_library(argv[0]);
    world_open(argc, argv);
    snprintf(device, sizeof device, "cuda:%d", world->rank);
    setenv("REEL_DEVICE", device, true);
    must(cuda_load(&backend, &err), &err);
    coll = backend->coll;
    b = bench_open(DTYPE_F64);
    must(comm_bind(world, b.dev, coll, &err), &err);
    if (getenv("PLANE_CASE"))
        return late(getenv("PLANE_CASE"));
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    must(comm_bind(world, NULL, NULL, NULL), &err);
    bench_close(&b);
    failures += cmocka_run_group_tests(runs, NULL, NULL);
    return world_close(failures);
}
