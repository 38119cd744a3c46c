/* Checkpoints: any group writes, any group reads, the same bits; damage of every kind is passed
 * over; a full disk, leftovers and what is kept. Under mpirun the groups are real. */
// LINK: -Wl,--wrap=run_past_hash
#include "tests/lib/trainer_ckpt.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/num.h"
#include "tests/lib/fault.h"
#include "trainer/ckpt/ckpt_async.h"

/* ---- groups ---- */

static const char *const group_layouts[] = {"dp=1",
                                            "dp=1,zero=1", "dp=2", "dp=2,zero=1", "tp=2",
                                            "dp=2,zero=3", "dp=3,zero=1", "cp=2,dp=2,zero=2",
                                            "dp=4", "dp=4,zero=1", "tp=2,dp=2,zero=1",
                                            "pp=2,dp=2,zero=3",
                                            "dp=4,zero=1,fsdp=2"};

static void group_write(const char *layout, int64_t step)
{
    struct layout l;
    struct err err = {0};
    must(layout_parse(layout, &l, &err), &err);
    struct comm *group = first_ranks((int)layout_world(&l));
    if (!group)
        return;
    struct rig r;
    ckpt_rig_open(&r, layout, group);
    save(&r, step, 1);
    optim_rig_close(&r);
    comm_close(group);
}

static void group_read(const char *layout, int64_t step)
{
    struct layout l;
    struct err err = {0};
    must(layout_parse(layout, &l, &err), &err);
    struct comm *group = first_ranks((int)layout_world(&l));
    if (!group)
        return;
    struct rig r;
    struct told told;
    ckpt_rig_open(&r, layout, group);
    load_expect(&r, step, &told);
    assert_int_equal(told.n, 0);
    optim_rig_close(&r);
    comm_close(group);
}

static bool fits(const char *layout)
{
    struct layout l;
    return layout_parse(layout, &l, NULL) == 0 && layout_world(&l) <= world->size;
}

static void any_group_reads_any_group(void **state)
{
    struct err err = {0};
    (void)state;
    for (int w = 0; w < LEN(group_layouts); w++) {
        if (!fits(group_layouts[w]))
            continue;
        group_write(group_layouts[w], w + 1);
        must(comm_barrier(world, &err), &err);
        for (int r = 0; r < LEN(group_layouts); r++)
            if (fits(group_layouts[r]) && dealt(w + r, 2))
                group_read(group_layouts[r], w + 1);
        must(comm_barrier(world, &err), &err);
    }
}

/* ---- damage; on rank 0 alone from here ---- */

static void copy_tree(const char *from, const char *to)
{
    static const char *const files[] = {"manifest.json", "rank-00000.bin"};
    struct err err = {0};
    must(file_remove_tree(to, &err), &err);
    must(file_mkdirs(to, &err), &err);
    for (int i = 0; i < 2; i++) {
        char a[600], b[600];
        struct str bytes = STR_INIT;
        snprintf(a, sizeof a, "%s/%s", from, files[i]);
        snprintf(b, sizeof b, "%s/%s", to, files[i]);
        must(file_read(a, 1 << 24, &bytes, &err), &err);
        FILE *f = fopen(b, "wb");
        assert_true(f && fwrite(bytes.p, 1, bytes.len, f) == bytes.len && fclose(f) == 0);
        str_release(&bytes);
    }
}

/* Step 2 is put back from the copy, harmed, and must be passed over for step 1. */
static void harmed(struct rig *r, const char *what)
{
    struct told told;
    load_expect(r, 1, &told);
    if (told.n != 1 || !strstr(told.dir, "step-00000002") || told.reason[0] == 0)
        fail_msg("%s: told %d times, of '%s': %s", what, told.n, told.dir, told.reason);
    assert_true(!exists(2, "") && exists(2, ".damaged"));
    copy_tree(in_scratch("copy"), step_file(2, ""));
}

