/* video: reads a video file in one pass: demuxes, decodes, and passes on every frame in two forms.
 *
 * A frame is converted to what a player shows. It is centre-cropped to the aspect of the wanted
 * size (pixel aspect ratios count), scaled (bicubic) to RGB24 with the matrix and range in its
 * metadata, and rotated by the container's display matrix. Without a matrix in the metadata, frames
 * from 1280 columns or 577 lines on are BT.709, others BT.601; without a range, frames are narrow,
 * and grey ones full range. Each frame is also shrunk to the small planes for shot detection, so
 * that this needs no separate pass.
 *
 * Times come from the frames (variable rates are fine). A picture is shown until the next one
 * comes, however long that takes, and the last one for its own duration. A file's clock may jump:
 * back, as where recordings were joined, or forward by more than an hour, or by more than ten
 * seconds in a container whose clock may be discontinuous, like MPEG's streams. There the frame
 * before lasts its own duration.
 *
 * `note` says what is not converted: PQ and HLG (taken as they are, no tone mapping), transparency
 * (taken as opaque), interlacing, a rotation by no quarter turn, a colour matrix that is not known.
 * A file that breaks off or holds damaged packets gives the frames that can be decoded, and
 * `damage` says so.
 *
 * Of several video streams one is taken, and `note` says which. An attached picture (a cover, a
 * thumbnail that is marked as one) is never taken, nor a stream that cannot be decoded. Of the
 * others, a moving one comes before one whose container counts at most one frame; then one that is
 * marked as the default; then the one with more pixels; then the first.
 *
 * Only files are opened, and only containers of pictures and sound: a playlist (ffconcat, HLS,
 * DASH), which names other files, is refused.
 */
#ifndef CURATOR_VIDEO_H
#define CURATOR_VIDEO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "curator/shots.h"

#define VIDEO_NAME "video/5" /* changes when the same file may give other pictures */

struct video_wants { bool rgb, planes; }; /* forms into which a frame is converted */
struct video_frame {
    int64_t index;       /* from 0 */
    double time_s;       /* since the first frame, by a clock that does not jump */
    /* valid until the callback returns; NULL: not wanted */
    const uint8_t *rgb;    /* [height, width, 3] */
    const uint8_t *planes; /* SHOTS_BYTES */
    struct video_wants *next; /* of later frames; the callback may change it; at first both */
};
struct video_info {
    int64_t frames;
    double seconds;      /* end of the last frame */
    int width, height;   /* of the source, as coded */
    double cropped;      /* share of the first frame's area that the crop removed */
    bool damaged;
    char damage[128];
    bool hdr;            /* PQ or HLG */
    char note[160];      /* what a player would convert and was not converted; "": nothing */
};

/* Receives each frame. When it returns a negative code, video_decode stops with that error. */
typedef int video_fn(void *ctx, const struct video_frame *f, struct err *err);
/* Decodes the file and calls fn for each frame. ERR_INPUT: the file is not a video, or not one
 * frame decodes. ERR_TEMP, ERR_NOMEM: the file could not be read now, or there was no memory, which
 * says nothing about the video. */
int video_decode(const char *path, int height, int width, video_fn *fn, void *ctx,
                 struct video_info *out, struct err *err);

/* Returns how many ticks of this rate have passed at a time. A frame is shown at the ticks from
 * that of its own time up to the tick before the next frame's. Times are often rounded, so a time
 * in the middle between two ticks, give or take a twentieth, belongs to the later tick. */
int64_t video_ticks(double time_s, double fps);

#endif
