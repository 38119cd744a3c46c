/* First weights from a file or a checkpoint: every number where it belongs, under whatever layout
 * the ranks have; names, lacks, tables of other sizes, and what is refused. */
#include "tests/lib/trainer_rig.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "base/safetensors.h"
#include "trainer/ckpt/ckpt.h"
#include "trainer/ckpt/warm_start.h"

static struct str told;
static void tell(void *ctx, const char *line) { (void)ctx, str_addf(&told, "%s\n", line); }

/* With position tables. */
static void rig_open(struct rig *r, const char *layout)
{
    struct err err = {0};
    r->b = rig_bench_take(DTYPE_F64);
    run_make(&r->run, "synthetic:1x4x4", 8, 20);
    r->run.model.hidden = 16, r->run.model.heads = 4, r->run.model.ffn = 12;
    r->run.model.adaln = ADALN_NONE, r->run.model.adaln_rank = 0;
    r->run.model.pos_t = 4, r->run.model.pos_h = r->run.model.pos_w = 2;
    r->run.model.family = MODEL_MOVIEGEN;
    r->run.adamw.ema_decay = 0.9;
    must(layout_parse(layout, &r->layout, &err), &err);
    must(finetune_params(&r->run.model, &r->run.finetune, &r->params, &err), &err);
    must(shards_build(&r->run.model, &r->params, &r->layout, world->rank, &r->sh, &err), &err);
    must(comm_bind(world, r->b.dev, NULL, &err), &err);
    must(comm_grid_open(world, &r->layout, &r->run.model, &r->grid, &err), &err);
    struct optim_conf conf = {&r->params, &r->sh,   &r->run,  &r->layout,
                              world,      &r->grid, r->b.ops, r->b.stream};
    must(optim_open(&r->o, &conf, &err), &err);
}

/* Numbers that f16 and bf16 have: up to 8 bits, of both signs. */
static double number(int64_t tensor, int64_t element)
{
    return (double)((tensor * 37 + element * 11) % 255 - 127) / 8;
}

static uint16_t to_bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static uint16_t to_f16(double x) /* exact ones, not subnormal */
{
    int e;
    double m = frexp(fabs(x), &e);
    return (uint16_t)((x < 0 ? 0x8000 : 0) |
                      (x == 0 ? 0 : (e + 14) << 10 | ((int)ldexp(m, 11) & 1023)));
}

static const char *const dtypes[] = {"F32", "BF16", "F16", "F64"};

static void element_put(char *raw, const char *dtype, int64_t j, double x)
{
    if (strcmp(dtype, "F32") == 0)
        ((float *)(void *)raw)[j] = (float)x;
    else if (strcmp(dtype, "F64") == 0)
        ((double *)(void *)raw)[j] = x;
    else
        ((uint16_t *)(void *)raw)[j] = strcmp(dtype, "F16") == 0 ? to_f16(x) : to_bf16(x);
}

/* without: tensor left out, -1 none; rows_t: 0 the model's, -1 none; biases: so many tensors
 * more */
struct make { const char *prefix; int64_t without, rows_t; bool another_shape; int biases; };

