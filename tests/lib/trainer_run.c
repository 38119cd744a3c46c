#include "tests/lib/trainer_run.h"

struct comm *world;

void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("rank %d: %s", world ? world->rank : 0, err->text);
}

void must_fail(int rc, int code, const struct err *err, const char *wanted)
{
    if (rc != code || !strstr(err->text, wanted))
        fail_msg("%s instead of %s for '%s': %s", err_name(rc), err_name(code), wanted,
                 rc < 0 ? err->text : "");
}

void world_open(int argc, char **argv)
{
    struct err err = {0};
    int rc = getenv("OMPI_COMM_WORLD_SIZE") ? comm_mpi_open(&argc, &argv, &world, &err)
                                            : comm_self_open(&world, &err);
    if (rc < 0) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    if (world->rank > 0 && !freopen("/dev/null", "w", stdout))
        exit(1);
}

int world_close(int failures)
{
    struct err err = {0};
    double worst = failures;
    if (comm_max(world, &worst, 1, &err) < 0)
        comm_abort(world, 1);
    if (worst > 0 && failures == 0)
        printf("not ok - another rank failed\n");
    comm_close(world);
    return worst > 0;
}

int shared_setup(void **state)
{
    struct err err = {0};
    if (world->rank == 0 && scratch_setup(state) < 0)
        return -1;
    return comm_broadcast_bytes(world, scratch, sizeof scratch, 0, &err);
}

int shared_teardown(void **state)
{
    struct err err = {0};
    comm_barrier(world, &err);
    return world->rank == 0 ? scratch_teardown(state) : 0;
}

bool dealt(int64_t i, int64_t n)
{
    static int64_t day = -1;
    const char *ranks = getenv("RANKS"), *draw = getenv("DRAW");
    struct err err = {0};
    if (day < 0) {
        day = draw ? atoi(draw) : time(NULL) / (24 * 3600);
        must(comm_broadcast_bytes(world, &day, sizeof day, 0, &err), &err);
    }
    return (ranks && strcmp(ranks, "all") == 0) || (i + day) % n == 0;
}

struct comm *first_ranks(int n)
{
    struct comm *c = NULL;
    struct err err = {0};
    must(comm_split(world, "dp", world->rank < n, world->rank, &c, &err), &err);
    if (world->rank < n)
        return c;
    comm_close(c);
    return NULL;
}

struct model run_model(void)
{
    return (struct model){.name = "small", .family = MODEL_DIT, .layers = 2, .hidden = 24,
                          .heads = 2, .kv_heads = 2, .ffn = 20, .text_width = RUN_TEXT_WIDTH,
                          .text_len = RUN_TEXT_LEN, .adaln = ADALN_FULL, .patch_t = 1, .patch_h = 2,
                          .patch_w = 2, .latent_channels = RUN_CHANNELS, .rope_theta = 100};
}

void run_make(struct run *r, const char *data, int64_t gbs, int64_t steps)
{
    struct err err = {0};
    run_init(r);
    r->model = run_model();
    r->n_stages = 1;
    r->stages[0] = (struct run_stage){.data = data, .gbs = gbs, .steps = steps};
    r->adamw.lr = 1e-2;
    r->adamw.ema_decay = 0.9;
    r->warmup_steps = 0;
    r->lr_schedule = LR_COSINE;
    r->dtype = DTYPE_F64;
    r->seed = 77;
    must(run_check(r, "test", &err), &err);
}

struct plan plan_make_text(const struct run *r, const char *layout)
{
    struct plan p = {.gbs = r->stages[0].gbs, .dtype = r->dtype, .device = "cpu", .seq = {1, 2, 2}};
    struct err err = {0};
    must(layout_parse(layout, &p.layout, &err), &err);
    return p;
}

const char *data_dir(void)
{
    static char dir[512];
    snprintf(dir, sizeof dir, "%s/data", scratch);
    return dir;
}

void npy_header(struct str *out, const char *descr, const char *shape)
{
    char dict[256];
    int n = snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                     descr, shape);
    int padded = (10 + n + 1 + 63) / 64 * 64 - 10;
    str_addn(out, "\x93NUMPY\x01\x00", 8);
    str_addc(out, (char)(padded & 255));
    str_addc(out, (char)(padded >> 8));
    str_add(out, dict);
    for (int i = n; i < padded - 1; i++)
        str_addc(out, ' ');
    str_addc(out, '\n');
}

float made_latent(int64_t s, int64_t j)
{
    return (float)(((s * 31 + j * 7) % 64) - 32) / 16;
}

float made_text(int64_t s, int64_t j) { return (float)((s + j) % 8) / 8; }

int32_t made_t(int64_t s) { return 1 + (int32_t)(s / 2 % 3); }

int32_t made_w(int64_t s) { return s % 3 == 0 ? 4 : 2; }

int64_t made_cells(int64_t s) { return (int64_t)made_t(s) * MADE_H * made_w(s); }

