/* This file shows a machine to people, and writes it for programs as the object reel.topo/1. */
#include <string.h>

#include "base/num.h"
#include "launcher/machine/topo.h"

static void format_device(const struct topo *t, const struct topo_device *d, struct str *out)
{
    char bytes[32] = "";
    if (d->memory_bytes > 0)
        num_format_bytes(d->memory_bytes, bytes, sizeof bytes);
    str_addf(out, "  %-4s %-14s %-13s ", d->kind == TOPO_GPU ? "GPU" : "NIC", d->name, d->pci);
    if (d->numa >= 0)
        str_addf(out, "NUMA %-3lld ", (long long)d->numa);
    else
        str_addf(out, "NUMA -   ");
    str_addf(out, "cpus %-16s", *d->cpus ? d->cpus : "-");
    if (d->link_bytes_per_s > 0)
        str_addf(out, " PCI %.1f GB/s", d->link_bytes_per_s / 1e9);
    if (d->rate_bytes_per_s > 0)
        str_addf(out, " port %.1f GB/s", d->rate_bytes_per_s / 1e9);
    if (d->near >= 0)
        str_addf(out, " nearest NIC %s (%s%s)", t->devices[d->near].name, d->near_at,
                 d->near_shared > 1 ? ", shared" : "");
    str_addf(out, " %s %s\n", d->model, bytes);
}

static const char *on_off(int64_t value)
{
    return value < 0 ? "unknown" : value ? "on" : "off";
}

/* Returns the first GPU that the driver has, or else the first one. */
static const struct topo_device *gpu_first(const struct topo *t)
{
    for (int64_t i = 0; i < t->n_gpus; i++)
        if (t->devices[i].driven)
            return &t->devices[i];
    return t->devices;
}

/* Adds a line for each property in which a GPU differs from the first one. */
static void gpu_disagree(const struct topo_device *d, const struct topo_device *first,
                         struct str *lines)
{
    if (strcmp(d->model, first->model) != 0)
        str_addf(lines, "GPU %s is a %s, %s a %s\n", d->name, d->model, first->name, first->model);
    if (d->memory_bytes != first->memory_bytes)
        str_addf(lines, "GPU %s has %lld bytes of memory, %s %lld\n", d->name,
                 (long long)d->memory_bytes, first->name, (long long)first->memory_bytes);
    if (d->ecc != first->ecc)
        str_addf(lines, "GPU %s has ECC %s, %s %s\n", d->name, on_off(d->ecc), first->name,
                 on_off(first->ecc));
    if (d->sm_mhz != first->sm_mhz)
        str_addf(lines, "GPU %s may clock to %lld MHz, %s to %lld\n", d->name,
                 (long long)d->sm_mhz, first->name, (long long)first->sm_mhz);
}

void topo_disagree(const struct topo *t, struct str *lines)
{
    if (*t->driver_error)
        str_addf(lines, "%s\n", t->driver_error);
    if (*t->unseen)
        str_addf(lines, "the driver has GPUs that hwloc does not see: %s\n", t->unseen);
    for (int64_t i = 0; i < t->n_gpus; i++) {
        const struct topo_device *d = &t->devices[i];
        if (*t->driver && !d->driven && str_starts(d->pci_id, "10de:"))
            str_addf(lines, "hwloc sees GPU %s (%s), the driver does not have it\n", d->name,
                     d->pci);
        else
            gpu_disagree(d, gpu_first(t), lines);
        if (d->mig == 1)
            str_addf(lines, "GPU %s is divided by MIG: a rank gets a part of it\n", d->name);
    }
}

/* Writes the driver's release, the clocks and modes of the first GPU, and the disagreements. */
static void format_driver(const struct topo *t, struct str *out)
{
    struct str lines = STR_INIT;
    const struct topo_device *d = gpu_first(t);
    if (*t->driver && t->n_gpus > 0)
        str_addf(out, "  driver %s: SM clock %lld of %lld MHz, ECC %s, MIG %s\n", t->driver,
                 (long long)d->sm_mhz, (long long)d->sm_max_mhz, on_off(d->ecc), on_off(d->mig));
    topo_disagree(t, &lines);
    for (char *line = lines.p; lines.len && *line; line += strcspn(line, "\n") + 1)
        str_addf(out, "  disagrees: %.*s\n", (int)strcspn(line, "\n"), line);
    out->failed |= lines.failed;
    str_release(&lines);
}

/* Returns the width of the longest name of a GPU. */
static int names_width(const struct topo *t)
{
    int width = 5;
    for (int64_t i = 0; i < t->n_gpus; i++)
        width = (int)strlen(t->devices[i].name) > width ? (int)strlen(t->devices[i].name) : width;
    return width;
}

static void format_rate(double bytes_per_s, int width, struct str *out)
{
    if (bytes_per_s > 0)
        str_addf(out, " %*.1f", width, bytes_per_s / 1e9);
    else
        str_addf(out, " %*s", width, ".");
}

