#include "tests/lib/test_host.h"

#include "tests/lib/test_profiles.h"

const struct speed host_rates = {
    .gemm = {5e10, 1e11}, .attention = {3e10, 1e11}, .attention_backward = 2, .copy_bytes = 1e10,
    .input_s = {1e-9, 2e-9, 3e-9, 4e-9}, .update_bytes = 1e10, .norm_bytes = 1e10,
    .clear_bytes = 1e10, .move_bytes = 1e10, .rank_loss = 0.05,
    .link = {1e-6, 1e9}, .link_shared = {1e-6, 1e9}, .step_s = 1e-3};

struct model host_model(void)
{
    struct model m;
    struct err err;
    assert_ok(model_load("dit-tiny", &m, &err), &err);
    return m;
}

struct layout host_layout(const char *text)
{
    struct layout l;
    struct err err;
    assert_ok(layout_parse(text, &l, &err), &err);
    return l;
}

struct host *host_of(const struct model *m)
{
    static struct host h;
    const struct work_spec spec = {.model = m, .seq = {1, 8, 8}, .gbs = 8, .act = DTYPE_F32};
    struct err err;
    assert_ok(host_open(&h, &spec, &err), &err);
    return &h;
}

struct price_step host_step(struct host *h, const struct speed *r, int64_t cores,
                            const struct layout *l)
{
    struct price_step step;
    struct err err;
    assert_ok(host_set(h, r, cores, &err), &err);
    assert_ok(host_price(h, l, &step, &err), &err);
    return step;
}

void host_terms(struct host *h, const struct speed *r, int64_t cores, const char *layout,
                double terms[PRICE_TERMS])
{
    struct layout l = host_layout(layout);
    struct price_step step = host_step(h, r, cores, &l);
    memcpy(terms, step.term, sizeof step.term);
}
