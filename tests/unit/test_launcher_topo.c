/* topo on machines written as hwloc XML: nearness of GPUs and NICs, links and switches, against
 * answers worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/str.h"
#include "launcher/machine/rate.h"
#include "launcher/machine/topo.h"
#include "launcher/run/placement.h"

/* A machine as text: sections of PCI slots. One letter a slot inside a switch: G an NVIDIA GPU, N
 * an InfiniBand card, E an Ethernet card, V a board's VGA, D a disk controller, S an NVSwitch.
 * Switches are separated by '|', NUMA nodes by '/'; a switch in front of the first '/' written as
 * "^" hangs at the machine instead of a NUMA node. */
static int gp = 100;
/* The objects that may stand in a matrix of links: GPUs, NVSwitches and packages, in this order. */
enum { GPUS, SWITCHES, PACKAGES, ENDS };
static struct {
    int gp[16], n;
} ends[ENDS];

static void end_note(int kind, int gp_index)
{
    ends[kind].gp[ends[kind].n++] = gp_index;
}

static void open_object(struct str *x, const char *type, int numa, int n_numa)
{
    unsigned cpus = numa < 0 ? (n_numa == 2 ? 0xf : 0x3) : 0x3u << (2 * numa);
    unsigned nodes = numa < 0 ? (n_numa == 2 ? 0x3 : 0x1) : 1u << numa;
    str_addf(x,
             "<object type=\"%s\" os_index=\"%d\" cpuset=\"0x%08x\" complete_cpuset=\"0x%08x\" "
             "nodeset=\"0x%08x\" "
             "complete_nodeset=\"0x%08x\" gp_index=\"%d\"",
             type, numa < 0 ? 0 : numa, cpus, cpus, nodes, nodes, gp++);
    if (numa < 0)
        str_addf(x, " allowed_cpuset=\"0x%08x\" allowed_nodeset=\"0x%08x\"", cpus, nodes);
    str_addf(x, ">\n");
}

static void add_card(struct str *x, char kind, int bus, int *counts)
{
    static const char letters[] = "GNEVDS";
    static const char *const types[] = {"0302 [10de:2330]", "0207 [15b3:1021]", "0200 [8086:1593]",
                                        "0300 [1a03:2000]", "0108 [144d:a80a]",
                                        "0680 [10de:1ac2]"};
    int k = (int)(strchr(letters, kind) - letters), n = counts[k]++;
    str_addf(x,
             "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"0000:%02x:00.0\" pci_type=\"%s "
             "[0000:0000] 00\" "
             "pci_link_speed=\"63.000000\"%s>\n",
             gp++, bus, types[k], kind == 'S' ? " subtype=\"NVSwitch\"" : "");
    if (kind == 'S')
        end_note(SWITCHES, gp - 1);
    if (kind == 'G')
        end_note(GPUS, gp);
    if (kind == 'G')
        str_addf(x,
                 "<object type=\"OSDev\" gp_index=\"%d\" name=\"cuda%d\" subtype=\"CUDA\" "
                 "osdev_type=\"5\">"
                 "<info name=\"GPUModel\" value=\"NVIDIA H100\"/><info "
                 "name=\"CUDAGlobalMemorySize\" value=\"83886080\"/>"
                 "</object>\n",
                 gp++, n);
    if (kind == 'N') {
        str_addf(x, "<object type=\"OSDev\" gp_index=\"%d\" name=\"ib%d\" osdev_type=\"2\"/>\n",
                 gp++, n);
        str_addf(x, "<object type=\"OSDev\" gp_index=\"%d\" name=\"mlx5_%d\" osdev_type=\"3\"/>\n",
                 gp++, n);
    }
    if (kind == 'E')
        str_addf(x, "<object type=\"OSDev\" gp_index=\"%d\" name=\"eth%d\" osdev_type=\"2\"/>\n",
                 gp++, n);
    str_addf(x, "</object>\n");
}

