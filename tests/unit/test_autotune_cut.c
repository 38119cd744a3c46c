/* Groups of ranks through which the border of an NVLink domain goes, by hand and counted rank by
 * rank. */
#include "tests/lib/test_profiles.h"

#include <math.h>
#include <stdio.h>

#include "autotune/price.h"

static const struct model gpt = {.name = "g", .family = MODEL_GPT, .layers = 10, .hidden = 1024,
                                 .heads = 36, .kv_heads = 36, .ffn = 4096, .vocab = 32000};

/* Returns nodes of 8 devices with 8 NICs of 10 GB/s, and links so fast that they take no time. */
static struct cluster cluster_open(void)
{
    struct cluster c;
    struct err err;
    assert_ok(cluster_load("dgx-a100:64", &c, &err), &err);
    c.node = (struct node_profile){.devices = 8, .link_bytes_per_s = 1e20, .nics = 8,
                                   .nic_bytes_per_s = 10e9};
    c.leaf_nodes = 0;
    return c;
}

static void machine_of(const struct cluster *c, struct price_machine *out)
{
    double v[CONSTANTS];
    for (int i = 0; i < CONSTANTS; i++)
        v[i] = 1;
    price_machine(c, v, DTYPE_BF16, false, out);
}

/* Three neighbours on nodes of 8 are 6, 7 and 8 too, and of pairs 8 apart on domains of 72, eight
 * are 64 to 71 and 72 to 79: what these send goes by one NIC of each side, and all wait for them. In
 * one domain, or where groups divide it, there is no border between ranks of a group. */
static void cut_groups(void **state)
{
    static const struct { double size, stride, world; int64_t nodes; double ranks; } cases[] = {
        {3, 1, 24, 1, 1},  {3, 1, 8, 1, 0},   {3, 2, 24, 1, 1},  {6, 1, 24, 1, 2},
        {5, 1, 40, 1, 1},  {4, 1, 24, 1, 0},  {2, 8, 128, 9, 1}, {2, 8, 72, 9, 0},
        {9, 8, 144, 9, 0}, {16, 1, 80, 9, 8}, {64, 1, 128, 9, 8}};
    struct cluster c = cluster_open();
    struct price_machine m;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct price_group g = price_row(cases[i].size, cases[i].stride);
        char text[32];
        g.world = cases[i].world;
        c.domain_nodes = cases[i].nodes;
        snprintf(text, sizeof text, "case %zu", i);
        machine_of(&c, &m);
        double want = cases[i].ranks > 0 ? 1e9 / (cases[i].ranks * 10e9) : 1e-11;
        assert_close(price_message(&m, g, TRAFFIC_ALL_REDUCE, 1e9), want, 1e-12, text);
        assert_int_equal(price_group_leaves(g, (double)(8 * cases[i].nodes)), cases[i].ranks > 0);
    }
}

/* Returns the fewest ranks that any group has on one side of a border of domains; all: no group has
 * a border in it. */
static double fewest_counted(const struct layout *l, enum traffic_group group, int64_t domain,
                             double all)
{
    double least = all;
    for (int64_t first = 0; first < layout_world(l); first++) {
        struct layout_place p = layout_place(l, first);
        double there[64] = {0};
        for (int64_t r = 0; r < layout_world(l); r++) {
            struct layout_place q = layout_place(l, r);
            int64_t a = layout_data_rank(l, p), b = layout_data_rank(l, q),
                    shard = layout_shard_group(l);
            bool same[] = {q.tp == p.tp, q.cp == p.cp, q.dp == p.dp, q.pp == p.pp};
            bool in = group == TRAFFIC_TP   ? same[1] && same[2] && same[3]
                      : group == TRAFFIC_CP ? same[0] && same[2] && same[3]
                      : group == TRAFFIC_PP ? same[0] && same[1] && same[2]
                                            : same[0] && same[3] && a / shard == b / shard;
            there[r / domain] += in;
        }
        for (int i = 0; i < 64; i++)
            if (there[i] > 0)
                least = fmin(least, there[i]);
    }
    return least;
}

/* In every order, of groups for which a domain has room, the one that its border cuts worst sets the
 * time. */
static void cut_orders(void **state)
{
    static const enum traffic_group groups[] = {TRAFFIC_TP, TRAFFIC_CP, TRAFFIC_PP, TRAFFIC_SHARD};
    static const int64_t sizes[][4] = {{3, 2, 2, 2}, {2, 3, 4, 1}, {6, 2, 2, 1}, {2, 1, 6, 3},
                                       {3, 3, 2, 2}, {1, 2, 6, 3}, {4, 1, 3, 2}, {1, 5, 2, 4}};
    struct cluster c = cluster_open();
    struct price_machine m;
    int cut = 0;
    (void)state;
    machine_of(&c, &m);
    for (size_t i = 0; i < ARRAY_LEN(sizes) * LAYOUT_ORDERS * ARRAY_LEN(groups); i++) {
        const int64_t *n = sizes[i % ARRAY_LEN(sizes)];
        struct layout l = layout_default();
        enum traffic_group group = groups[i / ARRAY_LEN(sizes) % ARRAY_LEN(groups)];
        l.tp = n[0], l.cp = n[1], l.dp = n[2], l.pp = n[3], l.zero = 1, l.fsdp = n[1] * n[2];
        l.order = (int)(i / ARRAY_LEN(sizes) / ARRAY_LEN(groups));
        struct price_group g = price_group(&l, &gpt, group);
        double all = g.size[0] * g.size[1];
        if (fmax(g.size[0] * g.stride[0], g.size[1] > 1 ? g.size[1] * g.stride[1] : 0) > 8)
            continue;
        double ranks = fewest_counted(&l, group, 8, all), want = 1e9 / (ranks * 10e9);
        cut += ranks < all;
        assert_close(price_message(&m, g, TRAFFIC_ALL_REDUCE, 1e9),
                     ranks < all ? want : 1e-11 * (all > 1), 1e-12, layout_order_names[l.order]);
    }
    assert_true(cut > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cut_groups), cmocka_unit_test(cut_orders)};
    return cmocka_run_group_tests_name("autotune_cut", tests, NULL, NULL);
}
