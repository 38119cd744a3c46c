#include "launcher/cmd/topo_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "launcher/cmd/cmd.h"
#include "launcher/machine/profile.h"
#include "launcher/sched/hosts.h"

static const double BYTES_PER_GBIT = 1e9 / 8;

int topo_profile_check(const struct opt_values *v, struct err *err)
{
    const char *inputs[] = {opt_text(v, "xml"), opt_text(v, "device")};
    struct device device;
    int rc;
    if ((rc = cmd_spare("-o", opt_text(v, "out"), inputs, ARRAY_LEN(inputs), err)) < 0)
        return rc;
    if ((rc = cmd_output_check("-o", opt_text(v, "out"), err)) < 0)
        return rc;
    if (!opt_given(v, "out") && (opt_given(v, "device") || opt_given(v, "nic-gbits")))
        return err_set(err, ERR_USAGE, "--device and --nic-gbits are about a profile: give -o too");
    return opt_given(v, "device") ? device_load(opt_text(v, "device"), &device, err) : 0;
}

static void tell(const struct opt_values *v, const struct cluster *c, struct str *told)
{
    str_addf(told, "profile %s: %lld node%s of %lld %s, %g GB/s between them", opt_text(v, "out"),
             (long long)c->nodes, c->nodes == 1 ? "" : "s", (long long)c->node.devices,
             c->device.name, c->node.link_bytes_per_s / 1e9);
    if (c->node.nics > 0)
        str_addf(told, ", %lld NIC%s of %g GB/s", (long long)c->node.nics,
                 c->node.nics == 1 ? "" : "s", c->node.nic_bytes_per_s / 1e9);
    if (c->leaf_nodes > 0)
        str_addf(told, ", leaves of %lld", (long long)c->leaf_nodes);
    str_addc(told, '\n');
}

static int profile_save(const struct opt_values *v, const struct cluster *c, struct str *told,
                        struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    char place[LIMIT_PATH_BYTES];
    int rc;
    json_out_init(&o, &text, 2);
    cluster_write(c, &o, NULL);
    str_addc(&text, '\n');
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if ((rc = file_publish(cmd_output_place(opt_text(v, "out"), place), text.p, text.len,
                           err)) < 0)
        goto out;
    tell(v, c, told);
out:
    str_release(&text);
    return rc;
}

static int write_profile(const struct opt_values *v, struct profile_ask *ask, struct str *notes,
                         struct str *told, struct err *err)
{
    struct device device;
    struct cluster c;
    int rc;
    if (opt_given(v, "device")) {
        if ((rc = device_load(opt_text(v, "device"), &device, err)) < 0)
            return rc;
        ask->device = &device;
    }
    ask->nic_bytes_per_s = opt_given(v, "nic-gbits") ? opt_num(v, "nic-gbits") * BYTES_PER_GBIT : 0;
    if ((rc = profile_make(ask, &c, notes, err)) < 0)
        return rc;
    for (const char *line = notes->p; notes->len && *line; line += strcspn(line, "\n") + 1)
        log_msg(LOG_WARN, "%.*s", (int)strcspn(line, "\n"), line);
    return profile_save(v, &c, told, err);
}

int topo_profile_machine(const struct opt_values *v, const struct topo *t, struct str *told,
                         struct err *err)
{
    struct str notes = STR_INIT;
    const char *name = *t->host ? t->host : "machine";
    const struct profile_node node = {name, "", t};
    struct profile_ask ask = {.name = name, .nodes = &node, .n = 1};
    int rc = write_profile(v, &ask, &notes, told, err);
    str_release(&notes);
    return rc;
}

/* Reads the newest XML of each usable node, and names the nodes without one in `notes`. */
static int nodes_read(const struct survey *s, const char *dir, struct topo *topos,
                      struct profile_node *nodes, size_t *n, struct str *notes, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str xml = STR_INIT;
    const char **missing = calloc(s->n + 1, sizeof *missing);
    size_t n_missing = 0;
    int rc = missing ? 0 : err_set(err, ERR_NOMEM, "out of memory for %zu nodes", s->n);
    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        const char *name = s->nodes[i].slurm->name;
        if (!survey_node_usable(s->nodes[i].slurm))
            continue;
        snprintf(path, sizeof path, "%s/%s.xml", dir, name);
        str_clear(&xml);
        if (file_read(path, LIMIT_CAPTURE_BYTES, &xml, NULL) < 0) {
            missing[n_missing++] = name;
        } else if ((rc = topo_parse(xml.p, xml.len, path, &topos[*n], err)) == 0) {
            nodes[*n] = (struct profile_node){name, s->nodes[i].path, &topos[*n]};
            (*n)++;
        }
    }
    if (rc == 0 && n_missing) {
        str_add(notes, "left out, for nobody has looked at them yet: ");
        hosts_fold(missing, n_missing, notes);
        str_addc(notes, '\n');
    }
    free(missing);
    str_release(&xml);
    return rc;
}

int topo_profile_cluster(const struct opt_values *v, const struct survey *s, const char *dir,
                         struct str *told, struct err *err)
{
    struct topo *topos = calloc(s->n + 1, sizeof *topos);
    struct profile_node *nodes = calloc(s->n + 1, sizeof *nodes);
    struct str notes = STR_INIT;
    size_t n = 0;
    struct profile_ask ask = {.name = s->site->site.name, .nodes = nodes};
    int rc;
    if (!topos || !nodes) {
        rc = err_set(err, ERR_NOMEM, "out of memory for %zu nodes", s->n);
        goto out;
    }
    if ((rc = nodes_read(s, dir, topos, nodes, &n, &notes, err)) < 0)
        goto out;
    if (n == 0) {
        rc = err_set(err, ERR_INPUT,
                     "no node of cluster %s is known yet: give -o without --no-step, so that the "
                     "nodes are asked",
                     s->site->site.name);
        goto out;
    }
    ask.n = n;
    rc = write_profile(v, &ask, &notes, told, err);
out:
    for (size_t i = 0; i < n; i++)
        topo_release(&topos[i]);
    free(topos);
    free(nodes);
    str_release(&notes);
    return rc;
}
