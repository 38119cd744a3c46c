/* The stand-in for cuDNN's backend API records descriptors, and refuses them where the library
 * does. When the stream reaches a plan, its graph is executed operation by operation, in plain
 * loops (cudnn_run.c).
 *
 * For descriptors it checks their attributes with types and counts, that required attributes
 * are set, that a descriptor is finalized before another one uses it, and that it is not changed
 * later. For a graph it checks that one id means one tensor, that a virtual tensor is written
 * once before it is read, and that either all products or none have lengths. For a variant pack
 * it checks that it has exactly the ids of the graph, and that pointers are multiples of 16.
 *
 * REEL_SHIM_CUDNN is the version that it reports (default 91900). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_run.h"
#include "shim.h"
#include "base/err.h"

enum { HANDLE = 0xcd, ATTRIBUTES = 16, ALIGN = 16, WORKSPACE = 256 };

struct cudnnContext { int made; cudaStream_t stream; };

struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t n;
    void *values;
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool is_final;
    struct attribute attribute[ATTRIBUTES];
    int n;
    struct run_graph *graph; /* a copy; for graphs, heuristics, configurations and plans */
};

static struct shim_attention counts;
struct shim_attention shim_attention(void) { return counts; }

static char last_error[256];

/* Stores the text of the last error, and returns the status. */
static cudnnStatus_t refuse(cudnnStatus_t st, const char *what, int64_t which)
{
    snprintf(last_error, sizeof last_error, "the shim's cuDNN: %s (%lld)", what, (long long)which);
    return st;
}

size_t cudnnGetVersion(void)
{
    const char *text = getenv("REEL_SHIM_CUDNN");
    return text ? (size_t)strtoull(text, NULL, 10) : 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    static char text[48];
    snprintf(text, sizeof text, "status %d of the shim's cuDNN", (int)status);
    return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : text;
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
    snprintf(message, max_size, "%s", last_error);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    cudnnStatus_t asked = (cudnnStatus_t)shim_failure(__func__);
    if (asked != CUDNN_STATUS_SUCCESS)
        return refuse(asked, "as the environment asks", 0);
    *handle = calloc(1, sizeof **handle);
    (*handle)->made = HANDLE;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!handle || handle->made != HANDLE)
        return refuse(CUDNN_STATUS_NOT_INITIALIZED, "no handle", 0);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- the attributes of each descriptor ---- */

struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t most;
    bool needed;
    cudnnBackendDescriptorType_t part; /* kind of the descriptors that are its values */
};

#define TENSOR CUDNN_BACKEND_TENSOR_DESCRIPTOR
#define PART CUDNN_TYPE_BACKEND_DESCRIPTOR
#define OP_POINTWISE CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
#define OP_MATMUL CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR
#define OP_REDUCTION CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR
#define OP_RESHAPE CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR
#define OP_SDPA CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR
#define PACK CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
#define HEURISTIC CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
#define CONFIG CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
#define PLAN CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
#define GRAPH CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR

