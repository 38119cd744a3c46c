/* desk: allocates device memory and operands for programs that test a GPU at full sizes. A failure
 * ends the program with a sentence and status 4 when there is no device, else 5.
 *
 *     struct desk d = {0};
 *     desk_open(&d, DTYPE_BF16);
 *     struct tensor a = desk_draw(&d, DTYPE_BF16, m, k);
 *     desk_close(&d);
 */
#ifndef TESTS_GPU_DESK_H
#define TESTS_GPU_DESK_H

#include "trainer/ops/compute.h"

enum { DESK_BLOCKS_MAX = 24 };
struct desk {
    struct compute c;
    struct err err;
    void *block[DESK_BLOCKS_MAX];
    int blocks;
    int32_t *host; /* host's copy of the segments */
};

void desk_open(struct desk *d, enum dtype dtype);
void desk_close(struct desk *d);
/* Ends the program when rc is an error. */
void desk_must(struct desk *d, int rc);
void desk_sync(struct desk *d);
/* Returns device memory, which desk_close frees. */
void *desk_block(struct desk *d, const char *what, int64_t bytes);
/* Return a tensor of numbers that are uniform in (-1, 1), and one that holds NaN. */
struct tensor desk_draw(struct desk *d, enum dtype dtype, int64_t rows, int64_t cols);
struct tensor desk_new(struct desk *d, enum dtype dtype, int64_t rows, int64_t cols);
/* Returns a dense tensor's bytes on the host, new. */
void *desk_get(struct desk *d, const struct tensor *t);
/* Describes samples by the most tokens and keys that one has. If they are uneven, they get shorter
 * within each eight, and the last of the eight has a fifth less than the first. */
struct desk_samples {
    int64_t n, tokens, keys;
    bool uneven;
};
/* Sets the segments of an attention, one for each sample. It can be called once for a desk. Returns
 * the number of (query, key) pairs. */
int64_t desk_segments(struct desk *d, struct ops_attn *a, struct desk_samples s);

#endif
