/* This file computes how long a part and a message take. Symbols are those of profiles/work.h;
 * besides, e is a share of the peak, and h is the size at which half of that share is reached. Both
 * are constants of the operation, and e0 is e by the device's profile.
 *
 *     gemm         for each product: 2 m n k / (peak e · m/(m+h) · n/(n+h) · k/(k+h)), longer where
 *                  n or k is no multiple of 64, and longer again where it is no multiple of 8 (the
 *                  slower of the two sides counts); or
 *                  its operands' bytes / (bandwidth · copy_share) if that is longer; and never less
 *                  than 2 m n k / peak. Only products of layers may be in fp8
 *     attention    4 pairs heads d / (peak e · q/(q+h)) · attention_pace, 2.5 times the FLOPs
 *                  backward. Where the device has a curve of its fastest kernel, it stands for the
 *                  last factor: 4 pairs heads d / (peak curve(sqrt(q k)) e/e0) · attention_pace.
 *                  The share e is flash1_share of that or, on a device with fp8, flash2_share where
 *                  these kernels run. Where the scores are kept: products of 4 q k heads d, twice
 *                  backward, with the e and h of products, for q and k alone, and longer by d's
 *                  factor as above; and bytes / (bandwidth · scores_share). In bf16 an early cuBLAS
 *                  does these products at peak · unaligned_share where 8 does not divide d
 *     elementwise  (bytes · elementwise + bytes of norms · norm_passes + bytes of adding up
 *                  gradients) / (bandwidth · copy_share)
 *     launch       kernels · kernel_s; and if kernels · launch_s is longer than that and the three
 *                  above together, also the difference, computed part by part
 *
 * The first three are multiplied by the constant `compute`. Constants are named as in
 * profiles/constants.h.
 *
 * On a device that a probe measured (profiles/speed.h), products, attention and elementwise work
 * take FLOPs and bytes divided by the measured rates, times a factor of the class for a micro-batch
 * of T tokens; copies of arrays have a rate of their own; and what inputs are made of takes input_s
 * for each number of its kind.
 *
 * A message: B bytes leave each of n ranks, of which k are in each NVLink domain (a node or several
 * nodes). Inside one domain (n = k) it takes B / (link · share), and the latency of each step of
 * the ring: 2 (n - 1) steps for an all-reduce, 1 for a send, n - 1 for all others. Otherwise the
 * n/k domains form the outer ring, each edge of which carries B bytes. The G/k groups of a domain
 * with G devices share its NICs, so it takes B (G/k) / (all NICs · share), or the link's time if
 * that is longer, and the latency of log2(n/k) hops between domains and log2(k) hops inside one. In
 * an all-to-all, each rank sends (n-k)/(n-1) of B through the NICs. The same holds for leaf
 * switches: if K of a group's ranks are under a leaf of H devices, B (H/K) cross its uplinks, whose
 * bandwidth is that of its NICs divided by the oversubscription, and log2(n/K) hops pass two more
 * switches. Where the border of a domain goes through groups that a domain has room for, k are the
 * ranks on the side that has the fewest.
 *
 * Sums of tensor-parallel ranks may hide under the products of their part. If they take C seconds,
 * and the part has N products, the one that takes s seconds hides min(sum_hidden C / N, s) of them.
 * What is left of sum_hidden C hides while the device waits for the host: that is launch without
 * kernels · kernel_s. A ring hides under attention, and in what is then left of that wait. Each
 * message over tensor- or context-parallel ranks is exposed for sum_s besides, each between stages
 * for send_s.
 *
 * On a machine with `rings` (processes that exchange messages one by one), every group is priced
 * like one inside a domain.
 */
#include "autotune/price.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "profiles/work_reel.h"

