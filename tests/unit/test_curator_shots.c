/* Shot detection on made sequences: moving textures with noise, flashes, fades through black and
 * hard cuts at known frames. */
// SLOW
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox_impl.h"
#include "curator/shots.h"

enum { MAX_FRAMES = 4000, MAX_CUTS = 64 };

/* A scene: two drifting waves a plane, with their own colours, contrast and speed. */
struct scene { double fx[3], fy[3], vx[3], vy[3], level[3], swing[3]; };

static double uniform(uint64_t seed, uint64_t *k, double lo, double hi)
{
    return lo + (hi - lo) * philox_uniform_at(seed, PHILOX_TEST, 1, (*k)++);
}

static struct scene scene_make(uint64_t seed, uint64_t *k)
{
    struct scene s;
    for (int p = 0; p < 3; p++) {
        s.fx[p] = uniform(seed, k, 0.02, 0.35), s.fy[p] = uniform(seed, k, 0.02, 0.35);
        s.vx[p] = uniform(seed, k, -1.5, 1.5), s.vy[p] = uniform(seed, k, -1.5, 1.5);
        s.level[p] = uniform(seed, k, p ? 90 : 70, p ? 165 : 190);
        s.swing[p] = uniform(seed, k, p ? 5 : 20, p ? 35 : 55);
    }
    return s;
}

static void frame_draw(const struct scene *s, double t, double gain, double noise, uint64_t seed,
                       int64_t frame, uint8_t *out)
{
    struct philox_block r = {0};
    for (int p = 0; p < 3; p++) {
        double across[SHOTS_W], down[SHOTS_H];
        for (int x = 0; x < SHOTS_W; x++)
            across[x] = sin(s->fx[p] * (x + s->vx[p] * t));
        for (int y = 0; y < SHOTS_H; y++)
            down[y] = cos(s->fy[p] * (y + s->vy[p] * t));
        for (int i = 0; i < SHOTS_PLANE; i++) {
            if (i % 4 == 0)
                r = philox_rounds((uint32_t[]){(uint32_t)i, (uint32_t)p, (uint32_t)frame, 9},
                               (uint32_t[]){(uint32_t)seed, 3});
            double v = s->level[p] + s->swing[p] * (across[i % SHOTS_W] + down[i / SHOTS_W]) / 2;
            v += noise * ((double)r.w[i % 4] / 4294967296.0 - 0.5);
            v = p ? 128 + gain * (v - 128) : 16 + gain * (v - 16);
            out[p * SHOTS_PLANE + i] = (uint8_t)fmin(235, fmax(16, v));
        }
    }
}

struct truth { int64_t cuts[MAX_CUTS], n, fades[MAX_CUTS], n_fades; };

/* The rate at which a video whose frames are shown so often shows them. */
static double rate_of(int64_t times) { return times > 5 ? 60 : 24; }

/* A detector, which is shown each frame `times` times, and how its answers compare with what was
 * true. */
struct judged {
    int64_t times, shown;
    struct shots *shots;
    struct truth truth;
    int64_t found, all, wrong, said, fades, fades_found;
};

/* As rate conversion does: the frame is shown `times` times, with a coder's rounding in its first
 * two repeats. */
static void frame_push(struct judged *j, const uint8_t *frame)
{
    struct err err = {0};
    uint8_t planes[SHOTS_BYTES];
    memcpy(planes, frame, sizeof planes);
    for (int64_t i = 0; i < j->times; i++) {
        if (i == 1 || i == 2)
            for (int64_t k = (j->shown * 7 + i) % 11; k < SHOTS_BYTES; k += 11)
                planes[k] = (uint8_t)(planes[k] ^ 1);
        double time_s = (double)j->shown++ / rate_of(j->times);
        assert_int_equal(shots_push(j->shots, planes, time_s, &err), 0);
    }
}

