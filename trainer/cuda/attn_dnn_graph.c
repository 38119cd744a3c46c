#include "trainer/cuda/attn_dnn_graph.h"

#include <stdio.h>
#include <string.h>

typedef cudnnBackendDescriptor_t part;

enum { PARTS = 192, OPERATIONS = 32, DIMS = 4, CONFIGS = 16 };

/* Holds a graph while it is built. After the first failure its functions do nothing. */
struct graph {
    const struct attn_class *c;
    part parts[PARTS], ops[OPERATIONS];
    int n_parts, n_ops;
    int64_t next_id;
    part q_len, k_len, offset[ATTN_TENSORS]; /* NULL unless the class is packed */
    cudnnStatus_t st;
};

/* ---- descriptors ---- */

static part made(struct graph *g, cudnnBackendDescriptorType_t type)
{
    part p = NULL;
    BUG_ON(g->n_parts == PARTS);
    if (g->st == CUDNN_STATUS_SUCCESS)
        g->st = cudnnBackendCreateDescriptor(type, &p);
    if (p)
        g->parts[g->n_parts++] = p;
    return p;
}

static void set(struct graph *g, part p, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (g->st == CUDNN_STATUS_SUCCESS)
        g->st = cudnnBackendSetAttribute(p, name, type, n, values);
}

static void set_part(struct graph *g, part p, cudnnBackendAttributeName_t name, part value)
{
    set(g, p, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(struct graph *g, part p, cudnnBackendAttributeName_t name,
                     cudnnDataType_t value)
{
    set(g, p, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static part finished(struct graph *g, part p)
{
    if (g->st == CUDNN_STATUS_SUCCESS)
        g->st = cudnnBackendFinalize(p);
    return p;
}

static void operation_end(struct graph *g, part p)
{
    BUG_ON(g->n_ops == OPERATIONS);
    g->ops[g->n_ops++] = finished(g, p);
}

/* ---- tensors ---- */

/* Describes a tensor for cuDNN: extents and strides of segments, heads, rows, columns. */
struct shape { int64_t dim[DIMS], stride[DIMS]; };

static struct shape dense(int64_t b, int64_t h, int64_t s, int64_t d)
{
    return (struct shape){{b, h, s, d}, {h * s * d, s * d, d, 1}};
}

static struct shape turned(struct shape s)
{
    struct shape t = s;
    t.dim[2] = s.dim[3], t.dim[3] = s.dim[2];
    t.stride[2] = s.stride[3], t.stride[3] = s.stride[2];
    return t;
}

enum kept { VIRTUAL, REAL, BY_VALUE };

static part tensor(struct graph *g, int64_t id, cudnnDataType_t type, struct shape s,
                   enum kept kept, part offset)
{
    part t = made(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t align = 16;
    const bool is = true;
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set_type(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DIMS, s.dim);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DIMS, s.stride);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (kept == VIRTUAL)
        set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is);
    if (kept == BY_VALUE)
        set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is);
    if (offset)
        set_part(g, t, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offset);
    return finished(g, t);
}

static part passing(struct graph *g, cudnnDataType_t type, struct shape s)
{
    return tensor(g, g->next_id++, type, s, VIRTUAL, NULL);
}

static part number(struct graph *g, enum attn_id id)
{
    return tensor(g, id, CUDNN_DATA_FLOAT, dense(1, 1, 1, 1), BY_VALUE, NULL);
}

static cudnnDataType_t type_of(int32_t dtype)
{
    return dtype == DTYPE_F32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
}

static bool is_of_rows(enum attn_tensor t) { return t == ATTN_LSE || t == ATTN_DELTA; }

static cudnnDataType_t type_in(const struct attn_class *c, enum attn_tensor t)
{
    switch (t) {
    case ATTN_O: return type_of(c->o);
    case ATTN_DQ: return type_of(c->dq);
    case ATTN_DK:
    case ATTN_DV: return type_of(c->dkv);
    case ATTN_LSE:
    case ATTN_DELTA:
    case ATTN_DQ_SUM: return CUDNN_DATA_FLOAT;
    default: return CUDNN_DATA_BFLOAT16;
    }
}

static struct shape shape_in(const struct attn_class *c, enum attn_tensor t)
{
    bool keys = attn_dnn_is_of_keys((int)t);
    int64_t s = keys ? c->k : c->q, d = is_of_rows(t) ? 1 : c->d,
            step = c->packed ? s : keys ? c->k_step : c->q_step;
    return (struct shape){{c->n, t == ATTN_K || t == ATTN_V ? c->kv_heads : c->heads, s, d},
                          {step * c->ld[t], d, c->ld[t], 1}};
}

static part offset_of(struct graph *g, enum attn_tensor t)
{
    if (!g->c->packed || (t == ATTN_DQ_SUM && !attn_class_sum_is_packed(g->c)))
        return NULL;
    if (!g->offset[t])
        g->offset[t] = tensor(g, ATTN_ID_OFFSET + (int64_t)t, CUDNN_DATA_INT64,
                              dense(g->c->n + 1, 1, 1, 1), REAL, NULL);
    return g->offset[t];
}

static part outer(struct graph *g, enum attn_tensor t, bool turn)
{
    struct shape s = shape_in(g->c, t);
    if (t == ATTN_DQ_SUM && !attn_class_sum_is_packed(g->c))
        s = dense(g->c->n, g->c->heads, g->c->q, g->c->d);
    return tensor(g, ATTN_ID_TENSOR + (int64_t)t, type_in(g->c, t), turn ? turned(s) : s, REAL,
                  offset_of(g, t));
}

static void lengths_make(struct graph *g)
{
    struct shape s = dense(g->c->n, 1, 1, 1);
    if (!g->c->packed)
        return;
    g->q_len = tensor(g, ATTN_ID_Q_LEN, CUDNN_DATA_INT32, s, REAL, NULL);
    g->k_len = tensor(g, ATTN_ID_K_LEN, CUDNN_DATA_INT32, s, REAL, NULL);
}

/* ---- operations ---- */

struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t precision;
    part x, b, t, y;
    int64_t axis;
};

static void pointwise(struct graph *g, const struct pointwise *a)
{
    part how = made(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &a->mode);
    set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, a->precision);
    if (a->mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &a->axis);
    finished(g, how);
    op = made(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a->x);
    if (a->b)
        set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, a->b);
    if (a->t)
        set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, a->t);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, a->y);
    operation_end(g, op);
}

