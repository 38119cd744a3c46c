/* video: reads a video file in one pass: demuxes, decodes, and hands every frame on in two forms.
 *
 * A frame is what a player shows. It is centre-cropped to the aspect of the wanted size, where its
 * pixels count with their aspect ratio, scaled (bicubic) to RGB24 by the matrix and range it is
 * marked with, and turned as the container's display matrix says. Where no matrix is marked it is
 * BT.709 from 1280 columns or 577 lines on, else BT.601; where no range is marked, the narrow one,
 * and for grey the full one.
 * Each frame is also shrunk to the small planes that shot detection works on, so that this needs
 * no pass of its own.
 *
 * Times come from the frames (variable rates are fine). A picture is shown until the next one
 * comes, however long that takes, and the last one for its own duration. A file's clock may jump:
 * back, as where recordings were joined, or forward by more than an hour, or by more than ten
 * seconds in a container whose clock may do that, as MPEG's streams. There the frame before lasts
 * its own duration.
 *
 * `note` says what is not undone: PQ and HLG (taken as they are, no tone mapping), transparency
 * (taken as opaque), interlacing. A file that breaks off or holds damaged packets gives what can be
 * decoded, and `damage` says so.
 *
 * Of several video streams one is taken, and `note` says which. An attached picture (a cover, a
 * thumbnail that is marked as one) never is, nor a stream that cannot be decoded. Of the others,
 * one that moves comes before one for which the container promises a single frame or none; then one
 * that is marked as the default before others; then the one with more pixels; then the first.
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

struct video_wants { bool rgb, planes; }; /* which of its two forms a frame is made into */
struct video_frame {
    int64_t index;       /* from 0 */
    double time_s;       /* since the first frame, by a clock that does not jump */
    /* until the callback returns; NULL for what is not wanted */
    const uint8_t *rgb;    /* [height, width, 3] */
    const uint8_t *planes; /* SHOTS_BYTES */
    struct video_wants *next; /* of the frames to come, for the callback to change: both at first */
};
struct video_info {
    int64_t frames;
    double seconds;      /* until the last frame is no longer shown */
    int width, height;   /* of the source, as coded */
    double cropped;      /* share of the first frame's area that the crop took away */
    bool damaged;
    char damage[128];
    bool hdr;            /* PQ or HLG */
    char note[160];      /* what a player would have done and was not; "" when nothing */
};

/* Receives each frame. When fn returns a negative code, the pass stops with that error. ERR_INPUT:
 * the file is not a video, or not one frame decodes. ERR_TEMP, ERR_NOMEM: the file could not be
 * read now, or there was no memory, which says nothing about the video. */
typedef int video_fn(void *ctx, const struct video_frame *f, struct err *err);
int video_decode(const char *path, int height, int width, video_fn *fn, void *ctx,
                 struct video_info *out, struct err *err);

/* Returns how many ticks of this rate are over at a time. A frame is shown at the ticks from that
 * of its own time up to that of the next frame's. Times are often rounded: one in the middle
 * between two ticks, give or take a twentieth, belongs to the later. */
int64_t video_ticks(double time_s, double fps);

#endif
