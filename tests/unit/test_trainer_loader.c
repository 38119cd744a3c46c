/* The loader: what .npy it takes, which sample each draw is, what it reads, and what it says of
 * damaged data. */
#include "tests/lib/trainer_run.h"

#include "base/npy.h"
#include "base/num.h"
#include "profiles/flops.h"
#include "trainer/data/loader.h"
#include "trainer/data/objective.h"

/* ---- npy ---- */

static const struct npy_case {
    const char *name, *descr, *shape;
    int payload;   /* bytes */
    const char *says; /* NULL: taken */
} npy_cases[] = {
    {"float32", "<f4", "(2, 3)", 24, NULL},
    {"float16", "<f2", "(2, 3)", 12, NULL},
    {"shape without blank", "<f4", "(2,3)", 24, NULL},
    {"shape with trailing comma", "<f4", "(2, 3,)", 24, NULL},
    {"float64", "<f8", "(2, 3)", 48, "must be float32 or float16"},
    {"big-endian", ">f4", "(2, 3)", 24, "must be float32 or float16"},
    {"integers", "<i4", "(2, 3)", 24, "must be float32 or float16"},
    {"another shape", "<f4", "(3, 2)", 24, "another shape"},
    {"more dimensions", "<f4", "(2, 3, 1)", 24, "another shape"},
    {"fewer dimensions", "<f4", "(6,)", 24, "another shape"},
    {"no shape", "<f4", "None", 24, "another shape"},
    {"short payload", "<f4", "(2, 3)", 23, "holds 23 payload bytes, its shape needs 24"},
    {"long payload", "<f4", "(2, 3)", 25, "holds 25 payload bytes, its shape needs 24"},
    {"empty payload", "<f4", "(2, 3)", 0, "holds 0 payload bytes"},
};

static void npy_table(void **state)
{
    const int64_t shape[] = {2, 3};
    (void)state;
    for (int i = 0; i < LEN(npy_cases); i++) {
        const struct npy_case *c = &npy_cases[i];
        struct str file = STR_INIT;
        struct err err = {0};
        float out[6];
        npy_header(&file, c->descr, c->shape);
        for (int k = 0; k < c->payload; k++)
            str_addc(&file, k % 2 ? 0x3c : 0);
        int rc = npy_parse(file.p, (int64_t)file.len, shape, 2, "x.npy", out, &err);
        if (c->says)
            must_fail(rc, ERR_CORRUPT, &err, c->says);
        else if (rc < 0)
            fail_msg("%s: %s", c->name, err.text);
        str_release(&file);
    }
}

static void npy_cut_anywhere(void **state)
{
    const int64_t shape[] = {2, 3};
    struct str file = STR_INIT;
    float out[6];
    (void)state;
    npy_header(&file, "<f4", "(2, 3)");
    for (int k = 0; k < 24; k++)
        str_addc(&file, 0);
    for (size_t n = 0; n < file.len; n++) {
        char *exact = malloc(n + 1); /* so that a read past the end is seen */
        struct err err = {0};
        memcpy(exact, file.p, n);
        assert_int_equal(npy_parse(exact, (int64_t)n, shape, 2, "x.npy", out, &err), ERR_CORRUPT);
        free(exact);
    }
    str_release(&file);
}

static void npy_halves(void **state)
{
    static const struct {
        uint16_t half;
        float value;
    } known[] = {
        {0x0000, 0.0f},
        {0x3c00, 1.0f},
        {0xc000, -2.0f},
        {0x7bff, 65504.0f},
        {0x0001, 0x1p-24f},
        {0x8001, -0x1p-24f},
        {0x0400, 0x1p-14f},
        {0x03ff, 0x1p-14f - 0x1p-24f},
        {0x3555, 0.333251953125f},
    };
    const int64_t shape[] = {1};
    (void)state;
    for (int i = 0; i < LEN(known) + 2; i++) {
        /* infinity, NaN */
        uint16_t half = i < LEN(known) ? known[i].half : i == LEN(known) ? 0x7c00 : 0x7e00;
        struct str file = STR_INIT;
        struct err err = {0};
        float out;
        npy_header(&file, "<f2", "(1,)");
        str_addn(&file, &half, 2);
        int rc = npy_parse(file.p, (int64_t)file.len, shape, 1, "x.npy", &out, &err);
        if (i < LEN(known)) {
            must(rc, &err);
            assert_true(out == known[i].value);
        } else {
            must_fail(rc, ERR_CORRUPT, &err, "element 0 is not finite");
        }
        str_release(&file);
    }
}

