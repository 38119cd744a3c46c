#include "trainer/cuda/ranges.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_heard(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    return path && *path;
}

static void layer_end(struct ranges *r)
{
    if (r->in_layer)
        nvtxRangePop();
    r->in_layer = false;
}

static void layer_begin(struct ranges *r, int64_t layer, bool backward)
{
    char text[48];
    snprintf(text, sizeof text, "layer %lld%s", (long long)layer, backward ? " backward" : "");
    nvtxRangePushA(text);
    r->in_layer = true;
    r->layer = layer;
    r->backward = backward;
}

void ranges_step(struct ranges *r, int64_t step)
{
    char text[32];
    layer_end(r);
    if (r->step)
        nvtxRangePop();
    r->step = step >= 0 && is_heard();
    if (!r->step)
        return;
    snprintf(text, sizeof text, "step %lld", (long long)step);
    nvtxRangePushA(text);
}

void ranges_op_begin(struct ranges *r, int64_t layer, bool backward, const char *name)
{
    if (!r->step)
        return;
    if (r->in_layer && (layer != r->layer || backward != r->backward))
        layer_end(r);
    if (!r->in_layer && layer >= 0)
        layer_begin(r, layer, backward);
    nvtxRangePushA(name);
}

void ranges_op_end(const struct ranges *r)
{
    if (r->step)
        nvtxRangePop();
}
