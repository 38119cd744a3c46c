/* Devices and clusters: the compiled-in ones, sizes given at use, the switch tree, strict reading,
 * round trips. */
#include "tests/lib/test_profiles.h"

#include "profiles/hw.h"
#include "tests/lib/scratch.h"

static void devices(void **state)
{
    static const struct { const char *name; double bf16, fp8, gib, memory, link; } rows[] = {
        {"a100-sxm", 312e12, 0, 80, 2.039e12, 300e9},
        {"a100-sxm-40", 312e12, 0, 40, 1.555e12, 300e9},
        {"a100-pcie", 312e12, 0, 80, 1.935e12, 31.5e9},
        {"a100-pcie-40", 312e12, 0, 40, 1.555e12, 31.5e9},
        {"a800-sxm", 312e12, 0, 80, 2.039e12, 200e9},
        {"h100-sxm", 989.4e12, 1978.9e12, 80, 3.35e12, 450e9},
        {"h100-pcie", 756e12, 1513e12, 80, 2.0e12, 63e9},
        {"h800-sxm", 989.4e12, 1978.9e12, 80, 3.35e12, 200e9},
        {"h200-sxm", 989.4e12, 1978.9e12, 141, 4.8e12, 450e9},
        {"b200", 2250e12, 4500e12, 180, 7.7e12, 900e9},
        {"gb200", 2500e12, 5000e12, 186, 8.0e12, 900e9},
        {"b300", 2250e12, 4500e12, 270, 8.0e12, 900e9},
        {"gb300", 2500e12, 5000e12, 279, 8.0e12, 900e9},
    };
    const char *const *names;
    (void)state;
    assert_int_equal(device_names(&names), ARRAY_LEN(rows));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct device d;
        struct err err;
        assert_ok(device_load(rows[i].name, &d, &err), &err);
        assert_string_equal(d.name, rows[i].name);
        assert_true(d.peak_flops[DTYPE_BF16] == rows[i].bf16);
        assert_true(d.peak_flops[DTYPE_FP8] == rows[i].fp8);
        assert_close((double)d.memory_bytes / 0x1p30, rows[i].gib, 1e-2, rows[i].name);
        assert_true(d.memory_bytes_per_s == rows[i].memory && d.link_bytes_per_s == rows[i].link);
        /* every driver keeps something, none of them 2 % */
        assert_in_range(device_usable_bytes(&d), d.memory_bytes / 100 * 98, d.memory_bytes - 1);
        assert_non_null(strstr(d.peak_source, "dense"));
        assert_false(d.cpu);
    }
}

static void clusters(void **state)
{
    static const struct { const char *spec; int64_t nodes, devices; const char *device; } good[] = {
        {"dgx-h100:8", 8, 64, "h100-sxm"}, {"dgx-a100:1", 1, 8, "a100-sxm"},
        {"dgx-h200:512", 512, 4096, "h200-sxm"}, {"dgx-b200:32", 32, 256, "b200"},
        {"dgx-a100-40:2", 2, 16, "a100-sxm-40"}, {"dgx-a800:2", 2, 16, "a800-sxm"},
        {"dgx-h800:256", 256, 2048, "h800-sxm"}, {"dgx-b300:4", 4, 32, "b300"},
        {"gb200-nvl72:18", 18, 72, "gb200"}, {"gb300-nvl72:36", 36, 144, "gb300"},
        {"jean-zay-a100:48", 48, 384, "a100-sxm"},
    };
    static const struct { const char *spec, *says; } bad[] = {
        {"dgx-h100", "no number of nodes: give it as dgx-h100:N"},
        {"dgx-h100:0", "0 nodes: give 1 to"},
        {"dgx-h100:-3", "-3 nodes"},
        {"dgx-h100:", "the number of nodes is ''"},
        {"dgx-h100:8x", "the number of nodes is '8x'"},
        {"dgx-h100:513", "has 513 nodes, its description holds for 1 to 512"},
        {"dgx-h10:8", "did you mean 'dgx-h100'?"},
        {"no/such.json:4", "no/such.json"},
    };
    const char *const *names;
    struct cluster c;
    struct err err;
    (void)state;
    assert_int_equal(cluster_names(&names), ARRAY_LEN(good));
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_ok(cluster_load(good[i].spec, &c, &err), &err);
        assert_int_equal(c.nodes, good[i].nodes);
        assert_int_equal(cluster_devices(&c), good[i].devices);
        assert_string_equal(c.device.name, good[i].device);
        assert_true((c.leaf_nodes > 0 || *c.sources) && c.spine_oversubscription == 1);
        assert_true(c.node.link_bytes_per_s == c.device.link_bytes_per_s);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct cluster before = c;
        int rc = cluster_load(bad[i].spec, &c, &err);
        assert_true(rc < 0 && (err_exit_code(rc) == 3 || rc == ERR_IO));
        assert_says(&err, bad[i].says);
        assert_memory_equal(&before, &c, sizeof c);
    }
}

