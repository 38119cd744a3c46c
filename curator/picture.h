/* picture: writes one RGB picture to a PNG file with FFmpeg's encoder. */
#ifndef CURATOR_PICTURE_H
#define CURATOR_PICTURE_H

#include <stdint.h>

#include "base/err.h"

/* Writes rgb ([height, width, 3]) to `path`, atomically. ERR_ENV: this FFmpeg has no PNG
 * encoder. */
int picture_png_save(const char *path, const uint8_t *rgb, int height, int width, struct err *err);

#endif
