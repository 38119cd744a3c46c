/* bf16: the upper half of a float's bits: its range, with 8 bits of precision.
 *
 * bf16_round takes the nearest number of the format, and the even one of two that are equally near.
 * What is past the largest by half a step or more becomes infinite; NaN stays NaN.
 *
 * Rounding at random is right on average: given 16 random bits, a number between two neighbours
 * becomes the upper one with the probability of its place between them. So an average that moves by
 * less than half a step of the format moves all the same. Numbers of the format stay as they are,
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

/* Rounds a double, not by way of the nearest float, which may be half-way between two numbers of
 * the format, but by the float toward zero whose last bit is set when anything was cut off
 * (rounding to odd: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008). */
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