static void switch_tree(void **state)
{
    static const struct {
        int64_t a, b;
        int hops;
    } rows[] = {
        {0, 0, 0},   {0, 1, 1},     {0, 31, 1},    {0, 32, 3}, {31, 32, 3},
        {32, 63, 1}, {511, 480, 1}, {511, 479, 3}, {63, 0, 3},
    };
    struct cluster c;
    struct err err;
    (void)state;
    assert_ok(cluster_load("dgx-h100:512", &c, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(cluster_hops(&c, rows[i].a, rows[i].b), rows[i].hops);
    c.leaf_nodes = 0;
    assert_int_equal(cluster_hops(&c, 0, 511), 1);
}

/* In a rack of 18 nodes no message meets a switch of the network; racks are nodes' neighbours. */
static void domains(void **state)
{
    static const struct {
        int64_t a, b;
        int hops;
    } rows[] = {
        {0, 17, 0}, {3, 3, 0}, {17, 18, 1}, {18, 35, 0}, {0, 143, 1}, {143, 144, 3}, {144, 160, 0},
    };
    struct cluster c;
    struct err err;
    (void)state;
    assert_ok(cluster_load("gb200-nvl72:288", &c, &err), &err);
    assert_int_equal(cluster_domain_devices(&c), 72);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(cluster_hops(&c, rows[i].a, rows[i].b), rows[i].hops);
    assert_ok(cluster_load("dgx-h100:2", &c, &err), &err);
    assert_int_equal(cluster_domain_devices(&c), 8);
}

/* Counts by looking at every member. */
static struct cluster_span span_counted(const struct cluster *c, int64_t first, int64_t stride,
                                        int64_t n)
{
    struct cluster_span s = {0};
    int64_t node = -1, domain = -1, in_node = 0, in_domain = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (first + i * stride) / c->node.devices, d = at / c->domain_nodes;
        s.nodes += at != node, in_node = at != node ? 1 : in_node + 1;
        s.domains += d != domain, in_domain = d != domain ? 1 : in_domain + 1;
        s.in_node = in_node > s.in_node ? in_node : s.in_node;
        s.in_domain = in_domain > s.in_domain ? in_domain : s.in_domain;
        for (int64_t k = 0; k < i; k++) {
            int hops = cluster_hops(c, at, (first + k * stride) / c->node.devices);
            s.hops = hops > s.hops ? hops : s.hops;
        }
        node = at, domain = d;
    }
    return s;
}

static void spans(void **state)
{
    struct cluster c;
    struct err err;
    (void)state;
    assert_ok(cluster_load("gb200-nvl72:288", &c, &err), &err);
    for (c.domain_nodes = 1; c.domain_nodes <= 18; c.domain_nodes += 17)
        for (int64_t stride = 1; stride <= 150; stride += stride < 10 ? 1 : 7)
            for (int64_t n = 1; n <= 40; n += n < 9 ? 1 : 13)
                for (int64_t first = 0; first < 80; first += 3) {
                    struct cluster_span want = span_counted(&c, first, stride, n),
                                        got = cluster_span(&c, first, stride, n);
                    assert_int_equal(got.nodes, want.nodes);
                    assert_int_equal(got.domains, want.domains);
                    assert_int_equal(got.in_node, want.in_node);
                    assert_int_equal(got.in_domain, want.in_domain);
                    assert_int_equal(got.hops, want.hops);
                }
    c.domain_nodes = 18;
    /* a group of 32 in one rack uses no NIC, one of 32 over two racks does */
    assert_int_equal(cluster_span(&c, 0, 1, 32).hops, 0);
    assert_int_equal(cluster_span(&c, 64, 1, 32).hops, 1);
}

static void round_trip(void **state)
{
    struct cluster c, back;
    struct err err;
    struct str s = STR_INIT;
    struct json_out o;
    char spec[600];
    const char *path = in_scratch("site.json");
    (void)state;
    assert_ok(cluster_load("dgx-h100:7", &c, &err), &err);
    c.node.link_latency_s = 1.25e-7;
    c.domain_nodes = 4;
    c.device.curves.items[1].of.causal = true;
    c.device.curves.items[2].value[0] = 0.12345;
    c.device.cpu = true;
    json_out_init(&o, &s, 2);
    cluster_write(&c, &o, NULL);
    assert_ok(file_publish(path, s.p, s.len, &err), &err);
    assert_ok(cluster_load(path, &back, &err), &err);
    assert_memory_equal(&c, &back, sizeof c);
    snprintf(spec, sizeof spec, "%s:3", path); /* the count at use wins over the file's */
    assert_ok(cluster_load(spec, &back, &err), &err);
    assert_int_equal(back.nodes, 3);

    struct device d;
    str_clear(&s);
    json_out_init(&o, &s, 2);
    device_write(&c.device, &o, NULL);
    assert_ok(file_publish(path, s.p, s.len, &err), &err);
    assert_ok(device_load(path, &d, &err), &err);
    assert_memory_equal(&c.device, &d, sizeof d);
    str_release(&s);
}

#define GPU(peaks, rest)                                                                           \
    "{\"schema\": \"reel.gpu/1\", \"name\": \"x\", \"peak_source\": \"s\", \"peak_flops\": " peaks \
    ", \"memory_bytes\": 1000, \"memory_bytes_per_s\": 1e9, \"gemm_efficiency\": 0.5, "            \
    "\"attn_fwd_efficiency\": 0.5" rest "}"
#define CURVE(points)                                                                              \
    "{\"kind\": \"gemm_flops\", \"source\": \"s\", \"points\": " points "}"
#define CURVED(curves) GPU("{}", ", \"attn_bwd_efficiency\": 0.5, \"curves\": " curves)
#define NODE_OF(nics, speed)                                                                       \
    "{\"devices\": 1, \"link_bytes_per_s\": 1e9, \"link_latency_s\": 0, \"nics\": " nics           \
    ", \"nic_bytes_per_s\": " speed ", \"nic_latency_s\": 0, \"cores\": 2, \"memory_bytes\": 1000}"
#define NODE(nics) NODE_OF(nics, "1e9")
#define CLUSTER(device, nodes, node, rest)                                                         \
    "{\"schema\": \"reel.cluster/1\", \"name\": \"x\", \"device\": " device ", \"nodes\": " nodes  \
    ", \"node\": " node rest "}"

static void refused(void **state)
{
    static const struct {
        bool cluster;
        const char *text, *says;
    } rows[] = {
        {false, GPU("{}", ", \"attn_bwd_efficiency\": 1.5"), "attn_bwd_efficiency is 1.5"},
        {false, GPU("{}", ""), "attn_bwd_efficiency is missing"},
        {false, GPU("{\"fp16\": 1}", ", \"attn_bwd_efficiency\": 0.5"),
         "peak_flops.fp16 is not a known key"},
        {false, GPU("{\"bf16\": -1}", ", \"attn_bwd_efficiency\": 0.5"), "peak_flops.bf16 is -1"},
        {false, GPU("3", ", \"attn_bwd_efficiency\": 0.5"), "peak_flops is 3: give an object"},
        {true, CLUSTER("\"h100\"", "1", NODE("1"), ""),
         "site.json: device: there is no device 'h100'"},
        {true, CLUSTER("7", "1", NODE("1"), ""), "device is 7: give an object"},
        {true, CLUSTER("\"b200\"", "2", NODE("0"), ""), "several nodes but no network"},
        {true, CLUSTER("\"b200\"", "2", NODE_OF("1", "1e-300"), ""), "nic_bytes_per_s of 1 or more"},
        {true, CLUSTER("\"b200\"", "5", NODE("1"), ", \"max_nodes\": 4"),
         "has 5 nodes, its description holds for 1 to 4"},
        {true, CLUSTER("\"b200\"", "1", NODE("-1"), ""), "node.nics is -1"},
        {true, CLUSTER("\"b200\"", "1", NODE("1"), ", \"spine_oversubscription\": 0.5"),
         "spine_oversubscription is 0.5"},
        {true, CLUSTER("\"b200\"", "1", NODE("1"), ", \"domain_nodes\": 0"), "domain_nodes is 0"},
        {true, CLUSTER("\"b200\"", "8", NODE("1"), ", \"domain_nodes\": 3, \"leaf_nodes\": 4"),
         "domains of 3 nodes and leaves of 4: give a leaf_nodes that domain_nodes divides"},
        {false, GPU("{}", ", \"attn_bwd_efficiency\": 0.5, \"reserved_bytes\": 1000"),
         "reserves 1000 of its 1000 bytes"},
        {false, CURVED("7"), "curves is no array"},
        {false, CURVED("[{}]"), "curves[0].kind is missing"},
        {false, CURVED("[{\"kind\": \"gemm\", \"source\": \"s\", \"points\": [[1, 1]]}]"),
         "curves[0].kind is \"gemm\": give one of gemm_flops"},
        {false, CURVED("[" CURVE("[[1, 0.5]]") ", " CURVE("[]") "]"),
         "curves[1].points has 0 points"},
        {false, CURVED("[" CURVE("[[1, 0.5], [1, 0.6]]") "]"),
         "curves[0].points[1] has size 1 after 1"},
        {false, CURVED("[" CURVE("[[1, 0.5], [2]]") "]"), "curves[0].points[1] is no pair"},
        {false, CURVED("[" CURVE("[[1, 1.5]]") "]"), "a value above 0 up to 1"},
        {false, CURVED("[" CURVE("[[0, 0.5]]") "]"), "a size above 0"},
        {true, CLUSTER(CURVED("[{\"kind\": 3}]"), "1", NODE("1"), ""),
         "device.curves[0].kind is 3"},
        {true, GPU("{}", ", \"attn_bwd_efficiency\": 0.5"),
         "give a file of schema 'reel.cluster/1'"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err;
        struct device d;
        struct cluster c;
        const char *path = in_scratch("site.json");
        assert_ok(file_publish(path, rows[i].text, strlen(rows[i].text), &err), &err);
        int rc = rows[i].cluster ? cluster_load(path, &c, &err) : device_load(path, &d, &err);
        assert_true(rc < 0 && err_exit_code(rc) == 3);
        assert_says(&err, rows[i].says);
        assert_says(&err, "site.json");
    }
}

/* One node needs no network: this machine. */
static void one_node(void **state)
{
    static const char text[] = CLUSTER(
        GPU("{\"f32\": 2.6e11}", ", \"attn_bwd_efficiency\": 0.5, \"cpu\": true"), "1", NODE("0"),
        "");
    const char *path = in_scratch("this.json");
    struct cluster c;
    struct err err;
    (void)state;
    assert_ok(file_publish(path, text, strlen(text), &err), &err);
    assert_ok(cluster_load(path, &c, &err), &err);
    assert_true(c.device.cpu && c.device.peak_flops[DTYPE_F32] == 2.6e11 &&
                c.device.peak_flops[DTYPE_BF16] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices),
        cmocka_unit_test(clusters),
        cmocka_unit_test(switch_tree),
        cmocka_unit_test(domains),
        cmocka_unit_test(spans),
        cmocka_unit_test_setup_teardown(round_trip, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(refused, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(one_node, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("profiles_hw", tests, NULL, NULL);
}