static void add_switches(struct str *x, const char *spec, size_t len, int *bus, int *counts)
{
    if (len == 0)
        return;
    int first = *bus, cards = 0, n_switches = 1;
    for (size_t i = 0; i < len; i++)
        spec[i] == '|' ? n_switches++ : cards++;
    str_addf(x,
             "<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"0-1\" depth=\"0\" "
             "bridge_pci=\"0000:[%02x-%02x]\">\n",
             gp++, first, first + cards + n_switches);
    const char *end = spec + len;
    for (const char *p = spec; p < end;) {
        const char *stop = memchr(p, '|', (size_t)(end - p));
        stop = stop ? stop : end;
        int at = (*bus)++;
        str_addf(x,
                 "<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"1-1\" depth=\"1\" "
                 "bridge_pci=\"0000:[%02x-%02x]\" "
                 "pci_busid=\"0000:%02x:01.0\" pci_type=\"0604 [1000:c010] [0000:0000] b0\" "
                 "pci_link_speed=\"63.0\">\n",
                 gp++, at + 1, at + (int)(stop - p), first);
        for (; p < stop; p++, (*bus)++) { /* each card behind a lower port of the switch */
            str_addf(x,
                     "<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"1-1\" depth=\"2\" "
                     "bridge_pci=\"0000:[%02x-%02x]\" pci_busid=\"0000:%02x:%02x.0\" "
                     "pci_type=\"0604 [1000:c010] [0000:0000] b0\" pci_link_speed=\"63.0\">\n",
                     gp++, *bus, *bus, at, *bus);
            add_card(x, *p, *bus, counts);
            str_addf(x, "</object>\n");
        }
        str_addf(x, "</object>\n");
        p = stop + 1;
    }
    str_addf(x, "</object>\n");
}

/* Writes a matrix of links between all that may stand in one. */
static void add_links(struct str *x, const char *name, const char *values)
{
    static const char *const types[] = {"OSDev", "PCIDev", "Package"};
    struct str ids = STR_INIT;
    int n = 0;
    for (int kind = 0; kind < ENDS; kind++)
        for (int i = 0; i < ends[kind].n; i++, n++)
            str_addf(&ids, "%s:%d ", types[kind], ends[kind].gp[i]);
    str_addf(x,
             "<distances2hetero nbobjs=\"%d\" kind=\"25\" name=\"%s\">\n"
             "<indexes length=\"%zu\">%s</indexes>\n<u64values length=\"%zu\">%s</u64values>\n"
             "</distances2hetero>\n",
             n, name, ids.len, ids.p, strlen(values), values);
    str_release(&ids);
}

/* spec: "<at machine>^<node 0>/<node 1>" or "<node 0>"; links: a matrix in MB/s, or NULL. */
static void linked_xml(const char *spec, const char *kind, const char *links, struct str *x)
{
    const char *hat = strchr(spec, '^'), *nodes = hat ? hat + 1 : spec, *slash = strchr(nodes, '/');
    int n_numa = slash ? 2 : 1, bus = 1, counts[6] = {0};
    gp = 100;
    memset(ends, 0, sizeof ends);
    str_addf(x, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM "
                "\"hwloc2.dtd\">\n<topology version=\"2.0\">\n");
    open_object(x, "Machine", -1, n_numa);
    str_addf(x, "<info name=\"HostName\" value=\"node0\"/>\n");
    for (int n = 0; n < n_numa; n++) {
        end_note(PACKAGES, gp);
        open_object(x, "Package", n, n_numa);
        unsigned cpus = 0x3u << (2 * n);
        str_addf(x,
                 "<object type=\"NUMANode\" os_index=\"%d\" cpuset=\"0x%08x\" "
                 "complete_cpuset=\"0x%08x\" nodeset=\"0x%08x\" "
                 "complete_nodeset=\"0x%08x\" gp_index=\"%d\" local_memory=\"1073741824\"/>\n",
                 n, cpus, cpus, 1u << n, 1u << n, gp++);
        for (int c = 0; c < 2; c++) {
            unsigned one = 1u << (2 * n + c);
            for (int level = 0; level < 2; level++)
                str_addf(x,
                         "<object type=\"%s\" os_index=\"%d\" cpuset=\"0x%08x\" "
                         "complete_cpuset=\"0x%08x\" "
                         "nodeset=\"0x%08x\" complete_nodeset=\"0x%08x\" gp_index=\"%d\">\n",
                         level ? "PU" : "Core", 2 * n + c, one, one, 1u << n, 1u << n, gp++);
            str_addf(x, "</object></object>\n");
        }
        const char *part = n == 0 ? nodes : slash + 1;
        add_switches(x, part, n == 0 && slash ? (size_t)(slash - nodes) : strlen(part), &bus,
                     counts);
        str_addf(x, "</object>\n");
    }
    if (hat)
        add_switches(x, spec, (size_t)(hat - spec), &bus, counts);
    str_addf(x, "</object>\n");
    if (links)
        add_links(x, kind, links);
    str_addf(x, "</topology>\n");
}

