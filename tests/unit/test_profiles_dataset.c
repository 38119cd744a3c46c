/* The dataset index: round trip, equal bytes, every truncation and every flipped bit, the rules of
 * its fields. */
#include "tests/lib/test_profiles.h"

#include <math.h>
#include <unistd.h>

#include "profiles/datasets.h"
#include "tests/lib/scratch.h"

/* Two shards, three samples, every field at a value of its own. */
static struct dataset_sample sample(uint32_t shard, uint32_t index, int64_t offset,
                                    int32_t text_len)
{
    return (struct dataset_sample){
        .shard = shard, .index_in_shard = index, .offset = offset, .bytes = 40960,
        .latent_offset = offset + 512, .latent_bytes = 20608, .text_offset = offset + 25088,
        .text_bytes = text_len ? 128 + 256 * text_len : 0, .t = 2, .h = 4, .w = 6 + (int32_t)index,
        .frames = 9, .height = 32, .width = 48, .text_len = text_len, .fps = 23.976f,
        .motion = -0.25f, .sharpness = 1.5e-7f, .key_hash = 0xfedcba9876543210u + shard,
    };
}

struct made { struct dataset d; struct dataset_shard shards[2]; struct dataset_sample samples[3]; };

static void make(struct made *m)
{
    *m = (struct made){
        .shards = {{(char *)"shards/000000.tar", 2, 0x0123456789abcdefu, 90000},
                   {(char *)"b.tar", 1, 7, 50000}},
        .samples = {sample(0, 0, 0, 5), sample(0, 1, 40960, 0), sample(1, 0, 1024, 16)},
    };
    m->d = (struct dataset){.n_shards = 2, .n_samples = 3, .shards = m->shards,
                            .samples = m->samples, .channels = 16, .text_width = 64,
                            .tokenizer = "wavelet-8x8x8/1", .text_encoder = "ngram-hash-64",
                            .latent_mean = -0.125, .latent_std = 1.75};
}

static void assert_same(const struct dataset *a, const struct dataset *b)
{
    assert_int_equal(a->n_shards, b->n_shards);
    assert_int_equal(a->n_samples, b->n_samples);
    assert_int_equal(a->channels, b->channels);
    assert_int_equal(a->text_width, b->text_width);
    assert_string_equal(a->tokenizer, b->tokenizer);
    assert_string_equal(a->text_encoder, b->text_encoder);
    assert_true(a->latent_mean == b->latent_mean && a->latent_std == b->latent_std);
    assert_memory_equal(&a->fingerprint, &b->fingerprint, sizeof a->fingerprint);
    for (int64_t i = 0; i < a->n_shards; i++) {
        assert_string_equal(a->shards[i].path, b->shards[i].path);
        assert_int_equal(a->shards[i].samples, b->shards[i].samples);
        assert_true(a->shards[i].bytes_hash == b->shards[i].bytes_hash &&
                    a->shards[i].bytes == b->shards[i].bytes);
    }
    for (int64_t i = 0; i < a->n_samples; i++) {
        const struct dataset_sample *x = &a->samples[i], *y = &b->samples[i];
        assert_true(x->shard == y->shard && x->index_in_shard == y->index_in_shard &&
                    x->offset == y->offset);
        assert_true(x->bytes == y->bytes && x->latent_offset == y->latent_offset &&
                    x->latent_bytes == y->latent_bytes);
        assert_true(x->text_offset == y->text_offset && x->text_bytes == y->text_bytes &&
                    x->text_len == y->text_len);
        assert_true(x->t == y->t && x->h == y->h && x->w == y->w);
        assert_true(x->frames == y->frames && x->height == y->height && x->width == y->width);
        assert_true(x->fps == y->fps && x->motion == y->motion && x->sharpness == y->sharpness &&
                    x->key_hash == y->key_hash);
    }
}

static void index_bytes(struct str *out)
{
    struct err err;
    assert_ok(file_read(in_scratch(".reel/index"), 1 << 20, out, &err), &err);
}

