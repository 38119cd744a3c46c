/* layout_set: chooses layouts for tests. It lists all legal combinations of settings of up to eight
 * ranks, and chooses a small covering set of them, in which every legal combination of the values
 * of two or of three settings occurs.
 *
 *     struct candidates all = legal(&model), some = covering(all, 3); // or share(all, k, n)
 *     struct layout l = layout_of(some.v[i]);
 */
#ifndef TESTS_LAYOUT_SET_H
#define TESTS_LAYOUT_SET_H

#include "tests/lib/trainer_model.h"

#include "base/num.h"

/* ---- layouts: settings and their values ---- */

enum { SETTINGS = 11 };
static const int64_t values[SETTINGS][5] = {
    {1, 2, 4, 8, 0},       /* tp */
    {0, 1, -1},            /* sp */
    {1, 2, 3, 4, 8},       /* cp; 8 only if `every` is set */
    {0, 1, 2, -1},         /* cp_kind */
    {1, 2, 3, 4, 5},       /* pp; 5 only if `every` is set */
    {1, 2, 0},             /* vpp */
    {1, 2, 3, 4, 0},       /* dp; the batch has four samples; 4 only if `every` is set */
    {0, 1, 2, 3, -1},      /* zero */
    {0, 1, 2, -1},         /* shard group: dp, 2, dp·cp */
    {1, 2, 3, 0},          /* mbs; 3 only if `every` is set */
    {0, 1, 2, 3, -1},      /* recompute: none, selective, full, full of one layer */
};
static const int counts[SETTINGS] = {4, 2, 5, 3, 5, 2, 4, 4, 3, 3, 4},
                 few_counts[SETTINGS] = {4, 2, 4, 3, 4, 2, 3, 4, 3, 2, 4};
extern bool every; /* whether all values are used, or only few_counts */

struct layout layout_of(const int *v);

/* Tells whether to leave out a layout, because it is not legal or equals another one with other
 * settings. */
bool left_out(const struct layout *l, const struct model *m, const int *v);

struct candidates { int (*v)[SETTINGS]; int64_t n; };

bool next(int *v);
struct candidates legal(const struct model *m);

/* ---- the covering set, chosen greedily: next the candidate with the most new combinations ---- */

enum { VALUES = 5, TRIPLES = SETTINGS * SETTINGS * SETTINGS * VALUES * VALUES * VALUES };
int64_t triple(const int *v, int a, int b, int c);

/* Returns how many combinations of the values of `ways` settings (2 or 3) were not met before. A
 * pair is stored as a triple whose second setting occurs twice. */
int64_t tuples(const int *v, int ways, bool *met, bool mark);
struct candidates covering(struct candidates all, int ways);

/* Returns every n-th candidate from the k-th on, where k is 1 .. n. */
struct candidates share(struct candidates all, int64_t k, int64_t n);

#endif