/* All tensors but `without`, each in another number format, under prefix + name. */
static void file_make(const char *path, const struct param_list *params, struct make k)
{
    struct safetensors_tensor list[128] = {0};
    struct safetensors_writer *w;
    struct err err = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < params->n; i++) {
        const struct param *p = &params->items[i];
        if (i == k.without)
            continue;
        struct safetensors_tensor *t = &list[n++];
        snprintf(t->name, sizeof t->name, "%s%s", k.prefix, p->name);
        snprintf(t->dtype, sizeof t->dtype, "%s", dtypes[i % 4]);
        t->nd = p->nd;
        memcpy(t->dim, p->dim, sizeof p->dim);
        if (k.rows_t && strcmp(p->name, "pos_t.weight") == 0)
            t->dim[0] = num_max_i64(0, k.rows_t);
        if (k.another_shape && strcmp(p->name, "patch_embed.weight") == 0)
            t->dim[0]--;
    }
    for (int k_bias = 0; k_bias < k.biases; k_bias++) {
        list[n] = (struct safetensors_tensor){.nd = 1, .dim = {2}};
        snprintf(list[n].name, sizeof list[n].name, "net.%d.bias", k_bias);
        snprintf(list[n++].dtype, sizeof list[0].dtype, "F32");
    }
    must(safetensors_create(path, list, n, NULL, 0, &w, &err), &err);
    for (int64_t i = 0, at = 0; i < params->n; i++) {
        if (i == k.without)
            continue;
        int64_t count = list[at].bytes / safetensors_dtype_bytes(list[at].dtype);
        char *raw = malloc((size_t)list[at].bytes);
        for (int64_t j = 0; j < count; j++)
            element_put(raw, list[at].dtype, j, number(i, j));
        must(safetensors_add(w, raw, list[at++].bytes, &err), &err);
        free(raw);
    }
    for (int b = 0; b < k.biases; b++)
        must(safetensors_add(w, (const float[]){1, 2}, 8, &err), &err);
    must(safetensors_commit(w, &err), &err);
}

/* One rank makes it, all have it. */
static const char *file_of(const struct rig *r, struct make k)
{
    static char path[LIMIT_PATH_BYTES];
    struct err err = {0};
    double turn = 0;
    snprintf(path, sizeof path, "%s", in_scratch("w.safetensors"));
    must(comm_max(world, &turn, 1, &err), &err);
    if (world->rank == 0)
        file_make(path, &r->params, k);
    must(comm_max(world, &turn, 1, &err), &err);
    return path;
}

typedef double expected_fn(const struct rig *r, int64_t tensor, int64_t element);
static double as_numbered(const struct rig *r, int64_t tensor, int64_t element)
{
    (void)r;
    return number(tensor, element);
}

/* All that this rank holds of weights and average. */
static void weights_check(const struct rig *r, expected_fn *expected)
{
    double *weights = bench_get(&r->b, r->o.weights, r->o.n_weights * 8),
           *ema = bench_get(&r->b, r->o.ema, r->o.n_state * 8);
    int64_t seen = 0;
    for (int64_t i = 0; i < r->params.n; i++)
        for (int64_t j = 0; j < r->sh.tensors[i].count; j++) {
            struct piece own = piece_of(&r->sh, shards_unit_of(&r->sh, i), &r->sh.tensors[i], j,
                                        j + 1);
            int64_t run, global = shard_to_global(&r->sh.tensors[i], &r->params.items[i], j, &run),
                         at = r->sh.tensors[i].offset + j;
            double want = expected(r, i, global);
            if (r->layout.zero < 3 || own.n)
                assert_true(weights[r->layout.zero < 3 ? at : own.at] == want),
                    seen++;
            if (r->layout.zero < 1 || own.n)
                assert_true(ema[r->layout.zero < 1 ? at : own.at] == want);
        }
    assert_true(seen > 0);
    free(weights);
    free(ema);
}

static void map_set(struct rig *r, const char *from, const char *to)
{
    struct warm *w = &r->run.warm;
    snprintf(w->map[w->n_maps].from, LIMIT_NAME_BYTES, "%s", from);
    snprintf(w->map[w->n_maps++].to, LIMIT_NAME_BYTES, "%s", to);
}

static const char *const layouts[] = {"dp=1", "dp=2,zero=3",      "tp=2",       "tp=2,dp=2,zero=1",
                                      "tp=4", "pp=2,dp=2,zero=3", "dp=4,zero=2"};

