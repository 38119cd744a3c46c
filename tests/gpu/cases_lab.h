/* cases_lab: declares the functions with which cases are made (cases.h). Each operation has a table
 * of cases, and one function that makes the call of a row of this table:
 *
 *     static void axpy_make(struct lab *l, const void *data)
 *     {
 *         const struct axpy_case *c = data;
 *         struct tensor x = lab_in(l, "x", LAB_ACT, c->rows, c->cols);   random numbers
 *         struct tensor y = lab_in(l, "y", LAB_ACT, c->rows, c->cols);
 *         lab_out(l, "y", 0, y);                                         y will be written
 *         LAB_CALL(l, axpy, (struct ops_axpy){x, y, c->alpha});
 *     }
 *     LAB_CASES(axpy, axpy_cases, axpy_make)
 *
 * The function runs twice. The first run only counts the memory that the tensors need: lab_put does
 * nothing, lab_get returns 0, and no operation is called. So declarations may not depend on numbers
 * that the function reads. All tensors must be declared before the first call.
 */
#ifndef TESTS_GPU_CASES_LAB_H
#define TESTS_GPU_CASES_LAB_H

#include "tests/gpu/cases.h"

/* Names the type of a tensor. LAB_WIDE is f32 where act is bf16, and otherwise act; ops.h accepts
 * it in place of act. The last three stand for the same type in every table. */
enum lab_class { LAB_ACT, LAB_STAT, LAB_WIDE, LAB_F64, LAB_F32, LAB_BF16 };

/* Lists the cases of an operation. Each row must begin with the name of the case. */
struct case_list {
    const char *op;
    const void *rows;
    int64_t row_bytes;
    int n;
    case_make *make;
};
#define LAB_CASES(op, table, make) \
    const struct case_list cases_##op = {#op, table, sizeof *(table), \
                                         (int)(sizeof(table) / sizeof *(table)), make};
#define LAB_LIST(op, args) \
    extern const struct case_list cases_##op; \
    typedef struct args lab_args_##op;
OPS_LIST(LAB_LIST)

struct lab {
    struct ops *o;
    struct dev_stream *s;
    bool filling; /* this is the second run: the memory is allocated */
    const struct op_case *c;
    struct err *err;
};

/* Return a tensor of random numbers, N(0, 1), and one that holds NaN. */
struct tensor lab_in(struct lab *l, const char *name, enum lab_class class, int64_t rows,
                     int64_t cols);
struct tensor lab_new(struct lab *l, const char *name, enum lab_class class, int64_t rows,
                      int64_t cols);
/* Returns device memory that holds these bytes; with NULL it holds NaN. */
void *lab_bytes(struct lab *l, const char *name, const void *values, int64_t bytes);
/* Returns the host's copy of device memory, for calls that read it on the host. */
const void *lab_host(struct lab *l, const void *device);

/* Set numbers that a tensor holds before the call, and read one. Numbers are rounded to the type of
 * the tensor's class. */
void lab_put(struct lab *l, struct tensor t, int64_t i, int64_t j, double x);
void lab_scale(struct lab *l, struct tensor t, double factor, double shift);
void lab_fill(struct lab *l, struct tensor t, double x);
double lab_get(struct lab *l, struct tensor t, int64_t i, int64_t j);
/* Returns all numbers of a tensor, [rows, cols], new. */
double *lab_values(struct lab *l, struct tensor t);
/* Returns the types to which inputs are rounded. */
struct case_types lab_types(struct lab *l);
/* Returns a number in (0, 1) that depends on the case's seed and on `i`. */
double lab_uniform(const struct lab *l, uint64_t i);

/* Declares that the call writes this tensor. Returns the output, whose members say how it is
 * compared. */
struct case_output *lab_out(struct lab *l, const char *name, int part, struct tensor t);
void lab_exact(struct case_output *x);
/* Declares a count in device memory as an output, which is exact. */
void lab_count(struct lab *l, const char *name, int64_t *at);
/* Declares that the output declared last must have the same bits as the output of this name. */
void lab_twin(struct lab *l, const char *name);
/* Declares memory that the call may write as it likes. */
void lab_working(struct lab *l, struct tensor t);

/* Sends the inputs before the first call. Returns false in the first run, which calls nothing. */
bool lab_ready(struct lab *l);
#define LAB_CALL(l, op, ...)                     \
    do {                                         \
        const lab_args_##op a_ = __VA_ARGS__;    \
        if (lab_ready(l))                        \
            (l)->o->op((l)->o, (l)->s, &a_);     \
    } while (0)

#endif
