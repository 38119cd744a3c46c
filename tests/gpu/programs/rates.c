/* What a GPU does at most with our table's calls: the ceilings that a step is held against.
 *
 *     rates SECONDS copy BYTES                  bytes read plus bytes written
 *     rates SECONDS gemm M N K                  bf16 [M, K] x [N, K]ᵀ, 2 M N K
 *     rates SECONDS attn SAMPLES TOKENS HEADS DIM        forward, 4 TOKENS² DIM a head
 *     rates SECONDS attn_bwd SAMPLES TOKENS HEADS DIM    backward, twice that
 *
 * The operands are uniform random numbers, for a GPU that multiplies zeros draws less power and
 * clocks higher. After one call for warmth come five rounds of about SECONDS each, timed by events
 * on the stream. Prints one JSON object: the median rate, its spread (largest less smallest, over
 * the median), and every round's. Exit status: 0, 2 usage, 4 no device, 5 a failure. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/ops/compute.h"

enum { ROUNDS = 5, CALLS_MAX = 100000, BLOCKS_MAX = 16, NUMBERS_MAX = 4 };

struct rate {
    struct compute c;
    void (*queue)(struct rate *r);
    double amount; /* of one call */
    const char *unit;
    int64_t number[NUMBERS_MAX];
    void *block[BLOCKS_MAX];
    int blocks;
    struct ops_gemm gemm;
    struct ops_attn attn;
    struct err err;
    double round_s, per_s[ROUNDS];
    int calls;
};

static void must(struct rate *r, int rc)
{
    if (rc == 0)
        return;
    fprintf(stderr, "rates: %s\n", r->err.text);
    exit(5);
}

static void *block_new(struct rate *r, const char *what, int64_t bytes)
{
    void *at;
    if (r->blocks == BLOCKS_MAX)
        abort();
    must(r, r->c.dev->alloc(r->c.dev, what, bytes, &at, &r->err));
    return r->block[r->blocks++] = at;
}

/* Returns a tensor of numbers that are uniform in (-1, 1). */
static struct tensor drawn(struct rate *r, enum dtype dtype, int64_t rows, int64_t cols)
{
    void *at = block_new(r, "an operand", rows * cols * dtype_bytes(dtype));
    struct ops_draw a = {.out = tensor_of(at, dtype, 1, rows * cols), .kind = OPS_DRAW_UNIFORM,
                         .scale = 1, .seed = 7, .ordinal = (uint64_t)r->blocks};
    r->c.ops->draw(r->c.ops, r->c.stream, &a);
    return tensor_of(at, dtype, rows, cols);
}

/* ---- what is timed ---- */

static void copy_queue(struct rate *r)
{
    r->c.dev->copy(r->c.dev, r->block[1], r->block[0], r->number[0], DEV_D2D, r->c.stream);
}

static void copy_open(struct rate *r)
{
    int64_t n = r->number[0] / 2;
    drawn(r, DTYPE_BF16, 1, n), drawn(r, DTYPE_BF16, 1, n);
    r->amount = 2 * (double)r->number[0], r->unit = "B/s", r->queue = copy_queue;
}

static void gemm_queue(struct rate *r) { r->c.ops->gemm(r->c.ops, r->c.stream, &r->gemm); }

static void gemm_open(struct rate *r)
{
    int64_t m = r->number[0], n = r->number[1], k = r->number[2];
    r->gemm = (struct ops_gemm){.a = drawn(r, DTYPE_BF16, m, k), .b = drawn(r, DTYPE_BF16, n, k),
                                .c = drawn(r, DTYPE_BF16, m, n), .tb = true, .alpha = 1};
    r->amount = 2 * (double)m * (double)n * (double)k, r->unit = "FLOP/s";
    r->queue = gemm_queue;
}

static void fwd_queue(struct rate *r) { r->c.ops->attn_fwd(r->c.ops, r->c.stream, &r->attn); }
static void bwd_queue(struct rate *r) { r->c.ops->attn_bwd(r->c.ops, r->c.stream, &r->attn); }

/* Sends where samples of one length begin, and returns it on the device and, in *host, on the
 * host. */