static void index_put(const char *bytes, size_t n)
{
    FILE *f = fopen(in_scratch(".reel/index"), "wb"); /* plainly: thousands of times, no fsync */
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void round_trip(void **state)
{
    struct made m;
    struct dataset back;
    struct err err;
    struct str first = STR_INIT, second = STR_INIT;
    (void)state;
    make(&m);
    assert_ok(dataset_save(scratch, &m.d, &err), &err);
    assert_ok(dataset_load(scratch, &back, &err), &err);
    assert_same(&m.d, &back);
    assert_true(back.fingerprint.lo != 0);
    index_bytes(&first);
    /* noise behind the text is not content */
    memset(back.tokenizer + strlen(back.tokenizer) + 1, 'x', 9);
    assert_ok(dataset_save(scratch, &back, &err), &err);
    index_bytes(&second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.p, second.p, first.len);
    assert_int_equal(first.len,
                     320 + 2 * 32 + 3 * 112 + strlen("shards/000000.tar") + strlen("b.tar") + 16);
    assert_memory_equal(first.p, "REELIDX1", 8);
    assert_int_equal((unsigned char)first.p[16], 2); /* little-endian counts */
    assert_int_equal((unsigned char)first.p[24], 3);
    dataset_release(&back);
    str_release(&first);
    str_release(&second);
}

/* What a fingerprint is for: content changes it, and the same content does not. */
static void fingerprints(void **state)
{
    struct made m;
    struct err err;
    (void)state;
    make(&m);
    assert_ok(dataset_save(scratch, &m.d, &err), &err);
    struct hash128 first = m.d.fingerprint;
    m.samples[2].motion = 0.5f;
    assert_ok(dataset_save(scratch, &m.d, &err), &err);
    assert_memory_not_equal(&first, &m.d.fingerprint, sizeof first);
    m.samples[2].motion = -0.25f;
    assert_ok(dataset_save(scratch, &m.d, &err), &err);
    assert_memory_equal(&first, &m.d.fingerprint, sizeof first);
}

static void assert_damaged(void)
{
    struct dataset d = {.n_shards = -5};
    struct err err;
    assert_fails(dataset_load(scratch, &d, &err), ERR_CORRUPT, &err,
                 "the index is damaged: restore it");
    assert_says(&err, ".reel/index");
    assert_int_equal(d.n_shards, -5);
}

static void every_truncation(void **state)
{
    struct made m;
    struct err err;
    struct str bytes = STR_INIT;
    (void)state;
    make(&m);
    assert_ok(dataset_save(scratch, &m.d, &err), &err);
    index_bytes(&bytes);
    for (size_t n = 0; n < bytes.len; n++) {
        index_put(bytes.p, n);
        assert_damaged();
    }
    str_addc(&bytes, '\0'); /* and one byte too many */
    index_put(bytes.p, bytes.len);
    assert_damaged();
    str_release(&bytes);
}

static void every_flipped_bit(void **state)
{
    struct made m;
    struct err err;
    struct str bytes = STR_INIT;
    (void)state;
    make(&m);
    assert_ok(dataset_save(scratch, &m.d, &err), &err);
    index_bytes(&bytes);
    for (size_t bit = 0; bit < 8 * bytes.len; bit++) {
        bytes.p[bit / 8] ^= (char)(1 << bit % 8);
        index_put(bytes.p, bytes.len);
        assert_damaged();
        bytes.p[bit / 8] ^= (char)(1 << bit % 8);
    }
    index_put(bytes.p, bytes.len);
    struct dataset d;
    assert_ok(dataset_load(scratch, &d, &err), &err);
    dataset_release(&d);
    str_release(&bytes);
}

/* A wrong field under a right checksum: a bad writer's file is refused too, whatever the field
 * claims. */
static void lies_under_a_good_checksum(void **state)
{
    enum { SAMPLES = 320 + 2 * 32 };
    static const struct { size_t at, bytes; uint64_t value; const char *says; } rows[] = {
        {16, 8, 0, "its tables are larger than the file"},
        {16, 8, UINT64_MAX, "its tables are larger"},
        {16, 8, 1ull << 60, "its tables are larger"},
        {24, 8, 4, "its tables are larger"},
        {24, 8, 1ull << 62, "its tables are larger"},
        {24, 8, 2, "a shard's path holds a zero byte"},
        {32, 8, 0, "0 channels"},
        {56, 8, 0, "standard deviation 0"},
        {320, 8, 9, "claims 9 samples, 3 are left"},
        {320 + 16, 8, 1ull << 63, "lies outside its shard"},
        {320 + 24, 4, 18, "longer than the file"},
        {320 + 24, 4, 16, "bytes are left over"},
        {SAMPLES, 4, 1, "sample 0 is numbered 0 of shard 1"},
        {SAMPLES + 112 + 8, 8, 40959, "over the sample before it"},
        {SAMPLES + 16, 8, 1ull << 63, "lies outside its shard"},
        {SAMPLES + 24, 8, INT64_MAX, "latent outside its bytes"},
        {SAMPLES + 56, 4, INT32_MAX, "latent smaller than its extent"},
    };
    struct made m;
    struct err err;
    struct str bytes = STR_INIT;
    (void)state;
    make(&m);
    assert_ok(dataset_save(scratch, &m.d, &err), &err);
    index_bytes(&bytes);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *copy = malloc(bytes.len);
        memcpy(copy, bytes.p, bytes.len);
        for (size_t k = 0; k < rows[i].bytes; k++)
            copy[rows[i].at + k] = (char)(rows[i].value >> 8 * k);
        struct hash128 sum = hash_128(copy, bytes.len - 16);
        for (size_t k = 0; k < 8; k++) {
            copy[bytes.len - 16 + k] = (char)(sum.hi >> 8 * k);
            copy[bytes.len - 8 + k] = (char)(sum.lo >> 8 * k);
        }
        index_put(copy, bytes.len);
        struct dataset d;
        assert_fails(dataset_load(scratch, &d, &err), ERR_CORRUPT, &err, rows[i].says);
        free(copy);
    }
    str_release(&bytes);
}