static void machine_xml(const char *spec, struct str *x)
{
    linked_xml(spec, NULL, NULL, x);
}

static const struct machine_case {
    const char *what, *spec;
    int gpus, nics;
    const char *pairs; /* "gpu:nic@numa" per GPU in order, '-' where there is none */
    const char *at;    /* what the first GPU shares with its NIC */
} cases[] = {
    {"one GPU, one NIC under the same switch", "GN", 1, 1, "cuda0:mlx5_0@0", "PCI bridge"},
    {"four pairs on two NUMA nodes", "GN|GN/GN|GN", 4, 4,
     "cuda0:mlx5_0@0 cuda1:mlx5_1@0 cuda2:mlx5_2@1 cuda3:mlx5_3@1", "PCI bridge"},
    {"two GPUs share a switch with two NICs: paired one to one", "GGNN", 2, 2,
     "cuda0:mlx5_0@0 cuda1:mlx5_1@0", "PCI bridge"},
    {"one NIC for all, on the other NUMA node", "GG/E", 2, 1, "cuda0:eth0@0 cuda1:eth0@0",
     "machine"},
    {"no NIC", "G|G", 2, 0, "cuda0:-@0 cuda1:-@0", ""},
    {"a GPU at the machine has no NUMA node", "G^N/N", 1, 2, "cuda0:mlx5_0@-1", "machine"},
    {"a board's VGA is no GPU, a disk no NIC", "VD|E", 0, 1, "", NULL},
    {"the NIC behind the host bridge is farther than the one in the switch", "N|GE", 1, 2,
     "cuda0:eth0@0", "PCI bridge"},
    {"nothing on PCI", "", 0, 0, "", NULL},
};

static void machines(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct machine_case *c = &cases[i];
        struct str xml = STR_INIT, pairs = STR_INIT;
        struct topo t;
        struct err err = {0};
        int gpus = 0, nics = 0;
        machine_xml(c->spec, &xml);
        if (topo_parse(xml.p, xml.len, c->what, &t, &err) < 0 || topo_check(&t, &err) < 0)
            fail_msg("%s: %s", c->what, err.text);
        for (int64_t d = 0; d < t.n_devices; d++) {
            const struct topo_device *dev = &t.devices[d];
            nics += dev->kind == TOPO_NIC;
            if (dev->kind != TOPO_GPU)
                continue;
            str_addf(&pairs, "%s%s:%s@%lld", gpus++ ? " " : "", dev->name,
                     dev->near >= 0 ? t.devices[dev->near].name : "-", (long long)dev->numa);
            assert_int_equal(dev->memory_bytes, 80LL << 30);
            assert_string_equal(dev->model, "NVIDIA H100");
        }
        if (gpus != c->gpus || nics != c->nics || strcmp(pairs.p, c->pairs) != 0)
            fail_msg("%s: %d GPUs, %d NICs, pairs '%s'; expected %d, %d, '%s'", c->what, gpus, nics,
                     pairs.p, c->gpus, c->nics, c->pairs);
        if (c->at)
            assert_string_equal(t.devices[0].near_at, c->at);
        topo_release(&t);
        str_release(&xml);
        str_release(&pairs);
    }
}