void price_machine(const struct cluster *cluster, const double v[CONSTANTS], enum dtype dtype,
                   bool fp8, struct price_machine *out)
{
    const struct device *d = &cluster->device;
    struct price_machine m = {
        .cluster = cluster, .act = dtype, .act_bytes = (double)dtype_bytes(dtype)};
    memcpy(m.v, v, sizeof m.v);
    fp8 = fp8 && d->peak_flops[DTYPE_FP8] > 0;
    m.attention_flops = d->peak_flops[dtype];
    m.peak_flops = d->peak_flops[fp8 ? DTYPE_FP8 : dtype];
    m.gemm_flops = fp8 ? d->peak_flops[DTYPE_FP8] * v[CONSTANT_FP8_SHARE]
                       : d->peak_flops[dtype] * v[CONSTANT_GEMM_SHARE];
    m.wide_peak_flops = d->peak_flops[dtype];
    m.wide_gemm_flops = m.wide_peak_flops * v[CONSTANT_GEMM_SHARE];
    m.copy_bytes = d->memory_bytes_per_s * v[CONSTANT_COPY_SHARE];
    m.score_bytes = d->memory_bytes_per_s * v[CONSTANT_SCORES_SHARE];
    m.norm_bytes = m.update_bytes = m.clear_bytes = m.copy_bytes;
    if (d->cpu) /* a core needs no time to start an operation */
        m.v[CONSTANT_KERNEL_S] = 0;
    m.overlaps = true;
    *out = m;
}

/* ---- messages ---- */

struct price_group price_row(double size, double stride)
{ return (struct price_group){.size = {size, 1}, .stride = {stride, stride}}; }

static struct price_group rows(double n, double stride, double more, double more_stride)
{
    if (stride > more_stride)
        return rows(more, more_stride, n, stride);
    return (struct price_group){.size = {n, more}, .stride = {stride, more_stride}};
}

/* Returns the stride of an axis: the distance in ranks between neighbours along it. */
static double stride_of(const struct layout *l, struct layout_place one)
{ return (double)layout_rank(l, one); }

/* Returns the group of every `step`th of the dp·cp ranks that share a state, n of them. Where cp
 * and dp are neighbours in the order, with cp first, they form one row. Otherwise step and n are
 * split into factors: those that divide the extent of cp go along cp, and the others along dp. */
static struct price_group data_group(const struct layout *l, int64_t step, int64_t n)
{
    double cp = stride_of(l, (struct layout_place){.cp = 1}),
           dp = stride_of(l, (struct layout_place){.dp = 1});
    if (dp == cp * (double)l->cp)
        return price_row((double)n, cp * (double)step);
    int64_t skip = num_gcd(step, l->cp), in_cp = num_gcd(n, l->cp / skip);
    return rows((double)in_cp, cp * (double)skip, (double)(n / in_cp), dp * (double)(step / skip));
}

static struct price_group group_at(const struct layout *l, const struct model *m,
                                   enum traffic_group group)
{
    int64_t shard = layout_shard_group(l), data = l->dp * l->cp;
    double cp = stride_of(l, (struct layout_place){.cp = 1});
    switch (group) {
    case TRAFFIC_TP:
        return price_row((double)l->tp, stride_of(l, (struct layout_place){.tp = 1}));
    case TRAFFIC_CP: return price_row((double)l->cp, cp);
    case TRAFFIC_A2A: return price_row((double)layout_a2a_group(l, m), cp);
    case TRAFFIC_RING: {
        int64_t a = layout_a2a_group(l, m);
        return price_row((double)(l->cp / a), (double)a * cp);
    }
    case TRAFFIC_PP:
        return price_row((double)l->pp, stride_of(l, (struct layout_place){.pp = 1}));
    case TRAFFIC_SHARD: return data_group(l, 1, shard);
    case TRAFFIC_REPLICA: /* with zero 0 nothing is sharded */
        return l->zero ? data_group(l, shard, data / shard) : data_group(l, 1, data);
    case TRAFFIC_KV:
    case TRAFFIC_GROUPS: break;
    }
    return price_row(1, 1);
}

struct price_group price_group(const struct layout *l, const struct model *m,
                               enum traffic_group group)
{
    struct price_group g = group_at(l, m, group);
    g.world = (double)layout_world(l);
    return g;
}

static double size_of(struct price_group g) { return g.size[0] * g.size[1]; }

/* Returns how many ranks of a group are in one box (an NVLink domain, or a leaf) of this many
 * devices. A row that does not fit into the box leaves no room for another, because rows lie
 * further apart than they are long. */
