/* Timelines of activities: hand-made ones with known sums, drawn ones against a raster of
 * microseconds; and classes of kernels by names as profilers have shown them. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "base/philox.h"
#include "profiles/timeline.h"

static struct timeline_item item(int64_t from_us, int64_t to_us, enum kernel_class class)
{
    return (struct timeline_item){from_us * 1000, to_us * 1000, class};
}

static struct timeline_sum sums(const struct timeline *t)
{
    struct timeline_sum s;
    struct err err;
    assert_ok(timeline_sums(t, &s, &err), &err);
    return s;
}

static void assert_us(double got_s, double us, const char *what)
{
    if (!(fabs(got_s * 1e6 - us) < 1e-6))
        fail_msg("%s: %.9g us instead of %.9g", what, got_s * 1e6, us);
}

/* ---- hand-made timelines ---- */

/* Two steps of 100 us: products from 10 to 60 and, on another stream, a message from 40 to 90; then
 * a copy from 80 to 100 in each. */
static void overlap(void **state)
{
    const struct timeline_item items[] = {
        item(10, 60, KERNEL_GEMM), item(40, 90, KERNEL_COMMUNICATION), item(80, 100, KERNEL_COPY),
        item(110, 160, KERNEL_GEMM), item(140, 190, KERNEL_COMMUNICATION),
        item(180, 200, KERNEL_COPY)};
    const struct timeline t = {
        .items = items, .n = ARRAY_LEN(items), .to_ns = 200000, .steps = 2,
        .model_flops = 3e6, .hardware_flops = 4e6, .peak_flops = 1e11};
    (void)state;
    struct timeline_sum s = sums(&t);
    assert_us(s.step_s, 100, "step");
    assert_us(s.class_s[KERNEL_GEMM], 50, "products");
    assert_us(s.hidden_s, 20, "hidden");
    assert_us(s.exposed_s, 30, "exposed");
    assert_us(s.class_s[KERNEL_COMMUNICATION], 30, "communication");
    assert_us(s.comm_s, 50, "all communication");
    assert_us(s.class_s[KERNEL_COPY], 10, "copies beside nothing");
    assert_us(s.idle_s, 10, "idle");
    assert_us(s.compute_s, 50, "computing");
    assert_close(s.mfu, 0.3, 1e-12, "MFU");
    assert_close(s.hfu, 0.4, 1e-12, "HFU");
    assert_close(s.busy_hfu, 0.8, 1e-12, "HFU while computing");
}

/* Two classes at once share the time; two messages at once are one length of time. */
static void together(void **state)
{
    const struct timeline_item items[] = {
        item(0, 30, KERNEL_GEMM), item(10, 40, KERNEL_NORM), item(10, 20, KERNEL_NORM),
        item(50, 70, KERNEL_COMMUNICATION), item(60, 80, KERNEL_COMMUNICATION)};
    const struct timeline t = {
        .items = items, .n = ARRAY_LEN(items), .to_ns = 80000, .steps = 1};
    (void)state;
    struct timeline_sum s = sums(&t);
    assert_us(s.class_s[KERNEL_GEMM], 20, "products");
    assert_us(s.class_s[KERNEL_NORM], 20, "norms");
    assert_us(s.comm_s, 30, "messages");
    assert_us(s.hidden_s, 0, "hidden");
    assert_us(s.idle_s, 10, "idle");
    assert_true(isnan(s.mfu) && isnan(s.hfu) && isnan(s.busy_hfu));
}

/* What lies outside of the steps does not count, and what crosses their ends is cut. */
static void ends(void **state)
{
    const struct timeline_item items[] = {
        item(0, 99, KERNEL_GEMM), item(90, 110, KERNEL_GEMM), item(195, 250, KERNEL_OPTIMIZER),
        item(300, 400, KERNEL_GEMM), item(150, 150, KERNEL_NORM)};
    const struct timeline t = {
        .items = items, .n = ARRAY_LEN(items), .from_ns = 100000, .to_ns = 200000, .steps = 1};
    (void)state;
    struct timeline_sum s = sums(&t);
    assert_us(s.class_s[KERNEL_GEMM], 10, "products");
    assert_us(s.class_s[KERNEL_OPTIMIZER], 5, "update");
    assert_us(s.idle_s, 85, "idle");
}

static void empty(void **state)
{
    const struct timeline t = {.to_ns = 1000, .steps = 1};
    (void)state;
    assert_us(sums(&t).idle_s, 1, "idle");
}