/* ---- rules when saving ---- */

static void no_samples(struct made *m) { m->d.n_samples = 0; }
static void nan_mean(struct made *m) { m->d.latent_mean = NAN; }
static void bad_channels(struct made *m) { m->d.channels = 0; }
static void absolute_path(struct made *m) { m->shards[0].path = (char *)"/etc/a.tar"; }
static void climbing_path(struct made *m) { m->shards[0].path = (char *)"a/../../b.tar"; }
static void empty_path(struct made *m) { m->shards[1].path = (char *)""; }
static void too_few(struct made *m) { m->shards[1].samples = 0; }
static void lost_sample(struct made *m) { m->shards[0].samples = 1; }
static void out_of_order(struct made *m) { m->samples[1].index_in_shard = 0; }
static void overlap(struct made *m) { m->samples[1].offset = 40000; }
static void past_the_end(struct made *m) { m->shards[1].bytes = 41983; }
static void zero_extent(struct made *m) { m->samples[0].h = 0; }
static void latent_outside(struct made *m) { m->samples[0].latent_offset = 40959; }
static void text_outside(struct made *m) { m->samples[0].text_bytes = 40960; }
static void text_lost(struct made *m) { m->samples[0].text_bytes = 0; }
static void small_latent(struct made *m) { m->samples[0].latent_bytes = 16 * 2 * 4 * 6 * 2 - 1; }
static void nan_score(struct made *m) { m->samples[0].motion = NAN; }
static void open_name(struct made *m) { memset(m->d.tokenizer, 'a', sizeof m->d.tokenizer); }

static void rules(void **state)
{
    static const struct { void (*spoil)(struct made *m); const char *says; } rows[] = {
        {no_samples, "0 samples"},
        {nan_mean, "latent mean"},
        {bad_channels, "0 channels"},
        {absolute_path, "path '/etc/a.tar' of shard 0"},
        {climbing_path, "path 'a/../../b.tar'"},
        {empty_path, "path '' of shard 1"},
        {too_few, "shard b.tar claims 0 samples"},
        {lost_sample, "sample 1 is numbered 1 of shard 0, its place is 0 of shard 1"},
        {out_of_order, "sample 1 is numbered 0 of shard 0"},
        {overlap, "over the sample before it"},
        {past_the_end, "sample 2 (0 of shard b.tar) lies outside its shard"},
        {zero_extent, "extent below 1"},
        {latent_outside, "latent outside its bytes"},
        {text_outside, "text outside its bytes"},
        {text_lost, "a caption but no text embedding"},
        {small_latent, "latent smaller than its extent"},
        {nan_score, "score that is no number"},
        {open_name, "terminated"},
    };
    struct made m;
    struct err err;
    struct dataset back;
    (void)state;
    make(&m);
    assert_ok(dataset_save(scratch, &m.d, &err), &err);
    struct hash128 good = m.d.fingerprint;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        make(&m);
        rows[i].spoil(&m);
        assert_fails(dataset_save(scratch, &m.d, &err), ERR_INPUT, &err, rows[i].says);
    }
    assert_ok(dataset_load(scratch, &back, &err), &err); /* the good one still stands */
    assert_memory_equal(&good, &back.fingerprint, sizeof good);
    assert_int_equal(count_entries(in_scratch(".reel")), 1);
    dataset_release(&back);
}

static void no_dataset(void **state)
{
    struct made m;
    struct dataset d;
    struct err err;
    char hint[600];
    (void)state;
    snprintf(hint, sizeof hint, "make one with: reel curate SRC -o '%s'", in_scratch("none"));
    assert_fails(dataset_load(in_scratch("none"), &d, &err), ERR_NOT_FOUND, &err, hint);
    make(&m);
    assert_ok(file_publish(in_scratch("plain"), "x", 1, &err), &err);
    /* a file where the folder should be */
    assert_true(dataset_save(in_scratch("plain"), &m.d, &err) < 0);
    assert_says(&err, "plain");
    assert_ok(file_mkdirs(in_scratch(".reel"), &err), &err);
    index_put("something else entirely", 23);
    assert_damaged();
}

