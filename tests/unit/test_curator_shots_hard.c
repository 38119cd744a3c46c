/* Shot detection where it is hard: fast pans, hand-held shake, zooms, noise, flashes, exposure that
 * ramps or jumps, titles that come and go, large things passing, cuts between scenes of low
 * contrast or of one mean, and all of it mixed. Cuts are known exactly. */
// SLOW
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "curator/shots.h"
#include "tests/lib/day.h"

/* The world is larger than the view, of 64x36, and mirrored beyond its edges. */
enum { WORLD_W = 192, WORLD_H = 96, SCENES = 8, MAX_BOUNDS = 256 };

/* What a kind of footage does: least and most, drawn anew for every scene. Units: pixels of 64 a
 * frame, 8-bit steps. */
struct hazard {
    const char *name;
    /* tint: how far chroma's mean may lie from grey */
    double pan[2], noise[2], swing[2], level[2], tint;
    double shake, zoom;              /* amplitude in pixels; growth a frame */
    double flashes, titles, objects; /* how many a scene */
    double ramp, jump;               /* exposure: share of change over a dozen frames; at once */
};
static const struct hazard hazards[] = {
    {"calm", {0, 0.4}, {0, 3}, {20, 45}, {70, 180}, 30},
    {"fast pans", {3, 9}, {0, 3}, {20, 45}, {70, 180}, 30},
    {"shake", {0, 1}, {0, 3}, {20, 45}, {70, 180}, 30, .shake = 2.5},
    {"zooms", {0, 1}, {0, 3}, {20, 45}, {70, 180}, 30, .zoom = 0.04},
    {"noise", {0, 1}, {8, 20}, {20, 45}, {70, 180}, 30},
    {"flashes", {0, 1}, {0, 3}, {20, 45}, {70, 180}, 30, .flashes = 2},
    {"exposure", {0, 1}, {0, 3}, {20, 45}, {80, 150}, 30, .ramp = 0.5, .jump = 0.3},
    {"titles", {0, 0.5}, {0, 3}, {20, 45}, {70, 150}, 30, .titles = 3},
    {"objects", {0, 1}, {0, 3}, {20, 45}, {70, 180}, 30, .objects = 2},
    {"low contrast", {0, 0.4}, {0, 1.5}, {7, 12}, {115, 125}, 3},
    {"equal mean", {0, 1.5}, {0, 4}, {20, 45}, {128, 128}, 0},
    {"mixed", {0, 4}, {0, 8}, {15, 45}, {70, 180}, 20,
     .shake = 1, .zoom = 0.01, .flashes = 0.7, .titles = 1, .objects = 0.7, .ramp = 0.3},
};
enum { N_HAZARDS = sizeof hazards / sizeof hazards[0] };

struct dice { uint64_t seed, k; };
static double roll(struct dice *d, double lo, double hi)
{
    return lo + (hi - lo) * philox_uniform_at(d->seed, PHILOX_TEST, 2, d->k++);
}

struct box { double x, y, w, h, vx, vy; int64_t from, to; int plane_value[3]; bool text; };
struct scene {
    float world[3][WORLD_H][WORLD_W];
    double x, y, vx, vy, shake, zoom, noise, ramp_to, jump_to;
    int64_t length, ramp_at, jump_at, flash[4], flash_length[4];
    int n_flashes, n_boxes, flash_kind[4];
    struct box boxes[8];
};

/* Waves of every direction, weaker the finer, and two dozen hard-edged boxes; then brought to a
 * mean and a standard deviation. */
static void plane_paint(float plane[WORLD_H][WORLD_W], struct dice *d, double level, double swing)
{
    double sum = 0, sum_sq = 0;
    memset(plane, 0, sizeof(float) * WORLD_H * WORLD_W);
    for (int wave = 0; wave < 6; wave++) {
        double f = roll(d, 0.05, 0.6), angle = roll(d, 0, 3.14159), phase = roll(d, 0, 6.28),
               amp = pow(f, -0.5);
        float sx[WORLD_W], cx[WORLD_W];
        for (int x = 0; x < WORLD_W; x++)
            sx[x] = (float)sin(f * cos(angle) * x + phase),
            cx[x] = (float)cos(f * cos(angle) * x + phase);
        for (int y = 0; y < WORLD_H; y++) {
            float sy = (float)(amp * sin(f * sin(angle) * y)),
                  cy = (float)(amp * cos(f * sin(angle) * y));
            for (int x = 0; x < WORLD_W; x++)
                plane[y][x] += sx[x] * cy + cx[x] * sy;
        }
    }
    for (int i = 0; i < 24; i++) {
        int x0 = (int)roll(d, 0, WORLD_W - 30), y0 = (int)roll(d, 0, WORLD_H - 20),
            x1 = x0 + (int)roll(d, 4, 30), y1 = y0 + (int)roll(d, 4, 20);
        float v = (float)roll(d, -4, 4);
        for (int y = y0; y < y1; y++)
            for (int x = x0; x < x1; x++)
                plane[y][x] += v;
    }
    for (int i = 0; i < WORLD_H * WORLD_W; i++)
        sum += (&plane[0][0])[i], sum_sq += (double)(&plane[0][0])[i] * (&plane[0][0])[i];
    double mean = sum / (WORLD_H * WORLD_W), sd = sqrt(sum_sq / (WORLD_H * WORLD_W) - mean * mean);
    for (int i = 0; i < WORLD_H * WORLD_W; i++)
        (&plane[0][0])[i] = (float)(level + swing * ((&plane[0][0])[i] - mean) / sd);
}

