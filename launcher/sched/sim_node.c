/* This file lets nodes fail, declares them lost, and brings them back. */
#include "launcher/sched/sim_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "launcher/sched/hosts.h"

/* Plans the next failure of a working node. */
static void failure_plan(struct sim *s, int node)
{
    struct sim_node *n = &s->nodes[node];
    if (s->conf.node_mean_s <= 0)
        return;
    double u = sim_draw(s, SIM_DRAW_NODE, (int64_t)node << 24 | n->failures);
    sim_plan(s, s->now_s - s->conf.node_mean_s * log(u), TICK_NODE_FAIL, node, n->failures);
}

int sim_nodes_start(struct sim *s, struct err *err)
{
    s->nodes = calloc((size_t)s->conf.nodes, sizeof *s->nodes);
    s->room = calloc((size_t)s->conf.nodes, 2 * sizeof *s->room);
    if (!s->nodes || !s->room)
        return err_set(err, ERR_NOMEM, "out of memory for %d simulated nodes", s->conf.nodes);
    for (int i = 0; i < s->conf.nodes; i++) {
        s->nodes[i].cores_free = s->conf.cores_per_node;
        s->nodes[i].gpus_free = s->conf.gpus_per_node;
        failure_plan(s, i);
    }
    s->nodes_up = s->conf.nodes;
    return 0;
}

static bool uses(const int *where, int n, int node)
{
    for (int i = 0; i < n; i++)
        if (where[i] == node)
            return true;
    return false;
}

/* Stops the jobs and steps on the node, without reporting their end. */
static void fail(struct sim *s, int node)
{
    struct sim_node *n = &s->nodes[node];
    if (n->silent)
        return;
    n->silent = true;
    n->failures++;
    sim_tell(s, SIM_NODE_FAILED, node, 0);
    for (size_t i = 0; i < s->n_active; i++)
        if (uses(s->active[i]->where, s->active[i]->spec.nodes, node))
            s->active[i]->stuck = true;
    for (struct sim_step *st = s->steps; st; st = st->next)
        st->stuck |= uses(st->where, st->nodes, node);
    sim_plan(s, s->now_s + s->conf.node_timeout_s, TICK_NODE_LOST, node, n->failures);
    sim_plan(s, s->now_s + s->conf.repair_s, TICK_NODE_BACK, node, n->failures);
}

/* Ends the jobs and steps on a node that was declared lost, or that came back without them. */
static void lose(struct sim *s, int node)
{
    sim_steps_lose(s, 0, node);
    for (size_t i = s->n_active; i-- > 0;) {
        struct sim_job *j = s->active[i];
        if (uses(j->where, j->spec.nodes, node))
            sim_job_end(s, j, node);
    }
    s->dirty = true;
}

static void give_up(struct sim *s, int node)
{
    struct sim_node *n = &s->nodes[node];
    n->down = true;
    n->down_s = s->now_s;
    s->nodes_up--;
    sim_tell(s, SIM_NODE_LOST, node, 0);
    lose(s, node);
}

static void back(struct sim *s, int node)
{
    struct sim_node *n = &s->nodes[node];
    if (!n->silent)
        return;
    s->nodes_up += n->down;
    n->silent = n->down = false;
    n->booted_s = s->now_s;
    sim_tell(s, SIM_NODE_BACK, node, 0);
    lose(s, node);
    failure_plan(s, node);
}

void sim_node_event(struct sim *s, const struct sim_event *e)
{
    int node = (int)e->id;
    if (s->nodes[node].failures != e->run)
        return;
    if (e->tick == TICK_NODE_FAIL)
        fail(s, node);
    else if (e->tick == TICK_NODE_BACK)
        back(s, node);
    else if (s->nodes[node].silent && !s->nodes[node].down)
        give_up(s, node);
}

void sched_sim_node_fail(struct sched *s, int node)
{
    fail(sim_of(s), node);
}

void sched_sim_node_back(struct sched *s, int node)
{
    back(sim_of(s), node);
}

/* ---- which node was lost ---- */

static const double BOOT_S = 1800; /* a lost node is booted at most this long after loss->down_by */

static bool was_lost(const struct sim_node *n, const struct sched_loss *loss)
{
    bool gone = n->down && n->down_s <= loss->down_by;
    return gone || (n->booted_s > loss->booted_after && n->booted_s <= loss->down_by + BOOT_S);
}

int sim_node_of(const struct sim *s, const char *name)
{
    int64_t node;
    if (name[0] != 'n' || num_parse_i64(name + 1, "node", &node, NULL) < 0)
        return -1;
    return node >= 0 && node < s->conf.nodes ? (int)node : -1;
}

int sim_lost_node(struct sched *sched, const char *nodes, const struct sched_loss *loss,
                  char node[SCHED_ID_BYTES], struct err *err)
{
    struct sim *s = sim_of(sched);
    struct arena arena = {0};
    const char **names = NULL;
    size_t n = 0;
    int rc = nodes ? hosts_expand(nodes, &arena, &names, &n, err) : 0;
    const struct sim_job *self = !nodes && s->self ? s->jobs[s->self - 1] : NULL;
    n = nodes ? n : self ? (size_t)self->spec.nodes : 0;
    for (size_t i = 0; rc == 0 && i < n && !node[0]; i++) {
        int k = nodes ? sim_node_of(s, names[i]) : self->where[i];
        if (k >= 0 && was_lost(&s->nodes[k], loss))
            snprintf(node, SCHED_ID_BYTES, "n%d", k);
    }
    arena_release(&arena);
    return rc;
}
