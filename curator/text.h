/* text: turns captions into embeddings, through one interface, and has a built-in substitute for an
 * encoder.
 *
 * "hashed-ngram/1" is a deterministic substitute for a language model's encoder; datasets record
 * this name. Words and the character trigrams inside them are hashed (XXH3) to signed places of the
 * vector, one unit vector a word. Similar spelling gives similar vectors; meaning plays no part.
 */
#ifndef CURATOR_TEXT_H
#define CURATOR_TEXT_H

#include <stdint.h>

struct text_encoder {
    const char *name;
    /* Writes up to max_tokens rows of `width` floats to out, one for each word. Returns the number
     * of rows. */
    int64_t (*encode)(const char *caption, int64_t width, int64_t max_tokens, float *out);
};
extern const struct text_encoder text_encoder_hashed;

#endif
