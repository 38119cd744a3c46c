#include "curator/pair.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { UNIT = 4, REACH_X = 5, REACH_Y = 3, BLOCK_W = 4, BLOCK_H = 3, COLS = PAIR_W / BLOCK_W,
      ROWS = PAIR_H / BLOCK_H, BLOCKS = ROWS * COLS };

void pair_shrink(const uint8_t planes[SHOTS_BYTES], struct pair_frame *out)
{
    int64_t sum = 0;
    for (int p = 0; p < 3; p++)
        for (int y = 0; y < PAIR_H; y++)
            for (int x = 0; x < PAIR_W; x++) {
                const uint8_t *q = planes + p * SHOTS_PLANE + 2 * y * SHOTS_W + 2 * x;
                out->half[p][y * PAIR_W + x] = (int16_t)(q[0] + q[1] + q[SHOTS_W] + q[SHOTS_W + 1]);
            }
    for (int i = 0; i < PAIR_N; i++)
        sum += out->half[0][i];
    out->mean = (int16_t)(sum / PAIR_N);
    for (int y = 0; y < PAIR_H / 2; y++)
        for (int x = 0; x < PAIR_W / 2; x++) {
            const int16_t *q = out->half[0] + 2 * y * PAIR_W + 2 * x;
            out->quarter[y * PAIR_W / 2 + x] =
                (int16_t)((q[0] + q[1] + q[PAIR_W] + q[PAIR_W + 1]) / 4 - out->mean);
        }
}

/* Holds where b overlaps a when b is shifted by (dx, dy): b(x, y) lies over a(x + dx, y + dy). */
struct overlap { int x0, x1, y0, y1, dx, dy; };

static struct overlap overlap_of(int w, int h, int dx, int dy)
{
    return (struct overlap){
        dx < 0 ? -dx : 0, dx > 0 ? w - dx : w, dy < 0 ? -dy : 0, dy > 0 ? h - dy : h, dx, dy};
}

struct shift { int dx, dy; double cost; };

/* Makes this shift the best one if a and b - offset differ less under it than under *best. It stops
 * summing once the difference is too large. */
static void shift_try(const int16_t *a, const int16_t *b, int w, int h, int dx, int dy, int offset,
                      struct shift *best)
{
    struct overlap o = overlap_of(w, h, dx, dy);
    int count = (o.y1 - o.y0) * (o.x1 - o.x0), limit = (int)fmin(INT_MAX, ceil(best->cost * count)),
        sum = 0;
    for (int y = o.y0; y < o.y1 && sum < limit; y++)
        for (int x = o.x0; x < o.x1; x++)
            sum += abs(b[y * w + x] - a[(y + dy) * w + x + dx] - offset);
    if (sum < best->cost * count)
        *best = (struct shift){dx, dy, (double)sum / count};
}

/* Tries all shifts within rx, ry of (cx, cy). Of two equally good shifts, the earlier one stays. */
static void shift_search(const int16_t *a, const int16_t *b, int w, int h, int cx, int cy, int rx,
                         int ry, int offset, struct shift *best)
{
    for (int dy = cy - ry; dy <= cy + ry; dy++)
        for (int dx = cx - rx; dx <= cx + rx; dx++)
            shift_try(a, b, w, h, dx, dy, offset, best);
}

static struct shift shift_find(const struct pair_frame *a, const struct pair_frame *b)
{
    int w = PAIR_W / 2, h = PAIR_H / 2, offset = b->mean - a->mean;
    struct shift coarse = {0, 0, HUGE_VAL}, fine = coarse;
    shift_try(a->quarter, b->quarter, w, h, 0, 0, 0, &coarse);
    shift_try(a->half[0], b->half[0], PAIR_W, PAIR_H, 0, 0, offset, &fine);
    shift_search(a->quarter, b->quarter, w, h, 0, 0, REACH_X, REACH_Y, 0, &coarse);
    shift_search(a->half[0], b->half[0], PAIR_W, PAIR_H, 0, 0, 1, 1, offset, &fine);
    if (coarse.dx || coarse.dy)
        shift_search(a->half[0], b->half[0], PAIR_W, PAIR_H, 2 * coarse.dx, 2 * coarse.dy, 1, 1,
                     offset, &fine);
    return fine;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float calm_mean(float *means, int n)
{
    int calm = (n + 1) / 2;
    double sum = 0;
    qsort(means, (size_t)n, sizeof *means, by_value);
    for (int k = 0; k < calm; k++)
        sum += means[k];
    return n ? (float)(sum / calm) : 0;
}

/* Computes `rest` and `tint` over the calmer half of the blocks. Blocks without any overlap are
 * left out. */
static void rest_of(const struct pair_frame *a, const struct pair_frame *b, const struct overlap *o,
                    struct pair_facts *out)
{
    int32_t luma[BLOCKS] = {0}, chroma[BLOCKS] = {0}, counts[BLOCKS] = {0};
    float all[BLOCKS], tints[BLOCKS];
    int n = 0;
    for (int y = o->y0; y < o->y1; y++)
        for (int x = o->x0; x < o->x1; x++) {
            int i = y * PAIR_W + x, j = (y + o->dy) * PAIR_W + x + o->dx,
                k = y / BLOCK_H * COLS + x / BLOCK_W;
            luma[k] += abs(b->half[0][i] - a->half[0][j]);
            chroma[k] += abs(b->half[1][i] - a->half[1][j]) + abs(b->half[2][i] - a->half[2][j]);
            counts[k]++;
        }
    for (int k = 0; k < BLOCKS; k++)
        if (counts[k]) {
            tints[n] = (float)chroma[k] / (float)(2 * UNIT * counts[k]);
            all[n++] = (float)(2 * luma[k] + chroma[k]) / (float)(4 * UNIT * counts[k]);
        }
    out->rest = calm_mean(all, n);
    out->tint = calm_mean(tints, n);
}

static float likeness_of(const struct pair_frame *a, const struct pair_frame *b,
                         const struct overlap *o)
{
    double n = 0, sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
    for (int y = o->y0; y < o->y1; y++)
        for (int x = o->x0; x < o->x1; x++) {
            double u = a->half[0][(y + o->dy) * PAIR_W + x + o->dx], v = b->half[0][y * PAIR_W + x];
            n++, sa += u, sb += v, saa += u * u, sbb += v * v, sab += u * v;
        }
    double va = saa - sa * sa / n, vb = sbb - sb * sb / n,
        limit = n * UNIT * UNIT; /* with less variance a picture is too flat to be compared */
    return va < limit || vb < limit ? 0 : (float)((sab - sa * sb / n) / sqrt(va * vb));
}

struct pair_facts pair_compare(const struct pair_frame *a, const struct pair_frame *b)
{
    struct shift s = shift_find(a, b);
    struct overlap shifted = overlap_of(PAIR_W, PAIR_H, s.dx, s.dy),
                   still = overlap_of(PAIR_W, PAIR_H, 0, 0);
    struct pair_facts moved = {.likeness = likeness_of(a, b, &shifted)},
        stood = {.likeness = likeness_of(a, b, &still)};
    rest_of(a, b, &shifted, &moved);
    rest_of(a, b, &still, &stood);
    return stood.rest < moved.rest ? stood : moved;
}
