/* This file decides which jobs start on which nodes, and which jobs are preempted for them. */
#include "launcher/sched/sim_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the queue ---- */

static bool goes_first(const struct sim_job *a, const struct sim_job *b)
{
    if (a->partition->tier != b->partition->tier)
        return a->partition->tier > b->partition->tier;
    if (a->spec.priority != b->spec.priority)
        return a->spec.priority > b->spec.priority;
    return a->id < b->id;
}

/* Returns the first index of the queue whose job does not go before this one. */
static size_t place_in_queue(const struct sim *s, const struct sim_job *j)
{
    size_t lo = 0, hi = s->n_queue;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (goes_first(s->queue[mid], j))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void sim_enqueue(struct sim *s, struct sim_job *j)
{
    size_t i = place_in_queue(s, j);
    memmove(&s->queue[i + 1], &s->queue[i], (s->n_queue - i) * sizeof *s->queue);
    s->queue[i] = j;
    s->n_queue++;
    s->dirty = true;
}

void sim_dequeue(struct sim *s, struct sim_job *j)
{
    size_t i = place_in_queue(s, j);
    memmove(&s->queue[i], &s->queue[i + 1], (--s->n_queue - i) * sizeof *s->queue);
    s->dirty = true;
}

/* ---- nodes with room ---- */

int sim_cores_of(const struct sim *s, const struct sim_job *j)
{
    return j->spec.cores_per_node ? j->spec.cores_per_node : s->conf.cores_per_node;
}

static bool node_fits(const struct sim *s, const struct sim_job *j, int node, int cores_free,
                      int gpus_free)
{
    return !s->nodes[node].down && !(j->banned && j->banned[node]) &&
           cores_free >= sim_cores_of(s, j) && gpus_free >= j->spec.gpus_per_node;
}

void sim_hold(struct sim *s, struct sim_job *j, bool takes)
{
    int sign = takes ? -1 : 1;
    if (j->holds == takes)
        return;
    for (int i = 0; i < j->spec.nodes; i++) {
        s->nodes[j->where[i]].cores_free += sign * sim_cores_of(s, j);
        s->nodes[j->where[i]].gpus_free += sign * j->spec.gpus_per_node;
    }
    j->holds = takes;
    s->dirty = true;
}

/* Finds the first nodes that have room; returns false if they are too few. */
static bool find_nodes(const struct sim *s, struct sim_job *j)
{
    int k = 0;
    for (int i = 0; i < s->conf.nodes && k < j->spec.nodes; i++)
        if (node_fits(s, j, i, s->nodes[i].cores_free, s->nodes[i].gpus_free))
            j->where[k++] = i;
    return k == j->spec.nodes;
}

static bool place_is_free(const struct sim *s, const struct sim_job *j)
{
    for (int i = 0; i < j->spec.nodes; i++) {
        const struct sim_node *n = &s->nodes[j->where[i]];
        if (!node_fits(s, j, j->where[i], n->cores_free, n->gpus_free))
            return false;
    }
    return true;
}

/* ---- preemption ---- */

static bool gives_way(const struct sim_job *v, const struct sim_job *j)
{
    return v->holds && v->state == SCHED_RUNNING && v->partition->tier < j->partition->tier &&
           v->partition->preempt != SCHED_PREEMPT_OFF;
}

/* Compares jobs by the order of preemption: the least urgent first, among equals the youngest. */
static int by_urgency(const void *a, const void *b)
{
    const struct sim_job *x = *(struct sim_job *const *)a, *y = *(struct sim_job *const *)b;
    return goes_first(x, y) ? 1 : -1;
}

static void add_room(const struct sim *s, const struct sim_job *v)
{
    for (int i = 0; i < v->spec.nodes; i++) {
        s->room[2 * v->where[i]] += sim_cores_of(s, v);
        s->room[2 * v->where[i] + 1] += v->spec.gpus_per_node;
    }
}

static bool room_suffices(const struct sim *s, const struct sim_job *j)
{
    int k = 0;
    for (int i = 0; i < s->conf.nodes && k < j->spec.nodes; i++)
        k += node_fits(s, j, i, s->room[2 * i], s->room[2 * i + 1]);
    return k == j->spec.nodes;
}

static void give_way(struct sim *s, struct sim_job *v)
{
    if (v->partition->preempt == SCHED_PREEMPT_SUSPEND)
        sim_job_suspend(s, v);
    else
        sim_job_ask(s, v, SIM_STOP_PREEMPT, "preempted");
}

/* Preempts running jobs for this one, if that frees enough. Cores of jobs that are already stopping
 * count as free. */
static void make_room(struct sim *s, const struct sim_job *j)
{
    struct sim_job **v = calloc(s->n_active + 1, sizeof(struct sim_job *));
    size_t n = 0, used = 0;
    for (int i = 0; i < s->conf.nodes; i++) {
        s->room[2 * i] = s->nodes[i].cores_free;
        s->room[2 * i + 1] = s->nodes[i].gpus_free;
    }
    for (size_t i = 0; v && i < s->n_active; i++)
        if (gives_way(s->active[i], j))
            v[n++] = s->active[i];
        else if (s->active[i]->holds && s->active[i]->state == SCHED_STOPPING)
            add_room(s, s->active[i]);
    if (n > 1)
        qsort(v, n, sizeof *v, by_urgency);
    bool enough = n > 0 && room_suffices(s, j);
    if (!enough)
        for (; used < n && !enough; enough = room_suffices(s, j))
            add_room(s, v[used++]);
    for (size_t i = 0; enough && i < used; i++)
        give_way(s, v[i]);
    free(v);
}

/* ---- the pass ---- */

static bool may_start(const struct sim *s, const struct sim_job *j)
{
    bool free_to = j->after == 0 || sched_state_ended(s->jobs[j->after - 1]->state);
    return free_to && j->ready_s <= s->now_s && j->spec.nodes <= s->nodes_up;
}

/* Starts or resumes the job if there is room. */
static bool try_start(struct sim *s, struct sim_job *j)
{
    bool resumes = j->state == SCHED_SUSPENDED;
    if (resumes ? !place_is_free(s, j) : !find_nodes(s, j))
        return false;
    sim_dequeue(s, j);
    sim_hold(s, j, true);
    if (resumes)
        sim_job_resume(s, j);
    else
        sim_job_start(s, j);
    return true;
}

/* Starts jobs in queue order up to the first that has no room. A suspended job waits for its own
 * nodes and blocks no other. */
static void pass_once(struct sim *s)
{
    for (size_t i = 0; i < s->n_queue;) {
        struct sim_job *j = s->queue[i];
        if (!may_start(s, j)) {
            i++;
        } else if (!try_start(s, j)) {
            if (j->state != SCHED_SUSPENDED) {
                make_room(s, j);
                return;
            }
            i++;
        }
    }
}

/* Repeats the pass until nothing changes, because an execution that cannot begin ends at once. */
void sim_pass(struct sim *s)
{
    while (s->dirty) {
        s->dirty = false;
        pass_once(s);
    }
}
