/* dtype: names the kinds of elements that tensors, buffers and messages hold. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dtype {
    DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_FP8,
    DTYPE_NUMBERS,               /* the number of entries above */
    DTYPE_BYTE = DTYPE_NUMBERS,  /* memory that holds no numbers, or numbers of several kinds */
};
/* Holds the names that a run file or a device profile may give: "f64", "f32", "bf16", "fp8", then
 * NULL. */
extern const char *const dtype_names[];
/* Returns the name of any kind, "byte" included. */
const char *dtype_name(enum dtype d);
/* Returns the bytes of one element. */
int64_t dtype_bytes(enum dtype d);
/* Returns the dtype that a run in d uses for everything but activations and compute weights:
 * statistics, gradients, optimizer state and, where they are not in d, master weights. It is d
 * itself for f64 and f32, and f32 for bf16 and fp8. */
enum dtype dtype_stat(enum dtype d);

#ifdef __cplusplus
}
#endif
#endif