/* ---- order and content ---- */

enum { SHARDS = 3, EACH = 4, SAMPLES = SHARDS * EACH };

static int with_data(void **state)
{
    if (shared_setup(state) < 0)
        return -1;
    dataset_make(SHARDS, EACH);
    return 0;
}

static struct loader *open_loader(struct run *run, int64_t mbs, bool verify)
{
    struct loader *l;
    struct err err = {0};
    run_make(run, data_dir(), 8, 20);
    must(loader_open(run, &run->stages[0], NULL, mbs, verify, 0, 1, &l, &err), &err);
    return l;
}

static int64_t sample_of(const struct loader *l, int64_t draw)
{
    return loader_sample(l, loader_draw(l, draw).pack, 0);
}

static void every_sample_once_an_epoch(void **state)
{
    struct run run;
    struct loader *l = open_loader(&run, 2, true);
    int same_place = 0;
    int64_t first[SAMPLES];
    (void)state;
    for (int epoch = 0; epoch < 5; epoch++) {
        int seen[SAMPLES] = {0};
        for (int64_t i = 0; i < SAMPLES; i++) {
            struct loader_draw d = loader_draw(l, epoch * SAMPLES + i);
            int64_t sample = loader_sample(l, d.pack, 0);
            assert_in_range(sample, 0, SAMPLES - 1);
            assert_int_equal(seen[sample]++, 0);
            assert_int_equal(d.samples, 1);
            assert_int_equal(d.tokens, made_t(sample) * made_w(sample) / 2);
            assert_int_equal(d.elements, RUN_CHANNELS * made_cells(sample));
            if (epoch == 0)
                first[i] = sample;
            same_place += epoch > 0 && first[i] == sample;
        }
    }
    assert_true(same_place < 2 * SAMPLES); /* of 4 epochs' 48 places about 4 agree by chance */
    loader_close(l);
    run_release(&run);
}

/* What is drawn for it is a function of seed and ordinal: not of the micro-batch it is read in. */
static void drawn_check(const struct batch_sample *s, int64_t id, const struct run *r)
{
    assert_true(s->level ==
                objective_level_draw(r->seed, s->ordinal, &r->level, made_t(id) * made_w(id) / 2));
    assert_true(s->drop_text == objective_text_dropped(r->seed, s->ordinal, r->text_dropout));
}

static void sample_check(const struct batch_sample *s, int64_t id, uint64_t ordinal)
{
    assert_int_equal(s->ordinal, ordinal);
    assert_true(s->t == made_t(id) && s->h == MADE_H && s->w == made_w(id) &&
                s->text_len == made_text_len(id));
    /* where it is not known: the unit of time */
    assert_true(s->fps == (made_fps(id) > 0 ? (double)made_fps(id) : 24));
    for (int64_t j = 0; j < RUN_CHANNELS * made_cells(id); j++)
        assert_true(s->latent[j] ==
                    (made_latent(id, j) - (float)made_mean) * (float)(1 / made_std));
    for (int64_t j = 0; j < made_text_len(id) * RUN_TEXT_WIDTH; j++)
        assert_true(s->text[j] == made_text(id, j));
}

/* Reading any window of draws in any grouping gives the sample that the order says: the loader has
 * no state. */
static void reads_what_the_order_says(void **state)
{
    static const struct {
        int64_t first, n;
    } windows[] = {{0, 4}, {5, 1}, {5, 3}, {2, 4}, {SAMPLES - 2, 4}, {7 * SAMPLES + 3, 2}, {0, 4}};
    struct run run;
    struct loader *l = open_loader(&run, 4, true);
    /* mixed: batches with images and videos, and with more than one rate */
    int mixed = 0, dropped = 0, seen = 0;
    (void)state;
    for (int k = 0; k < LEN(windows); k++) {
        struct batch b = {0};
        struct err err = {0};
        bool image = false, video = false, rates = false;
        must(loader_read(l, windows[k].first, windows[k].n, 1000, &b, &err), &err);
        assert_int_equal(b.n, windows[k].n);
        for (int64_t i = 0; i < b.n; i++) {
            const struct batch_sample *s = &b.samples[i];
            sample_check(s, sample_of(l, windows[k].first + i),
                         1000 + (uint64_t)(windows[k].first + i));
            drawn_check(s, sample_of(l, windows[k].first + i), &run);
            dropped += s->drop_text, seen++;
            image |= s->t == 1, video |= s->t > 1, rates |= s->fps != b.samples[0].fps;
        }
        mixed += image && video && rates;
    }
    assert_true(mixed > 0 && dropped > 0 && dropped < seen);
    loader_close(l);
    run_release(&run);
}

