#include "base/npy.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_BYTES = 6, HEADER_MAX = 4096 };

/* Converts IEEE 754 binary16 to binary32 exactly, including subnormals and infinities. */
static float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = (h >> 10) & 31, fraction = h & 1023, bits;
    float value;
    if (exponent == 0) {
        value = ldexpf((float)fraction, -24);
        return sign ? -value : value;
    }
    bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Copies the text of the header's dictionary and returns the offset of the payload, 0 if this is no
 * npy header. */
static int64_t header_find(const unsigned char *p, int64_t n, char dict[HEADER_MAX])
{
    static const unsigned char magic[MAGIC_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    if (n < 12 || memcmp(p, magic, MAGIC_BYTES) != 0 || p[6] < 1 || p[6] > 3)
        return 0;
    int64_t wide = p[6] == 1 ? 2 : 4, len = p[8] | p[9] << 8;
    if (wide == 4)
        len |= (int64_t)p[10] << 16 | (int64_t)p[11] << 24;
    if (8 + wide + len > n || len >= HEADER_MAX)
        return 0;
    memcpy(dict, p + 8 + wide, (size_t)len);
    dict[len] = 0;
    return 8 + wide + len;
}

/* Returns a pointer to the value that follows 'key': in the dictionary, NULL if there is none. */
static const char *dict_value(const char *dict, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(dict, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    while (*at == ' ' || *at == ':')
        at++;
    return at;
}

static bool shape_is(const char *text, const int64_t *shape, int nd)
{
    char *end;
    if (!text || *text++ != '(')
        return false;
    for (int i = 0; i < nd; i++) {
        if (strtoll(text, &end, 10) != shape[i] || end == text)
            return false;
        text = end;
        while (*text == ' ' || *text == ',')
            text++;
    }
    return *text == ')';
}

int npy_parse(const void *bytes, int64_t n, const int64_t *shape, int nd, const char *what,
              float *out, struct err *err)
{
    char dict[HEADER_MAX];
    const unsigned char *p = bytes;
    int64_t count = 1, start = header_find(p, n, dict);
    if (start == 0)
        return err_set(err, ERR_CORRUPT, "%s is not in the .npy format", what);
    const char *descr = dict_value(dict, "descr"), *order = dict_value(dict, "fortran_order");
    bool f32 = descr && strncmp(descr, "'<f4'", 5) == 0,
         f16 = descr && strncmp(descr, "'<f2'", 5) == 0;
    if ((!f32 && !f16) || !order || strncmp(order, "False", 5) != 0)
        return err_set(err, ERR_CORRUPT, "%s must be float32 or float16, little-endian, in C order",
                       what);
    if (!shape_is(dict_value(dict, "shape"), shape, nd))
        return err_set(err, ERR_CORRUPT, "%s has another shape than the index says", what);
    for (int i = 0; i < nd; i++)
        count *= shape[i];
    if (n - start != count * (f32 ? 4 : 2))
        return err_set(err, ERR_CORRUPT, "%s holds %lld payload bytes, its shape needs %lld", what,
                       (long long)(n - start), (long long)(count * (f32 ? 4 : 2)));
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        if (f32) {
            memcpy(&out[i], p + start + 4 * i, 4);
        } else {
            memcpy(&half, p + start + 2 * i, 2);
            out[i] = half_to_float(half);
        }
        if (!isfinite(out[i]))
            return err_set(err, ERR_CORRUPT, "%s: element %lld is not finite", what, (long long)i);
    }
    return 0;
}

/* Pads the header with spaces so that the payload starts at a multiple of 64 bytes. */
void npy_format(const float *values, const int64_t *shape, int nd, struct str *out)
{
    struct str dict = STR_INIT;
    int64_t count = 1;
    str_addf(&dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < nd; i++) {
        str_addf(&dict, "%s%lld", i ? ", " : "", (long long)shape[i]);
        count *= shape[i];
    }
    str_addf(&dict, "%s), }", nd == 1 ? "," : "");
    while ((10 + dict.len + 1) % 64)
        str_addc(&dict, ' ');
    str_addc(&dict, '\n');
    unsigned char head[10] = {0x93,
                              'N',
                              'U',
                              'M',
                              'P',
                              'Y',
                              1,
                              0,
                              (unsigned char)(dict.len & 255),
                              (unsigned char)(dict.len >> 8)};
    str_addn(out, head, sizeof head);
    str_addn(out, dict.p, dict.len);
    str_addn(out, values, (size_t)count * sizeof *values);
    out->failed |= dict.failed;
    str_release(&dict);
}