static void any_damage_is_passed_over(void **state)
{
    static const char *const files[] = {"manifest.json", "rank-00000.bin"};
    struct rig r;
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    save(&r, 1, 9);
    save(&r, 2, 9);
    copy_tree(step_file(2, ""), in_scratch("copy"));
    for (int f = 0; f < 2; f++) {
        int64_t bytes = file_bytes(step_file(2, files[f]));
        const int64_t cuts[] = {0, 1, bytes / 3, bytes / 2, bytes - 1, bytes + 1};
        for (int i = 0; i < LEN(cuts); i++) {
            assert_int_equal(truncate(step_file(2, files[f]), cuts[i]), 0);
            harmed(&r, files[f]);
        }
        for (int64_t at = 0; at < bytes;
             at = at == bytes - 1 ? bytes : num_min_i64(at + bytes / 40 + 1, bytes - 1)) {
            file_flip(step_file(2, files[f]), at);
            harmed(&r, files[f]);
        }
        assert_int_equal(unlink(step_file(2, files[f])), 0);
        harmed(&r, files[f]);
    }
    struct told told;
    load_expect(&r, 2, &told); /* unharmed it is taken */
    assert_int_equal(told.n, 0);
    optim_rig_close(&r);
}

static void all_damaged_is_a_fresh_start(void **state)
{
    struct rig r;
    struct told told;
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    load_expect(&r, -1, &told); /* no folder at all */
    for (int64_t step = 1; step <= 3; step++) {
        save(&r, step, 9);
        file_flip(step_file(step, "rank-00000.bin"), 5);
    }
    load_expect(&r, -1, &told);
    assert_int_equal(told.n, 3);
    for (int64_t step = 1; step <= 3; step++)
        assert_true(exists(step, ".damaged") && !exists(step, ""));
    optim_rig_close(&r);
}

/* ---- what no other checkpoint mends ---- */

static void refused(struct rig *r, struct hash128 hash, const char *says)
{
    struct ckpt_meta meta;
    bool found = false;
    struct told told = {0};
    struct err err = {0};
    must_fail(ckpt_load(&here, &r->o, hash, on_damage, &told, &meta, &found, &err), ERR_INPUT, &err,
              says);
    assert_true(told.n == 0 && !found && exists(4, ""));
    optim_rig_close(r);
}

static void another_run_is_refused(void **state)
{
    struct rig r;
    (void)state;
    rig_open_as(&r, "dp=1", world, DTYPE_F64, 0);
    state_set(&r, 4);
    struct ckpt_meta meta = {.step = 4, .config_hash = config}, written;
    struct err err = {0};
    must(ckpt_save(&here, &r.o, &meta, 1, &written, &err), &err);
    refused(&r, other_config, "was written by another configuration");
    rig_open_as(&r, "dp=1", world, DTYPE_F32, 0);
    refused(&r, config, "was written by a run in f64, this one is in f32");
    rig_open_as(&r, "dp=1", world, DTYPE_F64, 0.9);
    refused(&r, config, "holds no average (EMA)");
    rig_open_as(&r, "dp=1", world, DTYPE_F64, 0);
    r.run.moments = MOMENTS_BF16;
    refused(&r, config, "holds moments of type 'same', the run's are 'bf16'");
    rig_open_as(&r, "dp=1", world, DTYPE_F64, 0);
    snprintf(r.params.items[3].name, sizeof r.params.items[3].name, "blocks.77.weight");
    refused(&r, config, "tensor 'blocks.77.weight' is missing or of another shape");
}

