/* Measures what a GPU reaches with the calls of our table: the ceilings with which a step is
 * compared.
 *
 *     rates SECONDS copy BYTES                  bytes read plus bytes written
 *     rates SECONDS gemm M N K                  bf16 [M, K] x [N, K]ᵀ, 2 M N K
 *     rates SECONDS few M N K                   the same, but counts the bytes that it must read and
 *                                                write; few_bwd: f32 [M, K] x bf16 [K, N], added to
 *                                                f32
 *     rates SECONDS attn SAMPLES TOKENS KEYS HEADS DIM    forward, 4 TOKENS KEYS DIM a head
 *     rates SECONDS pack SAMPLES TOKENS KEYS HEADS DIM    samples of several lengths (desk.h)
 *     rates SECONDS adaln|headnorm|gelu|swiglu|adamw|sumsq|permute ROWS COLS    bytes that it must
 *                                                read and write; copy's rate is the bound
 *
 * attn, pack, adaln, headnorm, gelu and swiglu have a backward, such as attn_bwd; that of attention
 * counts twice the forward's FLOPs.
 *
 * The operands are uniform random numbers, because a GPU that multiplies zeros draws less power and
 * clocks higher. A warm-up call is followed by five rounds of about SECONDS each, timed by events
 * on the stream. The program prints one JSON object: the median rate, the spread (largest less
 * smallest rate, divided by the median), and the rate of every round. Exit status: 0, 2 usage, 4 no
 * device, 5 a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/desk.h"

enum { ROUNDS = 5, CALLS_MAX = 100000, NUMBERS_MAX = 5, HEAD_DIM = 128 };

struct rate {
    struct desk d;
    void (*queue)(struct rate *r);
    double amount; /* FLOPs or bytes of one call */
    const char *unit;
    int64_t number[NUMBERS_MAX];
    struct ops_gemm gemm;
    struct ops_attn attn;
    struct ops_adaln adaln;
    struct ops_headnorm headnorm;
    struct ops_act act;
    struct ops_adamw adamw;
    struct ops_adamw_span span;
    struct ops_sumsq sumsq;
    struct ops_permute permute;
    double round_s, per_s[ROUNDS];
    int calls;
};

/* ---- what is timed ---- */

static void copy_queue(struct rate *r)
{
    r->d.c.dev->copy(r->d.c.dev, r->d.block[1], r->d.block[0], r->number[0], DEV_D2D,
                     r->d.c.stream);
}

static void copy_open(struct rate *r)
{
    int64_t n = r->number[0] / 2;
    desk_draw(&r->d, DTYPE_BF16, 1, n), desk_draw(&r->d, DTYPE_BF16, 1, n);
    r->amount = 2 * (double)r->number[0], r->unit = "B/s", r->queue = copy_queue;
}

static void gemm_queue(struct rate *r) { r->d.c.ops->gemm(r->d.c.ops, r->d.c.stream, &r->gemm); }

static void gemm_open(struct rate *r)
{
    int64_t m = r->number[0], n = r->number[1], k = r->number[2];
    r->gemm = (struct ops_gemm){.a = desk_draw(&r->d, DTYPE_BF16, m, k),
                                .b = desk_draw(&r->d, DTYPE_BF16, n, k),
                                .c = desk_draw(&r->d, DTYPE_BF16, m, n), .tb = true, .alpha = 1};
    r->amount = 2 * (double)m * (double)n * (double)k, r->unit = "FLOP/s";
    r->queue = gemm_queue;
}

/* Returns an operand of a product, and counts the bytes that the product must move for it. */
static struct tensor few_operand(struct rate *r, enum dtype dtype, int64_t rows, int64_t cols,
                                 int times)
{
    r->amount += (double)(times * rows * cols * dtype_bytes(dtype));
    return desk_draw(&r->d, dtype, rows, cols);
}

