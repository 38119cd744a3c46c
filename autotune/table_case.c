/* This file reads a row of the table of published runs. Where the row has no value, a rule gives
 * one. docs/predictions.md has these rules, how a row's time and peak are read, and which rows
 * count as assumed. A word that is not known is taken as table_word.c says, and counts likewise.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/table_priv.h"
#include "base/num.h"
#include "base/str.h"
#include "profiles/flops.h"

#define LEAST_QUANTITY 1e-9 /* no step is as short, and no rate or size as small */

enum { TEXT_TOKENS = 512, ADALN_RANK = 256, VOCAB = 50000, GPUS = 64 };

const char *const table_no_gpu = "the GPU has no profile";

static const char *text_of(const struct table_line *l, enum table_column c)
{
    return l->field[c];
}

/* Returns the greatest value that a column may have: for a model's shape that of its profile. Work
 * and memory of a prediction grow with these values. */
static double most_of(enum table_column c)
{
    switch (c) {
    case COLUMN_gated_mlp:
    case COLUMN_sp: return 1;
    case COLUMN_zero: return 3;
    case COLUMN_layers:
    case COLUMN_pp:
    case COLUMN_vpp: return 4096;
    case COLUMN_n_gpus:
    case COLUMN_tp:
    case COLUMN_cp:
    case COLUMN_ep:
    case COLUMN_fsdp_size:
    case COLUMN_dp: return LIMIT_RANKS;
    case COLUMN_mbs:
    case COLUMN_gbs: return 1 << 24;
    case COLUMN_hidden: return 1 << 20;
    case COLUMN_heads:
    case COLUMN_kv_heads: return 1 << 16;
    case COLUMN_ffn: return 1 << 22;
    case COLUMN_vocab: return 1 << 30;
    case COLUMN_seq_len: return INT32_MAX;
    default: return 1e15;
    }
}

/* Tells whether a column holds a quantity, from LEAST_QUANTITY on. The others hold whole numbers
 * from 1 on, except that switches, ZeRO stages and experts' ranks begin at 0. */
static bool is_quantity(enum table_column c)
{
    return c == COLUMN_gpu_mem_gb || c == COLUMN_step_time_s || c == COLUMN_tokens_per_s_gpu ||
           c == COLUMN_tflops_gpu || c == COLUMN_peak_mem_gb;
}

static double least_of(enum table_column c)
{
    bool from_zero = c == COLUMN_gated_mlp || c == COLUMN_sp || c == COLUMN_zero ||
                     c == COLUMN_ep;
    return is_quantity(c) ? LEAST_QUANTITY : !from_zero;
}

/* Reads a number into *out, or leaves it where the field is empty. */
static int number_read(const struct table_line *l, enum table_column c, const char *name,
                       double *out, struct err *err)
{
    const char *text = l->field[c];
    double v;
    int rc;
    if (!*text)
        return 0;
    if ((rc = num_parse_f64(text, name, &v, err)) < 0)
        return err_context(err, "%s:%lld", l->file, (long long)l->number);
    if (!(v >= least_of(c) && v <= most_of(c)) || (!is_quantity(c) && v != floor(v)))
        return err_set(err, ERR_INPUT, "%s:%lld: %s is %s: give a %snumber from %.15g to %.15g",
                       l->file, (long long)l->number, name, text, is_quantity(c) ? "" : "whole ",
                       least_of(c), most_of(c));
    *out = v;
    return 0;
}

/* Holds the numbers of a row, -1 where they are missing. */
struct numbers {
#define NUMBER(name) double name;
#define NUMBER_LIST(X)                                                                             \
    X(gpu_mem_gb) X(n_gpus) X(gpus_per_node) X(layers) X(hidden) X(ffn) X(heads) X(kv_heads)       \
    X(vocab) X(gated_mlp) X(seq_len) X(tp) X(sp) X(cp) X(pp) X(vpp) X(dp) X(zero) X(fsdp_size)     \
    X(ep) X(mbs) X(gbs) X(step_time_s) X(tokens_per_s_gpu) X(tflops_gpu) X(peak_mem_gb)
    NUMBER_LIST(NUMBER)
#undef NUMBER
};
static const struct number_field { enum table_column column; const char *name; size_t at; }
    number_fields[] = {
#define NUMBER(name) {COLUMN_##name, #name, offsetof(struct numbers, name)},
        NUMBER_LIST(NUMBER)
#undef NUMBER
};

