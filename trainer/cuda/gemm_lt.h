/* gemm_lt: products by cuBLASLt.
 *
 *     gemm_lt_open(dev, device_name, table, &lt, err);
 *     if (!gemm_lt_queue(lt, stream, &g))
 *         ... the library has no algorithm for it
 *     gemm_lt_close(lt);
 *
 * Descriptors and algorithms of products are kept by their keys in a table of GEMM_PLANS places, in
 * which a product takes another one's place when both fall on the same. Sums of bf16 that are made
 * in parts pass through the workspace as f32, never through the result; f32 is multiplied as f32,
 * not as TF32.
 *
 * With REEL_GEMM_PRODUCTS=FILE each product that the library could compute, and no table names, is
 * added to FILE as it is met, a line each, in the form that gemm_search takes.
 */
#ifndef TRAINER_CUDA_GEMM_LT_H
#define TRAINER_CUDA_GEMM_LT_H

#include "trainer/cuda/cuda_priv.h"
#include "trainer/cuda/gemm.h"
#include "trainer/cuda/gemm_table.h"

enum {
    GEMM_PLANS = 1024,
    GEMM_PROPOSALS = 32, /* of algorithms, at most */
    /* The library's manual asks for this much on compute capability 9.0. Work on one stream at a
     * time holds it. */
    GEMM_WORKSPACE_BYTES = 32 << 20,
};

/* Opens the library on a device, with the table of a file (gemm_table.h); "": none. It logs what of
 * the table is of other devices or versions. ERR_ENV: the library does not open; ERR_INPUT: the
 * table is damaged, or names an algorithm that the library does not take. */
int gemm_lt_open(struct dev *dev, const char *device, const char *table, struct gemm_lt **out,
                 struct err *err);
void gemm_lt_close(struct gemm_lt *lt); /* NULL is fine */
/* Queues a product that gemm_fits_lt, without its act. Tells whether it did: else it is our own
 * kernels', because a table says so, because it has few rows and no table names it, or because the
 * library has no algorithm. An error of the library is kept for the next stream_sync. */
bool gemm_lt_queue(struct gemm_lt *lt, cudaStream_t s, const struct ops_gemm *g);
/* Writes the algorithms that the library proposes for a product, its first choice first. Returns
 * how many there are, at most `most`, or a negative status of the library. */
int gemm_lt_proposals(struct gemm_lt *lt, const struct gemm_key *key, struct gemm_entry *out,
                      int most);
/* Has a product computed by this algorithm, or our own kernel, from here on. Returns the library's
 * status. */
int gemm_lt_use(struct gemm_lt *lt, const struct gemm_entry *e);

#endif