/* The manifest with `from` made `to`, under a checksum that fits, or with `tail` as its end. */
static void manifest_forge(int64_t step, const char *from, const char *to, const char *tail)
{
    struct str text = STR_INIT, forged = STR_INIT;
    struct err err = {0};
    char hex[HASH_TEXT_BYTES];
    must(file_read(step_file(step, "manifest.json"), 1 << 20, &text, &err), &err);
    char *at = strstr(text.p, from), *end = strstr(text.p, ",\n \"checksum\"");
    assert_true(at && end && at < end);
    *end = '\0';
    str_addf(&forged, "%.*s%s%s", (int)(at - text.p), text.p, to, at + strlen(from));
    const char *hash = hash_format(hash_128(forged.p, forged.len), hex);
    if (tail)
        str_add(&forged, tail);
    else
        str_addf(&forged, ",\n \"checksum\": \"%s\"\n}\n", hash);
    FILE *f = fopen(step_file(step, "manifest.json"), "wb");
    assert_true(f && fwrite(forged.p, 1, forged.len, f) == forged.len && fclose(f) == 0);
    str_release(&text);
    str_release(&forged);
}

/* What a newer version wrote is whole: it is neither renamed nor passed over for an older one. */
static void unreadable_is_not_damaged(void **state)
{
    static const struct { const char *from, *to, *says, *tail; } forged[] = {
        {"\"reel.ckpt/1\"", "\"reel.ckpt/2\"", "schema is 'reel.ckpt/2'"},
        {"\"reel.ckpt/1\"", "\"reel.ckpt/2\"", "schema is 'reel.ckpt/2'", "\n}\n"},
        {"\"reel.ckpt/1\"", "\"reel.ckpt/10\"", "schema is 'reel.ckpt/10'",
         ",\n \"checksum\": \"sha256:00\"\n}\n"},
        {"\"ema\":", "\"streams\": 4, \"ema\":", "streams"},
        {"\"family\":", "\"experts\": 8, \"family\":", "experts"},
        {"\"config_hash\": \"", "\"config_hash\": \"z", "is not a hash"},
        {"\"hash\": \"", "\"hash\": \"z", "is not a hash"},
        {"\"shape\": [", "\"shape\": [1, 1, 1, ", "shape is not one of"}};
    struct rig r;
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    for (int i = 0; i < LEN(forged); i++) {
        struct told told = {0};
        struct ckpt_meta meta;
        struct err err = {0};
        bool found = false;
        for (int64_t step = 1; step <= 2; step++)
            save(&r, step, 9);
        manifest_forge(2, forged[i].from, forged[i].to, forged[i].tail);
        must_fail(ckpt_load(&here, &r.o, config, on_damage, &told, &meta, &found, &err), ERR_INPUT,
                  &err, forged[i].says);
        assert_true(told.n == 0 && !found && exists(1, "") && exists(2, "") &&
                    !exists(1, ".damaged") && !exists(2, ".damaged"));
        assert_non_null(strstr(err.text, "it is whole, and is left as it is"));
        must(file_remove_tree(step_file(2, ""), &err), &err);
    }
    optim_rig_close(&r);
}

/* A checkpoint that the file system does not give is passed over and left as it is, until its step
 * is saved again. Where there is no other one, nothing begins anew. */
static void not_given_is_not_damaged(void **state)
{
    struct rig r;
    struct told told;
    struct ckpt_meta meta;
    struct err err = {0};
    bool found = false;
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    save(&r, 1, 9);
    save(&r, 2, 9);
    assert_int_equal(unlink(step_file(2, "rank-00000.bin")), 0);
    assert_int_equal(symlink("rank-00000.bin", step_file(2, "rank-00000.bin")), 0); /* ELOOP */
    load_expect(&r, 1, &told);
    assert_true(told.n == 1 && exists(2, "") && !exists(2, ".damaged"));
    must(file_remove_tree(step_file(1, ""), &err), &err);
    must_fail(ckpt_load(&here, &r.o, config, on_damage, &told, &meta, &found, &err), ERR_IO, &err,
              "step-00000002");
    assert_true(!found && exists(2, "") && !exists(2, ".damaged"));
    save(&r, 2, 9);
    here.passed_over = 0;
    load_expect(&r, 2, &told);
    assert_int_equal(told.n, 0);
    optim_rig_close(&r);
}

/* ---- saving under difficulties ---- */

