#include "trainer/cuda/gemm_lt.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"

/* Holds the description of a product for the library. The library's matrices are column-major, so
 * its columns are our rows: it computes the transpose, dᵀ = op(b)ᵀ op(a)ᵀ, and its A is our b. */
struct plan {
    struct gemm_key key;
    bool made, found; /* found: there is an algorithm; otherwise our own kernel computes it */
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, d; /* of our a, b and d */
    cublasLtMatmulAlgo_t algo;
};

struct gemm_lt {
    struct dev *dev;
    cublasLtHandle_t handle;
    void *workspace;
    struct gemm_table table;
    FILE *products; /* REEL_GEMM_PRODUCTS; NULL: not set */
    struct plan plans[GEMM_PLANS];
};

/* ---- descriptors ---- */

static cudaDataType_t type_of(int32_t dtype)
{
    return dtype == DTYPE_F64 ? CUDA_R_64F : dtype == DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

static cublasStatus_t layout_init(cublasLtMatrixLayoutOpaque_t *l, int32_t dtype, int64_t rows,
                                  int64_t cols, int64_t ld)
{
    return cublasLtMatrixLayoutInit(l, type_of(dtype), (uint64_t)cols, (uint64_t)rows, ld);
}

static cublasStatus_t plan_describe(struct plan *p)
{
    const struct gemm_key *k = &p->key;
    int32_t a = k->ta ? CUBLAS_OP_T : CUBLAS_OP_N, b = k->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    bool wide = k->in == DTYPE_F64;
    cublasStatus_t st;
    if ((st = cublasLtMatmulDescInit(&p->desc, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                     wide ? CUDA_R_64F : CUDA_R_32F)))
        return st;
    if ((st = cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof b)))
        return st;
    if ((st = cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof a)))
        return st;
    if ((st = layout_init(&p->a, k->in, k->ta ? k->k : k->m, k->ta ? k->m : k->k, k->lda)))
        return st;
    if ((st = layout_init(&p->b, k->in, k->tb ? k->n : k->k, k->tb ? k->k : k->n, k->ldb)))
        return st;
    return layout_init(&p->d, k->out, k->m, k->n, k->ldd);
}

/* ---- algorithms ---- */

static cublasStatus_t preference_set(cublasLtMatmulPreferenceOpaque_t *p,
                                     cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value)
{
    return cublasLtMatmulPreferenceSetAttribute(p, attribute, &value, sizeof value);
}

/* Sets what an algorithm may do. It may use the workspace, but may assume no more alignment than
 * GEMM_ALIGN_BYTES, must add partial sums in the compute type (f32 for bf16), and must not round
 * f32 inputs to a narrower type. */
static cublasStatus_t preference_init(cublasLtMatmulPreferenceOpaque_t *p, int32_t in)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t bytes = GEMM_WORKSPACE_BYTES, impl = UINT64_MAX;
    cublasStatus_t st;
    if (in == DTYPE_F32)
        impl &= ~(CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 |
                  CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF |
                  CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F);
    if ((st = cublasLtMatmulPreferenceInit(p)))
        return st;
    if ((st = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &bytes, sizeof bytes)))
        return st;
    if ((st = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_IMPL_MASK, &impl,
                                                   sizeof impl)))
        return st;
    for (int i = 0; i < 4; i++)
        if ((st = preference_set(p, alignments[i], GEMM_ALIGN_BYTES)))
            return st;
    return preference_set(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                          CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

/* Writes the proposed algorithms that can run. Returns their number, or a negative status. */
static int proposals(struct gemm_lt *lt, struct plan *p, cublasLtMatmulAlgo_t *out, int most)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[GEMM_PROPOSALS] = {0};
    cublasStatus_t st;
    int n = 0, fit = 0;
    if ((st = preference_init(&preference, p->key.in)))
        return -(int)st;
    st = cublasLtMatmulAlgoGetHeuristic(lt->handle, &p->desc, &p->b, &p->a, &p->d, &p->d,
                                        &preference, most, results, &n);
    if (st != CUBLAS_STATUS_SUCCESS)
        return st == CUBLAS_STATUS_NOT_SUPPORTED ? 0 : -(int)st;
    for (int i = 0; i < n; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            results[i].workspaceSize <= GEMM_WORKSPACE_BYTES)
            out[fit++] = results[i].algo;
    return fit;
}

static void product_tell(struct gemm_lt *lt, const struct gemm_key *key)
{
    struct str line = STR_INIT;
    if (!lt->products)
        return;
    gemm_product_print(key, &line);
    fprintf(lt->products, "%s\n", line.p);
    fflush(lt->products);
    str_release(&line);
}

