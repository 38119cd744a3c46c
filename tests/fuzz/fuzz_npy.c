/* npy: the array of 2 x 3 x 4 x 4 that the caller has room for, or a refusal. */
#include <math.h>

#include "tests/fuzz/fuzz.h"
#include "base/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const int64_t shape[] = {2, 3, 4, 4};
    float *out = malloc(96 * sizeof *out);
    struct err err = {0};
    FUZZ_CHECK(out);
    if (fuzz_told(npy_parse(data, (int64_t)n, shape, 4, "input", out, &err), &err) == 0)
        for (int i = 0; i < 96; i++)
            FUZZ_CHECK(isfinite(out[i]));
    free(out);
    return 0;
}