static void scene_end(struct judged *j, bool fade, bool last)
{
    uint8_t black[SHOTS_BYTES];
    if (fade) {
        memset(black, 16, SHOTS_PLANE);
        memset(black + SHOTS_PLANE, 128, 2 * SHOTS_PLANE);
        for (int i = 0; i < 4; i++)
            frame_push(j, black);
        j->truth.fades[j->truth.n_fades++] = j->shown;
    } else if (!last) {
        j->truth.cuts[j->truth.n++] = j->shown;
    }
}

/* Draws one sequence and shows it to all detectors; scenes of 20 to 90 frames, one in six followed
 * by a fade through black, one in five holding a flash. */
static void sequence_push(struct judged *judged, size_t n, uint64_t seed)
{
    uint64_t k = 0;
    int64_t frame = 0;
    uint8_t planes[SHOTS_BYTES];
    for (int scene = 0; scene < 14; scene++) {
        struct scene look = scene_make(seed, &k);
        int64_t length = (int64_t)uniform(seed, &k, 20, 90),
                flash = uniform(seed, &k, 0, 1) < 0.2 ? length / 2 : -1;
        bool fade = uniform(seed, &k, 0, 1) < 1.0 / 6;
        double noise = uniform(seed, &k, 0, 12);
        for (int64_t i = 0; i < length; i++, frame++) {
            double gain = fade && i >= length - 12 ? (double)(length - 1 - i) / 12 : 1;
            frame_draw(&look, (double)i, gain, noise, seed, frame, planes);
            if (flash >= 0 && i >= flash && i < flash + 2)
                memset(planes, 230, SHOTS_PLANE);
            for (size_t d = 0; d < n; d++)
                frame_push(&judged[d], planes);
        }
        frame += fade ? 4 : 0;
        for (size_t d = 0; d < n; d++)
            scene_end(&judged[d], fade, scene == 13);
    }
}

static bool within(const int64_t *list, int64_t n, int64_t frame, int64_t slack)
{
    for (int64_t i = 0; i < n; i++)
        if (llabs(list[i] - frame) <= slack)
            return true;
    return false;
}

static void begin(struct judged *j)
{
    struct shots_conf conf = SHOTS_CONF_DEFAULT;
    struct err err = {0};
    j->shown = 0;
    j->truth = (struct truth){0};
    assert_int_equal(shots_new(&conf, &j->shots, &err), 0);
}

static void judge(struct judged *j)
{
    const struct truth *t = &j->truth;
    struct err err = {0};
    const int64_t *bounds;
    int64_t n = shots_end(j->shots, &bounds, &err);
    assert_true(n > 0 && bounds[0] == 0);
    j->all += t->n;
    j->fades += t->n_fades;
    for (int64_t i = 0; i < t->n; i++)
        j->found += within(bounds, n, t->cuts[i], 0);
    for (int64_t i = 0; i < t->n_fades; i++)
        j->fades_found += within(bounds, n, t->fades[i], 10 * j->times);
    for (int64_t i = 1; i < n; i++) {
        bool fade = within(t->fades, t->n_fades, bounds[i], 10 * j->times);
        j->said += !fade;
        j->wrong += !fade && !within(t->cuts, t->n, bounds[i], 0);
    }
    shots_free(j->shots);
}

static void hold(const struct judged *j)
{
    double recall = (double)j->found / (double)j->all,
           precision = 1 - (double)j->wrong / (double)j->said;
    printf("# frames shown %lld times: %lld of %lld cuts found, frame exact (recall %.4f), %lld of "
           "%lld said ones wrong (precision %.4f), %lld of %lld fades\n",
           (long long)j->times, (long long)j->found, (long long)j->all, recall,
           (long long)j->wrong, (long long)j->said, precision, (long long)j->fades_found,
           (long long)j->fades);
    assert_true(recall >= 0.95);
    assert_true(precision >= 0.95);
    assert_true(j->fades == 0 || (double)j->fades_found / (double)j->fades >= 0.9);
}

/* The detectors see each frame of a sequence once, twice, three times, and eight times (7.5 pictures
 * a second, in a video of 60). The repeats are of the first eight sequences, the last of the first
 * four. */
