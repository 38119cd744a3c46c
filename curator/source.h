/* source: one video file to clips: decode once, find shots, cut clips, describe, tokenise. The result is a small shard of its own in
 * the work folder, published atomically under a key of all that decides its bytes: options, content, name and caption. So a killed
 * curation takes up after the sources it had finished, whatever was added to or taken from the folder meanwhile.
 */
#ifndef CURATOR_SOURCE_H
#define CURATOR_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/hash.h"
#include "base/limits.h"
#include "curator/content.h"
#include "curator/shots.h"
#include "curator/text.h"
#include "curator/tokenizer.h"

struct source_conf {
    int height, width;         /* of clips, multiples of 16 */
    int64_t frames;            /* of a clip, 1 + 8k */
    double fps;                /* frames a second, resampled by time; 0: every frame as it comes */
    struct shots_conf shots;
    int64_t text_width, text_len;
    const struct tokenizer *tokenizer;
    const struct text_encoder *encoder;
    const char *work_dir;
    struct hash128 options;    /* of the text of all options that decide a clip's bytes */
};
struct source {
    char *path;                   /* as opened */
    char *name;                   /* relative to its operand: what records say, with \xHH for bytes that are not UTF-8 */
    struct hash128 hash;          /* of the file */
    bool hashed;
    struct content_stamp stamp;   /* when it was hashed */
    char *caption;                /* the first line of NAME.txt, or "caption" of NAME.json; "" without either */
    dev_t dev;
    ino_t ino;
    bool maybe;                   /* nothing says that it is a video: if it is none, it is no bad one */
};
/* What became of it; saved as <work>/<key>.json when all of it is done. */
struct source_result {
    bool ok;              /* some frame decoded */
    int64_t frames, shots, clips;
    int64_t rejected;     /* shots too short for one clip */
    int64_t unused_frames; /* in no clip: short shots, and the rest of shots behind their last whole clip */
    double seconds;       /* of video */
    double psnr_sum;      /* over clips */
    double cropped;       /* share of the picture that the crop takes away */
    bool hdr;
    char reason[256];     /* damage, or why it gave nothing; "" when all is well */
    char note[160];       /* what a player would have done and was not; "" when nothing */
};

void source_release(struct source *s);
/* Reads the caption beside s->path into s->caption. ERR_INPUT: not UTF-8, too long, not the JSON expected. Keys beside "caption" are
 * counted, that it is missing (or null) is said in *missing; either is an error with `strict`. */
int source_caption_read(struct source *s, bool strict, int64_t *unused_keys, bool *missing, struct err *err);
/* Names the work of this source under these options: all that decides its bytes. */
char *source_key(const struct source_conf *c, const struct source *s, char out[HASH_TEXT_BYTES]);
/* Does the work unless <work>/<key>.json says that it is done. A bad video is a result (ok false), not an error, and so is a file that
 * changed while it was read; a later curation tries it again. ERR_TEMP, ERR_NOMEM: another try may do it. */
int source_process(const struct source_conf *c, const struct source *s, struct source_result *out, struct err *err);
/* The work shard of a finished source; there is none when it gave no clip. */
void source_shard_path(const struct source_conf *c, const struct source *s, char out[LIMIT_PATH_BYTES]);
int source_result_load(const struct source_conf *c, const struct source *s, struct source_result *out, struct err *err);

#endif
