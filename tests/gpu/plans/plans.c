/* Makes plans of attention for a GPU that this machine does not have. cuDNN compiles for a device
 * that a JSON text describes (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), and then asks the driver
 * to load the result. The toolkit's stub stands in for the driver and fails that call with error
 * 34. A plan that fails there, and only there, is good.
 *
 *     plans DEVICE.json CLASS...    LD_LIBRARY_PATH has the stub as libcuda.so.1
 *
 * A class is a string of the letters in LETTERS. Prints one line for each class: "CLASS: engine N,
 * workspace B", or why it was refused. Exit status: 0, 1 when a plan is not good, 2 for usage, 4
 * when there is no such device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/attn_dnn_graph.h"

enum { TEXT_BYTES = 8192 };
static const char LETTERS[] =
    "b backward, p packed, x deterministic, c fewer keys than queries, g grouped queries,\n"
    "v q, k, v and their gradients are columns of one matrix, o wide o, q wide dq, k wide dk and dv,\n"
    "h 192 tokens, l 8192 tokens, n 512 segments, 6 7 2 head dim 64, 72, 256 (else 128),\n"
    "e the second proposal\n";

static bool device_read(const char *path, char text[TEXT_BYTES])
{
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    size_t n = fread(text, 1, TEXT_BYTES - 1, f);
    text[n] = '\0';
    fclose(f);
    return n > 0;
}

static cudnnStatus_t device_make(const char *text, cudnnBackendDescriptor_t *out)
{
    cudnnStatus_t st = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, out);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendSetAttribute(*out, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                      CUDNN_TYPE_CHAR, (int64_t)strlen(text) + 1, text);
    return st == CUDNN_STATUS_SUCCESS ? cudnnBackendFinalize(*out) : st;
}

static bool has(const char *letters, char c) { return strchr(letters, c) != NULL; }

/* Returns the elements from one row of a tensor to the next. */
static int64_t ld_of(const struct attn_class *c, const char *letters, enum attn_tensor t)
{
    bool keys = t == ATTN_K || t == ATTN_V, of_one = keys || t == ATTN_Q || t == ATTN_DQ ||
                (c->heads == c->kv_heads && (t == ATTN_DK || t == ATTN_DV));
    if (t == ATTN_LSE || t == ATTN_DELTA)
        return c->heads;
    if (of_one && has(letters, 'v'))
        return (c->heads + 2 * c->kv_heads) * c->d;
    return (keys ? c->kv_heads : c->heads) * c->d;
}

static struct attn_class class_of(const char *s)
{
    int64_t tokens = has(s, 'h') ? 192 : has(s, 'l') ? 8192 : 1024;
    struct attn_class c = {
        .n = has(s, 'n') ? 512 : 2, .q = tokens, .k = has(s, 'c') ? tokens / 4 : tokens,
        .heads = 8, .kv_heads = has(s, 'g') ? 2 : 8,
        .d = has(s, '6') ? 64 : has(s, '7') ? 72 : has(s, '2') ? 256 : 128,
        .o = has(s, 'o') ? DTYPE_F32 : DTYPE_BF16, .dq = has(s, 'q') ? DTYPE_F32 : DTYPE_BF16,
        .dkv = has(s, 'k') ? DTYPE_F32 : DTYPE_BF16,
        .packed = has(s, 'p'), .backward = has(s, 'b'), .deterministic = has(s, 'x'),
    };
    c.q_step = c.q, c.k_step = c.k;
    for (int t = 0; t < ATTN_TENSORS; t++)
        c.ld[t] = attn_class_has(&c, (enum attn_tensor)t) ? ld_of(&c, s, (enum attn_tensor)t) : 0;
    return c;
}

/* Makes a plan and prints the result. Tells whether every step but the loading succeeded. */
static bool plan_told(const char *letters, cudnnBackendDescriptor_t device)
{
    const struct attn_class c = class_of(letters);
    struct attn_plan plan = {0};
    char why[ATTN_WHY] = "";
    cudnnStatus_t st = attn_plan_make(&c, device, has(letters, 'e'), &plan, why);
    bool is_good = st == CUDNN_STATUS_SUCCESS ||
                   (st == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER &&
                    strstr(why, "cuLibraryLoadData") && strstr(why, "(34)"));
    if (is_good)
        printf("%s: engine %lld, workspace %lld\n", letters, (long long)plan.engine,
               (long long)plan.workspace_bytes);
    else
        printf("%s: refused: %s\n", letters, why);
    fflush(stdout);
    attn_plan_free(&plan);
    return is_good;
}

int main(int argc, char **argv)
{
    char text[TEXT_BYTES];
    cudnnBackendDescriptor_t device = NULL;
    int wrong = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: plans DEVICE.json CLASS...\n%s", LETTERS);
        return 2;
    }
    if (!device_read(argv[1], text) || device_make(text, &device) != CUDNN_STATUS_SUCCESS) {
        fprintf(stderr, "plans: %s: cuDNN %zu does not take this device\n", argv[1],
                cudnnGetVersion());
        return 4;
    }
    for (int i = 2; i < argc; i++)
        wrong += !plan_told(argv[i], device);
    cudnnBackendDestroyDescriptor(device);
    return wrong > 0;
}