static void full_disk_leaves_the_old_ones(void **state)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    struct rig r;
    struct told told;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    ckpt_rig_open(&r, "dp=1", world);
    save(&r, 1, 2);
    save(&r, 2, 2);
    int64_t bytes = file_bytes(step_file(2, "rank-00000.bin"));
    const int64_t limits[] = {0, 100, 4096, bytes / 2, bytes - 1};
    for (int i = 0; i < LEN(limits); i++) {
        struct rlimit full = {(rlim_t)limits[i], RLIM_INFINITY};
        struct err err = {0};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
        int rc = try_save(&r, 3, 2, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        must_fail(rc, ERR_IO, &err, "File too large");
        assert_non_null(strstr(err.text, ".tmp-step-00000003.a0.0/"));
        assert_int_equal(count_entries(in_scratch("ckpt")), 2);
        load_expect(&r, 2, &told);
        assert_int_equal(told.n, 0);
    }
    save(&r, 3, 2);
    load_expect(&r, 3, &told);
    optim_rig_close(&r);
}

static void unwritable_folder(void **state)
{
    struct rig r;
    struct err err = {0};
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    must(file_publish(in_scratch("ckpt"), "a file", 6, &err), &err);
    must_fail(try_save(&r, 3, 2, &err), ERR_EXISTS, &err, "/ckpt'");
    optim_rig_close(&r);
}

static void keeps_the_newest_good_ones(void **state)
{
    struct rig r;
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    for (int64_t step = 1; step <= 5; step++)
        save(&r, step, 2);
    assert_true(!exists(3, "") && exists(4, "") && exists(5, ""));
    assert_int_equal(truncate(step_file(5, "rank-00000.bin"), 77), 0);
    save(&r, 6, 2);
    assert_true(exists(6, "") && exists(5, "") && exists(4, "")); /* the short one does not count */
    save(&r, 123456789, 2); /* past 8 digits, and the newest */
    assert_true(exists(123456789, "") && exists(6, "") && !exists(5, "") && !exists(4, ""));
    save(&r, 99999999, 1);
    assert_true(exists(123456789, "") && !exists(99999999, ""));
    for (int64_t step = 123456790; step <= 123456792; step++)
        save(&r, step, 3);
    file_flip(step_file(123456791, "rank-00000.bin"), 5); /* of the right size */
    save(&r, 123456793, 3);
    assert_true(exists(123456793, "") && exists(123456792, "") && exists(123456791, "") &&
                exists(123456790, "") && !exists(123456789, ""));
    optim_rig_close(&r);
}

static void leftovers_and_strangers(void **state)
{
    static const char *const strangers[] = {"step-12", "step-abcdefgh", "step-00000009.damaged",
                                            "notes", "step-00000005 (copy)"};
    struct rig r;
    struct told told;
    struct err err = {0};
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    /* of a save that was killed */
    must(file_mkdirs(in_scratch("ckpt/.tmp-step-00000007/x"), &err), &err);
    for (int i = 0; i < LEN(strangers); i++) {
        char name[64];
        snprintf(name, sizeof name, "ckpt/%s", strangers[i]);
        must(file_mkdirs(in_scratch(name), &err), &err);
    }
    load_expect(&r, -1, &told);
    assert_int_equal(told.n, 0);
    save(&r, 3, 1);
    assert_false(file_exists(in_scratch("ckpt/.tmp-step-00000007")));
    assert_int_equal(count_entries(in_scratch("ckpt")), LEN(strangers) + 1);
    optim_rig_close(&r);
}

/* A good one of the same step stays, a damaged one is set aside. */
static void the_same_step_again(void **state)
{
    struct rig r;
    struct stat before, after;
    struct told told;
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    save(&r, 3, 2);
    assert_int_equal(stat(step_file(3, "rank-00000.bin"), &before), 0);
    save(&r, 3, 2);
    assert_int_equal(stat(step_file(3, "rank-00000.bin"), &after), 0);
    assert_true(before.st_ino == after.st_ino);
    file_flip(step_file(3, "rank-00000.bin"), 9);
    save(&r, 3, 2);
    assert_true(exists(3, ".damaged"));
    assert_int_equal(count_entries(in_scratch("ckpt")), 2);
    load_expect(&r, 3, &told);
    assert_int_equal(told.n, 0);
    optim_rig_close(&r);
}

