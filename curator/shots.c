#include "curator/shots.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "curator/pair.h"

enum {
    ACROSS = 4, NEAR = 2, /* most frames of a flash; neighbours on either side */
    /* A flash lasts at most this many source frames, from the break until the picture comes back,
     * and at low rates at most six of them or FLASH_S. Where all frames are repeated the limit
     * grows. */
    LONGEST_FLASH = 10, FLASH_FRAMES = 6,
    /* A neighbour further away than this many source frames counts with a difference of 0, because
     * all frames between are repeats. Where all frames are repeated the limit grows. */
    REACH = 6,
    SLACK = 2,            /* tolerance of the cadence of repeats, in source frames */
    STEP_LIMIT = 64,      /* source frames, at whatever rate */
};
/* A frame that differs less from the one before is a repeat. So is one that differs by less than
 * this share of the change before it, and by less than a cut: coders improve a new picture while it
 * is repeated. */
static const float REPEAT = 0.25f, REPEAT_SHARE = 1.0f / 8;
static const double STILL_S = 0.26; /* a picture shown for longer is a still, however many frames */
static const double FLASH_S = 0.42;
static const double BLACK_LUMA = 24, SAME_LIKENESS = 0.85, SAME_TINT = 6, SAME_SHARE = 0.4;

/* Describes one frame that differs from the one before. Repeats of a frame, which rate conversion
 * makes, are not described. */
struct frame_facts {
    int64_t frame;            /* of the source */
    float luma;               /* mean luma, 0 to 255 */
    struct pair_facts before; /* compared with the frame before */
    bool back[ACROSS]; /* [k]: the frame k + 1 later shows the same as the frame before this one */
};
struct shots {
    struct shots_conf conf;
    struct frame_facts *facts;
    int64_t n, room;
    float *differences;                    /* of every source frame from the one before it */
    int64_t n_frames, frames_room;
    double first_s, last_s;                /* times of the first and the newest source frame */
    int64_t reach, longest_flash;          /* in source frames, for the cadence of this video */
    uint8_t planes[SHOTS_BYTES];           /* of the newest frame */
    uint8_t last[SHOTS_BYTES];             /* of the newest frame that is no repeat */
    float change;                          /* how much that one differs from the one before it */
    struct pair_frame ring[ACROSS + 2];    /* the newest frames of `facts`: i is at i mod size */
    int64_t *bounds, n_bounds;
};

int shots_new(const struct shots_conf *conf, struct shots **out, struct err *err)
{
    struct shots *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory");
    s->conf = *conf;
    *out = s;
    return 0;
}

void shots_free(struct shots *s)
{
    if (!s)
        return;
    free(s->facts);
    free(s->differences);
    free(s->bounds);
    free(s);
}

static float difference(const uint8_t *a, const uint8_t *b)
{
    int64_t y = 0, uv = 0;
    for (int i = 0; i < SHOTS_PLANE; i++)
        y += abs(a[i] - b[i]);
    for (int i = SHOTS_PLANE; i < SHOTS_BYTES; i++)
        uv += abs(a[i] - b[i]);
    return (float)(2 * y + uv) / (4.0f * SHOTS_PLANE);
}

static struct pair_frame *ring_at(struct shots *s, int64_t frame)
{
    return &s->ring[frame % (ACROSS + 2)];
}

/* Says whether the two frames are the same picture in another light. */
static bool is_same(const struct pair_facts *f)
{
    return f->likeness >= SAME_LIKENESS && f->tint < SAME_TINT;
}

/* Says whether frame i shows something else than the one before. */
static bool is_break(const struct shots *s, int64_t i)
{
    const struct pair_facts *f = &s->facts[i].before;
    return f->rest >= s->conf.threshold && !is_same(f);
}

/* Marks each break shortly before the newest frame, i, if the picture from before the break came
 * back in i. */
