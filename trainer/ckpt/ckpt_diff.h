/* ckpt_diff: measures the difference of two checkpoints, tensor by tensor, whatever layouts wrote
 * them.
 *
 * The difference of a tensor of one buffer (weights, m, v, ema) is max|a - b| / max(max|a|, floor).
 * It is relative to the tensor and not to single elements, because summing in another order causes
 * errors in proportion to the terms and not to the sum. Numbers below the floor count as noise:
 * gradients that would be exactly zero are sums of terms of order one, and come out near 1e-16. v
 * holds squares, so its floor is the square of the others'. A tensor is never equal if one of the
 * two checkpoints lacks it or has it in another shape, or if a number in it is not finite.
 *
 *     ckpt_diff(dir_a, dir_b, tol, floor, &d, err);   // d.rows, the worst first;
 *     ...                                             // d.n_beyond of them are not equal
 *     ckpt_diff_release(&d);
 *
 * Both checkpoints are verified first. Errors are those of loading.
 */
#ifndef TRAINER_CKPT_CKPT_DIFF_H
#define TRAINER_CKPT_CKPT_DIFF_H

#include "trainer/ckpt/ckpt.h"

enum ckpt_diff_kind {
    CKPT_DIFF_VALUE, CKPT_DIFF_NOT_FINITE, CKPT_DIFF_SHAPE, CKPT_DIFF_MISSING
};
extern const char *const ckpt_diff_kind_names[];

struct ckpt_diff_row {
    char name[LIMIT_NAME_BYTES];
    enum ckpt_buffer buffer;
    enum ckpt_diff_kind kind;
    double difference; /* of CKPT_DIFF_VALUE; else infinite */
    bool beyond;       /* not equal by the tolerance */
};
struct ckpt_diff {
    struct ckpt_diff_row *rows;
    int64_t n, n_beyond, n_tensors; /* n_tensors: of checkpoint a */
    double largest; /* the largest difference within the tolerance */
};
double ckpt_diff_floor(enum ckpt_buffer buffer, double floor);
int ckpt_diff(const char *dir_a, const char *dir_b, double tol, double floor,
              struct ckpt_diff *out, struct err *err);
void ckpt_diff_release(struct ckpt_diff *d);

#endif
