/* bf16: the upper half of a float's bits: its range, 8 bits of precision.
 *
 * Rounding to it at random is right on average: a number between two neighbours becomes the upper one with the probability of its place
 * between them, given 16 random bits. So an average that moves by less than half a step of the format moves all the same. Numbers of the
 * format stay as they are, infinities and NaN too.
 */
#ifndef BASE_BF16_H
#define BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bf16_value(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint16_t bf16_round_random(float x, uint16_t random)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000)
        bits += random;
    return (uint16_t)(bits >> 16);
}

#endif
