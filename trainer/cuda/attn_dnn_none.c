/* Replaces attn_dnn_run.c in a build without cuDNN: our own kernels compute all attention. */
#include "trainer/cuda/attn_dnn_run.h"

#include <string.h>

#include "base/log.h"

int attn_dnn_open(struct ops *ops, const char *wish, struct attn_dnn **out, struct err *err)
{
    (void)err;
    if (ops->act == DTYPE_BF16 && strcmp(wish, "plain") != 0)
        log_msg(LOG_WARN, "the CUDA backend was built without cuDNN: attention is computed by slow "
                "kernels of our own (REEL_ATTN=plain asks for them without a word)");
    *out = NULL;
    return 0;
}

void attn_dnn_close(struct attn_dnn *d) { BUG_ON(d); }

int attn_dnn_plan(struct attn_dnn *d, const struct ops_attn *a, bool backward, struct err *err)
{
    (void)a, (void)backward, (void)err;
    BUG_ON(d);
    return 0;
}

int attn_dnn_reserve(struct attn_dnn *d, cudaStream_t s, struct err *err)
{
    (void)s, (void)err;
    BUG_ON(d);
    return 0;
}

bool attn_dnn_queue(struct attn_dnn *d, cudaStream_t s, const struct ops_attn *a, bool backward,
                    const int32_t **left)
{
    (void)s, (void)a, (void)backward;
    BUG_ON(d);
    *left = NULL;
    return false;
}