static int numbers_read(const struct table_line *l, struct numbers *out, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(number_fields); i++) {
        double *at = (double *)((char *)out + number_fields[i].at);
        *at = -1;
        int rc = number_read(l, number_fields[i].column, number_fields[i].name, at, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Returns the value; where it is missing, returns the rule's value and marks the case as
 * assumed. */
static int64_t or_rule(struct table_case *c, double value, double rule)
{
    c->assumed |= value < 0;
    return (int64_t)(value < 0 ? rule : value);
}

/* ---- devices ---- */

/* Returns the length of the first word: letters and digits. */
static size_t word_of(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]))
        n++;
    return n;
}

const char *table_gpu(const char *text)
{
    static const char *const makers[] = {"nvidia", "tesla"};
    for (size_t i = 0; i < ARRAY_LEN(makers); i++) {
        size_t n = strlen(makers[i]);
        if (word_of(text) == n && strncasecmp(text, makers[i], n) == 0 && text[n])
            text += n + 1;
    }
    return text;
}

static bool is_kin(const char *name, const char *gpu)
{
    size_t n = word_of(gpu);
    return n > 0 && word_of(name) == n && strncasecmp(name, gpu, n) == 0;
}

/* Tells whether the second word of a profile's name, such as sxm, occurs in the text too. */
static bool is_form(const char *name, const char *gpu)
{
    char word[LIMIT_NAME_BYTES];
    const char *at = name + word_of(name);
    at += *at != '\0';
    snprintf(word, sizeof word, "%.*s", (int)word_of(at), at);
    return *word && strcasestr(gpu, word);
}

/* Tells whether a device is a better guess than the best one so far: of the same form; then of the
 * nearest memory; then with the faster links. */
static bool is_nearer(const struct device *d, const struct device *best, const char *gpu, double gb)
{
    double off = fabs((double)d->memory_bytes / 0x1p30 - gb),
           best_off = fabs((double)best->memory_bytes / 0x1p30 - gb);
    if (is_form(d->name, gpu) != is_form(best->name, gpu))
        return is_form(d->name, gpu);
    if (gb > 0 && fabs(off - best_off) > 4)
        return off < best_off;
    return d->link_bytes_per_s > best->link_bytes_per_s;
}

/* Returns the device that is meant, borrowed; NULL: none has this first word. */
static const struct device *gpu_find(const struct table_profiles *p, const char *gpu, double gb)
{
    const struct device *best = NULL;
    for (size_t i = 0; i < p->n_devices; i++) {
        const struct device *d = &p->devices[i];
        if (is_kin(d->name, gpu) && (!best || is_nearer(d, best, gpu, gb)))
            best = d;
    }
    return best;
}

static bool is_of_device(const struct cluster *c, const struct device *d)
{
    return strcmp(c->device.name, d->name) == 0;
}

/* Tells whether a cluster is a better guess than the best one so far: the one that lists the row's
 * source, then one that has the device, then one that has a device of the same first word. */
static bool cluster_is_nearer(const struct cluster *c, const struct cluster *best,
                              const struct device *d, const char *source)
{
    if (!best || is_of_device(c, d) != is_of_device(best, d))
        return !best || is_of_device(c, d);
    if (is_of_device(c, d))
        return cluster_has_source(c, source);
    return is_kin(c->device.name, d->name) && !is_kin(best->device.name, d->name);
}

/* Finds the profile of the cluster that a row is of. Only such a profile says how devices are
 * linked inside a node and between nodes. One that lists sources is no guess for others. */
static void cluster_find(const struct table_profiles *p, const struct device *d,
                         const char *source, struct cluster *out)
{
    const struct cluster *best = NULL;
    for (size_t i = 0; i < p->n_clusters; i++) {
        const struct cluster *c = &p->clusters[i];
        if ((!*c->sources || cluster_has_source(c, source)) &&
            cluster_is_nearer(c, best, d, source))
            best = c;
    }
    bool own = is_of_device(best, d);
    *out = *best;
    if (!own && d->link_bytes_per_s > 0)
        out->node.link_bytes_per_s = d->link_bytes_per_s;
    out->device = *d;
}