static double in_box(double devices, struct price_group g)
{
    double n = 1;
    for (int i = 0; i < 2; i++)
        n *= fmin(g.size[i], fmax(1, floor(devices / g.stride[i])));
    return n;
}

static double smaller_part(double part, double all)
{
    part = fmin(part, all - part);
    return part > 0 ? part : all;
}

/* Returns the fewest ranks on one side of a border, of the groups through which it goes: `below`
 * ranks lie between the first rank of the first such group and the border. All: it goes through
 * none. Groups begin at the first ranks, and where rows lie further apart than they are long, also
 * between two rows. */
static double beside_border(struct price_group g, double below)
{
    double n = g.size[0], all = size_of(g), length = n * g.stride[0],
           apart = g.size[1] > 1 ? g.stride[1] : length, row = floor(below / apart),
           rest = fmod(below, apart), begun = floor(rest / length),
           part = fmod(rest, length) / g.stride[0];
    double least = fmin(smaller_part(row * n + floor(part), all),
                        smaller_part(row * n + ceil(part), all));
    if (begun > 0)
        least = fmin(least, smaller_part((row + 1) * n, all));
    if ((begun + 1) * length < apart)
        least = fmin(least, smaller_part(row * n, all));
    return least;
}

/* Returns how many ranks of a group are in one domain. The border of a domain may go through a
 * group that a domain has room for: on nodes of 8, one group of three neighbours has the ranks 6, 7
 * and 8. All ranks wait for that group, and what it sends goes through the NICs of its ranks on the
 * one or the other side, whichever are fewer. Leaves are seen without such groups: few messages
 * share the uplinks there. */
static double in_domain(double devices, struct price_group g)
{
    double k = in_box(devices, g), least = k, below;
    double length = g.size[1] > 1 ? g.size[1] * g.stride[1] : g.size[0] * g.stride[0];
    if (k < size_of(g))
        return k;
    for (double border = devices; border < g.world; border += devices) {
        below = fmod(border, length);
        if (below == 0) /* from here on it repeats */
            break;
        least = fmin(least, beside_border(g, below));
    }
    return least;
}

bool price_group_leaves(struct price_group g, double domain)
{ return in_domain(domain, g) < size_of(g); }

static double ring_steps(enum traffic_kind kind, double ranks)
{
    return kind == TRAFFIC_SEND_RECV ? 1 : (kind == TRAFFIC_ALL_REDUCE ? 2 : 1) * (ranks - 1);
}

/* Returns how often the bytes that leave each rank of a group cross the border of a box of this
 * many devices, of which k have ranks of the group. */
static double crossings(double devices, double k, struct price_group g, enum traffic_kind kind)
{
    double size = size_of(g);
    if (k >= size)
        return 0;
    return kind == TRAFFIC_ALL_TO_ALL ? (size - k) / (size - 1) * devices : devices / k;
}

struct price_route price_route(const struct price_machine *m, struct price_group g,
                               enum traffic_kind kind)
{
    const struct node_profile *node = &m->cluster->node;
    double devices = (double)cluster_domain_devices(m->cluster), size = size_of(g);
    double k = in_domain(devices, g), domains = size / k;
    double link = 1 / (node->link_bytes_per_s * m->v[CONSTANT_LINK_SHARE]);
    if (size <= 1)
        return (struct price_route){0, 0, 0};
    if (m->rings || domains <= 1)
        return (struct price_route){link, 0, node->link_latency_s * ring_steps(kind, size)};
    double leaf = (double)cluster_leaf_devices(m->cluster);
    double nic = (double)node->nics * node->nic_bytes_per_s * m->v[CONSTANT_NIC_SHARE] /
                 (double)node->devices; /* a device's share of them */
    double nic_s = crossings(devices, k, g, kind) / (devices * nic);
    double latency_s = node->nic_latency_s * log2(domains) + node->link_latency_s * log2(k);
    double under = leaf > 0 ? in_box(leaf, g) : size;
    if (under < size) {
        double up = leaf * nic / m->cluster->spine_oversubscription;
        nic_s = fmax(nic_s, crossings(leaf, under, g, kind) / up);
        latency_s += 2 * m->cluster->switch_latency_s * log2(size / under);
    }
    return (struct price_route){in_box(devices, g) > 1 ? link : 0, nic_s, latency_s};
}