static void wrong(void **state)
{
    const struct timeline_item back = item(5, 4, KERNEL_GEMM);
    const struct timeline none = {.from_ns = 7, .to_ns = 7, .steps = 1},
                          turned = {.items = &back, .n = 1, .to_ns = 9000, .steps = 1},
                          steps = {.to_ns = 7};
    struct timeline_sum s = {.step_s = -1};
    struct err err;
    (void)state;
    assert_fails(timeline_sums(&none, &s, &err), ERR_INPUT, &err, "from 7 to 7 ns has no time");
    assert_fails(timeline_sums(&steps, &s, &err), ERR_INPUT, &err, "0 steps");
    assert_fails(timeline_sums(&turned, &s, &err), ERR_INPUT, &err,
                 "activity 0 ends at 4000 ns, before its start at 5000 ns");
    assert_true(s.step_s == -1);
}

/* ---- drawn timelines against a raster ---- */

enum { DRAWN = 3000, ITEMS = 24, LENGTH_US = 60, AROUND_US = 20 };

/* Adds one microsecond of the raster to the sums, by what runs in it. */
static void cell_add(const struct timeline *t, int64_t us, struct timeline_sum *s)
{
    bool runs[KERNEL_CLASSES] = {false}, computes = false;
    int classes = 0;
    for (int64_t i = 0; i < t->n; i++)
        if (t->items[i].start_ns <= us * 1000 && t->items[i].end_ns >= (us + 1) * 1000)
            runs[t->items[i].class] = true;
    for (int c = 0; c < KERNEL_COMPUTES; c++)
        classes += runs[c];
    computes = classes > 0;
    for (int c = 0; c < KERNEL_COMPUTES; c++)
        s->class_s[c] += runs[c] ? 1.0 / classes : 0;
    s->compute_s += computes;
    s->hidden_s += computes && runs[KERNEL_COMMUNICATION];
    s->exposed_s += !computes && runs[KERNEL_COMMUNICATION];
    s->class_s[KERNEL_COPY] +=
        !computes && !runs[KERNEL_COMMUNICATION] && runs[KERNEL_COPY];
    s->idle_s += !computes && !runs[KERNEL_COMMUNICATION] && !runs[KERNEL_COPY];
}

static void raster_check(const struct timeline *t, int64_t from_us, int64_t to_us)
{
    struct timeline_sum want = {0}, got = sums(t);
    double steps = (double)t->steps, whole = got.idle_s;
    for (int64_t us = from_us; us < to_us; us++)
        cell_add(t, us, &want);
    want.class_s[KERNEL_COMMUNICATION] = want.exposed_s;
    for (int c = 0; c < KERNEL_CLASSES; c++) {
        assert_us(got.class_s[c], want.class_s[c] / steps, kernel_class_names[c]);
        whole += got.class_s[c];
    }
    assert_us(got.hidden_s, want.hidden_s / steps, "hidden");
    assert_us(got.exposed_s, want.exposed_s / steps, "exposed");
    assert_us(got.comm_s, (want.hidden_s + want.exposed_s) / steps, "communication");
    assert_us(got.compute_s, want.compute_s / steps, "computing");
    assert_us(got.idle_s, want.idle_s / steps, "idle");
    assert_us(whole, got.step_s * 1e6, "the sum of all");
}

static void drawn(void **state)
{
    struct timeline_item items[ITEMS];
    (void)state;
    for (uint64_t k = 0; k < DRAWN; k++) {
        struct philox_block head = philox_at(7, PHILOX_TEST, k, 0);
        int64_t from = head.w[0] % AROUND_US, to = from + 1 + head.w[1] % LENGTH_US;
        struct timeline t = {
            .items = items, .n = head.w[2] % (ITEMS + 1), .from_ns = from * 1000,
            .to_ns = to * 1000, .steps = 1 + head.w[3] % 3};
        for (int64_t i = 0; i < t.n; i++) {
            struct philox_block w = philox_at(7, PHILOX_TEST, k, (uint64_t)i + 1);
            int64_t start = w.w[0] % (LENGTH_US + 2 * AROUND_US);
            items[i] = item(start, start + w.w[1] % 20, (enum kernel_class)(w.w[2] % KERNEL_CLASSES));
        }
        raster_check(&t, from, to);
    }
}

/* ---- names ---- */

