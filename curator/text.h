/* text: turns captions into embeddings, behind one interface, and has the built-in stand-in for an
 * encoder.
 *
 * "hashed-ngram/1" is a deterministic stand-in for a language model's encoder, and is labelled so
 * wherever its vectors go. Words and the character trigrams inside them are hashed (XXH3) to signed
 * places of the vector, one unit vector a word. Similar spelling gives similar vectors; it knows
 * nothing of meaning.
 */
#ifndef CURATOR_TEXT_H
#define CURATOR_TEXT_H

#include <stdint.h>

struct text_encoder {
    const char *name;
    /* Writes up to max_tokens rows of `width` floats to out; returns how many rows the caption
     * has. */
    int64_t (*encode)(const char *caption, int64_t width, int64_t max_tokens, float *out);
};
extern const struct text_encoder text_encoder_hashed;

#endif