static const char *machine_read(const struct table_line *l, const struct numbers *n,
                                const struct table_profiles *p, struct table_case *c)
{
    double gb = n->gpu_mem_gb;
    const struct device *d = gpu_find(p, table_gpu(text_of(l, COLUMN_gpu)), gb);
    if (!d)
        return table_no_gpu;
    cluster_find(p, d, text_of(l, COLUMN_source), &c->cluster);
    if (gb > 0 && gb < 0.8 * (double)d->memory_bytes / 0x1p30)
        c->cluster.device.memory_bytes = (int64_t)(gb * 0x1p30 * 0.985);
    int64_t devices = or_rule(c, n->gpus_per_node, (double)c->cluster.node.devices);
    if (devices > 0 && devices != c->cluster.node.devices) {
        c->cluster.node.nics = num_max_i64(1, c->cluster.node.nics * devices /
                                                  c->cluster.node.devices);
        c->cluster.node.devices = devices;
    }
    return NULL;
}

/* ---- software ---- */

static int attention_of(const char *attn)
{
    if (!*attn)
        return -1;
    if (strcasecmp(attn, "torch") == 0)
        return ATTENTION_SCORES;
    if (strcasecmp(attn, "megatron-fused") == 0)
        return ATTENTION_FUSED_SCORES;
    if (strcasecmp(attn, "flash1") == 0)
        return ATTENTION_FLASH1;
    return strcasecmp(attn, "flash2") == 0 ? ATTENTION_FLASH2 : -1;
}

static void stack_find(const struct table_line *l, const struct numbers *n,
                       const struct stacks *stacks, struct table_case *c)
{
    int attention = attention_of(text_of(l, COLUMN_attn));
    const struct stack *s = stack_of_framework(stacks, text_of(l, COLUMN_framework), attention);
    const char *notes = text_of(l, COLUMN_notes);
    c->assumed |= !s;
    if (!s)
        s = stacks_find(stacks, n->zero == 3 ? "fsdp" : "megatron");
    BUG_ON(!s);
    c->stack = *s;
    if (attention >= 0)
        c->stack.attention = (enum stack_attention)attention;
    if (strstr(notes, "rms_kernel="))
        c->stack.fused_norm = strstr(notes, "rms_kernel=1") != NULL;
    if (strcasestr(text_of(l, COLUMN_precision), "fp32-grad"))
        c->stack.gradient_bytes += 4;
    c->fp8 = strncasecmp(text_of(l, COLUMN_precision), "fp8", 3) == 0 ||
             strncasecmp(text_of(l, COLUMN_precision), "mxfp8", 5) == 0;
    c->frozen = strcasecmp(text_of(l, COLUMN_task), "lora") == 0;
}

/* ---- models ---- */

static bool family_of(const struct table_line *l, const struct numbers *n, struct table_case *c,
                      enum model_family *out)
{
    const char *name = text_of(l, COLUMN_family);
    static const struct { const char *name; enum model_family family; } families[] = {
        {"gpt", MODEL_GPT}, {"llama", MODEL_LLAMA}, {"dit", MODEL_DIT},
        {"st-dit", MODEL_STDIT}, {"moviegen", MODEL_MOVIEGEN}};
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (strcasecmp(families[i].name, name) == 0) {
            *out = families[i].family;
            return true;
        }
    *out = n->gated_mlp > 0 ? MODEL_LLAMA : MODEL_GPT;
    c->assumed |= !*name;
    return !*name;
}

static void video_read(struct model *m)
{
    m->latent_channels = 16;
    m->patch_h = m->patch_w = 2;
    m->text_len = TEXT_TOKENS;
    m->text_width = m->hidden;
    m->adaln = ADALN_LORA_SINGLE;
    m->adaln_rank = ADALN_RANK;
    m->cross_plain = strncasecmp(m->name, "wan", 3) == 0;
}