static const struct rule rules[] = {
    {TENSOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, true, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, RUN_DIMS, true, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, RUN_DIMS, true, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, true, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, false, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, PART, 1, false, TENSOR},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
     true, 0},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
     true, 0},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, false, 0},
    {OP_POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, PART, 1, true,
     CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
    {OP_POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, PART, 1, true, TENSOR},
    {OP_POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, PART, 1, false, TENSOR},
    {OP_POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, PART, 1, false, TENSOR},
    {OP_POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, PART, 1, true, TENSOR},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true, 0},
    {OP_MATMUL, CUDNN_ATTR_OPERATION_MATMUL_DESC, PART, 1, true, CUDNN_BACKEND_MATMUL_DESCRIPTOR},
    {OP_MATMUL, CUDNN_ATTR_OPERATION_MATMUL_ADESC, PART, 1, true, TENSOR},
    {OP_MATMUL, CUDNN_ATTR_OPERATION_MATMUL_BDESC, PART, 1, true, TENSOR},
    {OP_MATMUL, CUDNN_ATTR_OPERATION_MATMUL_CDESC, PART, 1, true, TENSOR},
    {OP_MATMUL, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, PART, 1, false, TENSOR},
    {OP_MATMUL, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, PART, 1, false, TENSOR},
    {OP_MATMUL, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, PART, 1, false, TENSOR},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
     CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, true, 0},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
     true, 0},
    {OP_REDUCTION, CUDNN_ATTR_OPERATION_REDUCTION_DESC, PART, 1, true,
     CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
    {OP_REDUCTION, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, PART, 1, true, TENSOR},
    {OP_REDUCTION, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, PART, 1, true, TENSOR},
    {OP_RESHAPE, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, PART, 1, true, TENSOR},
    {OP_RESHAPE, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, PART, 1, true, TENSOR},
    {OP_SDPA, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, PART, 1, true, TENSOR},
    {OP_SDPA, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, PART, 1, true, TENSOR},
    {OP_SDPA, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, PART, 1, true, TENSOR},
    {OP_SDPA, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, PART, 1, true, TENSOR},
    {OP_SDPA, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, PART, 1, true, TENSOR},
    {OP_SDPA, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, PART, 1, true, TENSOR},
    {OP_SDPA, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, PART, 1, false, TENSOR},
    {OP_SDPA, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, PART, 1, false, TENSOR},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, PART, RUN_OPS, true, 0},
    {HEURISTIC, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, PART, 1, true, GRAPH},
    {HEURISTIC, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, true, 0},
    {HEURISTIC, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, PART, 1, true,
     CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, PART, 1, true, CONFIG},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, PART, 1, true, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR},
    {PACK, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, RUN_IDS, true, 0},
    {PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, RUN_IDS, true, 0},
    {PACK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, true, 0},
    {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, true, 0},
};
enum { RULES = sizeof rules / sizeof *rules };

static int64_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    default: return sizeof(int);
    }
}

static const struct rule *rule_of(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < RULES; i++)
        if (rules[i].of == of && rules[i].name == name)
            return &rules[i];
    return NULL;
}

static const struct attribute *attribute_of(const struct descriptor *d,
                                            cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n; i++)
        if (d->attribute[i].name == name)
            return &d->attribute[i];
    return NULL;
}

/* ---- descriptors ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor)
{
    struct descriptor *d = calloc(1, sizeof *d);
    d->type = type;
    *descriptor = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    struct descriptor *d = descriptor;
    for (int i = 0; i < d->n; i++)
        free(d->attribute[i].values);
    free(d->graph);
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

/* Checks that descriptors which are values of an attribute are finalized and of the right kind. */
static cudnnStatus_t parts_check(const struct rule *r, int64_t n, const void *values)
{
    struct descriptor *const *parts = values;
    for (int64_t i = 0; i < n && r->type == PART; i++) {
        if (!parts[i])
            return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor", r->name);
        if (!parts[i]->is_final)
            return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalized", r->name);
        if (r->of != GRAPH && parts[i]->type != r->part)
            return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "another descriptor", r->name);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    struct descriptor *d = descriptor;
    const struct rule *r = d ? rule_of(d->type, name) : NULL;
    cudnnStatus_t st;
    if (!r)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an attribute that it has not", name);
    if (d->is_final)
        return refuse(CUDNN_STATUS_BAD_PARAM, "set behind finalize", name);
    if (type != r->type)
        return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "of another type", name);
    if (n < 1 || n > r->most || !values || d->n == ATTRIBUTES || attribute_of(d, name))
        return refuse(CUDNN_STATUS_BAD_PARAM, "too many values, or twice", name);
    if ((st = parts_check(r, n, values)) != CUDNN_STATUS_SUCCESS)
        return st;
    struct attribute *a = &d->attribute[d->n++];
    *a = (struct attribute){name, n, malloc((size_t)(n * bytes_of(type)))};
    memcpy(a->values, values, (size_t)(n * bytes_of(type)));
    return CUDNN_STATUS_SUCCESS;
}