/* Adds a pointwise operation to the graph. Returns its result, a virtual tensor of shape s. */
static part computed(struct graph *g, cudnnPointwiseMode_t mode, part x, part b, struct shape s)
{
    part y = passing(g, CUDNN_DATA_FLOAT, s);
    pointwise(g, &(struct pointwise){.mode = mode, .precision = CUDNN_DATA_FLOAT,
                                     .x = x, .b = b, .y = y});
    return y;
}

/* Describes a product c = a b over m x n x k. In packed form m, n and k hold each segment's
 * lengths; rows past a length are ignored. */
struct product { part a, b, c, m, n, k; };

static void product(struct graph *g, const struct product *p)
{
    part how = made(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR), op;
    set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finished(g, how);
    op = made(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, p->a);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, p->b);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, p->c);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    if (p->m)
        set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, p->m);
    if (p->n)
        set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, p->n);
    if (p->k)
        set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, p->k);
    operation_end(g, op);
}

static void summed(struct graph *g, part x, part y)
{
    const cudnnReduceTensorOp_t add = CUDNN_REDUCE_TENSOR_ADD;
    part how = made(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), op;
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &add);
    set_type(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finished(g, how);
    op = made(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    operation_end(g, op);
}

static part reshaped(struct graph *g, part x, part y)
{
    part op = made(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    operation_end(g, op);
    return y;
}

/* ---- forward ---- */

static void forward(struct graph *g)
{
    part op = made(g, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, outer(g, ATTN_Q, false));
    set_part(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, outer(g, ATTN_K, false));
    set_part(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, outer(g, ATTN_V, false));
    set_part(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, outer(g, ATTN_O, false));
    set_part(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, outer(g, ATTN_LSE, false));
    set_part(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, number(g, ATTN_ID_SCALE));
    if (g->c->packed) {
        set_part(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, g->q_len);
        set_part(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, g->k_len);
    }
    operation_end(g, op);
}

/* ---- backward ---- */

static struct shape rows_shape(const struct attn_class *c)
{
    return dense(c->n, c->heads, c->q, 1);
}

static struct shape scores_shape(const struct attn_class *c)
{
    return dense(c->n, c->heads, c->q, c->k);
}

/* Returns delta = rowsum(dO O), which is also written to the class's tensor. */
static part delta_make(struct graph *g, part d_o)
{
    struct shape s = dense(g->c->n, g->c->heads, g->c->q, g->c->d);
    part o = outer(g, ATTN_O, false), product, sum, delta;
    product = computed(g, CUDNN_POINTWISE_MUL, d_o, o, s);
    sum = passing(g, CUDNN_DATA_FLOAT, rows_shape(g->c));
    summed(g, product, sum);
    delta = outer(g, ATTN_DELTA, false);
    pointwise(g, &(struct pointwise){.mode = CUDNN_POINTWISE_MUL, .precision = CUDNN_DATA_FLOAT,
                                     .x = sum, .b = number(g, ATTN_ID_ONE), .y = delta});
    return delta;
}

/* Returns whether the index along `axis` of each score is below its segment's length. */
static part is_inside(struct graph *g, part scores, int64_t axis, part len)
{
    struct shape s = scores_shape(g->c);
    part index = passing(g, CUDNN_DATA_INT32, s), inside = passing(g, CUDNN_DATA_BOOLEAN, s);
    pointwise(g, &(struct pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX,
                                     .precision = CUDNN_DATA_INT32,
                                     .x = scores, .y = index, .axis = axis});
    pointwise(g, &(struct pointwise){.mode = CUDNN_POINTWISE_CMP_LT,
                                     .precision = CUDNN_DATA_BOOLEAN,
                                     .x = index, .b = len, .y = inside});
    return inside;
}

/* Returns the scores with -inf outside the queries and keys of their segments. */
static part masked(struct graph *g, part scores)
{
    struct shape s = scores_shape(g->c);
    part rows, cols, both, y;
    if (!g->c->packed)
        return scores;
    rows = is_inside(g, scores, 2, g->q_len);
    cols = is_inside(g, scores, 3, g->k_len);
    both = passing(g, CUDNN_DATA_BOOLEAN, s);
    pointwise(g, &(struct pointwise){.mode = CUDNN_POINTWISE_LOGICAL_AND,
                                     .precision = CUDNN_DATA_BOOLEAN,
                                     .x = rows, .b = cols, .y = both});
    y = passing(g, CUDNN_DATA_FLOAT, s);
    pointwise(g, &(struct pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                     .precision = CUDNN_DATA_FLOAT, .x = scores,
                                     .b = number(g, ATTN_ID_NOTHING), .t = both, .y = y});
    return y;
}

/* Returns P = exp(scale q kt - lse). */
static part weights_make(struct graph *g, part q, part kt, part scale)
{
    struct shape s = scores_shape(g->c);
    part raw = passing(g, CUDNN_DATA_FLOAT, s), scores;
    product(g, &(struct product){.a = q, .b = kt, .c = raw, .m = g->q_len, .n = g->k_len});
    scores = masked(g, computed(g, CUDNN_POINTWISE_MUL, raw, scale, s));
    return computed(g, CUDNN_POINTWISE_EXP,
                    computed(g, CUDNN_POINTWISE_SUB, scores, outer(g, ATTN_LSE, false), s), NULL,
                    s);
}

/* Computes out = xt y, a gradient of keys: dv from x = P, y = dO, or dk from x = dS, y = q. */
static void keys_sum(struct graph *g, part x, part y, enum attn_tensor out)
{
    part xt = reshaped(g, x, passing(g, CUDNN_DATA_BFLOAT16, turned(scores_shape(g->c))));
    product(g, &(struct product){.a = xt, .b = y, .c = outer(g, out, false), .m = g->k_len,
                                 .k = g->q_len});
}

/* Returns dS = scale P (dO vt - delta). */
static part scores_gradient(struct graph *g, part p, part d_o, part delta, part scale)
{
    struct shape s = scores_shape(g->c);
    part vt = outer(g, ATTN_V, true), dp = passing(g, CUDNN_DATA_FLOAT, s);
    product(g, &(struct product){.a = d_o, .b = vt, .c = dp, .m = g->q_len, .n = g->k_len});
    dp = computed(g, CUDNN_POINTWISE_SUB, dp, delta, s);
    dp = computed(g, CUDNN_POINTWISE_MUL, dp, p, s);
    return computed(g, CUDNN_POINTWISE_MUL, dp, scale, s);
}

/* Computes dq = dS k. Uses the library's f32 workspace DQ_SUM unless the class is deterministic. */
static void queries_sum(struct graph *g, part ds, part kt)
{
    part k = tensor(g, g->next_id++, CUDNN_DATA_BFLOAT16, shape_in(g->c, ATTN_K), VIRTUAL,
                    offset_of(g, ATTN_K)),
         dq = outer(g, ATTN_DQ, false), sum = dq;
    reshaped(g, kt, k);
    if (!g->c->deterministic)
        sum = outer(g, ATTN_DQ_SUM, false);
    product(g, &(struct product){.a = ds, .b = k, .c = sum, .m = g->q_len, .k = g->k_len});
    if (sum != dq)
        pointwise(g, &(struct pointwise){.mode = CUDNN_POINTWISE_IDENTITY,
                                         .precision = CUDNN_DATA_FLOAT, .x = sum, .y = dq});
}

static void backward(struct graph *g)
{
    part q = outer(g, ATTN_Q, false), kt = outer(g, ATTN_K, true),
         d_o = outer(g, ATTN_D_O, false), scale = number(g, ATTN_ID_SCALE),
         delta = delta_make(g, d_o), p = weights_make(g, q, kt, scale), ds;
    keys_sum(g, p, d_o, ATTN_DV);
    ds = scores_gradient(g, p, d_o, delta, scale);
    keys_sum(g, ds, q, ATTN_DK);
    queries_sum(g, ds, kt);
}

/* ---- plans ---- */

static part graph_end(struct graph *g)
{
    part all = made(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
    return finished(g, all);
}

static void parts_free(struct graph *g)
{
    while (g->n_parts > 0)
        cudnnBackendDestroyDescriptor(g->parts[--g->n_parts]);
}

/* Writes which step failed and the library's error message to `why`. */
static void why_keep(cudnnStatus_t st, const char *what, char why[ATTN_WHY])
{
    char text[ATTN_WHY / 2] = "";
    cudnnGetLastErrorString(text, sizeof text);
    snprintf(why, ATTN_WHY, "%s: %s: %s", what, cudnnGetErrorString(st), text);
}

/* Reads an attribute of one value. If the attribute has no value, *value does not change. */
static void read_one(part p, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     void *value)
{
    int64_t n = 0;
    cudnnBackendGetAttribute(p, name, type, 1, &n, value);
}

/* Reads the number of a configuration's engine, and the workspace that it needs. */
static int64_t engine_read(part config, struct attn_plan *out)
{
    struct graph g = {0};
    part engine = made(&g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    out->engine = out->workspace_bytes = -1;
    read_one(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &out->workspace_bytes);
    read_one(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &engine);
    read_one(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &out->engine);
    parts_free(&g);
    return out->engine;
}

/* Makes the plan of an engine configuration. The configuration may be destroyed before the plan. */
static cudnnStatus_t plan_try(part config, part device, struct attn_plan *out)
{
    struct graph g = {0};
    part plan = made(&g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_part(&g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    set_part(&g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    finished(&g, plan);
    if (g.st != CUDNN_STATUS_SUCCESS) {
        parts_free(&g);
        return g.st;
    }
    read_one(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
             &out->workspace_bytes);
    out->plan = plan;
    return g.st;
}

/* Returns whether a status is a failure of the machine, not a refusal of the graph. If an engine
 * only ran out of memory, another one must not replace it: its results would differ in bits. */
bool attn_plan_failed(cudnnStatus_t st)
{
    return CUDNN_STATUS_CATEGORY(st) == CUDNN_STATUS_EXECUTION_FAILED ||
           st == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
           st == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

/* Asks the library's heuristics for configurations, which come best first, and uses the first one
 * from `first` on that can be built. Nothing is timed: the choice depends only on class, device and
 * library version. */
static void plan_choose(struct graph *g, part graph, part device, int64_t first,
                        struct attn_plan *out, char why[ATTN_WHY])
{
    part heuristic = made(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), configs[CONFIGS];
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;
    set_part(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_part(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    finished(g, heuristic);
    for (int i = 0; i < CONFIGS; i++)
        configs[i] = made(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->st == CUDNN_STATUS_SUCCESS)
        g->st = cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &n, configs);
    if (g->st != CUDNN_STATUS_SUCCESS) {
        why_keep(g->st, "engines", why);
        return;
    }
    g->st = CUDNN_STATUS_NOT_SUPPORTED;
    for (int64_t i = first; i < n; i++) {
        char what[40];
        if (g->st == CUDNN_STATUS_SUCCESS || attn_plan_failed(g->st))
            break;
        snprintf(what, sizeof what, "engine %lld", (long long)engine_read(configs[i], out));
        if ((g->st = plan_try(configs[i], device, out)) != CUDNN_STATUS_SUCCESS)
            why_keep(g->st, what, why);
    }
}

cudnnStatus_t attn_plan_make(const struct attn_class *c, cudnnBackendDescriptor_t device,
                             int64_t first, struct attn_plan *out, char why[ATTN_WHY])
{
    struct graph g = {.c = c, .next_id = ATTN_ID_VIRTUAL};
    part all;
    snprintf(why, ATTN_WHY, "no engine takes it");
    lengths_make(&g);
    if (c->backward)
        backward(&g);
    else
        forward(&g);
    all = graph_end(&g);
    if (g.st != CUDNN_STATUS_SUCCESS)
        why_keep(g.st, "the graph", why);
    else
        plan_choose(&g, all, device, first, out, why);
    parts_free(&g);
    return g.st;
}

void attn_plan_free(struct attn_plan *p)
{
    if (p->plan)
        cudnnBackendDestroyDescriptor(p->plan);
    *p = (struct attn_plan){0};
}

cudnnStatus_t attn_plan_queue(cudnnHandle_t handle, cudaStream_t s, const struct attn_plan *p,
                              int64_t n, const int64_t *ids, void *const *at, void *workspace)
{
    struct graph g = {.st = cudnnSetStream(handle, s)};
    part pack = made(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
    set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finished(&g, pack);
    if (g.st == CUDNN_STATUS_SUCCESS)
        g.st = cudnnBackendExecute(handle, p->plan, pack);
    parts_free(&g);
    return g.st;
}

cudnnStatus_t attn_device_make(cudnnHandle_t handle, cudnnBackendDescriptor_t *out)
{
    struct graph g = {0};
    part device = made(&g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(&g, device, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    finished(&g, device);
    if (g.st != CUDNN_STATUS_SUCCESS)
        parts_free(&g);
    else
        *out = device;
    return g.st;
}