float made_fps(int64_t s) { return s % 5 == 4 ? 0 : 10 + 3.5f * (float)(s % 5); }

int32_t made_text_len(int64_t s) { return (int32_t)(s % 4); }

void made_parts(int64_t s, struct str *latent, struct str *text)
{
    char shape[64];
    int64_t n = RUN_CHANNELS * made_cells(s);
    snprintf(shape, sizeof shape, "(%d, %d, %d, %d)", RUN_CHANNELS, made_t(s), MADE_H, made_w(s));
    npy_header(latent, "<f4", shape);
    for (int64_t j = 0; j < n; j++) {
        float v = made_latent(s, j);
        str_addn(latent, &v, sizeof v);
    }
    snprintf(shape, sizeof shape, "(%d, %d)", made_text_len(s), RUN_TEXT_WIDTH);
    npy_header(text, "<f4", shape);
    for (int64_t j = 0; j < made_text_len(s) * RUN_TEXT_WIDTH; j++) {
        float v = made_text(s, j);
        str_addn(text, &v, sizeof v);
    }
}

void made_shard(const char *path, int64_t first, int64_t n)
{
    struct wds_writer *w;
    struct err err = {0};
    must(wds_writer_open(path, &w, &err), &err);
    for (int64_t s = first; s < first + n; s++) {
        struct str latent = STR_INIT, text = STR_INIT;
        char key[32];
        snprintf(key, sizeof key, "clip-%04lld", (long long)s);
        made_parts(s, &latent, &text);
        struct wds_part parts[] = {{"latent.npy", latent.p, (int64_t)latent.len},
                                   {"text.npy", text.p, (int64_t)text.len}};
        must(wds_writer_add(w, key, parts, 2, &err), &err);
        str_release(&latent);
        str_release(&text);
    }
    must(wds_writer_close(w, NULL, &err), &err);
}

void made_index(struct wds_reader *r, int64_t s, uint32_t shard, uint32_t i,
                struct dataset_sample *out)
{
    struct wds_sample at;
    struct err err = {0};
    must(wds_reader_sample(r, i, &at, &err), &err);
    assert_int_equal(at.n_parts, 2);
    *out = (struct dataset_sample){.shard = shard, .index_in_shard = i, .offset = at.offset,
                                   .bytes = at.bytes, .latent_offset = at.parts[0].data_offset,
                                   .latent_bytes = at.parts[0].bytes,
                                   .text_offset = at.parts[1].data_offset,
                                   .text_bytes = at.parts[1].bytes, .t = made_t(s), .h = MADE_H,
                                   .w = made_w(s), .frames = 1 + 4 * (made_t(s) - 1),
                                   .height = 8 * MADE_H, .width = 8 * made_w(s),
                                   .text_len = made_text_len(s), .fps = made_fps(s),
                                   .key_hash = (uint64_t)s};
}

void dataset_make(int64_t shards, int64_t each)
{
    struct dataset_shard list[MADE_SHARDS_MAX];
    struct dataset_sample samples[MADE_SAMPLES_MAX];
    static char names[MADE_SHARDS_MAX][16];
    struct err err = {0};
    must(file_mkdirs(in_scratch("data"), &err), &err);
    for (int64_t k = 0; k < shards; k++) {
        char path[512];
        struct hash128 hash;
        struct str bytes = STR_INIT;
        struct wds_reader *r;
        snprintf(names[k], sizeof names[k], "s%lld.tar", (long long)k);
        snprintf(path, sizeof path, "%s/%s", in_scratch("data"), names[k]);
        made_shard(path, k * each, each);
        must(hash_file(path, &hash, &err), &err);
        must(file_read(path, 1 << 24, &bytes, &err), &err);
        list[k] = (struct dataset_shard){names[k], each, hash.lo, (int64_t)bytes.len};
        str_release(&bytes);
        must(wds_reader_open(path, &r, &err), &err);
        for (int64_t i = 0; i < each; i++)
            made_index(r, k * each + i, (uint32_t)k, (uint32_t)i, &samples[k * each + i]);
        wds_reader_close(r);
    }
    struct dataset d = {.n_shards = shards, .n_samples = shards * each, .shards = list,
                        .samples = samples, .channels = RUN_CHANNELS, .text_width = RUN_TEXT_WIDTH,
                        .tokenizer = "made", .text_encoder = "made", .latent_mean = made_mean,
                        .latent_std = made_std};
    must(dataset_save(in_scratch("data"), &d, &err), &err);
}

void file_flip(const char *path, int64_t at)
{
    unsigned char b;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &b, 1, at) == 1);
    b ^= 0x10;
    assert_true(pwrite(fd, &b, 1, at) == 1);
    close(fd);
}

int64_t file_bytes(const char *path)
{
    int fd = open(path, O_RDONLY);
    int64_t n = lseek(fd, 0, SEEK_END);
    assert_true(fd >= 0);
    close(fd);
    return n;
}
