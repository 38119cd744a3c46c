/* Checkpoints of any layout under any other, without a group: every rank's file written by itself,
 * every rank's state read by itself, every element looked at. */
// SLOW
#include "tests/lib/day.h"
#include "tests/lib/trainer_run.h"

#include <unistd.h>

#include "base/num.h"
#include "tests/lib/trainer_state.h"

/* As rank `rank` of l: all elements, and zeros between them. */
static void folder_read(const char *dir, const struct model *m, const struct param_list *params,
                        const struct layout *l, int64_t rank, int64_t step)
{
    struct ckpt_manifest manifest;
    struct holder h;
    struct err err = {0};
    int64_t filled = 0, visited;
    must(ckpt_manifest_load(dir, &manifest, &err), &err);
    assert_int_equal(manifest.meta.step, step);
    holder_open(&h, m, params, l, rank);
    must(ckpt_state_load(dir, &manifest, &h.s, &err), &err);
    visited = state_visit(&h.s, step, state_compare);
    for (int b = 0; b < CKPT_BUFFERS; b++)
        for (int64_t i = 0; i < h.bytes[b] / 8; i++)
            filled += ((double *)h.s.buffers[b])[i] != 0;
    assert_true(step % 4096 > 0 && filled == visited);
    holder_close(&h);
    ckpt_manifest_release(&manifest);
}

static const char *const layouts[] = {
    "dp=1", "dp=2", "dp=2,zero=1", "dp=3,zero=2", "dp=4,zero=3", "dp=4,zero=1,fsdp=2",
    "dp=4,fsdp=4", "cp=2,dp=2,zero=3,fsdp=4", "cp=2,zero=3,fsdp=2", "tp=2", "tp=4,sp=1",
    "tp=8,sp=1", "tp=4,dp=2,zero=3", "pp=2", "pp=2,vpp=2,dp=2,zero=3", "pp=3,dp=2,zero=1", "pp=4",
    "tp=2,pp=2,dp=2,zero=1", "tp=2,cp=2,dp=2,zero=2,fsdp=2", "dp=8,zero=3",
};

static const struct finetune plain;

/* Frozen weights, adapters beside some of them, groups that train others. */
static struct finetune adapted(void)
{
    return (struct finetune){
        .n_groups = 1, .groups = {{.match = "*.cross.*", .lr_scale = 1, .trainable = FINETUNE_ON}},
        .lora = {.rank = 3, .alpha = 1, .n_matches = 3,
                 .match = {"*.attn.qkv.*", "*.fc?.*", "time_mlp.0.*"}}};
}

/* Every layout's files under some others a day, which are others the next day: of the first model each
 * with three or four, with RESUMES=all with all; of the others each with one or two. */
static void pairs(const struct model *m, const struct finetune *finetune, int stride)
{
    struct param_list params;
    struct err err = {0};
    must(finetune_params(m, finetune, &params, &err), &err);
    for (int a = 0; a < LEN(layouts); a++) {
        struct layout from = layout_of_text(layouts[a]);
        char path[LIMIT_PATH_BYTES];
        snprintf(path, sizeof path, "%s", in_scratch("folder"));
        folder_write(path, m, finetune, &params, &from, a + 1, state_put);
        for (int b = 0; b < LEN(layouts); b++) {
            if (!day_has(a + b, stride))
                continue;
            struct layout to = layout_of_text(layouts[b]);
            for (int64_t rank = 0; rank < layout_world(&to); rank++)
                folder_read(path, m, &params, &to, rank, a + 1);
        }
    }
    params_release(&params);
}

static void any_layout_reads_any_layout(void **state)
{
    struct model m = wide_model(MODEL_DIT, ADALN_LORA_SEPARATE);
    const char *wish = getenv("RESUMES");
    (void)state;
    pairs(&m, &plain, wish && strcmp(wish, "all") == 0 ? 1 : 6);
}

