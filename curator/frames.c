#include "curator/frames.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* SPOOL_BYTES is the greatest size of a spool, and SPARE_BYTES the disk space that must stay free.
 * Writing a picture and reading it back costs less than decoding it again, but clips need the disk
 * more. */
static const int64_t SPOOL_BYTES = (int64_t)1 << 30, SPARE_BYTES = (int64_t)1 << 30;

/* ---- the spool ---- */

static int spool_open(struct frames *f, const struct source *s, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 64], key[HASH_TEXT_BYTES];
    snprintf(path, sizeof path, "%s/%s.frames", f->c->work_dir, source_key(f->c, s, key));
    f->spool = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (f->spool < 0)
        return err_set_errno(err, ERR_IO, "cannot make '%s'", path);
    unlink(path);
    return 0;
}

static void spool_drop(struct frames *f)
{
    if (f->spool >= 0)
        close(f->spool);
    f->spool = -1;
}

/* Says whether there is room for one more picture. If free space is not known, only a failed write
 * tells. */
static bool spool_fits(const struct frames *f)
{
    int64_t space = file_space(f->c->work_dir);
    return (f->n_slots + 1) * f->frame_bytes <= SPOOL_BYTES && (space < 0 || space > SPARE_BYTES);
}

/* Adds a picture and returns its place. When the spool is full, or the disk has no room, the whole
 * spool is dropped. */
static int64_t spool_add(struct frames *f, const uint8_t *rgb)
{
    if (f->spool >= 0 && (!spool_fits(f) || file_write_all(f->spool, rgb, (size_t)f->frame_bytes,
                                                           f->c->work_dir, NULL) < 0))
        spool_drop(f);
    return f->n_slots++;
}

static int spool_read(const struct frames *f, int64_t slot, uint8_t *rgb, struct err *err)
{
    for (int64_t done = 0; done < f->frame_bytes;) {
        ssize_t n = pread(f->spool, rgb + done, (size_t)(f->frame_bytes - done),
                          slot * f->frame_bytes + done);
        if (n <= 0)
            return err_set_errno(err, ERR_IO, "cannot read frames back from the spool");
        done += n;
    }
    return 0;
}

/* ---- the first step ---- */

static int kept_grow(struct frames *f, struct err *err)
{
    int64_t room = f->room ? 2 * f->room : 1024;
    int64_t *index = realloc(f->index, (size_t)room * sizeof *index);
    if (index)
        f->index = index;
    int64_t *slot = realloc(f->slot, (size_t)room * sizeof *slot);
    if (slot)
        f->slot = slot;
    double *time_s = realloc(f->time_s, (size_t)room * sizeof *time_s);
    if (time_s)
        f->time_s = time_s;
    if (!index || !slot || !time_s)
        return err_set(err, ERR_NOMEM, "out of memory for %lld frames", (long long)room);
    f->room = room;
    return 0;
}

static int frame_keep(struct frames *f, int64_t index, double time_s, int64_t slot, struct err *err)
{
    if (f->n == f->room && kept_grow(f, err) < 0)
        return ERR_NOMEM;
    f->index[f->n] = index;
    f->slot[f->n] = slot;
    f->time_s[f->n++] = time_s;
    return 0;
}

/* Stores the held frame once for each tick of the rate c->fps before tick `end`. */
static int held_keep(struct frames *f, int64_t end, struct err *err)
{
    int rc;
    while (f->n < end) {
        double time_s = (double)f->n / f->c->fps;
        if (f->held_slot < 0)
            f->held_slot = spool_add(f, f->held);
        if ((rc = frame_keep(f, f->held_index, time_s, f->held_slot, err)) < 0)
            return rc;
    }
    return 0;
}

/* Resamples by time: the previous frame is stored for all ticks before this frame's tick, and then
 * this frame becomes the held one. */
static int frame_resample(struct frames *f, const struct video_frame *v, struct err *err)
{
    int64_t end = video_ticks(v->time_s, f->c->fps);
    int rc;
    if (v->index > 0 && (rc = held_keep(f, end, err)) < 0)
        return rc;
    if (v->rgb)
        memcpy(f->held, v->rgb, (size_t)f->frame_bytes);
    f->held_index = v->index;
    f->held_slot = -1;
    return 0;
}

/* Receives one frame of the video. Every frame goes to the shot detector; frames that are shown at
 * the wanted rate also go to the spool, while there is one. */
static int frame_take(void *ctx, const struct video_frame *v, struct err *err)
{
    struct frames *f = ctx;
    int rc;
    if ((rc = shots_push(f->shots, v->planes, v->time_s, err)) < 0)
        return rc;
    rc = f->c->fps > 0 ? frame_resample(f, v, err)
                       : frame_keep(f, v->index, v->time_s, spool_add(f, v->rgb), err);
    v->next->rgb = f->spool >= 0;
    return rc;
}

