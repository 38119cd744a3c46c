/* Where ranks go: lists of nodes, networks as Slurm prints them, orders of nodes against all other
 * orders, shares of CPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/arena_fixture.h"

#include "base/json.h"
#include "base/str.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/place.h"
#include "launcher/sched/slurm_text.h"

static const char *joined(const char *const *names, size_t n)
{
    struct str s = STR_INIT;
    for (size_t i = 0; i < n; i++)
        str_addf(&s, "%s%s", i ? " " : "", names[i]);
    const char *copy = arena_strdup(&arena, s.p);
    str_release(&s);
    return copy;
}

/* ---- lists ---- */

static void test_expand(void **state)
{
    (void)state;
    static const struct {
        const char *list, *names; /* NULL: refused */
    } cases[] = {
        {"", ""},
        {"n1", "n1"},
        {"n[0-3]", "n0 n1 n2 n3"},
        {"n[1,3],m2", "n1 n3 m2"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[8-11]", "n8 n9 n10 n11"},
        {"r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"},
        {"a[1-2]b", "a1b a2b"},
        {"n[001]", "n001"},
        {"n[3-3]", "n3"},
        {"gpu-a,gpu-b", "gpu-a gpu-b"},
        {"n[1", NULL},
        {"n1]", NULL},
        {"n[]", NULL},
        {"n[a-b]", NULL},
        {"n[3-1]", NULL},
        {"n[1-]", NULL},
        {"n[1;2]", NULL},
        {"a,,b", NULL},
        {"n[[1]]", NULL},
        {"n[0-99999999]", NULL},
        {"n[0-999]m[0-999]k[0-9]", NULL},
        {"n[-1]", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char **names;
        size_t n;
        struct err err = {0};
        int rc = hosts_expand(cases[i].list, &arena, &names, &n, &err);
        if ((rc == 0) != (cases[i].names != NULL))
            fail_msg("'%s': %s", cases[i].list, rc ? err.text : "taken");
        if (rc == 0) {
            assert_string_equal(joined(names, n), cases[i].names);
            assert_null(names[n]);
        } else {
            assert_non_null(strstr(err.text, cases[i].list));
        }
    }
}

static void test_fold(void **state)
{
    (void)state;
    static const struct {
        const char *names, *list;
    } cases[] = {
        {"", ""},
        {"n1", "n1"},
        {"n3 n1 n2", "n[1-3]"},
        {"n10 n2 n9", "n[2,9-10]"},
        {"n08 n09 n10", "n[08-10]"},
        {"n1 m1 m2", "m[1-2],n1"},
        {"head n1 n2", "head,n[1-2]"},
        {"n1 n1 n2", "n[1-2]"},
        {"n01 n1", "n01,n1"},
        {"r1n1 r1n2 r2n1", "r1n[1-2],r2n1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *v[16], **again;
        size_t n = 0, k;
        char *copy = arena_strdup(&arena, cases[i].names), *save;
        for (char *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save))
            v[n++] = name;
        struct str s = STR_INIT;
        hosts_fold(v, n, &s);
        assert_string_equal(s.p, cases[i].list);
        assert_int_equal(hosts_expand(s.p, &arena, &again, &k, NULL), 0); /* and back */
        for (size_t j = 1; j < k; j++)
            assert_true(hosts_compare(again[j - 1], again[j]) < 0);
        str_release(&s);
    }
}

/* ---- networks ---- */

static const char tree3[] = "SwitchName=a0 Level=0 LinkSpeed=1 Nodes=n[0,4]\nSwitchName=a1 Level=0 "
                            "LinkSpeed=1 Nodes=n[1-2]\n"
                            "SwitchName=b0 Level=0 LinkSpeed=1 Nodes=n3,n10\n"
                            "SwitchName=A Level=1 LinkSpeed=1 Nodes=n[0-2,4] Switches=a[0-1]\n"
                            "SwitchName=B Level=1 LinkSpeed=1 Nodes=n[3,10] Switches=b0\n"
                            "SwitchName=top Level=2 LinkSpeed=1 Nodes=n[0-4,10] Switches=A,B\n";
/* 24.05 and later */
static const char blocks[] = "BlockName=b1 BlockIndex=0 Nodes=n[0-1] BlockSize=2\nBlockName=b2 "
                             "BlockIndex=1 Nodes=n[2-3] BlockSize=2\n"
                             "BlockName=b3 BlockIndex=2 Nodes=n[4-5] BlockSize=2\nBlockName=b4 "
                             "BlockIndex=3 Nodes=n[6-7] BlockSize=2\n"
                             "AggregatedBlock=b[1-2] BlockIndex=4 Nodes=n[0-3] BlockSize=4\n"
                             "AggregatedBlock=b[3-4] BlockIndex=5 Nodes=n[4-7] BlockSize=4\n"
                             "AggregatedBlock=b[1-4] BlockIndex=6 Nodes=n[0-7] BlockSize=8\n";

static struct slurm_net net_of(const char *nodes, const char *topology)
{
    struct slurm_net net = {0};
    struct err err = {0};
    if (slurm_text_net(nodes, topology, &arena, &net, &err) < 0)
        fail_msg("%s", err.text);
    return net;
}

/* Somebody's words may hold brackets of their own, and keys may follow them. */
static void test_reasons(void **state)
{
    (void)state;
    static const struct {
        const char *line, *reason;
        double at;
    } cases[] = {
        {"NodeName=n0 State=DOWN Reason=Not responding [slurm@1795247415]", "Not responding",
         1795247415},
        {"NodeName=n0 State=DRAIN Reason=rack [4 of 9] [root@12] ExtSensors=n/s", "rack [4 of 9]",
         12},
        {"NodeName=n0 State=IDLE", "", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct slurm_net net = net_of(cases[i].line, "");
        assert_string_equal(net.nodes[0].reason, cases[i].reason);
        assert_true(net.nodes[0].reason_at == cases[i].at);
    }
}

static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *topology, *kind, *node, *path;
    } cases[] = {
        {tree3, "tree", "n4", "top/A/a0"},
        {tree3, "tree", "n10", "top/B/b0"},
        {tree3, "tree", "n99", ""},
        {blocks, "block", "n5", "b[1-4]/b[3-4]/b3"},
        {blocks, "block", "n0", "b[1-4]/b[1-2]/b1"},
        {"", "none", "n0", ""},
        {"RingName=r1 Nodes=n[0-3] RingSize=4\n", "unknown", "n0", ""},
        {"No topology information available\n", "none", "n0", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct slurm_net net = net_of("", cases[i].topology);
        struct place_node *v;
        assert_string_equal(net.kind, cases[i].kind);
        assert_int_equal(place_paths(&net, &cases[i].node, 1, &arena, &v, NULL), 0);
        assert_string_equal(v->path, cases[i].path);
    }
    struct slurm_net damaged = net_of("", "SwitchName=s Level=0 LinkSpeed=1 Nodes=n[0-\n");
    struct place_node *v;
    assert_int_equal(place_paths(&damaged, &(const char *){"n0"}, 1, &arena, &v, NULL), ERR_INPUT);
}

static void test_nodes(void **state)
{
    (void)state;
    static const char text[] =
        "NodeName=n5 Arch=x86_64 CoresPerSocket=56 CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=0.9 "
        "AvailableFeatures=(null) Gres=gpu:h100:8(S:0-1) "
        "NodeAddr=10.0.0.5 NodeHostName=n5 Version=22.05.8 OS=Linux 6.1 #1 SMP State=Bogus @0  "
        "RealMemory=2048000 AllocMem=0 Sockets=2 Boards=1 "
        "State=IDLE+DRAIN ThreadsPerCore=2 TmpDisk=0 Partitions=low,high  "
        "BootTime=2026-11-21T01:17:34 AllocTRES= "
        "Reason=bad [fan] here [root@2026-11-21T10:40:56] Comment=see [ticket]\n"
        "NodeName=n6 Arch=x86_64 CoresPerSocket=8 CPUTot=8 Gres=(null) RealMemory=1 Sockets=1 "
        "State=DOWN* ThreadsPerCore=1 \n";
    struct slurm_net net = net_of(text, "");
    assert_int_equal(net.n_nodes, 2);
    const struct slurm_node *n = net.nodes;
    assert_string_equal(n[0].name, "n5");
    assert_string_equal(n[0].reason, "bad [fan] here");
    assert_string_equal(n[0].gres, "gpu:h100:8(S:0-1)");
    assert_string_equal(n[0].partitions, "low,high");
    assert_true(n[0].cpus == 224 && n[0].sockets == 2 && n[0].cores_per_socket == 56 &&
                n[0].threads_per_core == 2 && n[0].gpus == 8);
    assert_true(n[0].memory_bytes == (int64_t)2048000 << 20);
    assert_string_equal(n[1].state, "DOWN*");
    assert_string_equal(n[1].reason, "");
    assert_string_equal(n[1].gres, "");
    assert_string_equal(n[1].partitions, "");
}

/* ---- orders ---- */

/* "n0:top/a n1:top/b": nodes and their switches. */
static size_t nodes_of(const char *text, struct place_node *v)
{
    size_t n = 0;
    char *save;
    for (char *w = strtok_r(arena_strdup(&arena, text), " ", &save); w;
         w = strtok_r(NULL, " ", &save)) {
        char *colon = strchr(w, ':');
        *colon = '\0';
        v[n++] = (struct place_node){w, colon + 1};
    }
    return n;
}

static const char *order_of(const struct place_node *v, size_t n)
{
    const char *names[32];
    for (size_t i = 0; i < n; i++)
        names[i] = v[i].name;
    return joined(names, n);
}

static void test_order(void **state)
{
    (void)state;
    static const struct {
        const char *nodes;
        int64_t group; /* 0: none */
        const char *wanted;
    } cases[] = {
        {"n7:top/a", 0, "n7"},
        {"n0:top/a n1:top/b n2:top/a n3:top/b", 0, "n0 n2 n1 n3"},
        /* equal branches: by name */
        {"n0:top/b n1:top/a n2:top/b n3:top/a", 0, "n1 n3 n0 n2"},
        /* s2 before s10 */
        {"n0:top/s10 n1:top/s2", 0, "n1 n0"},
        {"n10:t/a n9:t/a n2:t/a", 0, "n2 n9 n10"},
        /* the larger leaf first */
        {"n0:top/a n1:top/b n2:top/b n3:top/b n4:top/a", 0, "n1 n2 n3 n0 n4"},
        /* three levels */
        {"n0:t/A/a n1:t/B/b n2:t/A/c n3:t/B/b n4:t/A/a", 0, "n0 n4 n2 n1 n3"},
        {"n0:t/A/a n1:t/B/b n2:t/A/a n3:t/B/d n4:t/B/b n5:t/A/e", 0, "n0 n2 n5 n1 n4 n3"},
        /* no switch known: behind */
        {"n0: n1:top/a n2: n3:top/a", 0, "n1 n3 n0 n2"},
        {"n0: n1:top/a n2: n3: n4:top/b n5:top/b", 0, "n4 n5 n1 n0 n2 n3"},
        {"b2: b1: b10:", 0, "b1 b2 b10"},
        /* two trees */
        {"n0:x/a n1:y/b n2:x/a", 0, "n0 n2 n1"},
        /* a node at an inner switch */
        {"n0:top n1:top/a n2:top/a", 0, "n1 n2 n0"},
        /* 3 + 2 nodes in pairs: the leaf of two keeps its pair whole */
        {"n0:t/a n1:t/a n2:t/a n3:t/b n4:t/b", 2, "n3 n4 n0 n1 n2"},
        /* 5, 4, 4, 3 in fours: the fours first, then 5 and 3 share a border */
        {"a1:t/a a2:t/a a3:t/a a4:t/a a5:t/a b1:t/b b2:t/b b3:t/b b4:t/b c1:t/c c2:t/c c3:t/c "
         "c4:t/c d1:t/d d2:t/d d3:t/d", 4, "b1 b2 b3 b4 c1 c2 c3 c4 a1 a2 a3 a4 a5 d1 d2 d3"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct place_node v[32];
        int64_t groups[] = {cases[i].group, 0};
        size_t n = nodes_of(cases[i].nodes, v);
        assert_int_equal(place_order(v, n, cases[i].group ? groups : NULL, NULL), 0);
        if (strcmp(order_of(v, n), cases[i].wanted) != 0)
            fail_msg("%s in groups of %d: %s, not %s", cases[i].nodes, (int)cases[i].group,
                     order_of(v, n), cases[i].wanted);
    }
}

static void test_groups(void **state)
{
    (void)state;
    static const struct {
        int64_t ranks[PLACE_GROUPS], per_node, nodes[PLACE_GROUPS + 1];
    } cases[] = {
        {{2, 4, 8}, 8, {0}},   {{8, 16, 64}, 8, {2, 8}}, {{16, 0, 0}, 4, {4}},
        {{3, 12, 24}, 8, {3}}, {{0, 0, 0}, 1, {0}},      {{2, 4, 8}, 1, {2, 4, 8}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t got[PLACE_GROUPS + 1] = {0};
        place_groups(cases[i].ranks, cases[i].per_node, got);
        for (int k = 0; cases[i].nodes[k] || got[k]; k++)
            assert_int_equal(got[k], cases[i].nodes[k]);
    }
}

/* The first name of a path; *len is 0 behind its last. */
static const char *component(const char *path, size_t *len)
{
    path += *path == '/';
    *len = strcspn(path, "/");
    return path;
}

static int64_t depth_of(const char *path)
{
    size_t len;
    int64_t n = 0;
    for (path = component(path, &len); len; path = component(path + len, &len))
        n++;
    return n;
}

/* Counts the links up to the lowest switch that two nodes share, and down again. */
static int64_t way(const char *a, const char *b)
{
    int64_t links = 2 + depth_of(a) + depth_of(b);
    for (size_t i, k;; a += i, b += k) {
        a = component(a, &i);
        b = component(b, &k);
        if (!i || i != k || strncmp(a, b, i) != 0)
            return links;
        links -= 2;
    }
}

/* The links between switches (and between a node and its switch) that the ring of the nodes in this
 * order passes. */
static int64_t crossings(const struct place_node *nodes, size_t n)
{
    int64_t links = 0;
    for (size_t i = 0; n > 1 && i < n; i++)
        links += way(nodes[i].path, nodes[(i + 1) % n].path);
    return links;
}

/* The groups of so many nodes that lie under more than one leaf switch. */
static int64_t splits_of(const struct place_node *nodes, size_t n, int64_t group)
{
    int64_t splits = 0;
    for (size_t i = 0; i < n; i += (size_t)group) {
        size_t k = i;
        while (k < n && k < i + (size_t)group && strcmp(nodes[k].path, nodes[i].path) == 0)
            k++;
        splits += k < n && k < i + (size_t)group;
    }
    return splits;
}

/* Fewest links over all orders of v[at..n). */
static int64_t best_ring(struct place_node *v, size_t n, size_t at)
{
    if (at == n)
        return crossings(v, n);
    int64_t best = INT64_MAX;
    for (size_t i = at; i < n; i++) {
        struct place_node t = v[at];
        v[at] = v[i];
        v[i] = t;
        int64_t links = best_ring(v, n, at + 1);
        best = links < best ? links : best;
        v[i] = v[at];
        v[at] = t;
    }
    return best;
}

/* Random trees of up to three levels over 1 to 7 nodes: no order of the nodes passes fewer links on
 * the way around. */
static void test_no_order_is_better(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int round = 0; round < 300; round++) {
        struct place_node v[8];
        size_t n = 1 + (size_t)rand_r(&seed) % 7, before;
        int branches = 1 + rand_r(&seed) % 3, depth = rand_r(&seed) % 4;
        for (size_t i = 0; i < n; i++) {
            static const char *const shapes[] = {"", "t", "t/%d", "t/%d/%d"};
            int a = rand_r(&seed) % branches, b = rand_r(&seed) % branches;
            bool lost = rand_r(&seed) % 8 == 0;
            v[i] = (struct place_node){arena_printf(&arena, "n%zu", i),
                                       lost ? "" : arena_printf(&arena, shapes[depth], a, b)};
        }
        int64_t groups[] = {1 + rand_r(&seed) % 3, 0};
        const char *given = order_of(v, n);
        assert_int_equal(place_order(v, n, groups, NULL), 0);
        int64_t links = crossings(v, n), best = best_ring(v, n, 0);
        before = strlen(order_of(v, n));
        assert_int_equal(before, strlen(given)); /* every node is still there */
        if (links != best)
            fail_msg("round %d, %zu nodes: %s passes %d links, the best order %d", round, n,
                     order_of(v, n), (int)links, (int)best);
    }
}

static void test_crossings(void **state)
{
    (void)state;
    struct place_node v[8];
    size_t n = nodes_of("a:t/x b:t/x c:t/y", v);
    assert_int_equal(crossings(v, n), 2 + 4 + 4);
    assert_int_equal(crossings(v, 1), 0);
    assert_int_equal(splits_of(v, n, 2), 0); /* {a, b}, {c} */
    assert_int_equal(splits_of(v + 1, 2, 2), 1);
    n = nodes_of("a:t/A/x b:t/A/y", v);
    assert_int_equal(crossings(v, n), 2 * 4);
}

/* ---- CPUs ---- */

static void test_cpus(void **state)
{
    (void)state;
    static const struct {
        const char *near[4], *wanted; /* "|" between ranks; NULL: refused */
    } cases[] = {
        {{"0-7"}, "0-7"},
        {{"0-7", "0-7"}, "0-3|4-7"},
        {{"0-3", "4-7"}, "0-3|4-7"},
        {{"0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"},
         "0-1,8-9|2-3,10-11|4-5,12-13|6-7,14-15"},
        {{"0-2", "0-2"}, "0|1"},
        {{"0-1,4-6", "0-1,4-6"}, "0-1|4-5"},
        {{"0", "0"}, "|"},
        {{"3,5,9"}, "3,5,9"},
        {{"0-1,2-5", "0-1,2-5", "0-1,2-5"}, "0-1|2-3|4-5"},
        {{"x"}, NULL},
        {{"3-1"}, NULL},
        {{"1-"}, NULL},
        {{"0-99999"}, NULL},
        {{"-1"}, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *out[4];
        size_t n = 0;
        struct str s = STR_INIT;
        while (n < 4 && cases[i].near[n])
            n++;
        int rc = place_cpus(cases[i].near, n, &arena, out, NULL);
        assert_int_equal(rc, cases[i].wanted ? 0 : ERR_INPUT);
        for (size_t k = 0; rc == 0 && k < n; k++)
            str_addf(&s, "%s%s", k ? "|" : "", out[k]);
        if (rc == 0)
            assert_string_equal(s.p, cases[i].wanted);
        str_release(&s);
    }
}

static void test_mask(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"0", "0x1"},
                                           {"0-3,8", "0x10f"},
                                           {"5", "0x20"},
                                           {"0-7", "0xff"},
                                           {"64-67", "0xf0000000000000000"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str s = STR_INIT;
        assert_int_equal(place_mask(cases[i][0], &s, NULL), 0);
        assert_string_equal(s.p, cases[i][1]);
        str_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand), cmocka_unit_test(test_fold), cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_paths), cmocka_unit_test(test_nodes), cmocka_unit_test(test_order),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_crossings),
        cmocka_unit_test(test_no_order_is_better), cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_mask),
    };
    return cmocka_run_group_tests(tests, arena_setup, arena_teardown);
}