static struct hash128 saved(struct made *m, double mean)
{
    struct err err;
    m->d.latent_mean = mean;
    assert_ok(dataset_save(scratch, &m->d, &err), &err);
    return m->d.fingerprint;
}

/* A generation that was kept is read whatever became of the newest index, and the newest where it is
 * the one that is wanted and its copy is damaged. */
static void generations(void **state)
{
    char kept[LIMIT_PATH_BYTES], hash[HASH_TEXT_BYTES];
    struct hash128 first, second;
    struct dataset d;
    struct made m;
    struct err err;
    (void)state;
    make(&m);
    first = saved(&m, 0.25);
    assert_ok(file_mkdirs(in_scratch(".reel/generations"), &err), &err);
    snprintf(kept, sizeof kept, "%s/.reel/generations/%s.index", scratch,
             hash_format(first, hash));
    assert_int_equal(rename(in_scratch(".reel/index"), kept), 0);
    second = saved(&m, 0.5);
    index_put("cut short", 9);
    assert_ok(dataset_load_generation(scratch, first, &d, &err), &err);
    assert_true(d.latent_mean == 0.25);
    dataset_release(&d);
    assert_fails(dataset_load_generation(scratch, second, &d, &err), ERR_CORRUPT, &err, "damaged");
    assert_int_equal(unlink(in_scratch(".reel/index")), 0);
    assert_ok(dataset_load_generation(scratch, first, &d, &err), &err);
    dataset_release(&d);
    saved(&m, 0.5);
    assert_int_equal(truncate(kept, 400), 0);
    assert_fails(dataset_load_generation(scratch, first, &d, &err), ERR_CORRUPT, &err,
                 ".index: ");
    assert_ok(dataset_load_generation(scratch, second, &d, &err), &err);
    dataset_release(&d);
    first = saved(&m, 0.25);
    assert_ok(dataset_load_generation(scratch, first, &d, &err), &err);
    assert_true(d.latent_mean == 0.25);
    dataset_release(&d);
}

/* Who asks second has what was read first, whatever lies on the disk by then, and has it as long as
 * it is open. Another generation, and any after the set was dropped, is read anew. */
static void shared(void **state)
{
    static const struct hash128 newest;
    struct datasets set = {0};
    const struct dataset *a, *b, *c, *d;
    struct made m;
    struct err err;
    (void)state;
    make(&m);
    struct hash128 first = saved(&m, 0.25);
    assert_ok(datasets_open(&set, scratch, newest, &a, &err), &err);
    struct hash128 second = saved(&m, 0.5);
    assert_ok(datasets_open(&set, scratch, first, &b, &err), &err);
    assert_ok(datasets_open(&set, scratch, newest, &c, &err), &err);
    assert_ptr_equal(b, a);
    assert_ptr_equal(c, a);
    assert_ok(datasets_open(&set, scratch, second, &d, &err), &err);
    assert_true(a->latent_mean == 0.25 && d->latent_mean == 0.5);
    datasets_drop(&set);
    datasets_close(b), datasets_close(c), datasets_close(d);
    assert_true(a->latent_mean == 0.25);
    assert_ok(datasets_open(&set, scratch, newest, &d, &err), &err);
    assert_true(d->latent_mean == 0.5);
    datasets_close(a), datasets_close(d);
    datasets_drop(&set);
    assert_ok(datasets_open(NULL, scratch, newest, &a, &err), &err); /* for the caller alone */
    assert_ok(datasets_open(NULL, scratch, newest, &b, &err), &err);
    assert_ptr_not_equal(a, b);
    datasets_close(a), datasets_close(b), datasets_close(NULL);
    assert_fails(datasets_open(&set, in_scratch("none"), newest, &a, &err), ERR_NOT_FOUND, &err,
                 "is no dataset");
    assert_null(set.first);
}

/* The page is made of these tables: each record has its known size, and each field its sentence. */
static void records_are_told(void **state)
{
    static const size_t bytes[DATASET_RECORDS] = {320, 32, 112};
    (void)state;
    for (size_t i = 0; i < DATASET_RECORDS; i++) {
        size_t at = 0;
        for (size_t k = 0; k < dataset_records[i].n; k++) {
            assert_true(strlen(dataset_records[i].fields[k].help) > 0);
            at += dataset_field_bytes(dataset_records[i].fields[k].type);
        }
        assert_int_equal(at, bytes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(fingerprints, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(every_truncation, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(every_flipped_bit, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(lies_under_a_good_checksum, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(rules, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(shared, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(generations, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(no_dataset, scratch_setup, scratch_teardown),
        cmocka_unit_test(records_are_told),
    };
    return cmocka_run_group_tests_name("profiles_dataset", tests, NULL, NULL);
}