/* Chooses the library's first algorithm that can run, or none if there are few rows. */
static cublasStatus_t plan_guess(struct gemm_lt *lt, struct plan *p)
{
    enum { MOST = 8 };
    cublasLtMatmulAlgo_t algos[MOST];
    bool is_few = gemm_is_few(&p->key);
    int n = is_few ? 0 : proposals(lt, p, algos, MOST);
    if (n < 0)
        return (cublasStatus_t)-n;
    p->found = n > 0;
    if (p->found)
        p->algo = algos[0];
    if (p->found || is_few)
        product_tell(lt, &p->key);
    return CUBLAS_STATUS_SUCCESS;
}

/* Chooses the algorithm that a table names, if the library accepts it. */
static cublasStatus_t plan_pin(struct gemm_lt *lt, struct plan *p, const struct gemm_entry *e)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    _Static_assert(sizeof p->algo == sizeof e->algo, "an entry holds an algorithm");
    if (gemm_entry_is_own(e))
        return CUBLAS_STATUS_SUCCESS;
    memcpy(&p->algo, e->algo, sizeof p->algo);
    cublasStatus_t st = cublasLtMatmulAlgoCheck(lt->handle, &p->desc, &p->b, &p->a, &p->d, &p->d,
                                                &p->algo, &result);
    if (st == CUBLAS_STATUS_SUCCESS && result.workspaceSize > GEMM_WORKSPACE_BYTES)
        st = CUBLAS_STATUS_NOT_SUPPORTED;
    p->found = st == CUBLAS_STATUS_SUCCESS;
    return st;
}

static cublasStatus_t plan_make(struct gemm_lt *lt, const struct gemm_key *key, struct plan *p)
{
    const struct gemm_entry *e = gemm_table_find(&lt->table, key);
    cublasStatus_t st;
    *p = (struct plan){.key = *key};
    if ((st = plan_describe(p)))
        return st;
    if ((st = e ? plan_pin(lt, p, e) : plan_guess(lt, p)))
        return st;
    p->made = true;
    return CUBLAS_STATUS_SUCCESS;
}

/* Returns the entry of the plans that belongs to a product's key. */
static struct plan *plan_place(struct gemm_lt *lt, const struct gemm_key *key)
{
    return &lt->plans[hash_64(key, sizeof *key) % GEMM_PLANS];
}

int gemm_lt_proposals(struct gemm_lt *lt, const struct gemm_key *key, struct gemm_entry *out,
                      int most)
{
    cublasLtMatmulAlgo_t algos[GEMM_PROPOSALS];
    struct plan p = {.key = *key};
    cublasStatus_t st = plan_describe(&p);
    int n = st ? -(int)st : proposals(lt, &p, algos, most < GEMM_PROPOSALS ? most : GEMM_PROPOSALS);
    for (int i = 0; i < n; i++) {
        out[i].key = *key;
        memcpy(out[i].algo, &algos[i], sizeof out[i].algo);
    }
    return n;
}

int gemm_lt_use(struct gemm_lt *lt, const struct gemm_entry *e)
{
    struct plan *p = plan_place(lt, &e->key), made = {.key = e->key, .made = true};
    cublasStatus_t st;
    if (!(st = plan_describe(&made)) && !(st = plan_pin(lt, &made, e)))
        *p = made;
    return (int)st;
}

/* ---- products ---- */

/* Records a cuBLASLt error on the device, as the closest CUDA runtime error. */
static void keep_error(struct gemm_lt *lt, cublasStatus_t st)
{
    dev_cuda_fail(lt->dev,
                  st == CUBLAS_STATUS_ALLOC_FAILED ? cudaErrorMemoryAllocation
                  : st == CUBLAS_STATUS_EXECUTION_FAILED ? cudaErrorLaunchFailure
                  : cudaErrorInvalidValue, "a product by cuBLASLt");
}

bool gemm_lt_queue(struct gemm_lt *lt, cudaStream_t s, const struct ops_gemm *g)
{
    const struct gemm_key key = gemm_key_of(g);
    const struct tensor *d = gemm_target(g);
    struct plan *p = plan_place(lt, &key);
    const double wide[2] = {g->alpha, g->beta};
    const float narrow[2] = {(float)g->alpha, (float)g->beta};
    bool f64 = key.in == DTYPE_F64;
    cublasStatus_t st = CUBLAS_STATUS_SUCCESS;
    if (!p->made || memcmp(&p->key, &key, sizeof key) != 0)
        st = plan_make(lt, &key, p);
    if (st == CUBLAS_STATUS_SUCCESS && p->found)
        st = cublasLtMatmul(lt->handle, &p->desc, f64 ? (const void *)&wide[0] : &narrow[0],
                            g->b.ptr, &p->b, g->a.ptr, &p->a,
                            f64 ? (const void *)&wide[1] : &narrow[1], d->ptr, &p->d, d->ptr,
                            &p->d, &p->algo, lt->workspace, GEMM_WORKSPACE_BYTES, s);
    if (st != CUBLAS_STATUS_SUCCESS)
        keep_error(lt, st);
    return st != CUBLAS_STATUS_SUCCESS || p->found;
}

