#include "curator/text.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/hash.h"

enum { WORD_BYTES = 64 };

static void feature_add(const char *bytes, size_t n, float weight, int64_t width, float *row)
{
    uint64_t h = hash_64(bytes, n);
    row[(h >> 1) % (uint64_t)width] += h & 1 ? weight : -weight;
}

/* Writes the unit vector of a word: the sum of the word itself and, at half the weight, of its
 * trigrams, with marks at the word's ends. */
static void word_encode(const char *word, int64_t width, float *row)
{
    char marked[WORD_BYTES + 2];
    size_t n = strlen(word);
    double sum = 0;
    memset(row, 0, (size_t)width * sizeof *row);
    feature_add(word, n, 1, width, row);
    marked[0] = '^';
    memcpy(marked + 1, word, n);
    marked[n + 1] = '$';
    for (size_t i = 0; i + 3 <= n + 2; i++)
        feature_add(marked + i, 3, 0.5f, width, row);
    for (int64_t i = 0; i < width; i++)
        sum += (double)row[i] * row[i];
    for (int64_t i = 0; i < width && sum > 0; i++)
        row[i] = (float)(row[i] / sqrt(sum));
}

/* Says whether a byte belongs to a word: ASCII letters and digits, and all bytes of other UTF-8
 * characters. */
static int is_word_byte(unsigned char c)
{
    return isalnum(c) || c >= 0x80;
}

static int64_t encode(const char *caption, int64_t width, int64_t max_tokens, float *out)
{
    int64_t n = 0;
    while (*caption && n < max_tokens) {
        char word[WORD_BYTES];
        size_t len = 0;
        while (*caption && !is_word_byte((unsigned char)*caption))
            caption++;
        for (; is_word_byte((unsigned char)*caption); caption++)
            if (len < WORD_BYTES - 1)
                word[len++] = (char)tolower((unsigned char)*caption);
        word[len] = 0;
        if (len)
            word_encode(word, width, out + n++ * width);
    }
    return n;
}

const struct text_encoder text_encoder_hashed = {"hashed-ngram/1", encode};