/* Returns 1 when the source's content is no longer the one that was hashed. */
static int changed(const struct source *s, struct err *why, struct err *err)
{
    int rc;
    if ((rc = content_holds(s->path, s->hash, err)) < 0)
        return rc;
    if (rc == 0)
        err_set(why, ERR_INPUT, "its content changed while it was read: it is taken once it is "
                                "whole");
    return rc == 0;
}

static int places_take(struct frames *f, const struct source *s, struct err *err)
{
    int rc;
    f->frame_bytes = (int64_t)f->c->height * f->c->width * 3;
    f->spool = -1;
    if ((rc = shots_new(&f->c->shots, &f->shots, err)) < 0)
        return rc;
    if (f->c->fps > 0 && !(f->held = malloc((size_t)f->frame_bytes)))
        return err_set(err, ERR_NOMEM, "out of memory for a frame");
    return spool_open(f, s, err);
}

int frames_take(struct frames *f, const struct source *s, struct video_info *info, struct err *why,
                struct err *err)
{
    int rc;
    if ((rc = places_take(f, s, err)) < 0)
        return rc;
    rc = video_decode(s->path, f->c->height, f->c->width, frame_take, f, info, why);
    if (rc == ERR_INPUT) {
        info->frames = 0; /* frames before the fault are not used */
        return 1;
    }
    if (rc < 0)
        return err_set(err, rc, "%s", why->text);
    if (f->c->fps > 0 && (rc = held_keep(f, video_ticks(info->seconds, f->c->fps), err)) < 0)
        return rc;
    return f->spool >= 0 ? changed(s, why, err) : 0;
}

int64_t frames_at(const struct frames *f, int64_t source_frame)
{
    int64_t lo = 0, hi = f->n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (f->index[mid] < source_frame)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* ---- the second step ---- */

/* Holds how far the clips are filled. */
struct filling {
    const struct frames *f;
    const int64_t *first;
    int64_t n, clip, filled; /* `filled` frames of clip `clip` are there */
    uint8_t *rgb;
    frames_fn *fn;
    void *ctx;
};

/* Returns the number of the kept frame that the clips need next; -1: they have all. */
static int64_t wanted_next(const struct filling *g)
{
    return g->clip < g->n ? g->first[g->clip] + g->filled : -1;
}

static uint8_t *place_next(const struct filling *g)
{
    return g->rgb + g->filled * g->f->frame_bytes;
}

/* Counts the frame that was just placed, and passes on a clip that is full. */
static int frame_placed(struct filling *g, struct err *err)
{
    if (++g->filled < g->f->c->frames)
        return 0;
    g->filled = 0;
    return g->fn(g->ctx, g->clip++, err);
}

static int from_spool(struct filling *g, struct err *err)
{
    int64_t kept;
    int rc;
    while ((kept = wanted_next(g)) >= 0) {
        if ((rc = spool_read(g->f, g->f->slot[kept], place_next(g), err)) < 0)
            return rc;
        if ((rc = frame_placed(g, err)) < 0)
            return rc;
    }
    return 0;
}

/* Copies a frame of the second decoding to each place that it has in the clips. */
static int frame_again(void *ctx, const struct video_frame *v, struct err *err)
{
    struct filling *g = ctx;
    int64_t kept;
    int rc;
    while ((kept = wanted_next(g)) >= 0 && g->f->index[kept] == v->index) {
        memcpy(place_next(g), v->rgb, (size_t)g->f->frame_bytes);
        if ((rc = frame_placed(g, err)) < 0)
            return rc;
    }
    *v->next = (struct video_wants){.rgb = kept >= 0 && g->f->index[kept] == v->index + 1};
    return 0;
}

/* Decodes the video again. The facts that video_decode() finds are ignored, because the first
 * decoding found the same. */
static int decode_again(struct filling *g, const struct source *s, struct err *why, struct err *err)
{
    struct video_info info;
    int rc = video_decode(s->path, g->f->c->height, g->f->c->width, frame_again, g, &info, why),
        other;
    if (rc < 0 && rc != ERR_INPUT)
        return err_set(err, rc, "%s", why->text);
    if ((other = changed(s, why, err)) != 0)
        return other;
    if (rc == 0 && g->clip < g->n)
        return err_set(err, ERR_TEMP, "decoded again it gave %lld frames, fewer than before",
                       (long long)info.frames);
    return rc == ERR_INPUT;
}

int frames_clips(struct frames *f, const struct source *s, const int64_t *first, int64_t n,
                 uint8_t *rgb, frames_fn *fn, void *ctx, struct err *why, struct err *err)
{
    struct filling g = {.f = f, .first = first, .n = n, .rgb = rgb, .fn = fn, .ctx = ctx};
    return f->spool >= 0 ? from_spool(&g, err) : decode_again(&g, s, why, err);
}

void frames_release(struct frames *f)
{
    if (f->c)
        spool_drop(f);
    shots_free(f->shots);
    free(f->index);
    free(f->slot);
    free(f->time_s);
    free(f->held);
    *f = (struct frames){0};
}
