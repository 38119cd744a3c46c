/* cases: describes inputs for every operation of ops.h as data, and runs them on any table of
 * operations on any device.
 *
 * A case names an operation, shapes, types, flags, and a seed. case_run draws the inputs on the
 * host, lays them out in one block of memory with room around each tensor, sends the block through
 * pinned memory, calls the operation, and copies the whole block back. The outputs are returned in
 * f64. A change of anything else (an input, the columns beside a view, the rows after a tensor) is
 * a failure. Memory that an operation writes holds NaN before the call, and so does everything
 * around a tensor.
 *
 * A table is compared with the CPU's table for f64 on the same inputs, which are rounded to the
 * types of the tested table for both. The error that is allowed depends on the type of the stored
 * result:
 *
 *     f64    relative L2 distance of 1e-12
 *     f32    relative L2 distance of 1e-5
 *     bf16   4e-3, and 1.25 times the error of the CPU's table for bf16. Where a table rounds P and
 *            dS of attention to bf16, the factor is 2, for results in f32 too
 *
 * The largest error of one element, relative to the largest element, may be four times that. Where
 * numbers cancel on the way, the case says by how many roundings the result may be off. Copies,
 * draws and counts must be right to the bit.
 *
 *     for (int i = 0; i < case_count(); i++) {
 *         const struct op_case c = case_at(i);
 *         case_run(tested, stream, &c, case_types_of(tested), &got, err);
 *         case_run(cpu_f64, its_stream, &c, case_types_of(tested), &want, err);
 *         case_near(&got, &want, NULL, err);
 *         case_release(&got), case_release(&want);
 *     }
 */
#ifndef TESTS_GPU_CASES_H
#define TESTS_GPU_CASES_H

#include "trainer/ops/ops.h"

struct lab;
typedef void case_make(struct lab *l, const void *data);

struct op_case {
    const char *op, *name;
    uint64_t seed;
    bool views; /* tensors are views of wider ones; else dense and aligned */
    case_make *make;
    const void *data; /* its row in the table of the operation */
};

/* Says to which types inputs are rounded before a table gets them. */
struct case_types { enum dtype act, stat; };

enum { CASE_OUTPUTS_MAX = 64 };
struct case_output {
    const char *name;
    int part;              /* index among the outputs of this name */
    int64_t rows, cols;
    double *x;             /* [rows, cols] */
    enum dtype stored;     /* the type that it was stored in */
    enum dtype judged;     /* the type whose error is allowed */
    bool exact;            /* there is one right answer */
    bool by_f32;           /* with exact: rounded to f32 and then to bf16 */
    /* It differs from the result in f32 by more than one rounding: it is computed from the stored
     * numbers of another output, or in types that the case names. */
    bool rounds_itself;
    /* Two correct ways to compute it may differ by this many roundings of f32 or f64, relative to
     * its size, because larger numbers cancel on the way. 0: the distances above hold. */
    double roundings;
    /* It is rounded stochastically, by the draws that ops.h names. One element in a thousand may be
     * rounded to the other neighbour, because the last bit of an f32 decides. */
    bool at_random;
    /* A table may round the terms of its sums to bf16 (narrow_attn in ops.h). */
    bool narrow_inside;
    int twin;              /* the output that must have the same bits, or -1 */
};
struct case_result {
    const struct op_case *c; /* borrowed: the case outlives the result */
    bool narrow;             /* the table is narrow_attn */
    int n;
    struct case_output out[CASE_OUTPUTS_MAX];
};

/* Return the number of all cases, and of those of one operation. */
int case_count(void);
int case_count_of(const char *op);
struct op_case case_at(int i);

static inline struct case_types case_types_of(const struct ops *o)
{
    return (struct case_types){o->act, o->stat};
}

/* Runs a case on a table, with inputs rounded to `types`. Its errors name the case: too little
 * memory, an error of the device, a write outside of the outputs (ERR_CORRUPT), twins that differ
 * (ERR_NO). The caller frees *out with case_release(). */
int case_run(struct ops *o, struct dev_stream *s, const struct op_case *c, struct case_types types,
             struct case_result *out, struct err *err);
void case_release(struct case_result *r); /* is safe on a zeroed struct */

/* Says how far two outputs of the same shape are apart, relative to the size of `want`. Elements
 * that are not finite must be equal in both; otherwise both distances are infinite. */
struct case_distance { double l2, largest; };
struct case_distance case_distance(const struct case_output *got, const struct case_output *want);

/* Compares all bits; NaN is equal to NaN. Returns ERR_NO with the first difference. */
int case_same(const struct case_result *got, const struct case_result *want, struct err *err);
/* Compares a result with that of the CPU's f64 table. `cpu` is the result of the CPU's table for
 * the same types; NULL: there is none. Returns ERR_NO, naming the output, if they are too far
 * apart. */
int case_near(const struct case_result *got, const struct case_result *want,
              const struct case_result *cpu, struct err *err);

#endif