static double route_seconds(const struct price_route *r, double bytes)
{ return fmax(bytes * r->link_s, bytes * r->nic_s) + r->latency_s; }

void price_route_busy(const struct price_route *r, double bytes, double out[PRICE_WIRES])
{
    out[PRICE_LINKS] = r->link_s > 0 ? bytes * r->link_s + r->latency_s : 0;
    out[PRICE_NICS] = r->nic_s > 0 ? bytes * r->nic_s + r->latency_s : 0;
}

double price_message(const struct price_machine *m, struct price_group g, enum traffic_kind kind,
                     double bytes)
{
    struct price_route r = price_route(m, g, kind);
    return route_seconds(&r, bytes);
}

/* ---- parts ---- */

double price_ragged(const struct price_machine *m, double side)
{
    double slow = fmod(side, 64) == 0 ? 1 : 1 / m->v[CONSTANT_RAGGED];
    return fmod(side, 8) == 0 ? slow : slow / m->v[CONSTANT_RAGGED];
}

/* Returns that factor for the depth of a product. That of a weight's gradient is a number of tokens
 * or samples. */
static double depth_ragged(const struct price_machine *m, const struct work *w, double depth)
{
    const double rows[PRICE_DEPTHS] = {w->tokens, w->samples,
                                       w->samples * (double)w->model->text_len};
    double factor = price_ragged(m, depth);
    for (int k = 0; k < PRICE_DEPTHS && m->even[k] > 0; k++)
        factor = depth == rows[k] ? fmin(factor, m->even[k]) : factor;
    return factor;
}

/* Says whether a part's products may be in fp8: those of layers may. What stands beside the layers
 * stays wide: Megatron-Core's output layer is a ColumnParallelLinear of its own, not one of
 * Transformer Engine's modules. */
static bool may_be_narrow(enum work_part_id id) { return id < WORK_FIRST_FORWARD; }

static double gemm_seconds(const struct price_machine *m, const struct work *w, bool narrow,
                           const struct work_gemm *g)
{
    double h = m->v[CONSTANT_GEMM_HALF], rate = narrow ? m->gemm_flops : m->wide_gemm_flops;
    double flops = 2 * g->m * g->n * g->k / rate * (1 + h / g->m) * (1 + h / g->n) *
                   (1 + h / g->k) * fmax(price_ragged(m, g->n), depth_ragged(m, w, g->k));
    double bytes = m->act_bytes * (g->m * g->k + g->k * g->n + g->m * g->n) / m->copy_bytes;
    return fmax(flops, bytes);
}

/* Returns the seconds of one product of a part, at the full peak at least: constants were fitted on
 * other shapes and may promise too much. */
static double product_seconds(const struct price_machine *m, const struct work *w,
                              enum work_part_id id, const struct work_gemm *g)
{
    bool narrow = may_be_narrow(id);
    return fmax(m->v[CONSTANT_COMPUTE] * gemm_seconds(m, w, narrow, g),
                2 * g->m * g->n * g->k / (narrow ? m->peak_flops : m->wide_peak_flops));
}

const struct curve *price_attention_curve(const struct price_machine *m, enum stack_attention kind,
                                          const struct work_attention *a)
{
    const struct device *d = &m->cluster->device;
    bool fastest = kind == ATTENTION_FLASH ||
                   (kind == ATTENTION_FLASH2 && !(d->peak_flops[DTYPE_FP8] > 0));
    const struct curve_case of = {.kind = a->backward ? CURVE_ATTN_BWD : CURVE_ATTN_FWD,
                                  .dtype = m->act, .causal = a->pairs < a->q * a->k,
                                  .head_dim = (int64_t)a->dim};
    const struct curve *c = fastest ? curves_find(&d->curves, &of) : NULL;
    return c && c->n > 1 && c->of.dtype == of.dtype ? c : NULL;
}

