/* The stand-in for cuBLASLt refuses the same calls as the library. When a stream reaches a product,
 * plain loops compute it, in the order of the terms.
 *
 * It supports the types that the manual's table for cublasLtMatmul lists for f64, f32 and bf16. a
 * and b have the same type. c and d have the same type, which is that of a and b, or f32 if a and b
 * are bf16. Sums are in f32 (in f64 for f64) and rounded once. It checks that leading dimensions
 * are at least the number of rows; that pointers and leading dimensions are multiples of the
 * alignment for which the algorithm was chosen; that c and d have the same layout if they are in
 * place; and that the workspace is as large as the algorithm needs and 16-byte aligned.
 *
 * There are two algorithms. The first sums the two halves of k separately, one in the workspace,
 * and adds them; it is not offered if the preferences or the size of the workspace forbid it. */
#include <stdlib.h>
#include <string.h>

#include "cublasLt.h"
#include "shim.h"
#include "base/bf16.h"

enum { ALGO_SPLIT = 1, ALGO_PLAIN = 2, SPLIT_BYTES = 1 << 20, SPLIT_FROM = 64 };
enum { MADE_BY = 0x51a1b0 };

/* These are the contents of the opaque structs. */
struct layout { uint64_t type, rows, cols, ld; };
struct desc { uint64_t compute, scale, trans[2], epilogue; };
struct preference { uint64_t workspace, reduction, alignment[4], impl; };
struct algo { uint64_t made_by, id, types, alignment, workspace; };
struct cublasLtContext { int open; };

static struct shim_products products;
struct shim_products shim_products(void) { return products; }

#define ASKED() ((cublasStatus_t)shim_failure(__func__))

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    cublasStatus_t asked = ASKED();
    if (asked != CUBLAS_STATUS_SUCCESS)
        return asked;
    *handle = calloc(1, sizeof **handle);
    (*handle)->open = MADE_BY;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the requested functionality is not supported";
    default: return "an error of the shim";
    }
}

size_t cublasLtGetVersion(void) { return 130100; }