/* ---- every call that can fail, failing once ---- */

/* This ends the program for want of memory, and says so where it does. */
struct hash128 __real_run_past_hash(const struct run *r, int64_t step);
struct hash128 __wrap_run_past_hash(const struct run *r, int64_t step);
struct hash128 __wrap_run_past_hash(const struct run *r, int64_t step)
{
    enum fault_kind armed = fault.kind;
    fault.kind = FAULT_NONE;
    struct hash128 h = __real_run_past_hash(r, step);
    fault.kind = armed;
    return h;
}

static void expect_fault(const char *what, enum fault_kind kind, long n, int rc,
                         const struct err *err)
{
    int want = fault_code(kind);
    if (rc != 0 && (rc != want || err->code != want || !err->text[0]))
        fail_msg("%s, %s %ld: %d '%s'", what, fault_names[kind], n, rc, err->text);
}

/* Saving step 3 beside 1 and 2: those stand and nothing else, or it stands too, whole. */
static bool save_fails_at(struct rig *r, enum fault_kind kind, long n)
{
    struct err err = {0};
    struct told told;
    fault_arm(kind, n);
    int rc = try_save(r, 3, 9, &err);
    bool met = fault_disarm();
    expect_fault("saving", kind, n, rc, &err);
    assert_true(exists(1, "") && exists(2, "") && (rc < 0 || exists(3, "")));
    bool stands = exists(3, ""); /* after a failure too, when the last sync was what failed */
    if (rc < 0 && count_entries(in_scratch("ckpt")) != 2 + stands)
        fail_msg("saving, %s %ld: %d entries are left (%s)", fault_names[kind], n,
                 count_entries(in_scratch("ckpt")), err.text);
    load_expect(r, stands ? 3 : 2, &told);
    assert_int_equal(told.n, 0);
    assert_int_equal(file_remove_tree(step_file(3, ""), NULL), 0);
    return met;
}

/* Saving step 2 again: the good one that stands is never put aside. */
static bool save_again_fails_at(struct rig *r, enum fault_kind kind, long n)
{
    struct err err = {0};
    struct told told;
    fault_arm(kind, n);
    int rc = try_save(r, 2, 9, &err);
    bool met = fault_disarm();
    expect_fault("saving again", kind, n, rc, &err);
    if (exists(2, ".damaged"))
        fail_msg("saving again, %s %ld: a good checkpoint was set aside (%d '%s')",
                 fault_names[kind], n, rc, err.text);
    load_expect(r, 2, &told);
    assert_int_equal(told.n, 0);
    return met;
}

/* Loading with 1 and 2 there: no good one is called damaged; the next start has step 2. */
static bool load_fails_at(struct rig *r, enum fault_kind kind, long n)
{
    struct ckpt_meta meta = {0};
    struct told told = {0};
    struct err err = {0};
    bool found = false;
    fault_arm(kind, n);
    int rc = ckpt_load(&here, &r->o, config, on_damage, &told, &meta, &found, &err);
    bool met = fault_disarm();
    expect_fault("loading", kind, n, rc, &err);
    if (rc == 0)
        assert_true(found && meta.step == (told.n ? 1 : 2));
    if (exists(2, ".damaged"))
        fail_msg("loading, %s %ld: a good checkpoint was set aside: %s", fault_names[kind], n,
                 told.reason);
    load_expect(r, 2, &told);
    return met;
}

