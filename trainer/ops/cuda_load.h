/* cuda_load: the CUDA backend, a shared object that is loaded when its device is asked for.
 *
 * CUDA's libraries take a process 155 MB and up to two seconds, so reel-train is not linked with
 * them. libreel-cuda.so stands beside the program (or where REEL_CUDA_LIBRARY says) and is of the
 * program's own build: it takes functions of base and trainer/dev from the program.
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

/* A GPU of this process, before anything of it is taken. */
struct cuda_gpu {
    char name[256];      /* "NVIDIA H200" */
    uint8_t uuid[16];    /* the same GPU has the same one in every process */
    int64_t total_bytes; /* of memory */
};

/* Holds the outcome of a search for a product's algorithm. */
struct gemm_found {
    int proposals;    /* the library's, and our kernel's where the product has few rows */
    double flops;     /* of a call, and its time: */
    double first_s,   /* by what computes it without a table, */
           lt_s,      /* by the fastest of the library's, */
           best_s;    /* by the fastest of all */
    char line[600];   /* of the fastest, for REEL_GEMM_TABLE's file, with its end */
};

struct cuda_backend {
    /* The bytes of the structs that both sides know: a library of another build has other ones. */
    int64_t dev_bytes, ops_bytes, coll_bytes;

    /* Writes how many GPUs this process may use. ERR_ENV: there is no driver, an old one, or no
     * GPU. */
    int (*count)(int *gpus, struct err *err);
    /* Describes GPU `index`, 0 .. count-1. */
    int (*describe)(int index, struct cuda_gpu *out, struct err *err);
    /* Opens GPU `index`, 0 .. count-1. ERR_ENV: it cannot be used, and why. */
    int (*dev_open)(int index, bool poison, struct dev **out, struct err *err);
    /* Opens the table whose act is f64, f32 or bf16 (else ERR_INPUT). gemm_table is a file that
     * says how products are computed, attn says how attention is, as REEL_ATTN does (else
     * ERR_USAGE); "": nothing does. */
    int (*ops_open)(struct dev *dev, enum dtype dtype, const char *gemm_table, const char *attn,
                    struct ops **out, struct err *err);
    /* Times the algorithms that cuBLASLt proposes for a product, and our own kernel if it has few
     * rows, each in rounds of about round_s.
     * `product` is a line of REEL_GEMM_PRODUCTS; the table then computes it by the last of them.
     * ERR_INPUT: it is no product, or there is no algorithm. */
    int (*gemm_search)(struct ops *o, struct dev_stream *s, const char *product, double round_s,
                       struct gemm_found *out, struct err *err);
    /* Its devices communicate with each other through these calls. */
    const struct coll_ops *coll;
};

/* The one function of the library. */
typedef const struct cuda_backend *cuda_backend_fn(void);
#define CUDA_BACKEND_SYMBOL "reel_cuda_backend"

/* Writes the backend, which is loaded at the first call and stays. ERR_ENV: no library, or one of
 * another build; the sentence says which file and what to do. */
int cuda_load(const struct cuda_backend **out, struct err *err);
/* Writes the path of another library that stands beside the backend. */
int cuda_library_path(const char *name, char path[PATH_MAX], struct err *err);

#ifdef __cplusplus
}
#endif
#endif
