/* frames: the frames of a source from which clips are cut, in two steps. The first decodes the
 * whole video, for only then is it known where its shots begin. It keeps each frame's place and
 * time, and the pictures themselves while they fit into a spool of fixed size. The second step
 * hands on the pictures of each clip. Where the spool held all pictures they come out of it; else
 * the video is decoded a second time, and one clip at a time is kept. So what a source takes of
 * disk and memory does not grow with its pictures. Nor does a spool that cannot be written, as on a
 * full disk, stop the work.
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

/* Kept are those that are shown at the wanted rate. A frame shown twice is there twice. */
struct frames {
    const struct source_conf *c;
    struct shots *shots;          /* of all frames of the source */
    int64_t n, room, frame_bytes;
    int64_t *index;               /* [n] number of kept frame i in the source */
    double *time_s;               /* [n] */
    int spool;                    /* unlinked; below 0: there is none */
    int64_t *slot;                /* [n] place in the spool: a frame shown twice lies there once */
    int64_t n_slots;
    /* resampling: the newest frame, until it is known how long it is shown */
    uint8_t *held;
    int64_t held_index, held_slot; /* slot -1: not in the spool */
};

/* Decodes the source. f->c is set and all else is zero. Returns 1 when the source is bad, with the
 * reason in *why. ERR_TEMP, ERR_NOMEM: another try may succeed. */
int frames_take(struct frames *f, const struct source *s, struct video_info *info, struct err *why,
                struct err *err);
/* Returns the number of the first kept frame that is not before this frame of the source. */
int64_t frames_at(const struct frames *f, int64_t source_frame);

/* Receives the number of the clip whose pictures are there now. */
typedef int frames_fn(void *ctx, int64_t clip, struct err *err);
/* Fills rgb with the frames of each clip, one clip after the other, and calls fn for it. Clip i
 * begins at kept frame first[i], and they do not overlap. Returns 1 when the source is bad, with
 * the reason in *why: nothing that came of it may be used. */
int frames_clips(struct frames *f, const struct source *s, const int64_t *first, int64_t n,
                 uint8_t *rgb, frames_fn *fn, void *ctx, struct err *why, struct err *err);
void frames_release(struct frames *f);

#endif