static void sequences(void **state)
{
    const char *seeds = getenv("SHOT_SEEDS");
    int64_t n = seeds ? strtoll(seeds, NULL, 10) : 40;
    struct judged judged[] = {{.times = 1}, {.times = 2}, {.times = 3}, {.times = 8}};
    (void)state;
    for (int64_t seed = 1; seed <= n; seed++) {
        size_t detectors = seed <= 4 ? 4 : seed <= 8 ? 3 : 1;
        for (size_t d = 0; d < detectors; d++)
            begin(&judged[d]);
        sequence_push(judged, detectors, (uint64_t)seed);
        for (size_t d = 0; d < detectors; d++)
            judge(&judged[d]);
    }
    for (size_t d = 0; d < sizeof judged / sizeof *judged; d++)
        hold(&judged[d]);
}

/* Returns how many shots are found when each of 60 frames shows something else than the one before,
 * as fast action does, and each is shown `times` times, at this rate. Where it is coded, a repeat
 * differs from what was shown first by 0.6 of 8-bit units on average, as coders of a few Mbit/s
 * leave it. */
static int64_t action_shots(int64_t times, double rate, bool coded)
{
    struct shots_conf conf = SHOTS_CONF_DEFAULT;
    struct shots *s;
    struct err err = {0};
    const int64_t *bounds;
    uint8_t first[SHOTS_BYTES], again[SHOTS_BYTES];
    uint64_t k = 0;
    assert_int_equal(shots_new(&conf, &s, &err), 0);
    for (int64_t frame = 0; frame < 60; frame++) {
        struct scene look = scene_make(5, &k);
        frame_draw(&look, 0, 1, 0, 5, frame, first);
        for (int64_t shown = 0; shown < times; shown++) {
            for (int64_t i = 0; i < SHOTS_BYTES; i++)
                again[i] = (uint8_t)(first[i] + (coded && shown > 0 && (i * 7 + shown) % 5 < 3));
            double time_s = (double)(frame * times + shown) / rate;
            assert_int_equal(shots_push(s, again, time_s, &err), 0);
        }
    }
    int64_t n = shots_end(s, &bounds, &err);
    shots_free(s);
    return n;
}

static void coded_repeats(void **state)
{
    int64_t wrong = 0;
    (void)state;
    for (int64_t times = 1; times <= 15; times++) {
        int64_t n = action_shots(times, rate_of(times), true);
        printf("# action, frames shown %lld times and coded: %lld shots\n", (long long)times,
               (long long)n);
        wrong += n - 1;
    }
    assert_int_equal(wrong, 0);
}

/* Pictures that are each shown for longer than a quarter of a second and than six frames, and
 * nothing else. */
static void slides(void **state)
{
    static const struct { int64_t times; double rate; } shows[] = {
        {7, 10}, {10, 10}, {12, 25}, {20, 60}};
    int64_t missed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof shows / sizeof *shows; i++) {
        int64_t exact = action_shots(shows[i].times, shows[i].rate, false),
                coded = action_shots(shows[i].times, shows[i].rate, true);
        printf("# slides of %lld frames, %g frames a second: %lld shots of 60, coded %lld\n",
               (long long)shows[i].times, shows[i].rate, (long long)exact, (long long)coded);
        missed += 120 - exact - coded;
    }
    assert_int_equal(missed, 0);
}

static void short_inputs(void **state)
{
    (void)state;
    for (int n = 0; n < 4; n++) {
        struct shots_conf conf = SHOTS_CONF_DEFAULT;
        struct shots *s;
        struct err err = {0};
        const int64_t *bounds;
        uint8_t planes[SHOTS_BYTES];
        memset(planes, 100, sizeof planes);
        assert_int_equal(shots_new(&conf, &s, &err), 0);
        for (int i = 0; i < n; i++)
            assert_int_equal(shots_push(s, planes, i / 24., &err), 0);
        assert_int_equal(shots_end(s, &bounds, &err), n > 0);
        shots_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sequences),
                                       cmocka_unit_test(coded_repeats), cmocka_unit_test(slides),
                                       cmocka_unit_test(short_inputs)};
    return cmocka_run_group_tests_name("shots", tests, NULL, NULL);
}
