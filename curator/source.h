/* source: turns one video file into clips: decodes it, finds shots, cuts clips, describes and
 * tokenises them. The result is a small shard of its own in the work folder, which holds what
 * follows from the pictures alone (curator/clip.h). It is published atomically under a key made of
 * the options and the content. So after a curation was killed, the next one need not repeat the
 * finished sources, even if files were added, removed, renamed or moved meanwhile, or captions
 * edited. */
#ifndef CURATOR_SOURCE_H
#define CURATOR_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
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
/* Ordered by what is preferred among names of one content. */
enum captioned { CAPTIONED_NOT, CAPTIONED_BADLY, CAPTIONED };
struct source {
    char *path;                   /* as opened */
    /* relative to its operand, with \xHH for bytes that are not UTF-8; used in records */
    char *name;
    struct hash128 hash;          /* of the file */
    bool hashed;
    struct stat stamp;            /* of the file when it was hashed */
    char *caption; /* the first line of NAME.txt, or "caption" of NAME.json; "" without either */
    dev_t dev;
    ino_t ino;
    /* its name does not say that it is a video; if it is none, it does not count as bad */
    bool maybe;
    enum captioned captioned; /* looked at only if another source has the same content */
};
/* Holds the result of a source; it is saved as <work>/<key>.json when the whole source is done. */
struct source_result {
    bool ok;              /* some frame decoded */
    int64_t frames, shots, clips;
    int64_t rejected;     /* shots too short for one clip */
    /* frames in no clip: of short shots, and after the last whole clip of a shot */
    int64_t unused_frames;
    double seconds;       /* of video */
    double psnr_sum;      /* over clips */
    double cropped;       /* share of the picture that the crop removes */
    bool hdr;
    char reason[256];     /* damage, or why it gave no clip; "": neither */
    char note[160];       /* what a player would convert and was not converted; "": nothing */
};

void source_release(struct source *s);
/* Tells whether the video has a caption that can be used. */
enum captioned source_captioned(const struct source *s);
/* Reads the caption beside s->path into s->caption. ERR_INPUT: it is not UTF-8, too long, or not
 * the expected JSON. Keys other than "caption" are counted, and *missing says whether "caption" is
 * missing or null; with `strict` both are errors. */
int source_caption_read(struct source *s, bool strict, int64_t *unused_keys, bool *missing,
                        struct err *err);
/* Writes the key of this source's work, made of its content and the options, to `out` and returns
 * it. Of several sources of one content only one may be worked on (curation.h). */
char *source_key(const struct source_conf *c, const struct source *s, char out[HASH_TEXT_BYTES]);
/* Does the work, unless <work>/<key>.json says that it is done. A bad video is a result (ok is
 * false) and no error; so is a file that changed while it was read: a later curation tries it
 * again. ERR_TEMP, ERR_NOMEM: another try may succeed. */
int source_process(const struct source_conf *c, const struct source *s, struct source_result *out,
                   struct err *err);
/* Writes the path of a finished source's work shard. No such file exists when the source gave no
 * clip. */
void source_shard_path(const struct source_conf *c, const struct source *s,
                       char out[LIMIT_PATH_BYTES]);
int source_result_load(const struct source_conf *c, const struct source *s,
                       struct source_result *out, struct err *err);

#endif