/* Copies an attribute's values. If it is not set, `to` keeps its value. */
static void read_into(const struct descriptor *d, cudnnBackendAttributeName_t name, void *to)
{
    const struct attribute *a = attribute_of(d, name);
    if (a)
        memcpy(to, a->values, (size_t)(a->n * bytes_of(rule_of(d->type, name)->type)));
}

static const struct descriptor *part_of(const struct descriptor *d,
                                        cudnnBackendAttributeName_t name)
{
    const struct attribute *a = attribute_of(d, name);
    return a ? *(struct descriptor *const *)a->values : NULL;
}

/* ---- graphs ---- */

static struct run_tensor tensor_of(const struct descriptor *op, cudnnBackendAttributeName_t name)
{
    const struct descriptor *d = part_of(op, name), *offset;
    struct run_tensor t = {0};
    if (!d)
        return t;
    read_into(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, &t.id);
    read_into(d, CUDNN_ATTR_TENSOR_DATA_TYPE, &t.type);
    read_into(d, CUDNN_ATTR_TENSOR_DIMENSIONS, t.dim);
    read_into(d, CUDNN_ATTR_TENSOR_STRIDES, t.stride);
    read_into(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, &t.is_virtual);
    read_into(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, &t.by_value);
    if ((offset = part_of(d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC)))
        read_into(offset, CUDNN_ATTR_TENSOR_UNIQUE_ID, &t.offset);
    return t;
}

static void op_read_pointwise(const struct descriptor *d, struct run_op *op)
{
    const struct descriptor *how = part_of(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    read_into(how, CUDNN_ATTR_POINTWISE_MODE, &op->mode);
    read_into(how, CUDNN_ATTR_POINTWISE_AXIS, &op->axis);
    op->a = tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    op->b = tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    op->t = tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    op->y = tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
}

static void op_read_matmul(const struct descriptor *d, struct run_op *op)
{
    op->a = tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    op->b = tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    op->y = tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    op->m = tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC);
    op->n = tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC);
    op->k = tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC);
}