static const char *model_of_row(const struct table_line *l, const struct numbers *n,
                                struct table_case *c)
{
    struct model *m = &c->model;
    *m = (struct model){.patch_t = 1, .patch_h = 1, .patch_w = 1, .rope_theta = 10000};
    if (strcasecmp(text_of(l, COLUMN_family), "moe") == 0)
        return "it is a mixture of experts";
    if (!family_of(l, n, c, &m->family) || n->layers < 1 || n->hidden < 1 ||
        n->heads < 1 || n->seq_len < 1)
        return "its shape was not published";
    snprintf(m->name, sizeof m->name, "%.*s", LIMIT_NAME_BYTES - 1, text_of(l, COLUMN_model));
    m->layers = (int64_t)n->layers, m->hidden = (int64_t)n->hidden, m->heads = (int64_t)n->heads;
    m->kv_heads = or_rule(c, n->kv_heads, n->heads);
    m->ffn = or_rule(c, n->ffn, 4 * n->hidden);
    m->gated_mlp = or_rule(c, n->gated_mlp, model_gated_family(m->family)) > 0;
    if (model_is_video(m))
        video_read(m);
    else
        m->vocab = or_rule(c, n->vocab, VOCAB);
    c->seq = (struct seq){1, 1, (int64_t)n->seq_len};
    return NULL;
}

/* ---- layouts ---- */

/* Turns the layers to recompute into those of a virtual stage. */
static void recompute_read(const char *text, struct table_case *c)
{
    double chunks = (double)(c->layout.pp * c->layout.vpp), layers = (double)c->model.layers;
    struct table_recompute r;
    if (!table_recompute(text, c->model.layers, &r)) {
        c->any_recompute = c->assumed = true;
        return;
    }
    double n = r.layers > 0 ? r.layers : r.share * layers;
    c->layout.recompute = r.kind;
    c->again = r.again;
    c->layout.recompute_layers = n < layers ? (int64_t)ceil(n / chunks) : 0;
}

static void batch_read(const struct numbers *n, struct table_case *c)
{
    struct layout *k = &c->layout;
    int64_t least = k->dp * (k->pp > 1 ? 4 * k->pp : 1);
    c->any_mbs = n->mbs < 1;
    c->assumed |= c->any_mbs;
    k->mbs = c->any_mbs ? 1 : (int64_t)n->mbs;
    c->gbs = num_max_i64(or_rule(c, n->gbs, (double)(least * k->mbs)), k->dp);
    k->mbs = num_min_i64(k->mbs, num_ceil_div(c->gbs, k->dp));
}

static void layout_of_row(const struct table_line *l, const struct numbers *n,
                          struct table_case *c)
{
    struct layout *k = &c->layout;
    *k = layout_default();
    k->tp = num_max_i64(1, or_rule(c, n->tp, 1)), k->cp = num_max_i64(1, or_rule(c, n->cp, 1));
    k->pp = num_max_i64(1, or_rule(c, n->pp, 1)), k->vpp = num_max_i64(1, or_rule(c, n->vpp, 1));
    c->any_vpp = n->vpp < 1 && k->pp > 1;
    c->assumed |= n->ep > 1 || (n->vpp > 1 && k->pp == 1);
    k->sp = k->tp > 1 && or_rule(c, n->sp, 0) > 0;
    k->vpp = k->pp > 1 ? num_min_i64(k->vpp, num_max_i64(1, c->model.layers / k->pp)) : 1;
    int64_t grid = k->tp * k->cp * k->pp;
    c->gpus = or_rule(c, n->n_gpus, (double)(num_ceil_div(GPUS, grid) * grid));
    k->dp = num_max_i64(1, or_rule(c, n->dp, (double)(c->gpus / grid)));
    k->zero = num_min_i64(3, or_rule(c, n->zero, (double)c->stack.zero));
    k->fsdp = n->fsdp_size > 0 ? (int64_t)n->fsdp_size : k->cp > 1 ? k->dp * k->cp : 0;
    if (k->fsdp && (k->zero == 0 || k->dp * k->cp % k->fsdp != 0))
        k->fsdp = 0;
    if (k->cp > 1 && strstr(text_of(l, COLUMN_notes), "A2A"))
        k->cp_kind = CP_A2A;
    batch_read(n, c);
    recompute_read(text_of(l, COLUMN_recompute), c);
}

/* ---- what was measured ---- */