static void back_mark(struct shots *s, int64_t i)
{
    for (int64_t k = 0; k < ACROSS && i - k - 1 >= 1; k++) {
        struct frame_facts *began = &s->facts[i - k - 1];
        if (!is_break(s, i - k - 1))
            continue;
        struct pair_facts across = pair_compare(ring_at(s, i - k - 2), ring_at(s, i));
        began->back[k] = is_same(&across) || across.rest < SAME_SHARE * began->before.rest;
    }
}

static int rooms_make(struct shots *s, struct err *err)
{
    if (s->n == s->room) {
        int64_t room = s->room ? 2 * s->room : 1024;
        struct frame_facts *grown = realloc(s->facts, (size_t)room * sizeof *grown);
        if (!grown)
            return err_set(err, ERR_NOMEM, "out of memory for the facts of %lld frames",
                           (long long)room);
        s->facts = grown;
        s->room = room;
    }
    if (s->n_frames == s->frames_room) {
        int64_t room = s->frames_room ? 2 * s->frames_room : 1024;
        float *grown = realloc(s->differences, (size_t)room * sizeof *grown);
        if (!grown)
            return err_set(err, ERR_NOMEM, "out of memory for the differences of %lld frames",
                           (long long)room);
        s->differences = grown;
        s->frames_room = room;
    }
    return 0;
}

/* Says whether a frame that differs this much from the newest one that is no repeat repeats it. */
static bool is_repeat(const struct shots *s, float from_last)
{
    return from_last < REPEAT ||
           from_last < fmin(REPEAT_SHARE * s->change, s->conf.threshold);
}

int shots_push(struct shots *s, const uint8_t planes[SHOTS_BYTES], double time_s, struct err *err)
{
    int rc = rooms_make(s, err);
    if (rc < 0)
        return rc;
    int64_t frame = s->n_frames++, luma = 0, i = s->n;
    s->differences[frame] = frame ? difference(planes, s->planes) : 0;
    s->first_s = frame ? s->first_s : time_s, s->last_s = time_s;
    memcpy(s->planes, planes, SHOTS_BYTES);
    float from_last = frame ? difference(planes, s->last) : 0;
    if (frame && is_repeat(s, from_last))
        return 0;
    s->change = from_last;
    memcpy(s->last, planes, SHOTS_BYTES);
    for (int k = 0; k < SHOTS_PLANE; k++)
        luma += planes[k];
    s->facts[i] = (struct frame_facts){.frame = frame, .luma = (float)luma / SHOTS_PLANE};
    s->n++;
    pair_shrink(planes, ring_at(s, i));
    if (i > 0) {
        s->facts[i].before = pair_compare(ring_at(s, i - 1), ring_at(s, i));
        back_mark(s, i);
    }
    return 0;
}

double shots_difference(const struct shots *s, int64_t frame)
{
    return s->differences[frame];
}

/* Returns the source frames in this time, 0: not known. */
static double frames_in(const struct shots *s, double seconds)
{
    double all = s->last_s - s->first_s;
    return all > 0 ? seconds * (double)(s->n_frames - 1) / all : 0;
}

/* Returns the most source frames between two frames that differ where no still lies between. */
static int64_t step_most(const struct shots *s)
{
    return (int64_t)fmin(fmax(REACH, frames_in(s, STILL_S)), STEP_LIMIT);
}

static int64_t flash_most(const struct shots *s)
{
    return (int64_t)fmin(fmax(FLASH_FRAMES, frames_in(s, FLASH_S)), LONGEST_FLASH);
}

/* Measures the cadence: how often rate conversion shows each frame. It is the median of the steps
 * between frames that differ, without stills; 0: there are stills only. */
