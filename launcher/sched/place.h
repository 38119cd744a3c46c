/* place: decides which node takes which ranks, so that ranks that talk most sit under the same
 * switch. Pure arithmetic.
 *
 * Ranks are numbered with the innermost axis of the layout fastest, so neighbours in number are
 * neighbours in traffic: a node's ranks are consecutive, and the nodes are ordered so that every
 * switch's nodes are consecutive too. Each switch that holds some but not all of the nodes has to
 * be left at least once on the way around the ring of nodes. Such an order does it exactly once, at
 * every level of the tree: no order of the nodes passes fewer switches (the test tries all orders).
 *
 * Among these orders: the branch goes first that ends on a border of the layout's groups (the
 * largest group that fits, see place_groups), so that fewer groups lie under two switches; then the
 * larger branch; then by name, n2 before n10. Nodes of which no switch is known come after the
 * others.
 */
#ifndef LAUNCHER_SCHED_PLACE_H
#define LAUNCHER_SCHED_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum { PLACE_GROUPS = 3 };
struct slurm_net;

struct place_node {
    const char *name;
    const char *path; /* the switches above it, from the top: "spine/leaf0"; "": not known */
};

/* Finds the path of each of these nodes, in their order. Borrows the names. */
int place_paths(const struct slurm_net *net, const char *const *names, size_t n,
                struct arena *arena, struct place_node **out, struct err *err);

/* Turns sizes of nested groups of ranks, ascending, into groups of nodes: those that are whole
 * nodes and more than one, ended by 0. */
void place_groups(const int64_t ranks[PLACE_GROUPS], int64_t ranks_per_node,
                  int64_t nodes[PLACE_GROUPS + 1]);

/* Sorts the nodes. groups: as place_groups gives them. */
int place_order(struct place_node *nodes, size_t n, const int64_t *groups, struct err *err);

/* Returns the first rank of node i of n. Ranks are spread evenly; if that leaves a rest, the first
 * nodes have one more. */
static inline int64_t place_first_rank(int64_t ranks, size_t n, size_t i)
{
    int64_t more = ranks % (int64_t)n, k = (int64_t)i;
    return ranks / (int64_t)n * k + (k < more ? k : more);
}

/* Finds the CPUs of each of a node's ranks. near[i] lists the CPUs near rank i ("0-27,56-83");
 * ranks with equal lists share them evenly, a part of each range if every range divides evenly. ""
 * if there are fewer CPUs than ranks. ERR_INPUT for a text that is no such list. */
int place_cpus(const char *const *near, size_t ranks, struct arena *arena, const char **out,
               struct err *err);
/* Writes "0-3,8" as a hexadecimal mask, "0x10f". */
int place_mask(const char *cpus, struct str *out, struct err *err);

#endif