static void op_read_forward(const struct descriptor *d, struct run_op *op)
{
    op->a = tensor_of(d, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
    op->b = tensor_of(d, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
    op->t = tensor_of(d, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC);
    op->y = tensor_of(d, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC);
    op->stats = tensor_of(d, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC);
    op->scale = tensor_of(d, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC);
    op->m = tensor_of(d, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC);
    op->n = tensor_of(d, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC);
}

static struct run_op op_of(const struct descriptor *d)
{
    struct run_op op = {.kind = d->type};
    if (d->type == OP_POINTWISE)
        op_read_pointwise(d, &op);
    else if (d->type == OP_MATMUL)
        op_read_matmul(d, &op);
    else if (d->type == OP_SDPA)
        op_read_forward(d, &op);
    else if (d->type == OP_REDUCTION) {
        op.a = tensor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
        op.y = tensor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    } else {
        op.a = tensor_of(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
        op.y = tensor_of(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    }
    return op;
}

enum { TENSORS_OF_OP = 9 };
/* Lists the tensors of an operation. The operation reads the first *read of them and then writes
 * the others. */
static void tensors_list(const struct run_op *op, const struct run_tensor *list[TENSORS_OF_OP],
                         int *read)
{
    const struct run_tensor *all[TENSORS_OF_OP] = {&op->a, &op->b, &op->t, &op->m, &op->n,
                                                   &op->k, &op->scale, &op->y, &op->stats};
    memcpy(list, all, sizeof all);
    *read = 7;
}

/* Tells whether two descriptions mean the same tensor. K and V may be transposed. */
static bool is_same(const struct run_tensor *a, const struct run_tensor *b)
{
    struct run_tensor t = *b;
    if (memcmp(a->dim, b->dim, sizeof a->dim) != 0) {
        t.dim[2] = b->dim[3], t.dim[3] = b->dim[2];
        t.stride[2] = b->stride[3], t.stride[3] = b->stride[2];
    }
    return memcmp(a->dim, t.dim, sizeof t.dim) == 0 && a->type == t.type &&
           memcmp(a->stride, t.stride, sizeof t.stride) == 0 && a->offset == t.offset &&
           a->is_virtual == t.is_virtual && a->by_value == t.by_value;
}

/* Holds what is known so far about the ids of a graph. */
struct ids { struct run_tensor t[RUN_IDS]; bool written[RUN_IDS]; };

static cudnnStatus_t tensor_check(struct ids *ids, const struct run_tensor *t, bool writes)
{
    if (t->id == 0)
        return CUDNN_STATUS_SUCCESS;
    if (t->id < 0 || t->id >= RUN_IDS)
        return refuse(CUDNN_STATUS_BAD_PARAM, "an id that the shim has no room for", t->id);
    if (ids->t[t->id].id && !is_same(&ids->t[t->id], t))
        return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "one id of two tensors", t->id);
    ids->t[t->id] = *t;
    if (writes && ids->written[t->id])
        return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "written twice", t->id);
    if (!writes && t->is_virtual && !ids->written[t->id])
        return refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "read before written", t->id);
    if (writes)
        ids->written[t->id] = true;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t graph_check(const struct run_graph *g)
{
    static struct ids ids;
    struct run_lengths lengths;
    ids = (struct ids){.written = {false}};
    for (int i = 0; i < g->n; i++) {
        const struct run_tensor *list[TENSORS_OF_OP];
        int read;
        cudnnStatus_t st;
        tensors_list(&g->op[i], list, &read);
        for (int k = 0; k < TENSORS_OF_OP; k++)
            if ((st = tensor_check(&ids, list[k], k >= read)) != CUDNN_STATUS_SUCCESS)
                return st;
    }
    if (!run_lengths_find(g, &lengths))
        return refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "lengths of some products", 0);
    return CUDNN_STATUS_SUCCESS;
}

/* Returns the workspace that an engine would need: dS, unless dq is summed in its own memory. */
static int64_t workspace_of(const struct run_graph *g)
{
    const struct run_op *last = &g->op[g->n - 1];
    int64_t bytes = WORKSPACE;
    if (last->kind == OP_MATMUL && last->y.type == CUDNN_DATA_BFLOAT16)
        bytes += last->a.dim[0] * last->a.dim[1] * last->a.dim[2] * last->a.dim[3] * 2;
    return bytes;
}

static cudnnStatus_t graph_read(struct descriptor *d)
{
    const struct attribute *ops = attribute_of(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    d->graph = calloc(1, sizeof *d->graph);
    for (int64_t i = 0; i < ops->n; i++)
        d->graph->op[d->graph->n++] = op_of(((struct descriptor *const *)ops->values)[i]);
    d->graph->workspace = workspace_of(d->graph);
    return graph_check(d->graph);
}

static struct run_graph *graph_copy(const struct run_graph *g)
{
    struct run_graph *copy = malloc(sizeof *copy);
    *copy = *g;
    return copy;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    struct descriptor *d = descriptor;
    if (!d || d->is_final)
        return refuse(CUDNN_STATUS_BAD_PARAM, "finalized twice", d ? (int64_t)d->type : -1);
    for (int i = 0; i < RULES; i++)
        if (rules[i].of == d->type && rules[i].needed && !attribute_of(d, rules[i].name))
            return refuse(CUDNN_STATUS_BAD_PARAM, "an attribute is missing", rules[i].name);
    d->is_final = true;
    if (d->type == GRAPH)
        return graph_read(d);
    if (d->type == HEURISTIC)
        d->graph = graph_copy(part_of(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph);
    if (d->type == PLAN) {
        d->graph = graph_copy(part_of(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->graph);
        counts.plans++;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Returns the heuristic's one configuration, if an engine supports the graph. */
static cudnnStatus_t results_give(const struct descriptor *d, int64_t *n, void *values)
{
    struct descriptor *config = *(struct descriptor **)values;
    int64_t columns = d->graph->op[0].a.dim[3];
    *n = columns % 8 == 0 && columns <= 256;
    if (*n && config->type == CONFIG) {
        config->graph = graph_copy(d->graph);
        config->is_final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *n,
                                       void *values)
{
    const struct descriptor *d = descriptor;
    if (most < 1)
        return refuse(CUDNN_STATUS_BAD_PARAM, "no room for values", name);
    *n = 1;
    if (d->type == HEURISTIC && name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == PART && d->is_final)
        return results_give(d, n, values);
    if (d->type == CONFIG && name == CUDNN_ATTR_ENGINECFG_ENGINE && type == PART)
        return CUDNN_STATUS_SUCCESS;
    if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
        *(int64_t *)values = 0;
    else if ((name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE ||
              name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) && type == CUDNN_TYPE_INT64)
        *(int64_t *)values = d->graph->workspace;
    else
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an attribute that is not read", name);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- runs ---- */

/* Finds the pointer of an id in the pack. A host scalar is read at once. */
static cudnnStatus_t place_take(const struct run_tensor *t, const int64_t *ids, void *const *at,
                                int64_t n, struct run *r)
{
    int64_t wanted[2] = {t->is_virtual ? 0 : t->id, t->offset};
    for (int k = 0; k < 2; k++) {
        int64_t i = 0;
        while (i < n && ids[i] != wanted[k])
            i++;
        if (wanted[k] == 0)
            continue;
        if (i == n || !at[i])
            return refuse(CUDNN_STATUS_BAD_PARAM, "the pack lacks an id", wanted[k]);
        if (k == 0 && t->by_value)
            r->number[t->id] = *(const float *)at[i];
        else if ((uintptr_t)at[i] % ALIGN)
            return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "a pointer", wanted[k]);
        r->at[wanted[k]] = at[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t pack_take(const struct run_graph *g, const struct descriptor *pack,
                               struct run *r)
{
    const struct attribute *ids = attribute_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                           *at = attribute_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    int64_t used = 0;
    cudnnStatus_t st;
    if (ids->n != at->n)
        return refuse(CUDNN_STATUS_BAD_PARAM, "as many ids as pointers", ids->n);
    for (int i = 0; i < g->n; i++) {
        const struct run_tensor *list[TENSORS_OF_OP];
        int read;
        tensors_list(&g->op[i], list, &read);
        for (int k = 0; k < TENSORS_OF_OP; k++)
            if (list[k]->id && (st = place_take(list[k], ids->values, at->values, ids->n, r)) !=
                                   CUDNN_STATUS_SUCCESS)
                return st;
    }
    for (int i = 0; i < RUN_IDS; i++)
        used += r->at[i] != NULL;
    if (used != ids->n)
        return refuse(CUDNN_STATUS_BAD_PARAM, "the pack has ids that the graph has not", ids->n);
    read_into(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &r->workspace);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    const struct descriptor *p = plan, *v = pack;
    struct run r = {.graph = p->graph};
    cudnnStatus_t st = (cudnnStatus_t)shim_failure(__func__);
    if (st != CUDNN_STATUS_SUCCESS)
        return refuse(st, "as the environment asks", 0);
    if (!handle || p->type != PLAN || v->type != PACK || !p->is_final || !v->is_final)
        return refuse(CUDNN_STATUS_BAD_PARAM, "no plan, or no pack", 0);
    if ((st = pack_take(p->graph, v, &r)) != CUDNN_STATUS_SUCCESS)
        return st;
    counts.forward += p->graph->op[0].kind == OP_SDPA;
    counts.backward += p->graph->op[0].kind != OP_SDPA;
    counts.packed += p->graph->op[0].a.offset != 0;
    shim_queue(handle->stream, run_all, &r, sizeof r);
    return CUDNN_STATUS_SUCCESS;
}
