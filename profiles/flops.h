/* flops: counts the model FLOPs of one training step (forward + backward = 3 x forward) by two
 * named formulas.
 *
 * flops_seed/1 is 84·D²·L + 12·s·D·L per token, the count recovered from NVIDIA's published
 * tokens/s and TFLOPS; it serves to compare with their tables only. flops_reel/3 counts, per token
 * of a sample of s tokens and per layer, 6·(weights that multiply every token) + 12·s·D for
 * self-attention + 12·s_text·D for cross-attention. Samples in one pack do not attend to each
 * other. Work per sample and per text token is counted once per sample and per text token. MFU is
 * computed with flops_reel/3. Recomputation is not counted. Causal attention is counted with half
 * the pairs. The head over a vocabulary is counted, even if its matrix is also the embedding.
 * (flops_reel/2 counted no work in a tied head, which makes a difference only for gpt. flops_reel/1
 * used the model's text_len as s_text, whatever the length of the caption.)
 */
#ifndef PROFILES_FLOPS_H
#define PROFILES_FLOPS_H

#include "profiles/layout.h"
#include "profiles/model.h"
#include "profiles/params.h"

struct flops {
    double linear;      /* per-token matrices: attention projections, MLP, patch embedding, head */
    double self_attn;   /* QK^T and PV of self-attention */
    double cross_attn;  /* QK^T and PV of cross-attention */
    double per_text;    /* cross K/V projections */
    double per_sample;  /* AdaLN and conditioning embedders */
    double total;       /* the sum of the five */
    double by_part[PARAM_PARTS]; /* the same total, by part of the model */
};
/* Counts one sample of `s` tokens, forward and backward. `text` is the caption's length in tokens,
 * at most the model's text_len; a dropped caption is the null token, 1. */
int flops_reel_sample(const struct model *m, struct seq s, int64_t text, struct flops *out,
                      struct err *err);

/* Returns the FLOPs that backward repeats under the layout's full recomputation, as a share of f,
 * the model FLOPs of a step. Backward repeats one forward, a third of the FLOPs, of the matrices
 * and attention of the recomputed layers. The result is 0 without full recomputation: what another
 * trainer's selective recomputation repeats is chosen by that trainer. For ours see
 * speed_again(). */
double flops_again(const struct flops *f, const struct model *m, const struct layout *l);

/* Returns the two terms of the FLOPs per token of flops_seed/1. Either pointer may be NULL. */
void flops_seed_terms(const struct model *m, double tokens, double *linear, double *attention);
#define FLOPS_REEL_VERSION "flops_reel/3"
#define FLOPS_SEED_VERSION "flops_seed/1"

#endif