/* ---- descriptors ---- */

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type,
                                        uint64_t rows, uint64_t cols, int64_t ld)
{
    struct layout l = {type, rows, cols, (uint64_t)ld};
    memcpy(layout->data, &l, sizeof l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc, cublasComputeType_t compute,
                                      cudaDataType_t scale)
{
    struct desc d = {.compute = compute, .scale = scale, .epilogue = 1};
    memcpy(desc->data, &d, sizeof d);
    return CUBLAS_STATUS_SUCCESS;
}

/* Stores a value of `wanted` bytes, 4 or 8, in a word of 8 bytes. */
static cublasStatus_t word_set(uint64_t *word, const void *value, size_t bytes, size_t wanted)
{
    if (!word || !value || bytes != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    *word = 0;
    memcpy(word, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    struct desc *d = (struct desc *)desc->data;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return word_set(&d->trans[0], value, bytes, 4);
    case CUBLASLT_MATMUL_DESC_TRANSB: return word_set(&d->trans[1], value, bytes, 4);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return word_set(&d->epilogue, value, bytes, 4);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference)
{
    struct preference p = {0, 7, {256, 256, 256, 256}, UINT64_MAX};
    memcpy(preference->data, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    struct preference *p = (struct preference *)preference->data;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return word_set(&p->workspace, value, bytes, 8);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return word_set(&p->reduction, value, bytes, 4);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return word_set(&p->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                        value, bytes, 4);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK: return word_set(&p->impl, value, bytes, 8);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- the operation that the descriptors describe ---- */

struct operation {
    struct desc desc;
    struct layout a, b, c, d;
    uint64_t m, n, k;
};

static uint64_t bytes_of(uint64_t type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

static uint64_t types_of(const struct operation *o)
{
    return o->a.type << 32 | o->b.type << 24 | o->c.type << 16 | o->d.type << 8 | o->desc.compute;
}

static int types_are_known(const struct operation *o)
{
    uint64_t in = o->a.type, out = o->d.type;
    if (o->b.type != in || o->c.type != out)
        return 0;
    if (o->desc.compute == CUBLAS_COMPUTE_64F)
        return o->desc.scale == CUDA_R_64F && in == CUDA_R_64F && out == in;
    return o->desc.compute == CUBLAS_COMPUTE_32F && o->desc.scale == CUDA_R_32F &&
           (in == CUDA_R_16BF || in == CUDA_R_32F) && (out == in || out == CUDA_R_32F);
}

static int layout_is(const struct layout *l, int transposed, uint64_t rows, uint64_t cols)
{
    return l->rows == (transposed ? cols : rows) && l->cols == (transposed ? rows : cols) &&
           l->ld >= l->rows && l->rows > 0 && l->cols > 0;
}

static cublasStatus_t operation_read(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                     const cublasLtMatrixLayout_t layouts[4], struct operation *o)
{
    struct layout *to[4] = {&o->a, &o->b, &o->c, &o->d};
    if (!handle || handle->open != MADE_BY)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    memcpy(&o->desc, desc->data, sizeof o->desc);
    for (int i = 0; i < 4; i++)
        memcpy(to[i], layouts[i]->data, sizeof *to[i]);
    if (o->desc.trans[0] > 1 || o->desc.trans[1] > 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    o->m = o->d.rows;
    o->n = o->d.cols;
    o->k = o->desc.trans[0] ? o->a.rows : o->a.cols;
    if (!layout_is(&o->a, (int)o->desc.trans[0], o->m, o->k) ||
        !layout_is(&o->b, (int)o->desc.trans[1], o->k, o->n) || !layout_is(&o->c, 0, o->m, o->n) ||
        !layout_is(&o->d, 0, o->m, o->n))
        return CUBLAS_STATUS_INVALID_VALUE;
    return types_are_known(o) && o->desc.epilogue == 1 ? CUBLAS_STATUS_SUCCESS
                                                       : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Tells whether the leading dimensions, and the pointers if given, are multiples of this many
 * bytes. */
static int is_aligned(const struct operation *o, uint64_t bytes, const void *const pointers[4])
{
    const struct layout *l[4] = {&o->a, &o->b, &o->c, &o->d};
    for (int i = 0; i < 4; i++)
        if (l[i]->ld * bytes_of(l[i]->type) % bytes ||
            (pointers && (uintptr_t)pointers[i] % bytes))
            return 0;
    return 1;
}

/* ---- algorithms ---- */

static cublasLtMatmulHeuristicResult_t result_of(const struct operation *o, uint64_t id,
                                                 uint64_t alignment)
{
    cublasLtMatmulHeuristicResult_t r = {.wavesCount = 1};
    struct algo a = {MADE_BY, id, types_of(o), alignment, id == ALGO_SPLIT ? SPLIT_BYTES : 0};
    memcpy(r.algo.data, &a, sizeof a);
    r.workspaceSize = a.workspace;
    return r;
}

static uint64_t least_alignment(const struct preference *p)
{
    uint64_t least = p->alignment[0];
    for (int i = 1; i < 4; i++)
        if (p->alignment[i] < least)
            least = p->alignment[i];
    return least;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t *results,
    int *n)
{
    struct operation o;
    struct preference p;
    cublasStatus_t st = ASKED();
    if (st == CUBLAS_STATUS_SUCCESS)
        st = operation_read(handle, desc, (cublasLtMatrixLayout_t[]){a, b, c, d}, &o);
    if (st != CUBLAS_STATUS_SUCCESS)
        return st;
    memcpy(&p, preference->data, sizeof p);
    uint64_t alignment = least_alignment(&p);
    *n = 0;
    if (most < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(&o, alignment < 16 ? alignment : 16, NULL))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (o.k >= SPLIT_FROM && p.workspace >= SPLIT_BYTES &&
        (p.reduction & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))
        results[(*n)++] = result_of(&o, ALGO_SPLIT, alignment);
    if (*n < most)
        results[(*n)++] = result_of(&o, ALGO_PLAIN, alignment);
    return CUBLAS_STATUS_SUCCESS;
}

/* Checks that the algorithm is one of the stand-in's, for these types. */
static cublasStatus_t algo_read(const struct operation *o, const cublasLtMatmulAlgo_t *from,
                                struct algo *a)
{
    if (!from)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(a, from->data, sizeof *a);
    return a->made_by == MADE_BY && (a->id == ALGO_SPLIT || a->id == ALGO_PLAIN) &&
           a->types == types_of(o) && a->alignment > 0
               ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    struct operation o;
    struct algo got;
    cublasStatus_t st = operation_read(handle, desc, (cublasLtMatrixLayout_t[]){a, b, c, d}, &o);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = algo_read(&o, algo, &got);
    if (st != CUBLAS_STATUS_SUCCESS)
        return st;
    *result = result_of(&o, got.id, got.alignment);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

struct product {
    struct operation o;
    struct algo algo;
    const void *a, *b, *c;
    void *d, *workspace;
    double alpha, beta;
};

static double number_at(const void *p, const struct layout *l, uint64_t row, uint64_t col)
{
    uint64_t at = col * l->ld + row;
    switch (l->type) {
    case CUDA_R_64F: return ((const double *)p)[at];
    case CUDA_R_32F: return (double)((const float *)p)[at];
    default: return (double)bf16_value(((const uint16_t *)p)[at]);
    }
}

static void number_put(void *p, const struct layout *l, uint64_t row, uint64_t col, double x)
{
    uint64_t at = col * l->ld + row;
    switch (l->type) {
    case CUDA_R_64F: ((double *)p)[at] = x; break;
    case CUDA_R_32F: ((float *)p)[at] = (float)x; break;
    default: ((uint16_t *)p)[at] = bf16_round((float)x);
    }
}

/* Sums terms from .. to-1 of an element in the type of the computation. */
static double terms_sum(const struct product *p, uint64_t i, uint64_t j, uint64_t from, uint64_t to)
{
    const struct operation *o = &p->o;
    float narrow = 0;
    double wide = 0;
    for (uint64_t t = from; t < to; t++) {
        double x = o->desc.trans[0] ? number_at(p->a, &o->a, t, i) : number_at(p->a, &o->a, i, t);
        double y = o->desc.trans[1] ? number_at(p->b, &o->b, j, t) : number_at(p->b, &o->b, t, j);
        narrow += (float)x * (float)y;
        wide += x * y;
    }
    return o->desc.compute == CUBLAS_COMPUTE_64F ? wide : (double)narrow;
}

/* Rounds to the type of the computation. */
static double rounded(const struct product *p, double x)
{
    return p->o.desc.compute == CUBLAS_COMPUTE_64F ? x : (double)(float)x;
}

static double element(const struct product *p, uint64_t i, uint64_t j)
{
    uint64_t k = p->o.k, half = p->algo.id == ALGO_SPLIT ? k / 2 : k;
    double sum = terms_sum(p, i, j, 0, half);
    if (half < k) {
        double *kept = p->workspace; /* the workspace is used, as in the library */
        *kept = terms_sum(p, i, j, half, k);
        sum = rounded(p, sum + *kept);
    }
    sum = rounded(p, p->alpha * sum);
    if (p->beta == 0)
        return sum;
    return rounded(p, sum + rounded(p, p->beta * number_at(p->c, &p->o.c, i, j)));
}

static void product_run(void *args)
{
    const struct product *p = args;
    for (uint64_t j = 0; j < p->o.n; j++)
        for (uint64_t i = 0; i < p->o.m; i++)
            number_put(p->d, &p->o.d, i, j, element(p, i, j));
}

static double scalar(const struct operation *o, const void *at)
{
    return o->desc.scale == CUDA_R_64F ? *(const double *)at : (double)*(const float *)at;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const cublasLtMatrixLayout_t layouts[4] = {a_layout, b_layout, c_layout, d_layout};
    struct product p = {.a = a, .b = b, .c = c, .d = d, .workspace = workspace};
    cublasStatus_t st = ASKED();
    if (st == CUBLAS_STATUS_SUCCESS)
        st = operation_read(handle, desc, layouts, &p.o);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = algo_read(&p.o, algo, &p.algo);
    if (st != CUBLAS_STATUS_SUCCESS)
        return st;
    if (!alpha || !beta || workspace_bytes < p.algo.workspace || (uintptr_t)workspace % 16 ||
        (c == d && memcmp(&p.o.c, &p.o.d, sizeof p.o.c) != 0))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(&p.o, p.algo.alignment, (const void *const[]){a, b, c, d}))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    p.alpha = scalar(&p.o, alpha);
    p.beta = scalar(&p.o, beta);
    products.n++;
    products.algo = (int64_t)p.algo.id;
    return shim_queue(stream, product_run, &p, sizeof p) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