/* Names with a prefix, four number formats, and the same from a checkpoint of what was read. */
static void every_number_in_its_place(void **state)
{
    (void)state;
    for (int l = 0; l < LEN(layouts); l++) {
        struct layout parsed;
        struct rig r;
        struct err err = {0};
        if (layout_parse(layouts[l], &parsed, &err) < 0 || layout_world(&parsed) != world->size)
            continue;
        rig_open(&r, layouts[l]);
        r.run.warm.from = file_of(&r, (struct make){"net.", -1, 0, false});
        map_set(&r, "net.blocks.*", "blocks.*");
        map_set(&r, "net.*", "*");
        must(warm_start(&r.o, NULL, NULL, NULL, &err), &err);
        weights_check(&r, as_numbered);
        struct ckpt_meta meta = {.step = 3}, written;
        must(ckpt_save(&(struct ckpt_writer){.run_dir = scratch}, &r.o, &meta, 2, &written, &err),
             &err);
        must(optim_init(&r.o, &err), &err);
        r.run.warm = (struct warm){.from = in_scratch("ckpt/step-00000003")};
        must(warm_start(&r.o, NULL, NULL, NULL, &err), &err);
        weights_check(&r, as_numbered);
        assert_int_equal(r.o.updates, 0);
        optim_rig_close(&r);
    }
}

static int64_t lacking;
static double drawn_where_lacking(const struct rig *r, int64_t tensor, int64_t element)
{
    double value = number(tensor, element);
    if (tensor == lacking)
        first_values(&r->params.items[tensor], r->run.seed, element, 1, &value);
    return value;
}

static void what_is_missing(void **state)
{
    struct rig r;
    struct err err = {0};
    char dp[16];
    (void)state;
    snprintf(dp, sizeof dp, "dp=%d", world->size);
    rig_open(&r, dp);
    lacking = params_find(&r.params, "blocks.0.mlp.fc1.weight");
    r.run.warm.from = file_of(&r, (struct make){"", lacking, 0, false});
    must_fail(warm_start(&r.o, tell, NULL, NULL, &err), ERR_INPUT, &err,
              "has no tensor 'blocks.0.mlp.fc1.weight'");
    r.run.warm.partial = true;
    must(warm_start(&r.o, tell, NULL, NULL, &err), &err);
    weights_check(&r, drawn_where_lacking);
    assert_non_null(strstr(
        told.p,
        "1 tensors that the source has not keep their first values: 'blocks.0.mlp.fc1.weight'"));
    optim_rig_close(&r);
}

/* A tensor of the source that the model has no place for is part of what the source computes. */
static void what_is_not_used(void **state)
{
    struct rig r;
    struct warm_count count = {0};
    struct err err = {0};
    char dp[16];
    (void)state;
    snprintf(dp, sizeof dp, "dp=%d", world->size);
    rig_open(&r, dp);
    r.run.warm.from = file_of(&r, (struct make){"", -1, 0, false, 6});
    must_fail(warm_start(&r.o, tell, NULL, &count, &err), ERR_INPUT, &err,
              "holds 6 that the model has no place for, and would not be itself without: "
              "'net.0.bias', 'net.1.bias', 'net.2.bias', 'net.3.bias', 'net.4.bias', 'net.5.bias': "
              "give their names");
    assert_int_equal(count.tensors, 0);
    r.run.warm.partial = true;
    must(warm_start(&r.o, tell, NULL, &count, &err), &err);
    assert_true(count.tensors == r.params.n && count.taken == r.params.n && count.missing == 0 &&
                count.unused == 6);
    assert_non_null(strstr(told.p, "6 tensors of the source are not used: 'net.0.bias'"));
    r.run.warm.partial = false;
    file_of(&r, (struct make){"", -1, 0, false, 60});
    must_fail(warm_start(&r.o, tell, NULL, &count, &err), ERR_INPUT, &err,
              "'net.14.bias' and 45 more ('reel-train ckpt fits RUN.json' lists them all): give");
    /* of two for one name neither is left out in silence */
    map_set(&r, "net.4.bias", "pos_w.weight");
    must_fail(warm_start(&r.o, tell, NULL, &count, &err), ERR_INPUT, &err,
              "are both mapped to 'pos_w.weight'");
    optim_rig_close(&r);
}

/* Two rows a, b of the source become four: a, (3a + b) / 4, (a + 3b) / 4, b. */
static double four_of_two(const struct rig *r, int64_t tensor, int64_t element)
{
    if (strcmp(r->params.items[tensor].name, "pos_t.weight") != 0)
        return number(tensor, element);
    int64_t row = element / 16, col = element % 16;
    double a = number(tensor, col), b = number(tensor, 16 + col);
    return row == 0 ? a : row == 1 ? (3 * a + b) / 4 : row == 2 ? (a + 3 * b) / 4 : b;
}