/* The replicas' parts of a step are disjoint and together the step, also where dp does not divide
 * gbs. */
static void replicas_share_a_step(void **state)
{
    (void)state;
    for (int64_t dp = 1; dp <= 8; dp++)
        for (int64_t gbs = dp; gbs <= 13; gbs++) {
            struct layout l = layout_default();
            int seen[16] = {0};
            l.dp = dp;
            l.mbs = 2;
            for (int64_t r = 0; r < dp; r++) {
                int64_t at = layout_replica_first(&l, gbs, r), n = 0;
                for (int64_t m = 0; m < layout_micro_batches(&l, gbs, r); m++)
                    for (int64_t i = 0; i < layout_micro_batch_samples(&l, gbs, r, m); i++)
                        seen[at + n++]++;
                assert_int_equal(n, layout_replica_samples(&l, gbs, r));
            }
            for (int64_t i = 0; i < gbs; i++)
                assert_int_equal(seen[i], 1);
        }
}

static void loss_norm_by_sample(void **state)
{
    struct run run;
    struct loader *l;
    struct batch b = {0};
    struct err err = {0};
    (void)state;
    run_make(&run, data_dir(), 8, 20);
    run.loss_norm = LOSS_NORM_SAMPLE;
    must(loader_open(&run, &run.stages[0], NULL, 4, false, 0, 1, &l, &err), &err);
    must(loader_read(l, 0, 4, 0, &b, &err), &err);
    for (int64_t i = 0; i < 4; i++)
        assert_true(b.samples[i].loss_weight == 1.0 / (double)loader_draw(l, i).elements);
    loader_close(l);
    run_release(&run);
}

static void synthetic(void **state)
{
    struct run run;
    struct loader *a, *b;
    struct batch x = {0}, y = {0};
    struct err err = {0};
    double sum = 0, squares = 0;
    int64_t n = RUN_CHANNELS * 2 * 8 * 8;
    (void)state;
    run_make(&run, "synthetic:2x8x8", 8, 20);
    must(loader_open(&run, &run.stages[0], NULL, 4, false, 0, 1, &a, &err), &err);
    must(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &b, &err), &err);
    must(loader_read(a, 4, 4, 0, &x, &err), &err);
    must(loader_read(b, 6, 2, 0, &y, &err), &err);
    /* whatever the grouping */
    assert_memory_equal(x.samples[2].latent, y.samples[0].latent, (size_t)n * sizeof(float));
    assert_memory_not_equal(x.samples[0].latent, x.samples[1].latent, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        sum += x.samples[0].latent[i], squares += pow(x.samples[0].latent[i], 2);
    assert_true(fabs(sum / (double)n) < 0.2 && fabs(squares / (double)n - 1) < 0.3);
    loader_close(a);
    loader_close(b);
    run_release(&run);
}

/* ---- packs, padding, conditioning ---- */

/* Every sample once an epoch, no pack above its tokens; the ordinals of a step's samples differ;
 * the buffers suffice. */