static void few_open(struct rate *r)
{
    int64_t m = r->number[0], n = r->number[1], k = r->number[2];
    r->gemm = (struct ops_gemm){.a = few_operand(r, DTYPE_BF16, m, k, 1),
                                .b = few_operand(r, DTYPE_BF16, n, k, 1),
                                .c = few_operand(r, DTYPE_BF16, m, n, 1), .tb = true, .alpha = 1};
    r->unit = "B/s", r->queue = gemm_queue;
}

static void few_bwd_open(struct rate *r)
{
    int64_t m = r->number[0], n = r->number[1], k = r->number[2];
    r->gemm = (struct ops_gemm){.a = few_operand(r, DTYPE_F32, m, k, 1),
                                .b = few_operand(r, DTYPE_BF16, k, n, 1),
                                .c = few_operand(r, DTYPE_F32, m, n, 2), .alpha = 1, .beta = 1};
    r->unit = "B/s", r->queue = gemm_queue;
}

static void fwd_queue(struct rate *r) { r->d.c.ops->attn_fwd(r->d.c.ops, r->d.c.stream, &r->attn); }
static void bwd_queue(struct rate *r) { r->d.c.ops->attn_bwd(r->d.c.ops, r->d.c.stream, &r->attn); }

static void attn_make(struct rate *r, bool uneven)
{
    int64_t n = r->number[0], h = r->number[3], d = r->number[4], s = n * r->number[1],
            k = n * r->number[2];
    r->attn = (struct ops_attn){
        .q = desk_draw(&r->d, DTYPE_BF16, s, h * d), .k = desk_draw(&r->d, DTYPE_BF16, k, h * d),
        .v = desk_draw(&r->d, DTYPE_BF16, k, h * d), .o = desk_draw(&r->d, DTYPE_BF16, s, h * d),
        .lse = desk_draw(&r->d, DTYPE_F32, s, h), .heads = h, .kv_heads = h, .head_dim = d,
        .scale = 0.08};
    const struct desk_samples samples = {n, r->number[1], r->number[2], uneven};
    int64_t pairs = desk_segments(&r->d, &r->attn, samples);
    r->amount = 4 * (double)pairs * (double)h * (double)d;
    r->unit = "FLOP/s", r->queue = fwd_queue;
}

static void attn_bwd_make(struct rate *r, bool uneven)
{
    attn_make(r, uneven);
    fwd_queue(r);
    int64_t s = r->attn.q.rows, k = r->attn.k.rows, cols = r->attn.q.cols;
    r->attn.d_o = desk_draw(&r->d, DTYPE_BF16, s, cols);
    r->attn.dq = desk_draw(&r->d, DTYPE_BF16, s, cols);
    r->attn.dk = desk_draw(&r->d, DTYPE_BF16, k, cols);
    r->attn.dv = desk_draw(&r->d, DTYPE_BF16, k, cols);
    r->attn.delta = desk_draw(&r->d, DTYPE_F32, s, r->attn.heads);
    r->amount *= 2, r->queue = bwd_queue;
}

static void attn_open(struct rate *r) { attn_make(r, false); }
static void pack_open(struct rate *r) { attn_make(r, true); }
static void attn_bwd_open(struct rate *r) { attn_bwd_make(r, false); }
static void pack_bwd_open(struct rate *r) { attn_bwd_make(r, true); }

/* ---- kernels that are bound by memory ---- */

/* Returns an operand of ROWS x cols, and counts its bytes `times` times, as a kernel moves them. */
static struct tensor moved(struct rate *r, enum dtype dtype, int64_t cols, int times)
{
    r->amount += (double)times * (double)(r->number[0] * cols * dtype_bytes(dtype));
    return desk_draw(&r->d, dtype, r->number[0], cols);
}

#define QUEUE(name, op, args)                                     \
    static void name##_queue(struct rate *r)                      \
    {                                                             \
        r->d.c.ops->op(r->d.c.ops, r->d.c.stream, &r->args);      \
    }