/* Weights of f64 beside moments of bf16, under the layout of as many ranks as there are. */
static void moments_in_bf16_come_back(void **state)
{
    struct rig r;
    struct err err = {0};
    struct ckpt_meta meta = {.step = 5, .config_hash = config}, out;
    char layout[32];
    bool found;
    (void)state;
    snprintf(layout, sizeof layout, "dp=%d,zero=1", world->size);
    moments = MOMENTS_BF16;
    ckpt_rig_open(&r, layout, world);
    moments = MOMENTS_SAME;
    must(optim_init(&r.o, &err), &err);
    size_t n = (size_t)r.o.n_state;
    uint16_t *m, *v, *kept = malloc(2 * n * sizeof *kept);
    for (size_t i = 0; i < n; i++)
        kept[i] = (uint16_t)(i * 40503 >> 3), kept[n + i] = (uint16_t)(i * 30011 >> 5);
    bench_put(&r.b, r.o.m, kept, r.o.n_state * 2);
    bench_put(&r.b, r.o.v, kept + n, r.o.n_state * 2);
    must(ckpt_save(&here, &r.o, &meta, 2, &out, &err), &err);
    must(ckpt_load(&here, &r.o, config, NULL, NULL, &out, &found, &err), &err);
    assert_true(found);
    m = bench_get(&r.b, r.o.m, r.o.n_state * 2), v = bench_get(&r.b, r.o.v, r.o.n_state * 2);
    int64_t other = 0;
    for (int64_t i = 0; i < r.params.n; i++) { /* between tensors there are zeros */
        struct piece p = piece_of(&r.sh, shards_unit_of(&r.sh, i), &r.sh.tensors[i], 0,
                                  r.sh.tensors[i].count);
        other += memcmp(m + p.at, kept + p.at, (size_t)p.n * sizeof *m) ||
                 memcmp(v + p.at, kept + n + p.at, (size_t)p.n * sizeof *v);
    }
    assert_int_equal(other, 0);
    free(kept), free(m), free(v);
    optim_rig_close(&r);
}

/* ---- weights of bf16: masters in the files, of what is frozen the weights ---- */

/* Makes numbers that bf16 does not have. */
static int odd_values(void *ctx, int64_t tensor, int64_t global, int64_t n, double *out,
                      struct err *err)
{
    (void)ctx, (void)err;
    for (int64_t j = 0; j < n; j++)
        out[j] = (double)(float)(1 + 1e-4 * (double)((global + j) % 997) - (double)tensor);
    return 0;
}

static void narrow_open(struct rig *r, const char *layout, struct comm *group, bool filled)
{
    struct err err = {0};
    rig_open_as(r, layout, group, DTYPE_BF16, 0.9);
    must(filled ? optim_fill(&r->o, odd_values, NULL, &err) : optim_zero(&r->o, &err), &err);
}

static void narrow_write(const char *layout, int64_t step, bool async)
{
    struct layout l;
    struct rig r;
    struct err err = {0};
    struct ckpt_async a;
    struct ckpt_meta meta = {.step = step, .config_hash = config}, written;
    must(layout_parse(layout, &l, &err), &err);
    struct comm *group = first_ranks((int)layout_world(&l));
    if (!group)
        return;
    narrow_open(&r, layout, group, true);
    if (async) {
        must(ckpt_async_open(&a, &r.o, &err), &err);
        must(ckpt_async_begin(&a, &here, &meta, 1, &err), &err);
        must(ckpt_async_finish(&a, &written, &err), &err);
        ckpt_async_close(&a);
    } else {
        must(ckpt_save(&here, &r.o, &meta, 1, &written, &err), &err);
    }
    optim_rig_close(&r);
    comm_close(group);
}

static void device_equal(const struct rig *a, const void *of_a, const struct rig *b,
                         const void *of_b, int64_t bytes)
{
    void *x = bench_get(&a->b, of_a, bytes), *y = bench_get(&b->b, of_b, bytes);
    assert_memory_equal(x, y, (size_t)bytes);
    free(x);
    free(y);
}

