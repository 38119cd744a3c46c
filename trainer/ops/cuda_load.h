/* cuda_load: loads the CUDA backend, a shared object, when it is first needed.
 *
 * CUDA's libraries cost a process 155 MB and up to two seconds, so reel-train is not linked with
 * them. libreel-cuda.so is in the program's folder (or where REEL_CUDA_LIBRARY says) and must come
 * from the same build: it calls functions of base and trainer/dev that are in the program.
 *
 *     const struct cuda_backend *b;
 *     cuda_load(&b, err);
 *     b->dev_open(0, poison, &dev, err);
 *     b->ops_open(dev, DTYPE_BF16, "", "", &ops, err);
 */
#ifndef TRAINER_OPS_CUDA_LOAD_H
#define TRAINER_OPS_CUDA_LOAD_H

#include <limits.h>

#include "trainer/dev/coll.h"
#include "trainer/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Describes a GPU that this process may use; it can be read before the GPU is opened. */
struct cuda_gpu {
    char name[256];      /* "NVIDIA H200" */
    uint8_t uuid[16];    /* is the same in every process */
    int64_t total_bytes; /* of memory */
};

/* Holds the result of a search for the fastest algorithm of a matrix product. */
struct gemm_found {
    int proposals;    /* algorithms tried: the library's, and our kernel if there are few rows */
    double flops;     /* of one call */
    /* These are times of one call: by the algorithm used without a table, by the library's fastest,
     * and by the fastest of all. */
    double first_s,
           lt_s,
           best_s;
    char line[600];   /* line of REEL_GEMM_TABLE's file for the fastest, with its line end */
};

struct cuda_backend {
    /* These are the sizes of structs that the program uses, too. If they differ, the library is of
     * another build. */
    int64_t dev_bytes, ops_bytes, coll_bytes;

    /* Writes how many GPUs this process may use. ERR_ENV: there is no driver, an old one, or no
     * GPU. */
    int (*count)(int *gpus, struct err *err);
    /* Describes GPU `index`, 0 .. count-1. */
    int (*describe)(int index, struct cuda_gpu *out, struct err *err);
    /* Opens GPU `index`, 0 .. count-1. ERR_ENV: it cannot be used; err says why. */
    int (*dev_open)(int index, bool poison, struct dev **out, struct err *err);
    /* Opens the table of operations whose act (ops.h) is f64, f32 or bf16 (else ERR_INPUT).
     * gemm_table is a file that says how to compute products; attn says how to compute attention,
     * in REEL_ATTN's syntax (else ERR_USAGE). "" leaves the choice to the table. */
    int (*ops_open)(struct dev *dev, enum dtype dtype, const char *gemm_table, const char *attn,
                    struct ops **out, struct err *err);
    /* Times the algorithms that cuBLASLt proposes for a product, and our own kernel if the product
     * has few rows. Each is timed in rounds of about round_s seconds. `product` is a line of
     * REEL_GEMM_PRODUCTS. From then on the table computes this product by the algorithm tried last.
     * ERR_INPUT: the line is no product, or no algorithm exists. */
    int (*gemm_search)(struct ops *o, struct dev_stream *s, const char *product, double round_s,
                       struct gemm_found *out, struct err *err);
    /* Lists the collective calls by which these devices communicate. */
    const struct coll_ops *coll;
};

/* This is the type of the library's one exported function. */
typedef const struct cuda_backend *cuda_backend_fn(void);
#define CUDA_BACKEND_SYMBOL "reel_cuda_backend"

/* Loads the backend at the first call and writes its address; it is never unloaded. ERR_ENV: there
 * is no library, or it is of another build; err says which file and what to do. */
int cuda_load(const struct cuda_backend **out, struct err *err);
/* Writes the path of the file `name` in the backend's folder. */
int cuda_library_path(const char *name, char path[PATH_MAX], struct err *err);

#ifdef __cplusplus
}
#endif
#endif
