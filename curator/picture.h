/* picture: one RGB picture to a PNG file, by FFmpeg's encoder. */
#ifndef CURATOR_PICTURE_H
#define CURATOR_PICTURE_H

#include <stdint.h>

#include "base/err.h"

/* rgb: [height, width, 3]. Atomic. ERR_ENV when this FFmpeg has no PNG encoder. */
int picture_png_save(const char *path, const uint8_t *rgb, int height, int width, struct err *err);

#endif
