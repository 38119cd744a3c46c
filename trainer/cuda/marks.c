#include "trainer/cuda/marks.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_heard(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    return path && *path;
}

static void layer_end(struct marks *m)
{
    if (m->in_layer)
        nvtxRangePop();
    m->in_layer = false;
}

static void layer_begin(struct marks *m, int64_t layer, bool backward)
{
    char text[48];
    snprintf(text, sizeof text, "layer %lld%s", (long long)layer, backward ? " backward" : "");
    nvtxRangePushA(text);
    m->in_layer = true;
    m->layer = layer;
    m->backward = backward;
}

void marks_step(struct marks *m, int64_t step)
{
    char text[32];
    layer_end(m);
    if (m->step)
        nvtxRangePop();
    m->step = step >= 0 && is_heard();
    if (!m->step)
        return;
    snprintf(text, sizeof text, "step %lld", (long long)step);
    nvtxRangePushA(text);
}

void marks_op_begin(struct marks *m, int64_t layer, bool backward, const char *name)
{
    if (!m->step)
        return;
    if (m->in_layer && (layer != m->layer || backward != m->backward))
        layer_end(m);
    if (!m->in_layer && layer >= 0)
        layer_begin(m, layer, backward);
    nvtxRangePushA(name);
}

void marks_op_end(const struct marks *m)
{
    if (m->step)
        nvtxRangePop();
}
