/* Runs whose losses and checkpoints are stored here: a change meant to change no number changes
 * none.
 *
 * The constants were made by this program, which prints them when REEL_STORED is set. They do not
 * depend on the width of vectors. They depend on whether the arithmetic that the processor chose
 * multiplies and adds in one rounding (v3 and v4 of trainer/ops/simd.h) or not (generic, which
 * REEL_SIMD=generic asks for), so each run has two. Whoever changes numbers on purpose prints them
 * anew with both and says so in the commit. They are also those of before the trainer's files moved
 * into rooms: this program, built in the tree of then (4e37f4b), printed the same. Alone, this
 * program makes the runs of one rank; under mpirun it makes those of as many ranks as there are, or
 * fewer. */
#include "tests/lib/trainer_train.h"

enum { STORED_STEPS = 3 };

struct stored_numbers {
    const char *ckpt; /* the hash of the checksums of all its files, in their order */
    double loss[STORED_STEPS];
};

struct stored_run {
    enum dtype dtype;
    const char *layout;
    struct stored_numbers plain, fused; /* by a processor without fused multiply-add, and with it */
};

static const struct stored_run runs[] = {
    {DTYPE_F64, "mbs=2",
     .plain = {"94b2abea5107e1fb8a5cc0c1e56cf2f5", {0.887144229, 0.66388925, 0.762142033}},
     .fused = {"f34ac3ea7f6653946c7927645017c712", {0.887144229, 0.66388925, 0.762142033}}},
    {DTYPE_F32, "mbs=2,recompute=full",
     .plain = {"a50a5de58a4703b46ce8ac8962cbd900", {0.88714425, 0.663889241, 0.762142014}},
     .fused = {"c27f6eddedc4ff4443ff152f250af40b", {0.88714425, 0.663889251, 0.76214201}}},
    {DTYPE_BF16, "mbs=2",
     .plain = {"f2e778ec0cfdef5611b18fcbae9661be", {0.88714425, 0.663841618, 0.762136105}},
     .fused = {"61b4be0a3e468dc42489f03a336e2a4c", {0.88714425, 0.663841618, 0.762136105}}},
    {DTYPE_F32, "dp=2,zero=1",
     .plain = {"75defd640c058bd82b9e734ea61ae4c2", {0.88714425, 0.663889241, 0.762142013}},
     .fused = {"f095d28afaecd0ce3fe104b10b47c8f3", {0.88714425, 0.663889245, 0.76214201}}},
    {DTYPE_BF16, "dp=2,zero=2",
     .plain = {"798403e768c5f1f45a756c4adcc7a9d1", {0.88714425, 0.663841618, 0.762136105}},
     .fused = {"e89b624d823e9770fbcd6a1299b116f7", {0.88714425, 0.663841618, 0.762136105}}},
    {DTYPE_F32, "tp=2,sp=1,recompute=selective",
     .plain = {"427c76ff07d671819f04d943a36db4d0", {0.88714425, 0.663889239, 0.762142014}},
     .fused = {"0ac540140d76ad0832bd429b44751c9d", {0.88714425, 0.663889246, 0.762142014}}},
    {DTYPE_F32, "tp=2,cp=2,cp_kind=ring",
     .plain = {"74a59865910fc306adfd544985b378ca", {0.88714425, 0.663889239, 0.762142011}},
     .fused = {"fcc1c50ee44d15f5cc077e9287012212", {0.88714425, 0.663889246, 0.762142009}}},
    {DTYPE_F32, "pp=2,vpp=2",
     .plain = {"050fddd54640903dc789fa8ca51a48ab", {0.88714425, 0.663889241, 0.762142016}},
     .fused = {"acbcb85a99bcf62da61f9e87de7f3c76", {0.88714425, 0.663889247, 0.762142009}}},
    {DTYPE_F32, "cp=2,cp_kind=a2a",
     .plain = {"2961cac1c7a6ad771a2fb02d28dd8583", {0.88714425, 0.663889239, 0.762142013}},
     .fused = {"05f4b47ff49dcc2f7979f11842ed31a1", {0.88714425, 0.663889246, 0.76214201}}},
    {DTYPE_F32, "cp=2,dp=2,zero=3",
     .plain = {"87de57d282fa8e540d27451ed54439bc", {0.88714425, 0.663889242, 0.762142014}},
     .fused = {"02b598281ce7f12638a2d1840feed3b1", {0.88714425, 0.663889246, 0.76214201}}},
    {DTYPE_BF16, "tp=2,pp=2",
     .plain = {"9f7fbd1da1d0dc7923eddb9752065e21", {0.88714425, 0.663841618, 0.762142483}},
     .fused = {"ad4c62fa39855365d7f6b669dca2191f", {0.88714425, 0.663841618, 0.762142483}}},
};