static const int32_t *segments_send(struct rate *r, int64_t samples, int64_t tokens,
                                    const int32_t **host)
{
    int32_t *x = malloc((size_t)(2 * samples + 1) * sizeof *x), *at;
    if (!x)
        abort();
    for (int64_t i = 0; i <= samples; i++)
        x[i] = (int32_t)(i * tokens);
    for (int64_t i = 0; i < samples; i++)
        x[samples + 1 + i] = (int32_t)tokens;
    int64_t bytes = (2 * samples + 1) * (int64_t)sizeof *x;
    at = block_new(r, "segments", bytes);
    r->c.dev->copy(r->c.dev, at, x, bytes, DEV_H2D, r->c.stream);
    must(r, r->c.dev->stream_sync(r->c.dev, r->c.stream, &r->err));
    *host = x; /* stays to the end of the program */
    return at;
}

static void attn_open(struct rate *r)
{
    int64_t n = r->number[0], t = r->number[1], h = r->number[2], d = r->number[3], s = n * t;
    const int32_t *host, *at = segments_send(r, n, t, &host);
    r->attn = (struct ops_attn){
        .q = drawn(r, DTYPE_BF16, s, h * d), .k = drawn(r, DTYPE_BF16, s, h * d),
        .v = drawn(r, DTYPE_BF16, s, h * d), .o = drawn(r, DTYPE_BF16, s, h * d),
        .lse = drawn(r, DTYPE_F32, s, h), .n = n,
        .q_start = at, .k_start = at, .k_len = at + n + 1,
        .host = {.q_start = host, .k_start = host, .k_len = host + n + 1},
        .max_q = t, .max_k = t, .heads = h, .kv_heads = h, .head_dim = d, .scale = 0.08};
    r->amount = 4 * (double)n * (double)t * (double)t * (double)h * (double)d;
    r->unit = "FLOP/s", r->queue = fwd_queue;
}

static void bwd_open(struct rate *r)
{
    attn_open(r);
    fwd_queue(r);
    int64_t s = r->attn.q.rows, cols = r->attn.q.cols;
    r->attn.d_o = drawn(r, DTYPE_BF16, s, cols), r->attn.dq = drawn(r, DTYPE_BF16, s, cols);
    r->attn.dk = drawn(r, DTYPE_BF16, s, cols), r->attn.dv = drawn(r, DTYPE_BF16, s, cols);
    r->attn.delta = drawn(r, DTYPE_F32, s, r->attn.heads);
    r->amount *= 2, r->queue = bwd_queue;
}

static const struct {
    const char *name;
    int numbers;
    void (*open)(struct rate *r);
} kinds[] = {{"copy", 1, copy_open}, {"gemm", 3, gemm_open}, {"attn", 4, attn_open},
             {"attn_bwd", 4, bwd_open}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- timing ---- */

static double calls_time(struct rate *r, int calls, struct dev_event *from, struct dev_event *to)
{
    struct dev *dev = r->c.dev;
    dev->event_record(dev, from, r->c.stream);
    for (int i = 0; i < calls; i++)
        r->queue(r);
    dev->event_record(dev, to, r->c.stream);
    must(r, dev->stream_sync(dev, r->c.stream, &r->err));
    return dev->event_elapsed_s(dev, from, to);
}

static void measure(struct rate *r)
{
    struct dev *dev = r->c.dev;
    struct dev_event *from, *to;
    must(r, dev->event_new(dev, &from, &r->err));
    must(r, dev->event_new(dev, &to, &r->err));
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
        fputs("usage: rates SECONDS copy BYTES | gemm M N K | attn SAMPLES TOKENS HEADS DIM | "
              "attn_bwd SAMPLES TOKENS HEADS DIM\n", stderr);
        return 2;
    }
    struct compute_conf conf = {.device = COMPUTE_CUDA, .dtype = DTYPE_BF16};
    if (compute_open(&r.c, &conf, &r.err) < 0) {
        fprintf(stderr, "rates: %s\n", r.err.text);
        return 4;
    }
    kinds[kind].open(&r);
    measure(&r);
    print(&r);
    for (int i = 0; i < r.blocks; i++)
        r.c.dev->free(r.c.dev, r.block[i]);
    free((void *)r.attn.host.q_start);
    compute_close(&r.c);
    return 0;
}