#define SELF "1000000 " /* hwloc's value of the diagonal */
static void links(void **state)
{
    static const struct {
        const char *what, *spec, *kind, *values;
        const char *pairs; /* GB/s of each two GPUs, rows one after the other; NULL: no links */
        double even, all, cpu; /* GB/s: of every pair, of each GPU in all, to the processors */
        bool switched;
    } table[] = {
        {"POWER8: pairs beside each processor", "G|G/G|G", "NVLinkBandwidth",
         SELF "40000 0 0 40000 0 40000 " SELF "0 0 40000 0 0 0 " SELF "40000 0 40000 0 0 40000 "
         SELF "0 40000 40000 40000 0 0 " SELF "0 0 0 40000 40000 0 " SELF,
         "0 40 0 0 40 0 0 0 0 0 0 40 0 0 40 0", 0, 0, 40, false},
        {"each GPU reaches one switch by two ports", "G|G|S|S", "NVLinkBandwidth",
         SELF "0 25000 25000 0 0 " SELF "25000 25000 0 "
              "25000 25000 0 0 0 25000 25000 0 0 0 0 0 0 0 0 ",
         "0 50 50 0", 50, 50, 0, true},
        {"switches are one mesh, and the slower GPU sets the rate", "G|G|S|S", "NVLinkBandwidth",
         SELF "0 50000 0 0 0 " SELF "0 25000 0 50000 0 0 0 0 0 25000 0 0 0 0 0 0 0 0 ",
         "0 25 25 0", 25, 25, 0, true},
        {"a triangle", "GGG", "XGMIBandwidth",
         SELF "50000 25000 0 50000 " SELF "25000 0 25000 25000 " SELF "0 0 0 0 0 ",
         "0 50 25 50 0 25 25 25 0", 0, 50, 0, false},
        {"a chain reaches all", "GGG", "XeLinkBandwidth",
         SELF "50000 0 0 50000 " SELF "50000 0 0 50000 " SELF "0 0 0 0 0 ",
         "0 50 0 50 0 50 0 50 0", 0, 50, 0, false},
        {"no link at all", "GG", "NVLinkBandwidth", SELF "0 0 0 " SELF "0 0 0 0 ", NULL, 0, 0, 0,
         false},
        {"another kind of matrix", "GG", "CacheBandwidth", SELF "1 0 1 " SELF "0 0 0 0 ", NULL, 0,
         0, 0, false},
        {"no matrix", "GG", NULL, NULL, NULL, 0, 0, 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct str xml = STR_INIT, pairs = STR_INIT;
        struct topo t;
        struct err err = {0};
        linked_xml(table[i].spec, table[i].kind, table[i].values, &xml);
        if (topo_parse(xml.p, xml.len, table[i].what, &t, &err) < 0 || topo_check(&t, &err) < 0)
            fail_msg("%s: %s", table[i].what, err.text);
        for (int64_t k = 0; t.links.kind && k < t.n_gpus * t.n_gpus; k++)
            str_addf(&pairs, "%s%g", k ? " " : "", t.links.bytes_per_s[k] / 1e9);
        if ((t.links.kind != NULL) != (table[i].pairs != NULL) ||
            (table[i].pairs && strcmp(pairs.p, table[i].pairs) != 0) ||
            topo_links_even(&t) != table[i].even * 1e9 ||
            topo_links_bytes_per_s(&t) != table[i].all * 1e9 ||
            t.links.switched != table[i].switched ||
            (t.links.kind && t.links.cpu_bytes_per_s[0] != table[i].cpu * 1e9))
            fail_msg("%s: %s '%s', even %g, all %g", table[i].what,
                     t.links.kind ? t.links.kind : "no links", pairs.p, topo_links_even(&t),
                     topo_links_bytes_per_s(&t));
        topo_release(&t);
        str_release(&xml);
        str_release(&pairs);
    }
}

static void pci_switches(void **state)
{
    static const struct {
        const char *spec, *wanted; /* the devices below each switch */
    } table[] = {
        {"GGNN", "cuda0 cuda1 mlx5_0 mlx5_1"},
        {"GN|GN/GN", "cuda0 mlx5_0, cuda1 mlx5_1, cuda2 mlx5_2"},
        {"G|N", ""},   /* each alone behind its bridge */
        {"GD|VE", ""}, /* nor do a disk and a board's VGA share one with them */
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct str xml = STR_INIT, got = STR_INIT;
        struct topo t;
        machine_xml(table[i].spec, &xml);
        assert_int_equal(topo_parse(xml.p, xml.len, table[i].spec, &t, NULL), 0);
        for (int64_t s = 0; s < t.n_switches; s++)
            for (int64_t d = 0; d < t.switches[s].n_devices; d++)
                str_addf(&got, "%s%s", d ? " " : s ? ", " : "",
                         t.devices[t.switches[s].devices[d]].name);
        str_check(&got, NULL);
        if (strcmp(got.p ? got.p : "", table[i].wanted) != 0)
            fail_msg("%s: '%s'", table[i].spec, got.p);
        if (t.n_switches)
            assert_true(t.switches[0].link_bytes_per_s == 63e9 && t.switches[0].pci[0] == '0');
        topo_release(&t);
        str_release(&xml);
        str_release(&got);
    }
}

/* The rate of a NIC is that of its active ports together. */
static void nic_rates(void **state)
{
    static const struct {
        const char *path, *text;
    } files[] = {
        {"infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n"},
        {"infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"},
        {"infiniband/mlx4_0/ports/1/rate", "56 Gb/sec (4X FDR)\n"},
        {"infiniband/mlx4_0/ports/1/state", "4: ACTIVE\n"},
        {"infiniband/mlx4_0/ports/2/rate", "56 Gb/sec (4X FDR)\n"},
        {"infiniband/mlx4_0/ports/2/state", "4: ACTIVE\n"},
        {"infiniband/mlx5_1/ports/1/rate", "10 Gb/sec (4X SDR)\n"},
        {"infiniband/mlx5_1/ports/1/state", "1: DOWN\n"},
        {"net/eth0/speed", "25000\n"},
        {"net/eth1/speed", "-1\n"},
        {"net/eth2/speed", ""},
    };
    static const struct {
        const char *name;
        double gbit;
    } table[] = {{"mlx5_0", 400}, {"mlx4_0", 112}, {"mlx5_1", 0}, {"eth0", 25},
                 {"eth1", 0},     {"eth2", 0},     {"eth3", 0}};
    char sys[] = "/tmp/rates.XXXXXX", path[512];
    struct err err;
    (void)state;
    assert_non_null(mkdtemp(sys));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/class/%s", sys, files[i].path);
        *strrchr(path, '/') = 0;
        assert_int_equal(file_mkdirs(path, &err), 0);
        snprintf(path, sizeof path, "%s/class/%s", sys, files[i].path);
        assert_int_equal(file_publish(path, files[i].text, strlen(files[i].text), &err), 0);
    }
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (rate_of_nic(sys, table[i].name) != table[i].gbit * 1e9 / 8)
            fail_msg("%s: %g B/s", table[i].name, rate_of_nic(sys, table[i].name));
    file_remove_tree(sys, NULL);
}