/* Does the table's product round a multiply-add once? (1 + d)² - 1 is 2 d + d², of which two
 * roundings leave 2 d. */
static bool is_fused(void)
{
    struct bench b = bench_open(DTYPE_F32);
    float d = 0x1p-12f, a[] = {-1, 1 + d}, w[] = {1, 1 + d}, c = 0;
    struct ops_gemm product = {
        .a = tensor_of(a, DTYPE_F32, 1, 2),
        .b = tensor_of(w, DTYPE_F32, 1, 2), .tb = true,
        .c = tensor_of(&c, DTYPE_F32, 1, 1),
        .alpha = 1,
    };
    b.ops->gemm(b.ops, b.stream, &product);
    bench_close(&b);
    assert_true(c == 2 * d || c == 2 * d + d * d);
    return c != 2 * d;
}

static void ckpt_hash(const char *name, char text[HASH_TEXT_BYTES])
{
    struct ckpt_manifest m;
    struct hash_stream *h = hash_stream_new();
    char dir[600];
    assert_non_null(h);
    ckpt_open(name, STORED_STEPS, dir, &m);
    for (int64_t i = 0; i < m.n_files; i++)
        hash_stream_add(h, &m.files[i].hash, sizeof m.files[i].hash);
    hash_format(hash_stream_128(h), text);
    hash_stream_free(h);
    ckpt_manifest_release(&m);
}

/* Prints a row of the table above, with the half of its numbers that this processor makes. */
static void numbers_print(const struct stored_run *r, const char *ckpt, const struct told_steps *t)
{
    fprintf(stderr, "%s, \"%s\", .%s = {\"%s\", {", dtype_names[r->dtype], r->layout,
            is_fused() ? "fused" : "plain", ckpt);
    for (int i = 0; i < STORED_STEPS; i++)
        fprintf(stderr, "%s%.9g", i ? ", " : "", t->loss[i]);
    fprintf(stderr, "}},\n");
}

/* Rank 0 looks. Losses are compared to nine digits: the last bits of their weights, which are of
 * double precision, come from the C library. */
static void numbers_check(const struct stored_run *r, const char *name)
{
    const struct stored_numbers *want = is_fused() ? &r->fused : &r->plain;
    struct told_steps t = told(name, 1);
    char ckpt[HASH_TEXT_BYTES];
    ckpt_hash(name, ckpt);
    if (getenv("REEL_STORED")) {
        numbers_print(r, ckpt, &t);
        return;
    }
    for (int i = 0; i < STORED_STEPS; i++)
        if (!(fabs(t.loss[i] - want->loss[i]) <= 2e-9 * fabs(want->loss[i])))
            fail_msg("%s %s: the loss of step %d is %.9g, it was %.9g", dtype_names[r->dtype],
                     r->layout, i, t.loss[i], want->loss[i]);
    if (strcmp(ckpt, want->ckpt) != 0)
        fail_msg("%s %s: the checkpoint's hash is %s, it was %s", dtype_names[r->dtype], r->layout,
                 ckpt, want->ckpt);
}

static void runs_are_as_stored(void **state)
{
    (void)state;
    for (int i = 0; i < LEN(runs); i++) {
        struct run run;
        char name[32];
        snprintf(name, sizeof name, "stored-%d", i);
        run_make(&run, data_dir(), 5, STORED_STEPS);
        run.model.layers = 4;
        run.dtype = runs[i].dtype;
        struct plan plan = plan_make_text(&run, runs[i].layout);
        if (layout_world(&plan.layout) <= world->size) {
            train(&run, &(struct job){.name = name, .layout = runs[i].layout});
            if (world->rank == 0)
                numbers_check(&runs[i], name);
        }
        run_release(&run);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {CASE(runs_are_as_stored)};
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