/* Writes the links as a table of GPUs by GPUs, with a column for the processors if these have
 * any. */
static void format_matrix(const struct topo *t, struct str *out)
{
    int width = names_width(t);
    bool cpu = false;
    for (int64_t i = 0; i < t->n_gpus; i++)
        cpu |= t->links.cpu_bytes_per_s[i] > 0;
    str_addf(out, "  links %s, GB/s in one direction\n    %*s", t->links.kind, width, "");
    for (int64_t i = 0; i < t->n_gpus; i++)
        str_addf(out, " %*s", width, t->devices[i].name);
    str_addf(out, cpu ? " %*s\n" : "\n", width, "CPU");
    for (int64_t a = 0; a < t->n_gpus; a++) {
        str_addf(out, "    %-*s", width, t->devices[a].name);
        for (int64_t b = 0; b < t->n_gpus; b++)
            if (a == b)
                str_addf(out, " %*s", width, "-");
            else
                format_rate(t->links.bytes_per_s[a * t->n_gpus + b], width, out);
        if (cpu)
            format_rate(t->links.cpu_bytes_per_s[a], width, out);
        str_addc(out, '\n');
    }
}

static void format_links(const struct topo *t, struct str *out)
{
    double even = topo_links_even(t);
    if (!t->links.kind)
        return;
    if (even > 0)
        str_addf(out, "  links %s%s: each of %lld GPUs to each other, %.1f GB/s in one direction\n",
                 t->links.kind, t->links.switched ? " by switches" : "", (long long)t->n_gpus,
                 even / 1e9);
    else
        format_matrix(t, out);
}

static void format_switch(const struct topo *t, const struct topo_switch *s, struct str *out)
{
    str_addf(out, "  PCI switch %s", s->pci);
    if (s->link_bytes_per_s > 0)
        str_addf(out, " (%.1f GB/s up)", s->link_bytes_per_s / 1e9);
    for (int64_t i = 0; i < s->n_devices; i++)
        str_addf(out, "%s %s", i ? "," : ":", t->devices[s->devices[i]].name);
    str_addc(out, '\n');
}

void topo_format(const struct topo *t, const struct topo_allowed *a, struct str *out)
{
    char bytes[32];
    str_addf(out, "%s (%s): %lld package%s, %lld cores, %lld processing units, %s memory\n",
             *t->host ? t->host : "machine", t->source, (long long)t->packages,
             t->packages == 1 ? "" : "s", (long long)t->cores, (long long)t->pus,
             num_format_bytes(t->memory_bytes, bytes, sizeof bytes));
    if (*t->cpu_model)
        str_addf(out, "  CPU  %s\n", t->cpu_model);
    for (int64_t i = 0; i < t->n_numa; i++)
        str_addf(out, "  NUMA %-3lld cores %-4lld memory %-10s cpus %s\n", (long long)i,
                 (long long)t->numa[i].cores,
                 num_format_bytes(t->numa[i].memory_bytes, bytes, sizeof bytes),
                 *t->numa[i].cpus ? t->numa[i].cpus : "-");
    if (t->pus_apart > 0)
        str_addf(out, "  no NUMA node: %lld processing units, cpus %s\n", (long long)t->pus_apart,
                 t->cpus_apart);
    for (int64_t i = 0; i < t->n_devices; i++)
        format_device(t, &t->devices[i], out);
    if (t->n_gpus == 0)
        str_addf(out, "  no GPU seen\n");
    format_driver(t, out);
    format_links(t, out);
    for (int64_t i = 0; i < t->n_switches; i++)
        format_switch(t, &t->switches[i], out);
    if (!a)
        return;
    str_addf(out, "  usable here: %lld of %lld processing units", (long long)topo_usable_cpus(t, a),
             (long long)t->pus);
    if (a->quota_cpus > 0)
        str_addf(out, " (cgroup quota %.2f)", a->quota_cpus);
    if (a->affinity_cpus > 0 && a->affinity_cpus < t->pus)
        str_addf(out, " (affinity mask %lld)", (long long)a->affinity_cpus);
    if (a->memory_bytes > 0)
        str_addf(out, ", memory limited to %s",
                 num_format_bytes(a->memory_bytes, bytes, sizeof bytes));
    str_addc(out, '\n');
}

static void write_driven(const struct topo_device *d, struct json_out *o)
{
    json_obj_begin(o, "driver");
    json_put_int(o, "sm_mhz", d->sm_mhz);
    json_put_int(o, "sm_max_mhz", d->sm_max_mhz);
    json_put_text(o, "ecc", on_off(d->ecc));
    json_put_text(o, "mig", on_off(d->mig));
    json_obj_end(o);
}