static void packs(void **state)
{
    enum { PACK_TOKENS = 7 };
    struct run run;
    struct loader *l;
    struct batch b = {0};
    struct err err = {0};
    int64_t samples = 0, packs = 0;
    int seen[SAMPLES] = {0};
    (void)state;
    run_make(&run, data_dir(), 8, 20);
    run.stages[0].pack_tokens = PACK_TOKENS;
    must(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &l, &err), &err);
    for (; samples < SAMPLES; packs++) {
        struct loader_draw d = loader_draw(l, packs);
        int64_t tokens = 0, elements = 0;
        for (int64_t j = 0; j < d.samples; j++) {
            int64_t sample = loader_sample(l, d.pack, j);
            assert_int_equal(seen[sample]++, 0);
            tokens += made_t(sample) * made_w(sample) / 2;
            elements += RUN_CHANNELS * made_cells(sample);
        }
        assert_true(tokens <= PACK_TOKENS && tokens == d.tokens && elements == d.elements);
        samples += d.samples;
    }
    assert_true(samples == SAMPLES && packs < SAMPLES);
    must(loader_read(l, 0, 2, 50, &b, &err), &err);
    for (int64_t draw = 0, i = 0; draw < 2; draw++)
        for (int64_t j = 0; j < loader_draw(l, draw).samples; j++, i++) {
            int64_t id = loader_sample(l, loader_draw(l, draw).pack, j);
            sample_check(&b.samples[i], id, (uint64_t)(50 + draw) | (uint64_t)j << 48);
            drawn_check(&b.samples[i], id, &run);
        }
    assert_true(b.n > 2 && b.n <= loader_bounds(l).samples &&
                loader_bounds(l).tokens <= 2 * PACK_TOKENS);
    loader_close(l);
    run.stages[0].pack_tokens = 1;
    must_fail(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &l, &err), ERR_INPUT, &err,
              "a pack takes 1: give a larger pack_tokens");
    run_release(&run);
}

/* Element j of the padded sample: what is stored where there are cells, zeros behind; the mask of
 * cells as last channel. */
static void padded_check(const struct batch_sample *s, int64_t id, int64_t j)
{
    int64_t k = j % s->w, h = j / s->w % s->h, t = j / s->w / s->h,
            cells = (int64_t)s->t * s->h * s->w, w = made_w(id);
    bool valid = t < made_t(id) && h < MADE_H && k < w;
    for (int64_t c = 0; c < RUN_CHANNELS; c++) {
        float want = valid ? (made_latent(id, ((c * made_t(id) + t) * MADE_H + h) * w + k) -
                              (float)made_mean) *
                                 (float)(1 / made_std)
                           : 0;
        assert_true(s->latent[c * cells + j] == want);
        assert_true(s->cond[c * cells + j] == 0); /* no frame is given */
    }
    assert_true(s->cond[(RUN_CHANNELS + 1) * cells + j] == valid);
}

/* A patch of 2 x 3 x 4 does not divide t x 2 x w cells: zeros behind, the norm counts what is
 * there. */
static void padding_and_conditioning(void **state)
{
    struct run run;
    struct loader *l;
    struct batch b = {0};
    struct err err = {0};
    (void)state;
    run_make(&run, data_dir(), 8, 20);
    run.model.patch_t = 2, run.model.patch_h = 3, run.model.patch_w = 4,
    run.model.cond_channels = RUN_CHANNELS + 2;
    run.loss_norm = LOSS_NORM_SAMPLE;
    must(loader_open(&run, &run.stages[0], NULL, 4, false, 0, 1, &l, &err), &err);
    must(loader_read(l, 0, 4, 0, &b, &err), &err);
    for (int64_t i = 0; i < b.n; i++) {
        const struct batch_sample *s = &b.samples[i];
        int64_t id = sample_of(l, i), t = made_t(id), w = made_w(id),
                elements = RUN_CHANNELS * made_cells(id);
        assert_true(s->t == (t + 1) / 2 * 2 && s->h == 3 && s->w == (w + 3) / 4 * 4);
        assert_true(s->valid_t == t && s->valid_h == MADE_H && s->valid_w == w);
        assert_true(s->loss_weight == 1.0 / (double)elements &&
                    loader_draw(l, i).elements == elements);
        for (int64_t j = 0; j < (int64_t)s->t * s->h * s->w; j++)
            padded_check(s, id, j);
    }
    loader_close(l);
    run_release(&run);
}

static void first_frames(void **state)
{
    struct run run;
    struct loader *l;
    struct batch b = {0};
    struct err err = {0};
    int given = 0;
    (void)state;
    run_make(&run, "synthetic:3x4x4", 8, 20);
    run.model.cond_channels = RUN_CHANNELS + 1;
    run.condition_probability = 0.5;
    run.condition_frames = 2;
    must(loader_open(&run, &run.stages[0], NULL, 16, false, 0, 1, &l, &err), &err);
    must(loader_read(l, 0, 16, 0, &b, &err), &err);
    for (int64_t i = 0; i < b.n; i++) {
        const struct batch_sample *s = &b.samples[i];
        bool coin = objective_conditioned(run.seed, s->ordinal, 0.5);
        given += coin;
        for (int64_t e = 0; e < (RUN_CHANNELS + 1) * 48; e++) {
            bool frame = coin && e % 48 < 2 * 16;
            assert_true(s->cond[e] == (!frame ? 0 : e < RUN_CHANNELS * 48 ? s->latent[e] : 1));
        }
    }
    assert_true(given > 2 && given < 14);
    loader_close(l);
    run_release(&run);
}

