/* Computes adapters beside a product with weight W [out, in]: y = x Wᵀ + s (x Aᵀ) Bᵀ, s = alpha /
 * rank.
 *
 *     u = x Aᵀ [rows, rank]        recomputed in backward, from the same x
 *     du = s dy B                  dB = s dyᵀ u,  dA = duᵀ x,  dx += du A
 *
 * The sums over tp ranks that W needs suffice for the adapters. If W is cut by rows (a rank has a
 * part of y's columns), B is cut likewise and u is the same on all ranks; du, and the dx that
 * follows from it, are partial sums like those of W. If W is cut by columns (a rank has a part of
 * x's columns), A is cut likewise; u, and what it adds to y, are partial sums like those of W. The
 * gradient of A or B, whichever is replicated, is then a partial sum: see profiles/shard.c.
 */
#include "trainer/dit/dit_priv.h"

/* Returns the index of a weight's adapter A, which B follows; -1: there is none. */
static int64_t adapter_of(const struct dit *d, int64_t param)
{
    const struct param_list *list = d->c.params;
    return param + 1 < list->n && list->items[param + 1].lora == PARAM_LORA_A ? param + 1 : -1;
}

bool dit_lora_has(const struct dit *d, int64_t param) { return adapter_of(d, param) >= 0; }

static void multiply(struct dit *d, struct ops_gemm g) { d->o->gemm(d->o, d->stream, &g); }

static struct tensor low_of(struct dit *d, struct tensor x, int64_t a)
{
    struct tensor low = dit_buffer(d, DIT_LORA_LOW, 0, x.rows);
    multiply(d, (struct ops_gemm){
        .a = x, .b = dit_weight(d, a), .c = low,
        .tb = true, .alpha = 1
    });
    return low;
}

static struct tensor dlow_of(struct dit *d, struct tensor dy, int64_t a)
{
    struct tensor dlow = dit_buffer(d, DIT_LORA_DLOW, 0, dy.rows);
    multiply(d, (struct ops_gemm){
        .a = dy, .b = dit_weight(d, a + 1), .c = dlow,
        .alpha = d->lora_scale
    });
    return dlow;
}

void dit_lora_add(struct dit *d, struct tensor x, int64_t param, struct tensor y)
{
    int64_t a = adapter_of(d, param);
    if (a >= 0)
        multiply(d, (struct ops_gemm){
            .a = low_of(d, x, a), .b = dit_weight(d, a + 1), .c = y,
            .tb = true, .alpha = d->lora_scale, .beta = 1
        });
}

void dit_lora_dx(struct dit *d, struct tensor dy, int64_t param, struct tensor dx)
{
    int64_t a = adapter_of(d, param);
    if (a >= 0)
        multiply(d, (struct ops_gemm){
            .a = dlow_of(d, dy, a), .b = dit_weight(d, a), .c = dx,
            .alpha = 1, .beta = 1
        });
}

void dit_lora_dw(struct dit *d, struct tensor dy, struct tensor x, int64_t param)
{
    int64_t a = adapter_of(d, param), b = a + 1;
    if (a >= 0 && dit_trained(d, b))
        multiply(d, (struct ops_gemm){
            .a = dy, .b = low_of(d, x, a), .c = dit_grad(d, b),
            .ta = true, .alpha = d->lora_scale, .beta = dit_beta(d, b)
        });
    if (a >= 0 && dit_trained(d, a))
        multiply(d, (struct ops_gemm){
            .a = dlow_of(d, dy, a), .b = x, .c = dit_grad(d, a),
            .ta = true, .alpha = 1, .beta = dit_beta(d, a)
        });
}
