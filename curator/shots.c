#include "curator/shots.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ACROSS = 4 }; /* frames looked across for a flash */
static const double BLACK_LUMA = 24, FLASH_SHARE = 0.4;

struct frame_facts {
    float d;              /* to the frame before */
    float across[ACROSS]; /* d(i + 1 + k, i - 1): this frame and k more skipped; filled as later frames come; negative: not known */
    float luma;
};
struct shots {
    struct shots_conf conf;
    struct frame_facts *facts;
    int64_t n, room;
    uint8_t ring[ACROSS + 2][SHOTS_BYTES]; /* newest planes, frame f at f mod size */
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

static const uint8_t *planes_of(const struct shots *s, int64_t frame)
{
    return s->ring[frame % (ACROSS + 2)];
}

int shots_push(struct shots *s, const uint8_t planes[SHOTS_BYTES], struct err *err)
{
    if (s->n == s->room) {
        int64_t room = s->room ? 2 * s->room : 1024;
        struct frame_facts *grown = realloc(s->facts, (size_t)room * sizeof *grown);
        if (!grown)
            return err_set(err, ERR_NOMEM, "out of memory for the differences of %lld frames", (long long)room);
        s->facts = grown;
        s->room = room;
    }
    int64_t i = s->n++, luma = 0;
    struct frame_facts *f = &s->facts[i];
    memcpy(s->ring[i % (ACROSS + 2)], planes, SHOTS_BYTES);
    for (int k = 0; k < SHOTS_PLANE; k++)
        luma += planes[k];
    *f = (struct frame_facts){.d = i ? difference(planes, planes_of(s, i - 1)) : 0, .luma = (float)luma / SHOTS_PLANE};
    for (int k = 0; k < ACROSS; k++)
        f->across[k] = -1;
    for (int k = 0; k < ACROSS && i - k - 2 >= 0; k++)
        s->facts[i - k - 1].across[k] = difference(planes, planes_of(s, i - k - 2));
    return 0;
}

double shots_difference(const struct shots *s, int64_t frame)
{
    return s->facts[frame].d;
}

/* Mean difference of the two frames on either side. */
static double neighbours(const struct shots *s, int64_t i)
{
    double sum = 0;
    int n = 0;
    for (int64_t k = i - 2; k <= i + 2; k++)
        if (k > 0 && k < s->n && k != i) {
            sum += s->facts[k].d;
            n++;
        }
    return n ? sum / n : 0;
}

/* Does a frame shortly after i resemble the one before it (i begins a flash), or the one at i one before the last few (ends it)? */
static bool is_flash(const struct shots *s, int64_t i)
{
    double limit = FLASH_SHARE * s->facts[i].d;
    for (int k = 0; k < ACROSS; k++) {
        float after = s->facts[i].across[k];
        if (after >= 0 && after < limit)
            return true;
        int64_t begin = i - 1 - k; /* the flash would have begun here and ended at i */
        if (begin > 0 && s->facts[begin].across[k] >= 0 && s->facts[begin].across[k] < limit && s->facts[begin].d > limit)
            return true;
    }
    return false;
}

static bool is_black(const struct shots *s, int64_t i)
{
    return s->facts[i].luma < BLACK_LUMA;
}

static bool is_cut(const struct shots *s, int64_t i)
{
    const struct frame_facts *f = &s->facts[i];
    if (f->d < s->conf.threshold || is_black(s, i) || is_black(s, i - 1))
        return false;
    double near = neighbours(s, i);
    return f->d >= s->conf.ratio * near && !is_flash(s, i);
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
        return err_set(err, ERR_NOMEM, "out of memory for the shots of %lld frames", (long long)s->n);
    if (s->n == 0)
        return 0;
    s->bounds[s->n_bounds++] = 0;
    for (int64_t i = 1; i < s->n; i++) {
        if (is_black(s, i)) {
            int64_t end = i;
            while (end < s->n && is_black(s, end))
                end++;
            if (end - i >= 2 && i > 1 && end < s->n)
                bound_add(s, (i + end) / 2);
            i = end;
            continue;
        }
        if (is_cut(s, i))
            bound_add(s, i);
    }
    *bounds = s->bounds;
    return s->n_bounds;
}
