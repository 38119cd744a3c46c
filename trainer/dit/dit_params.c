#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/dit/dit_priv.h"

/* Looks names up and records the first one that is missing. */
struct finder {
    const struct param_list *list;
    char missing[LIMIT_NAME_BYTES];
};

static int64_t find(struct finder *f, int64_t layer, const char *name)
{
    char full[LIMIT_NAME_BYTES];
    if (layer >= 0)
        snprintf(full, sizeof full, "blocks.%lld.%s", (long long)layer, name);
    else
        snprintf(full, sizeof full, "%s", name);
    int64_t i = params_find(f->list, full);
    if (i < 0 && !f->missing[0])
        memcpy(f->missing, full, sizeof full);
    return i;
}

static const char *const self_names[] = {"spatial", "temporal", "attn"};

/* Finds the low-rank pairs (a, b) of the form lora_separate, one pair for each sub-block. */
static void separate_units(struct finder *f, const struct model *m, int64_t layer,
                           struct dit_block_params *b)
{
    int64_t n = model_modulations(m), selves = model_self_attentions(m), D = m->hidden,
            r = m->adaln_rank;
    for (int64_t i = 0; i < n; i++) {
        const char *sub = i < selves ? self_names[i + 3 - selves] : i < n - 1 ? "cross" : "mlp";
        char a[64], w[64];
        snprintf(a, sizeof a, "adaln.%s.a.weight", sub);
        snprintf(w, sizeof w, "adaln.%s.b.weight", sub);
        b->units[i] =
            (struct mod_unit){find(f, layer, a), find(f, layer, w), i * 3 * D, 3 * D, i * r, r};
    }
    b->n_units = n;
}

static void block_units(struct finder *f, const struct model *m, int64_t layer,
                        struct dit_block_params *b)
{
    int64_t width = 3 * model_modulations(m) * m->hidden, r = m->adaln_rank;
    switch (m->adaln) {
    case ADALN_NONE:
    case ADALN_GLOBAL: /* only in plans: no run has it (run_rules.c) */
        b->n_units = 0;
        return;
    case ADALN_FULL:
        b->units[0] = (struct mod_unit){-1, find(f, layer, "adaln.weight"), 0, width, 0, 0};
        break;
    case ADALN_LORA_SEPARATE:
        separate_units(f, m, layer, b);
        return;
    case ADALN_LORA_FUSED:
        r *= model_modulations(m);
        /* fall through */
    case ADALN_LORA_SINGLE:
        b->units[0] = (struct mod_unit){
            find(f, layer, "adaln.a.weight"), find(f, layer, "adaln.b.weight"), 0, width, 0, r
        };
        break;
    }
    b->n_units = 1;
}

static struct dit_attn_params find_attention(struct finder *f, int64_t layer, const char *sub)
{
    static const char *const parts[] = {"qkv", "q_norm", "k_norm", "out"};
    int64_t at[4];
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s.weight", sub, parts[i]);
        at[i] = find(f, layer, name);
    }
    return (struct dit_attn_params){at[0], at[1], at[2], at[3]};
}

static void find_block(struct finder *f, const struct model *m, int64_t layer,
                       struct dit_block_params *b)
{
    for (int64_t i = 0; i < model_self_attentions(m); i++)
        b->self[i] = find_attention(f, layer, self_names[i + 3 - model_self_attentions(m)]);
    if (model_has_cross(m)) {
        b->cross_q = find(f, layer, "cross.q.weight");
        b->cross_kv = find(f, layer, "cross.kv.weight");
        b->cross_q_norm = find(f, layer, "cross.q_norm.weight");
        b->cross_k_norm = find(f, layer, "cross.k_norm.weight");
        b->cross_out = find(f, layer, "cross.out.weight");
    }
    b->fc1 = find(f, layer, "mlp.fc1.weight");
    b->fc2 = find(f, layer, "mlp.fc2.weight");
    block_units(f, m, layer, b);
}

static void find_cond(struct finder *f, const struct model *m, struct dit_params *p)
{
    p->time0 = find(f, -1, "time_mlp.0.weight");
    p->time2 = find(f, -1, "time_mlp.2.weight");
    p->fps0 = find(f, -1, "fps_mlp.0.weight");
    p->fps2 = find(f, -1, "fps_mlp.2.weight");
    p->cond_norm = find(f, -1, "cond_norm.weight");
    if (m->adaln == ADALN_FULL)
        p->final_unit = (struct mod_unit){
            -1, find(f, -1, "final.adaln.weight"),
            0, 2 * m->hidden, 0, 0
        };
    else
        p->final_unit = (struct mod_unit){
            find(f, -1, "final.adaln.a.weight"), find(f, -1, "final.adaln.b.weight"),
            0, 2 * m->hidden, 0, m->adaln_rank
        };
}

int dit_params_find(const struct model *m, const struct param_list *list, struct dit_params *out,
                    struct err *err)
{
    struct finder f = {.list = list};
    struct dit_params p = {.text_null = -1};
    p.blocks = calloc((size_t)m->layers, sizeof *p.blocks);
    if (!p.blocks)
        return err_set(err, ERR_NOMEM, "model %s: no memory for the tables of %lld layers", m->name,
                       (long long)m->layers);
    p.patch_embed = find(&f, -1, "patch_embed.weight");
    p.final_out = find(&f, -1, "final.out.weight");
    for (int i = 0; i < 3; i++)
        p.pos[i] = model_has_tables(m)
                       ? find(&f, -1, (const char *const[]){"pos_t.weight", "pos_h.weight",
                                                            "pos_w.weight"}[i])
                       : -1;
    if (m->adaln != ADALN_NONE)
        find_cond(&f, m, &p);
    if (model_has_cross(m))
        p.text_null = find(&f, -1, "text_null");
    for (int64_t i = 0; i < m->layers; i++)
        find_block(&f, m, i, &p.blocks[i]);
    if (f.missing[0]) {
        free(p.blocks);
        return err_set(err, ERR_INPUT,
                       "model %s: the parameter list has no '%s': build it with params_build of "
                       "this model",
                       m->name, f.missing);
    }
    *out = p;
    return 0;
}
