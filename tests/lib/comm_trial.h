/* comm_trial: makes one communication operation on known numbers, with its expected result, for the
 * tests of communication.
 *
 *     struct trial t;
 *     // all ranks of the group use the same seed
 *     trial_make(&t, group, kind, seed, DTYPE_F64, in_place, most);
 *     comm_start(group, &t.op, NULL, &t.work, &err);
 *     comm_wait(group, t.work, NULL, &err);
 *     trial_verify(&t); // checks the result, and that the gaps between parts are unchanged
 *     trial_release(&t);
 */
#ifndef TESTS_COMM_TRIAL_H
#define TESTS_COMM_TRIAL_H

#include <math.h>
#include <stdlib.h>

#include "tests/lib/trainer_run.h"

#include "base/bf16.h"

enum { RANKS = 16, KINDS = 7, ROUGH_PERIOD = 6 * 11 };
static const double gap = -77;
static const enum dtype trial_types[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16};

struct trial {
    struct comm *c;
    struct comm_op op;
    struct comm_work *work;
    unsigned seed;
    bool in_place;
    int64_t counts[RANKS], at[RANKS], recv_counts[RANKS], recv_at[RANKS];
    int64_t send_total, recv_total; /* elements of the buffers, gaps included */
    char *send, *recv;              /* one buffer when in place */
    struct comm_message list[6];
    /* The expected results of a reduction: sums over the group's ranks, in their order and in the
     * type itself. A bf16 sum is computed in f32 and rounded at the end. */
    double sums[ROUGH_PERIOD];
};

unsigned mixed(unsigned a, unsigned b);

/* Returns a number whose sum with others depends on the order of addition. A rank's numbers repeat
 * after ROUGH_PERIOD elements, so that the expected sums of long messages need no computation. */
double rough(unsigned seed, int rank, int64_t i);

/* Describes n such numbers in a row; the first is row[first % ROUGH_PERIOD]. */
struct rough_run { const double *row; int64_t first, n; };
struct rough_run rough_from(unsigned seed, int rank, int64_t first, int64_t n);
double rough_at(const struct rough_run *r, int64_t i);
double get(const void *buf, int64_t i, enum dtype t);

/* Returns the number of a type that is nearest to v. bf16 has 8 bits of precision, with ties to
 * even; it is computed by Veltkamp's splitting of a float in doubles, which rounds as the hardware
 * does and shares no code with the trainer's rounding. */
double nearest(double v, enum dtype t);
void put(void *buf, int64_t i, double v, enum dtype t);

/* Returns how many elements one rank of the group sends to another, which is often none. */
int64_t pair_count(unsigned seed, int from, int to, int64_t most);

/* Lays out the parts one after the other, with a gap of one element before and after each. Returns
 * the number of elements, gaps included. */
int64_t lay_out(const int64_t *counts, int64_t *at, int size);
char *filled(int64_t n, enum dtype t);
char *element(const struct trial *t, char *buf, int64_t i);

/* Returns n numbers, from number `first` on, of the message from one rank to another. */
struct rough_run sent_run(const struct trial *t, int from, int to, int64_t first, int64_t n);
void make_parts(struct trial *t, int64_t most);
void make_all_gather(struct trial *t, int64_t most);
void make_reduction(struct trial *t, int64_t most);
void make_all_to_all(struct trial *t, int64_t most);

/* Makes two messages to the next rank and one to the previous rank. The k-th message from a to b
 * has its own seed. */
void make_messages(struct trial *t, int64_t most);
void trial_make(struct trial *t, struct comm *c, enum comm_kind kind, unsigned seed,
                enum dtype dtype, bool in_place, int64_t most);
void trial_release(struct trial *t);

/* Calls f(t, buffer, index, expected numbers from there on, whether this rank owns them) for every
 * span of elements of recv that the operation writes on this rank. */
typedef void trial_fn(struct trial *t, const void *buf, int64_t at, const struct rough_run *want,
                      bool own);
void trial_each(struct trial *t, trial_fn *f);
void must_equal(struct trial *t, const void *buf, int64_t at, const struct rough_run *want,
                bool own);
void must_be_nan(struct trial *t, const void *buf, int64_t at, const struct rough_run *want,
                 bool own);
void gaps_stand(const struct trial *t, const char *buf, const int64_t *counts,
                const int64_t *at, double want);
void trial_verify(struct trial *t);

/* Returns how many bytes this rank sends to others, by the formulas of the cost model. */
int64_t trial_sent_bytes(const struct trial *t);

#endif