static void identifiers(void **state)
{
    static const struct { const char *name, *want; } rows[] = {
        {"_ZL4gemmIfEv6tensor", "gemm"},
        {"_ZL8loss_add11ops_latentsPKd", "loss_add"},
        {"_Z10attn_bwd_qIfEv8ops_attn", "attn_bwd_q"},
        {"_ZN38_INTERNAL_1f0a7c2e_8_adaln_cu_2b4c4a5e9adaln_fwdIfLb1EEEvT_", "adaln_fwd"},
        {"void gemm<float>(tensor, tensor)", "gemm"},
        {"at::native::vectorized_elementwise_kernel<4, f>(int)", "vectorized_elementwise_kernel"},
        {"nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NTN", "nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NTN"},
        {"_Z", "_Z"}, {"_Z99x", "_Z99x"}, {"", ""},
        {"_Z99999999999999999999999x", "_Z99999999999999999999999x"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char got[KERNEL_NAME_BYTES];
        assert_string_equal(kernel_identifier(rows[i].name, got), rows[i].want);
    }
}

static void names(void **state)
{
    static const struct { const char *name, *range; enum kernel_class want; } rows[] = {
        {"_ZL4copyIfEv6tensorS0_", "", KERNEL_COPY},
        {"_ZL6normalIfEv10ops_normal", "", KERNEL_ELEMENTWISE},
        {"_ZL9adaln_fwdIfEv9ops_adaln", "", KERNEL_NORM},
        {"nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NTN", "", KERNEL_GEMM},
        {"nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_TNN", "", KERNEL_GEMM},
        {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_"
         "segment_k_off_kernel__5x_cublas", "", KERNEL_GEMM},
        {"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", "", KERNEL_GEMM},
        {"void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::x)", "", KERNEL_GEMM},
        {"_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleI", "",
         KERNEL_GEMM},
        {"_ZN7cutlass13device_kernelIN5flash11enable_sm90INS1_16FlashAttnFwdSm90I", "",
         KERNEL_ATTENTION},
        {"void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<x>(y)", "",
         KERNEL_ATTENTION},
        {"cudnn_generated_fort_native_sdpa_sm90_knob_7_64x128x128_4x1x1_kernel0_0", "",
         KERNEL_ATTENTION},
        {"cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x128x128", "",
         KERNEL_ATTENTION},
        {"fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::x)", "",
         KERNEL_ATTENTION},
        {"triton_tem_fused_flex_attention_0", "", KERNEL_ATTENTION},
        {"triton_tem_fused_addmm_1", "", KERNEL_GEMM},
        {"triton_poi_fused_add_mul_3", "", KERNEL_ELEMENTWISE},
        {"triton_red_fused_native_layer_norm_2", "", KERNEL_NORM},
        {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<x>(int)", "",
         KERNEL_NORM},
        {"void transformer_engine::normalization::rmsnorm_bwd_tuned_kernel<x>(y)", "",
         KERNEL_NORM},
        {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<x> >", "",
         KERNEL_ELEMENTWISE},
        {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
         "namespace)::FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor>", "",
         KERNEL_OPTIMIZER},
        {"void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda(x)>", "",
         KERNEL_COPY},
        {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "",
         KERNEL_COMMUNICATION},
        {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "", KERNEL_COMMUNICATION},
        {"ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_f32", "", KERNEL_COMMUNICATION},
        {"void my_kernel<float>(int)", "", KERNEL_OTHER},
        {"", "", KERNEL_OTHER},
        /* what a range adds */
        {"void my_kernel<float>(int)", "adamw", KERNEL_OPTIMIZER},
        {"void my_kernel<float>(int)", "gemm", KERNEL_GEMM},
        {"void my_kernel<float>(int)", "forward", KERNEL_OTHER},
        {"void at::native::vectorized_elementwise_kernel<4, x>(int)",
         "Optimizer.step#AdamW.step", KERNEL_OPTIMIZER},
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", "adamw", KERNEL_COMMUNICATION},
        {"_ZL4copyIfEv6tensorS0_", "gemm", KERNEL_COPY},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        enum kernel_class got = kernel_class_in_range(kernel_class_of(rows[i].name),
                                                    kernel_class_of(rows[i].range));
        if (got != rows[i].want)
            fail_msg("'%s', range '%s': %s instead of %s", rows[i].name, rows[i].range,
                     kernel_class_names[got], kernel_class_names[rows[i].want]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap), cmocka_unit_test(together), cmocka_unit_test(ends),
        cmocka_unit_test(empty), cmocka_unit_test(wrong), cmocka_unit_test(drawn),
        cmocka_unit_test(identifiers), cmocka_unit_test(names),
    };
    return cmocka_run_group_tests_name("profiles_timeline", tests, NULL, NULL);
}