static int count(struct dice *d, double most)
{
    return (int)roll(d, 0, most + 1);
}

static void boxes_place(struct scene *s, const struct hazard *h, struct dice *d)
{
    int titles = h->titles > 0 ? count(d, h->titles) : 0,
        objects = h->objects > 0 ? count(d, h->objects) : 0;
    for (int i = 0; i < titles; i++) {
        int64_t from = (int64_t)roll(d, 8, (double)s->length - 8);
        double big = roll(d, 0, 1) < 0.5 ? 12 : 6;
        s->boxes[s->n_boxes++] = (struct box){
            roll(d, 2, 10), roll(d, 2, 34 - big),           roll(d, 30, 50), big, 0, 0,
            from,           from + (int64_t)roll(d, 4, 40), {235, 128, 128}, true};
    }
    for (int i = 0; i < objects; i++) {
        double speed = roll(d, 1.5, 6), w = roll(d, 10, 28);
        int64_t from = (int64_t)roll(d, 4, (double)s->length - 12);
        s->boxes[s->n_boxes++] = (struct box){
            -w, roll(d, 0, 10), w, roll(d, 14, 30), speed, roll(d, -0.3, 0.3), from, INT64_MAX,
            {(int)roll(d, 20, 230), (int)roll(d, 100, 156), (int)roll(d, 100, 156)},
            false};
    }
}

static void scene_make(struct scene *s, const struct hazard *h, struct dice *d)
{
    *s = (struct scene){.length = (int64_t)roll(d, 14, 70), .jump_at = -1, .ramp_at = -1};
    double swing = roll(d, h->swing[0], h->swing[1]), pan = roll(d, h->pan[0], h->pan[1]),
           angle = roll(d, 0, 6.28);
    for (int p = 0; p < 3; p++)
        plane_paint(s->world[p], d,
                    p ? 128 + roll(d, -h->tint, h->tint) : roll(d, h->level[0], h->level[1]),
                    p ? swing / 3 : swing);
    s->x = roll(d, 0, WORLD_W), s->y = roll(d, 0, WORLD_H), s->vx = pan * cos(angle),
    s->vy = pan * sin(angle) / 2;
    s->shake = h->shake, s->zoom = roll(d, -h->zoom, h->zoom),
    s->noise = roll(d, h->noise[0], h->noise[1]);
    boxes_place(s, h, d);
    if (h->ramp > 0)
        s->ramp_at = (int64_t)roll(d, 0, (double)s->length),
        s->ramp_to = 1 + roll(d, -h->ramp, h->ramp);
    if (h->jump > 0 && roll(d, 0, 1) < 0.5)
        s->jump_at = (int64_t)roll(d, 6, (double)s->length),
        s->jump_to = 1 + roll(d, -h->jump, h->jump);
    s->n_flashes = h->flashes > 0 ? count(d, h->flashes) : 0;
    for (int i = 0; i < s->n_flashes; i++)
        s->flash[i] = (int64_t)roll(d, 3, (double)s->length - 7),
        s->flash_length[i] = (int64_t)roll(d, 1, 4.99), s->flash_kind[i] = (int)roll(d, 0, 3);
}

/* Mirror at the edges of the world, so that a pan never jumps. */
static int fold(int64_t i, int n)
{
    i %= 2 * n;
    i = i < 0 ? i + 2 * n : i;
    return (int)(i < n ? i : 2 * n - 1 - i);
}

static double exposure_at(const struct scene *s, int64_t t)
{
    double e = 1;
    if (s->ramp_at >= 0 && t > s->ramp_at)
        e *= 1 + (s->ramp_to - 1) * fmin(1, (double)(t - s->ramp_at) / 12);
    return s->jump_at >= 0 && t >= s->jump_at ? e * s->jump_to : e;
}

