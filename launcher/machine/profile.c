#include "launcher/machine/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/sched/hosts.h"

static const double LINK_LATENCY_S = 3.4e-6, PCI_LATENCY_S = 5.7e-6, NIC_LATENCY_S = 14e-6,
                    CORE_LATENCY_S = 1e-6;

/* ---- one machine ---- */

/* Tells whether ranks of this machine send to other nodes by this NIC: it is the nearest one to
 * some GPU, or there is no GPU and no faster NIC. */
static bool carries(const struct topo *t, int64_t nic)
{
    const struct topo_device *d = &t->devices[nic];
    for (int64_t g = 0; g < t->n_gpus; g++)
        if (t->devices[g].near == nic)
            return true;
    if (t->n_gpus > 0 || !*d->pci)
        return false;
    for (int64_t i = 0; i < t->n_devices; i++)
        if (t->devices[i].rate_bytes_per_s > d->rate_bytes_per_s)
            return false;
    return true;
}

/* Returns the lowest rate of the NICs by which ranks send to other nodes: that of their ports, or
 * without `ports` that of their PCI links. 0: the rate of one of these NICs is unknown. */
static double nic_rate(const struct topo *t, bool ports)
{
    double least = 0;
    for (int64_t i = t->n_gpus; i < t->n_devices; i++) {
        const struct topo_device *d = &t->devices[i];
        double rate = ports ? d->rate_bytes_per_s : d->link_bytes_per_s;
        if (!carries(t, i))
            continue;
        if (rate <= 0)
            return 0;
        least = least > 0 && least < rate ? least : rate;
    }
    return least;
}

static int64_t nics_count(const struct topo *t)
{
    int64_t n = 0;
    for (int64_t i = t->n_gpus; i < t->n_devices; i++)
        n += carries(t, i);
    return n;
}

static double pci_rate(const struct topo *t)
{
    double least = 0;
    for (int64_t i = 0; i < t->n_gpus; i++) {
        double rate = t->devices[i].link_bytes_per_s;
        least = i == 0 || rate < least ? rate : least;
    }
    return least;
}

/* Tells whether two machines are of one kind, so that a profile of one holds for the other. */
static bool alike(const struct topo *a, const struct topo *b)
{
    for (int64_t i = 0; i < a->n_gpus && i < b->n_gpus; i++)
        if (strcmp(a->devices[i].pci_id, b->devices[i].pci_id) != 0 ||
            strcmp(a->devices[i].model, b->devices[i].model) != 0)
            return false;
    return a->n_gpus == b->n_gpus && a->cores == b->cores && nics_count(a) == nics_count(b) &&
           nic_rate(a, true) == nic_rate(b, true) &&
           topo_links_bytes_per_s(a) == topo_links_bytes_per_s(b);
}

/* ---- all machines ---- */

/* Holds the machines that the profile describes. */
struct chosen {
    const struct profile_node **v;
    size_t n;
};

static int choose(const struct profile_ask *ask, struct chosen *c, struct str *notes,
                  struct err *err)
{
    const char **left = calloc(ask->n + 1, sizeof *left);
    const struct topo *most = NULL;
    size_t best = 0, n_left = 0;
    if (!left || !(c->v = calloc(ask->n + 1, sizeof *c->v))) {
        free(left);
        return err_set(err, ERR_NOMEM, "out of memory for %zu nodes", ask->n);
    }
    for (size_t i = 0; i < ask->n; i++) {
        size_t same = 0;
        for (size_t k = 0; k < ask->n; k++)
            same += alike(ask->nodes[i].topo, ask->nodes[k].topo);
        if (same > best) {
            best = same;
            most = ask->nodes[i].topo;
        }
    }
    for (size_t i = 0; i < ask->n; i++)
        if (alike(most, ask->nodes[i].topo))
            c->v[c->n++] = &ask->nodes[i];
        else
            left[n_left++] = ask->nodes[i].name;
    if (n_left) {
        str_add(notes, "left out, for their GPUs, links, cores or NICs are not those of most: ");
        hosts_fold(left, n_left, notes);
        str_addc(notes, '\n');
    }
    free(left);
    return 0;
}

static int device_fill(const struct profile_ask *ask, const struct topo *t, struct device *out,
                       struct str *notes, struct err *err)
{
    const struct topo_device *gpu = t->devices;
    if (ask->device) {
        *out = *ask->device;
        if (t->n_gpus == 0)
            str_addf(notes, "no GPU is seen: each of the %lld cores is taken for one %s\n",
                     (long long)t->cores, out->name);
        return 0;
    }
    if (t->n_gpus == 0)
        return err_set(err, ERR_INPUT,
                       "%s has no GPU: name what it computes with by --device FILE, a reel.gpu/1 "
                       "of one core",
                       t->source);
    if (device_find(gpu->pci_id, gpu->model, out, NULL) < 0)
        return err_set(err, ERR_INPUT,
                       "%s: no profile is of the GPU '%s', PCI %s: name one by --device NAME, or "
                       "write a reel.gpu/1 and give --device FILE",
                       t->source, gpu->model, gpu->pci_id);
    if (gpu->driven && gpu->memory_bytes > out->reserved_bytes &&
        gpu->memory_bytes != out->memory_bytes) {
        str_addf(notes, "the memory of a GPU is the driver's, %lld bytes, where %s has %lld\n",
                 (long long)gpu->memory_bytes, out->name, (long long)out->memory_bytes);
        out->memory_bytes = gpu->memory_bytes;
    }
    return 0;
}

