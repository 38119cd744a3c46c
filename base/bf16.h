/* bf16: rounds numbers to bf16, which is the upper half of a float's bits. It has a float's range,
 * with 8 bits of precision.
 *
 * bf16_round rounds to the nearest bf16 number, and to the even one of two that are equally near. A
 * value that exceeds the largest bf16 number by half a step or more becomes infinite; NaN stays
 * NaN.
 *
 * bf16_round_random rounds at random, so that the mean of its results is the value itself. Given 16
 * random bits, it rounds a value between two neighbours away from zero with a probability equal to
 * the value's relative distance from the neighbour nearer to zero. So an average that moves by less
 * than half a step of the format still moves in the mean. Numbers of the format stay as they are,
 * and so do infinities and NaN.
 */
#ifndef BASE_BF16_H
#define BASE_BF16_H

#include <stdint.h>
#include <string.h>

#include "base/host_device.h"

static inline HOST_DEVICE float bf16_value(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline HOST_DEVICE uint16_t bf16_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t near = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
    return (uint16_t)(((bits & 0x7fffffff) > 0x7f800000 ? quiet : near) >> 16);
}

/* Rounds a double to the nearest bf16 number. The nearest float would be a wrong intermediate step,
 * because it may lie half-way between two bf16 numbers. So this takes the float toward zero, and
 * sets its last bit when digits were cut off (rounding to odd: Boldo and Melquiond, "Emulation of
 * FMA and correctly rounded sums", 2008). */
static inline HOST_DEVICE uint16_t bf16_round_double(double x)
{
    float near = (float)x;
    double back = near;
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    if (back != x && x == x) {
        bits -= (back > x) == (x > 0);
        bits |= 1;
        memcpy(&near, &bits, sizeof near);
    }
    return bf16_round(near);
}

static inline HOST_DEVICE uint16_t bf16_round_random(float x, uint16_t random)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000)
        bits += random;
    return (uint16_t)(bits >> 16);
}

#endif
