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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/desk.h"

enum { ROUNDS = 5, CALLS_MAX = 100000, NUMBERS_MAX = 4 };

struct rate {
    struct desk d;
    void (*queue)(struct rate *r);
    double amount; /* of one call */
    const char *unit;
    int64_t number[NUMBERS_MAX];
    struct ops_gemm gemm;
    struct ops_attn attn;
    double round_s, per_s[ROUNDS];
    int calls;
};

/* ---- what is timed ---- */

static void copy_queue(struct rate *r)
{
    r->d.c.dev->copy(r->d.c.dev, r->d.block[1], r->d.block[0], r->number[0], DEV_D2D, r->d.c.stream);
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
    r->gemm = (struct ops_gemm){.a = desk_draw(&r->d, DTYPE_BF16, m, k), .b = desk_draw(&r->d, DTYPE_BF16, n, k),
                                .c = desk_draw(&r->d, DTYPE_BF16, m, n), .tb = true, .alpha = 1};
    r->amount = 2 * (double)m * (double)n * (double)k, r->unit = "FLOP/s";
    r->queue = gemm_queue;
}

static void fwd_queue(struct rate *r) { r->d.c.ops->attn_fwd(r->d.c.ops, r->d.c.stream, &r->attn); }
static void bwd_queue(struct rate *r) { r->d.c.ops->attn_bwd(r->d.c.ops, r->d.c.stream, &r->attn); }

static void attn_open(struct rate *r)
{
    int64_t n = r->number[0], t = r->number[1], h = r->number[2], d = r->number[3], s = n * t;
    r->attn = (struct ops_attn){
        .q = desk_draw(&r->d, DTYPE_BF16, s, h * d), .k = desk_draw(&r->d, DTYPE_BF16, s, h * d),
        .v = desk_draw(&r->d, DTYPE_BF16, s, h * d), .o = desk_draw(&r->d, DTYPE_BF16, s, h * d),
        .lse = desk_draw(&r->d, DTYPE_F32, s, h), .heads = h, .kv_heads = h, .head_dim = d, .scale = 0.08};
    desk_segments(&r->d, &r->attn, n, t);
    r->amount = 4 * (double)n * (double)t * (double)t * (double)h * (double)d;
    r->unit = "FLOP/s", r->queue = fwd_queue;
}

static void bwd_open(struct rate *r)
{
    attn_open(r);
    fwd_queue(r);
    int64_t s = r->attn.q.rows, cols = r->attn.q.cols;
    r->attn.d_o = desk_draw(&r->d, DTYPE_BF16, s, cols), r->attn.dq = desk_draw(&r->d, DTYPE_BF16, s, cols);
    r->attn.dk = desk_draw(&r->d, DTYPE_BF16, s, cols), r->attn.dv = desk_draw(&r->d, DTYPE_BF16, s, cols);
    r->attn.delta = desk_draw(&r->d, DTYPE_F32, s, r->attn.heads);
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
        fputs("usage: rates SECONDS copy BYTES | gemm M N K | attn SAMPLES TOKENS HEADS DIM | "
              "attn_bwd SAMPLES TOKENS HEADS DIM\n", stderr);
        return 2;
    }
    desk_open(&r.d, DTYPE_BF16);
    kinds[kind].open(&r);
    measure(&r);
    print(&r);
    desk_close(&r.d);
    return 0;
}