static void links_fill(const struct topo *t, const struct device *d, struct node_profile *out,
                       struct str *notes)
{
    double told = topo_links_bytes_per_s(t), sheet = d->link_bytes_per_s;
    out->link_latency_s = LINK_LATENCY_S;
    if (t->n_gpus == 0) {
        out->link_bytes_per_s = d->memory_bytes_per_s;
        out->link_latency_s = CORE_LATENCY_S;
    } else if (told > 0) {
        out->link_bytes_per_s = sheet > 0 && sheet < told ? sheet : told;
    } else if (!t->links.kind && !t->devices[0].driven && sheet > 0) {
        out->link_bytes_per_s = sheet;
        str_addf(notes, "nobody tells of links between the GPUs: %s's datasheet is taken\n",
                 d->name);
    } else {
        out->link_bytes_per_s = pci_rate(t);
        out->link_latency_s = PCI_LATENCY_S;
    }
    if (out->link_bytes_per_s <= 0) {
        out->link_bytes_per_s = sheet > 0 ? sheet : d->memory_bytes_per_s;
        str_addf(notes, "the rate between the GPUs is not known: %g GB/s of %s is taken\n",
                 out->link_bytes_per_s / 1e9, d->name);
    }
}

static int nics_fill(const struct profile_ask *ask, const struct topo *t, size_t nodes,
                     struct node_profile *out, struct str *notes, struct err *err)
{
    double ports = nic_rate(t, true), pci = nic_rate(t, false);
    out->nics = nics_count(t);
    out->nic_latency_s = NIC_LATENCY_S;
    out->nic_bytes_per_s = ports > 0 ? ports : pci;
    if (ask->nic_bytes_per_s > 0)
        out->nic_bytes_per_s = ask->nic_bytes_per_s;
    if (out->nics > 0 && ask->nic_bytes_per_s <= 0 && ports <= 0 && pci > 0)
        str_addf(notes,
                 "no port of the NICs tells its rate: that of their PCI link is taken, %g GB/s\n",
                 pci / 1e9);
    if (nodes > 1 && (out->nics == 0 || out->nic_bytes_per_s <= 0))
        return err_set(err, ERR_INPUT,
                       "%s: %s: give the rate of a port by --nic-gbits", t->source,
                       out->nics == 0 ? "it has no NIC near a GPU" : "its NICs tell no rate");
    if (out->nic_bytes_per_s <= 0)
        out->nics = 0;
    return 0;
}

/* Returns the most frequent number of nodes below a leaf switch; 0: there are fewer than two
 * leaves, or none is known. */
static int64_t leaf_size(const struct chosen *c, struct str *notes)
{
    int64_t best = 0, best_times = 0, leaves = 0;
    bool even = true;
    for (size_t i = 0, end; i < c->n; i = end, leaves++) {
        int64_t times = 0;
        for (end = i; end < c->n && strcmp(c->v[end]->path, c->v[i]->path) == 0;)
            end++;
        for (size_t k = 0, stop; k < c->n; k = stop) {
            for (stop = k; stop < c->n && strcmp(c->v[stop]->path, c->v[k]->path) == 0;)
                stop++;
            times += stop - k == end - i;
        }
        even &= best == 0 || (int64_t)(end - i) == best;
        if (times > best_times || (times == best_times && (int64_t)(end - i) > best)) {
            best = (int64_t)(end - i);
            best_times = times;
        }
    }
    if (leaves < 2)
        return 0;
    if (!even)
        str_addf(notes, "leaves have unequal numbers of nodes: %lld of %lld have the %lld taken\n",
                 (long long)best_times, (long long)leaves, (long long)best);
    str_addf(notes, "how much the spine is oversubscribed is not told: 1 is taken\n");
    return best;
}

static void hosts_fill(const struct chosen *c, struct node_profile *out)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct topo *t = c->v[i]->topo;
        if (i == 0 || t->memory_bytes < out->memory_bytes)
            out->memory_bytes = t->memory_bytes;
    }
    out->cores = c->v[0]->topo->cores;
    out->devices = c->v[0]->topo->n_gpus > 0 ? c->v[0]->topo->n_gpus : out->cores;
}

int profile_make(const struct profile_ask *ask, struct cluster *out, struct str *notes,
                 struct err *err)
{
    struct cluster c = {.domain_nodes = 1, .spine_oversubscription = 1};
    struct chosen chosen = {0};
    int rc;
    if (ask->n == 0)
        return err_set(err, ERR_INPUT, "no node of %s is known: nothing to describe", ask->name);
    if ((rc = choose(ask, &chosen, notes, err)) < 0)
        goto out;
    const struct topo *t = chosen.v[0]->topo;
    snprintf(c.name, sizeof c.name, "%s", ask->name);
    hosts_fill(&chosen, &c.node);
    if ((rc = device_fill(ask, t, &c.device, notes, err)) < 0)
        goto out;
    links_fill(t, &c.device, &c.node, notes);
    if ((rc = nics_fill(ask, t, chosen.n, &c.node, notes, err)) < 0)
        goto out;
    c.nodes = (int64_t)chosen.n;
    c.max_nodes = c.nodes;
    c.leaf_nodes = leaf_size(&chosen, notes);
    *out = c;
out:
    free(chosen.v);
    return rc;
}
