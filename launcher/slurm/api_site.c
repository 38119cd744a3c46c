/* This file writes site, nodes and network as Slurm's commands would print them. The parser of the
 * commands' output then reads the text, so only that parser interprets it. */
#include "launcher/slurm/api.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"
#include "launcher/sched/slurm_text.h"

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
#define slurm_free_ctl_conf slurm_free_conf
#endif

/* These macros pass the arguments that ask for the topology of all names, nodes and units. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
#define TOPO_ARGS(t) (t), NULL
#define TOPO_ALL NULL, NULL,
#elif SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
#define TOPO_ARGS(t) (t)
#define TOPO_ALL NULL,
#else
#define TOPO_ARGS(t) (t)
#define TOPO_ALL
#endif

enum { SHOW = SHOW_ALL | SHOW_LOCAL };

/* Takes what libslurm printed into f, which is scontrol's output. */
static int printed(FILE *f, char **text, struct str *out, struct err *err)
{
    out->failed |= fclose(f) != 0;
    str_add(out, *text ? *text : "");
    free(*text);
    return str_check(out, err);
}

/* Writes what `scontrol show config` prints. */
static int config_write(struct str *out, struct err *err)
{
    slurm_conf_t *conf = NULL;
    char *text = NULL;
    size_t n;
    if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS)
        return api_error("configuration", err);
    FILE *f = open_memstream(&text, &n);
    if (f)
        slurm_print_ctl_conf(f, conf);
    slurm_free_ctl_conf(conf);
    return f ? printed(f, &text, out, err) : err_set(err, ERR_NOMEM, "out of memory");
}

/* Writes what `sinfo -h -o '%R|%c|%G'` prints: a line for each node. node_inx holds the first and
 * last index of each range in the node table, then -1. */
static void nodes_write(const partition_info_t *p, const node_info_msg_t *nodes, struct str *out)
{
    for (const int32_t *range = p->node_inx; range && *range >= 0; range += 2)
        for (int32_t i = range[0]; i <= range[1] && i < (int32_t)nodes->record_count; i++)
            if (nodes->node_array[i].name)
                str_addf(out, "%s|%u|%s\n", p->name, (unsigned)nodes->node_array[i].cpus,
                         nodes->node_array[i].gres ? nodes->node_array[i].gres : "");
}

/* Writes what `scontrol show partition -o` prints, and the partitions' nodes. */
static int write_both(partition_info_msg_t *p, const node_info_msg_t *n, struct str *partitions,
                      struct str *nodes, struct err *err)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; i < p->record_count; i++) {
        slurm_print_partition_info(f, &p->partition_array[i], 1);
        nodes_write(&p->partition_array[i], n, nodes);
    }
    int rc;
    if ((rc = printed(f, &text, partitions, err)) < 0)
        return rc;
    return str_check(nodes, err);
}

/* Loads partitions and nodes; the caller frees them after a failure too. */
static int both_load(partition_info_msg_t **p, node_info_msg_t **n, struct err *err)
{
    if (slurm_load_partitions(0, p, SHOW) != SLURM_SUCCESS)
        return api_error("partitions", err);
    return slurm_load_node(0, n, SHOW) == SLURM_SUCCESS ? 0 : api_error("nodes", err);
}

static int partitions_write(struct str *partitions, struct str *nodes, struct err *err)
{
    partition_info_msg_t *p = NULL;
    node_info_msg_t *n = NULL;
    int rc;
    if ((rc = both_load(&p, &n, err)) < 0)
        goto out;
    rc = write_both(p, n, partitions, nodes, err);
out:
    slurm_free_partition_info_msg(p);
    slurm_free_node_info_msg(n);
    return rc;
}

int api_site(struct arena *arena, struct slurm_site *out, struct err *err)
{
    struct str config = STR_INIT, partitions = STR_INIT, nodes = STR_INIT;
    int rc;
    if ((rc = config_write(&config, err)) < 0)
        goto out;
    if ((rc = partitions_write(&partitions, &nodes, err)) < 0)
        goto out;
    rc = slurm_text_site(config.p, partitions.p, nodes.p, arena, out, err);
out:
    str_release(&config);
    str_release(&partitions);
    str_release(&nodes);
    return rc;
}

/* Writes what `scontrol show node -o` prints. */
static int nodes_print(struct str *out, struct err *err)
{
    partition_info_msg_t *p = NULL;
    node_info_msg_t *n = NULL;
    char *text = NULL;
    size_t size;
    FILE *f = NULL;
    int rc;
    if ((rc = both_load(&p, &n, err)) < 0)
        goto out;
    if (!(f = open_memstream(&text, &size))) {
        rc = err_set(err, ERR_NOMEM, "out of memory");
        goto out;
    }
    slurm_populate_node_partitions(n, p);
    for (uint32_t i = 0; i < n->record_count; i++)
        if (n->node_array[i].name)
            slurm_print_node_table(f, &n->node_array[i], 1);
    rc = printed(f, &text, out, err);
out:
    slurm_free_partition_info_msg(p);
    slurm_free_node_info_msg(n);
    return rc;
}

/* Writes what `scontrol show topology -o` prints. At a site without a topology, libslurm prints
 * nothing here and complains on stderr. */
static int topology_print(struct str *out, struct err *err)
{
    topo_info_response_msg_t *t = NULL;
    char *text = NULL;
    size_t size;
    if (slurm_load_topo(TOPO_ARGS(&t)) != SLURM_SUCCESS)
        return api_error("topology", err);
    FILE *f = open_memstream(&text, &size);
    if (f && t)
        slurm_print_topo_info_msg(f, t, TOPO_ALL 1);
    slurm_free_topo_info_msg(t);
    return f ? printed(f, &text, out, err) : err_set(err, ERR_NOMEM, "out of memory");
}

int api_net(bool with_nodes, struct arena *arena, struct slurm_net *out, struct err *err)
{
    struct str nodes = STR_INIT, topology = STR_INIT;
    int rc;
    if (with_nodes && (rc = nodes_print(&nodes, err)) < 0)
        goto out;
    if ((rc = topology_print(&topology, err)) < 0)
        goto out;
    rc = slurm_text_net(nodes.p, topology.p, arena, out, err);
out:
    str_release(&nodes);
    str_release(&topology);
    return rc;
}