static void replace(char *text, const char *from, const char *to)
{
    for (char *p = text; (p = strstr(p, from)); p += strlen(to))
        memcpy(p, to, strlen(to));
}

/* A cpuset may leave a process units of NUMA nodes that it takes from it. */
static void units_without_a_node(void **state)
{
    struct str xml = STR_INIT;
    struct topo t;
    struct err err = {0};
    (void)state;
    machine_xml("/", &xml);
    char *node = strstr(xml.p, "<object type=\"NUMANode\" os_index=\"1\"");
    memset(node, ' ', strcspn(node, "\n"));
    replace(xml.p, " nodeset=\"0x00000002", " nodeset=\"0x00000000");
    replace(xml.p, "nodeset=\"0x00000003", "nodeset=\"0x00000001");
    if (topo_parse(xml.p, xml.len, "cut", &t, &err) < 0 || topo_check(&t, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(t.pus, 4);
    assert_int_equal(t.pus_apart, 2);
    assert_string_equal(t.cpus_apart, "2-3");
    t.pus_apart = 1;
    assert_int_equal(topo_check(&t, &err), ERR_STATE);
    topo_release(&t);
    str_release(&xml);
}

/* Two CPUs a NUMA node: which of them each of a node's ranks is bound to; none where the ranks do
 * not fill the machine. */
static void bound_ranks(void **state)
{
    static const struct {
        const char *spec;
        int ranks, cpus; /* of the job */
        const char *wanted; /* NULL: not bound */
    } table[] = {
        {"GN|GN/GN|GN", 4, 4, "0@mlx5_0 1@mlx5_1 2@mlx5_2 3@mlx5_3"},
        {"GG/GGE", 4, 4, "0@eth0 1@eth0 2@eth0 3@eth0"},
        {"G/GE", 2, 4, "0-1@eth0 2-3@eth0"},
        {"G/G", 2, 4, "0-1 2-3"},
        {"G/G", 4, 4, NULL},
        {"G/G", 1, 4, NULL},
        {"G/G", 2, 2, NULL},
        {"/", 2, 4, "0-1 2-3"},
        {"/", 4, 4, "0 1 2 3"},
        {"/", 1, 4, NULL},
        {"/", 3, 4, NULL},
        {"/", 8, 4, NULL},
        {"E", 1, 2, "0-1"},
        {"GGG", 3, 2, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct str xml = STR_INIT, got = STR_INIT;
        struct arena arena = {0};
        const char *cpus[8], *nics[8];
        struct topo t;
        bool gpus = false;
        machine_xml(table[i].spec, &xml);
        assert_int_equal(topo_parse(xml.p, xml.len, table[i].spec, &t, NULL), 0);
        bool bound = placement_cpus(&t, table[i].ranks, table[i].cpus, &arena, cpus, nics,
                                    &gpus);
        for (int r = 0; bound && r < table[i].ranks; r++)
            str_addf(&got, *nics[r] ? "%s%s@%s" : "%s%s", r ? " " : "", cpus[r], nics[r]);
        if (bound != (table[i].wanted != NULL) || (bound && strcmp(got.p, table[i].wanted) != 0))
            fail_msg("%s, %d ranks on %d CPUs: '%s'", table[i].spec, table[i].ranks, table[i].cpus,
                     got.p);
        if (bound)
            assert_int_equal(gpus, strchr(table[i].spec, 'G') != NULL);
        arena_release(&arena);
        topo_release(&t);
        str_release(&xml);
        str_release(&got);
    }
}

static void refuses_what_is_no_topology(void **state)
{
    static const char *const bad[] = {"", "no xml", "<topology version=\"2.0\"></topology>",
                                      "<a/>", "<topology version=\"9.0\">"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct topo t = {0};
        struct err err = {0};
        assert_int_equal(topo_parse(bad[i], strlen(bad[i]), "bad.xml", &t, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "bad.xml"));
        assert_null(t.devices);
    }
}

static void usable_cpus(void **state)
{
    static const struct { int64_t pus, affinity; double quota; int64_t usable; } table[] = {
        {8, 0, 0, 8}, {8, 4, 0, 4}, {8, 8, 2.5, 2}, {8, 8, 0.5, 1}, {4, 64, 64, 4}, {0, 0, 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct topo t = {.pus = table[i].pus};
        struct topo_allowed a = {.affinity_cpus = table[i].affinity, .quota_cpus = table[i].quota};
        assert_int_equal(topo_usable_cpus(&t, &a), table[i].usable);
    }
}

static void this_machine(void **state)
{
    struct str xml = STR_INIT;
    struct topo t;
    struct err err = {0};
    (void)state;
    if (topo_capture(false, &xml, &err) < 0 || topo_parse(xml.p, xml.len, "live", &t, &err) < 0 ||
        topo_check(&t, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(t.pus >= 1 && t.cores >= 1 && t.cores <= t.pus && t.memory_bytes > 0);
    topo_release(&t);
    str_release(&xml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(machines), cmocka_unit_test(links),
                                       cmocka_unit_test(pci_switches),
                                       cmocka_unit_test(nic_rates),
                                       cmocka_unit_test(units_without_a_node),
                                       cmocka_unit_test(bound_ranks),
                                       cmocka_unit_test(refuses_what_is_no_topology),
                                       cmocka_unit_test(usable_cpus),
                                       cmocka_unit_test(this_machine)};
    return cmocka_run_group_tests_name("topo", tests, NULL, NULL);
}
