#include "base/simd_kind.h"

#include <stdlib.h>
#include <string.h>

const char *const simd_names[SIMD_COUNT + 1] = {"generic", "v3", "v4", NULL};

int simd_named(enum simd *out, struct err *err)
{
    const char *name = getenv("REEL_SIMD");
    enum simd kind = SIMD_GENERIC;
    if (!name || !name[0])
        return 0;
    while (kind < SIMD_COUNT && strcmp(simd_names[kind], name) != 0)
        kind++;
    if (kind == SIMD_COUNT)
        return err_set(err, ERR_USAGE,
                       "REEL_SIMD is '%.40s': give generic, v3 or v4, or leave it unset", name);
    *out = kind;
    return 1;
}