/* Two letters of every three cells are there: a stand-in for lines of text. */
static bool covers(const struct box *b, int64_t t, int x, int y)
{
    double bx = b->x + b->vx * (double)(t - b->from), by = b->y + b->vy * (double)(t - b->from);
    if (t < b->from || t >= b->to || x < bx || x >= bx + b->w || y < by || y >= by + b->h)
        return false;
    return !b->text || (((int)(x - bx) % 3 != 2) && ((int)(y - by) % 4 != 3));
}

static void flash_apply(const struct scene *s, int64_t t, double v[3])
{
    for (int i = 0; i < s->n_flashes; i++) {
        if (t < s->flash[i] || t >= s->flash[i] + s->flash_length[i])
            continue;
        switch (s->flash_kind[i]) {
        case 0: v[0] = 235, v[1] = v[2] = 128; break;   /* white */
        case 1: v[0] = fmin(235, v[0] * 2 + 30); break; /* lightning */
        /* a coloured light */
        case 2: v[0] = v[0] * 0.45 + 120, v[1] = v[1] * 0.6 + 45, v[2] = v[2] * 0.6 + 60; break;
        }
    }
}

static void frame_draw(const struct scene *s, int64_t t, struct dice *d, uint8_t *out)
{
    double scale = exp(s->zoom * (double)t), exposure = exposure_at(s, t);
    double cx = s->x + s->vx * (double)t + roll(d, -s->shake, s->shake),
           cy = s->y + s->vy * (double)t + roll(d, -s->shake, s->shake);
    uint64_t noise = (uint64_t)(philox_uniform_at(d->seed, PHILOX_TEST, 3, d->k++) * 1e18);
    for (int y = 0; y < SHOTS_H; y++)
        for (int x = 0; x < SHOTS_W; x++) {
            double wx = cx + (x - SHOTS_W / 2) * scale, wy = cy + (y - SHOTS_H / 2) * scale, v[3];
            int64_t ix = (int64_t)floor(wx), iy = (int64_t)floor(wy);
            double fx = wx - (double)ix, fy = wy - (double)iy;
            int x0 = fold(ix, WORLD_W), x1 = fold(ix + 1, WORLD_W), y0 = fold(iy, WORLD_H),
                y1 = fold(iy + 1, WORLD_H);
            for (int p = 0; p < 3; p++)
                v[p] = (1 - fy) * ((1 - fx) * s->world[p][y0][x0] + fx * s->world[p][y0][x1]) +
                       fy * ((1 - fx) * s->world[p][y1][x0] + fx * s->world[p][y1][x1]);
            v[0] = 16 + (v[0] - 16) * exposure, v[1] = 128 + (v[1] - 128) * exposure,
            v[2] = 128 + (v[2] - 128) * exposure;
            for (int i = 0; i < s->n_boxes; i++)
                for (int p = 0; p < 3 && covers(&s->boxes[i], t, x, y); p++)
                    v[p] = s->boxes[i].plane_value[p];
            flash_apply(s, t, v);
            for (int p = 0; p < 3; p++) {
                noise = noise * 6364136223846793005u + 1442695040888963407u;
                /* triangular, sd 0.41 */
                double n = ((double)(noise >> 48) + (double)(noise >> 32 & 0xffff)) / 65536 - 1;
                out[p * SHOTS_PLANE + y * SHOTS_W + x] = (uint8_t)fmin(
                    235, fmax(16, v[p] + s->noise * (p ? 1.2 : 2.4) * n));
            }
        }
}

struct tally { int64_t cuts, found, said, wrong; };

static bool has(const int64_t *list, int64_t n, int64_t frame)
{
    for (int64_t i = 0; i < n; i++)
        if (list[i] == frame)
            return true;
    return false;
}

enum { SHOWINGS = 4 };

/* A detector that is shown each frame `times` times, as rate conversion does. */
struct showing {
    struct shots *s;
    int64_t times, frame, n_cuts, cuts[SCENES];
};

static void showing_judge(struct showing *w, const char *name, uint64_t seed, struct tally *tally)
{
    struct err err = {0};
    const int64_t *bounds;
    int64_t n = shots_end(w->s, &bounds, &err);
    tally->cuts += w->n_cuts;
    tally->said += n - 1;
    for (int64_t i = 0; i < w->n_cuts; i++)
        tally->found += has(bounds, n, w->cuts[i]);
    for (int64_t i = 1; i < n; i++)
        tally->wrong += !has(w->cuts, w->n_cuts, bounds[i]);
    if (getenv("SHOT_SAY"))
        for (int64_t i = 0; i < w->n_cuts + n; i++) {
            int64_t f = i < w->n_cuts ? w->cuts[i] : bounds[i - w->n_cuts];
            if (f && has(w->cuts, w->n_cuts, f) != has(bounds, n, f))
                printf("# %s seed %lld frame %lld: %s\n", name, (long long)seed, (long long)f,
                       i < w->n_cuts ? "missed" : "wrong");
        }
}

