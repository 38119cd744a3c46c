#include "profiles/kernels.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASS_NAME(id, name, what) name,
const char *const kernel_class_names[KERNEL_CLASSES] = {KERNEL_CLASS_LIST(CLASS_NAME)};

/* ---- names ---- */

/* Reads one <length><identifier> of a mangled name. Returns the rest of the name, or NULL. */
static const char *mangled_part(const char *p, const char **at, size_t *n)
{
    char *rest;
    unsigned long length = isdigit((unsigned char)*p) ? strtoul(p, &rest, 10) : 0;
    if (length == 0 || strlen(rest) < length)
        return NULL;
    *at = rest;
    *n = length;
    return rest + length;
}

/* Finds the identifier in a mangled name (Itanium C++ ABI, 5.1). In a nested name it is the last
 * part before the template's arguments. */
static size_t mangled_find(const char *name, const char **at)
{
    const char *p = name + 2, *next;
    size_t n = 0;
    bool nested = *p == 'N';
    p += nested;
    while (*p == 'L' || *p == 'K')
        p++;
    while ((next = mangled_part(p, at, &n)))
        if (p = next + (*next == 'L'), !nested)
            break; /* the rest are parameters */
    return n;
}

/* Finds the identifier in a name as a debugger prints it: after the return type and namespaces,
 * before arguments. */
static size_t written_find(const char *name, const char **at)
{
    size_t n = strcspn(name, "<(");
    *at = name;
    for (size_t i = 0; i < n; i++)
        if (name[i] == ' ' || name[i] == ':')
            *at = name + i + 1;
    return (size_t)(name + n - *at);
}

const char *kernel_identifier(const char *name, char out[KERNEL_NAME_BYTES])
{
    const char *at = name;
    size_t n = strncmp(name, "_Z", 2) == 0 ? mangled_find(name, &at) : written_find(name, &at);
    if (n == 0)
        at = name, n = strlen(name);
    snprintf(out, KERNEL_NAME_BYTES, "%.*s", (int)(n < KERNEL_NAME_BYTES ? n : KERNEL_NAME_BYTES),
             at);
    return out;
}

/* ---- classes ---- */

struct pattern { const char *text; enum kernel_class class; };

/* Lists identifiers of reel's own kernels, and the operations that its ranges name. */
static const struct pattern own[] = {
    {"gemm", KERNEL_GEMM}, {"gemm_few", KERNEL_GEMM}, {"gemm_few_back", KERNEL_GEMM},
    {"attn_fwd", KERNEL_ATTENTION}, {"attn_bwd", KERNEL_ATTENTION},
    {"attn_bwd_q", KERNEL_ATTENTION}, {"attn_bwd_k", KERNEL_ATTENTION},
    {"attn_delta", KERNEL_ATTENTION}, {"lse_merge", KERNEL_ATTENTION},
    {"attn_home", KERNEL_ATTENTION}, {"attn_look", KERNEL_ATTENTION},
    {"attn_lay", KERNEL_ATTENTION},
    {"attn_short_fwd", KERNEL_ATTENTION}, {"attn_short_bwd", KERNEL_ATTENTION},
    {"adaln_fwd", KERNEL_NORM}, {"adaln_bwd", KERNEL_NORM}, {"adaln_sums", KERNEL_NORM},
    {"headnorm_fwd", KERNEL_NORM}, {"headnorm_bwd", KERNEL_NORM}, {"headnorm_dgain", KERNEL_NORM},
    {"act_fwd", KERNEL_ELEMENTWISE}, {"act_bwd", KERNEL_ELEMENTWISE},
    {"swiglu_fwd", KERNEL_ELEMENTWISE}, {"swiglu_bwd", KERNEL_ELEMENTWISE},
    {"rope", KERNEL_ELEMENTWISE}, {"sinusoid", KERNEL_ELEMENTWISE},
    {"colsum", KERNEL_ELEMENTWISE}, {"colsum_part", KERNEL_ELEMENTWISE},
    {"colsum_add", KERNEL_ELEMENTWISE}, {"parts_row", KERNEL_ELEMENTWISE},
    {"axpy", KERNEL_ELEMENTWISE},
    {"scale", KERNEL_ELEMENTWISE}, {"twice", KERNEL_ELEMENTWISE},
    {"normal", KERNEL_ELEMENTWISE}, {"draw", KERNEL_ELEMENTWISE},
    {"patchify", KERNEL_ELEMENTWISE}, {"unpatchify", KERNEL_ELEMENTWISE},
    {"loss", KERNEL_ELEMENTWISE}, {"loss_part", KERNEL_ELEMENTWISE},
    {"loss_add", KERNEL_ELEMENTWISE},
    {"table_fwd", KERNEL_ELEMENTWISE}, {"table_bwd", KERNEL_ELEMENTWISE},
    {"adamw", KERNEL_OPTIMIZER}, {"sumsq", KERNEL_OPTIMIZER}, {"sumsq_add", KERNEL_OPTIMIZER},
    {"change_add", KERNEL_OPTIMIZER}, {"health_share", KERNEL_OPTIMIZER},
    {"finite", KERNEL_OPTIMIZER}, {"finite_add", KERNEL_OPTIMIZER},
    {"copy", KERNEL_COPY}, {"permute", KERNEL_COPY}, {"dev copy", KERNEL_COPY},
    {"sum_parts", KERNEL_COMMUNICATION}, /* it sums what other ranks sent */
};

