#include "profiles/speed.h"

#include <math.h>
#include <string.h>

/* A backward that leaves dQ in f32 makes five products where the probe's, in bf16, makes seven. */
static const double SPARED = 2.0 / 7;

#define AT(field) offsetof(struct speed, field)
const struct speed_info speed_table[] = {
    {"gemm_flops", "FLOP/s", "probe: the model's products", 1e6, 1e17, AT(gemm.flops_s)},
    {"gemm_bytes", "B/s", "probe: the same, of operands and results", 1e6, 1e20, AT(gemm.bytes_s)},
    {"attention_flops", "FLOP/s", "probe: the model's attention", 1e6, 1e17, AT(attention.flops_s)},
    {"attention_bytes", "B/s", "probe: the same, of operands and results", 1e6, 1e20,
     AT(attention.bytes_s)},
    {"attention_backward", "1", "probe: backward, forward being 1", 0.1, 100,
     AT(attention_backward)},
    {"copy_bytes", "B/s", "probe: the model's elementwise operations", 1e6, 1e15, AT(copy_bytes)},
    {"sample_s", "s", "probe: samples and noise, for a number", 0, 1, AT(input_s[INPUT_SAMPLES])},
    {"angle_s", "s", "probe: positions, for a cosine or sine", 0, 1, AT(input_s[INPUT_ANGLES])},
    {"patch_s", "s", "probe: patches, for a number", 0, 1, AT(input_s[INPUT_PATCHES])},
    {"loss_s", "s", "probe: loss, for a number", 0, 1, AT(input_s[INPUT_LOSS])},
    {"update_bytes", "B/s", "probe: AdamW", 1e6, 1e15, AT(update_bytes)},
    {"norm_bytes", "B/s", "probe: the norm of gradients", 1e6, 1e15, AT(norm_bytes)},
    {"clear_bytes", "B/s", "probe: clearing gradients", 1e6, 1e15, AT(clear_bytes)},
    {"move_bytes", "B/s", "probe: copying arrays", 1e6, 1e15, AT(move_bytes)},
    {"rank_loss", "1", "probe: computation of one rank alone and among others", 0, 10,
     AT(rank_loss)},
    {"gemm_loss", "1", "probe: the same, of products", 0, 10, AT(loss.gemm)},
    {"attention_loss", "1", "probe: the same, of attention", 0, 10, AT(loss.attention)},
    {"elementwise_loss", "1", "probe: the same, of elementwise operations", 0, 10,
     AT(loss.elementwise)},
    {"inputs_loss", "1", "probe: the same, of inputs", 0, 10, AT(loss.inputs)},
    {"update_loss", "1", "probe: the same, of the update", 0, 10, AT(loss.update)},
    {"link_latency_s", "s", "probe: all-reduce of 8 bytes, a core each", 0, 10,
     AT(link.latency_s)},
    {"link_bytes", "B/s", "probe: all-reduce of 8 MiB, a core each", 1e3, 1e15, AT(link.bytes_s)},
    {"shared_latency_s", "s", "probe: all-reduce of 8 bytes, cores shared", 0, 10,
     AT(link_shared.latency_s)},
    {"shared_bytes", "B/s", "probe: all-reduce of 8 MiB, cores shared", 1e3, 1e15,
     AT(link_shared.bytes_s)},
    {"step_s", "s", "prior", 0, 100, AT(step_s)},
    {NULL, NULL, NULL, 0, 0, 0},
};
#undef AT

struct speed speed_prior(const struct device *d, enum dtype dtype)
{
    double peak = d->peak_flops[dtype] > 0 ? d->peak_flops[dtype] : 1e10;
    double bytes = d->memory_bytes_per_s > 0 ? d->memory_bytes_per_s : 1e10;
    double gemm = peak * (d->gemm_efficiency > 0 ? d->gemm_efficiency : 0.5),
           attention = peak * (d->attn_fwd_efficiency > 0 ? d->attn_fwd_efficiency : 0.25);
    return (struct speed){.gemm = {gemm, 1e20}, .attention = {attention, 1e20},
                          .attention_backward = 2.5, .copy_bytes = bytes,
                          .input_s = {20e-9, 10e-9, 5e-9, 10e-9}, .update_bytes = bytes,
                          .norm_bytes = bytes, .clear_bytes = bytes, .move_bytes = bytes,
                          .rank_loss = 0.05,
                          .link = {20e-6, bytes / 8}, .link_shared = {20e-6, bytes / 8},
                          .step_s = 2e-3};
}

int speed_check(const struct speed *s, struct err *err)
{
    for (const struct speed_info *i = speed_table; i->name; i++) {
        double v;
        memcpy(&v, (const char *)s + i->offset, sizeof v);
        if (!(v >= i->lo && v <= i->hi))
            return err_set(err, ERR_INPUT, "the rate %s is %g %s: give %g to %g", i->name, v,
                           i->unit, i->lo, i->hi);
    }
    return 0;
}

struct speed_sums speed_sums(const struct work *w, enum work_part_id part)
{
    const struct work_part *p = &w->parts[part];
    struct speed_sums s = {.bytes = p->bytes, .copied = p->copied};
    memcpy(s.inputs, p->inputs, sizeof s.inputs);
    for (int i = 0; i < p->n_gemms; i++) {
        const struct work_gemm *g = &p->gemms[i];
        s.gemm_flops += 2 * g->m * g->n * g->k * g->count;
        s.gemm_bytes += (g->m * g->k + g->k * g->n + 2 * g->m * g->n) * g->count * w->act_bytes;
    }
    for (int i = 0; i < p->n_attentions; i++) {
        const struct work_attention *a = &p->attentions[i];
        double width = a->dim * a->heads * a->count, spared = a->one_pass ? SPARED : 0;
        s.attn_flops[a->backward] += 4 * a->pairs * width;
        s.attn_bytes[a->backward] += 2 * (a->q + a->k) * width * w->act_bytes;
        s.spared_flops += spared * 4 * a->pairs * width;
        s.spared_bytes += spared * 2 * (a->q + a->k) * width * w->act_bytes;
    }
    return s;
}

double speed_again(const struct work *w, const struct layout *l)
{
    struct speed_sums part = speed_sums(w, WORK_LAYER_SELECTIVE),
                      full = speed_sums(w, WORK_LAYER_FULL);
    double flops = 0;
    for (int64_t i = 0; i < l->pp; i++) {
        struct work_stage s;
        work_stage(w, l, i, &s);
        flops += fmax(0, s.selective - s.there) * (part.gemm_flops + part.attn_flops[0]) +
                 fmax(0, s.full - s.there) * (full.gemm_flops + full.attn_flops[0]);
    }
    return flops * (double)(l->tp * l->cp);
}

static double mix(double a, double b, double at) { return a + (b - a) * at; }

struct speed_point speed_share(const struct speed *s, double tokens)
{
    int i = 1;
    if (s->n_points == 0)
        return (struct speed_point){tokens, 1, 1, 1};
    while (i < s->n_points - 1 && s->points[i].tokens < tokens)
        i++;
    const struct speed_point *a = &s->points[s->n_points > 1 ? i - 1 : 0],
                             *b = &s->points[s->n_points > 1 ? i : 0];
    double at = b->tokens > a->tokens ? log(tokens / a->tokens) / log(b->tokens / a->tokens) : 0;
    at = fmin(1, fmax(0, at));
    return (struct speed_point){tokens, mix(a->gemm, b->gemm, at),
                                mix(a->attention, b->attention, at),
                                mix(a->elementwise, b->elementwise, at)};
}
