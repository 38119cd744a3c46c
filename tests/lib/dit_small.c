#include "tests/lib/dit_small.h"

struct model small(enum model_adaln adaln, int64_t kv_heads, bool gated, bool text,
                   int64_t cond_channels)
{
    struct model m = {.name = "small", .family = MODEL_DIT, .layers = 2, .hidden = 24, .heads = 2,
                      .kv_heads = kv_heads, .ffn = 20, .gated_mlp = gated,
                      .text_width = text ? TEXT_WIDTH : 0, .text_len = text ? 8 : 0, .adaln = adaln,
                      .adaln_rank = adaln == ADALN_NONE || adaln == ADALN_FULL ? 0 : 3,
                      .patch_t = 1, .patch_h = 2, .patch_w = 2, .latent_channels = CHANNELS,
                      .cond_channels = cond_channels, .rope_theta = 100};
    return m;
}

void *grads_get(const struct rig *r)
{
    return bench_get(&r->b, r->grads, r->sh.trained * dtype_bytes(r->b.ops->stat));
}

double probe_loss(void *ctx)
{
    struct probe *p = ctx;
    bench_put(&p->r->b, p->r->weights, p->weights, p->r->sh.total * (int64_t)sizeof *p->weights);
    return INV_NORM * step(p->r, 0, SAMPLES, false).loss_sum;
}

void gradients_check(struct rig *r, const char *what)
{
    struct probe p = {r, bench_get(&r->b, r->weights, r->sh.total * (int64_t)sizeof(double))};
    probe_loss(&p);
    double *grad = grads_get(r);
    for (int64_t i = 0; i < r->list.n; i++) {
        struct fd_slot slot = {r->list.items[i].name, p.weights + r->sh.tensors[i].offset,
                               grad + r->sh.tensors[i].offset, r->list.items[i].count};
        if (shards_trained(&r->sh, i))
            fd_check(what, &slot, 5000 + (uint64_t)i, probe_loss, &p, 1e-7);
    }
    free(grad);
    free(p.weights);
}