/* FLOPs count the captions that are there: of made_text_len tokens, or the null token. */
static void flops_of_captions(void **state)
{
    enum { PACK_TOKENS = 12, DRAWS = 4, BASE = 70 };
    struct run run;
    struct loader *l;
    struct batch b = {0};
    struct err err = {0};
    int null_tokens = 0, captions = 0;
    (void)state;
    run_make(&run, data_dir(), 8, 20);
    run.stages[0].pack_tokens = PACK_TOKENS;
    run.text_dropout = 0.5;
    must(loader_open(&run, &run.stages[0], NULL, DRAWS, false, 0, 1, &l, &err), &err);
    must(loader_read(l, 0, DRAWS, BASE, &b, &err), &err);
    for (int64_t draw = 0, i = 0; draw < DRAWS; draw++) {
        double want = 0;
        for (int64_t j = 0; j < loader_draw(l, draw).samples; j++, i++) {
            const struct batch_sample *s = &b.samples[i];
            int64_t id = loader_sample(l, loader_draw(l, draw).pack, j);
            struct seq seq = {made_t(id), MADE_H / 2, made_w(id) / 2};
            struct flops f;
            bool null_token = s->drop_text || s->text_len == 0;
            must(flops_reel_sample(&run.model, seq, null_token ? 1 : made_text_len(id), &f, &err),
                 &err);
            want += f.total;
            null_tokens += null_token;
            captions += !null_token && made_text_len(id) > 1;
        }
        assert_true(fabs(loader_flops(l, draw, BASE) / want - 1) < 1e-13);
    }
    assert_true(null_tokens > 0 && captions > 0);
    loader_close(l);
    run_release(&run);
}

/* ---- damage ---- */

static void expect_open(bool verify, int code, const char *says)
{
    struct run run;
    struct loader *l = NULL;
    struct err err = {0};
    run_make(&run, data_dir(), 8, 20);
    must_fail(loader_open(&run, &run.stages[0], NULL, 2, verify, 0, 1, &l, &err), code, &err, says);
    assert_null(l);
    run_release(&run);
}

static void damaged_shards(void **state)
{
    char shard[512], hidden[512];
    (void)state;
    snprintf(shard, sizeof shard, "%s", in_scratch("data/s1.tar"));
    snprintf(hidden, sizeof hidden, "%s", in_scratch("hidden"));
    int64_t bytes = file_bytes(shard);
    for (int64_t at = 600; at < bytes; at += 1777) { /* any byte */
        file_flip(shard, at);
        expect_open(true, ERR_CORRUPT, "s1.tar' is damaged: its checksum is not the index's");
        file_flip(shard, at);
    }
    assert_int_equal(rename(shard, hidden), 0);
    expect_open(true, ERR_INPUT, "cannot read shard");
    expect_open(false, ERR_INPUT, "s1.tar");
    assert_int_equal(rename(hidden, shard), 0);
    assert_int_equal(truncate(shard, bytes - 512), 0);
    expect_open(false, ERR_CORRUPT, "the index says");
}

/* Only the shards of one's own share are hashed; all are looked at. */
static void verification_is_shared(void **state)
{
    struct run run;
    struct loader *l;
    struct err err = {0};
    (void)state;
    file_flip(in_scratch("data/s1.tar"), 700);
    run_make(&run, data_dir(), 8, 20);
    /* Rank 0 has s0 and s2. */
    must(loader_open(&run, &run.stages[0], NULL, 2, true, 0, 2, &l, &err), &err);
    loader_close(l);
    must_fail(loader_open(&run, &run.stages[0], NULL, 2, true, 1, 2, &l, &err), ERR_CORRUPT, &err,
              "s1.tar");
    run_release(&run);
}

/* Damage that the checksum did not see, because it was not asked or came later: found at the
 * sample, which is named. */