/* Draws a sequence once, which costs more than looking at it, and shows it to `n` detectors. */
static void sequence_judge(const struct hazard *h, uint64_t seed, int n, const int64_t *times,
                           struct tally *tallies)
{
    static struct scene scene;
    struct dice d = {seed * 100 + (uint64_t)(h - hazards), 0};
    struct shots_conf conf = SHOTS_CONF_DEFAULT;
    struct showing showings[SHOWINGS] = {{0}};
    struct err err = {0};
    uint8_t planes[SHOTS_BYTES];
    for (int k = 0; k < n; k++) {
        showings[k].times = times[k];
        assert_int_equal(shots_new(&conf, &showings[k].s, &err), 0);
    }
    for (int i = 0; i < SCENES; i++) {
        scene_make(&scene, h, &d);
        for (int k = 0; k < n && i > 0; k++)
            showings[k].cuts[showings[k].n_cuts++] = showings[k].frame;
        for (int64_t t = 0; t < scene.length; t++) {
            frame_draw(&scene, t, &d, planes);
            for (int k = 0; k < n; k++)
                for (int64_t again = 0; again < times[k]; again++, showings[k].frame++)
                    assert_int_equal(shots_push(showings[k].s, planes,
                                                (double)showings[k].frame / 24, &err), 0);
        }
    }
    for (int k = 0; k < n; k++) {
        showing_judge(&showings[k], h->name, seed, &tallies[k]);
        shots_free(showings[k].s);
    }
}

static void hard_footage(void **state)
{
    int64_t seeds = getenv("SHOT_SEEDS") ? strtoll(getenv("SHOT_SEEDS"), NULL, 10) : 3;
    struct tally all = {0};
    int below = 0;
    (void)state;
    for (int k = 0; k < N_HAZARDS; k++) {
        struct tally t = {0};
        for (int64_t seed = 1; seed <= seeds; seed++)
            sequence_judge(&hazards[k], (uint64_t)seed, 1, &(int64_t){1}, &t);
        double recall = (double)t.found / (double)t.cuts,
               precision = t.said ? 1 - (double)t.wrong / (double)t.said : 0;
        printf("# %-13s %4lld cuts, %4lld missed, %4lld wrong: recall %.3f, precision %.3f\n",
               hazards[k].name, (long long)t.cuts, (long long)(t.cuts - t.found),
               (long long)t.wrong, recall, precision);
        below += recall < 0.95 || precision < 0.95;
        all.cuts += t.cuts, all.found += t.found, all.said += t.said, all.wrong += t.wrong;
    }
    double recall = (double)all.found / (double)all.cuts,
           precision = 1 - (double)all.wrong / (double)all.said;
    printf("# all: %lld cuts, recall %.4f, precision %.4f\n", (long long)all.cuts, recall,
           precision);
    assert_int_equal(below, 0);
    assert_true(recall >= 0.95 && precision >= 0.95);
}

/* 24 frames a second padded to 48, 72 and 120 by showing each again: the same cuts, and no others,
 * as of the frames shown once. Each day has a third of the hazards. */
static void padded_footage(void **state)
{
    static const int64_t times[SHOWINGS] = {1, 2, 3, 5};
    int worse = 0;
    (void)state;
    for (int k = 0; k < N_HAZARDS; k++) {
        if (!day_has(k, 3))
            continue;
        struct tally all[SHOWINGS] = {{0}}, *once = &all[0];
        for (uint64_t seed = 1; seed <= 4; seed++)
            sequence_judge(&hazards[k], seed, SHOWINGS, times, all);
        for (int i = 1; i < SHOWINGS; i++) {
            const struct tally *t = &all[i];
            printf("# %-13s shown %lld times: %lld of %lld cuts found (once: %lld), %lld wrong "
                   "(once: %lld)\n",
                   hazards[k].name, (long long)times[i], (long long)t->found, (long long)t->cuts,
                   (long long)once->found, (long long)t->wrong, (long long)once->wrong);
            worse += t->found < once->found || t->wrong > once->wrong;
        }
    }
    assert_int_equal(worse, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hard_footage),
                                       cmocka_unit_test(padded_footage)};
    return cmocka_run_group_tests_name("shots_hard", tests, NULL, NULL);
}