static void a_table_of_other_rows(void **state)
{
    struct rig r;
    struct err err = {0};
    char dp[16];
    (void)state;
    snprintf(dp, sizeof dp, "dp=%d", world->size);
    rig_open(&r, dp);
    r.run.warm.from = file_of(&r, (struct make){"", -1, 2, false});
    must(warm_start(&r.o, tell, NULL, NULL, &err), &err);
    assert_non_null(
        strstr(told.p, "init: interpolated: pos_t.weight, 2 rows of the source for 4\n"));
    weights_check(&r, four_of_two);
    optim_rig_close(&r);
}

static void refused(void **state)
{
    struct rig r;
    struct err err = {0};
    struct stat st;
    char dp[16];
    (void)state;
    snprintf(dp, sizeof dp, "dp=%d", world->size);
    rig_open(&r, dp);
    r.run.warm.from = in_scratch("none");
    must_fail(warm_start(&r.o, NULL, NULL, NULL, &err), ERR_NOT_FOUND, &err, "none");
    r.run.warm.from = file_of(&r, (struct make){"", -1, 0, true});
    must_fail(warm_start(&r.o, NULL, NULL, NULL, &err), ERR_INPUT, &err,
              "tensor 'patch_embed.weight' has shape [15,");
    r.run.warm.from = file_of(&r, (struct make){"", -1, -1, false});
    must_fail(warm_start(&r.o, NULL, NULL, NULL, &err), ERR_INPUT, &err,
              "tensor 'pos_t.weight' has shape [0, 16]");
    r.run.warm.from = file_of(&r, (struct make){"x.", -1, 0, false});
    must_fail(warm_start(&r.o, NULL, NULL, NULL, &err), ERR_INPUT, &err, "none of its ");
    map_set(&r, "x.*", "*");
    map_set(&r, "y", "z");
    must(warm_start(&r.o, NULL, NULL, NULL, &err), &err);
    snprintf(r.run.warm.map[1].from, LIMIT_NAME_BYTES, "x.pos_w.weight"),
        snprintf(r.run.warm.map[1].to, LIMIT_NAME_BYTES, "pos_h.weight");
    must(warm_start(&r.o, NULL, NULL, NULL, &err), &err); /* the first rule decides */
    r.run.warm.map[2] = r.run.warm.map[0], r.run.warm.map[0] = r.run.warm.map[1],
    r.run.warm.map[1] = r.run.warm.map[2];
    must_fail(warm_start(&r.o, NULL, NULL, NULL, &err), ERR_INPUT, &err,
              "are both mapped to 'pos_h.weight'");
    r.run.warm.n_maps = 0;
    must(warm_hash(r.run.warm.from, &r.run.warm.hash, &err), &err);
    r.run.warm.hash.lo ^= 1;
    must_fail(warm_start(&r.o, NULL, NULL, NULL, &err), ERR_INPUT, &err, "the run was made for");
    r.run.warm.hash = (struct hash128){0};
    double turn = 0;
    must(comm_max(world, &turn, 1, &err), &err);
    if (world->rank == 0) {
        assert_int_equal(stat(r.run.warm.from, &st), 0);
        assert_int_equal(truncate(r.run.warm.from, st.st_size - 8), 0);
    }
    must(comm_max(world, &turn, 1, &err), &err);
    must_fail(warm_start(&r.o, NULL, NULL, NULL, &err), ERR_CORRUPT, &err, "w.safetensors");
    optim_rig_close(&r);
}

#define SHARED(f) cmocka_unit_test_setup_teardown(f, shared_setup, shared_teardown)
int main(int argc, char **argv)
{
    world_open(argc, argv);
    const struct CMUnitTest tests[] = {SHARED(every_number_in_its_place), SHARED(what_is_missing),
                                       SHARED(what_is_not_used), SHARED(a_table_of_other_rows),
                                       SHARED(refused)};
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