static void cadence_take(struct shots *s)
{
    int64_t steps[STEP_LIMIT + 1] = {0}, n = 0, seen = 0, cadence = 0, most = step_most(s);
    for (int64_t i = 1; i < s->n; i++) {
        int64_t step = s->facts[i].frame - s->facts[i - 1].frame;
        if (step <= most)
            steps[step]++, n++;
    }
    while (n > 0 && cadence < most && 2 * seen <= n)
        seen += steps[++cadence];
    s->reach = num_max_i64(REACH, NEAR * cadence + SLACK);
    s->longest_flash = num_max_i64(flash_most(s), ACROSS * cadence + SLACK);
}

/* Returns how much neighbour k of i differs from the frame before it; 0: that side has only repeats
 * near i; -1: the video has no frame there. */
static double neighbour(const struct shots *s, int64_t i, int64_t k)
{
    int64_t here = s->facts[i].frame;
    if (k < 1)
        return here > s->reach ? 0 : -1;
    if (k >= s->n)
        return s->n_frames - here > s->reach ? 0 : -1;
    return llabs(s->facts[k].frame - here) > s->reach ? 0 : s->facts[k].before.rest;
}

/* Returns the median of neighbour() over the neighbours of i on both sides: the mean without the
 * least and the greatest. */
static double neighbours(const struct shots *s, int64_t i)
{
    double sum = 0, least = HUGE_VAL, most = 0;
    int n = 0;
    for (int64_t k = i - NEAR; k <= i + NEAR; k++) {
        double rest = k == i ? -1 : neighbour(s, i, k);
        if (rest >= 0)
            sum += rest, least = fmin(least, rest), most = fmax(most, rest), n++;
    }
    return n > 2 ? (sum - least - most) / (n - 2) : n ? sum / n : 0;
}

/* Says whether the picture from before i comes back k + 1 frames later, and soon enough to be a
 * flash. */
static bool comes_back(const struct shots *s, int64_t i, int64_t k)
{
    return i > 0 && s->facts[i].back[k] &&
           s->facts[i + k + 1].frame - s->facts[i].frame <= s->longest_flash;
}

/* Says whether i begins a flash, or is where the picture comes back after one. */
static bool is_flash(const struct shots *s, int64_t i)
{
    for (int64_t k = 0; k < ACROSS; k++)
        if (comes_back(s, i, k) || comes_back(s, i - 1 - k, k))
            return true;
    return false;
}

static bool is_black(const struct shots *s, int64_t i)
{
    return s->facts[i].luma < BLACK_LUMA;
}

static bool is_cut(const struct shots *s, int64_t i)
{
    return is_break(s, i) && !is_black(s, i) && !is_black(s, i - 1) && !is_flash(s, i) &&
           s->facts[i].before.rest >= s->conf.ratio * neighbours(s, i);
}

static void bound_add(struct shots *s, int64_t frame)
{
    if (frame - s->bounds[s->n_bounds - 1] >= s->conf.min_frames)
        s->bounds[s->n_bounds++] = frame;
}

int64_t shots_end(struct shots *s, const int64_t **bounds, struct err *err)
{
    free(s->bounds);
    s->n_bounds = 0;
    s->bounds = malloc((size_t)(s->n + 1) * sizeof *s->bounds);
    if (!s->bounds)
        return err_set(err, ERR_NOMEM, "out of memory for the shots of %lld frames",
                       (long long)s->n_frames);
    if (s->n == 0)
        return 0;
    s->bounds[s->n_bounds++] = 0;
    cadence_take(s);
    for (int64_t i = 1; i < s->n; i++) {
        int64_t end = i;
        while (end < s->n && is_black(s, end))
            end++;
        if (end > i && end < s->n && !is_black(s, i - 1) && s->facts[i].frame > 1 &&
            s->facts[end].frame - s->facts[i].frame >= 2)
            bound_add(s, (s->facts[i].frame + s->facts[end].frame) / 2);
        if (end == i && is_cut(s, i))
            bound_add(s, s->facts[i].frame);
        i = num_max_i64(i, end); /* the frame after black frames is no cut */
    }
    *bounds = s->bounds;
    return s->n_bounds;
}
