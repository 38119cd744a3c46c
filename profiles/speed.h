/* speed: what a probe measured of a device's own operations: seconds by FLOPs and bytes, with a
 * share by the tokens of a micro-batch, whose working set lies in one cache or another. Pure. It
 * takes the place of peaks and curves where a device can be measured (autotune/probe.h).
 *
 * All rates are those of one rank, in CPU time, alone on its machine unless said otherwise.
 *
 *     struct speed s = speed_prior(&device, dtype);     // then the probe's
 *     speed_check(&s, err);
 *     struct speed_sums sums = speed_sums(&w, part);    // what a part of the account does
 *     struct speed_point share = speed_share(&s, w.tokens);
 *     share.gemm * speed_seconds(&s.gemm, sums.gemm_flops, sums.gemm_bytes);
 */
#ifndef PROFILES_SPEED_H
#define PROFILES_SPEED_H

#include "profiles/hw.h"
#include "profiles/work.h"

/* A class of operations takes flops / FLOP/s + bytes / B/s. */
struct speed_pair { double flops_s, bytes_s; };
static inline double speed_seconds(const struct speed_pair *p, double flops, double bytes)
{ return flops / p->flops_s + bytes / p->bytes_s; }
/* Seconds of one message, and bytes/s that leave a rank while all send. */
struct speed_link { double latency_s, bytes_s; };
/* The share of that which micro-batches of so many tokens take. */
struct speed_point { double tokens, gemm, attention, elementwise; };
enum { SPEED_POINTS = 4 };

struct speed {
    struct speed_pair gemm;             /* bytes: of both operands, and the result twice */
    struct speed_pair attention;        /* bytes: of queries, keys, values and results */
    double attention_backward;          /* seconds of a backward pass, those of a forward being 1 */
    double copy_bytes;                  /* bytes/s of elementwise operations */
    double input_s;                     /* seconds of one number of a latent */
    double update_bytes, norm_bytes;    /* bytes/s of AdamW, and of the norm of gradients */
    int n_points;                       /* 0: the share is 1 */
    struct speed_point points[SPEED_POINTS]; /* by rising tokens */
    /* share by which a step's compute time grows for each further core of the machine in use */
    double rank_loss;
    /* of messages among ranks that have a core each, and among ranks that share cores */
    struct speed_link link, link_shared;
    double step_s;                      /* seconds of one step in which nothing computes */
};
/* Describes a rate, for tables. A NULL name ends the list. */
struct speed_info { const char *name, *unit, *source; double lo, hi; size_t offset; };
extern const struct speed_info speed_table[];

/* Returns rates that follow from a device's published or measured peak. */
struct speed speed_prior(const struct device *d, enum dtype dtype);
/* Returns ERR_INPUT when a rate is not positive and finite. */
int speed_check(const struct speed *s, struct err *err);
/* Interpolates the shares by the logarithm of tokens; past either end they are those of the end. */
struct speed_point speed_share(const struct speed *s, double tokens);
/* The operations of a part do this much; attention's forward and backward are apart. */
struct speed_sums { double gemm_flops, gemm_bytes, attn_flops[2], attn_bytes[2], bytes, numbers; };
struct speed_sums speed_sums(const struct work *w, enum work_part_id part);

#endif
