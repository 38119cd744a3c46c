/* speed: holds the rates that a probe measured on a device: seconds by FLOPs and bytes, times a
 * factor that depends on the tokens of a micro-batch, because they decide in which cache the
 * working set fits. Where a device can be measured (autotune/probe.h), these rates replace peaks
 * and curves. All functions are pure.
 *
 * All rates are those of one rank, in CPU time, alone on its machine unless said otherwise.
 *
 *     struct speed s = speed_prior(&device, dtype);     // then set what the probe measured
 *     speed_check(&s, err);
 *     struct speed_sums sums = speed_sums(&w, part);    // the FLOPs and bytes of a part
 *     struct speed_point share = speed_share(&s, w.tokens);
 *     share.gemm * speed_seconds(&s.gemm, sums.gemm_flops, sums.gemm_bytes);
 */
#ifndef PROFILES_SPEED_H
#define PROFILES_SPEED_H

#include "profiles/hw.h"
#include "profiles/work.h"

/* Holds the rates of a class of operations, which takes flops / flops_s + bytes / bytes_s
 * seconds. */
struct speed_pair { double flops_s, bytes_s; };
static inline double speed_seconds(const struct speed_pair *p, double flops, double bytes)
{ return flops / p->flops_s + bytes / p->bytes_s; }
/* Holds the seconds of one message, and the bytes/s that leave a rank while all ranks send. */
struct speed_link { double latency_s, bytes_s; };
/* Holds the factors on these seconds for micro-batches of this many tokens. */
struct speed_point { double tokens, gemm, attention, elementwise; };
enum { SPEED_POINTS = 4 };
/* Holds the shares by which each class grows for each further core in use: products mostly wait for
 * the core, others for caches and memory, which ranks share. */
struct speed_loss { double gemm, attention, elementwise, inputs, update; };

struct speed {
    struct speed_pair gemm;             /* its bytes: both operands, and the result twice */
    struct speed_pair attention;        /* its bytes: queries, keys, values and results */
    double attention_backward;          /* seconds of a backward / seconds of a forward */
    double copy_bytes;                  /* bytes/s of elementwise operations */
    double input_s[WORK_INPUTS];        /* seconds of one number */
    double update_bytes, norm_bytes;    /* bytes/s of AdamW, and of the norm of gradients */
    double clear_bytes, move_bytes;     /* bytes/s of clearing arrays, and of copying them */
    int n_points;                       /* 0: all factors are 1 */
    struct speed_point points[SPEED_POINTS]; /* in order of rising tokens */
    /* share by which a step's compute time grows for each further core of the machine in use, and
     * that of each class */
    double rank_loss;
    struct speed_loss loss;
    /* links between ranks that have a core each, and between ranks that share cores */
    struct speed_link link, link_shared;
    double step_s;                      /* seconds of one step in which nothing computes */
};
/* Describes a rate, for tables. A NULL name ends the list. */
struct speed_info { const char *name, *unit, *source; double lo, hi; size_t offset; };
extern const struct speed_info speed_table[];

/* Returns rates derived from a device's published or measured peak. */
struct speed speed_prior(const struct device *d, enum dtype dtype);
/* Returns ERR_INPUT when a rate is outside its bounds in speed_table. */
int speed_check(const struct speed *s, struct err *err);
/* Interpolates the factors linearly in the logarithm of tokens; beyond the first and last point
 * they are constant. */
struct speed_point speed_share(const struct speed *s, double tokens);
/* Holds the FLOPs, bytes and numbers of a part's operations; index 0 of attention is its forward, 1
 * its backward. Of the backward's, `spared` take no time, because the probe's makes more products
 * for as many FLOPs than one in one pass does. That holds for rates of a CPU; for those of a
 * GPU, whose backward makes as many products in a ring as elsewhere, nothing may be spared. */
struct speed_sums {
    double gemm_flops, gemm_bytes, attn_flops[2], attn_bytes[2], spared_flops, spared_bytes;
    double bytes, copied, inputs[WORK_INPUTS];
};
struct speed_sums speed_sums(const struct work *w, enum work_part_id part);
/* Returns the FLOPs of products and attention that the backward of one micro-batch repeats on all
 * tp · cp · pp ranks that compute it together. */
double speed_again(const struct work *w, const struct layout *l);

#endif