/* Computes the FLOPs of a step by the formulas at the end of this file's first comment. */
static double published_flops(const struct table_case *c)
{
    struct flops f;
    double S = (double)seq_tokens(c->seq), D = (double)c->model.hidden,
           L = (double)c->model.layers;
    if (flops_reel_sample(&c->model, c->seq, c->model.text_len, &f, NULL) < 0)
        return 0;
    if (model_is_video(&c->model))
        return (double)c->gbs * f.total;
    double weights = L * (D * D * (2 + 2 * (double)c->model.kv_heads / (double)c->model.heads) +
                          (c->model.gated_mlp ? 3 : 2) * D * (double)c->model.ffn) +
                     D * (double)c->model.vocab;
    return (double)c->gbs * (6 * weights * S + 12 * L * D * S * S);
}

static void measured_read(const struct table_line *l, const struct numbers *n,
                          struct table_case *c)
{
    double tokens = (double)c->gbs * (double)seq_tokens(c->seq), gpus = (double)c->gpus;
    bool gib = strstr(text_of(l, COLUMN_mem_kind), "GiB") != NULL;
    if (n->peak_mem_gb > 0)
        c->peak_bytes = n->peak_mem_gb * (gib ? 0x1p30 : 1e9);
    c->allocated = strstr(text_of(l, COLUMN_mem_kind), "allocated") != NULL;
    if (c->status != TABLE_OK)
        return;
    if (n->step_time_s > 0)
        c->measured_s = n->step_time_s;
    else if (n->tokens_per_s_gpu > 0)
        c->measured_s = tokens / (n->tokens_per_s_gpu * gpus);
    else if (n->tflops_gpu > 0)
        c->measured_s = published_flops(c) / (n->tflops_gpu * 1e12 * gpus);
}

/* Tells whether the notes say that the time holds the work of encoders. */
static bool holds_encoders(const char *notes)
{
    static const char *const apart[] = {"exclud", "not includ", "without", "no encode",
                                        "not encode", "pre-encode", "precomputed", "cached"};
    bool holds = strcasestr(notes, "encode");
    for (size_t i = 0; i < ARRAY_LEN(apart); i++)
        holds = holds && !strcasestr(notes, apart[i]);
    return holds;
}

/* Returns why a row is skipped, or NULL. */
static const char *row_read(const struct table_line *l, const struct numbers *n,
                            const struct table_profiles *p, struct table_case *c)
{
    const char *why = model_of_row(l, n, c);
    if (why)
        return why;
    if ((why = machine_read(l, n, p, c)))
        return why;
    if (holds_encoders(text_of(l, COLUMN_notes)))
        return "its time holds the work of encoders";
    if (strcmp(text_of(l, COLUMN_status), "predicted") == 0)
        return "it is a forecast";
    stack_find(l, n, &p->stacks, c);
    layout_of_row(l, n, c);
    measured_read(l, n, c);
    return NULL;
}

/* ---- contradictions ---- */

/* Refuses a value that does not go with another. */
static int refuse(const struct table_line *l, const char *name, int64_t value, const char *against,
                  const char *other, int64_t limit, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s:%lld: %s is %lld, %s %s of %lld: give what was run", l->file,
                   (long long)l->number, name, (long long)value, against, other, (long long)limit);
}

/* Refuses a count that a product of other columns does not divide. */
static int divides_check(const struct table_line *l, const char *name, int64_t value,
                         const char *by, int64_t divisor, struct err *err)
{
    if (value % divisor == 0)
        return 0;
    return err_set(err, ERR_INPUT, "%s:%lld: %s is %lld, which %s of %lld does not divide: give "
                   "what was run", l->file, (long long)l->number, name, (long long)value, by,
                   (long long)divisor);
}

/* Tells whether the row says how many replicas there are: by dp, or by all that it follows from. */
static bool knows_dp(const struct numbers *n)
{
    return n->dp > 0 || (n->n_gpus > 0 && n->tp > 0 && n->cp > 0 && n->pp > 0);
}

/* Refuses a batch that the replicas cannot share. Those of reel's own trainer need not have as many
 * samples each (profiles/layout.h); other stacks deal out equal shares. */