/* Returns by how much attention of this shape and mask is slower than attention_forward or
 * attention_backward say: by the device's curve, or else by the number of queries. */
static double attention_slow(const struct price_machine *m, enum stack_attention kind,
                             const struct work_attention *a)
{
    const struct device *d = &m->cluster->device;
    const struct curve *c = price_attention_curve(m, kind, a);
    return c ? (a->backward ? d->attn_bwd_efficiency : d->attn_fwd_efficiency) /
                   curve_at(c, sqrt(a->q * a->k))
             : 1 + m->v[CONSTANT_ATTENTION_HALF] / a->q;
}

/* Returns the seconds of a FLOP of queries by keys, or of scores by values. */
static double score_flop_seconds(const struct price_machine *m, const struct stack *k,
                                 const struct work_attention *a)
{
    double h = m->v[CONSTANT_GEMM_HALF];
    if (k->early_cublas && m->act == DTYPE_BF16 && fmod(a->dim, 8) != 0)
        return 1 / (m->attention_flops * m->v[CONSTANT_UNALIGNED_SHARE]);
    return (1 + h / a->q) * (1 + h / a->k) * price_ragged(m, a->dim) / m->wide_gemm_flops;
}

static double scores_seconds(const struct price_machine *m, const struct stack *k,
                             const struct work_attention *a)
{
    double products = 4 * a->q * a->k * a->heads * a->dim * score_flop_seconds(m, k, a);
    return a->count * ((a->backward ? 2 : 1) * products + a->score_bytes / m->score_bytes);
}

static double attention_seconds(const struct price_machine *m, const struct stack *k,
                                const struct work_attention *a)
{
    double flops = 4 * a->pairs * a->heads * a->dim;
    enum stack_attention kind = k->attention;
    if (attention_keeps_scores(kind))
        return scores_seconds(m, k, a);
    double share = m->v[a->backward ? CONSTANT_ATTENTION_BACKWARD : CONSTANT_ATTENTION_FORWARD];
    if (kind == ATTENTION_FLASH1)
        share *= m->v[CONSTANT_FLASH1_SHARE];
    /* devices with fp8 came after FlashAttention-2, which reaches less of their peak */
    if (kind == ATTENTION_FLASH2 && m->cluster->device.peak_flops[DTYPE_FP8] > 0)
        share *= m->v[CONSTANT_FLASH2_SHARE];
    return a->count * (a->backward ? 2.5 : 1) * flops / (m->attention_flops * share) *
           attention_slow(m, kind, a) * m->v[CONSTANT_ATTENTION_PACE];
}

static const struct price_route *route_of(const struct price_machine *m, const struct work *w,
                                          const struct work_message *g,
                                          struct price_routes *routes)
{
    struct price_route *r = &routes->of[g->group][g->kind];
    if (!routes->known[g->group][g->kind])
        *r = price_route(m, price_group(&w->grid, w->model, g->group), g->kind);
    routes->known[g->group][g->kind] = true;
    return r;
}

/* Prices a message of context-parallel ranks. Those of a ring hide under attention, and while the
 * device waits for the host, where no sum hides. */
static void context_price(const struct price_machine *m, const struct work *w,
                          const struct work_message *g, struct price_routes *routes,
                          struct price_part *p)
{
    if (g->group == TRAFFIC_TP || g->group == TRAFFIC_PP)
        return;
    const struct price_route *r = route_of(m, w, g, routes);
    bool hides = m->overlaps && g->hide == HIDE_ATTENTION;
    double all = g->count * route_seconds(r, g->bytes),
           sum_s = g->count * m->v[CONSTANT_SUM_S],
           under = hides ? p->attention + p->idle : 0, /* those before it hide there too */
           hidden = fmin(all, fmax(0, under - p->cp_hidden));
    p->cp += all + sum_s - hidden;
    p->cp_hidden += hidden;
    p->cp_fixed += sum_s;
    p->cp_under = fmax(p->cp_under, under);
    p->cp_alone += sum_s + (hides ? 0 : all);
}