static void damaged_sample(void **state)
{
    struct dataset d;
    struct run run;
    struct err err = {0};
    struct loader *l = open_loader(&run, 1, true);
    struct batch b = {0};
    const float nan = NAN;
    (void)state;
    must(dataset_load(in_scratch("data"), &d, &err), &err);
    const struct dataset_sample *s = &d.samples[5]; /* the second of shard 1 */
    const struct {
        int64_t at;
        const char *says;
    } cases[] = {
        {s->latent_offset, "latent.npy is not in the .npy format"},
        {s->latent_offset + 20, "latent.npy must be float32"},
        {s->text_offset + 1, "text.npy is not in the .npy format"},
    };
    int64_t draw = 0;
    while (sample_of(l, draw) != 5)
        draw++;
    for (int i = 0; i < LEN(cases); i++) {
        file_flip(in_scratch("data/s1.tar"), cases[i].at);
        must_fail(loader_read(l, draw, 1, 0, &b, &err), ERR_CORRUPT, &err, cases[i].says);
        char place[64];
        snprintf(place, sizeof place, "s1.tar', sample 1 at offset %lld", (long long)s->offset);
        assert_non_null(strstr(err.text, place));
        file_flip(in_scratch("data/s1.tar"), cases[i].at);
    }
    int fd = open(in_scratch("data/s1.tar"), O_RDWR);
    assert_int_equal(pwrite(fd, &nan, sizeof nan, s->latent_offset + s->latent_bytes - 4), 4);
    close(fd);
    must_fail(loader_read(l, draw, 1, 0, &b, &err), ERR_CORRUPT, &err, "is not finite");
    assert_int_equal(truncate(in_scratch("data/s1.tar"), s->latent_offset + 30), 0);
    must_fail(loader_read(l, draw, 1, 0, &b, &err), ERR_CORRUPT, &err, "ends before offset");
    loader_close(l);
    dataset_release(&d);
    run_release(&run);
}

/* A shard that goes away while training: named with the sample that was wanted. */
static void shard_goes_away(void **state)
{
    struct run run;
    struct err err = {0};
    struct loader *l = open_loader(&run, 1, true);
    struct batch b = {0};
    int64_t draw = 0;
    (void)state;
    while (sample_of(l, draw) != 9) /* the second of shard 2 */
        draw++;
    assert_int_equal(unlink(in_scratch("data/s2.tar")), 0);
    must_fail(loader_read(l, draw, 1, 0, &b, &err), ERR_IO, &err, "s2.tar', sample 1 at offset");
    must_fail(loader_read(l, draw, 1, 0, &b, &err), ERR_IO, &err, "cannot open it");
    loader_close(l);
    run_release(&run);
}

/* What was read ahead is given though the shard is damaged since, once and for the same draws only.
 * What could not be read ahead is told by loader_read. */
static void read_ahead(void **state)
{
    struct run run;
    struct err err = {0};
    struct loader *l = open_loader(&run, 1, true), *plain;
    struct batch a = {0}, b = {0};
    int64_t draw = 0;
    (void)state;
    must(loader_open(&run, &run.stages[0], NULL, 1, false, 0, 1, &plain, &err), &err);
    while (sample_of(l, draw) != 9) /* the second of shard 2 */
        draw++;
    must(loader_read(plain, draw, 1, 5, &a, &err), &err);
    loader_ahead(l, draw, 1, 5);
    assert_int_equal(truncate(in_scratch("data/s2.tar"), 0), 0);
    must(loader_read(l, draw, 1, 5, &b, &err), &err);
    assert_true(b.n == 1 && b.samples[0].ordinal == a.samples[0].ordinal);
    assert_memory_equal(b.samples[0].latent, a.samples[0].latent,
                        (size_t)(a.samples[0].t * a.samples[0].h * a.samples[0].w) * sizeof(float));
    must_fail(loader_read(l, draw, 1, 5, &b, &err), ERR_CORRUPT, &err, "ends before offset");
    loader_ahead(l, draw, 1, 5);
    must_fail(loader_read(l, draw, 1, 5, &b, &err), ERR_CORRUPT, &err, "ends before offset");
    while (sample_of(l, draw) > 3) /* of another shard */
        draw++;
    loader_ahead(l, draw, 1, 5);
    must(loader_read(l, draw, 1, 6, &b, &err), &err);
    assert_true(b.samples[0].ordinal == (uint64_t)draw + 6);
    loader_close(l);
    loader_close(plain);
    run_release(&run);
}

