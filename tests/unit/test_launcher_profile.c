/* profile: clusters made of machines that stand here as structs, against answers worked out by
 * hand; all of them are read back by cluster_load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "launcher/machine/profile.h"

enum { MOST = 8 };
/* A machine: H100s by PCI id, each beside a NIC of its own unless there are fewer of them. */
struct machine {
    int gpus, nics;
    double port_gb, nvlink_gb; /* GB/s; of a GPU's NVLinks in all, 0: none */
    bool driven;
};
static struct machine_store {
    struct topo topo;
    struct topo_device devices[2 * MOST];
    double pairs[MOST * MOST], all[MOST], cpu[MOST];
} store[MOST];

static const struct topo *machine(int slot, const struct machine *m)
{
    struct machine_store *s = &store[slot];
    *s = (struct machine_store){.topo = {.source = "node", .n_gpus = m->gpus, .cores = 64,
                                         .memory_bytes = 1 << 30, .devices = s->devices,
                                         .n_devices = m->gpus + m->nics}};
    for (int i = 0; i < m->gpus; i++) {
        s->devices[i] = (struct topo_device){
            .kind = TOPO_GPU, .name = "gpu", .model = "NVIDIA H100 80GB HBM3", .pci = "0",
            .pci_id = "10de:2330", .near = m->nics ? m->gpus + i % m->nics : -1,
            .link_bytes_per_s = 63e9, .driven = m->driven, .memory_bytes = 85520809984};
        for (int k = 0; k < m->gpus; k++)
            s->pairs[i * m->gpus + k] = i == k ? 0 : m->nvlink_gb * 1e9;
        s->all[i] = m->nvlink_gb * 1e9;
    }
    for (int i = 0; i < m->nics; i++)
        s->devices[m->gpus + i] = (struct topo_device){
            .kind = TOPO_NIC, .name = "nic", .model = "", .pci = "1", .pci_id = "15b3:1021",
            .near = -1, .link_bytes_per_s = 63e9, .rate_bytes_per_s = m->port_gb * 1e9};
    if (m->nvlink_gb > 0)
        s->topo.links = (struct topo_links){"NVLink", true, s->pairs, s->all, s->cpu};
    return &s->topo;
}

static void reads_back(const struct cluster *c)
{
    char path[] = "/tmp/profile.XXXXXX.json";
    struct cluster back;
    struct str text = STR_INIT;
    struct json_out o;
    struct err err;
    assert_true(close(mkstemps(path, 5)) == 0);
    json_out_init(&o, &text, 2);
    cluster_write(c, &o, NULL);
    assert_int_equal(file_publish(path, text.p, text.len, &err), 0);
    if (cluster_load(path, &back, &err) < 0)
        fail_msg("%s", err.text);
    assert_memory_equal(c, &back, sizeof *c);
    unlink(path);
    str_release(&text);
}

