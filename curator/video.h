/* video: one pass over a file: demux, decode, and hand every frame on in two forms.
 *
 * Each frame is centre-cropped to the aspect of the wanted size and scaled (bicubic) to RGB24, and shrunk to the small planes
 * that shot detection works on; nobody decodes twice. Times come from the frames (variable rates are fine). A file
 * that breaks off or holds damaged packets gives what can be decoded; `damage` says so.
 */
#ifndef CURATOR_VIDEO_H
#define CURATOR_VIDEO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "curator/shots.h"

struct video_frame {
    int64_t index;       /* from 0 */
    double time_s;       /* since the first frame */
    const uint8_t *rgb;  /* [height, width, 3], until the callback returns */
    const uint8_t *planes; /* SHOTS_BYTES */
};
struct video_info {
    int64_t frames;
    double fps;          /* average */
    double seconds;
    int width, height;   /* of the source */
    bool damaged;
    char damage[128];
};

/* fn returning <0 stops the pass with that error. ERR_INPUT: not a video, or not one frame decodes. */
typedef int video_fn(void *ctx, const struct video_frame *f, struct err *err);
int video_decode(const char *path, int height, int width, video_fn *fn, void *ctx, struct video_info *out, struct err *err);

#endif