static void of_other_families_too(void **state)
{
    struct model m[] = {wide_model(MODEL_MOVIEGEN, ADALN_FULL),
                        wide_model(MODEL_STDIT, ADALN_LORA_FUSED),
                        wide_model(MODEL_DIT, ADALN_NONE)};
    struct finetune finetune = adapted();
    (void)state;
    pairs(&m[1], &finetune, 12);
    for (int i = 0; i < LEN(m); i++)
        pairs(&m[i], &plain, 20);
}

/* A rank that comes back under its old layout needs no other rank's file, copies of tensors
 * notwithstanding. */
static void the_old_layout_reads_its_own_files(void **state)
{
    static const char *const alone[] = {"dp=4,zero=3", "tp=4", "tp=2,pp=2,dp=2,zero=3",
                                        "pp=2,vpp=2", "tp=8,sp=1"};
    struct model m = wide_model(MODEL_DIT, ADALN_FULL);
    struct param_list params;
    struct err err = {0};
    (void)state;
    must(params_build(&m, &params, &err), &err);
    for (int a = 0; a < LEN(alone); a++) {
        struct layout l = layout_of_text(alone[a]);
        char dir[LIMIT_PATH_BYTES];
        snprintf(dir, sizeof dir, "%s", in_scratch("folder"));
        for (int64_t rank = 0; rank < layout_world(&l); rank++) {
            folder_write(dir, &m, &plain, &params, &l, 7, state_put);
            for (int64_t other = 0; other < layout_world(&l); other++) {
                char path[LIMIT_PATH_BYTES + 32];
                snprintf(path, sizeof path, "%s/rank-%05d.bin", dir, (int)other);
                if (other != rank)
                    assert_int_equal(unlink(path), 0);
            }
            folder_read(dir, &m, &params, &l, rank, 7);
        }
    }
    params_release(&params);
}

/* Whole tensors, for the commands. */
static void a_source_reads_whole_tensors(void **state)
{
    struct model m = wide_model(MODEL_DIT, ADALN_LORA_SINGLE);
    struct finetune finetune = adapted();
    struct param_list params;
    struct err err = {0};
    (void)state;
    must(finetune_params(&m, &finetune, &params, &err), &err);
    double *all = malloc((size_t)params.total * sizeof *all);
    for (int a = 0; a < LEN(layouts); a++) {
        struct layout l = layout_of_text(layouts[a]);
        struct ckpt_manifest manifest;
        struct ckpt_source *source;
        char dir[LIMIT_PATH_BYTES];
        snprintf(dir, sizeof dir, "%s", in_scratch("folder"));
        folder_write(dir, &m, &finetune, &params, &l, 5, state_put);
        must(ckpt_manifest_load(dir, &manifest, &err), &err);
        must(ckpt_source_open(dir, &manifest, &source, &err), &err);
        for (int b = 0; b < CKPT_BUFFERS; b++)
            for (int64_t t = 0; t < params.n; t++) {
                bool trained = params.items[t].flags & PARAM_TRAINABLE;
                assert_int_equal(ckpt_source_has(source, (enum ckpt_buffer)b, t),
                                 trained || b == CKPT_WEIGHTS || b == CKPT_EMA);
                if (!trained && (b == CKPT_M || b == CKPT_V))
                    continue;
                must(ckpt_source_read(source, (enum ckpt_buffer)b, t, all, &err), &err);
                for (int64_t i = 0; i < params.items[t].count; i++)
                    state_compare(&all[i], state_number(5, trained ? b : CKPT_WEIGHTS, t, i));
            }
        ckpt_source_close(source);
        ckpt_manifest_release(&manifest);
    }
    free(all);
    params_release(&params);
}

#define ALONE(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE(any_layout_reads_any_layout), ALONE(of_other_families_too),
        ALONE(the_old_layout_reads_its_own_files), ALONE(a_source_reads_whole_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
