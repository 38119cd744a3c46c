/* gemm_table: reads a file that fixes which algorithm of cuBLASLt, or our own kernel, computes a
 * product, so that a run and its resume compute the same bits.
 *
 * REEL_GEMM_TABLE names the file; a run always uses the file that it began with
 * (trainer/run/gemm_pin.h). The first line is "reel.gemm/1". A line that begins with '#' is a
 * comment. Each other line is a product on a device with a version of the library, in four fields
 * separated by tabs:
 *
 *     NVIDIA H200	130100	bf16 f32 tn 4096 4096 8192 4096 4096 4096	<8 words of 16 hex digits>
 *
 * The device is named as the driver names it; the version is that of cublasLtGetVersion. The
 * product is: type of a and b, type of the result, n or t for a and for b (t: transposed), m, n, k,
 * and the leading dimensions of a, b and the result. The words are the library's
 * cublasLtMatmulAlgo_t, which the same version of the library promises to accept again; eight zeros
 * name our own kernel. Lines of other devices and versions are checked for their form, counted and
 * skipped; the log names the first of them.
 */
#ifndef TRAINER_CUDA_GEMM_TABLE_H
#define TRAINER_CUDA_GEMM_TABLE_H

#include "base/str.h"
#include "trainer/cuda/gemm.h"

enum { GEMM_ALGO_WORDS = 8 };
struct gemm_entry {
    struct gemm_key key;
    uint64_t algo[GEMM_ALGO_WORDS];
    int line; /* of the file, from 1 */
};
/* Counts the lines of a file that are of another device or version. */
struct gemm_foreign {
    int n;
    int line;          /* number of the first such line; below: its device and version */
    char device[256];
    int64_t version;
};
struct gemm_table {
    struct gemm_entry *entries;
    int n;
    struct gemm_foreign foreign;
};

/* Loads the lines of a device and a version. ERR_INPUT: the file is no table, or a line is damaged
 * or repeats a product; the sentence says which. The caller releases the table. */
int gemm_table_load(const char *path, const char *device, int64_t version, struct gemm_table *out,
                    struct err *err);
void gemm_table_release(struct gemm_table *t); /* accepts a zeroed struct */
/* Read a product in the form of the table's third field, write it in that form, and write a line of
 * the table. */
bool gemm_product_parse(const char *text, struct gemm_key *key);
void gemm_product_print(const struct gemm_key *key, struct str *out);
void gemm_entry_print(const struct gemm_entry *e, const char *device, int64_t version,
                      struct str *out);
/* Returns whether an entry names our own kernel. */
bool gemm_entry_is_own(const struct gemm_entry *e);
/* Returns the entry of a product, borrowed from the table, or NULL. */
const struct gemm_entry *gemm_table_find(const struct gemm_table *t, const struct gemm_key *key);

#endif