QUEUE(adaln, adaln_fwd, adaln) QUEUE(adaln_bwd, adaln_bwd, adaln)
QUEUE(headnorm, headnorm_fwd, headnorm) QUEUE(headnorm_bwd, headnorm_bwd, headnorm)
QUEUE(act, act_fwd, act) QUEUE(act_bwd, act_bwd, act)
QUEUE(adamw, adamw, adamw) QUEUE(sumsq, sumsq, sumsq) QUEUE(permute, permute, permute)

static void bytes_count(struct rate *r, void (*queue)(struct rate *r))
{
    r->unit = "B/s", r->queue = queue;
}

/* Prepares gate, residual, norm and modulation of one sample. */
static void adaln_make(struct rate *r, bool backward)
{
    int64_t rows = r->number[0], cols = r->number[1];
    struct tensor one = desk_draw(&r->d, DTYPE_BF16, 1, cols),
                  stat = desk_draw(&r->d, DTYPE_F32, 1, cols);
    int32_t *sample = desk_block(&r->d, "samples", rows * 4);
    r->d.c.dev->fill(r->d.c.dev, sample, 0, rows * 4, r->d.c.stream);
    desk_segments(&r->d, &r->attn, (struct desk_samples){1, rows, rows, false});
    r->adaln = (struct ops_adaln){
        .sample = sample, .row_start = r->attn.q_start,
        .host_row_start = r->attn.host.q_start, .n = 1,
        .branch = moved(r, DTYPE_BF16, cols, 1), .x_out = moved(r, DTYPE_BF16, cols, 1),
        .gate = one, .shift = one, .scale = one, .stats = desk_draw(&r->d, DTYPE_F32, rows, 2),
        .eps = 1e-6};
    if (backward) {
        r->adaln.dy = moved(r, DTYPE_BF16, cols, 1), r->adaln.dx = moved(r, DTYPE_BF16, cols, 2);
        r->adaln.dbranch = moved(r, DTYPE_BF16, cols, 1);
        r->adaln.dgate = r->adaln.dshift = r->adaln.dscale = stat;
    } else {
        r->adaln.x = moved(r, DTYPE_BF16, cols, 1), r->adaln.y = moved(r, DTYPE_BF16, cols, 1);
    }
}
static void adaln_open(struct rate *r) { adaln_make(r, false), bytes_count(r, adaln_queue); }
static void adaln_bwd_open(struct rate *r) { adaln_make(r, true), bytes_count(r, adaln_bwd_queue); }

static void headnorm_open(struct rate *r)
{
    int64_t cols = r->number[1], d = cols < HEAD_DIM ? cols : HEAD_DIM, heads = cols / d;
    r->headnorm = (struct ops_headnorm){
        .src = moved(r, DTYPE_BF16, heads * d, 1), .dst = moved(r, DTYPE_BF16, heads * d, 1),
        .heads = heads, .head_dim = d, .gain = desk_draw(&r->d, DTYPE_BF16, 1, d), .eps = 1e-6,
        .rstd = moved(r, DTYPE_F32, heads, 1),
        .cos = moved(r, DTYPE_F32, d / 2, 1), .sin = moved(r, DTYPE_F32, d / 2, 1)};
    bytes_count(r, headnorm_queue);
}

static void headnorm_bwd_open(struct rate *r)
{
    headnorm_open(r);
    r->headnorm.ddst = moved(r, DTYPE_BF16, r->headnorm.src.cols, 1);
    r->headnorm.dsrc = moved(r, DTYPE_BF16, r->headnorm.src.cols, 1);
    r->headnorm.dgain = desk_draw(&r->d, DTYPE_F32, 1, r->headnorm.head_dim);
    r->amount -= (double)(r->number[0] * r->headnorm.src.cols * 2); /* dst is not read */
    r->queue = headnorm_bwd_queue;
}

