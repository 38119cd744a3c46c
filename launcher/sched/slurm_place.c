/* This file places the ranks of a step on Slurm: it orders the nodes of this process's job as
 * place.h says, and writes a host file for srun (srun(1) SLURM_HOSTFILE, --distribution=arbitrary:
 * rank r runs on the host of line r). */
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/id.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/slurm_priv.h"

/* Asks for the cluster's switches, once. Without an answer Slurm's own order applies, and a warning
 * says so. */
static int net_load(struct sched_slurm *s, struct err *err)
{
    struct err why = {0};
    if (!s->net_asked) {
        s->net_asked = true;
        if (s->rpc->ops->net(s->rpc, false, &s->net_arena, &s->net, &why) < 0) {
            s->net = (struct slurm_net){0};
            log_msg(LOG_WARN,
                    "the switches are not known, ranks go to the nodes in Slurm's order: %s",
                    why.text);
        }
    }
    return s->net.kind
               ? 0
               : err_set(err, ERR_NOT_FOUND, "the switches of this cluster are not known");
}

static int nodes_wanted(const struct sched_step_spec *spec, size_t allotted, size_t *out,
                        struct err *err)
{
    int64_t n = spec->nodes ? spec->nodes : num_min_i64((int64_t)allotted, spec->ranks);
    bool chosen = n > 1 || allotted == 1; /* otherwise srun chooses one of several nodes */
    if (spec->per_node || !chosen || n > (int64_t)allotted || n > spec->ranks)
        return err_set(err, ERR_NOT_FOUND,
                       "a step of %d ranks on %lld of %zu nodes: there is nothing to place",
                       spec->ranks, (long long)n, allotted);
    *out = (size_t)n;
    return 0;
}

int slurm_place(struct sched_slurm *s, const struct sched_step_spec *spec, struct arena *arena,
                struct sched_placement *out, struct err *err)
{
    const char *list = getenv("SLURM_JOB_NODELIST"), **names;
    int64_t groups[PLACE_GROUPS + 1];
    struct place_node *nodes;
    size_t allotted, wanted = 0;
    int rc;
    if ((rc = hosts_expand(list ? list : "", arena, &names, &allotted, err)) < 0)
        return rc;
    if ((rc = hosts_remove(names, &allotted, spec->exclude, arena, err)) < 0)
        return rc;
    if ((rc = nodes_wanted(spec, allotted, &wanted, err)) < 0)
        return rc;
    if (allotted == 1) { /* with one node, switches do not matter */
        if (!(nodes = arena_array(arena, 1, sizeof *nodes)))
            return err_set(err, ERR_NOMEM, "out of memory");
        *nodes = (struct place_node){names[0], ""};
        *out = (struct sched_placement){nodes, 1, spec->ranks, "none"};
        return 0;
    }
    if ((rc = net_load(s, err)) < 0)
        return rc;
    if ((rc = place_paths(&s->net, names, allotted, arena, &nodes, err)) < 0)
        return rc;
    place_groups(spec->groups, num_ceil_div(spec->ranks, (int64_t)wanted), groups);
    if ((rc = place_order(nodes, allotted, groups, err)) < 0)
        return rc;
    *out = (struct sched_placement){nodes, wanted, spec->ranks, s->net.kind};
    return 0;
}

int slurm_host_file_write(const struct sched_slurm *s, const struct sched_placement *p,
                          struct arena *arena, const char **path, struct err *err)
{
    char hex[ID_TEXT_BYTES];
    struct str text = STR_INIT;
    struct id id;
    int rc;
    if ((rc = id_random(&id, err)) < 0)
        return rc;
    if ((rc = file_mkdirs(s->dir, err)) < 0)
        return rc;
    if (!(*path = arena_printf(arena, "%s/hosts-%s", s->dir, id_format(id, hex))))
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < p->n; i++)
        for (int64_t r = place_first_rank(p->ranks, p->n, i);
             r < place_first_rank(p->ranks, p->n, i + 1); r++)
            str_addf(&text, "%s\n", p->nodes[i].name);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = file_publish(*path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}