/* ---- opening and closing ---- */

/* Asks the library whether it accepts each algorithm of the table, so that a bad one is reported
 * before the run. */
static int table_check(struct gemm_lt *lt, const char *path, struct err *err)
{
    struct plan p;
    cublasStatus_t st;
    for (int i = 0; i < lt->table.n; i++)
        if ((st = plan_make(lt, &lt->table.entries[i].key, &p)))
            return err_set(err, ERR_INPUT, "%s: line %d: cuBLASLt does not take this algorithm: "
                           "%s: write the table anew, or leave REEL_GEMM_TABLE unset", path,
                           lt->table.entries[i].line, cublasLtGetStatusString(st));
    return 0;
}

/* Reports how many lines of a table are of another device or library version. This is a warning if
 * all of them are, because the table then fixes no algorithm. */
static void foreign_tell(const struct gemm_table *t, const char *device, const char *path)
{
    const struct gemm_foreign *f = &t->foreign;
    if (f->n > 0)
        log_msg(t->n > 0 ? LOG_INFO : LOG_WARN,
                "%s: %d of %d products are of another device or library and not used: line %d is "
                "of '%s' with cuBLASLt %lld, and here is '%s' with %zu%s",
                path, f->n, f->n + t->n, f->line, f->device, (long long)f->version, device,
                cublasLtGetVersion(), t->n > 0 ? "" : "; the library chooses all algorithms");
}

static int table_open(struct gemm_lt *lt, const char *device, const char *path, struct err *err)
{
    int rc;
    if (!*path)
        return 0;
    if ((rc = gemm_table_load(path, device, (int64_t)cublasLtGetVersion(), &lt->table, err)) < 0)
        return rc;
    foreign_tell(&lt->table, device, path);
    return table_check(lt, path, err);
}

static int library_open(struct gemm_lt *lt, const char *device, struct err *err)
{
    cublasStatus_t st = cublasLtCreate(&lt->handle);
    if (st == CUBLAS_STATUS_SUCCESS)
        return 0;
    lt->handle = NULL;
    return err_set(err, st == CUBLAS_STATUS_ALLOC_FAILED ? ERR_NOMEM : ERR_ENV,
                   "GPU (%s): cuBLASLt %zu does not open: %s; see that the driver and the library "
                   "are of one CUDA, or compute on the CPU (--device cpu)",
                   device, cublasLtGetVersion(), cublasLtGetStatusString(st));
}

static int products_open(struct gemm_lt *lt, const char *path, struct err *err)
{
    if (!path || !*path || (lt->products = fopen(path, "ae")))
        return 0;
    return err_set_errno(err, ERR_IO, "REEL_GEMM_PRODUCTS: '%s' does not open", path);
}

int gemm_lt_open(struct dev *dev, const char *device, const char *table, struct gemm_lt **out,
                 struct err *err)
{
    struct gemm_lt *lt = calloc(1, sizeof *lt);
    int rc;
    if (!lt)
        return err_set(err, ERR_NOMEM, "cuBLASLt: no memory for its plans");
    lt->dev = dev;
    if ((rc = library_open(lt, device, err)) < 0)
        goto out;
    if ((rc = table_open(lt, device, table, err)) < 0)
        goto out;
    if ((rc = products_open(lt, getenv("REEL_GEMM_PRODUCTS"), err)) < 0)
        goto out;
    if ((rc = dev->alloc(dev, "cuBLASLt", GEMM_WORKSPACE_BYTES, &lt->workspace, err)) < 0)
        goto out;
    *out = lt;
    lt = NULL; /* the caller owns it now */
out:
    gemm_lt_close(lt);
    return rc;
}

void gemm_lt_close(struct gemm_lt *lt)
{
    if (!lt)
        return;
    lt->dev->free(lt->dev, lt->workspace);
    gemm_table_release(&lt->table);
    if (lt->products)
        fclose(lt->products);
    if (lt->handle)
        cublasLtDestroy(lt->handle);
    free(lt);
}