static int batch_check(const struct table_line *l, const struct numbers *n,
                       const struct table_case *c, struct err *err)
{
    const struct layout *k = &c->layout;
    int64_t gbs = (int64_t)n->gbs, mbs = (int64_t)n->mbs;
    int rc;
    if (n->gbs < 1 || !knows_dp(n))
        return 0;
    if (c->stack.kind == STACK_REEL && gbs < k->dp)
        return refuse(l, "gbs", gbs, "less than", "dp", k->dp, err);
    if (c->stack.kind != STACK_REEL && (rc = divides_check(l, "gbs", gbs, "dp", k->dp, err)) < 0)
        return rc;
    if (mbs > num_ceil_div(gbs, k->dp))
        return refuse(l, "mbs", mbs, "more than", "gbs / dp", num_ceil_div(gbs, k->dp), err);
    return 0;
}

/* Refuses a shard group that the ranks which share a state are not made of. */
static int shards_check(const struct table_line *l, const struct numbers *n,
                       const struct table_case *c, struct err *err)
{
    const struct layout *k = &c->layout;
    int64_t fsdp = (int64_t)n->fsdp_size;
    if (fsdp > 0 && knows_dp(n) && k->dp * k->cp % fsdp != 0)
        return refuse(l, "fsdp_size", fsdp, "which does not divide", "dp x cp", k->dp * k->cp, err);
    return 0;
}

/* Refuses a rate so high that the step takes no time. */
static int time_check(const struct table_line *l, const struct numbers *n,
                      const struct table_case *c, struct err *err)
{
    bool tokens = n->tokens_per_s_gpu > 0;
    if (!(c->measured_s > 0) || c->measured_s >= LEAST_QUANTITY)
        return 0;
    return err_set(err, ERR_INPUT, "%s:%lld: %s is %s, by which a step takes %.3g s: give what was "
                   "measured", l->file, (long long)l->number,
                   tokens ? "tokens_per_s_gpu" : "tflops_gpu",
                   text_of(l, tokens ? COLUMN_tokens_per_s_gpu : COLUMN_tflops_gpu),
                   c->measured_s);
}

/* Says whether the row tells on how many GPUs it trained with which batch. */
static bool knows_share(const struct numbers *n)
{
    return n->gbs > 0 && (n->n_gpus > 0 || (n->dp > 0 && n->tp > 0 && n->cp > 0 && n->pp > 0));
}

/* Refuses a time in which twice the device's peak could not do the model's FLOPs: twice, because
 * sources count attention with a mask in whole or in half. Of frozen weights a third of the FLOPs,
 * those of forward, is enough. A rate tells of one GPU, whatever their number. */
static int speed_check(const struct table_line *l, const struct numbers *n,
                       const struct table_case *c, struct err *err)
{
    const double *peaks = c->cluster.device.peak_flops;
    double peak = fmax(peaks[DTYPE_BF16], c->fp8 ? peaks[DTYPE_FP8] : 0);
    bool time = n->step_time_s > 0, tokens = n->tokens_per_s_gpu > 0;
    double gpus = (double)(n->n_gpus > 0 ? c->gpus : layout_world(&c->layout));
    struct flops f;
    int rc;
    if (!(c->measured_s > 0 && peak > 0) || (time && !knows_share(n)))
        return 0;
    if ((rc = flops_reel_sample(&c->model, c->seq, c->model.text_len, &f, err)) < 0)
        return rc;
    double rate = (double)c->gbs * f.total / (c->frozen ? 3 : 1) / c->measured_s /
                  (time ? gpus : (double)c->gpus);
    if (rate <= 2 * peak)
        return 0;
    return err_set(err, ERR_INPUT, "%s:%lld: %s is %s, by which each GPU does %.4g TFLOP/s of the "
                   "model, more than twice the peak of %s, %.4g: give what was measured", l->file,
                   (long long)l->number,
                   time ? "step_time_s" : tokens ? "tokens_per_s_gpu" : "tflops_gpu",
                   text_of(l, time ? COLUMN_step_time_s : tokens ? COLUMN_tokens_per_s_gpu
                                                                 : COLUMN_tflops_gpu),
                   rate / 1e12, c->cluster.device.name, peak / 1e12);
}

/* Refuses a peak of memory that is more than a tenth above what the card has: a source may write GB
 * for GiB. A run that was out of memory may tell what it asked for. */
static int peak_check(const struct table_line *l, const struct numbers *n,
                      const struct table_case *c, struct err *err)
{
    double card = fmax((double)c->cluster.device.memory_bytes, n->gpu_mem_gb * 0x1p30);
    if (c->status != TABLE_OK || c->peak_bytes <= 1.1 * card)
        return 0;
    return err_set(err, ERR_INPUT, "%s:%lld: peak_mem_gb is %s, more than the %.4g GiB of %s: give "
                   "what was measured", l->file, (long long)l->number,
                   text_of(l, COLUMN_peak_mem_gb), card / 0x1p30, c->cluster.device.name);
}