static void machines(void **state)
{
    static const struct {
        const char *what;
        struct machine m;
        int64_t devices, nics;
        double link_gb, nic_gb, latency_s;
        const char *note; /* part of the notes; "": there is none */
    } table[] = {
        {"a DGX H100 without ConnectX storage", {8, 8, 50, 478.116, true}, 8, 8, 450, 50, 3.4e-6, ""},
        {"a third of its links is down", {8, 8, 50, 318.744, true}, 8, 8, 318.744, 50, 3.4e-6, ""},
        {"two GPUs share a NIC", {8, 4, 50, 450, true}, 8, 4, 450, 50, 3.4e-6, ""},
        {"the driver knows of no link", {4, 4, 25, 0, true}, 4, 4, 63, 25, 5.7e-6, ""},
        {"there is no driver", {4, 4, 25, 0, false}, 4, 4, 450, 25, 3.4e-6, "datasheet is taken"},
        {"no port tells its rate", {4, 4, 0, 450, true}, 4, 4, 450, 63, 3.4e-6, "PCI link is taken"},
        {"no NIC", {8, 0, 0, 450, true}, 8, 0, 450, 0, 3.4e-6, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct profile_node node = {"n0", "", machine(0, &table[i].m)};
        struct profile_ask ask = {.name = "one", .nodes = &node, .n = 1};
        struct cluster c;
        struct str notes = STR_INIT;
        struct err err;
        if (profile_make(&ask, &c, &notes, &err) < 0)
            fail_msg("%s: %s", table[i].what, err.text);
        if (c.node.devices != table[i].devices || c.node.nics != table[i].nics ||
            c.node.link_bytes_per_s != table[i].link_gb * 1e9 ||
            c.node.nic_bytes_per_s != table[i].nic_gb * 1e9 ||
            c.node.link_latency_s != table[i].latency_s)
            fail_msg("%s: %lld devices, %lld NICs, %g and %g B/s, %g s", table[i].what,
                     (long long)c.node.devices, (long long)c.node.nics, c.node.link_bytes_per_s,
                     c.node.nic_bytes_per_s, c.node.link_latency_s);
        if (*table[i].note ? !strstr(notes.p, table[i].note) : notes.len > 0)
            fail_msg("%s: '%s'", table[i].what, notes.p);
        assert_string_equal(c.device.name, "h100-sxm");
        assert_int_equal(c.nodes, 1);
        reads_back(&c);
        str_release(&notes);
    }
}

/* Nodes by a letter: a and b are machines of two kinds. */
static void nodes(void **state)
{
    static const struct machine kinds[] = {{8, 8, 50, 450, true}, {4, 4, 50, 450, true}};
    static const char *const names[] = {"n0", "n1", "n2", "n3", "n4", "n5"};
    static const struct {
        const char *kinds, *paths[6];
        int64_t nodes, leaf;
        const char *note;
    } table[] = {
        {"aaaa", {"s/l0", "s/l0", "s/l1", "s/l1"}, 4, 2, "oversubscribed"},
        {"aaaa", {"s", "s", "s", "s"}, 4, 0, ""},
        {"aaaa", {"", "", "", ""}, 4, 0, ""},
        {"aaaaa", {"s/l0", "s/l0", "s/l1", "s/l1", "s/l2"}, 5, 2, "2 of 3 have the 2"},
        {"aab", {"s", "s", "s"}, 2, 0, "most: n2"},
        {"babaa", {"s/l0", "s/l0", "s/l1", "s/l1", "s/l1"}, 3, 2, "most: n[0,2]"},
        {"ab", {"s", "s"}, 1, 0, "most: n1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct profile_node v[6];
        struct profile_ask ask = {.name = "many", .nodes = v, .n = strlen(table[i].kinds)};
        struct cluster c;
        struct str notes = STR_INIT;
        struct err err;
        for (size_t k = 0; k < ask.n; k++)
            v[k] = (struct profile_node){names[k], table[i].paths[k],
                                         machine((int)k, &kinds[table[i].kinds[k] - 'a'])};
        if (profile_make(&ask, &c, &notes, &err) < 0)
            fail_msg("%s: %s", table[i].kinds, err.text);
        if (c.nodes != table[i].nodes || c.leaf_nodes != table[i].leaf ||
            (*table[i].note ? !strstr(notes.p, table[i].note) : notes.len > 0))
            fail_msg("%s: %lld nodes, leaves of %lld, '%s'", table[i].kinds, (long long)c.nodes,
                     (long long)c.leaf_nodes, notes.p);
        reads_back(&c);
        str_release(&notes);
    }
}

/* Cores are the devices where there are no GPUs, and their NICs are the fastest. */
static void cores(void **state)
{
    struct device core = {.name = "core", .peak_source = "measured", .memory_bytes = 1 << 28,
                          .memory_bytes_per_s = 8e9, .gemm_efficiency = 0.5,
                          .attn_fwd_efficiency = 0.5, .attn_bwd_efficiency = 0.5, .cpu = true};
    const struct profile_node v[] = {{"n0", "", machine(0, &(struct machine){0, 2, 25, 0, false})},
                                     {"n1", "", machine(1, &(struct machine){0, 2, 25, 0, false})}};
    struct profile_ask ask = {.name = "cpus", .nodes = v, .n = 2};
    struct cluster c;
    struct str notes = STR_INIT;
    struct err err;
    (void)state;
    store[0].devices[0].rate_bytes_per_s = store[1].devices[0].rate_bytes_per_s = 1e9;
    assert_int_equal(profile_make(&ask, &c, &notes, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "--device"));
    ask.device = &core;
    assert_int_equal(profile_make(&ask, &c, &notes, &err), 0);
    assert_true(c.node.devices == 64 && c.node.nics == 1 && c.node.nic_bytes_per_s == 25e9);
    assert_true(c.node.link_bytes_per_s == 8e9);
    reads_back(&c);
    str_release(&notes);
}

static void refuses(void **state)
{
    static const struct machine slow = {4, 4, 0, 450, true}, alone = {4, 0, 0, 450, true};
    struct profile_node v[2] = {{"n0", "", machine(0, &slow)}, {"n1", "", machine(1, &slow)}};
    struct profile_ask ask = {.name = "bad", .nodes = v, .n = 2};
    struct cluster c;
    struct str notes = STR_INIT;
    struct err err;
    (void)state;
    for (int n = 0; n < 2; n++)
        for (int i = 4; i < 8; i++)
            store[n].devices[i].link_bytes_per_s = 0;
    assert_int_equal(profile_make(&ask, &c, &notes, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "its NICs tell no rate: give the rate of a port by --nic-gbits"));
    ask.nic_bytes_per_s = 12.5e9;
    assert_int_equal(profile_make(&ask, &c, &notes, &err), 0);
    assert_true(c.node.nic_bytes_per_s == 12.5e9);
    v[0].topo = machine(0, &alone);
    v[1].topo = machine(1, &alone);
    assert_int_equal(profile_make(&ask, &c, &notes, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "no NIC near a GPU"));
    store[0].devices[0].pci_id = "10de:ffff";
    store[0].devices[0].model = "NVIDIA Z9";
    ask.n = 1;
    assert_int_equal(profile_make(&ask, &c, &notes, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "'NVIDIA Z9', PCI 10de:ffff"));
    ask.n = 0;
    assert_int_equal(profile_make(&ask, &c, &notes, &err), ERR_INPUT);
    str_release(&notes);
}

/* Every compiled-in GPU is found by what its driver calls it, with and without the maker's name,
 * and by each PCI id that is known. */
static void known(void **state)
{
    const char *const *names;
    size_t n = device_names(&names);
    struct device d, found;
    struct err err;
    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(device_load(names[i], &d, &err), 0);
        assert_int_equal(device_find("", d.driver_name, &found, &err), 0);
        assert_string_equal(found.name, d.name);
        assert_int_equal(device_find("", d.driver_name + strlen("NVIDIA "), &found, &err), 0);
        assert_string_equal(found.name, d.name);
        if (d.pci_id[0]) {
            d.pci_id[strcspn(d.pci_id, ",")] = 0;
            assert_int_equal(device_find(d.pci_id, "", &found, &err), 0);
            assert_string_equal(found.name, d.name);
        }
    }
    assert_int_equal(device_find("", "", &found, &err), ERR_NOT_FOUND);
    assert_int_equal(device_find("10de", "H100", &found, &err), ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(machines), cmocka_unit_test(nodes),
                                       cmocka_unit_test(cores), cmocka_unit_test(refuses),
                                       cmocka_unit_test(known)};
    return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