/* A shard whose place another one took while training: it is not read at the old one's offsets. */
static void shard_is_replaced(void **state)
{
    struct run run;
    struct err err = {0};
    struct loader *l = open_loader(&run, 1, true);
    struct batch b = {0};
    int64_t draw = 0, bytes = file_bytes(in_scratch("data/s2.tar"));
    (void)state;
    while (sample_of(l, draw) != 9) /* the second of shard 2 */
        draw++;
    assert_int_equal(truncate(in_scratch("data/s2.tar"), bytes + 512), 0);
    must_fail(loader_read(l, draw, 1, 0, &b, &err), ERR_CORRUPT, &err, "the index says");
    assert_int_equal(truncate(in_scratch("data/s2.tar"), bytes), 0);
    must(loader_read(l, draw, 1, 0, &b, &err), &err);
    loader_close(l);
    run_release(&run);
}

/* A dataset that was made anew between binding the run and reading: the run does not take it. */
static void dataset_is_replaced(void **state)
{
    struct run run;
    struct dataset d;
    struct loader *l = NULL;
    struct err err = {0};
    (void)state;
    run_make(&run, data_dir(), 8, 20);
    must(run_bind_data(&run, NULL, &err), &err);
    must(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &l, &err), &err);
    loader_close(l);
    l = NULL;
    must(dataset_load(in_scratch("data"), &d, &err), &err);
    d.latent_mean += 1;
    must(dataset_save(in_scratch("data"), &d, &err), &err);
    must_fail(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &l, &err), ERR_INPUT, &err,
              "is no longer the one that the run was bound to");
    assert_null(l);
    dataset_release(&d);
    run_release(&run);
}

static void model_does_not_fit(void **state)
{
    struct run run;
    struct loader *l;
    struct err err = {0};
    (void)state;
    run_make(&run, data_dir(), 8, 20);
    run.model.latent_channels = 4;
    must_fail(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &l, &err), ERR_INPUT, &err,
              "latents have 3 channels, model 'small' takes 4");
    run.model.latent_channels = RUN_CHANNELS;
    run.model.text_len = 2;
    must_fail(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &l, &err), ERR_INPUT, &err,
              "a caption of 3 tokens, model 'small' takes 2");
    run.model.text_len = RUN_TEXT_LEN;
    run.model.text_width = 7;
    must_fail(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &l, &err), ERR_INPUT, &err,
              "embeddings are 5 wide, model 'small' takes 7");
    run.model.text_width = run.model.text_len = 0; /* a model without captions leaves them unread */
    must(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &l, &err), &err);
    loader_close(l);
    run.model.text_width = RUN_TEXT_WIDTH;
    run.model.text_len = RUN_TEXT_LEN;
    run.model.pos_t = run.model.pos_h = run.model.pos_w = 3;
    run.model.patch_w = 1;
    must_fail(loader_open(&run, &run.stages[0], NULL, 2, false, 0, 1, &l, &err), ERR_INPUT, &err,
              "sample 0: 1 x 1 x 4 tokens");
    run_release(&run);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy_table), cmocka_unit_test(npy_cut_anywhere),
        cmocka_unit_test(npy_halves), cmocka_unit_test(every_sample_once_an_epoch),
        cmocka_unit_test(reads_what_the_order_says), cmocka_unit_test(replicas_share_a_step),
        cmocka_unit_test(loss_norm_by_sample), cmocka_unit_test(synthetic), cmocka_unit_test(packs),
        cmocka_unit_test(padding_and_conditioning), cmocka_unit_test(first_frames),
        cmocka_unit_test(flops_of_captions),
        cmocka_unit_test_setup_teardown(damaged_shards, with_data, shared_teardown),
        cmocka_unit_test_setup_teardown(verification_is_shared, with_data, shared_teardown),
        cmocka_unit_test_setup_teardown(damaged_sample, with_data, shared_teardown),
        cmocka_unit_test(shard_goes_away), cmocka_unit_test(read_ahead),
        cmocka_unit_test(shard_is_replaced),
        cmocka_unit_test(dataset_is_replaced), cmocka_unit_test(model_does_not_fit),
    };
    struct CMUnitTest placed[LEN(tests)];
    for (int i = 0; i < LEN(tests); i++) { /* each in a folder of its own */
        placed[i] = tests[i];
        if (i >= 3 && !placed[i].setup_func)
            placed[i].setup_func = with_data, placed[i].teardown_func = shared_teardown;
    }
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(placed, NULL, NULL));
}
