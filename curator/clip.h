/* clip: describes one clip in two forms. In the work of its source it has only what follows from
 * the pictures. In the dataset it also has what may change while the pictures stay: the name of the
 * source, and its caption.
 *
 *     clip_facts_format -> (the work's shard) -> clip_facts_parse -> clip_format -> (the dataset)
 */
#ifndef CURATOR_CLIP_H
#define CURATOR_CLIP_H

#include "base/str.h"
#include "curator/source.h"

struct clip {
    int64_t shot;             /* its number in the source */
    double start_s, end_s;    /* times of its first and its last frame in the source */
    double fps, psnr_db;
    double motion, sharpness; /* mean differences of frames, and of neighbouring pixels */
    bool hdr;
};

/* Append the form of the work and that of the dataset. `text_len` counts the tokens of the
 * caption. */
void clip_facts_format(const struct clip *k, struct str *out);
void clip_format(const struct source_conf *c, const struct source *s, const struct clip *k,
                 int64_t text_len, struct str *out);
/* Parses the form of the work. `name` names the clip in errors. */
int clip_facts_parse(const char *text, size_t n, const char *name, struct clip *out,
                     struct err *err);

#endif