/* Returns how many virtual stages may have no layer: Megatron can count embedding and head as
 * layers of their own (account_for_embedding_in_pipeline_split, and ..._loss_...). */
static int64_t beside_layers(const struct table_case *c)
{ return c->stack.kind == STACK_MEGATRON ? 2 : 0; }

/* Refuses a row whose numbers contradict each other. Only published numbers are checked; the others
 * follow a rule. A row that failed is not checked: contradictions may be why. */
static int case_check(const struct table_line *l, const struct numbers *n,
                      const struct table_case *c, struct err *err)
{
    const struct layout *k = &c->layout;
    int64_t grid = k->tp * k->cp * k->pp, vpp = n->vpp > 0 && k->pp > 1 ? (int64_t)n->vpp : 1;
    int rc;
    if (c->status == TABLE_FAILED)
        return 0;
    if ((rc = divides_check(l, "heads", c->model.heads, "tp", k->tp, err)) < 0)
        return rc;
    if (c->model.layers + beside_layers(c) < k->pp * vpp)
        return err_set(err, ERR_INPUT, "%s:%lld: layers is %lld, less than pp x vpp of %lld: give "
                       "what was run", l->file, (long long)l->number, (long long)c->model.layers,
                       (long long)(k->pp * vpp));
    if (n->n_gpus > 0 &&
        (rc = divides_check(l, "n_gpus", c->gpus, "tp x cp x pp", grid, err)) < 0)
        return rc;
    if (n->n_gpus > 0 && n->dp > 0 && c->gpus != grid * k->dp)
        return err_set(err, ERR_INPUT, "%s:%lld: n_gpus is %lld, and tp x cp x pp x dp %lld: give "
                       "what was run", l->file, (long long)l->number, (long long)c->gpus,
                       (long long)(grid * k->dp));
    if ((rc = batch_check(l, n, c, err)) < 0)
        return rc;
    if ((rc = shards_check(l, n, c, err)) < 0)
        return rc;
    if ((rc = time_check(l, n, c, err)) < 0)
        return rc;
    if ((rc = speed_check(l, n, c, err)) < 0)
        return rc;
    return peak_check(l, n, c, err);
}

/* Refuses a row whose model breaks a rule of model_check(). */
static int case_model_check(const struct table_line *l, const struct table_case *c, struct err *err)
{
    char where[LIMIT_PATH_BYTES + 32];
    snprintf(where, sizeof where, "%s:%lld", l->file, (long long)l->number);
    return model_check(&c->model, where, err);
}

static int status_read(const struct table_line *l, struct table_case *c, struct err *err)
{
    static const struct { const char *name; enum table_status status; } known[] = {
        {"ok", TABLE_OK}, {"oom", TABLE_OOM}, {"unsupported", TABLE_FAILED},
        {"error", TABLE_FAILED}, {"predicted", TABLE_OK}, {"", TABLE_OK}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(text_of(l, COLUMN_status), known[i].name) == 0) {
            c->status = known[i].status;
            c->assumed = !*known[i].name;
            return 0;
        }
    return err_set(err, ERR_INPUT, "%s:%lld: status is '%.40s': give ok, oom, unsupported, error "
                   "or predicted", l->file, (long long)l->number, text_of(l, COLUMN_status));
}

int table_case_read(const struct table_line *line, const struct table_profiles *p,
                    struct table_case *out, struct err *err)
{
    struct numbers n;
    int rc;
    if ((rc = status_read(line, out, err)) < 0)
        return rc;
    if ((rc = numbers_read(line, &n, err)) < 0)
        return rc;
    out->skipped = row_read(line, &n, p, out);
    if (!out->skipped && ((rc = case_model_check(line, out, err)) < 0 ||
                          (rc = case_check(line, &n, out, err)) < 0))
        return rc;
    snprintf(out->sweep, sizeof out->sweep, "%.*s", LIMIT_NAME_BYTES - 1,
             line->field[COLUMN_sweep_group]);
    return 0;
}
