#include "tests/lib/trainer_state.h"

double state_number(int64_t salt, int buffer, int64_t tensor, int64_t global)
{
    if (tensor >= 1 << 10 || global >= 1 << 28)
        fail_msg("tensor %d, element %d has no number of its own", (int)tensor, (int)global);
    return (double)(((salt % 4096 * 4 + buffer) * 1024 + tensor) * (INT64_C(1) << 28) + global);
}

int64_t state_place(const struct ckpt_state *s, int buffer,
                    const struct shard_unit *u, const struct shard_tensor *t,
                    int64_t local)
{
    if (buffer == CKPT_WEIGHTS ? s->zero < 3 : s->zero < 1)
        return t->offset + local;
    int64_t each = u->elements / s->sh->group,
            in_piece = t->offset + local - u->offset - s->sh->group_rank * each;
    return in_piece >= 0 && in_piece < each ? u->offset / s->sh->group + in_piece : -1;
}

void state_put(double *element, double number) { *element = number; }

void state_compare(double *element, double number)
{
    if (*element != number)
        fail_msg("%.0f instead of %.0f: buffer %d, tensor %d, element %d", *element, number,
                 (int)(number / 0x1p38) % 4, (int)((int64_t)number >> 28) % 1024,
                 (int)((int64_t)number & ((1 << 28) - 1)));
}

int64_t state_visit(const struct ckpt_state *s, int64_t salt, state_fn *fn)
{
    int64_t visited = 0;
    for (int b = 0; b < CKPT_BUFFERS; b++)
        for (int64_t i = 0; s->buffers[b] && i < s->sh->n_tensors; i++)
            for (int64_t j = 0, run;
                 (b == CKPT_WEIGHTS || shards_trained(s->sh, i)) && j < s->sh->tensors[i].count;
                 j += run) {
                int64_t global = shard_to_global(&s->sh->tensors[i], &s->params->items[i], j, &run);
                const struct shard_unit *unit = shards_unit_of(s->sh, i);
                for (int64_t e = 0; e < run; e++) {
                    int64_t at = state_place(s, b, unit, &s->sh->tensors[i], j + e);
                    if (at >= 0)
                        fn((double *)s->buffers[b] + at, state_number(salt, b, i, global + e)),
                            visited++;
                }
            }
    return visited;
}

void holder_open(struct holder *h, const struct model *m,
                 const struct param_list *params, const struct layout *l,
                 int64_t rank)
{
    struct err err = {0};
    *h = (struct holder){0};
    must(shards_build(m, params, l, rank, &h->sh, &err), &err);
    h->s = (struct ckpt_state){
        .params = params, .sh = &h->sh, .zero = l->zero, .dtype = DTYPE_F64, .act = DTYPE_F64};
    for (int b = 0; b < CKPT_BUFFERS; b++) {
        bool whole = b == CKPT_WEIGHTS ? l->zero < 3 : l->zero < 1;
        int64_t all = b == CKPT_WEIGHTS ? h->sh.total : h->sh.trained;
        h->bytes[b] = (whole ? all : all / h->sh.group) * 8;
        h->s.buffers[b] = calloc(1, (size_t)h->bytes[b]);
        assert_non_null(h->s.buffers[b]);
    }
}

void holder_close(struct holder *h)
{
    for (int b = 0; b < CKPT_BUFFERS; b++)
        free(h->s.buffers[b]);
    shards_release(&h->sh);
}

struct model wide_model(enum model_family family, enum model_adaln adaln)
{
    return (struct model){.name = "wide", .family = family, .layers = 4, .hidden = 16, .heads = 8,
                          .kv_heads = 2, .ffn = 24, .gated_mlp = family == MODEL_MOVIEGEN,
                          .text_width = 6, .text_len = 3, .adaln = adaln,
                          .adaln_rank = adaln == ADALN_NONE || adaln == ADALN_FULL ? 0 : 4,
                          .patch_t = 1, .patch_h = 1, .patch_w = 1, .latent_channels = 3,
                          .rope_theta = 100};
}

struct layout layout_of_text(const char *text)
{
    struct layout l;
    struct err err = {0};
    must(layout_parse(text, &l, &err), &err);
    return l;
}

void folder_write(const char *dir, const struct model *m,
                  const struct finetune *finetune, const struct param_list *params,
                  const struct layout *l, int64_t step, state_fn *put)
{
    struct ckpt_file files[64];
    struct ckpt_manifest manifest = {.meta = {.step = step}, .model = *m, .finetune = *finetune,
                                     .layout = *l, .dtype = DTYPE_F64, .ema = true, .files = files};
    struct err err = {0};
    must(file_remove_tree(dir, &err), &err);
    must(file_mkdirs(dir, &err), &err);
    for (int64_t rank = 0; rank < layout_world(l); rank++) {
        struct holder h;
        if (ckpt_file_of_rank(l, rank) < 0)
            continue;
        /* files are numbered in the order of the ranks */
        assert_int_equal(ckpt_file_of_rank(l, rank), manifest.n_files);
        holder_open(&h, m, params, l, rank);
        state_visit(&h.s, step, put);
        must(ckpt_file_write(dir, &h.s, rank, &files[manifest.n_files++], &err), &err);
        holder_close(&h);
    }
    assert_int_equal(manifest.n_files, ckpt_files(l));
    must(ckpt_manifest_write(dir, &manifest, params, &err), &err);
}
