/* frames: gets the frames of a source for its clips, in two steps. The first step decodes the whole
 * video, because only then is it known where its shots begin. It keeps each frame's index and time,
 * and the pictures themselves as long as they fit into a spool file of bounded size. The second
 * step passes on the pictures of each clip. If the spool has all pictures, they are read from it;
 * otherwise the video is decoded a second time, and the pictures of one clip at a time are kept. So
 * the disk space and memory of a source do not grow with its pictures. A spool that cannot be
 * written, as on a full disk, does not stop the work either.
 *
 *     frames_take(&f, source, &info, &why, err);
 *     // clips are planned from f.n, f.index and f.shots
 *     frames_clips(&f, source, first, n, rgb, fn, ctx, &why, err);
 *     frames_release(&f);
 */
#ifndef CURATOR_FRAMES_H
#define CURATOR_FRAMES_H

#include "curator/source.h"
#include "curator/video.h"

/* Holds the frames that are shown at the rate c->fps, where a frame that is shown twice is listed
 * twice; or every frame once, if c->fps is 0. */
struct frames {
    const struct source_conf *c;
    struct shots *shots;          /* the shot detector, which has seen all frames */
    int64_t n, room, frame_bytes;
    int64_t *index;               /* [n] number of kept frame i in the source */
    double *time_s;               /* [n] */
    int spool;                    /* an unlinked file; below 0: none */
    int64_t *slot;                /* [n] place in the spool; a frame shown twice is there once */
    int64_t n_slots;
    /* for resampling: the newest frame, until the next one says how long it is shown */
    uint8_t *held;
    int64_t held_index, held_slot; /* slot -1: not in the spool */
};

/* Decodes the source. f->c must be set, and all else zero. Returns 1 when the source is bad, with
 * the reason in *why. ERR_TEMP, ERR_NOMEM: another try may succeed. */
int frames_take(struct frames *f, const struct source *s, struct video_info *info, struct err *why,
                struct err *err);
/* Returns the number of the first kept frame that is not before frame `source_frame` of the
 * source. */
int64_t frames_at(const struct frames *f, int64_t source_frame);

/* Receives the number of the clip whose pictures are now in rgb. */
typedef int frames_fn(void *ctx, int64_t clip, struct err *err);
/* Fills rgb with the frames of each clip, one clip after the other, and calls fn for it. Clip i
 * begins at kept frame first[i]; clips do not overlap. Returns 1 when the source is bad, with the
 * reason in *why: then no clip of it may be used. */
int frames_clips(struct frames *f, const struct source *s, const int64_t *first, int64_t n,
                 uint8_t *rgb, frames_fn *fn, void *ctx, struct err *why, struct err *err);
void frames_release(struct frames *f);

#endif