static void act_make(struct rate *r, enum ops_act_kind kind, bool backward)
{
    int64_t cols = r->number[1], twice = kind == OPS_ACT_SWIGLU ? 2 : 1;
    r->act = (struct ops_act){.kind = kind, .x = moved(r, DTYPE_BF16, twice * cols, 1)};
    if (backward) {
        r->act.dy = moved(r, DTYPE_BF16, cols, 1);
        r->act.dx = moved(r, DTYPE_BF16, twice * cols, 1);
    } else {
        r->act.y = moved(r, DTYPE_BF16, cols, 1);
    }
    bytes_count(r, backward ? act_bwd_queue : act_queue);
}
static void gelu_open(struct rate *r) { act_make(r, OPS_ACT_GELU_ERF, false); }
static void gelu_bwd_open(struct rate *r) { act_make(r, OPS_ACT_GELU_ERF, true); }
static void swiglu_open(struct rate *r) { act_make(r, OPS_ACT_SWIGLU, false); }
static void swiglu_bwd_open(struct rate *r) { act_make(r, OPS_ACT_SWIGLU, true); }

static void *uploaded(struct rate *r, const void *bytes, int64_t n)
{
    void *at = desk_block(&r->d, "a block", n);
    r->d.c.dev->copy(r->d.c.dev, at, bytes, n, DEV_H2D, r->d.c.stream);
    desk_sync(&r->d);
    return at;
}

static struct tensor in_row(struct tensor t)
{
    return tensor_of(t.ptr, t.dtype, 1, t.rows * t.cols);
}

/* Prepares the update of one tensor with moments in bf16. */
static void adamw_open(struct rate *r)
{
    const struct ops_step step = {.lr = 1e-3, .bias1 = 0.1, .bias2 = 0.05, .grad_scale = 1,
                                  .update = 1};
    int64_t n = r->number[0] * r->number[1], cols = r->number[1];
    r->span = (struct ops_adamw_span){.n = n, .counted = n, .weight_decay = 0.1, .lr_scale = 1};
    r->adamw = (struct ops_adamw){
        .step = uploaded(r, &step, sizeof step), .spans = uploaded(r, &r->span, sizeof r->span),
        .host_spans = &r->span, .n = 1, .grad = in_row(moved(r, DTYPE_F32, cols, 1)),
        .master = in_row(moved(r, DTYPE_F32, cols, 2)), .m = in_row(moved(r, DTYPE_BF16, cols, 2)),
        .v = in_row(moved(r, DTYPE_BF16, cols, 2)), .weight = in_row(moved(r, DTYPE_BF16, cols, 1)),
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .seed = 3,
        .change = desk_block(&r->d, "change", sizeof(struct ops_change))};
    bytes_count(r, adamw_queue);
}

static void sumsq_open(struct rate *r)
{
    r->sumsq = (struct ops_sumsq){.x = moved(r, DTYPE_F32, r->number[1], 1),
                                  .out = desk_block(&r->d, "health", sizeof(struct ops_health))};
    bytes_count(r, sumsq_queue);
}

/* Prepares a permutation that reverses the order of rows. */
static void permute_open(struct rate *r)
{
    int64_t rows = r->number[0];
    int32_t *index = malloc((size_t)rows * sizeof *index);
    BUG_ON(!index);
    for (int64_t i = 0; i < rows; i++)
        index[i] = (int32_t)(rows - 1 - i);
    r->permute = (struct ops_permute){.src = moved(r, DTYPE_BF16, r->number[1], 1),
                                      .dst = moved(r, DTYPE_BF16, r->number[1], 1),
                                      .index = uploaded(r, index, rows * (int64_t)sizeof *index)};
    free(index);
    bytes_count(r, permute_queue);
}

