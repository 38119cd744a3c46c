#include "curator/npy.h"

#include <string.h>

/* The header is padded with spaces so that the payload starts at a multiple of 64 bytes. */
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
    unsigned char head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(dict.len & 255), (unsigned char)(dict.len >> 8)};
    str_addn(out, head, sizeof head);
    str_addn(out, dict.p, dict.len);
    str_addn(out, values, (size_t)count * sizeof *values);
    out->failed |= dict.failed;
    str_release(&dict);
}