/* Prices a message of other ranks, before any sum is hidden, and notes the wires of all. */
static void message_price(const struct price_machine *m, const struct work *w,
                          const struct work_message *g, struct price_routes *routes,
                          struct price_part *p)
{
    const struct price_route *r = route_of(m, w, g, routes);
    double one = route_seconds(r, g->bytes), sum_s = g->count * m->v[CONSTANT_SUM_S],
           busy[PRICE_WIRES];
    price_route_busy(r, g->bytes, busy);
    for (int x = 0; x < PRICE_WIRES; x++)
        p->busy[x] += g->count * busy[x];
    if (g->group == TRAFFIC_TP) {
        p->tp += g->count * one + sum_s;
        p->tp_fixed += sum_s;
    } else if (g->group == TRAFFIC_PP) {
        bool hides = m->overlaps && g->hide != HIDE_NOTHING;
        p->pp += g->count * (m->v[CONSTANT_SEND_S] + (hides ? 0 : one));
        p->pp_hidden += hides ? g->count * one : 0;
        p->pp_fixed += g->count * m->v[CONSTANT_SEND_S];
    }
}

/* Hides a part's sums under its products, as Transformer Engine's comm_gemm_overlap does: each
 * hides an equal share of them, but no more than it takes. What is left of the share hides while
 * the device waits for the host. */
static void sums_hide(const struct price_machine *m, const struct work *w, enum work_part_id id,
                      struct price_part *p)
{
    const struct work_part *part = &w->parts[id];
    double share = m->v[CONSTANT_SUM_HIDDEN] * (p->tp - p->tp_fixed), products = 0;
    p->tp_alone = p->tp;
    for (int i = 0; i < part->n_gemms; i++)
        products += part->gemms[i].count;
    if (!m->overlaps || !w->stack->sums_overlap || share <= 0 || products <= 0)
        return;
    for (int i = 0; i < part->n_gemms; i++) {
        double one = product_seconds(m, w, id, &part->gemms[i]);
        p->tp_hidden += part->gemms[i].count * fmin(share / products, one);
        p->tp_under += part->gemms[i].count * one;
    }
    double waits = fmin(share - p->tp_hidden, p->idle);
    p->tp_under += p->idle;
    p->tp_hidden += waits, p->idle -= waits;
    p->tp_alone -= share;
    p->tp -= p->tp_hidden;
}

static void messages_price(const struct price_machine *m, const struct work *w,
                           enum work_part_id id, struct price_routes *routes, struct price_part *p)
{
    const struct work_part *part = &w->parts[id];
    p->tp = p->tp_hidden = p->cp = p->cp_hidden = p->pp = p->pp_hidden = 0;
    p->tp_fixed = p->cp_fixed = p->pp_fixed = 0;
    p->tp_under = p->tp_alone = p->cp_under = p->cp_alone = 0;
    p->busy[PRICE_LINKS] = p->busy[PRICE_NICS] = 0;
    p->idle = fmax(0, p->launch - part->kernels * m->v[CONSTANT_KERNEL_S]);
    for (int i = 0; i < part->n_messages; i++)
        message_price(m, w, &part->messages[i], routes, p);
    sums_hide(m, w, id, p);
    for (int i = 0; i < part->n_messages; i++)
        context_price(m, w, &part->messages[i], routes, p);
    p->seconds = price_compute(p) + p->tp + p->cp + p->pp;
}

/* Prices the computation of a part from peaks and constants. */
static void peaks_price(const struct price_machine *m, const struct work *w, enum work_part_id id,
                        struct price_part *p)
{
    const struct work_part *part = &w->parts[id];
    double slow = m->v[CONSTANT_COMPUTE];
    for (int i = 0; i < part->n_gemms; i++)
        p->gemm += part->gemms[i].count * product_seconds(m, w, id, &part->gemms[i]);
    for (int i = 0; i < part->n_attentions; i++)
        p->attention += slow * attention_seconds(m, w->stack, &part->attentions[i]);
    p->elementwise = slow *
                     ((part->bytes + part->input_bytes) * m->v[CONSTANT_ELEMENTWISE] +
                      part->norm_bytes * m->v[CONSTANT_NORM_PASSES] + part->sum_bytes) /
                     m->copy_bytes;
    double starts = part->kernels * m->v[CONSTANT_KERNEL_S];
    double busy = p->gemm + p->attention + p->elementwise + starts;
    p->launch = starts + fmax(0, part->kernels * m->v[CONSTANT_LAUNCH_S] - fmax(0, busy));
}