/* Lists parts of other libraries' names, which are compared without regard to upper or lower case.
 * The first part that a name contains decides its class. So names of fused operations come before
 * the names of what they fuse, and short texts that occur inside longer ones come last. */
static const struct pattern parts[] = {
    /* NCCL's kernels, its symmetric ones and RCCL's; PyTorch's and TensorRT's own all-reduces;
     * NVSHMEM, DeepEP */
    {"nccl", KERNEL_COMMUNICATION}, {"nvshmem", KERNEL_COMMUNICATION},
    {"multimem_", KERNEL_COMMUNICATION}, {"cross_device_reduce", KERNEL_COMMUNICATION},
    {"all_reduce", KERNEL_COMMUNICATION}, {"allreduce", KERNEL_COMMUNICATION},
    {"all_gather", KERNEL_COMMUNICATION}, {"allgather", KERNEL_COMMUNICATION},
    {"reduce_scatter", KERNEL_COMMUNICATION}, {"reducescatter", KERNEL_COMMUNICATION},
    {"all_to_all", KERNEL_COMMUNICATION}, {"alltoall", KERNEL_COMMUNICATION},
    {"deep_ep", KERNEL_COMMUNICATION}, {"sendrecv", KERNEL_COMMUNICATION},
    /* foreach and fused optimizers of PyTorch, and those of Apex and DeepSpeed */
    {"adam", KERNEL_OPTIMIZER}, {"multi_tensor", KERNEL_OPTIMIZER},
    {"lamb_", KERNEL_OPTIMIZER}, {"lionkernel", KERNEL_OPTIMIZER}, {"muon", KERNEL_OPTIMIZER},
    {"lpnorm", KERNEL_OPTIMIZER}, {"l2norm", KERNEL_OPTIMIZER}, {"fusedsgd", KERNEL_OPTIMIZER},
    {"amp_non_finite", KERNEL_OPTIMIZER}, {"amp_update_scale", KERNEL_OPTIMIZER},
    /* FlashAttention 1 to 3 and PyTorch's copy of it, cuDNN, xFormers, FlexAttention, Triton's
     * tutorial, SageAttention, Megatron's softmax */
    {"flash_fwd", KERNEL_ATTENTION}, {"flash_bwd", KERNEL_ATTENTION},
    {"flashattn", KERNEL_ATTENTION}, {"flash_attn", KERNEL_ATTENTION},
    {"flash_fprop", KERNEL_ATTENTION}, {"flash_bprop", KERNEL_ATTENTION},
    {"5flash", KERNEL_ATTENTION}, {"flash::", KERNEL_ATTENTION},
    {"sdpa", KERNEL_ATTENTION}, {"fmha", KERNEL_ATTENTION}, {"attention", KERNEL_ATTENTION},
    {"attn", KERNEL_ATTENTION}, {"masked_softmax", KERNEL_ATTENTION},
    {"scaled_softmax", KERNEL_ATTENTION},
    /* norms of PyTorch, Apex, Transformer Engine, Liger, and Triton's fused ones */
    {"layer_norm", KERNEL_NORM}, {"layernorm", KERNEL_NORM}, {"rms_norm", KERNEL_NORM},
    {"rmsnorm", KERNEL_NORM}, {"group_norm", KERNEL_NORM}, {"groupnorm", KERNEL_NORM},
    {"batch_norm", KERNEL_NORM}, {"gammabeta", KERNEL_NORM}, {"rowwisemoments", KERNEL_NORM},
    {"ln_fwd", KERNEL_NORM}, {"ln_bwd", KERNEL_NORM}, {"normalization", KERNEL_NORM},
    {"computepartgradgamma", KERNEL_NORM}, {"computegradinput", KERNEL_NORM},
    {"adaln", KERNEL_NORM}, {"headnorm", KERNEL_NORM},
    /* products of cuBLASLt since 12.4 and before, CUTLASS 2 and 3, cuDNN's convolutions, Triton's
     * templates, DeepGEMM */
    {"nvjet", KERNEL_GEMM}, {"gemm", KERNEL_GEMM}, {"gemv", KERNEL_GEMM}, {"xmma", KERNEL_GEMM},
    {"cutlass", KERNEL_GEMM}, {"splitkreduce", KERNEL_GEMM}, {"matmul", KERNEL_GEMM},
    {"wgmma", KERNEL_GEMM}, {"triton_tem_fused_mm", KERNEL_GEMM},
    {"triton_tem_fused_addmm", KERNEL_GEMM}, {"triton_tem_fused_bmm", KERNEL_GEMM},
    {"triton_mm", KERNEL_GEMM}, {"convolve", KERNEL_GEMM}, {"conv2d", KERNEL_GEMM},
    {"conv3d", KERNEL_GEMM}, {"dgrad", KERNEL_GEMM}, {"wgrad", KERNEL_GEMM},
    {"cublas", KERNEL_GEMM},
    /* PyTorch's copies, and kernels that only move numbers */
    {"memcpy", KERNEL_COPY}, {"memset", KERNEL_COPY}, {"direct_copy", KERNEL_COPY},
    {"catarraybatchedcopy", KERNEL_COPY}, {"copy_kernel", KERNEL_COPY},
    {"transpose", KERNEL_COPY}, {"permute", KERNEL_COPY}, {"nchwtonhwc", KERNEL_COPY},
    {"nhwctonchw", KERNEL_COPY}, {"chunk_cat", KERNEL_COPY}, {"split_with_sizes", KERNEL_COPY},
    /* elementwise kernels of PyTorch, Triton (by torch.compile) and Transformer Engine */
    {"elementwise", KERNEL_ELEMENTWISE}, {"reduce_kernel", KERNEL_ELEMENTWISE},
    {"triton_poi", KERNEL_ELEMENTWISE}, {"triton_red", KERNEL_ELEMENTWISE},
    {"triton_per", KERNEL_ELEMENTWISE}, {"triton_for", KERNEL_ELEMENTWISE},
    {"softmax", KERNEL_ELEMENTWISE}, {"gelu", KERNEL_ELEMENTWISE}, {"silu", KERNEL_ELEMENTWISE},
    {"glu", KERNEL_ELEMENTWISE}, {"relu", KERNEL_ELEMENTWISE}, {"rotary", KERNEL_ELEMENTWISE},
    {"rope", KERNEL_ELEMENTWISE}, {"dropout", KERNEL_ELEMENTWISE},
    {"distribution", KERNEL_ELEMENTWISE}, {"embedding", KERNEL_ELEMENTWISE},
    {"index", KERNEL_ELEMENTWISE}, {"gather", KERNEL_ELEMENTWISE},
    {"scatter", KERNEL_ELEMENTWISE}, {"cross_entropy", KERNEL_ELEMENTWISE},
    {"nll_loss", KERNEL_ELEMENTWISE}, {"mse_loss", KERNEL_ELEMENTWISE},
    {"cast", KERNEL_ELEMENTWISE}, {"quantize", KERNEL_ELEMENTWISE}, {"amax", KERNEL_ELEMENTWISE},
    {"cumsum", KERNEL_ELEMENTWISE}, {"devicescan", KERNEL_ELEMENTWISE},
    {"devicereduce", KERNEL_ELEMENTWISE}, {"fillfunctor", KERNEL_ELEMENTWISE},
    {"bias", KERNEL_ELEMENTWISE}, {"upsample", KERNEL_ELEMENTWISE},
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static enum kernel_class own_class(const char *identifier)
{
    for (size_t i = 0; i < COUNT(own); i++)
        if (strcmp(identifier, own[i].text) == 0)
            return own[i].class;
    return KERNEL_OTHER;
}

enum kernel_class kernel_class_of(const char *name)
{
    char identifier[KERNEL_NAME_BYTES];
    enum kernel_class c = own_class(kernel_identifier(name, identifier));
    for (size_t i = 0; i < COUNT(parts) && c == KERNEL_OTHER; i++)
        if (strcasestr(name, parts[i].text))
            c = parts[i].class;
    return c;
}

enum kernel_class kernel_class_in_range(enum kernel_class by_name, enum kernel_class by_range)
{
    if (by_range == KERNEL_OPTIMIZER && by_name < KERNEL_COMPUTES)
        return KERNEL_OPTIMIZER;
    return by_name == KERNEL_OTHER && by_range < KERNEL_COMPUTES ? by_range : by_name;
}
