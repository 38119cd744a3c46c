/* This file counts the floating-point operations of a training step by two named formulas. A
 * multiply-add counts as 2, and a step as 3 x forward.
 *
 * flops_reel/3, one sample of s tokens with a caption of c (D hidden, L layers):
 *     linear      6 · W_token · s       W_token: weights flagged PARAM_PER_TOKEN (projections, MLP,
 *                                       patch embedding, head) or PARAM_TIED (a tied head)
 *     per_text    6 · W_text · c        cross-attention's K/V projections and the MLP on text,
 *                                       applied to text tokens
 *     per_sample  6 · W_sample          AdaLN and the conditioning embedders, once a sample
 *     self_attn   12 · D · pairs · L    pairs: (query, key) pairs that attend. s² when all tokens
 *                                       see all others; stdit adds t·(h·w)² spatial and h·w·t²
 *                                       temporal; gpt and llama count the causal half, s²/2
 *     cross_attn  12 · D · s · c · L
 * 12 is 3 (forward + backward) x 2 products (QK^T and PV) x 2. Norms, activations, softmax and the
 * optimizer are left out, as everywhere in the field. Recomputation is not counted.
 *
 * flops_seed/1 is 6 · 14 · D² · L + 12 · s · D · L per token. It was recovered from the four rows
 * in which NVIDIA printed both tokens/s and TFLOPS for the models of "Training Video Foundation
 * Models with NVIDIA NeMo", and matches them to 0.5 %. It knows neither grouped queries, nor gated
 * MLPs, nor text; it serves to compare with those tables and nothing else.
 */
#include "profiles/flops.h"

void flops_seed_terms(const struct model *m, double tokens, double *linear, double *attention)
{
    double D = (double)m->hidden, L = (double)m->layers;
    if (linear)
        *linear = 84.0 * D * D * L;
    if (attention)
        *attention = 12.0 * tokens * D * L;
}

/* Returns the (query, key) pairs of all self-attentions of one layer. */
static double attention_pairs(const struct model *m, struct seq s)
{
    double tokens = (double)seq_tokens(s), frame = (double)s.h * (double)s.w, t = (double)s.t;
    if (!model_is_video(m))
        return tokens * tokens / 2;
    if (m->family == MODEL_STDIT)
        return tokens * tokens + t * frame * frame + frame * t * t;
    return tokens * tokens;
}

static void count_weights(const struct param_list *list, double tokens, double text_tokens,
                          struct flops *f)
{
    for (int64_t i = 0; i < list->n; i++) {
        const struct param *p = &list->items[i];
        double once = 6.0 * (double)p->count, work = 0;
        if (p->flags & (PARAM_PER_TOKEN | PARAM_TIED))
            f->linear += work = once * tokens;
        else if (p->flags & PARAM_PER_TEXT)
            f->per_text += work = once * text_tokens;
        else if (p->flags & PARAM_PER_SAMPLE)
            f->per_sample += work = once;
        f->by_part[p->flags & PARAM_TIED ? PART_HEAD : p->part] += work;
    }
}

int flops_reel_sample(const struct model *m, struct seq s, int64_t text, struct flops *out,
                      struct err *err)
{
    struct param_list list;
    struct flops f = {0};
    int rc = params_build(m, &list, err);
    if (rc < 0)
        return rc;
    double tokens = (double)seq_tokens(s), per_pair = 12.0 * (double)m->hidden * (double)m->layers;
    count_weights(&list, tokens, (double)text, &f);
    params_release(&list);
    f.self_attn = per_pair * attention_pairs(m, s);
    f.cross_attn = model_has_cross(m) ? per_pair * tokens * (double)text : 0;
    f.by_part[PART_ATTN] += f.self_attn;
    f.by_part[PART_CROSS] += f.cross_attn;
    f.total = f.linear + f.self_attn + f.cross_attn + f.per_text + f.per_sample;
    *out = f;
    return 0;
}

double flops_again(const struct flops *f, const struct model *m, const struct layout *l)
{
    int64_t chunk = m->layers / (l->pp * l->vpp);
    if (l->recompute != RECOMPUTE_FULL)
        return 0;
    double layers = f->by_part[PART_ATTN] + f->by_part[PART_CROSS] + f->by_part[PART_MLP],
           share = l->recompute_layers > 0 && l->recompute_layers < chunk
                       ? (double)l->recompute_layers / (double)chunk : 1;
    return layers / f->total * share / 3;
}
