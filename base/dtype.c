#include "base/dtype.h"

#include <stddef.h>

const char *const dtype_names[] = {"f64", "f32", "bf16", "fp8", NULL};

const char *dtype_name(enum dtype d)
{
    return d == DTYPE_BYTE ? "byte" : dtype_names[d];
}

int64_t dtype_bytes(enum dtype d)
{
    static const int64_t bytes[] = {
        [DTYPE_F64] = 8, [DTYPE_F32] = 4, [DTYPE_BF16] = 2, [DTYPE_FP8] = 1, [DTYPE_BYTE] = 1};
    return bytes[d];
}

enum dtype dtype_stat(enum dtype d)
{
    return d == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}
