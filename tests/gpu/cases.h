/* cases: inputs for every operation of ops.h as data, which run on any table on any device.
 *
 * A case names an operation, shapes, types, flags, and a seed. case_run draws the inputs on the
 * host, lays them out in one block of memory with room around each tensor, sends the block through
 * pinned memory, calls the operation, and brings the whole block back. What the operation had to
 * write is handed out in f64. Anything else that has changed, be it an input, the columns beside a
 * view, or the rows behind a tensor, is a failure. Memory that an operation writes holds NaN
 * before, and so does all that surrounds a tensor.
 *
 * The oracle of a table is the table of the CPU for f64, on the same inputs: they are rounded to
 * the types of the table that is tested before either gets them. What the result is held to depends
 * on the type it is stored in:
 *
 *     f64    relative L2 distance of 1e-12
 *     f32    1e-5
 *     bf16   4e-3, and 1.25 times that of the CPU's table for bf16; twice that where the table
 *            rounds P and dS of attention to bf16, also of what it stores in f32
 *
 * The largest error of one element, relative to the largest number there, may be four times that.
 * Where numbers cancel on the way, it says how many roundings the result may be off.
 * Copies, draws and counts have one right answer, to the bit.
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

/* Numbers are rounded to these types before a table gets them. */
struct case_types { enum dtype act, stat; };

enum { CASE_OUTPUTS_MAX = 64 };
struct case_output {
    const char *name;
    int part;              /* of several of this name */
    int64_t rows, cols;
    double *x;             /* [rows, cols] */
    enum dtype stored;     /* the type that it was stored in */
    enum dtype judged;     /* the type that it is judged by */
    bool exact;            /* there is one right answer */
    bool by_f32;           /* which is rounded to bf16 by way of f32 */
    /* It is not what f32 gives, rounded once: it is made of another output's numbers as they were
     * stored, or is computed in types that the case names. */
    bool rounds_itself;
    /* So many roundings of f32 or f64, relative to its size, lie between any two ways to compute
     * it, for numbers much larger than it stand on the way. 0: the distances above hold. */
    double roundings;
    /* It is rounded at random, by the draws that ops.h names. One element of a thousand may be
     * another neighbour, for a last bit of f32 decides. */
    bool at_random;
    /* A table may round to bf16 what it is summed of (ops.h, narrow_attn). */
    bool narrow_inside;
    int twin;              /* the output that must have the same bits, or -1 */
};
struct case_result {
    const struct op_case *c; /* borrowed: the case outlives the result */
    bool narrow;             /* the table is narrow_attn */
    int n;
    struct case_output out[CASE_OUTPUTS_MAX];
};

/* Returns the number of all cases, and of those of one operation. */
int case_count(void);
int case_count_of(const char *op);
struct op_case case_at(int i);

static inline struct case_types case_types_of(const struct ops *o)
{
    return (struct case_types){o->act, o->stat};
}

/* Runs a case on a table, with inputs rounded to `types`. Fails, with a sentence that names the
 * case, for memory that does not suffice, an error of the device, a write beside the outputs
 * (ERR_CORRUPT), and twins that differ (ERR_NO). The caller releases what it gives. */
int case_run(struct ops *o, struct dev_stream *s, const struct op_case *c, struct case_types types,
             struct case_result *out, struct err *err);
void case_release(struct case_result *r); /* is safe on a zeroed struct */

/* Says how far two outputs of the same shape are apart, relative to the size of `want`. What is
 * not finite must be the same in both: else both distances are infinite. */
struct case_distance { double l2, largest; };
struct case_distance case_distance(const struct case_output *got, const struct case_output *want);

/* Compares all bits; NaN is equal to NaN. Fails with ERR_NO and the first difference. */
int case_same(const struct case_result *got, const struct case_result *want, struct err *err);
/* Holds a result to that of the CPU's f64 table. `cpu` is that of the CPU's table for the same
 * types, NULL where there is nothing to compare with. Fails with ERR_NO, naming the output. */
int case_near(const struct case_result *got, const struct case_result *want,
              const struct case_result *cpu, struct err *err);

#endif