static void write_disagreements(const struct topo *t, struct json_out *o)
{
    struct str lines = STR_INIT;
    topo_disagree(t, &lines);
    json_arr_begin(o, "disagreements");
    for (char *line = lines.p, *end; lines.len && *line; line = end + 1) {
        end = line + strcspn(line, "\n");
        *end = 0;
        json_put_text(o, NULL, line);
    }
    json_arr_end(o);
    str_release(&lines);
}

static void write_device(const struct topo *t, const struct topo_device *d, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "kind", d->kind == TOPO_GPU ? "gpu" : "nic");
    json_put_text(o, "name", d->name);
    json_put_text(o, "model", d->model);
    json_put_text(o, "pci", d->pci);
    json_put_text(o, "pci_id", d->pci_id);
    json_put_text(o, "cpus", d->cpus);
    json_put_int(o, "numa", d->numa);
    json_put_num(o, "link_bytes_per_s", d->link_bytes_per_s);
    if (d->kind == TOPO_NIC)
        json_put_num(o, "rate_bytes_per_s", d->rate_bytes_per_s);
    json_put_int(o, "memory_bytes", d->memory_bytes);
    if (d->driven)
        write_driven(d, o);
    if (d->near >= 0) {
        json_put_text(o, "nearest_nic", t->devices[d->near].name);
        json_put_text(o, "nearest_nic_at", d->near_at);
        json_put_int(o, "nearest_nic_shared_by", d->near_shared);
    }
    json_obj_end(o);
}

/* Writes the links: for each GPU its rate to every GPU, in the order of the GPUs among the
 * devices. */
static void write_links(const struct topo *t, struct json_out *o)
{
    json_obj_begin(o, "links");
    json_put_text(o, "kind", t->links.kind);
    json_put_bool(o, "switched", t->links.switched);
    json_put_num(o, "bytes_per_s", topo_links_bytes_per_s(t));
    json_arr_begin(o, "gpus");
    for (int64_t a = 0; a < t->n_gpus; a++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", t->devices[a].name);
        json_arr_begin(o, "to_gpus_bytes_per_s");
        for (int64_t b = 0; b < t->n_gpus; b++)
            json_put_num(o, NULL, t->links.bytes_per_s[a * t->n_gpus + b]);
        json_arr_end(o);
        json_put_num(o, "to_cpus_bytes_per_s", t->links.cpu_bytes_per_s[a]);
        json_obj_end(o);
    }
    json_arr_end(o);
    json_obj_end(o);
}

static void write_switches(const struct topo *t, struct json_out *o)
{
    json_arr_begin(o, "pci_switches");
    for (int64_t i = 0; i < t->n_switches; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "pci", t->switches[i].pci);
        json_put_num(o, "link_bytes_per_s", t->switches[i].link_bytes_per_s);
        json_arr_begin(o, "devices");
        for (int64_t k = 0; k < t->switches[i].n_devices; k++)
            json_put_text(o, NULL, t->devices[t->switches[i].devices[k]].name);
        json_arr_end(o);
        json_obj_end(o);
    }
    json_arr_end(o);
}

void topo_write(const struct topo *t, const struct topo_allowed *a, const char *key,
                struct json_out *o)
{
    json_obj_begin(o, key);
    json_put_text(o, "schema", "reel.topo/1");
    json_put_text(o, "source", t->source);
    json_put_text(o, "host", t->host);
    json_put_text(o, "arch", t->arch);
    json_put_text(o, "cpu_model", t->cpu_model);
    json_put_text(o, "driver", t->driver);
    json_put_int(o, "packages", t->packages);
    json_put_int(o, "cores", t->cores);
    json_put_int(o, "pus", t->pus);
    json_put_int(o, "pus_apart", t->pus_apart);
    json_put_int(o, "memory_bytes", t->memory_bytes);
    json_arr_begin(o, "numa");
    for (int64_t i = 0; i < t->n_numa; i++) {
        json_obj_begin(o, NULL);
        json_put_int(o, "os_index", t->numa[i].os_index);
        json_put_int(o, "cores", t->numa[i].cores);
        json_put_int(o, "pus", t->numa[i].pus);
        json_put_int(o, "memory_bytes", t->numa[i].memory_bytes);
        json_put_text(o, "cpus", t->numa[i].cpus);
        json_obj_end(o);
    }
    json_arr_end(o);
    json_arr_begin(o, "devices");
    for (int64_t i = 0; i < t->n_devices; i++)
        write_device(t, &t->devices[i], o);
    json_arr_end(o);
    if (t->links.kind)
        write_links(t, o);
    write_switches(t, o);
    write_disagreements(t, o);
    if (a) {
        json_obj_begin(o, "allowed");
        json_put_int(o, "usable_cpus", topo_usable_cpus(t, a));
        json_put_int(o, "affinity_cpus", a->affinity_cpus);
        json_put_num(o, "quota_cpus", a->quota_cpus);
        json_put_int(o, "memory_bytes", a->memory_bytes);
        json_obj_end(o);
    }
    json_obj_end(o);
}
