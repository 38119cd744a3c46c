/* gemm_lt: computes products by cuBLASLt.
 *
 *     gemm_lt_open(dev, device_name, table, &lt, err);
 *     if (!gemm_lt_queue(lt, stream, &g))
 *         ... the library has no algorithm for it
 *     gemm_lt_close(lt);
 *
 * Descriptors and algorithms are cached by the product's key in GEMM_PLANS entries; when two keys
 * map to the same entry, the later one replaces the earlier one. Partial sums of bf16 products pass
 * through the workspace as f32, never through the result. f32 is multiplied as f32, not as TF32.
 *
 * With REEL_GEMM_PRODUCTS=FILE, each product that no table names, and that the library or the
 * kernel for few rows can compute, is appended to FILE when it is first seen, one line each, in the
 * form that gemm_search accepts.
 */
#ifndef TRAINER_CUDA_GEMM_LT_H
#define TRAINER_CUDA_GEMM_LT_H

#include "trainer/cuda/cuda_priv.h"
#include "trainer/cuda/gemm.h"
#include "trainer/cuda/gemm_table.h"

enum {
    GEMM_PLANS = 1024,
    GEMM_PROPOSALS = 32, /* largest number of algorithms */
    /* The library's manual recommends this size for compute capability 9.0. Only one stream may use
     * the workspace at a time. */
    GEMM_WORKSPACE_BYTES = 32 << 20,
};

/* Opens the library on a device, with the table in a file (gemm_table.h); "": no table. Logs how
 * many lines of the table are of other devices or versions. ERR_ENV: the library does not open.
 * ERR_INPUT: the table is damaged, or names an algorithm that the library does not accept. */
int gemm_lt_open(struct dev *dev, const char *device, const char *table, struct gemm_lt **out,
                 struct err *err);
void gemm_lt_close(struct gemm_lt *lt); /* NULL is allowed */
/* Queues a product for which gemm_fits_lt is true, without its act. Returns false if our own
 * kernels must compute it: a table says so, or it has few rows and no table names it, or the
 * library has no algorithm. The next stream_sync returns an error of the library. */
bool gemm_lt_queue(struct gemm_lt *lt, cudaStream_t s, const struct ops_gemm *g);
/* Writes the algorithms that the library proposes for a product, in the library's order. Returns
 * their number, at most `most`, or a negative status of the library. */
int gemm_lt_proposals(struct gemm_lt *lt, const struct gemm_key *key, struct gemm_entry *out,
                      int most);
/* Makes gemm_lt_queue compute the entry's product by the entry's algorithm, or leave it to our own
 * kernel, from now on. Returns the library's status. */
int gemm_lt_use(struct gemm_lt *lt, const struct gemm_entry *e);

#endif