static const struct {
    const char *name;
    int numbers;
    void (*open)(struct rate *r);
} kinds[] = {
    {"copy", 1, copy_open}, {"gemm", 3, gemm_open},
    {"attn", 5, attn_open}, {"attn_bwd", 5, attn_bwd_open},
    {"pack", 5, pack_open}, {"pack_bwd", 5, pack_bwd_open},
    {"few", 3, few_open}, {"few_bwd", 3, few_bwd_open},
    {"adaln", 2, adaln_open}, {"adaln_bwd", 2, adaln_bwd_open},
    {"headnorm", 2, headnorm_open}, {"headnorm_bwd", 2, headnorm_bwd_open},
    {"gelu", 2, gelu_open}, {"gelu_bwd", 2, gelu_bwd_open},
    {"swiglu", 2, swiglu_open}, {"swiglu_bwd", 2, swiglu_bwd_open},
    {"adamw", 2, adamw_open}, {"sumsq", 2, sumsq_open}, {"permute", 2, permute_open}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- timing ---- */

static double calls_time(struct rate *r, int calls, struct dev_event *from, struct dev_event *to)
{
    struct dev *dev = r->d.c.dev;
    dev->event_record(dev, from, r->d.c.stream);
    for (int i = 0; i < calls; i++)
        r->queue(r);
    dev->event_record(dev, to, r->d.c.stream);
    desk_sync(&r->d);
    return dev->event_elapsed_s(dev, from, to);
}

static void measure(struct rate *r)
{
    struct dev *dev = r->d.c.dev;
    struct dev_event *from, *to;
    desk_must(&r->d, dev->event_new(dev, &from, &r->d.err));
    desk_must(&r->d, dev->event_new(dev, &to, &r->d.err));
    calls_time(r, 1, from, to);
    double once = calls_time(r, 1, from, to), wanted = once > 0 ? r->round_s / once : CALLS_MAX;
    r->calls = wanted < 1 ? 1 : wanted > CALLS_MAX ? CALLS_MAX : (int)wanted;
    for (int k = 0; k < ROUNDS; k++)
        r->per_s[k] = r->amount * r->calls / calls_time(r, r->calls, from, to);
    dev->event_free(dev, from), dev->event_free(dev, to);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(struct rate *r)
{
    double sorted[ROUNDS];
    memcpy(sorted, r->per_s, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, ascending);
    double median = sorted[ROUNDS / 2];
    printf("{\"value\": %.6g, \"unit\": \"%s\", \"spread\": %.4g, \"calls\": %d, \"rounds\": [",
           median, r->unit, (sorted[ROUNDS - 1] - sorted[0]) / median, r->calls);
    for (int k = 0; k < ROUNDS; k++)
        printf("%s%.6g", k ? ", " : "", r->per_s[k]);
    puts("]}");
}

static bool wish_read(struct rate *r, int argc, char **argv, int *kind)
{
    for (*kind = 0; argc > 2 && *kind < KINDS; ++*kind)
        if (strcmp(argv[2], kinds[*kind].name) == 0)
            break;
    if (argc < 3 || *kind == KINDS || argc != 3 + kinds[*kind].numbers)
        return false;
    r->round_s = strtod(argv[1], NULL);
    bool good = r->round_s > 0;
    for (int i = 0; i < kinds[*kind].numbers; i++)
        good &= (r->number[i] = strtoll(argv[3 + i], NULL, 10)) > 0;
    return good;
}

int main(int argc, char **argv)
{
    struct rate r = {0};
    int kind;
    if (!wish_read(&r, argc, argv, &kind)) {
        fputs("usage: rates SECONDS copy BYTES | gemm|few[_bwd] M N K | attn|pack[_bwd] SAMPLES TOKENS KEYS "
              "HEADS DIM | KERNEL ROWS COLS\n", stderr);
        return 2;
    }
    desk_open(&r.d, DTYPE_BF16);
    kinds[kind].open(&r);
    measure(&r);
    print(&r);
    desk_close(&r.d);
    return 0;
}