/* All buffers, gaps too, as a rank has them that was never away. */
static void narrow_read(const char *layout, int64_t step)
{
    struct layout l;
    struct rig r, want;
    struct err err = {0};
    struct ckpt_meta meta = {0};
    bool found = false;
    must(layout_parse(layout, &l, &err), &err);
    struct comm *group = first_ranks((int)layout_world(&l));
    if (!group)
        return;
    narrow_open(&r, layout, group, false);
    narrow_open(&want, layout, group, true);
    must(ckpt_load(&here, &r.o, config, NULL, NULL, &meta, &found, &err), &err);
    assert_true(found && meta.step == step && r.o.n_state < r.o.n_weights);
    device_equal(&r, r.o.weights, &want, want.o.weights, r.o.n_weights * 2);
    device_equal(&r, r.o.master, &want, want.o.master, r.o.n_state * 4);
    device_equal(&r, r.o.ema, &want, want.o.ema, r.o.n_state * 4);
    optim_rig_close(&r);
    optim_rig_close(&want);
    comm_close(group);
}

static void weights_of_bf16_come_back(void **state)
{
    struct rig r;
    struct err err = {0};
    int64_t step = 4;
    (void)state;
    some_frozen = true;
    for (int i = 0; i < LEN(group_layouts); i++) {
        if (!fits(group_layouts[i]))
            continue;
        narrow_write(group_layouts[i], ++step, i % 2);
        must(comm_barrier(world, &err), &err);
        for (int k = 0; k < LEN(group_layouts); k++)
            if (fits(group_layouts[k]) && dealt(i + k, 2))
                narrow_read(group_layouts[k], step);
        must(comm_barrier(world, &err), &err);
    }
    if (world->size == 1) { /* the numbers are f32's; the run is not */
        struct ckpt_meta meta;
        bool found = false;
        rig_open_as(&r, "dp=1", world, DTYPE_F32, 0.9);
        must_fail(ckpt_load(&here, &r.o, config, NULL, NULL, &meta, &found, &err), ERR_INPUT, &err,
                  "by a run in bf16, this one is in f32");
        optim_rig_close(&r);
    }
    some_frozen = false;
}

static void any_fault(void **state)
{
    static const struct {
        const char *name;
        bool (*run)(struct rig *, enum fault_kind, long);
        bool reads;
    } scenes[] = {{"save", save_fails_at, false},
                  {"save again", save_again_fails_at, true},
                  {"load", load_fails_at, true}};
    struct rig r;
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    save(&r, 1, 9);
    save(&r, 2, 9);
    for (int i = 0; i < LEN(scenes); i++)
        for (enum fault_kind kind = FAULT_ALLOC; kind < FAULT_KINDS; kind++) {
            long n = 1, hits = 0;
            while (scenes[i].run(&r, kind, n)) {
                n += fault_step(kind == FAULT_ALLOC ? 17 : kind == FAULT_READ ? 3 : 1);
                hits++;
            }
            bool expected = i < 2 ? kind != FAULT_LINK && (kind != FAULT_READ || scenes[i].reads)
                                  : kind == FAULT_ALLOC || kind == FAULT_READ;
            if (expected && !hits)
                fail_msg("%s: met no %s", scenes[i].name, fault_names[kind]);
        }
    optim_rig_close(&r);
}

#define ALONE(f) cmocka_unit_test_setup_teardown(f, shared_setup, shared_teardown)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ALONE(any_group_reads_any_group), ALONE(weights_of_bf16_come_back),
        ALONE(moments_in_bf16_come_back), ALONE(any_damage_is_passed_over),
        ALONE(all_damaged_is_a_fresh_start), ALONE(another_run_is_refused),
        ALONE(unreadable_is_not_damaged), ALONE(not_given_is_not_damaged),
        ALONE(full_disk_leaves_the_old_ones),
        ALONE(unwritable_folder), ALONE(keeps_the_newest_good_ones), ALONE(leftovers_and_strangers),
        ALONE(the_same_step_again),
        ALONE(any_fault),
    };
    world_open(argc, argv);
    if (world->size > 1) { /* the rest needs no second rank */
        const struct CMUnitTest shared[] = {ALONE(any_group_reads_any_group),
                                            ALONE(weights_of_bf16_come_back)};
        return world_close(cmocka_run_group_tests(shared, NULL, NULL));
    }
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