/* Prices the computation of a part from what a probe measured. */
static void speed_price(const struct speed *speed, const struct work *w, enum work_part_id id,
                        struct price_part *p)
{
    struct speed_sums sums = speed_sums(w, id);
    struct speed_point share = speed_share(speed, w->tokens);
    p->gemm = share.gemm * speed_seconds(&speed->gemm, sums.gemm_flops, sums.gemm_bytes);
    double forward_s = speed_seconds(&speed->attention, sums.attn_flops[0], sums.attn_bytes[0]),
           backward_s = speed_seconds(&speed->attention, sums.attn_flops[1] - sums.spared_flops,
                                      sums.attn_bytes[1] - sums.spared_bytes);
    p->attention = share.attention * (forward_s + speed->attention_backward * backward_s);
    p->elementwise = share.elementwise * (sums.bytes - sums.copied) / speed->copy_bytes +
                     sums.copied / speed->move_bytes;
    for (int i = 0; i < WORK_INPUTS; i++)
        p->inputs += sums.inputs[i] * speed->input_s[i];
}

static void part_price(const struct price_machine *m, const struct work *w, enum work_part_id id,
                       struct price_routes *routes, struct price_part *p)
{
    memset(p, 0, sizeof *p);
    if (m->speed)
        speed_price(m->speed, w, id, p);
    else
        peaks_price(m, w, id, p);
    messages_price(m, w, id, routes, p);
}

/* Finds where each kind of stage begins. The stages between the first and the last are equal,
 * except that some have one layer more. */
static void cuts_find(const struct work *w, int64_t cuts[PRICE_STAGES + 1])
{
    int64_t pp = w->grid.pp, more = w->model->layers % pp;
    cuts[0] = 0, cuts[PRICE_STAGES] = pp;
    cuts[1] = num_min_i64(1, pp), cuts[3] = num_max_i64(cuts[1], pp - 1);
    cuts[2] = num_min_i64(num_max_i64(more, cuts[1]), cuts[3]);
}

void price_terms(const struct price_machine *m, const struct work *w, struct price_ids ids,
                 struct price_routes *routes, struct price *out)
{
    out->machine = m;
    out->work = w;
    for (int i = ids.from; i < ids.to; i++)
        part_price(m, w, (enum work_part_id)i, routes, &out->parts[i]);
    cuts_find(w, out->cuts);
    double nodes = (double)layout_world(&w->grid) / (double)m->cluster->node.devices;
    out->rounds = log2(1 + fmax(0, nodes - 1));
}

void price_gathers(struct price *p, int64_t vpp)
{
    const struct work *w = p->work;
    struct layout grid = w->grid;
    grid.vpp = vpp;
    for (int i = 0; i < PRICE_STAGES; i++) {
        for (int u = 0; u < WORK_UNITS; u++)
            p->gathered[i][u] = 1;
        if (w->stack->kind == STACK_REEL && p->cuts[i] < p->cuts[i + 1])
            work_reel_gather_share(w, &grid, p->cuts[i], p->gathered[i]);
    }
}

void price_parts(const struct price_machine *m, const struct work *w, struct price *out)
{
    struct price_routes routes;
    memset(routes.known, 0, sizeof routes.known);
    price_terms(m, w, (struct price_ids){0, WORK_PARTS}, &routes, out);
    price_gathers(out, w->grid.vpp);
}

void price_reorder(const struct price *other, struct price_ids ids, struct price_routes *routes,
                   struct price *out)
{
    out->machine = other->machine;
    out->work = other->work;
    out->rounds = other->rounds;
    memcpy(out->cuts, other->cuts, sizeof out->cuts);
    for (int i = ids.from; i < ids.to; i++) {
        out->parts[i] = other->parts[i];
        messages_price(out->machine, out->work, (enum work_part_id)i, routes, &out->parts[i]);
    }
}
